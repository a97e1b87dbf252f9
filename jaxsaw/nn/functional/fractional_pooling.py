"""Maxima of windows at random places."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxsaw.nn.functional._common import (
    ArrayLike,
    IntOrInts,
    Streams,
    draw_key,
    floating,
    ints,
    with_batch,
)


def fractional_max_pool2d(
    input: ArrayLike,
    kernel_size: IntOrInts,
    output_size: IntOrInts | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: ArrayLike | None = None,
    *,
    rngs: Streams | None = None,
) -> Array | tuple[Array, Array]:
    """Take the maximum of windows at random, overlapping places over two spatial axes.

    Each image and channel has its own places, whose steps differ by at most one pixel. The stream
    is ``dropout``, also in evaluation.

    Args:
        input: ``(N, C, H, W)`` or ``(C, H, W)``.
        kernel_size: Size of the window, one int or one an axis.
        output_size: Size of the output, one int or one an axis.
        output_ratio: Its ratio to the input's, between 0 and 1; either this or ``output_size``.
        return_indices: Also return where each maximum was, as ``h * W + w``.
        _random_samples: What to use instead of random numbers, ``(N, C, 2)`` in [0, 1).
        rngs: Where the stream comes from; the ambient one if None.

    Returns:
        ``(N, C, *output_size)`` or ``(C, *output_size)``; with ``return_indices`` also integers of
        that shape.

    Raises:
        ValueError: If shape or settings don't fit.
        RuntimeError: If there is nothing to draw from.

    Source: ``torch.nn.functional.fractional_max_pool2d``; Graham, 2014.

    Example:
        >>> x = jnp.ones((8, 7, 7))
        >>> fractional_max_pool2d(x, 2, 3, rngs=js.Rngs(dropout=0)).shape
        (8, 3, 3)
    """
    return _fractional_max_pool(
        "fractional_max_pool2d",
        2,
        input,
        kernel_size,
        output_size,
        output_ratio,
        return_indices,
        _random_samples,
        rngs,
    )


def fractional_max_pool3d(
    input: ArrayLike,
    kernel_size: IntOrInts,
    output_size: IntOrInts | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: ArrayLike | None = None,
    *,
    rngs: Streams | None = None,
) -> Array | tuple[Array, Array]:
    """Take the maximum of windows at random, overlapping places over three spatial axes.

    Each image and channel has its own places, whose steps differ by at most one pixel. The stream
    is ``dropout``, also in evaluation.

    Args:
        input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``.
        kernel_size: Size of the window, one int or one an axis.
        output_size: Size of the output, one int or one an axis.
        output_ratio: Its ratio to the input's, between 0 and 1; either this or ``output_size``.
        return_indices: Also return where each maximum was, as ``(d * H + h) * W + w``.
        _random_samples: What to use instead of random numbers, ``(N, C, 3)`` in [0, 1).
        rngs: Where the stream comes from; the ambient one if None.

    Returns:
        ``(N, C, *output_size)`` or ``(C, *output_size)``; with ``return_indices`` also integers of
        that shape.

    Raises:
        ValueError: If shape or settings don't fit.
        RuntimeError: If there is nothing to draw from.

    Source: ``torch.nn.functional.fractional_max_pool3d``; Graham, 2014.

    Example:
        >>> x = jnp.ones((8, 7, 7, 7))
        >>> fractional_max_pool3d(x, 2, 3, rngs=js.Rngs(dropout=0)).shape
        (8, 3, 3, 3)
    """
    return _fractional_max_pool(
        "fractional_max_pool3d",
        3,
        input,
        kernel_size,
        output_size,
        output_ratio,
        return_indices,
        _random_samples,
        rngs,
    )


def _fractional_max_pool(
    name: str,
    spatial: int,
    input: ArrayLike,
    kernel_size: IntOrInts,
    output_size: IntOrInts | None,
    output_ratio: float | Sequence[float] | None,
    return_indices: bool,
    samples: ArrayLike | None,
    rngs: Streams | None,
) -> Array | tuple[Array, Array]:
    x, batched = with_batch(name, floating(name, input), spatial)
    kernel = ints(name, "kernel_size", kernel_size, spatial)
    sizes = _sizes(name, x.shape[2:], kernel, output_size, output_ratio)
    shape = (*x.shape[:2], spatial)
    if samples is None:
        u = jax.random.uniform(draw_key(name, rngs), shape, jnp.float32)
    else:
        u = floating(name, samples, "_random_samples")
        if u.shape != shape:
            raise ValueError(f"{name}: expected _random_samples {shape}, got {u.shape}.")
    # PyTorch's samples of images are in the order x, y, those of volumes z, y, x.
    order = (1, 0) if spatial == 2 else (0, 1, 2)
    flat = jnp.zeros((*x.shape[:2], *(1,) * (2 * spatial)), jnp.int32)  # (N, C, *sizes, *kernel)
    for i, (n, k, size, j) in enumerate(zip(x.shape[2:], kernel, sizes, order, strict=True)):
        start = _starts(u[..., j], n, k, size)
        place = start[..., None] + jnp.arange(k, dtype=jnp.int32)  # (N, C, size, k)
        axes = [1] * (2 * spatial)
        axes[i], axes[spatial + i] = size, k
        flat = flat * n + place.reshape(*x.shape[:2], *axes)
    flat = flat.reshape(*x.shape[:2], *sizes, -1)
    pixels = x.reshape(*x.shape[:2], -1)
    values = jnp.take_along_axis(pixels, flat.reshape(*x.shape[:2], -1), 2).reshape(flat.shape)
    top = lax.stop_gradient(values).max(-1, keepdims=True)
    which = jnp.argmax((values == top) | (values != values), -1)[..., None]  # NaN is a maximum
    y = jnp.take_along_axis(values, which, -1)[..., 0]
    where = jnp.take_along_axis(flat, which, -1)[..., 0]
    if not batched:
        y, where = y[0], where[0]
    return (y, where) if return_indices else y


def _starts(u: Array, n: int, kernel: int, size: int) -> Array:
    """Return where the windows along an axis start, one row for each number in [0, 1)."""
    last = jnp.full((*u.shape, 1), n - kernel, jnp.int32)
    if size == 1:
        return last
    step = np.asarray((n - kernel) / (size - 1), u.dtype)
    i = jnp.arange(size - 1, dtype=u.dtype)
    first = jnp.floor(u * step).astype(jnp.int32)[..., None]
    starts = jnp.floor((i + u[..., None]) * step).astype(jnp.int32) - first
    return jnp.concatenate([starts, last], -1)


def _sizes(
    name: str,
    given: tuple[int, ...],
    kernel: tuple[int, ...],
    output_size: IntOrInts | None,
    output_ratio: float | Sequence[float] | None,
) -> tuple[int, ...]:
    spatial = len(given)
    if output_size is None and output_ratio is not None:
        ratios = output_ratio if isinstance(output_ratio, Sequence) else (output_ratio,) * spatial
        if len(ratios) != spatial:
            raise ValueError(
                f"{name}: expected output_ratio of {spatial} numbers, got {output_ratio}."
            )
        output_size = tuple(int(n * r) for n, r in zip(given, ratios, strict=True))
    elif output_size is None or output_ratio is not None:
        raise ValueError(
            f"{name}: expected either output_size or output_ratio, got output_size={output_size} "
            f"and output_ratio={output_ratio}."
        )
    sizes = ints(name, "output_size", output_size, spatial)
    spare = 1 if spatial == 3 else 0  # PyTorch wants one pixel more in volumes
    if any(k + size - 1 + spare > n for n, k, size in zip(given, kernel, sizes, strict=True)):
        raise ValueError(
            f"{name}: {given} pixels are too few for kernel_size {kernel} and output_size {sizes}."
        )
    return sizes
