"""Softmax and its kin, as layers."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn.module import Module


class _AlongAxis(Module):
    """What the functions share that go along one axis."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongAxis):
    """Turn numbers into probabilities: ``y = exp(x) / sum(exp(x))``.

    Args:
        dim: The axis. None warns and guesses, as in PyTorch: 0 for 0, 1 and 3 dimensions, else 1.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.Softmax``.

    Example:
        >>> nn.Softmax(dim=0)(jnp.array([1.0, 1.0])).round(3).tolist()
        [0.5, 0.5]
    """

    def forward(self, input: Array) -> Array:
        return F.softmax(input, self.dim)


class LogSoftmax(_AlongAxis):
    """Logarithm of the softmax: ``y = x - log(sum(exp(x)))``.

    Args:
        dim: The axis. None warns and guesses, as in PyTorch: 0 for 0, 1 and 3 dimensions, else 1.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.LogSoftmax``.

    Example:
        >>> print(nn.LogSoftmax(dim=0)(jnp.array([1.0, 1.0])).round(3))
        [-0.693 -0.693]
    """

    def forward(self, input: Array) -> Array:
        return F.log_softmax(input, self.dim)


class Softmin(_AlongAxis):
    """Softmax of the negative: ``y = exp(-x) / sum(exp(-x))``.

    Args:
        dim: The axis. None warns and guesses, as in PyTorch: 0 for 0, 1 and 3 dimensions, else 1.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.Softmin``.

    Example:
        >>> nn.Softmin(dim=0)(jnp.array([1.0, 1.0])).round(3).tolist()
        [0.5, 0.5]
    """

    def forward(self, input: Array) -> Array:
        return F.softmin(input, self.dim)


class Softmax2d(Module):
    """Turn the channels of each pixel into probabilities.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: the same

    Raises:
        ValueError: When called, if the input has neither shape.

    Source: ``torch.nn.Softmax2d``.

    Example:
        >>> nn.Softmax2d()(jnp.zeros((2, 1, 1))).tolist()
        [[[0.5]], [[0.5]]]
    """

    def forward(self, input: Array) -> Array:
        if jnp.ndim(input) not in (3, 4):
            raise ValueError(
                f"{self._who()}: expected input (N, C, H, W) or (C, H, W), got {jnp.shape(input)}."
            )
        return F.softmax(input, -3)
