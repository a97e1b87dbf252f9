"""Maximum and average pooling, channels first."""

import math
from collections.abc import Sequence

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


def adaptive_avg_pool1d(input: ArrayLike, output_size: IntOrInts) -> Array:
    """Take means over one spatial axis so that ``output_size`` of them come out.

    Args:
        input: ``(N, C, L)`` or ``(C, L)``.
        output_size: Length of the output.

    Returns:
        ``(N, C, output_size)`` or ``(C, output_size)``.

    Raises:
        ValueError: If the shape doesn't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.adaptive_avg_pool1d``.

    Example:
        >>> adaptive_avg_pool1d(jnp.array([[1.0, 3.0, 2.0]]), 2).tolist()
        [[2.0, 2.5]]
    """
    return _adaptive_avg_pool("adaptive_avg_pool1d", 1, input, output_size)


def adaptive_avg_pool2d(input: ArrayLike, output_size: int | Sequence[int | None] | None) -> Array:
    """Take means over two spatial axes so that ``output_size`` of them come out.

    Args:
        input: ``(N, C, H, W)`` or ``(C, H, W)``.
        output_size: Size of the output, one int or one an axis; None keeps the input's.

    Returns:
        ``(N, C, *output_size)`` or ``(C, *output_size)``.

    Raises:
        ValueError: If the shape doesn't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.adaptive_avg_pool2d``.

    Example:
        >>> adaptive_avg_pool2d(jnp.ones((8, 3, 7, 5)), 1).shape
        (8, 3, 1, 1)
    """
    return _adaptive_avg_pool("adaptive_avg_pool2d", 2, input, output_size)


def adaptive_max_pool1d(
    input: ArrayLike, output_size: IntOrInts, return_indices: bool = False
) -> Array | tuple[Array, Array]:
    """Take maxima over one spatial axis so that ``output_size`` of them come out.

    Args:
        input: ``(N, C, L)`` or ``(C, L)``.
        output_size: Length of the output.
        return_indices: Also return where each maximum was.

    Returns:
        ``(N, C, output_size)`` or ``(C, output_size)``; with ``return_indices`` also integers of
        that shape.

    Raises:
        ValueError: If the shape doesn't fit.

    Source: ``torch.nn.functional.adaptive_max_pool1d``.

    Example:
        >>> adaptive_max_pool1d(jnp.array([[1.0, 2.0, 3.0]]), 2).tolist()
        [[2.0, 3.0]]
    """
    return _adaptive_max_pool("adaptive_max_pool1d", 1, input, output_size, return_indices)


def adaptive_max_pool2d(
    input: ArrayLike,
    output_size: int | Sequence[int | None] | None,
    return_indices: bool = False,
) -> Array | tuple[Array, Array]:
    """Take maxima over two spatial axes so that ``output_size`` of them come out.

    Args:
        input: ``(N, C, H, W)`` or ``(C, H, W)``.
        output_size: Size of the output, one int or one an axis; None keeps the input's.
        return_indices: Also return where each maximum was, as ``h * W + w``.

    Returns:
        ``(N, C, *output_size)`` or ``(C, *output_size)``; with ``return_indices`` also integers of
        that shape.

    Raises:
        ValueError: If the shape doesn't fit.

    Source: ``torch.nn.functional.adaptive_max_pool2d``.

    Example:
        >>> adaptive_max_pool2d(jnp.ones((8, 3, 7, 5)), (3, None)).shape
        (8, 3, 3, 5)
    """
    return _adaptive_max_pool("adaptive_max_pool2d", 2, input, output_size, return_indices)


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
    pads, sizes = _layout(name, x, kernel, steps, padding, dilations, ceil_mode)
    lowest = _lowest(x.dtype)
    if not return_indices and all(d == 1 for d in dilations):
        y = lax.reduce_window(
            x, lowest, lax.max, (1, 1, *kernel), (1, 1, *steps), [(0, 0), (0, 0), *pads]
        )
        return y if batched else y[0]

    # Each element of the window as one slice, so that the first of equal maxima is taken.
    offsets = np.stack([g.ravel() for g in np.indices(kernel)], 1) * dilations  # (K, spatial)
    starts = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1) * steps
    starts -= np.array([low for low, _ in pads])  # (*sizes, spatial)
    places = starts + offsets.reshape(-1, *(1,) * spatial, spatial)  # (K, *sizes, spatial)
    inside = np.all((places >= 0) & (places < x.shape[2:]), axis=-1)  # (K, *sizes)
    flat = (places * _row_strides(x.shape[2:])).sum(-1)
    values, indices = _pick(x, flat, inside, lowest)
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
    pads, sizes = _layout(name, x, kernel, steps, padding, (1,) * spatial, ceil_mode)
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


