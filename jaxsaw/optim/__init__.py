"""Optimizers, schedules of learning rates, and bounds on gradients."""

from jaxsaw.optim import lr_scheduler
from jaxsaw.optim.adam import Adam, AdamW
from jaxsaw.optim.clip import clip_grad_norm, clip_grad_value, global_norm
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.sgd import SGD

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Optimizer",
    "clip_grad_norm",
    "clip_grad_value",
    "global_norm",
    "lr_scheduler",
]
