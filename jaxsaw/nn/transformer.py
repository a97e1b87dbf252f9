"""Transformers: encoder, decoder, their layers, and both together."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn import init
from jaxsaw.nn._factory import as_dtype, place, required
from jaxsaw.nn.attention import MultiheadAttention
from jaxsaw.nn.containers import ModuleList
from jaxsaw.nn.dropout import Dropout
from jaxsaw.nn.linear import Linear
from jaxsaw.nn.module import Module
from jaxsaw.nn.norm import LayerNorm
from jaxsaw.rngs import Rngs


class _Layer(Module):
    """What layers of encoders and decoders share: residual branches, and the perceptron in one."""

    activation: Any
    norm_first: bool
    linear1: Linear
    linear2: Linear
    dropout: Dropout

    def _add(self, x: Array, norm: Module, block: Callable[[Array], Array]) -> Array:
        """Add what a block makes of ``x`` to it, and normalise before or after."""
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))

    def _perceptron(self, last: Module) -> Callable[[Array], Array]:
        return lambda x: last(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoderLayer(_Layer):
    """Let the places of a sequence attend to each other, then transform each by itself.

    ``x = norm1(x + self_attn(x))``, ``x = norm2(x + linear2(activation(linear1(x))))``, with
    dropout on the attention's weights, on the hidden units and on what is added.

    Args:
        d_model: Size ``E`` of a place.
        nhead: Number of heads, which must divide ``d_model``.
        dim_feedforward: Number of hidden units.
        dropout: Probability of each dropout.
        activation: ``"relu"``, ``"gelu"``, or a function of one array.
        layer_norm_eps: Added to the variance.
        batch_first: Whether the batch axis comes first.
        norm_first: Whether the input of each part is normalised, instead of its sum.
        bias: Whether the linear and norm layers have biases.
        device: Where the parameters are.
        dtype: Their dtype; float32 if None.
        rngs: Where the weights are drawn from (stream ``params``), and what a call draws from that
            has no streams (stream ``dropout``).

    Shape:
        - src: ``(S, N, E)``, or ``(N, S, E)`` with ``batch_first``, or ``(S, E)``
        - output: the same

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If an argument doesn't fit; when called, if the input or a mask doesn't.

    Source: ``torch.nn.TransformerEncoderLayer``; Vaswani et al., 2017.

    Example:
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, rngs=js.Rngs(0))
        >>> layer(jnp.ones((5, 3, 8))).shape
        (5, 3, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Array], Array] = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__()
        rngs = required(rngs, type(self).__name__)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, **where, rngs=rngs
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias, **where, rngs=rngs)
        self.dropout = Dropout(dropout, rngs=rngs)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **where, rngs=rngs)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **where)
        self.dropout1 = Dropout(dropout, rngs=rngs)
        self.dropout2 = Dropout(dropout, rngs=rngs)
        self.activation = _activation(type(self).__name__, activation)

    def forward(
        self,
        src: Array,
        src_mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        is_causal: bool = False,
    ) -> Array:
        """Transform a sequence.

        Args:
            src: The sequence; shapes are those of the class.
            src_mask: ``(S, S)`` or ``(N * heads, S, S)``. True leaves a place out for another one;
                floats are added to the scores.
            src_key_padding_mask: ``(N, S)`` or ``(S,)``. True leaves a place out.
            is_causal: Says that ``src_mask`` is the causal mask, which may be faster.
        """

        def attend(x: Array) -> Array:
            y, _ = self.self_attn(
                x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal
            )
            return self.dropout1(y)

        x = self._add(src, self.norm1, attend)
        return self._add(x, self.norm2, self._perceptron(self.dropout2))


