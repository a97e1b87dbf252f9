"""What the losses share as layers."""

from __future__ import annotations

from jax import Array

from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Buffer


class Loss(Module):
    """What the losses share.

    Args:
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(
        self, size_average: None = None, reduce: None = None, reduction: str = "mean"
    ) -> None:
        super().__init__()
        if size_average is not None or reduce is not None:
            raise ValueError(
                f"{type(self).__name__}: size_average and reduce aren't supported; use reduction=."
            )
        self.reduction = reduction


class WeightedLoss(Loss):
    """What the losses share that have weights.

    Args:
        weight: The weights, a buffer.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    weight: Buffer | None

    def __init__(
        self,
        weight: Array | None = None,
        size_average: None = None,
        reduce: None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
