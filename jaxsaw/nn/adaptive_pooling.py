"""Pooling to an output of a given size, channels first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn.module import Module

Size: TypeAlias = int | Sequence[int | None] | None


class _AdaptivePool(Module):
    """What adaptive poolings share; subclasses say which function they are."""

    _pool: ClassVar[Callable[..., Any]]

    def __init__(self, output_size: Size) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Array) -> Array:
        return type(self)._pool(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveMaxPool(_AdaptivePool):
    """What adaptive maximum poolings share."""

    def __init__(self, output_size: Size, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Array) -> Any:
        return type(self)._pool(input, self.output_size, self.return_indices)


class AdaptiveAvgPool1d(_AdaptivePool):
    """Take means over one spatial axis so that ``output_size`` of them come out.

    Args:
        output_size: Length of the output.

    Shape:
        - Input: ``(N, C, L)`` or ``(C, L)``
        - Output: ``(N, C, output_size)`` or ``(C, output_size)``

    Raises:
        ValueError: When called, if the shape doesn't fit.
        TypeError: When called, if the input isn't floating.

    Source: ``torch.nn.AdaptiveAvgPool1d``.

    Example:
        >>> nn.AdaptiveAvgPool1d(2)(jnp.array([[[1.0, 3.0, 2.0]]])).tolist()
        [[[2.0, 2.5]]]
    """

    _pool = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptivePool):
    """Take means over two spatial axes so that ``output_size`` of them come out.

    Args:
        output_size: Size of the output, one int or one an axis; None keeps the input's.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: ``(N, C, *output_size)`` or ``(C, *output_size)``

    Raises:
        ValueError: When called, if the shape doesn't fit.
        TypeError: When called, if the input isn't floating.

    Source: ``torch.nn.AdaptiveAvgPool2d``.

    Example:
        >>> nn.AdaptiveAvgPool2d((3, None))(jnp.ones((8, 3, 7, 5))).shape
        (8, 3, 3, 5)
    """

    _pool = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptivePool):
    """Take means over three spatial axes so that ``output_size`` of them come out.

    Args:
        output_size: Size of the output, one int or one an axis; None keeps the input's.

    Shape:
        - Input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``
        - Output: ``(N, C, *output_size)`` or ``(C, *output_size)``

    Raises:
        ValueError: When called, if the shape doesn't fit.
        TypeError: When called, if the input isn't floating.

    Source: ``torch.nn.AdaptiveAvgPool3d``.

    Example:
        >>> nn.AdaptiveAvgPool3d((3, None, 1))(jnp.ones((8, 3, 7, 5, 4))).shape
        (8, 3, 3, 5, 1)
    """

    _pool = staticmethod(F.adaptive_avg_pool3d)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Take maxima over one spatial axis so that ``output_size`` of them come out.

    Args:
        output_size: Length of the output.
        return_indices: Also return where each maximum was.

    Shape:
        - Input: ``(N, C, L)`` or ``(C, L)``
        - Output: ``(N, C, output_size)`` or ``(C, output_size)``; with ``return_indices`` also
          integers of that shape

    Raises:
        ValueError: When called, if the shape doesn't fit.

    Source: ``torch.nn.AdaptiveMaxPool1d``.

    Example:
        >>> nn.AdaptiveMaxPool1d(2)(jnp.array([[[1.0, 2.0, 3.0]]])).tolist()
        [[[2.0, 3.0]]]
    """

    _pool = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Take maxima over two spatial axes so that ``output_size`` of them come out.

    Args:
        output_size: Size of the output, one int or one an axis; None keeps the input's.
        return_indices: Also return where each maximum was.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: ``(N, C, *output_size)`` or ``(C, *output_size)``; with ``return_indices`` also
          integers of that shape

    Raises:
        ValueError: When called, if the shape doesn't fit.

    Source: ``torch.nn.AdaptiveMaxPool2d``.

    Example:
        >>> nn.AdaptiveMaxPool2d((3, None))(jnp.ones((8, 3, 7, 5))).shape
        (8, 3, 3, 5)
    """

    _pool = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Take maxima over three spatial axes so that ``output_size`` of them come out.

    Args:
        output_size: Size of the output, one int or one an axis; None keeps the input's.
        return_indices: Also return where each maximum was.

    Shape:
        - Input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``
        - Output: ``(N, C, *output_size)`` or ``(C, *output_size)``; with ``return_indices`` also
          integers of that shape

    Raises:
        ValueError: When called, if the shape doesn't fit.

    Source: ``torch.nn.AdaptiveMaxPool3d``.

    Example:
        >>> nn.AdaptiveMaxPool3d((3, None, 1))(jnp.ones((8, 3, 7, 5, 4))).shape
        (8, 3, 3, 5, 1)
    """

    _pool = staticmethod(F.adaptive_max_pool3d)
