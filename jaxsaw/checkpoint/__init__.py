"""Checkpoints: the whole state of a training program in one file, written atomically."""

from jaxsaw.checkpoint.errors import CheckpointError
from jaxsaw.checkpoint.manager import Manager
from jaxsaw.checkpoint.state import Loaded, Restored, inspect, load, restore, save, verify

__all__ = [
    "CheckpointError",
    "Loaded",
    "Manager",
    "Restored",
    "inspect",
    "load",
    "restore",
    "save",
    "verify",
]
