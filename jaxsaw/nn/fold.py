"""Windows of images as columns, and back, as layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn.module import Module

IntOrInts: TypeAlias = int | Sequence[int]


class Unfold(Module):
    """Lay out the windows of images as columns.

    Args:
        kernel_size: Size of the window, one int or one an axis.
        dilation: Step between a window's elements.
        padding: Zeros on both sides.
        stride: Step between windows.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: ``(N, C * prod(kernel_size), windows)``, or without the ``N``

    Raises:
        ValueError: When called, if shape or settings don't fit.

    Source: ``torch.nn.Unfold``.

    Example:
        >>> nn.Unfold((2, 3))(jnp.ones((1, 3, 4, 5))).shape
        (1, 18, 9)
    """

    def __init__(
        self,
        kernel_size: IntOrInts,
        dilation: IntOrInts = 1,
        padding: IntOrInts = 0,
        stride: IntOrInts = 1,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Array) -> Array:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Fold(Module):
    """Add up columns of windows to images: the transpose of :class:`Unfold`.

    Args:
        output_size: Height and width of the images.
        kernel_size: Size of the window, one int or one an axis.
        dilation: Step between a window's elements.
        padding: Zeros on both sides.
        stride: Step between windows.

    Shape:
        - Input: ``(N, C * prod(kernel_size), windows)``, or without the ``N``
        - Output: ``(N, C, *output_size)``, or without the ``N``

    Raises:
        ValueError: When called, if shape or settings don't fit.

    Source: ``torch.nn.Fold``.

    Example:
        >>> nn.Fold((3, 3), 2)(jnp.ones((1, 12, 4))).shape
        (1, 3, 3, 3)
    """

    def __init__(
        self,
        output_size: IntOrInts,
        kernel_size: IntOrInts,
        dilation: IntOrInts = 1,
        padding: IntOrInts = 0,
        stride: IntOrInts = 1,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Array) -> Array:
        return F.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
            f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )
