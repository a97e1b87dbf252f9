"""Interpolation: images of another size."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxsaw.nn.functional._common import ArrayLike, IntOrInts, accumulator, floating, ints
from jaxsaw.nn.functional.adaptive_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)

# By mode: over how many spatial axes it goes.
_MODES = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "area": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "trilinear": (3,),
    "bicubic": (2,),
    "lanczos": (2,),
}
_ALIGNED = ("linear", "bilinear", "bicubic", "trilinear", "lanczos")
_ANTIALIASED = ("bilinear", "bicubic", "lanczos")
_AREA = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)

Scales = float | Sequence[float]


def interpolate(
    input: ArrayLike,
    size: IntOrInts | None = None,
    scale_factor: Scales | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Array:
    """Scale the spatial axes up or down.

    Args:
        input: ``(N, C, L)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``.
        size: Size of the output, one int or one an axis.
        scale_factor: Its ratio to the input's, one number or one an axis; either this or ``size``.
        mode: ``"nearest"`` (of the pixels' corners), ``"nearest-exact"`` (of their middles),
            ``"area"`` (means); ``"linear"``, ``"bilinear"``, ``"trilinear"`` over one, two and
            three axes; ``"bicubic"`` and ``"lanczos"`` (with ``antialias``) over two.
        align_corners: For the modes from ``"linear"`` on: whether the middles of the outermost
            pixels stay in place, instead of the image's edges.
        recompute_scale_factor: Compute positions with the ratio of the sizes, which are whole
            numbers, instead of with ``scale_factor``.
        antialias: In mode ``"bilinear"``, ``"bicubic"`` and ``"lanczos"``, widen the filter where
            the image gets smaller.

    Returns:
        The array with spatial axes of ``size`` or ``floor(size of the input * scale_factor)``.

    Raises:
        ValueError: If shape or settings don't fit.
        TypeError: If the input isn't floating and the mode isn't one of the nearest.

    Source: ``torch.nn.functional.interpolate``.

    Example:
        >>> interpolate(jnp.array([[[1.0, 3.0]]]), scale_factor=2, mode="linear").tolist()
        [[[1.0, 1.5, 2.5, 3.0]]]
    """
    name = "interpolate"
    x = jnp.asarray(input)
    spatial = x.ndim - 2
    if mode not in _MODES or spatial not in _MODES[mode]:
        fitting = [m for m, axes in _MODES.items() if spatial in axes]
        raise ValueError(
            f"{name}: expected input (N, C, L), (N, C, H, W) or (N, C, D, H, W) and a mode for it"
            f"{' such as ' + ', '.join(fitting) if fitting else ''}, got {x.shape} and {mode!r}."
        )
    if align_corners is not None and mode not in _ALIGNED:
        raise ValueError(f"{name}: mode {mode!r} takes no align_corners, got {align_corners}.")
    if antialias and mode not in _ANTIALIASED:
        raise ValueError(
            f"{name}: expected one of the modes {', '.join(_ANTIALIASED)} with antialias=True, "
            f"got {mode!r}."
        )
    if mode == "lanczos" and (align_corners or not antialias):
        raise ValueError(f"{name}: mode 'lanczos' needs antialias=True and takes no align_corners.")
    sizes, scales = _sizes(x.shape[2:], size, scale_factor, recompute_scale_factor)
    if 0 in x.shape[1:]:
        raise ValueError(f"{name}: expected input with channels and pixels, got {x.shape}.")
    if mode == "area":
        return _AREA[spatial - 1](x, sizes)
    if mode.startswith("nearest"):
        for i, (n, out, scale) in enumerate(zip(x.shape[2:], sizes, scales, strict=True)):
            x = _nearest(x, i + 2, n, out, scale, mode == "nearest-exact")
        return x

    dtype = floating(name, x).dtype
    real = np.dtype("float64" if dtype == jnp.float64 else "float32")
    y = x.astype(accumulator(dtype))
    for i, (n, out, scale) in enumerate(zip(x.shape[2:], sizes, scales, strict=True)):
        if out == n and scale in (None, 1):
            continue
        shares = _shares(n, out, scale, mode, bool(align_corners), antialias, real)
        y = jnp.tensordot(y, jnp.asarray(shares, y.dtype), (i + 2, 1), precision="highest")
        y = jnp.moveaxis(y, -1, i + 2)
    return y.astype(dtype)


def upsample(
    input: ArrayLike,
    size: IntOrInts | None = None,
    scale_factor: Scales | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Array:
    """Do what :func:`interpolate` does, under PyTorch's older name.

    Args:
        input: ``(N, C, *)``.
        size: Size of the output.
        scale_factor: Its ratio to the input's.
        mode: As in :func:`interpolate`.
        align_corners: As in :func:`interpolate`.

    Returns:
        The array with other spatial axes.

    Raises:
        ValueError: If shape or settings don't fit.

    Source: ``torch.nn.functional.upsample``.

    Example:
        >>> upsample(jnp.ones((1, 2, 3, 3)), scale_factor=2).shape
        (1, 2, 6, 6)
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: ArrayLike, size: IntOrInts | None = None, scale_factor: Scales | None = None
) -> Array:
    """Do what :func:`interpolate` does in mode ``"nearest"``.

    Args:
        input: ``(N, C, *)``.
        size: Size of the output.
        scale_factor: Its ratio to the input's.

    Returns:
        The array with other spatial axes.

    Raises:
        ValueError: If shape or settings don't fit.

    Source: ``torch.nn.functional.upsample_nearest``.

    Example:
        >>> upsample_nearest(jnp.array([[[1.0, 2.0]]]), 4).tolist()
        [[[1.0, 1.0, 2.0, 2.0]]]
    """
    return interpolate(input, size, scale_factor)


