"""What the poolings share: where windows are, and which of their elements is the largest."""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxsaw.nn.functional._common import IntOrInts, ints


def layout(
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


def pick(x: Array, flat: np.ndarray, inside: np.ndarray, least: np.ndarray) -> tuple[Array, Array]:
    """Return the maximum over the places ``flat`` (window, *sizes) that are inside, and where."""
    pixels = x.reshape(*x.shape[:2], math.prod(x.shape[2:]))  # (N, C, pixels)
    flat = np.where(inside, flat, 0).astype(np.int32)
    values = jnp.where(inside, pixels[..., flat], least)  # (N, C, window, *sizes)
    top = lax.stop_gradient(values).max(2, keepdims=True)
    hit = inside & ((values == top) | (values != values))  # NaN is a maximum
    which = jnp.argmax(hit, 2, keepdims=True)
    where = jnp.take_along_axis(jnp.broadcast_to(flat, values.shape), which, 2).squeeze(2)
    return jnp.take_along_axis(values, which, 2).squeeze(2), where


def row_strides(shape: tuple[int, ...]) -> np.ndarray:
    return np.array([math.prod(shape[i + 1 :]) for i in range(len(shape))])


def lowest(dtype: np.dtype) -> np.ndarray:
    """Return the neutral element of the maximum (a NumPy array, which JAX recognises as such)."""
    if jnp.issubdtype(dtype, jnp.floating):
        return np.array(-np.inf, dtype)
    if jnp.issubdtype(dtype, jnp.integer):
        return np.array(jnp.iinfo(dtype).min, dtype)
    raise TypeError(f"max pooling: expected input of a floating or integer dtype, got {dtype}.")
