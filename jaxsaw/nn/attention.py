"""Multi-head attention."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxsaw.nn._factory import as_dtype, full, place, required, uniform
from jaxsaw.nn.functional.attention import multi_head_attention
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
        dropout = self.dropout if self.training else 0.0
        if rngs is None and 0 < dropout < 1:
            rngs = ambient("dropout", self.rngs, self._who())
        weights: Any = (self.in_proj_weight,)
        if self.in_proj_weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return multi_head_attention(
            query,
            key,
            value,
            self.num_heads,
            weights,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            batch_first=self.batch_first,
            rngs=rngs,
        )

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