def _adaptive_avg_pool(
    name: str, spatial: int, input: ArrayLike, output_size: int | Sequence[int | None] | None
) -> Array:
    x, batched = with_batch(name, floating(name, input), spatial)
    sizes = _output_sizes(name, x, output_size)
    y = x.astype(accumulator(x.dtype))
    for i, (n, size) in enumerate(zip(x.shape[2:], sizes, strict=True)):
        if size == n:
            continue
        if n % size == 0:
            y = y.reshape(*y.shape[: i + 2], size, n // size, *y.shape[i + 3 :]).mean(i + 3)
            continue
        start, end = _adaptive_windows(n, size)
        place = np.arange(n)[:, None]
        share = ((place >= start) & (place < end)) / (end - start)  # (n, size)
        y = jnp.tensordot(y, jnp.asarray(share, y.dtype), (i + 2, 0), precision="highest")
        y = jnp.moveaxis(y, -1, i + 2)
    y = y.astype(x.dtype)
    return y if batched else y[0]


def _adaptive_max_pool(
    name: str,
    spatial: int,
    input: ArrayLike,
    output_size: int | Sequence[int | None] | None,
    return_indices: bool,
) -> Array | tuple[Array, Array]:
    x, batched = with_batch(name, jnp.asarray(input), spatial)
    sizes = _output_sizes(name, x, output_size)
    flat, inside = np.zeros((1,) * spatial, np.int64), np.ones((1,) * spatial, bool)
    flat, inside = flat[None], inside[None]  # (window, *sizes), both growing axis by axis
    for i, (n, size) in enumerate(zip(x.shape[2:], sizes, strict=True)):
        start, end = _adaptive_windows(n, size)
        shape = [1] * (spatial + 2)
        shape[1], shape[i + 2] = -1, size
        place = start + np.arange((end - start).max())[:, None]  # (window, size)
        flat = flat[:, None] * n + np.minimum(place, n - 1).reshape(shape)
        inside = inside[:, None] & (place < end).reshape(shape)
        flat = flat.reshape(-1, *flat.shape[2:])
        inside = inside.reshape(-1, *inside.shape[2:])
    values, indices = _pick(x, flat, inside, _lowest(x.dtype))
    if not batched:
        values, indices = values[0], indices[0]
    return (values, indices) if return_indices else values


def _pick(
    x: Array, flat: np.ndarray, inside: np.ndarray, lowest: np.ndarray
) -> tuple[Array, Array]:
    """Return the maximum over the places ``flat`` (window, *sizes) that are inside, and where."""
    pixels = x.reshape(*x.shape[:2], math.prod(x.shape[2:]))  # (N, C, pixels)
    flat = np.where(inside, flat, 0).astype(np.int32)
    values = jnp.where(inside, pixels[..., flat], lowest)  # (N, C, window, *sizes)
    top = lax.stop_gradient(values).max(2, keepdims=True)
    hit = inside & ((values == top) | (values != values))  # NaN is a maximum
    which = jnp.argmax(hit, 2, keepdims=True)
    where = jnp.take_along_axis(jnp.broadcast_to(flat, values.shape), which, 2).squeeze(2)
    return jnp.take_along_axis(values, which, 2).squeeze(2), where


def _layout(
    name: str,
    x: Array,
    kernel: tuple[int, ...],
    steps: tuple[int, ...],
    padding: IntOrInts,
    dilations: tuple[int, ...],
    ceil_mode: bool,
) -> tuple[list[tuple[int, int]], list[int]]:
    """Return what to pad, low and high, and the sizes of the output."""
    padding = ints(name, "padding", padding, len(kernel), minimum=0)
    pads, sizes = [], []
    for n, k, s, p, d in zip(x.shape[2:], kernel, steps, padding, dilations, strict=True):
        if p > k // 2:
            raise ValueError(
                f"{name}: expected padding of at most half of kernel_size {k}, got {p}."
            )
        room = n + 2 * p - d * (k - 1) - 1
        size = (-(-room // s) if ceil_mode else room // s) + 1
        # A window must start inside the input or its padding on the left.
        if ceil_mode and (size - 1) * s >= n + p:
            size -= 1
        if n == 0 or size < 1:
            raise ValueError(
                f"{name}: input {x.shape} is too small for kernel_size {kernel}, padding {padding} "
                f"and dilation {dilations}."
            )
        pads.append((p, max((size - 1) * s + d * (k - 1) + 1 - n - p, 0)))
        sizes.append(size)
    return pads, sizes


def _output_sizes(
    name: str, x: Array, output_size: int | Sequence[int | None] | None
) -> tuple[int, ...]:
    spatial = x.ndim - 2
    sizes = tuple(output_size) if isinstance(output_size, Sequence) else (output_size,) * spatial
    if len(sizes) != spatial:
        raise ValueError(
            f"{name}: expected output_size to be an int or {spatial} ints, got {output_size}."
        )
    if 0 in x.shape[2:]:
        raise ValueError(f"{name}: expected input with non-empty spatial axes, got {x.shape}.")
    kept = [n if size is None else size for n, size in zip(x.shape[2:], sizes, strict=True)]
    return ints(name, "output_size", kept, spatial)


def _adaptive_windows(n: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of each of ``size`` windows that cover ``n`` places."""
    i = np.arange(size)
    return i * n // size, -(-(i + 1) * n // size)


def _row_strides(shape: tuple[int, ...]) -> np.ndarray:
    return np.array([math.prod(shape[i + 1 :]) for i in range(len(shape))])


def _lowest(dtype: np.dtype) -> np.ndarray:
    """Return the neutral element of the maximum (a NumPy array, which JAX recognises as such)."""
    if jnp.issubdtype(dtype, jnp.floating):
        return np.array(-np.inf, dtype)
    if jnp.issubdtype(dtype, jnp.integer):
        return np.array(jnp.iinfo(dtype).min, dtype)
    raise TypeError(f"max pooling: expected input of a floating or integer dtype, got {dtype}.")