def upsample_bilinear(
    input: ArrayLike, size: IntOrInts | None = None, scale_factor: Scales | None = None
) -> Array:
    """Do what :func:`interpolate` does in mode ``"bilinear"`` with ``align_corners=True``.

    Args:
        input: ``(N, C, H, W)``.
        size: Size of the output.
        scale_factor: Its ratio to the input's.

    Returns:
        The array with other spatial axes.

    Raises:
        ValueError: If shape or settings don't fit.

    Source: ``torch.nn.functional.upsample_bilinear``.

    Example:
        >>> upsample_bilinear(jnp.array([[[[1.0, 3.0]]]]), (1, 3)).tolist()
        [[[[1.0, 2.0, 3.0]]]]
    """
    return interpolate(input, size, scale_factor, "bilinear", True)


def cubic(t: Any, a: float = -0.75) -> Any:
    """Return Keys' cubic convolution kernel at a distance from 0 to 2, for both frameworks' arrays.

    Args:
        t: The distance.
        a: Its slope at 1, and where the two cubics meet.
    """
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    where: Any = np.where if isinstance(t, np.ndarray) else jnp.where
    return where(t <= 1, near, where(t < 2, far, 0 * t))


def _sizes(
    given: tuple[int, ...],
    size: IntOrInts | None,
    scale_factor: Scales | None,
    recompute: bool | None,
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """Return the sizes of the output, and the factors to compute positions with, or None."""
    name, spatial = "interpolate", len(given)
    if size is not None and scale_factor is None:
        if recompute:
            raise ValueError(f"{name}: recompute_scale_factor needs scale_factor, got size={size}.")
        if isinstance(size, Sequence) and len(size) != spatial:
            raise ValueError(f"{name}: expected size of {spatial} ints, got {size}.")
        return ints(name, "size", size, spatial), (None,) * spatial
    if scale_factor is None or size is not None:
        raise ValueError(
            f"{name}: expected either size or scale_factor, got size={size} and "
            f"scale_factor={scale_factor}."
        )
    factors = scale_factor if isinstance(scale_factor, Sequence) else (scale_factor,) * spatial
    if len(factors) != spatial:
        raise ValueError(f"{name}: expected scale_factor of {spatial} numbers, got {scale_factor}.")
    scales = tuple(float(f) for f in factors)
    sizes = tuple(int(n * s) for n, s in zip(given, scales, strict=True))
    if min(sizes) < 1:
        raise ValueError(f"{name}: nothing is left of {given} with scale_factor {scale_factor}.")
    return sizes, (None,) * spatial if recompute else scales


def _nearest(x: Array, axis: int, n: int, out: int, scale: float | None, exact: bool) -> Array:
    """Take the nearest pixel along an axis; positions are computed in float32, as PyTorch does."""
    if out == n and (not exact or scale in (None, 1)):
        return x
    if out % n == 0 and scale in (None, out // n):
        return jnp.repeat(x, out // n, axis)
    step = np.float32(1 / scale) if scale is not None else np.float32(n) / np.float32(out)
    if not exact and out == 2 * n:
        step = np.float32(0.5)
    places = (np.arange(out, dtype=np.float32) + np.float32(0.5 if exact else 0)) * step
    return jnp.take(x, np.minimum(np.floor(places).astype(np.int32), n - 1), axis)


def _shares(
    n: int,
    out: int,
    scale: float | None,
    mode: str,
    align_corners: bool,
    antialias: bool,
    real: np.dtype,
) -> np.ndarray:
    """Return how much each of ``n`` pixels counts for each of ``out`` others: ``(out, n)``."""
    if align_corners:
        step = real.type(n - 1) / real.type(max(out - 1, 1)) if out > 1 else real.type(0)
    else:
        step = real.type(1 / scale) if scale is not None else real.type(n) / real.type(out)
    i = np.arange(out, dtype=real)
    if antialias:
        return _widened(n, i, step, *_FILTERS[mode])
    place = i * step if align_corners else (i + real.type(0.5)) * step - real.type(0.5)
    if mode != "bicubic":
        place = np.maximum(place, 0)
    low = np.floor(place)
    t = place - low
    taps = [(0, 1 - t), (1, t)]
    if mode == "bicubic":
        taps = [(-1, cubic(t + 1)), (0, cubic(t)), (1, cubic(1 - t)), (2, cubic(2 - t))]
    shares = np.zeros((out, n))
    for offset, weight in taps:
        pixel = np.clip(low.astype(int) + offset, 0, n - 1)
        np.add.at(shares, (np.arange(out), pixel), weight)
    return shares


def _widened(
    n: int, i: np.ndarray, step: Any, reach: float, kernel: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return shares of a filter that is as wide as the step between the output's pixels."""
    widening = np.maximum(step, 1)
    centre = step * (i + 0.5)
    first = np.maximum((centre - reach * widening + 0.5).astype(int), 0)
    last = np.minimum((centre + reach * widening + 0.5).astype(int), n)
    pixel = np.arange(n)
    shares = kernel(np.abs(pixel - centre[:, None] + 0.5) / widening)  # (out, n)
    shares = np.where((pixel >= first[:, None]) & (pixel < last[:, None]), shares, 0)
    return shares / shares.sum(1, keepdims=True)


def _lanczos(t: np.ndarray) -> np.ndarray:
    return np.where(t < 3, np.sinc(t) * np.sinc(t / 3), 0)


# By mode: how far the filter reaches, and the filter.
_FILTERS: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    "bilinear": (1.0, lambda t: np.maximum(1 - t, 0)),
    "bicubic": (2.0, lambda t: cubic(t, -0.5)),
    "lanczos": (3.0, _lanczos),
}
