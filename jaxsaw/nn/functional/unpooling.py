"""The way back from the maxima of windows."""

import math
from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

from jaxsaw.nn.functional._common import (
    ArrayLike,
    IntOrInts,
    integers,
    ints,
    is_concrete,
    with_batch,
)


def max_unpool1d(
    input: ArrayLike,
    indices: ArrayLike,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> Array:
    """Put maxima back where :func:`max_pool1d` found them, and zeros elsewhere.

    Args:
        input: The maxima, ``(N, C, L)`` or ``(C, L)``.
        indices: Where they were, integers of the same shape.
        kernel_size: Size of the window.
        stride: Step between windows; the window's size if None.
        padding: What was added on both sides.
        output_size: Size of the output, the spatial axes or all of them; by default
            ``(size - 1) * stride - 2 * padding + kernel_size``.

    Returns:
        ``(N, C, L')`` or ``(C, L')``. Of maxima with one index, one is kept.

    Raises:
        ValueError: If shapes or settings don't fit, or an index is out of range.
        TypeError: If the indices aren't integers.

    Source: ``torch.nn.functional.max_unpool1d``.

    Example:
        >>> max_unpool1d(jnp.array([[5.0, 7.0]]), jnp.array([[1, 2]]), 2).tolist()
        [[0.0, 5.0, 7.0, 0.0]]
    """
    return _max_unpool("max_unpool1d", 1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: ArrayLike,
    indices: ArrayLike,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> Array:
    """Put maxima back where :func:`max_pool2d` found them, and zeros elsewhere.

    Args:
        input: The maxima, ``(N, C, H, W)`` or ``(C, H, W)``.
        indices: Where they were, integers of the same shape.
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        padding: What was added on both sides.
        output_size: Size of the output, the spatial axes or all of them; by default
            ``(size - 1) * stride - 2 * padding + kernel_size``.

    Returns:
        ``(N, C, H', W')`` or ``(C, H', W')``. Of maxima with one index, one is kept.

    Raises:
        ValueError: If shapes or settings don't fit, or an index is out of range.
        TypeError: If the indices aren't integers.

    Source: ``torch.nn.functional.max_unpool2d``.

    Example:
        >>> max_unpool2d(jnp.ones((1, 1, 1)), jnp.array([[[2]]]), 2).tolist()
        [[[0.0, 0.0], [1.0, 0.0]]]
    """
    return _max_unpool("max_unpool2d", 2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: ArrayLike,
    indices: ArrayLike,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> Array:
    """Put maxima back where :func:`max_pool3d` found them, and zeros elsewhere.

    Args:
        input: The maxima, ``(N, C, D, H, W)`` or ``(C, D, H, W)``.
        indices: Where they were, integers of the same shape.
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        padding: What was added on both sides.
        output_size: Size of the output, the spatial axes or all of them; by default
            ``(size - 1) * stride - 2 * padding + kernel_size``.

    Returns:
        ``(N, C, D', H', W')`` or ``(C, D', H', W')``. Of maxima with one index, one is kept.

    Raises:
        ValueError: If shapes or settings don't fit, or an index is out of range.
        TypeError: If the indices aren't integers.

    Source: ``torch.nn.functional.max_unpool3d``.

    Example:
        >>> max_unpool3d(jnp.ones((1, 1, 1, 1)), jnp.array([[[[7]]]]), 2).shape
        (1, 2, 2, 2)
    """
    return _max_unpool("max_unpool3d", 3, input, indices, kernel_size, stride, padding, output_size)


def _max_unpool(
    name: str,
    spatial: int,
    input: ArrayLike,
    indices: ArrayLike,
    kernel_size: IntOrInts,
    stride: IntOrInts | None,
    padding: IntOrInts,
    output_size: Sequence[int] | None,
) -> Array:
    x, where = jnp.asarray(input), integers(name, indices, "indices")
    if where.shape != x.shape:
        raise ValueError(f"{name}: expected indices {x.shape} like the input, got {where.shape}.")
    x, batched = with_batch(name, x, spatial)
    kernel = ints(name, "kernel_size", kernel_size, spatial)
    steps = kernel if stride is None else ints(name, "stride", stride, spatial)
    pads = ints(name, "padding", padding, spatial, minimum=0)
    usual = tuple(
        (n - 1) * s - 2 * p + k for n, k, s, p in zip(x.shape[2:], kernel, steps, pads, strict=True)
    )
    sizes = usual if output_size is None else tuple(output_size)
    if len(sizes) == spatial + 2:
        sizes = sizes[2:]
    if len(sizes) != spatial:
        raise ValueError(
            f"{name}: expected output_size of {spatial} or {spatial + 2} ints, got {output_size}."
        )
    if any(not u - s < size < u + s for u, s, size in zip(usual, steps, sizes, strict=True)):
        raise ValueError(
            f"{name}: expected output_size less than stride {steps} away from {usual}, got {sizes}."
        )
    pixels = math.prod(sizes)
    if is_concrete(where) and where.size and not 0 <= int(where.min()) <= int(where.max()) < pixels:
        raise ValueError(
            f"{name}: expected indices in [0, {pixels - 1}] for an output {sizes}, got "
            f"{int(where.min())} to {int(where.max())}."
        )
    rows = x.shape[0] * x.shape[1]
    place = jnp.arange(rows)[:, None], where.reshape(rows, -1)
    y = jnp.zeros((rows, pixels), x.dtype).at[place].set(x.reshape(rows, -1), mode="drop")
    y = y.reshape(*x.shape[:2], *sizes)
    return y if batched else y[0]
