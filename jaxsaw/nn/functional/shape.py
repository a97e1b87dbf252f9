"""Padding, and moving pixels between space and channels."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxsaw.nn.functional._common import ArrayLike, IntOrInts, ints

_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def pad(
    input: ArrayLike, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Array:
    """Pad the last axes.

    Args:
        input: Any shape.
        pad: ``(low, high)`` of the last axis, then of the one before it, and so on. Negative
            numbers crop.
        mode: ``"constant"``; or, for all spatial axes of ``(N, C, *)`` or ``(C, *)``,
            ``"reflect"``, ``"replicate"`` or ``"circular"``.
        value: What to fill with in mode ``"constant"``; 0 if None.

    Returns:
        The padded array.

    Raises:
        ValueError: If ``pad`` doesn't fit the shape or the mode.

    Source: ``torch.nn.functional.pad``.

    Example:
        >>> pad(jnp.array([1.0, 2.0]), (1, 2)).tolist()
        [0.0, 1.0, 2.0, 0.0, 0.0]
    """
    x, amounts = jnp.asarray(input), tuple(int(p) for p in pad)
    if mode != "constant" and mode not in _MODES:
        modes = ", ".join(("constant", *_MODES))
        raise ValueError(f"pad: expected mode to be one of {modes}, got {mode!r}.")
    if len(amounts) % 2 or len(amounts) > 2 * x.ndim:
        raise ValueError(
            f"pad: expected an even number of amounts, at most {2 * x.ndim} for input {x.shape}, "
            f"got {amounts}."
        )
    axes = len(amounts) // 2
    pairs = [(0, 0)] * (x.ndim - axes)
    pairs += [(amounts[2 * i], amounts[2 * i + 1]) for i in reversed(range(axes))]
    if any(n + low + high < 0 for n, (low, high) in zip(x.shape, pairs, strict=True)):
        raise ValueError(f"pad: {amounts} crops more of input {x.shape} than there is.")

    if mode == "constant":
        fill = np.array(0 if value is None else value, x.dtype)
        return lax.pad(x, fill, [(low, high, 0) for low, high in pairs])
    if value is not None:
        raise ValueError(f"pad: mode {mode!r} takes no value, got {value}.")
    if axes not in (1, 2, 3) or x.ndim not in (axes + 1, axes + 2):
        raise ValueError(
            f"pad: mode {mode!r} pads all spatial axes of (N, C, *) or (C, *), at most three: "
            f"got pad {amounts} for input {x.shape}."
        )
    crop = [(min(low, 0), min(high, 0), 0) for low, high in pairs]
    if any(low or high for low, high, _ in crop):
        x = lax.pad(x, np.zeros((), x.dtype), crop)
    grow = [(max(low, 0), max(high, 0)) for low, high in pairs]
    for n, most in zip(x.shape, map(max, grow), strict=True):
        if most and most > {"reflect": n - 1, "circular": n, "replicate": most if n else 0}[mode]:
            raise ValueError(f"pad: mode {mode!r} can't pad an axis of size {n} by {most}.")
    return jnp.pad(x, grow, mode=_MODES[mode])


def pixel_shuffle(input: ArrayLike, upscale_factor: int) -> Array:
    """Turn groups of ``r^2`` channels into images ``r`` times as large.

    Args:
        input: ``(*, C * r * r, H, W)``.
        upscale_factor: The ``r``.

    Returns:
        ``(*, C, H * r, W * r)``.

    Raises:
        ValueError: If the channels aren't divisible by ``r^2``.

    Source: ``torch.nn.functional.pixel_shuffle``; Shi et al., 2016.

    Example:
        >>> pixel_shuffle(jnp.ones((1, 8, 2, 3)), 2).shape
        (1, 2, 4, 6)
    """
    x, (r,) = jnp.asarray(input), ints("pixel_shuffle", "upscale_factor", upscale_factor, 1)
    if x.ndim < 3 or x.shape[-3] % (r * r):
        raise ValueError(f"pixel_shuffle: expected input (*, C * {r * r}, H, W), got {x.shape}.")
    *lead, channels, h, w = x.shape
    x = x.reshape(*lead, channels // (r * r), r, r, h, w)
    x = jnp.moveaxis(x, (-4, -3), (-3, -1))  # (*, C, H, r, W, r)
    return x.reshape(*lead, channels // (r * r), h * r, w * r)


def pixel_unshuffle(input: ArrayLike, downscale_factor: int) -> Array:
    """Turn images into groups of ``r^2`` channels of images ``r`` times as small.

    Args:
        input: ``(*, C, H * r, W * r)``.
        downscale_factor: The ``r``.

    Returns:
        ``(*, C * r * r, H, W)``.

    Raises:
        ValueError: If height or width isn't divisible by ``r``.

    Source: ``torch.nn.functional.pixel_unshuffle``; Shi et al., 2016.

    Example:
        >>> pixel_unshuffle(jnp.ones((1, 2, 4, 6)), 2).shape
        (1, 8, 2, 3)
    """
    x, (r,) = jnp.asarray(input), ints("pixel_unshuffle", "downscale_factor", downscale_factor, 1)
    if x.ndim < 3 or x.shape[-2] % r or x.shape[-1] % r:
        raise ValueError(
            f"pixel_unshuffle: expected input (*, C, H * {r}, W * {r}), got {x.shape}."
        )
    *lead, channels, h, w = x.shape
    x = x.reshape(*lead, channels, h // r, r, w // r, r)
    x = jnp.moveaxis(x, (-3, -1), (-4, -3))  # (*, C, r, r, H, W)
    return x.reshape(*lead, channels * r * r, h // r, w // r)


def unfold(
    input: ArrayLike,
    kernel_size: IntOrInts,
    dilation: IntOrInts = 1,
    padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> Array:
    """Lay out the windows of images as columns.

    Args:
        input: ``(N, C, H, W)`` or ``(C, H, W)``.
        kernel_size: Size of the window, one int or one an axis.
        dilation: Step between a window's elements.
        padding: Zeros on both sides.
        stride: Step between windows.

    Returns:
        ``(N, C * prod(kernel_size), windows)``, or without the ``N``.

    Raises:
        ValueError: If shape or settings don't fit.

    Source: ``torch.nn.functional.unfold``.

    Example:
        >>> unfold(jnp.ones((1, 3, 4, 5)), (2, 3)).shape
        (1, 18, 9)
    """
    x = jnp.asarray(input)
    if x.ndim not in (3, 4):
        raise ValueError(f"unfold: expected input (N, C, H, W) or (C, H, W), got {x.shape}.")
    kernel, steps, pads, dilations, sizes = _windows(
        "unfold", x.shape[-2:], kernel_size, dilation, padding, stride
    )
    lead = x.shape[:-2]
    x = jnp.pad(x, [(0, 0)] * len(lead) + [(p, p) for p in pads])
    columns = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows, cols = (
                slice(o * d, o * d + (n - 1) * s + 1, s)
                for o, d, n, s in zip((i, j), dilations, sizes, steps, strict=True)
            )
            columns.append(x[..., rows, cols])  # (*, C, h, w)
    y = jnp.stack(columns, -3)  # (*, C, kernel, h, w)
    return y.reshape(*lead[:-1], lead[-1] * math.prod(kernel), math.prod(sizes))


def fold(
    input: ArrayLike,
    output_size: IntOrInts,
    kernel_size: IntOrInts,
    dilation: IntOrInts = 1,
    padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> Array:
    """Add up columns of windows to images: the transpose of :func:`unfold`.

    Args:
        input: ``(N, C * prod(kernel_size), windows)`` or without the ``N``.
        output_size: Height and width of the images.
        kernel_size: Size of the window, one int or one an axis.
        dilation: Step between a window's elements.
        padding: Zeros on both sides.
        stride: Step between windows.

    Returns:
        ``(N, C, *output_size)``, or without the ``N``.

    Raises:
        ValueError: If shape or settings don't fit.

    Source: ``torch.nn.functional.fold``.

    Example:
        >>> fold(jnp.ones((1, 12, 4)), (3, 3), 2).shape
        (1, 3, 3, 3)
    """
    x = jnp.asarray(input)
    size = ints("fold", "output_size", output_size, 2)
    kernel, steps, pads, dilations, sizes = _windows(
        "fold", size, kernel_size, dilation, padding, stride
    )
    rows, columns = math.prod(kernel), math.prod(sizes)
    if x.ndim not in (2, 3) or x.shape[-2] % rows or x.shape[-1] != columns:
        raise ValueError(
            f"fold: expected input (N, C * {rows}, {columns}) or (C * {rows}, {columns}) for "
            f"output_size {size} and kernel_size {kernel}, got {x.shape}."
        )
    image = jax.ShapeDtypeStruct((*x.shape[:-2], x.shape[-2] // rows, *size), x.dtype)

    def spread(images: Array) -> Array:
        return unfold(images, kernel, dilations, pads, steps)

    return jax.linear_transpose(spread, image)(x)[0]


def _windows(
    name: str,
    size: tuple[int, ...],
    kernel_size: IntOrInts,
    dilation: IntOrInts,
    padding: IntOrInts,
    stride: IntOrInts,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return kernel, stride, padding, dilation and the number of windows, each by axis."""
    kernel = ints(name, "kernel_size", kernel_size, 2)
    steps = ints(name, "stride", stride, 2)
    pads = ints(name, "padding", padding, 2, minimum=0)
    dilations = ints(name, "dilation", dilation, 2)
    sizes = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(size, kernel, steps, pads, dilations, strict=True)
    )
    if min(sizes) < 1:
        raise ValueError(f"{name}: images {size} are too small for kernel_size {kernel}.")
    return kernel, steps, pads, dilations, sizes
