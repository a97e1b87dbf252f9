"""Pooling of windows: maxima, means and norms, channels first."""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxsaw.nn.functional._common import (
    ArrayLike,
    IntOrInts,
    accumulator,
    floating,
    ints,
    with_batch,
)
from jaxsaw.nn.functional._pooling import layout, lowest, pick, row_strides


def max_pool1d(
    input: ArrayLike,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Array | tuple[Array, Array]:
    """Take the maximum of each window over one spatial axis.

    Args:
        input: ``(N, C, L)`` or ``(C, L)``.
        kernel_size: Length of the window.
        stride: Step between windows; the window's length if None.
        padding: Minus infinity on both sides, at most half a window.
        dilation: Step between a window's elements.
        ceil_mode: Keep a last window that reaches over the end.
        return_indices: Also return where each maximum was.

    Returns:
        ``(N, C, L')`` or ``(C, L')`` with
        ``L' = (L + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1``; with
        ``return_indices`` also integers of that shape.

    Raises:
        ValueError: If shape or settings don't fit.

    Source: ``torch.nn.functional.max_pool1d``.

    Example:
        >>> max_pool1d(jnp.array([[1.0, 3.0, 2.0, 0.0]]), 2).tolist()
        [[3.0, 2.0]]
    """
    return _max_pool(
        "max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def max_pool2d(
    input: ArrayLike,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Array | tuple[Array, Array]:
    """Take the maximum of each window over two spatial axes.

    Args:
        input: ``(N, C, H, W)`` or ``(C, H, W)``.
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        padding: Minus infinity on both sides, at most half a window.
        dilation: Step between a window's elements.
        ceil_mode: Keep last windows that reach over the end.
        return_indices: Also return where each maximum was, as ``h * W + w``.

    Returns:
        ``(N, C, H', W')`` or ``(C, H', W')``, sizes as in :func:`max_pool1d`; with
        ``return_indices`` also integers of that shape.

    Raises:
        ValueError: If shape or settings don't fit.

    Source: ``torch.nn.functional.max_pool2d``.

    Example:
        >>> max_pool2d(jnp.ones((8, 3, 9, 9)), 3, stride=2).shape
        (8, 3, 4, 4)
    """
    return _max_pool(
        "max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def max_pool3d(
    input: ArrayLike,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Array | tuple[Array, Array]:
    """Take the maximum of each window over three spatial axes.

    Args:
        input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``.
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        padding: Minus infinity on both sides, at most half a window.
        dilation: Step between a window's elements.
        ceil_mode: Keep last windows that reach over the end.
        return_indices: Also return where each maximum was, as ``(d * H + h) * W + w``.

    Returns:
        ``(N, C, D', H', W')`` or ``(C, D', H', W')``, sizes as in :func:`max_pool1d`; with
        ``return_indices`` also integers of that shape.

    Raises:
        ValueError: If shape or settings don't fit.

    Source: ``torch.nn.functional.max_pool3d``.

    Example:
        >>> max_pool3d(jnp.ones((3, 4, 4, 4)), 2).shape
        (3, 2, 2, 2)
    """
    return _max_pool(
        "max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices
    )


def avg_pool1d(
    input: ArrayLike,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """Take the mean of each window over one spatial axis.

    Args:
        input: ``(N, C, L)`` or ``(C, L)``.
        kernel_size: Length of the window.
        stride: Step between windows; the window's length if None.
        padding: Zeros on both sides, at most half a window.
        ceil_mode: Keep a last window that reaches over the end.
        count_include_pad: Count padded zeros in the mean.

    Returns:
        ``(N, C, L')`` or ``(C, L')`` with ``L' = (L + 2 * padding - kernel_size) // stride + 1``.

    Raises:
        ValueError: If shape or settings don't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.avg_pool1d``.

    Example:
        >>> avg_pool1d(jnp.array([[1.0, 3.0, 2.0, 0.0]]), 2).tolist()
        [[2.0, 1.0]]
    """
    return _avg_pool(
        "avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None
    )


def avg_pool2d(
    input: ArrayLike,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Take the mean of each window over two spatial axes.

    Args:
        input: ``(N, C, H, W)`` or ``(C, H, W)``.
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        padding: Zeros on both sides, at most half a window.
        ceil_mode: Keep last windows that reach over the end.
        count_include_pad: Count padded zeros in the mean.
        divisor_override: Divide each sum by this instead of a count.

    Returns:
        ``(N, C, H', W')`` or ``(C, H', W')``, sizes as in :func:`avg_pool1d`.

    Raises:
        ValueError: If shape or settings don't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.avg_pool2d``.

    Example:
        >>> avg_pool2d(jnp.ones((8, 3, 8, 8)), 2).shape
        (8, 3, 4, 4)
    """
    return _avg_pool(
        "avg_pool2d",
        2,
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )


def avg_pool3d(
    input: ArrayLike,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Take the mean of each window over three spatial axes.

    Args:
        input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``.
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        padding: Zeros on both sides, at most half a window.
        ceil_mode: Keep last windows that reach over the end.
        count_include_pad: Count padded zeros in the mean.
        divisor_override: Divide each sum by this instead of a count.

    Returns:
        ``(N, C, D', H', W')`` or ``(C, D', H', W')``, sizes as in :func:`avg_pool1d`.

    Raises:
        ValueError: If shape or settings don't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.avg_pool3d``.

    Example:
        >>> avg_pool3d(jnp.ones((3, 4, 4, 4)), 2).shape
        (3, 2, 2, 2)
    """
    return _avg_pool(
        "avg_pool3d",
        3,
        input,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )


def lp_pool1d(
    input: ArrayLike,
    norm_type: float,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    ceil_mode: bool = False,
) -> Array:
    """Take the p-norm of each window over one spatial axis: ``sum(x ** p) ** (1 / p)``.

    Args:
        input: ``(N, C, L)`` or ``(C, L)``.
        norm_type: The ``p``, not 0. Powers are taken of ``x``, not of ``|x|``, as in PyTorch.
        kernel_size: Size of the window.
        stride: Step between windows; the window's size if None.
        ceil_mode: Keep last windows that reach over the end; they count as if they were whole.

    Returns:
        ``(N, C, L')`` or ``(C, L')``, sizes as in :func:`avg_pool1d`.

    Raises:
        ValueError: If shape or settings don't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.lp_pool1d``.

    Example:
        >>> lp_pool1d(jnp.array([[3.0, 4.0]]), 2, 2).tolist()
        [[5.0]]
    """
    return _lp_pool("lp_pool1d", 1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: ArrayLike,
    norm_type: float,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    ceil_mode: bool = False,
) -> Array:
    """Take the p-norm of each window over two spatial axes: ``sum(x ** p) ** (1 / p)``.

    Args:
        input: ``(N, C, H, W)`` or ``(C, H, W)``.
        norm_type: The ``p``, not 0. Powers are taken of ``x``, not of ``|x|``, as in PyTorch.
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        ceil_mode: Keep last windows that reach over the end; they count as if they were whole.

    Returns:
        ``(N, C, H', W')`` or ``(C, H', W')``, sizes as in :func:`avg_pool1d`.

    Raises:
        ValueError: If shape or settings don't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.lp_pool2d``.

    Example:
        >>> lp_pool2d(jnp.ones((3, 4, 4)), 2, 2).shape
        (3, 2, 2)
    """
    return _lp_pool("lp_pool2d", 2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: ArrayLike,
    norm_type: float,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    ceil_mode: bool = False,
) -> Array:
    """Take the p-norm of each window over three spatial axes: ``sum(x ** p) ** (1 / p)``.

    Args:
        input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``.
        norm_type: The ``p``, not 0. Powers are taken of ``x``, not of ``|x|``, as in PyTorch.
        kernel_size: Size of the window, one int or one an axis.
        stride: Step between windows; the window's size if None.
        ceil_mode: Keep last windows that reach over the end; they count as if they were whole.

    Returns:
        ``(N, C, D', H', W')`` or ``(C, D', H', W')``, sizes as in :func:`avg_pool1d`.

    Raises:
        ValueError: If shape or settings don't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.lp_pool3d``.

    Example:
        >>> lp_pool3d(jnp.ones((3, 4, 4, 4)), 2, 2).shape
        (3, 2, 2, 2)
    """
    return _lp_pool("lp_pool3d", 3, input, norm_type, kernel_size, stride, ceil_mode)


def _max_pool(
    name: str,
    spatial: int,
    input: ArrayLike,
    kernel_size: IntOrInts,
    stride: IntOrInts | None,
    padding: IntOrInts,
    dilation: IntOrInts,
    ceil_mode: bool,
    return_indices: bool,
) -> Array | tuple[Array, Array]:
    x, batched = with_batch(name, jnp.asarray(input), spatial)
    kernel = ints(name, "kernel_size", kernel_size, spatial)
    steps = kernel if stride is None else ints(name, "stride", stride, spatial)
    dilations = ints(name, "dilation", dilation, spatial)
    pads, sizes = layout(name, x, kernel, steps, padding, dilations, ceil_mode)
    least = lowest(x.dtype)
    if not return_indices and all(d == 1 for d in dilations):
        y = lax.reduce_window(
            x, least, lax.max, (1, 1, *kernel), (1, 1, *steps), [(0, 0), (0, 0), *pads]
        )
        return y if batched else y[0]

    # Each element of the window as one slice, so that the first of equal maxima is taken.
    offsets = np.stack([g.ravel() for g in np.indices(kernel)], 1) * dilations  # (K, spatial)
    starts = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1) * steps
    starts -= np.array([low for low, _ in pads])  # (*sizes, spatial)
    places = starts + offsets.reshape(-1, *(1,) * spatial, spatial)  # (K, *sizes, spatial)
    inside = np.all((places >= 0) & (places < x.shape[2:]), axis=-1)  # (K, *sizes)
    flat = (places * row_strides(x.shape[2:])).sum(-1)
    values, indices = pick(x, flat, inside, least)
    if not batched:
        values, indices = values[0], indices[0]
    return (values, indices) if return_indices else values


def _avg_pool(
    name: str,
    spatial: int,
    input: ArrayLike,
    kernel_size: IntOrInts,
    stride: IntOrInts | None,
    padding: IntOrInts,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Array:
    x, batched = with_batch(name, floating(name, input), spatial)
    kernel = ints(name, "kernel_size", kernel_size, spatial)
    steps = kernel if stride is None else ints(name, "stride", stride, spatial)
    pads, sizes = layout(name, x, kernel, steps, padding, (1,) * spatial, ceil_mode)
    if divisor_override == 0:
        raise ValueError(f"{name}: expected divisor_override other than 0.")

    wide = x.astype(accumulator(x.dtype))
    total = lax.reduce_window(
        wide,
        np.zeros((), wide.dtype),
        lax.add,
        (1, 1, *kernel),
        (1, 1, *steps),
        [(0, 0), (0, 0), *pads],
    )
    count: np.ndarray = np.ones((), np.int64)
    for n, k, s, (p, _), size in zip(x.shape[2:], kernel, steps, pads, sizes, strict=True):
        start = np.arange(size) * s - p
        end = np.minimum(start + k, n + p)
        if not count_include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        count = count[..., None] * (end - start)  # grows to (*sizes)
    if divisor_override is not None:
        count = np.full(sizes, divisor_override)
    y = (total / jnp.asarray(count, wide.dtype)).astype(x.dtype)
    return y if batched else y[0]


def _lp_pool(
    name: str,
    spatial: int,
    input: ArrayLike,
    norm_type: float,
    kernel_size: IntOrInts,
    stride: IntOrInts | None,
    ceil_mode: bool,
) -> Array:
    x = floating(name, input)
    if norm_type == 0:
        raise ValueError(f"{name}: expected norm_type other than 0.")
    p = int(norm_type) if norm_type == int(norm_type) else norm_type
    wide = x.astype(accumulator(x.dtype)) ** p
    size = math.prod(ints(name, "kernel_size", kernel_size, spatial))
    y = _avg_pool(name, spatial, wide, kernel_size, stride, 0, ceil_mode, True, None) * size
    # The gradient at 0 is 0, and not that of the root.
    root = jnp.where(y == 0, 1, y) ** (1 / p)
    return jnp.where(y == 0, 0, root).astype(x.dtype)
