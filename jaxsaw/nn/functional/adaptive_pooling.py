"""Pooling to an output of a given size, channels first."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxsaw.nn.functional._common import (
    ArrayLike,
    IntOrInts,
    accumulator,
    floating,
    ints,
    with_batch,
)
from jaxsaw.nn.functional._pooling import lowest, pick


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


def adaptive_avg_pool3d(input: ArrayLike, output_size: int | Sequence[int | None] | None) -> Array:
    """Take means over three spatial axes so that ``output_size`` of them come out.

    Args:
        input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``.
        output_size: Size of the output, one int or one an axis; None keeps the input's.

    Returns:
        ``(N, C, *output_size)`` or ``(C, *output_size)``.

    Raises:
        ValueError: If the shape doesn't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.adaptive_avg_pool3d``.

    Example:
        >>> adaptive_avg_pool3d(jnp.ones((3, 7, 5, 4)), (1, None, 2)).shape
        (3, 1, 5, 2)
    """
    return _adaptive_avg_pool("adaptive_avg_pool3d", 3, input, output_size)


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


def adaptive_max_pool3d(
    input: ArrayLike,
    output_size: int | Sequence[int | None] | None,
    return_indices: bool = False,
) -> Array | tuple[Array, Array]:
    """Take maxima over three spatial axes so that ``output_size`` of them come out.

    Args:
        input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``.
        output_size: Size of the output, one int or one an axis; None keeps the input's.
        return_indices: Also return where each maximum was, as ``(d * H + h) * W + w``.

    Returns:
        ``(N, C, *output_size)`` or ``(C, *output_size)``; with ``return_indices`` also integers of
        that shape.

    Raises:
        ValueError: If the shape doesn't fit.

    Source: ``torch.nn.functional.adaptive_max_pool3d``.

    Example:
        >>> adaptive_max_pool3d(jnp.ones((3, 7, 5, 4)), (1, None, 2)).shape
        (3, 1, 5, 2)
    """
    return _adaptive_max_pool("adaptive_max_pool3d", 3, input, output_size, return_indices)


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
    values, indices = pick(x, flat, inside, lowest(x.dtype))
    if not batched:
        values, indices = values[0], indices[0]
    return (values, indices) if return_indices else values


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
