"""Optimizers, schedules of learning rates, and bounds on gradients."""

from jaxsaw.optim import lr_scheduler, swa_utils
from jaxsaw.optim.accumulate import accumulate
from jaxsaw.optim.adafactor import Adafactor
from jaxsaw.optim.adagrad import Adadelta, Adagrad
from jaxsaw.optim.adam import Adam, AdamW
from jaxsaw.optim.adamax import Adamax
from jaxsaw.optim.asgd import ASGD
from jaxsaw.optim.clip import clip_grad_norm, clip_grad_value, global_norm
from jaxsaw.optim.grad_scaler import GradScaler
from jaxsaw.optim.lamb import Lamb
from jaxsaw.optim.lbfgs import LBFGS
from jaxsaw.optim.lion import Lion
from jaxsaw.optim.muon import Muon
from jaxsaw.optim.nadam import NAdam
from jaxsaw.optim.optax import Optax
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.radam import RAdam
from jaxsaw.optim.rmsprop import RMSprop
from jaxsaw.optim.rprop import Rprop
from jaxsaw.optim.rule import rule
from jaxsaw.optim.sgd import SGD
from jaxsaw.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "GradScaler",
    "LBFGS",
    "Lamb",
    "Lion",
    "Muon",
    "NAdam",
    "Optax",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "SparseAdam",
    "accumulate",
    "clip_grad_norm",
    "clip_grad_value",
    "global_norm",
    "lr_scheduler",
    "rule",
    "swa_utils",
]
