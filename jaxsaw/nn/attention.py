"""Multi-head attention."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import as_dtype, full, place, required, uniform
from jaxsaw.nn.linear import Linear
from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Parameter
from jaxsaw.rngs import Rngs, ambient


class NonDynamicallyQuantizableLinear(Linear):
    """A :class:`Linear` by the name that PyTorch prints for the output of attention.

    Source: ``torch.nn.modules.linear.NonDynamicallyQuantizableLinear``.

    Example:
        >>> NonDynamicallyQuantizableLinear(3, 2, rngs=js.Rngs(params=0))(jnp.ones(3)).shape
        (2,)
    """


class MultiheadAttention(Module):
    """Let each query take a weighted mean of the values, in several heads with own projections.

    ``head_i = softmax(q_i @ k_i.T / sqrt(head_dim) + mask) @ v_i``, and the output is
    ``out_proj(concat(head_1, ..., head_h))``.

    The input projections are drawn from Xavier's uniform distribution, the output projection as in
    :class:`Linear`; biases start at zero, ``bias_k`` and ``bias_v`` from Xavier's normal one.

    Args:
        embed_dim: Size ``E`` of queries and output.
        num_heads: Number of heads, which must divide ``embed_dim``.
        dropout: Probability that an attention weight is dropped in training.
        bias: Whether the projections have biases.
        add_bias_kv: Add a learned key and value to the sequences of keys and values.
        add_zero_attn: Add a key and value of zeros to these sequences.
        kdim: Size of keys; ``embed_dim`` if None.
        vdim: Size of values; ``embed_dim`` if None.
        batch_first: Whether the batch axis comes first.
        device: Where the parameters are.
        dtype: Their dtype; float32 if None.
        rngs: Where the weights are drawn from (stream ``params``); with ``dropout``, also what a
            call draws from that has no streams (stream ``dropout``).

    Shape:
        - query: ``(L, N, E)``, or ``(N, L, E)`` with ``batch_first``, or ``(L, E)``
        - key: ``(S, N, kdim)``, or ``(N, S, kdim)`` with ``batch_first``, or ``(S, kdim)``
        - value: ``(S, N, vdim)``, or ``(N, S, vdim)`` with ``batch_first``, or ``(S, vdim)``
        - output: as the query; weights: ``(N, L, S)`` or ``(L, S)``, and ``(N, heads, L, S)`` or
          ``(heads, L, S)`` if they aren't averaged
        - in_proj_weight: ``(3 * E, E)``; with ``kdim`` or ``vdim``, instead: q_proj_weight
          ``(E, E)``, k_proj_weight ``(E, kdim)``, v_proj_weight ``(E, vdim)``
        - in_proj_bias: ``(3 * E,)``; out_proj.weight: ``(E, E)``; out_proj.bias: ``(E,)``
        - bias_k, bias_v: ``(1, 1, E)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If the arguments don't fit together; when called, if the inputs don't.

    Source: ``torch.nn.MultiheadAttention``; Vaswani et al., 2017.

    Example:
        >>> layer = nn.MultiheadAttention(8, 2, batch_first=True, rngs=js.Rngs(params=0))
        >>> x = jnp.ones((4, 5, 8))
        >>> output, weights = layer(x, x, x)
        >>> output.shape, weights.shape
        ((4, 5, 8), (4, 5, 5))
    """

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"MultiheadAttention: expected embed_dim and num_heads of at least 1, got "
                f"{embed_dim} and {num_heads}."
            )
        if embed_dim % num_heads:
            raise ValueError(
                f"MultiheadAttention: expected embed_dim that num_heads={num_heads} divides, got "
                f"{embed_dim}."
            )
        rngs = required(rngs, "MultiheadAttention")
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads

        inputs = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
        shapes = {f"{name}_proj_weight": (embed_dim, size) for name, size in inputs.items()}
        if self._qkv_same_embed_dim:
            shapes = {"in_proj_weight": (3 * embed_dim, embed_dim)}
        for name, shape in shapes.items():
            bound = math.sqrt(6 / sum(shape))  # Xavier's
            setattr(self, name, uniform(rngs, shape, bound, dtype, device))
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if name not in shapes:
                self.register_parameter(name, None)
        if bias:
            self.in_proj_bias = full((3 * embed_dim,), 0, dtype, device)
        else:
            self.register_parameter("in_proj_bias", None)
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias, device, dtype, rngs=rngs
        )
        self.bias_k = _extra(rngs, embed_dim, dtype, device) if add_bias_kv else None
        self.bias_v = _extra(rngs, embed_dim, dtype, device) if add_bias_kv else None
        self.add_zero_attn = add_zero_attn
        self.rngs = rngs if dropout > 0 else None

    def forward(
        self,
        query: Array,
        key: Array,
        value: Array,
        key_padding_mask: Array | None = None,
        need_weights: bool = True,
        attn_mask: Array | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        rngs: Rngs | None = None,
    ) -> tuple[Array, Array | None]:
        """Attend.

        Args:
            query: What asks; shapes are those of the class.
            key: What is compared with the queries.
            value: What is averaged.
            key_padding_mask: ``(N, S)`` or ``(S,)``. True leaves a key out; floats are added to its
                scores.
            need_weights: Return the attention weights too. Without, it may be faster.
            attn_mask: ``(L, S)`` or ``(N * heads, L, S)``. True leaves a key out for a query;
                floats are added to the scores.
            average_attn_weights: Return the mean of the weights over heads.
            is_causal: Says that ``attn_mask`` is the causal mask, which may be faster.
            rngs: The streams to draw dropout from.

        Returns:
            The output, and the weights or None.
        """
        q, k, v = jnp.asarray(query), jnp.asarray(key), jnp.asarray(value)
        batched = self._check(q, k, v, key_padding_mask, attn_mask)
        if is_causal and attn_mask is None:
            raise ValueError(f"{self._who()}: is_causal=True needs attn_mask=, the causal mask.")
        if not batched:
            q, k, v = q[None], k[None], v[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            q, k, v = q.swapaxes(0, 1), k.swapaxes(0, 1), v.swapaxes(0, 1)  # (N, L, E)
        q, k, v = self._project(q, k, v, is_self=query is key and key is value)

        extra = 0  # keys that no mask knows of
        if self.bias_k is not None and self.bias_v is not None:
            n, extra = q.shape[0], extra + 1
            k = jnp.concatenate([k, jnp.tile(self.bias_k.value, (n, 1, 1))], 1)
            v = jnp.concatenate([v, jnp.tile(self.bias_v.value, (n, 1, 1))], 1)
        if self.add_zero_attn:
            extra += 1
            k, v = (jnp.pad(x, ((0, 0), (0, 1), (0, 0))) for x in (k, v))
        q, k, v = (self._split(x) for x in (q, k, v))  # (N, heads, L or S, head_dim)

        causal = is_causal and key_padding_mask is None and not need_weights
        mask = None if causal else self._mask(attn_mask, key_padding_mask, q, extra)
        dropout = self.dropout if self.training else 0.0
        if rngs is None and 0 < dropout < 1:
            rngs = ambient("dropout", self.rngs, self._who())
        weights = None
        if need_weights:
            scores = (q * math.sqrt(1 / self.head_dim)) @ k.swapaxes(-2, -1)
            if mask is not None:
                scores = scores + _as_floats(mask, scores.dtype)
            weights = F.dropout(F.softmax(scores, -1), dropout, rngs=rngs)
            y = weights @ v
        else:
            if mask is not None and mask.dtype == bool:
                mask = ~mask  # there, True takes part
            y = F.scaled_dot_product_attention(q, k, v, mask, dropout, causal, rngs=rngs)
        y = y.swapaxes(1, 2)  # (N, L, heads, head_dim)
        y = self.out_proj(y.reshape(*y.shape[:2], -1))  # (N, L, E)

        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return y[0], None if weights is None else weights[0]
        return y if self.batch_first else y.swapaxes(0, 1), weights

    def _project(self, q: Array, k: Array, v: Array, is_self: bool) -> tuple[Array, ...]:
        if self.in_proj_bias is None:
            biases: Any = (None, None, None)
        else:
            biases = jnp.split(self.in_proj_bias.value, 3)
        if self.in_proj_weight is None:
            weights: Any = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif is_self:  # one product is faster than three
            return tuple(jnp.split(F.linear(q, self.in_proj_weight, self.in_proj_bias), 3, -1))
        else:
            weights = jnp.split(self.in_proj_weight.value, 3)
        return tuple(F.linear(x, w, b) for x, w, b in zip((q, k, v), weights, biases, strict=True))

    def _split(self, x: Array) -> Array:
        x = x.reshape(*x.shape[:2], self.num_heads, self.head_dim)  # (N, S, heads, head_dim)
        return x.swapaxes(1, 2)

    def _mask(
        self, attn_mask: Array | None, key_padding_mask: Array | None, q: Array, extra: int
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

    def _check(self, q: Array, k: Array, v: Array, key_padding_mask: Any, attn_mask: Any) -> bool:
        """Check all shapes, and return whether there is a batch axis."""
        who = self._who()
        sizes = (self.embed_dim, self.kdim, self.vdim)
        came = f"got query {q.shape}, key {k.shape}, value {v.shape}"
        if q.ndim not in (2, 3) or q.ndim != k.ndim or q.ndim != v.ndim:
            raise ValueError(f"{who}: expected three inputs of 3 axes, or all of 2, {came}.")
        if (q.shape[-1], k.shape[-1], v.shape[-1]) != sizes:
            raise ValueError(
                f"{who}: expected query (..., {sizes[0]}), key (..., {sizes[1]}), value "
                f"(..., {sizes[2]}), {came}."
            )
        batched = q.ndim == 3
        axis = 0 if self.batch_first else 1
        if k.shape[:-1] != v.shape[:-1] or (batched and q.shape[axis] != k.shape[axis]):
            raise ValueError(f"{who}: expected inputs of one batch and length, {came}.")
        n = q.shape[axis] if batched else 1
        length, size = (x.shape[(1 - axis) if batched else 0] for x in (q, k))
        allowed = [(length, size), (n * self.num_heads, length, size)]
        _check_mask(who, "attn_mask", attn_mask, allowed)
        _check_mask(who, "key_padding_mask", key_padding_mask, [(n, size) if batched else (size,)])
        return batched

    def reset_parameters(self, *, rngs: Rngs) -> None:
        """Draw the weights anew, and set the biases to zero.

        Args:
            rngs: Where the weights are drawn from.
        """
        other = type(self)(
            self.embed_dim,
            self.num_heads,
            bias=self.in_proj_bias is not None,
            add_bias_kv=self.bias_k is not None,
            kdim=self.kdim,
            vdim=self.vdim,
            rngs=required(rngs, "MultiheadAttention.reset_parameters()"),
        )
        self.load_state_dict(other.state_dict())


def _extra(rngs: Rngs, embed_dim: int, dtype: Any, device: Any) -> Parameter:
    """Return a learned key or value, drawn from Xavier's normal distribution."""
    # Of (1, 1, E), PyTorch takes fan_in and fan_out to be E each.
    std = math.sqrt(2 / (embed_dim + embed_dim))
    kind = as_dtype(dtype)
    array = jax.random.normal(rngs.next("params"), (1, 1, embed_dim), kind)
    return Parameter.own(place(array * jnp.asarray(std, kind), device))


def _as_floats(mask: Array, dtype: Any) -> Array:
    """Return what to add to scores: for True, minus infinity."""
    if mask.dtype == bool:
        return jnp.where(mask, jnp.asarray(-jnp.inf, dtype), jnp.zeros((), dtype))
    return mask.astype(dtype)


def _check_mask(who: str, argument: str, mask: Any, shapes: list[tuple[int, ...]]) -> None:
    if mask is None:
        return
    if jnp.shape(mask) not in shapes:
        raise ValueError(
            f"{who}: expected {argument} {' or '.join(map(str, shapes))}, got {jnp.shape(mask)}."
        )
    dtype = jnp.asarray(mask).dtype
    if not jnp.issubdtype(dtype, jnp.bool_) and not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"{who}: expected {argument} of bool or floats, got {dtype}.")
