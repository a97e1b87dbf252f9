"""Schedules: learning rates as a function of the epoch.

A schedule writes the learning rates of its optimizer, which are Variables, and counts epochs in
another one. So a step of it compiles nothing anew, may be part of a compiled function, and is
restored with the state.
"""

from jaxsaw.optim.lr_scheduler.base import LRScheduler
from jaxsaw.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from jaxsaw.optim.lr_scheduler.cyclic import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from jaxsaw.optim.lr_scheduler.formulas import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LinearLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from jaxsaw.optim.lr_scheduler.functions import LambdaLR, MultiplicativeLR
from jaxsaw.optim.lr_scheduler.plateau import ReduceLROnPlateau

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
