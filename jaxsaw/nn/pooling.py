"""Pooling over one and two spatial axes, channels first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import as_tuple
from jaxsaw.nn.module import Module

IntOrInts: TypeAlias = int | Sequence[int]
Size: TypeAlias = int | Sequence[int | None] | None


class MaxPool1d(Module):
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
        - Output: ``(N, C, L')`` or ``(C, L')``; with ``return_indices`` also integers of that
          shape

    Raises:
        ValueError: When called, if shape or settings don't fit.

    Source: ``torch.nn.MaxPool1d``.

    Example:
        >>> nn.MaxPool1d(2)(jnp.array([[[1.0, 3.0, 2.0, 0.0]]])).tolist()
        [[[3.0, 2.0]]]
    """

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
        return F.max_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool2d(Module):
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
        return F.max_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class AvgPool1d(Module):
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

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(Module):
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
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool1d(Module):
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

    def __init__(self, output_size: IntOrInts) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Array) -> Array:
        return F.adaptive_avg_pool1d(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool2d(Module):
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
        >>> nn.AdaptiveAvgPool2d((1, None))(jnp.ones((8, 3, 7, 5))).shape
        (8, 3, 1, 5)
    """

    def __init__(self, output_size: Size) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Array) -> Array:
        return F.adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(Module):
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

    def __init__(self, output_size: IntOrInts, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Array) -> Array | tuple[Array, Array]:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool2d(Module):
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

    def __init__(self, output_size: Size, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Array) -> Array | tuple[Array, Array]:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
