"""Moving pixels between space and channels, and reading images at any places."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxsaw.nn.functional._common import (
    ArrayLike,
    accumulator,
    floating,
    ints,
    magnitude,
    same_dtype,
)
from jaxsaw.nn.functional.interpolate import cubic


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


def channel_shuffle(input: ArrayLike, groups: int) -> Array:
    """Deal the channels of ``g`` groups out in turn: the first of each, then the second of each.

    Args:
        input: ``(N, C, *)`` with at least one more axis.
        groups: The ``g``, a divisor of ``C``.

    Returns:
        The input's shape.

    Raises:
        ValueError: If the shape doesn't fit.

    Source: ``torch.nn.functional.channel_shuffle``; Zhang et al., 2018.

    Example:
        >>> channel_shuffle(jnp.arange(6.0).reshape(1, 6, 1), 2).ravel().tolist()
        [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    """
    x, (g,) = jnp.asarray(input), ints("channel_shuffle", "groups", groups, 1)
    if x.ndim < 3 or x.shape[1] % g:
        raise ValueError(f"channel_shuffle: expected input (N, C * {g}, *), got {x.shape}.")
    y = x.reshape(x.shape[0], g, x.shape[1] // g, *x.shape[2:]).swapaxes(1, 2)
    return y.reshape(x.shape)


def native_channel_shuffle(input: ArrayLike, groups: int) -> Array:
    """Do what :func:`channel_shuffle` does, under the name of PyTorch's other one.

    Args:
        input: ``(N, C, *)`` with at least one more axis.
        groups: A divisor of ``C``.

    Returns:
        The input's shape.

    Raises:
        ValueError: If the shape doesn't fit.

    Source: ``torch.nn.functional.native_channel_shuffle``.

    Example:
        >>> native_channel_shuffle(jnp.arange(4.0).reshape(1, 4, 1), 2).ravel().tolist()
        [0.0, 2.0, 1.0, 3.0]
    """
    return channel_shuffle(input, groups)


def affine_grid(theta: ArrayLike, size: Sequence[int], align_corners: bool | None = None) -> Array:
    """Make the grid at which :func:`grid_sample` shows an affine image of its input.

    Args:
        theta: The matrices, ``(N, 2, 3)``, or ``(N, 3, 4)`` for volumes.
        size: Shape of the output of :func:`grid_sample`, ``(N, C, H, W)`` or ``(N, C, D, H, W)``.
        align_corners: Whether -1 and 1 are the middles of the outermost pixels instead of the
            image's edges.

    Returns:
        ``(N, H, W, 2)`` or ``(N, D, H, W, 3)``: x, y and z, from -1 to 1 within the image.

    Raises:
        ValueError: If a shape doesn't fit.
        TypeError: If ``theta`` isn't floating.

    Source: ``torch.nn.functional.affine_grid``; Jaderberg et al., 2015.

    Example:
        >>> affine_grid(jnp.array([[[2.0, 0, 1], [0, 1, 0]]]), (1, 1, 1, 2)).tolist()
        [[[[0.0, 0.0], [2.0, 0.0]]]]
    """
    m, sizes = floating("affine_grid", theta, "theta"), ints("affine_grid", "size", size, len(size))
    spatial = len(sizes) - 2
    if spatial not in (2, 3):
        raise ValueError(
            f"affine_grid: expected size (N, C, H, W) or (N, C, D, H, W), got {sizes}."
        )
    if m.shape != (sizes[0], spatial, spatial + 1):
        raise ValueError(
            f"affine_grid: expected theta {(sizes[0], spatial, spatial + 1)} for size {sizes}, "
            f"got {m.shape}."
        )
    grid = np.ones((*sizes[2:], spatial + 1))
    for i, n in enumerate(reversed(sizes[2:])):  # x goes along the last axis
        line = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        line = line if align_corners else line * (n - 1) / n
        grid[..., i] = line.reshape(-1, *(1,) * i)
    wide = m.astype(accumulator(m.dtype))
    y = jnp.einsum("...j,nij->n...i", jnp.asarray(grid, wide.dtype), wide, precision="highest")
    return y.astype(m.dtype)


def grid_sample(
    input: ArrayLike,
    grid: ArrayLike,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Array:
    """Read images at any places, between the pixels too.

    Args:
        input: ``(N, C, H, W)`` or ``(N, C, D, H, W)``.
        grid: Where to read: x, y (and z), from -1 to 1 within the image; ``(N, H', W', 2)`` or
            ``(N, D', H', W', 3)``.
        mode: ``"bilinear"``, ``"nearest"`` or, for images, ``"bicubic"``.
        padding_mode: What is outside: ``"zeros"``, the ``"border"``, or a ``"reflection"``.
        align_corners: Whether -1 and 1 are the middles of the outermost pixels instead of the
            image's edges.

    Returns:
        ``(N, C, H', W')`` or ``(N, C, D', H', W')``.

    Raises:
        ValueError: If shapes or settings don't fit.
        TypeError: If the dtypes differ or aren't floating.

    Source: ``torch.nn.functional.grid_sample``; Jaderberg et al., 2015.

    Example:
        >>> x = jnp.array([[[[1.0, 3.0]]]])
        >>> grid_sample(x, jnp.array([[[[0.0, 0.0], [0.5, 0.0]]]])).tolist()
        [[[[2.0, 3.0]]]]
    """
    name = "grid_sample"
    x, g = floating(name, input), floating(name, grid, "grid")
    same_dtype(name, input=x, grid=g)
    spatial = x.ndim - 2
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and spatial != 2):
        raise ValueError(
            f"{name}: expected mode 'bilinear', 'nearest' or, for images, 'bicubic', got {mode!r} "
            f"for input {x.shape}."
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"{name}: expected padding_mode 'zeros', 'border' or 'reflection', "
            f"got {padding_mode!r}."
        )
    if spatial not in (2, 3) or g.ndim != x.ndim or g.shape[-1] != spatial:
        raise ValueError(
            f"{name}: expected input (N, C, H, W) with grid (N, H, W, 2), or (N, C, D, H, W) with "
            f"(N, D, H, W, 3), got {x.shape} and {g.shape}."
        )
    if g.shape[0] != x.shape[0] or 0 in x.shape[2:]:
        raise ValueError(
            f"{name}: expected input and grid of one batch, and pixels, got {x.shape} and "
            f"{g.shape}."
        )
    wide = g.astype(accumulator(g.dtype)).reshape(g.shape[0], -1, spatial)  # (N, P, spatial)
    places = []  # by axis of the input: z, y, x
    for i, n in enumerate(x.shape[2:]):
        u = wide[..., spatial - 1 - i]
        u = (u + 1) / 2 * (n - 1) if align_corners else ((u + 1) * n - 1) / 2
        places.append(u if mode == "bicubic" else _into(u, n, padding_mode, align_corners))
    pixels = x.astype(wide.dtype).reshape(*x.shape[:2], -1)
    flat, share, inside = jnp.int32(0), jnp.ones((), wide.dtype), jnp.bool_(True)
    for i, (n, u) in enumerate(zip(x.shape[2:], places, strict=True)):
        place, weight = _TAPS[mode](u)  # (N, taps, P)
        if mode == "bicubic":
            place = _into(place, n, padding_mode, align_corners)
        shape = (u.shape[0], *(1,) * i, -1, *(1,) * (spatial - 1 - i), u.shape[1])
        place, weight = place.reshape(shape), weight.reshape(shape)
        inside = inside & (place >= 0) & (place <= n - 1)
        flat = flat * n + jnp.clip(place, 0, n - 1).astype(jnp.int32)
        share = share * weight
    lines = (u.shape[0], 1, -1, u.shape[1])  # (N, 1, all taps, P)
    flat, share, inside = flat.reshape(lines), share.reshape(lines), inside.reshape(lines)
    values = jnp.take_along_axis(pixels[..., None], flat.reshape(*lines[:2], -1, 1), 2, "clip")
    values = values.reshape(*x.shape[:2], *flat.shape[2:])
    total = jnp.where(inside, values * share, 0).sum(2)
    return total.astype(x.dtype).reshape(*x.shape[:2], *g.shape[1:-1])


def _into(u: Array, n: int, padding_mode: str, align_corners: bool | None) -> Array:
    """Bring places that are outside of ``n`` pixels inside, as ``padding_mode`` says."""
    if padding_mode == "reflection":
        low, span = (0.0, n - 1.0) if align_corners else (-0.5, float(n))
        if span == 0:
            return jnp.zeros_like(u)
        u = magnitude(u - low)
        flips = jnp.floor(u / span)
        rest = u - flips * span
        u = jnp.where(flips % 2 == 0, rest + low, span - rest + low)
    if padding_mode != "zeros":
        u = jnp.where(u > 0, u, 0)  # of a NaN too
        u = jnp.where(u < n - 1, u, n - 1)
    return u


def _nearest_taps(u: Array) -> tuple[Array, Array]:
    """Return the neighbours of each place ``(N, P)``, and how much each counts: (N, taps, P)."""
    return lax.stop_gradient(jnp.round(u))[:, None], jnp.ones_like(u)[:, None]


def _linear_taps(u: Array) -> tuple[Array, Array]:
    low = lax.stop_gradient(jnp.floor(u))
    return jnp.stack([low, low + 1], 1), jnp.stack([1 - (u - low), u - low], 1)


def _cubic_taps(u: Array) -> tuple[Array, Array]:
    low = lax.stop_gradient(jnp.floor(u))
    places = low[:, None] + jnp.arange(-1, 3, dtype=u.dtype)[:, None]
    return places, cubic(jnp.abs(u[:, None] - places))


_TAPS = {"nearest": _nearest_taps, "bilinear": _linear_taps, "bicubic": _cubic_taps}
