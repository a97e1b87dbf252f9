"""Images of another size, and pixels between space and channels, as layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn.module import Module

Scales: TypeAlias = float | Sequence[float]


class Upsample(Module):
    """Scale the spatial axes up (or down).

    Args:
        size: Size of the output, one int or one an axis.
        scale_factor: Its ratio to the input's, one number or one an axis; either this or ``size``.
        mode: ``"nearest"``, ``"linear"``, ``"bilinear"``, ``"bicubic"`` or ``"trilinear"``, and
            what :func:`~jaxsaw.nn.functional.interpolate` has besides.
        align_corners: Whether the middles of the outermost pixels stay in place, instead of the
            image's edges; for the modes that aren't nearest.
        recompute_scale_factor: Compute positions with the ratio of the sizes, which are whole
            numbers, instead of with ``scale_factor``.

    Shape:
        - Input: ``(N, C, L)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``
        - Output: the same axes, of ``size`` or ``floor(size of the input * scale_factor)``

    Raises:
        ValueError: When called, if shape or settings don't fit.

    Source: ``torch.nn.Upsample``.

    Example:
        >>> nn.Upsample(scale_factor=2)(jnp.array([[[1.0, 2.0]]])).tolist()
        [[[1.0, 1.0, 2.0, 2.0]]]
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: Scales | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, Sequence):
            scale_factor = tuple(map(float, scale_factor))
        elif scale_factor is not None:
            scale_factor = float(scale_factor)
        self.scale_factor = scale_factor
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Array) -> Array:
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        size = f"size={self.size!r}"
        if self.scale_factor is not None:
            size = f"scale_factor={self.scale_factor!r}"
        return f"{size}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Scale images up, each pixel the nearest one.

    Args:
        size: Height and width of the output.
        scale_factor: Their ratio to the input's; either this or ``size``.

    Shape:
        - Input: ``(N, C, H, W)``
        - Output: ``(N, C, H', W')``

    Raises:
        ValueError: When called, if shape or settings don't fit.

    Source: ``torch.nn.UpsamplingNearest2d``.

    Example:
        >>> nn.UpsamplingNearest2d(scale_factor=2)(jnp.ones((1, 3, 2, 2))).shape
        (1, 3, 4, 4)
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: Scales | None = None
    ) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Scale images up, linearly along both axes, with the corners' pixels in place.

    Args:
        size: Height and width of the output.
        scale_factor: Their ratio to the input's; either this or ``size``.

    Shape:
        - Input: ``(N, C, H, W)``
        - Output: ``(N, C, H', W')``

    Raises:
        ValueError: When called, if shape or settings don't fit.

    Source: ``torch.nn.UpsamplingBilinear2d``.

    Example:
        >>> nn.UpsamplingBilinear2d((1, 3))(jnp.array([[[[1.0, 3.0]]]])).tolist()
        [[[[1.0, 2.0, 3.0]]]]
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: Scales | None = None
    ) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(Module):
    """Turn groups of ``r^2`` channels into images ``r`` times as large.

    Args:
        upscale_factor: The ``r``.

    Shape:
        - Input: ``(*, C * r * r, H, W)``
        - Output: ``(*, C, H * r, W * r)``

    Raises:
        ValueError: When called, if the channels aren't divisible by ``r^2``.

    Source: ``torch.nn.PixelShuffle``; Shi et al., 2016.

    Example:
        >>> nn.PixelShuffle(2)(jnp.ones((1, 8, 2, 3))).shape
        (1, 2, 4, 6)
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Array) -> Array:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Turn images into groups of ``r^2`` channels of images ``r`` times as small.

    Args:
        downscale_factor: The ``r``.

    Shape:
        - Input: ``(*, C, H * r, W * r)``
        - Output: ``(*, C * r * r, H, W)``

    Raises:
        ValueError: When called, if height or width isn't divisible by ``r``.

    Source: ``torch.nn.PixelUnshuffle``; Shi et al., 2016.

    Example:
        >>> nn.PixelUnshuffle(2)(jnp.ones((1, 2, 4, 6))).shape
        (1, 8, 2, 3)
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Array) -> Array:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Deal the channels of ``g`` groups out in turn: the first of each, then the second of each.

    Args:
        groups: The ``g``, a divisor of ``C``.

    Shape:
        - Input: ``(N, C, *)`` with at least one more axis
        - Output: the same

    Raises:
        ValueError: When called, if the shape doesn't fit.

    Source: ``torch.nn.ChannelShuffle``; Zhang et al., 2018.

    Example:
        >>> nn.ChannelShuffle(2)(jnp.arange(6.0).reshape(1, 6, 1)).ravel().tolist()
        [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Array) -> Array:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
