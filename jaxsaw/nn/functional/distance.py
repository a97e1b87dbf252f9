"""Norms of vectors, and distances between them."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxsaw.nn.functional._common import ArrayLike, accumulator, axis, floating, magnitude, promote


def normalize(
    input: ArrayLike, p: float = 2.0, dim: int | Sequence[int] = 1, eps: float = 1e-12
) -> Array:
    """Divide by the p-norm along an axis: ``x / max(norm(x), eps)``.

    Args:
        input: Any shape.
        p: Which norm; 0, negative and infinite ones too.
        dim: The axis, or several.
        eps: The least to divide by.

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: If ``dim`` is out of range.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.normalize``.

    Example:
        >>> [round(y, 2) for y in normalize(jnp.array([3.0, 4.0]), dim=0).tolist()]
        [0.6, 0.8]
    """
    x = floating("normalize", input)
    dims = tuple(dim) if isinstance(dim, Sequence) else (dim,)
    axes = tuple(axis("normalize", d, x.ndim) for d in dims)
    wide = x.astype(accumulator(x.dtype))
    return (wide / jnp.maximum(_norm(wide, p, axes, keepdims=True), eps)).astype(x.dtype)


def cosine_similarity(x1: ArrayLike, x2: ArrayLike, dim: int = 1, eps: float = 1e-8) -> Array:
    """Take the cosine of the angle between vectors: ``x1 @ x2 / (|x1| * |x2|)``.

    Args:
        x1: Any shape.
        x2: A shape that broadcasts with it.
        dim: The axis of the vectors, counted after broadcasting.
        eps: The least length to divide by.

    Returns:
        The broadcast shape without ``dim``.

    Raises:
        ValueError: If the shapes don't broadcast, or ``dim`` is out of range.
        TypeError: If the inputs aren't floating.

    Source: ``torch.nn.functional.cosine_similarity``.

    Example:
        >>> cosine_similarity(jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 1.0]])).tolist()
        [0.0]
    """
    a, b, dtype = _pair("cosine_similarity", x1, x2)
    d = axis("cosine_similarity", dim, a.ndim)
    a = a / jnp.maximum(_norm(a, 2, (d,), keepdims=True), eps)
    b = b / jnp.maximum(_norm(b, 2, (d,), keepdims=True), eps)
    return (a * b).sum(d).astype(dtype)


def pairwise_distance(
    x1: ArrayLike, x2: ArrayLike, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Array:
    """Take the distance between vectors: the p-norm of ``x1 - x2 + eps`` along the last axis.

    Args:
        x1: ``(..., D)``.
        x2: A shape that broadcasts with it.
        p: Which norm; 0, negative and infinite ones too.
        eps: Added to each difference.
        keepdim: Keep the last axis, with size 1.

    Returns:
        ``(...)``, or ``(..., 1)``.

    Raises:
        ValueError: If the shapes don't broadcast.
        TypeError: If the inputs aren't floating.

    Source: ``torch.nn.functional.pairwise_distance``.

    Example:
        >>> pairwise_distance(jnp.zeros((1, 2)), jnp.array([[3.0, 4.0]])).round(3).tolist()
        [5.0]
    """
    a, b, dtype = _pair("pairwise_distance", x1, x2)
    if a.ndim == 0:
        raise ValueError("pairwise_distance: expected inputs (..., D), got two of shape ().")
    return _norm(a - b + eps, p, (a.ndim - 1,), keepdims=keepdim).astype(dtype)


def pdist(input: ArrayLike, p: float = 2.0) -> Array:
    """Take the distances between all pairs of rows: the p-norms of their differences.

    Args:
        input: ``(N, M)``.
        p: Which norm, at least 0.

    Returns:
        ``(N * (N - 1) / 2,)``: of the rows 0 and 1, 0 and 2, ..., 1 and 2, ...

    Raises:
        ValueError: If the shape or ``p`` doesn't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.pdist``.

    Example:
        >>> pdist(jnp.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).round(2).tolist()
        [5.0, 1.0, 4.239999771118164]
    """
    x = floating("pdist", input)
    if x.ndim != 2:
        raise ValueError(f"pdist: expected input (N, M), got {x.shape}.")
    if p < 0:
        raise ValueError(f"pdist: expected p of at least 0, got {p}.")
    first, second = np.triu_indices(x.shape[0], 1)
    wide = x.astype(accumulator(x.dtype))
    if x.shape[1] == 0:
        return jnp.zeros(first.shape, x.dtype)
    return _norm(wide[first] - wide[second], p, (1,), keepdims=False).astype(x.dtype)


def _pair(name: str, x1: ArrayLike, x2: ArrayLike) -> tuple[Array, Array, jnp.dtype]:
    """Return both in one shape and in the dtype to compute in, and the dtype to return."""
    a, b = promote(floating(name, x1, "x1"), floating(name, x2, "x2"))
    dtype = a.dtype
    try:
        a, b = jnp.broadcast_arrays(a, b)
    except ValueError:
        raise ValueError(
            f"{name}: expected shapes that broadcast, got {a.shape} and {b.shape}."
        ) from None
    return a.astype(accumulator(dtype)), b.astype(accumulator(dtype)), dtype


def _norm(x: Array, p: float, axes: tuple[int, ...], keepdims: bool) -> Array:
    """Return the p-norm; where it is 0 its gradient is 0, as PyTorch's, and not NaN."""
    size = magnitude(x)
    if p == 0:
        return (x != 0).sum(axes, keepdims=keepdims).astype(x.dtype)
    if p == float("inf"):
        return size.max(axes, keepdims=keepdims)
    if p == -float("inf"):
        return size.min(axes, keepdims=keepdims)
    if p == 1:
        return size.sum(axes, keepdims=keepdims)
    if p == 2:
        total = jnp.square(x).sum(axes, keepdims=keepdims)
        return jnp.where(total > 0, jnp.sqrt(jnp.where(total > 0, total, 1)), total)
    # The power of an element that is 0 has no finite derivative for p < 1.
    zero = size == 0
    powers = jnp.where(zero, 0 if p > 0 else jnp.inf, jnp.where(zero, 1, size) ** p)
    total = powers.sum(axes, keepdims=keepdims)
    return jnp.where(total > 0, jnp.where(total > 0, total, 1) ** (1 / p), 0)