class TransformerDecoderLayer(_Layer):
    """Let the places of a sequence attend to each other, then to a memory, then transform each.

    ``x = norm1(x + self_attn(x))``, ``x = norm2(x + multihead_attn(x, memory))``,
    ``x = norm3(x + linear2(activation(linear1(x))))``, with dropout on the attention's weights, on
    the hidden units and on what is added.

    Args:
        d_model: Size ``E`` of a place.
        nhead: Number of heads, which must divide ``d_model``.
        dim_feedforward: Number of hidden units.
        dropout: Probability of each dropout.
        activation: ``"relu"``, ``"gelu"``, or a function of one array.
        layer_norm_eps: Added to the variance.
        batch_first: Whether the batch axis comes first.
        norm_first: Whether the input of each part is normalised, instead of its sum.
        bias: Whether the linear and norm layers have biases.
        device: Where the parameters are.
        dtype: Their dtype; float32 if None.
        rngs: Where the weights are drawn from (stream ``params``), and what a call draws from that
            has no streams (stream ``dropout``).

    Shape:
        - tgt: ``(T, N, E)``, or ``(N, T, E)`` with ``batch_first``, or ``(T, E)``
        - memory: ``(S, N, E)``, or ``(N, S, E)`` with ``batch_first``, or ``(S, E)``
        - output: as ``tgt``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If an argument doesn't fit; when called, if an input or a mask doesn't.

    Source: ``torch.nn.TransformerDecoderLayer``; Vaswani et al., 2017.

    Example:
        >>> layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0, rngs=js.Rngs(0))
        >>> layer(jnp.ones((5, 3, 8)), jnp.ones((6, 3, 8))).shape
        (5, 3, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Array], Array] = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__()
        rngs = required(rngs, type(self).__name__)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, **where, rngs=rngs
        )
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, **where, rngs=rngs
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias, **where, rngs=rngs)
        self.dropout = Dropout(dropout, rngs=rngs)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **where, rngs=rngs)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **where)
        self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias, **where)
        self.dropout1 = Dropout(dropout, rngs=rngs)
        self.dropout2 = Dropout(dropout, rngs=rngs)
        self.dropout3 = Dropout(dropout, rngs=rngs)
        self.activation = _activation(type(self).__name__, activation)

    def forward(
        self,
        tgt: Array,
        memory: Array,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Array:
        """Transform a sequence.

        Args:
            tgt: The sequence; shapes are those of the class.
            memory: What an encoder made of another one.
            tgt_mask: ``(T, T)`` or ``(N * heads, T, T)``. True leaves a place out for another one;
                floats are added to the scores.
            memory_mask: ``(T, S)`` or ``(N * heads, T, S)``, likewise.
            tgt_key_padding_mask: ``(N, T)`` or ``(T,)``. True leaves a place out.
            memory_key_padding_mask: ``(N, S)`` or ``(S,)``, likewise.
            tgt_is_causal: Says that ``tgt_mask`` is the causal mask, which may be faster.
            memory_is_causal: Says that ``memory_mask`` is.
        """

        def attend(x: Array) -> Array:
            y, _ = self.self_attn(
                x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal
            )
            return self.dropout1(y)

        def look_up(x: Array) -> Array:
            y, _ = self.multihead_attn(
                x,
                memory,
                memory,
                memory_key_padding_mask,
                False,
                memory_mask,
                is_causal=memory_is_causal,
            )
            return self.dropout2(y)

        x = self._add(tgt, self.norm1, attend)
        x = self._add(x, self.norm2, look_up)
        return self._add(x, self.norm3, self._perceptron(self.dropout3))


class TransformerEncoder(Module):
    """Several encoder layers, one after the other.

    Args:
        encoder_layer: The layer; there will be copies of it, which start with its weights.
        num_layers: How many.
        norm: What to apply at the end.
        enable_nested_tensor: Accepted and ignored: arrays aren't nested.
        mask_check: Accepted and ignored.

    Shape:
        - src, output: those of the layer

    Source: ``torch.nn.TransformerEncoder``; Vaswani et al., 2017.

    Example:
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, rngs=js.Rngs(0))
        >>> nn.TransformerEncoder(layer, 2)(jnp.ones((5, 3, 8))).shape
        (5, 3, 8)
    """

    norm: Module | None

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check

    def forward(
        self,
        src: Array,
        mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        is_causal: bool | None = None,
    ) -> Array:
        """Transform a sequence.

        Args:
            src: The sequence.
            mask: ``src_mask`` of each layer.
            src_key_padding_mask: That of each layer.
            is_causal: Says that ``mask`` is the causal mask, which may be faster.
        """
        x = src
        for layer in self.layers:
            x = layer(
                x,
                src_mask=mask,
                src_key_padding_mask=src_key_padding_mask,
                is_causal=bool(is_causal),
            )
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """Several decoder layers, one after the other.

    Args:
        decoder_layer: The layer; there will be copies of it, which start with its weights.
        num_layers: How many.
        norm: What to apply at the end.

    Shape:
        - tgt, memory, output: those of the layer

    Source: ``torch.nn.TransformerDecoder``; Vaswani et al., 2017.

    Example:
        >>> layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0, rngs=js.Rngs(0))
        >>> nn.TransformerDecoder(layer, 2)(jnp.ones((5, 3, 8)), jnp.ones((6, 3, 8))).shape
        (5, 3, 8)
    """

    norm: Module | None

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Array,
        memory: Array,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Array:
        """Transform a sequence.

        Args:
            tgt: The sequence.
            memory: What an encoder made of another one.
            tgt_mask: That of each layer.
            memory_mask: That of each layer.
            tgt_key_padding_mask: That of each layer.
            memory_key_padding_mask: That of each layer.
            tgt_is_causal: Says that ``tgt_mask`` is the causal mask, which may be faster.
            memory_is_causal: Says that ``memory_mask`` is.
        """
        x = tgt
        for layer in self.layers:
            x = layer(
                x,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """An encoder, and a decoder that looks up what it made of the source.

    All matrices are drawn from Xavier's uniform distribution; biases start at zero.

    Args:
        d_model: Size ``E`` of a place.
        nhead: Number of heads, which must divide ``d_model``.
        num_encoder_layers: Number of layers of the encoder.
        num_decoder_layers: Number of layers of the decoder.
        dim_feedforward: Number of hidden units.
        dropout: Probability of each dropout.
        activation: ``"relu"``, ``"gelu"``, or a function of one array.
        custom_encoder: An encoder to use instead.
        custom_decoder: A decoder to use instead.
        layer_norm_eps: Added to the variance.
        batch_first: Whether the batch axis comes first.
        norm_first: Whether the input of each part is normalised, instead of its sum.
        bias: Whether the linear and norm layers have biases.
        device: Where the parameters are.
        dtype: Their dtype; float32 if None.
        rngs: Where the weights are drawn from (stream ``params``), and what a call draws from that
            has no streams (stream ``dropout``).

    Shape:
        - src: ``(S, N, E)``, or ``(N, S, E)`` with ``batch_first``, or ``(S, E)``
        - tgt: ``(T, N, E)``, or ``(N, T, E)`` with ``batch_first``, or ``(T, E)``
        - output: as ``tgt``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If an argument doesn't fit; when called, if an input or a mask doesn't.

    Source: ``torch.nn.Transformer``; Vaswani et al., 2017.

    Example:
        >>> model = nn.Transformer(8, 2, 1, 1, 16, 0.0, rngs=js.Rngs(0))
        >>> model(jnp.ones((6, 3, 8)), jnp.ones((5, 3, 8))).shape
        (5, 3, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Array], Array] = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__()
        rngs = required(rngs, type(self).__name__)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        options: dict[str, Any] = {
            "dim_feedforward": dim_feedforward,
            "dropout": dropout,
            "activation": activation,
            "layer_norm_eps": layer_norm_eps,
            "batch_first": batch_first,
            "norm_first": norm_first,
            "bias": bias,
            **where,
            "rngs": rngs,
        }
        if custom_encoder is None:
            custom_encoder = TransformerEncoder(
                TransformerEncoderLayer(d_model, nhead, **options),
                num_encoder_layers,
                LayerNorm(d_model, layer_norm_eps, bias=bias, **where),
            )
        if custom_decoder is None:
            custom_decoder = TransformerDecoder(
                TransformerDecoderLayer(d_model, nhead, **options),
                num_decoder_layers,
                LayerNorm(d_model, layer_norm_eps, bias=bias, **where),
            )
        self.encoder = custom_encoder
        self.decoder = custom_decoder
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first
        self.reset_parameters(rngs=rngs)

    def forward(
        self,
        src: Array,
        tgt: Array,
        src_mask: Array | None = None,
        tgt_mask: Array | None = None,
        memory_mask: Array | None = None,
        src_key_padding_mask: Array | None = None,
        tgt_key_padding_mask: Array | None = None,
        memory_key_padding_mask: Array | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Array:
        """Transform a sequence, given another one.

        In all masks, True leaves a place out; floats are added to the scores.

        Args:
            src: The sequence for the encoder; shapes are those of the class.
            tgt: The sequence for the decoder.
            src_mask: ``(S, S)`` or ``(N * heads, S, S)``.
            tgt_mask: ``(T, T)`` or ``(N * heads, T, T)``.
            memory_mask: ``(T, S)`` or ``(N * heads, T, S)``.
            src_key_padding_mask: ``(N, S)`` or ``(S,)``.
            tgt_key_padding_mask: ``(N, T)`` or ``(T,)``.
            memory_key_padding_mask: ``(N, S)`` or ``(S,)``.
            src_is_causal: Says that ``src_mask`` is the causal mask, which may be faster.
            tgt_is_causal: Says that ``tgt_mask`` is.
            memory_is_causal: Says that ``memory_mask`` is.
        """
        self._check(src, tgt)
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    def _check(self, src: Array, tgt: Array) -> None:
        axis = 0 if self.batch_first else 1
        fits = src.ndim == tgt.ndim and src.ndim in (2, 3)
        fits = fits and (src.ndim == 2 or src.shape[axis] == tgt.shape[axis])
        if not fits or src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ValueError(
                f"{self._who()}: expected src and tgt (..., {self.d_model}) of 2 or 3 axes, and of "
                f"one batch, got {src.shape} and {tgt.shape}."
            )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Array:
        """Return the causal mask: 0 for a place and those before it, minus infinity after it.

        Args:
            sz: Length ``T`` of the sequence.
            device: Where the mask is.
            dtype: Its dtype; float32 if None.

        Returns:
            ``(T, T)``.
        """
        kind = as_dtype(dtype)
        return place(jnp.triu(jnp.full((sz, sz), -jnp.inf, kind), 1), device)

    def reset_parameters(self, *, rngs: Rngs) -> None:
        """Draw all matrices anew; biases and norms stay.

        Args:
            rngs: Where they are drawn from.
        """
        rngs = required(rngs, f"{type(self).__name__}.reset_parameters()")
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter, rngs=rngs)


def _activation(name: str, activation: str | Callable[[Array], Array]) -> Callable[[Array], Array]:
    known: dict[str, Callable[..., Array]] = {"relu": F.relu, "gelu": F.gelu}
    if isinstance(activation, str) and activation in known:
        return known[activation]
    if isinstance(activation, str) or not callable(activation):
        raise ValueError(
            f"{name}: expected activation 'relu', 'gelu' or a function, got {activation!r}."
        )
    return activation


def _copies(layer: Module, count: int) -> ModuleList:
    """Return copies of a layer that draw from its streams, and not from copies of these."""
    shared = {
        id(streams): streams
        for module in layer.modules()
        for streams in vars(module).values()
        if isinstance(streams, Rngs)
    }
    return ModuleList([deepcopy(layer, dict(shared)) for _ in range(count)])
