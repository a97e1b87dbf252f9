"""Layers that only change the shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

from jaxsaw.nn.module import Module


class Flatten(Module):
    """Merge neighbouring axes into one.

    Args:
        start_dim: The first axis.
        end_dim: The last axis.

    Shape:
        - Input: ``(*, s_start, ..., s_end, *)``
        - Output: ``(*, s_start * ... * s_end, *)``

    Raises:
        ValueError: When called, if the input has no such axes.

    Source: ``torch.nn.Flatten``.

    Example:
        >>> nn.Flatten()(jnp.ones((8, 3, 4, 4))).shape
        (8, 48)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Array) -> Array:
        x = jnp.asarray(input)
        ndim = max(x.ndim, 1)
        for argument, dim in (("start_dim", self.start_dim), ("end_dim", self.end_dim)):
            if not -ndim <= dim < ndim:
                raise ValueError(
                    f"{self._who()}: {argument}={dim} is out of range for input {x.shape}."
                )
        start, end = self.start_dim % ndim, self.end_dim % ndim
        if start > end:
            raise ValueError(
                f"{self._who()}: expected start_dim before end_dim, got {self.start_dim} and "
                f"{self.end_dim} for input {x.shape}."
            )
        merged = math.prod(x.shape[start : end + 1])
        return x.reshape(*x.shape[:start], merged, *x.shape[end + 1 :])

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split one axis into several.

    Args:
        dim: The axis.
        unflattened_size: The new sizes; one of them may be -1, and follows from the others.

    Shape:
        - Input: ``(*, size, *)``
        - Output: ``(*, *unflattened_size, *)``

    Raises:
        TypeError: If the sizes aren't integers.
        ValueError: When called, if the input has no such axis or its size doesn't fit.

    Source: ``torch.nn.Unflatten``.

    Example:
        >>> nn.Unflatten(1, (3, -1))(jnp.ones((8, 12))).shape
        (8, 3, 4)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError(f"Unflatten: expected dim to be an int, got {dim!r}.")
        if not isinstance(unflattened_size, tuple | list) or any(
            not isinstance(size, int) for size in unflattened_size
        ):
            raise TypeError(
                f"Unflatten: expected unflattened_size of integers, got {unflattened_size!r}."
            )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Array) -> Array:
        x, sizes = jnp.asarray(input), list(self.unflattened_size)
        if not -x.ndim <= self.dim < x.ndim:
            raise ValueError(f"{self._who()}: dim={self.dim} is out of range for input {x.shape}.")
        dim = self.dim % x.ndim
        rest = math.prod(size for size in sizes if size != -1)
        if sizes.count(-1) == 1 and rest and x.shape[dim] % rest == 0:
            sizes[sizes.index(-1)] = x.shape[dim] // rest
        if min(sizes, default=-1) < 0 or math.prod(sizes) != x.shape[dim]:
            raise ValueError(
                f"{self._who()}: can't split axis {self.dim} of input {x.shape} into "
                f"{tuple(self.unflattened_size)}."
            )
        return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
