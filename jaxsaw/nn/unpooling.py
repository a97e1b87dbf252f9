"""The way back from the maxima of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import as_tuple
from jaxsaw.nn.module import Module

IntOrInts: TypeAlias = int | Sequence[int]


class _MaxUnpool(Module):
    """What the ways back share; subclasses say over how many axes they go."""

    _spatial: ClassVar[int]
    _unpool: ClassVar[Callable[..., Array]]

    def __init__(
        self, kernel_size: IntOrInts, stride: IntOrInts | None = None, padding: IntOrInts = 0
    ) -> None:
        super().__init__()
        name, n = type(self).__name__, self._spatial
        self.kernel_size = as_tuple(name, "kernel_size", kernel_size, n)
        self.stride = as_tuple(name, "stride", kernel_size if stride is None else stride, n)
        self.padding = as_tuple(name, "padding", padding, n)

    def forward(
        self, input: Array, indices: Array, output_size: Sequence[int] | None = None
    ) -> Array:
        return type(self)._unpool(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Put maxima back where :class:`MaxPool1d` found them, and zeros elsewhere.

    Args:
        kernel_size: Size of the window.
        stride: Step between windows; the window's size if None.
        padding: What was added on both sides.

    Shape:
        - Input: the maxima, ``(N, C, L)`` or ``(C, L)``; ``indices``, where they were;
          and perhaps ``output_size``, the spatial axes of the output or all of them
        - Output: ``(N, C, L')`` or ``(C, L')``, with each size by default
          ``(size - 1) * stride - 2 * padding + kernel_size``

    Raises:
        ValueError: When called, if shapes or settings don't fit, or an index is out of range.

    Source: ``torch.nn.MaxUnpool1d``; Zeiler and Fergus, 2014.

    Example:
        >>> y, where = nn.MaxPool1d(2, return_indices=True)(jnp.ones((8, 3, 4)))
        >>> nn.MaxUnpool1d(2)(y, where).shape
        (8, 3, 4)
    """

    _spatial = 1
    _unpool = staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpool):
    """Put maxima back where :class:`MaxPool2d` found them, and zeros elsewhere.

    Args:
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        padding: What was added on both sides.

    Shape:
        - Input: the maxima, ``(N, C, H, W)`` or ``(C, H, W)``; ``indices``, where they were;
          and perhaps ``output_size``, the spatial axes of the output or all of them
        - Output: ``(N, C, H', W')`` or ``(C, H', W')``, with each size by default
          ``(size - 1) * stride - 2 * padding + kernel_size``

    Raises:
        ValueError: When called, if shapes or settings don't fit, or an index is out of range.

    Source: ``torch.nn.MaxUnpool2d``; Zeiler and Fergus, 2014.

    Example:
        >>> y, where = nn.MaxPool2d(2, return_indices=True)(jnp.ones((8, 3, 4, 4)))
        >>> nn.MaxUnpool2d(2)(y, where).shape
        (8, 3, 4, 4)
    """

    _spatial = 2
    _unpool = staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """Put maxima back where :class:`MaxPool3d` found them, and zeros elsewhere.

    Args:
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        padding: What was added on both sides.

    Shape:
        - Input: the maxima, ``(N, C, D, H, W)`` or ``(C, D, H, W)``; ``indices``, where they were;
          and perhaps ``output_size``, the spatial axes of the output or all of them
        - Output: ``(N, C, D', H', W')`` or ``(C, D', H', W')``, with each size by default
          ``(size - 1) * stride - 2 * padding + kernel_size``

    Raises:
        ValueError: When called, if shapes or settings don't fit, or an index is out of range.

    Source: ``torch.nn.MaxUnpool3d``; Zeiler and Fergus, 2014.

    Example:
        >>> y, where = nn.MaxPool3d(2, return_indices=True)(jnp.ones((8, 3, 4, 4, 4)))
        >>> nn.MaxUnpool3d(2)(y, where).shape
        (8, 3, 4, 4, 4)
    """

    _spatial = 3
    _unpool = staticmethod(F.max_unpool3d)
