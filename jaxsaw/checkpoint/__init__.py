"""Checkpoints: the whole state of a training program in one file, written atomically."""

from jaxsaw.checkpoint.averaging import average
from jaxsaw.checkpoint.errors import CheckpointError
from jaxsaw.checkpoint.manager import Manager
from jaxsaw.checkpoint.safetensors import load_safetensors, save_safetensors
from jaxsaw.checkpoint.state import Loaded, Restored, inspect, load, restore, save, verify

__all__ = [
    "CheckpointError",
    "Loaded",
    "Manager",
    "Restored",
    "average",
    "inspect",
    "load",
    "load_safetensors",
    "restore",
    "save",
    "save_safetensors",
    "verify",
]
