"""Pooling of windows: maxima, means and norms, channels first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import as_tuple
from jaxsaw.nn.module import Module

IntOrInts: TypeAlias = int | Sequence[int]


class _Pool(Module):
    """What poolings share; subclasses say which function they are."""

    _pool: ClassVar[Callable[..., Any]]
    _shown: ClassVar[tuple[str, ...]] = ("kernel_size", "stride", "padding")

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._shown)


class _MaxPool(_Pool):
    """What maximum poolings share."""

    _shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self,
        kernel_size: IntOrInts,
        stride: IntOrInts | None = None,
        padding: IntOrInts = 0,
        dilation: IntOrInts = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Array) -> Array | tuple[Array, Array]:
        return type(self)._pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )


class _AvgPool(_Pool):
    """What average poolings over two and three axes share."""

    def __init__(
        self,
        kernel_size: IntOrInts,
        stride: IntOrInts | None = None,
        padding: IntOrInts = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Array) -> Array:
        return type(self)._pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class _LPPool(_Pool):
    """What norm poolings share."""

    _shown = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(
        self,
        norm_type: float,
        kernel_size: IntOrInts,
        stride: IntOrInts | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Array) -> Array:
        return type(self)._pool(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )


class MaxPool1d(_MaxPool):
    """Take the maximum of each window over one spatial axis.

    Args:
        kernel_size: Size of the window.
        stride: Step between windows; the window's size if None.
        padding: What never wins, on both sides, at most half a window.
        dilation: Step between the window's elements.
        return_indices: Also return where each maximum was.
        ceil_mode: Keep last windows that reach over the end.

    Shape:
        - Input: ``(N, C, L)`` or ``(C, L)``
        - Output: ``(N, C, L')`` or ``(C, L')``; with ``return_indices`` also
          integers of that shape

    Raises:
        ValueError: When called, if shape or settings don't fit.

    Source: ``torch.nn.MaxPool1d``.

    Example:
        >>> nn.MaxPool1d(2)(jnp.array([[[1.0, 3.0, 2.0, 0.0]]])).tolist()
        [[[3.0, 2.0]]]
    """

    _pool = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """Take the maximum of each window over two spatial axes.

    Args:
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        padding: What never wins, on both sides, at most half a window.
        dilation: Step between the window's elements.
        return_indices: Also return where each maximum was.
        ceil_mode: Keep last windows that reach over the end.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: ``(N, C, H', W')`` or ``(C, H', W')``; with ``return_indices`` also
          integers of that shape

    Raises:
        ValueError: When called, if shape or settings don't fit.

    Source: ``torch.nn.MaxPool2d``.

    Example:
        >>> nn.MaxPool2d(2)(jnp.ones((8, 3, 6, 6))).shape
        (8, 3, 3, 3)
    """

    _pool = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """Take the maximum of each window over three spatial axes.

    Args:
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        padding: What never wins, on both sides, at most half a window.
        dilation: Step between the window's elements.
        return_indices: Also return where each maximum was.
        ceil_mode: Keep last windows that reach over the end.

    Shape:
        - Input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``
        - Output: ``(N, C, D', H', W')`` or ``(C, D', H', W')``; with ``return_indices`` also
          integers of that shape

    Raises:
        ValueError: When called, if shape or settings don't fit.

    Source: ``torch.nn.MaxPool3d``.

    Example:
        >>> nn.MaxPool3d(2)(jnp.ones((8, 3, 6, 6, 6))).shape
        (8, 3, 3, 3, 3)
    """

    _pool = staticmethod(F.max_pool3d)


class AvgPool1d(_Pool):
    """Take the mean of each window over one spatial axis.

    Args:
        kernel_size: Size of the window.
        stride: Step between windows; the window's size if None.
        padding: Zeros on both sides, at most half a window.
        ceil_mode: Keep last windows that reach over the end.
        count_include_pad: Count padded zeros in the mean.

    Shape:
        - Input: ``(N, C, L)`` or ``(C, L)``
        - Output: ``(N, C, L')`` or ``(C, L')``

    Raises:
        ValueError: When called, if shape or settings don't fit.
        TypeError: When called, if the input isn't floating.

    Source: ``torch.nn.AvgPool1d``.

    Example:
        >>> nn.AvgPool1d(2)(jnp.array([[[1.0, 3.0, 2.0, 0.0]]])).tolist()
        [[[2.0, 1.0]]]
    """

    def __init__(
        self,
        kernel_size: IntOrInts,
        stride: IntOrInts | None = None,
        padding: IntOrInts = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = as_tuple("AvgPool1d", "kernel_size", kernel_size, 1)
        self.stride = as_tuple("AvgPool1d", "stride", kernel_size if stride is None else stride, 1)
        self.padding = as_tuple("AvgPool1d", "padding", padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Array) -> Array:
        return F.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )


class AvgPool2d(_AvgPool):
    """Take the mean of each window over two spatial axes.

    Args:
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        padding: Zeros on both sides, at most half a window.
        ceil_mode: Keep last windows that reach over the end.
        count_include_pad: Count padded zeros in the mean.
        divisor_override: Divide each sum by this instead of a count.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: ``(N, C, H', W')`` or ``(C, H', W')``

    Raises:
        ValueError: When called, if shape or settings don't fit.
        TypeError: When called, if the input isn't floating.

    Source: ``torch.nn.AvgPool2d``.

    Example:
        >>> nn.AvgPool2d(2)(jnp.ones((8, 3, 6, 6))).shape
        (8, 3, 3, 3)
    """

    _pool = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPool):
    """Take the mean of each window over three spatial axes.

    Args:
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        padding: Zeros on both sides, at most half a window.
        ceil_mode: Keep last windows that reach over the end.
        count_include_pad: Count padded zeros in the mean.
        divisor_override: Divide each sum by this instead of a count.

    Shape:
        - Input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``
        - Output: ``(N, C, D', H', W')`` or ``(C, D', H', W')``

    Raises:
        ValueError: When called, if shape or settings don't fit.
        TypeError: When called, if the input isn't floating.

    Source: ``torch.nn.AvgPool3d``.

    Example:
        >>> nn.AvgPool3d(2)(jnp.ones((8, 3, 6, 6, 6))).shape
        (8, 3, 3, 3, 3)
    """

    _pool = staticmethod(F.avg_pool3d)


class LPPool1d(_LPPool):
    """Take the p-norm of each window over one spatial axis: ``sum(x ** p) ** (1 / p)``.

    Args:
        norm_type: The ``p``, not 0. Powers are taken of ``x``, not of ``|x|``, as in PyTorch.
        kernel_size: Size of the window.
        stride: Step between windows; the window's size if None.
        ceil_mode: Keep last windows that reach over the end; they count as if they were whole.

    Shape:
        - Input: ``(N, C, L)`` or ``(C, L)``
        - Output: ``(N, C, L')`` or ``(C, L')``

    Raises:
        ValueError: When called, if shape or settings don't fit.
        TypeError: When called, if the input isn't floating.

    Source: ``torch.nn.LPPool1d``.

    Example:
        >>> nn.LPPool1d(2, 2)(jnp.array([[[3.0, 4.0]]])).tolist()
        [[[5.0]]]
    """

    _pool = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """Take the p-norm of each window over two spatial axes: ``sum(x ** p) ** (1 / p)``.

    Args:
        norm_type: The ``p``, not 0. Powers are taken of ``x``, not of ``|x|``, as in PyTorch.
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        ceil_mode: Keep last windows that reach over the end; they count as if they were whole.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: ``(N, C, H', W')`` or ``(C, H', W')``

    Raises:
        ValueError: When called, if shape or settings don't fit.
        TypeError: When called, if the input isn't floating.

    Source: ``torch.nn.LPPool2d``.

    Example:
        >>> nn.LPPool2d(2, 2)(jnp.ones((8, 3, 6, 6))).shape
        (8, 3, 3, 3)
    """

    _pool = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """Take the p-norm of each window over three spatial axes: ``sum(x ** p) ** (1 / p)``.

    Args:
        norm_type: The ``p``, not 0. Powers are taken of ``x``, not of ``|x|``, as in PyTorch.
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        ceil_mode: Keep last windows that reach over the end; they count as if they were whole.

    Shape:
        - Input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``
        - Output: ``(N, C, D', H', W')`` or ``(C, D', H', W')``

    Raises:
        ValueError: When called, if shape or settings don't fit.
        TypeError: When called, if the input isn't floating.

    Source: ``torch.nn.LPPool3d``.

    Example:
        >>> nn.LPPool3d(2, 2)(jnp.ones((8, 3, 6, 6, 6))).shape
        (8, 3, 3, 3, 3)
    """

    _pool = staticmethod(F.lp_pool3d)
