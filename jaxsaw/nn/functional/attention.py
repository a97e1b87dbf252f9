"""Scaled dot-product attention, and attention in several heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxsaw.nn.functional._common import ArrayLike, Streams, accumulator, floating, same_dtype
from jaxsaw.nn.functional.dropout import dropout
from jaxsaw.nn.functional.linear import linear
from jaxsaw.nn.functional.softmax import softmax


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


def multi_head_attention_forward(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: ArrayLike | None,
    in_proj_bias: ArrayLike | None,
    bias_k: ArrayLike | None,
    bias_v: ArrayLike | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: ArrayLike,
    out_proj_bias: ArrayLike | None,
    training: bool = True,
    key_padding_mask: ArrayLike | None = None,
    need_weights: bool = True,
    attn_mask: ArrayLike | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: ArrayLike | None = None,
    k_proj_weight: ArrayLike | None = None,
    v_proj_weight: ArrayLike | None = None,
    static_k: ArrayLike | None = None,
    static_v: ArrayLike | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    *,
    rngs: Streams | None = None,
) -> tuple[Array, Array | None]:
    """Let each query take a weighted mean of the values, in several heads with own projections.

    Args:
        query: ``(L, N, E)`` or ``(L, E)``.
        key: ``(S, N, kdim)`` or ``(S, kdim)``.
        value: ``(S, N, vdim)`` or ``(S, vdim)``.
        embed_dim_to_check: ``E``.
        num_heads: Number of heads, which must divide ``E``.
        in_proj_weight: ``(3 * E, E)``: the projections of queries, keys and values.
        in_proj_bias: ``(3 * E,)``.
        bias_k: ``(1, 1, E)``: a key that is added to the sequences of keys.
        bias_v: ``(1, 1, E)``: its value.
        add_zero_attn: Add a key and value of zeros to the sequences.
        dropout_p: Probability that an attention weight is dropped in training.
        out_proj_weight: ``(E, E)``.
        out_proj_bias: ``(E,)``.
        training: False drops nothing.
        key_padding_mask: ``(N, S)`` or ``(S,)``. True leaves a key out; floats are added to its
            scores.
        need_weights: Return the attention weights too. Without, it may be faster.
        attn_mask: ``(L, S)`` or ``(N * heads, L, S)``. True leaves a key out for a query; floats
            are added to the scores.
        use_separate_proj_weight: Use the next three instead of ``in_proj_weight``.
        q_proj_weight: ``(E, E)``.
        k_proj_weight: ``(E, kdim)``.
        v_proj_weight: ``(E, vdim)``.
        static_k: ``(N * heads, S, E / heads)``: used instead of projected keys.
        static_v: The same of values.
        average_attn_weights: Return the mean of the weights over heads.
        is_causal: Says that ``attn_mask`` is the causal mask, which may be faster.
        rngs: Where the stream ``dropout`` comes from; the ambient one if None.

    Returns:
        The output, like the query, and the weights, ``(N, L, S)``, or ``(N, heads, L, S)`` if they
        aren't averaged, both without ``N`` if the query has no batch axis; or None for the weights.

    Raises:
        ValueError: If shapes don't fit, or ``is_causal`` comes without ``attn_mask``.
        TypeError: If a mask is neither of booleans nor of floats.

    Source: ``torch.nn.functional.multi_head_attention_forward``; Vaswani et al., 2017.

    Example:
        >>> x, w = jnp.ones((5, 2, 4)), jnp.ones((4, 4))
        >>> w_in = jnp.ones((12, 4))
        >>> y, weights = multi_head_attention_forward(
        ...     x, x, x, 4, 2, w_in, None, None, None, False, 0.0, w, None
        ... )
        >>> y.shape, weights.shape
        ((5, 2, 4), (2, 5, 5))
    """
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    weights = separate if use_separate_proj_weight else (in_proj_weight,)
    if any(w is None for w in weights):
        names = "q_, k_ and v_proj_weight" if use_separate_proj_weight else "in_proj_weight"
        raise ValueError(f"{_MHA}: expected {names}, got None.")
    shape = query.shape  # type: ignore[union-attr]
    if shape[-1:] != (embed_dim_to_check,):
        raise ValueError(f"{_MHA}: expected query (..., {embed_dim_to_check}), got {shape}.")
    return multi_head_attention(
        query,
        key,
        value,
        num_heads,
        weights,  # type: ignore[arg-type]
        in_proj_bias,
        bias_k,
        bias_v,
        add_zero_attn,
        dropout_p if training else 0.0,
        out_proj_weight,
        out_proj_bias,
        key_padding_mask=key_padding_mask,
        need_weights=need_weights,
        attn_mask=attn_mask,
        static_k=static_k,
        static_v=static_v,
        average_attn_weights=average_attn_weights,
        is_causal=is_causal,
        rngs=rngs,
    )


def multi_head_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    num_heads: int,
    weights: Sequence[ArrayLike],
    bias: ArrayLike | None,
    bias_k: ArrayLike | None,
    bias_v: ArrayLike | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_weight: ArrayLike,
    out_bias: ArrayLike | None,
    *,
    key_padding_mask: ArrayLike | None = None,
    need_weights: bool = True,
    attn_mask: ArrayLike | None = None,
    static_k: ArrayLike | None = None,
    static_v: ArrayLike | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    batch_first: bool = False,
    rngs: Streams | None = None,
) -> tuple[Array, Array | None]:
    """Do what :func:`multi_head_attention_forward` does, in either layout.

    Args:
        query: ``(L, N, E)``, or ``(N, L, E)`` with ``batch_first``, or ``(L, E)``.
        key: ``(S, N, kdim)``, or ``(N, S, kdim)``, or ``(S, kdim)``.
        value: ``(S, N, vdim)``, or ``(N, S, vdim)``, or ``(S, vdim)``.
        num_heads: Number of heads.
        weights: One of the three projections together, or three.
        bias: ``(3 * E,)``, or None.
        bias_k: ``(1, 1, E)``, or None.
        bias_v: ``(1, 1, E)``, or None.
        add_zero_attn: Add a key and value of zeros.
        dropout_p: Probability that an attention weight is dropped.
        out_weight: ``(E, E)``.
        out_bias: ``(E,)``, or None.
        key_padding_mask: ``(N, S)`` or ``(S,)``.
        need_weights: Return the attention weights too.
        attn_mask: ``(L, S)`` or ``(N * heads, L, S)``.
        static_k: ``(N * heads, S, E / heads)``, instead of projected keys.
        static_v: The same of values.
        average_attn_weights: Return the mean of the weights over heads.
        is_causal: Says that ``attn_mask`` is the causal mask.
        batch_first: Whether the batch axis comes first.
        rngs: Where the stream ``dropout`` comes from.

    Returns:
        The output, and the weights or None.

    Example:
        >>> x, w = jnp.ones((2, 5, 4)), jnp.ones((4, 4))
        >>> y, _ = multi_head_attention(
        ...     x, x, x, 2, [w, w, w], None, None, None, False, 0.0, w, None, batch_first=True
        ... )
        >>> y.shape
        (2, 5, 4)
    """
    # One array for all three: they are projected together.
    same = query is key, key is value
    q = jnp.asarray(query)
    k = q if same[0] else jnp.asarray(key)
    v = k if same[1] else jnp.asarray(value)
    w = [jnp.asarray(x) for x in weights]
    embed_dim = w[0].shape[0] // (3 if len(w) == 1 else 1)
    sizes = (embed_dim, w[0].shape[-1], w[0].shape[-1])
    sizes = sizes if len(w) == 1 else tuple(x.shape[-1] for x in w)  # type: ignore[assignment]
    _check_heads(embed_dim, num_heads, is_causal, attn_mask)
    n, length, size = _check_inputs(q, k, v, sizes, batch_first)
    if (bias_k is None) != (bias_v is None):
        raise ValueError(f"{_MHA}: expected bias_k and bias_v, or neither.")
    static = static_k is not None or static_v is not None
    if static and bias_k is not None:
        raise ValueError(f"{_MHA}: bias_k and bias_v can't be added to static_k and static_v.")
    batched = q.ndim == 3
    if not batched:
        q, k, v = q[None], k[None], v[None]
        key_padding_mask = None if key_padding_mask is None else jnp.asarray(key_padding_mask)[None]
    elif not batch_first:
        q, k, v = q.swapaxes(0, 1), k.swapaxes(0, 1), v.swapaxes(0, 1)  # (N, L or S, E)
    q, k, v = _project(q, k, v, w, None if bias is None else jnp.asarray(bias), same)

    extra = 0  # keys that no mask knows of
    if bias_k is not None and bias_v is not None:
        extra += 1
        k = jnp.concatenate([k, jnp.tile(jnp.asarray(bias_k), (n, 1, 1))], 1)
        v = jnp.concatenate([v, jnp.tile(jnp.asarray(bias_v), (n, 1, 1))], 1)
    q, k, v = (_split(x, num_heads) for x in (q, k, v))  # (N, heads, L or S, head_dim)
    if static_k is not None:
        k = _static("static_k", static_k, q)
    if static_v is not None:
        v = _static("static_v", static_v, q)
    size = k.shape[2] - extra
    if add_zero_attn:
        extra += 1
        k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0))) for x in (k, v))
    allowed = [(length, size), (n * num_heads, length, size)]
    _check_mask("attn_mask", attn_mask, allowed)
    _check_mask("key_padding_mask", key_padding_mask, [(n, size)], batched)

    causal = is_causal and key_padding_mask is None and not need_weights
    mask = None if causal else _merged(attn_mask, key_padding_mask, q, extra)
    found = None
    if need_weights:
        scores = (q * math.sqrt(1 / q.shape[-1])) @ k.swapaxes(-2, -1)  # (N, heads, L, S)
        if mask is not None:
            scores = scores + _as_floats(mask, scores.dtype)
        found = dropout(softmax(scores, -1), dropout_p, rngs=rngs)
        y = found @ v
    else:
        if mask is not None and mask.dtype == bool:
            mask = ~mask  # there, True takes part
        y = scaled_dot_product_attention(q, k, v, mask, dropout_p, causal, rngs=rngs)
    y = y.swapaxes(1, 2)  # (N, L, heads, head_dim)
    y = linear(y.reshape(n, length, -1), out_weight, out_bias)  # (N, L, E)

    if found is not None and average_attn_weights:
        found = found.mean(1)
    if not batched:
        return y[0], None if found is None else found[0]
    return y if batch_first else y.swapaxes(0, 1), found


_MHA = "multi_head_attention_forward"


def _project(
    q: Array,
    k: Array,
    v: Array,
    weights: Sequence[Array],
    bias: Array | None,
    same: tuple[bool, bool],
) -> tuple[Array, ...]:
    """Return the projections: one product where one array is all three, two where it is two."""
    if len(weights) == 1 and all(same):
        return tuple(jnp.split(linear(q, weights[0], bias), 3, -1))
    biases: Sequence[Any] = (None,) * 3 if bias is None else jnp.split(bias, 3)
    if len(weights) == 1 and same[1]:
        w_q, w_kv = jnp.split(weights[0], [weights[0].shape[0] // 3])
        b_kv = None if bias is None else bias[w_q.shape[0] :]
        return linear(q, w_q, biases[0]), *jnp.split(linear(k, w_kv, b_kv), 2, -1)
    each = jnp.split(weights[0], 3) if len(weights) == 1 else weights
    return tuple(linear(x, w, b) for x, w, b in zip((q, k, v), each, biases, strict=True))


def _split(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)  # (N, heads, S, head_dim)


def _static(argument: str, given: ArrayLike, q: Array) -> Array:
    """Return keys or values that need no projection, ``(N, heads, S, head_dim)``."""
    x, (n, heads, _, depth) = jnp.asarray(given), q.shape
    if x.ndim != 3 or (x.shape[0], x.shape[2]) != (n * heads, depth):
        raise ValueError(f"{_MHA}: expected {argument} ({n * heads}, S, {depth}), got {x.shape}.")
    return x.reshape(n, heads, -1, depth)


def _merged(
    attn_mask: ArrayLike | None, key_padding_mask: ArrayLike | None, q: Array, extra: int
) -> Array | None:
    """Return both masks in one that broadcasts to ``(N, heads, L, S)``; True leaves out."""
    n, heads, length = q.shape[:3]
    masks = []
    if attn_mask is not None:
        mask = jnp.asarray(attn_mask)
        shape = (1, 1) if mask.ndim == 2 else (n, heads)
        masks.append(mask.reshape(*shape, length, -1))
    if key_padding_mask is not None:
        masks.append(jnp.asarray(key_padding_mask).reshape(n, 1, 1, -1))
    if not masks:
        return None
    masks = [jnp.pad(mask, (*((0, 0),) * 3, (0, extra))) for mask in masks]
    if len(masks) == 1:
        return masks[0]
    if all(mask.dtype == bool for mask in masks):
        return masks[0] | masks[1]
    return _as_floats(masks[0], q.dtype) + _as_floats(masks[1], q.dtype)


def _as_floats(mask: Array, dtype: Any) -> Array:
    """Return what to add to scores: for True, minus infinity."""
    if mask.dtype == bool:
        return jnp.where(mask, jnp.asarray(-jnp.inf, dtype), jnp.zeros((), dtype))
    return mask.astype(dtype)


def _check_heads(
    embed_dim: int, num_heads: int, is_causal: bool, attn_mask: ArrayLike | None
) -> None:
    if embed_dim % num_heads:
        raise ValueError(
            f"{_MHA}: expected an embedding that num_heads={num_heads} divides, got {embed_dim}."
        )
    if is_causal and attn_mask is None:
        raise ValueError(f"{_MHA}: is_causal=True needs attn_mask=, the causal mask.")


def _check_inputs(
    q: Array, k: Array, v: Array, sizes: tuple[int, int, int], batch_first: bool
) -> tuple[int, int, int]:
    """Check the shapes, and return batch size, number of queries and number of keys."""
    came = f"got query {q.shape}, key {k.shape}, value {v.shape}"
    if q.ndim not in (2, 3) or q.ndim != k.ndim or q.ndim != v.ndim:
        raise ValueError(f"{_MHA}: expected three inputs of 3 axes, or all of 2, {came}.")
    if (q.shape[-1], k.shape[-1], v.shape[-1]) != sizes:
        raise ValueError(
            f"{_MHA}: expected query (..., {sizes[0]}), key (..., {sizes[1]}), value "
            f"(..., {sizes[2]}), {came}."
        )
    batched = q.ndim == 3
    axis = 0 if batch_first else 1
    if k.shape[:-1] != v.shape[:-1] or (batched and q.shape[axis] != k.shape[axis]):
        raise ValueError(f"{_MHA}: expected inputs of one batch and length, {came}.")
    n = q.shape[axis] if batched else 1
    length, size = (x.shape[(1 - axis) if batched else 0] for x in (q, k))
    return n, length, size


def _check_mask(
    argument: str, mask: Any, shapes: list[tuple[int, ...]], batched: bool = True
) -> None:
    if mask is None:
        return
    if jnp.shape(mask) not in shapes:
        skip = 0 if batched else 1  # the axis that was added
        wanted, came = [shape[skip:] for shape in shapes], jnp.shape(mask)[skip:]
        raise ValueError(
            f"{_MHA}: expected {argument} {' or '.join(map(str, wanted))}, got {came}."
        )
    dtype = jnp.asarray(mask).dtype
    if not jnp.issubdtype(dtype, jnp.bool_) and not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"{_MHA}: expected {argument} of bool or floats, got {dtype}.")


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
