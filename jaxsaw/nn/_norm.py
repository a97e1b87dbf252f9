"""What the norms share: weight and bias, and running statistics."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxsaw.nn._factory import as_dtype, full, place
from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Buffer, Parameter


class Tracked(Module):
    """What the norms with running statistics share.

    Attributes:
        num_features: Number of channels ``C``.
        eps: Added to the variance.
        momentum: How far the running statistics move.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics.
    """

    weight: Parameter | None
    bias: Parameter | None
    running_mean: Buffer | None
    running_var: Buffer | None
    num_batches_tracked: Buffer | None

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: Any,
        dtype: Any,
        bias: bool,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        add_affine(self, (num_features,), affine, affine and bias, dtype, device)
        if track_running_stats:
            kind = as_dtype(dtype)
            self.running_mean = _statistic(jnp.zeros(num_features, kind), device)
            self.running_var = _statistic(jnp.ones(num_features, kind), device)
            self.num_batches_tracked = _statistic(jnp.zeros((), jnp.int32), device)
        else:
            self.register_buffer("running_mean", None)
            self.register_buffer("running_var", None)
            self.register_buffer("num_batches_tracked", None)

    def reset_running_stats(self) -> None:
        """Forget the running statistics."""
        if self.track_running_stats:
            for box, value in (
                (self.running_mean, 0),
                (self.running_var, 1),
                (self.num_batches_tracked, 0),
            ):
                if box is not None:
                    box.value = jnp.full(box.shape, value, box.dtype)

    def reset_parameters(self) -> None:
        """Forget the running statistics, and set weight to one and bias to zero."""
        self.reset_running_stats()
        reset_affine(self)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


def add_affine(
    module: Module, shape: tuple[int, ...], weight: bool, bias: bool, dtype: Any, device: Any
) -> None:
    """Give a module the weight and the bias that it wants."""
    for name, wanted, value in (("weight", weight, 1), ("bias", bias, 0)):
        module.register_parameter(name, full(shape, value, dtype, device) if wanted else None)


def reset_affine(module: Any) -> None:
    """Set a module's weight to one and its bias to zero."""
    for box, value in ((module.weight, 1), (module.bias, 0)):
        if box is not None:
            box.value = jnp.full(box.shape, value, box.dtype)


def _statistic(array: Array, device: Any) -> Buffer:
    return Buffer.own(place(array, device))
