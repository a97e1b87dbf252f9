"""Scaled dot-product attention."""

import math

import jax
import jax.numpy as jnp
from jax import Array

from jaxsaw.nn.functional._common import ArrayLike, Streams, accumulator, floating, same_dtype
from jaxsaw.nn.functional.dropout import dropout


def scaled_dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    rngs: Streams | None = None,
) -> Array:
    """Attend: ``softmax(scale * query @ key.T + mask) @ value``.

    A query that may attend to no key gets zeros, as in PyTorch.

    Args:
        query: ``(..., heads, L, E)``; fewer axes down to ``(L, E)`` will do.
        key: ``(..., heads, S, E)``.
        value: ``(..., heads, S, Ev)``.
        attn_mask: Broadcasts to ``(..., heads, L, S)``. True takes part, False doesn't; floats are
            added to the scores.
        dropout_p: Probability that an attention weight is dropped (there is no ``training`` here,
            as in PyTorch: pass 0 in evaluation).
        is_causal: Query i attends to keys 0 to i only, of those that the mask leaves.
        scale: Factor of the scores; ``1 / sqrt(E)`` if None.
        enable_gqa: Let each key and value head serve several query heads.
        rngs: Where the stream ``dropout`` comes from; the ambient one if None.

    Returns:
        ``(..., heads, L, Ev)``, with the query's dtype; softmax is computed in float32 at least.

    Raises:
        ValueError: If shapes don't fit.
        TypeError: If dtypes don't fit.

    Source: ``torch.nn.functional.scaled_dot_product_attention``; Vaswani et al., 2017.

    Example:
        >>> q = jnp.ones((2, 4, 6, 8))
        >>> scaled_dot_product_attention(q, q, q, is_causal=True).shape
        (2, 4, 6, 8)
    """
    name = "scaled_dot_product_attention"
    q, k, v = (
        floating(name, query, "query"),
        floating(name, key, "key"),
        floating(name, value, "value"),
    )
    same_dtype(name, query=q, key=k, value=v)
    mask = None if attn_mask is None else _as_mask(attn_mask, q.dtype)
    batch = _check_shapes(name, q, k, v, mask, enable_gqa)
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"{name}: expected dropout_p in [0, 1], got {dropout_p}.")
    length, size = q.shape[-2], k.shape[-2]
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1])
    if size == 0:
        return jnp.zeros((*batch, length, v.shape[-1]), q.dtype)

    dead = None  # queries that attend to nothing
    if mask is not None:
        if is_causal:
            causal = jnp.tril(jnp.ones((length, size), bool))
            mask = mask & causal if mask.dtype == bool else jnp.where(causal, mask, -jnp.inf)
            is_causal = False
        alive = mask if mask.dtype == bool else mask > -jnp.inf
        dead = ~alive.any(-1, keepdims=True)  # (..., L, 1)
        # Such a row would be a softmax of nothing; let it attend to all, and zero it at the end.
        mask = mask | dead if mask.dtype == bool else jnp.where(dead, 0, mask)

    plain = q.ndim in (3, 4) and q.ndim == k.ndim and k.shape == v.shape
    plain = plain and q.shape[:-2] == batch and k.shape[:-3] == batch[:-1]
    # With narrower floats, jax.nn's gradient mixes dtypes, which strict promotion refuses.
    if plain and q.dtype == jnp.float32 and dropout_p == 0:
        y = _jax_attention(q, k, v, mask, is_causal, scale)
    else:
        if enable_gqa:
            k, v = (jnp.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
        y = _attention(q, k, v, mask, dropout_p, is_causal, scale, rngs)
    return y if dead is None else jnp.where(dead, 0, y)


def _jax_attention(
    q: Array, k: Array, v: Array, mask: Array | None, is_causal: bool, scale: float
) -> Array:
    """Call ``jax.nn.dot_product_attention``, whose layout is ``(batch, L, heads, E)``."""
    if mask is not None:
        mask = mask.reshape(*(1,) * (4 - mask.ndim), *mask.shape)
        mask = jnp.broadcast_to(mask, (*mask.shape[:2], q.shape[-2], k.shape[-2]))
    bias = None if mask is None or mask.dtype == bool else mask
    y = jax.nn.dot_product_attention(
        q.swapaxes(-3, -2),
        k.swapaxes(-3, -2),
        v.swapaxes(-3, -2),
        bias=bias,
        mask=mask if bias is None else None,
        scale=scale,
        is_causal=is_causal,
    )
    return y.swapaxes(-3, -2)


def _attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    dropout_p: float,
    is_causal: bool,
    scale: float,
    rngs: Streams | None,
) -> Array:
    """Compute attention for all else: any batch axes, any dtype, dropout."""
    scores = _scores(q, k) * scale  # (..., heads, L, S)
    if is_causal:
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    if mask is not None and mask.dtype == bool:
        scores = jnp.where(mask, scores, -jnp.inf)
    elif mask is not None:
        scores = scores + mask.astype(scores.dtype)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    if dropout_p > 0:
        weights = dropout(weights, dropout_p, rngs=rngs)
    return jnp.matmul(weights, v)


