"""Windows of images as columns, and back."""

import math

import jax
import jax.numpy as jnp
from jax import Array

from jaxsaw.nn.functional._common import ArrayLike, IntOrInts, ints


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