@jax.custom_jvp
def _scores(q: Array, k: Array) -> Array:
    """Return ``q @ k.T``, added up and kept in float32 at least."""
    return jnp.matmul(q, k.swapaxes(-2, -1), preferred_element_type=accumulator(q.dtype))


@_scores.defjvp
def _scores_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    # Products of one dtype, so that their transposes are too (and fast in bfloat16).
    (q, k), (dq, dk) = primals, tangents
    y = _scores(q, k)
    dy = jnp.matmul(dq, k.swapaxes(-2, -1)) + jnp.matmul(q, dk.swapaxes(-2, -1))
    return y, dy.astype(y.dtype)


def _as_mask(attn_mask: ArrayLike, dtype: jnp.dtype) -> Array:
    mask = jnp.asarray(attn_mask)
    if mask.dtype not in (jnp.dtype(bool), dtype, jnp.dtype("float32")):
        raise TypeError(
            "scaled_dot_product_attention: expected attn_mask of dtype bool, float32 or the "
            f"query's {dtype}, got {mask.dtype}."
        )
    return jnp.atleast_2d(mask if mask.dtype == bool else mask.astype(accumulator(dtype)))


def _check_shapes(
    name: str, q: Array, k: Array, v: Array, mask: Array | None, enable_gqa: bool
) -> tuple[int, ...]:
    """Return the leading axes of the output, heads included."""
    shapes = f"query {q.shape}, key {k.shape}, value {v.shape}"
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise ValueError(f"{name}: expected at least 2 dimensions each, got {shapes}.")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"{name}: expected query (..., L, E), key (..., S, E), value (..., S, Ev), "
            f"got {shapes}."
        )
    lead = [x.shape[:-2] for x in (q, k, v)]
    if enable_gqa:
        if min(q.ndim, k.ndim, v.ndim) < 3:
            raise ValueError(f"{name}: expected a heads axis with enable_gqa, got {shapes}.")
        heads = q.shape[-3]
        if any(x.shape[-3] == 0 or heads % x.shape[-3] for x in (k, v)):
            raise ValueError(
                f"{name}: expected key and value heads that divide the {heads} query heads, "
                f"got {shapes}."
            )
        lead = [(*x[:-1], heads) for x in lead]
    try:
        batch = jnp.broadcast_shapes(*lead)
    except ValueError:
        raise ValueError(
            f"{name}: expected leading axes that broadcast, got {shapes}."
            + ("" if enable_gqa else " For grouped heads pass enable_gqa=True.")
        ) from None
    scores = (*batch, q.shape[-2], k.shape[-2])
    try:
        fits = mask is None or jnp.broadcast_shapes(mask.shape, scores) == scores
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name}: expected attn_mask to broadcast to {scores}, got {mask.shape}.")  # type: ignore[union-attr]
    return batch
