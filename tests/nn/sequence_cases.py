"""Layers for sequences, and what they are called with: one table for goldens and for PyTorch.

A row is built and called by the same code in both frameworks, which gives the outputs, flat.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import jaxsaw as js
from jaxsaw import nn
from tests.nn.functional.cases import A, B, Case, Draw, I, N, case, cotangent


def undrawn() -> Any:
    """Let layers that are made within start with ones: drawing would be compiled by shape."""
    numbers = lambda key, shape, dtype, *_: jnp.asarray(np.ones(shape, dtype))
    return mock.patch.multiple(jax.random, uniform=numbers, normal=numbers)


@dataclass(frozen=True)
class Row:
    """A layer, and the inputs of one call.

    ``make`` gets the package ``nn`` and, in jaxsaw, ``rngs=``. With ``lengths``, the first input is
    packed, and the output padded again.
    """

    text: str
    make: Callable[..., Any]
    inputs: tuple[Any, ...]
    call: dict[str, Any] = field(default_factory=dict)
    lengths: tuple[int, ...] | None = None
    grad: bool = True  # whether to compare gradients

    def __str__(self) -> str:
        return self.text

    def build(self) -> Any:
        """Return jaxsaw's layer, without drawing its first values."""
        with undrawn():
            return self.make(nn, rngs=js.Rngs(0))

    def arrays(self) -> tuple[list[Any], dict[str, Any]]:
        """Draw the arguments of the call."""
        r = np.random.RandomState(zlib.crc32(self.text.encode()))

        def draw(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(draw, value))
            return value.draw(r) if isinstance(value, Draw) else value

        return [draw(v) for v in self.inputs], {k: draw(v) for k, v in self.call.items()}

    def state(self, like: dict[str, Any]) -> dict[str, np.ndarray]:
        """Return other values for a state."""
        seed = lambda name: zlib.crc32(f"{self.text}{name}".encode())
        draw = lambda name: np.random.RandomState(seed(name)).standard_normal
        return {
            name: (draw(name)(tuple(old.shape)) * 0.5).astype(np.float32)
            for name, old in like.items()
        }

    def outputs(self, layer: Any, utils: Any, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Call the layer; return its outputs that are arrays, one after the other.

        Args:
            layer: The layer.
            utils: The package's ``nn.utils.rnn``.
            args: What to call it with.
            kwargs: The same, by name.
        """
        if self.lengths is None:
            return flat(layer(*args, **kwargs))
        first = layer.batch_first
        packed = utils.pack_padded_sequence(args[0], list(self.lengths), first, False)
        out, state = layer(packed, *args[1:], **kwargs)
        return flat((utils.pad_packed_sequence(out, first)[0], state))


def flat(value: Any) -> list[Any]:
    """Return the arrays in nested tuples."""
    if isinstance(value, tuple):
        return [array for item in value for array in flat(item)]
    return [] if value is None else [value]


def row(text: str, name: str, *args: Any, to: tuple[Any, ...], **settings: Any) -> Row:
    """Return a row of a layer by its name; the constructor gets what isn't a field of ``Row``."""
    fields = {k: settings.pop(k) for k in ("call", "lengths", "grad") if k in settings}
    make = lambda nn, **k: getattr(nn, name)(*args, **settings, **k)
    return Row(f"{name} {text}", make, to, **fields)


def _recurrent() -> list[Row]:
    x, lengths = N(4, 3, 3), (2, 4, 1)
    rows = []
    for name in ("RNN", "GRU", "LSTM"):
        state = lambda *shape, two=name == "LSTM": (N(*shape), N(*shape)) if two else N(*shape)
        rows += [
            row("plain", name, 3, 4, to=(x,)),
            row("of a state", name, 3, 4, to=(x, state(1, 3, 4))),
            row("without bias, batch first", name, 3, 4, bias=False, batch_first=True, to=(x,)),
            row(
                "unbatched, of a state",
                name,
                3,
                4,
                num_layers=2,
                to=(N(4, 3), state(2, 4)),
            ),
            row(
                "of two layers, both ways",
                name,
                3,
                4,
                num_layers=2,
                bidirectional=True,
                to=(x, state(4, 3, 4)),
            ),
            row("packed", name, 3, 4, lengths=lengths, to=(x,)),
            row(
                "packed, both ways",
                name,
                3,
                4,
                num_layers=2,
                bidirectional=True,
                batch_first=True,
                lengths=lengths,
                to=(N(3, 4, 3), state(4, 3, 4)),
            ),
        ]
    rows += [
        row("with relu", "RNN", 3, 4, 2, "relu", to=(x,)),
        row("with relu, packed", "RNN", 3, 4, nonlinearity="relu", lengths=lengths, to=(x,)),
        row("of one step", "GRU", 3, 4, to=(N(1, 1, 3),)),
        row("projected", "LSTM", 3, 4, proj_size=2, to=(x,)),
        row(
            "projected, of two layers",
            "LSTM",
            3,
            4,
            2,
            bidirectional=True,
            proj_size=2,
            lengths=lengths,
            to=(x, (N(4, 3, 2), N(4, 3, 4))),
        ),
        row("without a batch", "LSTM", 3, 4, to=(N(4, 0, 3),), grad=False),
        row("of equal lengths", "GRU", 3, 4, lengths=(4, 4, 4), to=(x,)),
    ]
    for name in ("RNNCell", "GRUCell", "LSTMCell"):
        state = lambda *shape, two=name == "LSTMCell": (N(*shape), N(*shape)) if two else N(*shape)
        rows += [
            row("plain", name, 3, 4, to=(N(2, 3),)),
            row("of a state", name, 3, 4, to=(N(2, 3), state(2, 4))),
            row("unbatched, without bias", name, 3, 4, bias=False, to=(N(3), state(4))),
        ]
    rows.append(row("with relu", "RNNCell", 3, 4, nonlinearity="relu", to=(N(2, 3), N(2, 4))))
    return rows


CAUSAL = A(np.triu(np.ones((4, 4), bool), 1), bool)
PADDING = A([[0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]], bool)


def _transformer() -> list[Row]:
    # Few shapes, so that there is little to compile.
    name, x = "TransformerEncoderLayer", N(4, 4, 4)
    encoder: Any = lambda nn, n, norm=None, **k: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 6, 0.0, **k), n, norm, enable_nested_tensor=False
    )
    decoder: Any = lambda nn, n, norm=None, **k: nn.TransformerDecoder(
        nn.TransformerDecoderLayer(4, 2, 6, 0.0, **k), n, norm
    )
    rows = [
        row("plain", name, 4, 2, 6, 0.0, to=(x,)),
        row("gelu, norm first", name, 4, 2, 6, 0.0, "gelu", 0.1, norm_first=True, to=(x,)),
        row("without bias", name, 4, 2, 6, 0.0, batch_first=True, bias=False, to=(x,)),
        row("causal", name, 4, 2, 6, 0.0, to=(x,), call={"src_mask": CAUSAL, "is_causal": True}),
        row(
            "padded",
            name,
            4,
            2,
            6,
            0.0,
            to=(x,),
            call={"src_mask": CAUSAL, "src_key_padding_mask": PADDING},
        ),
        Row(
            f"{name} with a module for activation",
            lambda nn, **k: nn.TransformerEncoderLayer(4, 2, 6, 0.0, nn.Tanh(), **k),
            (x,),
        ),
        Row(
            "TransformerEncoder",
            lambda nn, **k: encoder(nn, 2, nn.LayerNorm(4), **k),
            (x,),
            {"mask": CAUSAL, "src_key_padding_mask": PADDING, "is_causal": True},
        ),
        Row("TransformerEncoder without norm", lambda nn, **k: encoder(nn, 1, **k), (x,)),
    ]
    name = "TransformerDecoderLayer"
    masks = {
        "tgt_mask": CAUSAL,
        "memory_mask": N(4, 3),
        "tgt_key_padding_mask": PADDING,
        "memory_key_padding_mask": A([[0, 0, 0], [0, 0, 1], [0, 1, 1], [0, 1, 0]], bool),
    }
    rows += [
        row("gelu, norm first", name, 4, 2, 6, 0.0, "gelu", norm_first=True, to=(x, x)),
        row("unbatched, no bias", name, 4, 2, 6, 0.0, bias=False, to=(N(4, 4), N(3, 4))),
        row(
            "masked",
            name,
            4,
            2,
            6,
            0.0,
            to=(x, N(3, 4, 4)),
            call={**masks, "tgt_is_causal": True},
        ),
        row(
            "batch first",
            name,
            4,
            2,
            6,
            0.0,
            batch_first=True,
            to=(x, x),
            call={"memory_key_padding_mask": PADDING, "memory_mask": B(4, 4)},
        ),
        Row(
            "TransformerDecoder",
            lambda nn, **k: decoder(nn, 2, nn.LayerNorm(4), **k),
            (x, x),
            {"tgt_mask": CAUSAL, "tgt_is_causal": True},
        ),
        row(
            "masked",
            "Transformer",
            4,
            2,
            1,
            1,
            6,
            0.0,
            batch_first=True,
            norm_first=True,
            bias=False,
            to=(x, x),
            call={
                "src_mask": N(4, 4),
                "tgt_mask": CAUSAL,
                "src_key_padding_mask": PADDING,
                "tgt_key_padding_mask": PADDING,
                "memory_key_padding_mask": PADDING,
            },
        ),
    ]
    return rows


def _bags() -> list[Row]:
    name, many = "EmbeddingBag", I(5, 3, 4)
    pairs = A([1, 2, 4, 3, 2, 4, 1, 3], np.int32)  # PyTorch errs where counts differ
    line, starts = A([1, 2, 4, 4, 3, 2, 4, 1], np.int32), A([0, 2, 2, 5], np.int32)
    ends = A([0, 2, 2, 5, 8], np.int32)
    rows = []
    for mode in ("sum", "mean", "max"):
        rows += [
            row(f"{mode}", name, 5, 3, mode=mode, to=(many,)),
            row(f"{mode}, offsets", name, 5, 3, mode=mode, to=(line, starts)),
            row(f"{mode}, padding", name, 5, 3, mode=mode, padding_idx=-1, to=(line, starts)),
            row(f"{mode}, padding in rows", name, 5, 3, mode=mode, padding_idx=2, to=(many,)),
            row(f"{mode}, ends", name, 5, 3, mode=mode, include_last_offset=True, to=(line, ends)),
            row(f"{mode}, long rows", name, 5, 3, 0.5, 1.0, mode=mode, to=(many,), grad=False),
        ]
    for mode in ("sum", "mean"):
        rows.append(
            row(f"{mode}, by frequency", name, 5, 3, None, 2.0, True, mode, to=(pairs, starts))
        )
    return rows + [
        row("sum, weighted", name, 5, 3, mode="sum", to=(many, None, N(3, 4))),
        row(
            "sum, weighted, padding",
            name,
            5,
            3,
            mode="sum",
            padding_idx=4,
            to=(line, starts, N(8)),
        ),
        row("no bags", name, 5, 3, to=(line, A([], np.int32)), grad=False),
        row("empty bags", name, 5, 3, to=(A([], np.int32), A([0, 0], np.int32)), grad=False),
        row("empty bags, max", name, 5, 3, mode="max", to=(A([], np.int32), A([0], np.int32))),
    ]


@dataclass(frozen=True)
class Refused:
    """A call that raises; ``run`` gets the package ``nn`` and two functions that make arrays.

    In jaxsaw, ``nn`` is one whose layers need no ``rngs=``.
    """

    text: str
    run: Callable[[Any, Any, Any], Any]
    error: type[Exception] = ValueError
    ours: bool = False  # PyTorch accepts this

    def __str__(self) -> str:
        return self.text


def _cells_refused() -> list[Refused]:
    r = Refused
    return [
        r("RNN: expected input_size of at least 1, got 0", lambda nn, o, a: nn.RNN(0, 3)),
        r("LSTM: expected hidden_size of at least 1, got 0", lambda nn, o, a: nn.LSTM(2, 0)),
        r("GRU: expected hidden_size to be an int", lambda nn, o, a: nn.GRU(2, 3.0), TypeError),
        r("GRU: expected num_layers of at least 1, got 0", lambda nn, o, a: nn.GRU(2, 3, 0)),
        r("expected dropout in [0, 1], got True", lambda nn, o, a: nn.GRU(2, 3, 2, dropout=True)),
        r("expected dropout in [0, 1], got 1.5", lambda nn, o, a: nn.GRU(2, 3, 2, dropout=1.5)),
        r("proj_size in [0, 2], below hidden_size", lambda nn, o, a: nn.LSTM(2, 3, proj_size=3)),
        r("proj_size in [0, 2]", lambda nn, o, a: nn.LSTM(2, 3, proj_size=-1)),
        r(
            "0 for all but an LSTM",
            lambda nn, o, a: nn.RNNBase("GRU", 2, 3, proj_size=1),
            ours=True,
        ),
        r(
            "mode to be one of RNN_TANH, RNN_RELU, LSTM, GRU",
            lambda nn, o, a: nn.RNNBase("X", 2, 3),
        ),
        r("'tanh' or 'relu', got 'x'", lambda nn, o, a: nn.RNN(2, 3, nonlinearity="x")),
        r(
            "RNNCell: expected nonlinearity 'tanh' or 'relu'",
            lambda nn, o, a: nn.RNNCell(2, 3, nonlinearity="x")(o(2)),
        ),
        r("expected hidden_size of at least 0", lambda nn, o, a: nn.GRUCell(2, -1)),
        r("input (T, B, 2) or (T, 2), got (5,)", lambda nn, o, a: nn.LSTM(2, 3)(o(5))),
        r("got (1, 5, 2, 2)", lambda nn, o, a: nn.LSTM(2, 3)(o(1, 5, 2, 2))),
        r(
            "input (B, T, 2) or (T, 2), got (5, 2, 4)",
            lambda nn, o, a: nn.LSTM(2, 3, batch_first=True)(o(5, 2, 4)),
        ),
        r("at least one step, got input (0, 2, 2)", lambda nn, o, a: nn.GRU(2, 3)(o(0, 2, 2))),
        r("at least one step, got input (0, 2)", lambda nn, o, a: nn.GRU(2, 3)(o(0, 2))),
        r("two arrays, (h, c)", lambda nn, o, a: nn.LSTM(2, 3)(o(5, 2, 2), o(1, 2, 3))),
        r(
            "hx (1, 2, 3) and (1, 2, 3), got (1, 3, 3) and (1, 2, 3)",
            lambda nn, o, a: nn.LSTM(2, 3)(o(5, 2, 2), (o(1, 3, 3), o(1, 2, 3))),
        ),
        r("expected hx (1, 2, 3), got (2, 3)", lambda nn, o, a: nn.GRU(2, 3)(o(5, 2, 2), o(2, 3))),
        r("expected hx (1, 3), got (1, 1, 3)", lambda nn, o, a: nn.GRU(2, 3)(o(5, 2), o(1, 1, 3))),
        r("one dtype", lambda nn, o, a: nn.GRU(2, 3)(half(o(5, 2, 2))), TypeError),
        r(
            "hx of the input's dtype float32, got float16",
            lambda nn, o, a: nn.GRU(2, 3)(o(5, 2, 2), half(o(1, 2, 3))),
            TypeError,
        ),
        r(
            "packed data (rows, 2), got (3, 1)",
            lambda nn, o, a: nn.GRU(2, 3)(nn.utils.rnn.pack_sequence([o(3, 1)])),
        ),
        r(
            "expected input (B, 2) or (2,), got (1, 2, 2)",
            lambda nn, o, a: nn.GRUCell(2, 3)(o(1, 2, 2)),
        ),
        r("expected input (B, 2) or (2,), got (1, 3)", lambda nn, o, a: nn.GRUCell(2, 3)(o(1, 3))),
        r("hx (1, 3), got (3,)", lambda nn, o, a: nn.GRUCell(2, 3)(o(1, 2), o(3)), ours=True),
        r("hx (1, 3), got (2, 3)", lambda nn, o, a: nn.GRUCell(2, 3)(o(1, 2), o(2, 3))),
        r(
            "(h, c), got tuple of 3",
            lambda nn, o, a: nn.LSTMCell(2, 3)(o(2), (o(3),) * 3),
            ours=True,
        ),
    ]


def half(array: Any) -> Any:
    """Return the array in float16."""
    return array.half() if hasattr(array, "half") else array.astype(np.float16)


def _packing_refused() -> list[Refused]:
    def r(text: str, run: Callable[[Any, Any], Any], **kwargs: Any) -> Refused:
        return Refused(text, lambda nn, o, a: run(nn.utils.rnn, o), **kwargs)

    x = (5, 2, 3)
    return [
        r("lengths that don't grow", lambda u, o: u.pack_padded_sequence(o(*x), [3, 5])),
        r("expected lengths in [1, 5]", lambda u, o: u.pack_padded_sequence(o(*x), [5, 0])),
        r("lengths in [1, 5]", lambda u, o: u.pack_padded_sequence(o(*x), [6, 2]), ours=True),
        r("expected 2 lengths, got (1,)", lambda u, o: u.pack_padded_sequence(o(*x), [5])),
        r(
            "integers of one axis",
            lambda u, o: u.pack_padded_sequence(o(*x), [5.0, 2.0]),
            ours=True,
        ),
        r("input (T, B, *) or (B, T, *)", lambda u, o: u.pack_padded_sequence(o(5), [5])),
        r("at least one array, got none", lambda u, o: u.pad_sequence([])),
        r("that differ only in length", lambda u, o: u.pad_sequence([o(2), o(3, 1)])),
        r("'left' or 'right', got 'x'", lambda u, o: u.pad_sequence([o(2)], padding_side="x")),
        r("enforce_sorted=False", lambda u, o: u.pack_sequence([o(2), o(3)])),
        r(
            "total_length of at least 2, the longest sequence, got 1",
            lambda u, o: u.pad_packed_sequence(u.pack_sequence([o(2)]), total_length=1),
        ),
        r("expected 2 lengths, got (3,)", lambda u, o: u.unpad_sequence(o(3, 2), [1, 2, 3])),
        r("expected batch_sizes=", lambda u, o: u.PackedSequence(o(3)), ours=True),
    ]


def _transformers_refused() -> list[Refused]:
    r, name = Refused, "TransformerEncoderLayer"
    layer = lambda nn, **k: nn.TransformerEncoderLayer(4, 2, 8, **k)
    both = lambda nn: nn.Transformer(4, 2, 1, 1, 8)
    bag: Any = lambda nn, o, *a, **k: nn.functional.embedding_bag(*a[:1], o(5, 2), *a[1:], **k)
    line: Any = lambda a: a([0, 1, 2])
    heads: Any = lambda nn, o, **k: nn.functional.multi_head_attention_forward(
        **{
            **dict.fromkeys(("query", "key", "value"), o(3, 2, 4)),
            **{"embed_dim_to_check": 4, "num_heads": 2, "in_proj_weight": o(12, 4)},
            **dict.fromkeys(("in_proj_bias", "bias_k", "bias_v", "out_proj_bias")),
            **{"add_zero_attn": False, "dropout_p": 0.0, "out_proj_weight": o(4, 4)},
            **k,
        }
    )
    one = lambda o: o(1, 1, 4)
    return [
        r(
            f"{name}: expected activation 'relu', 'gelu'",
            lambda nn, o, a: layer(nn, activation="x"),
        ),
        r("or a function, got 3", lambda nn, o, a: layer(nn, activation=3), ours=True),
        r("that num_heads=3 divides, got 4", lambda nn, o, a: nn.TransformerEncoderLayer(4, 3)),
        r("expected p in [0, 1], got 2.0", lambda nn, o, a: layer(nn, dropout=2.0)),
        r("query (..., 4)", lambda nn, o, a: layer(nn).eval()(o(3, 2, 5))),
        r("three inputs of 3 axes, or all of 2", lambda nn, o, a: layer(nn).eval()(o(4))),
        r(
            "attn_mask (3, 3) or (4, 3, 3), got (2, 2)",
            lambda nn, o, a: layer(nn).eval()(o(3, 2, 4), o(2, 2)),
        ),
        r("needs attn_mask=", lambda nn, o, a: layer(nn).eval()(o(3, 2, 4), is_causal=True)),
        r("got (3, 2, 4) and (3, 1, 4)", lambda nn, o, a: both(nn)(o(3, 2, 4), o(3, 1, 4))),
        r("src and tgt (..., 4)", lambda nn, o, a: both(nn)(o(3, 2, 4), o(3, 2, 5))),
        r("of 2 or 3 axes", lambda nn, o, a: both(nn)(o(3, 2, 4), o(3, 4))),
        r("expected query (..., 5)", lambda nn, o, a: heads(nn, o, embed_dim_to_check=5)),
        r("num_heads=3 divides, got 4", lambda nn, o, a: heads(nn, o, num_heads=3)),
        r("static_k (4, S, 2), got", lambda nn, o, a: heads(nn, o, static_k=o(3, 5, 2))),
        r("is_causal=True needs attn_mask=", lambda nn, o, a: heads(nn, o, is_causal=True)),
        r("bias_k and bias_v, or neither", lambda nn, o, a: heads(nn, o, bias_k=one(o))),
        r(
            "can't be added to static_k",
            lambda nn, o, a: heads(nn, o, bias_k=one(o), bias_v=one(o), static_k=o(4, 3, 2)),
        ),
        r(
            "expected q_, k_ and v_proj_weight, got None",
            lambda nn, o, a: heads(nn, o, use_separate_proj_weight=True),
        ),
        r("dropout: expected p in [0, 1]", lambda nn, o, a: heads(nn, o, dropout_p=2.0)),
        r("end at 3 at most, got [0, 5]", lambda nn, o, a: bag(nn, o, line(a), a([0, 5]))),
        r("start at 0", lambda nn, o, a: bag(nn, o, line(a), a([1, 2]))),
        r("don't fall", lambda nn, o, a: bag(nn, o, line(a), a([0, 2, 1])), ours=True),
        r("offsets for an input (n,)", lambda nn, o, a: bag(nn, o, line(a))),
        r("None for (B, n)", lambda nn, o, a: bag(nn, o, a([[0, 1]]), a([0]))),
        r("'sum', 'mean' or 'max'", lambda nn, o, a: bag(nn, o, a([[0, 1]]), mode="x")),
        r(
            "EmbeddingBag: expected mode",
            lambda nn, o, a: nn.EmbeddingBag(3, 2, mode="x"),
            ours=True,
        ),
        r(
            "no meaning with mode='max'",
            lambda nn, o, a: bag(nn, o, a([[0]]), mode="max", scale_grad_by_freq=True),
        ),
        r(
            "needs mode='sum', got 'mean'",
            lambda nn, o, a: bag(nn, o, a([[0]]), per_sample_weights=o(1, 1)),
        ),
        r(
            "per_sample_weights (1, 1), got (2,)",
            lambda nn, o, a: bag(nn, o, a([[0]]), mode="sum", per_sample_weights=o(2)),
        ),
        r(
            "one dtype",
            lambda nn, o, a: bag(nn, o, a([[0]]), mode="sum", per_sample_weights=half(o(1, 1))),
            TypeError,
        ),
        r("indices in [0, 4], got 7", lambda nn, o, a: bag(nn, o, a([[0, 7]]))),
        r("indices in [0, 4], got -1", lambda nn, o, a: bag(nn, o, a([[0, -1]]))),
        r("padding_idx in [-5, 4], got 5", lambda nn, o, a: bag(nn, o, a([[0]]), padding_idx=5)),
        r("padding_idx in [-3, 2]", lambda nn, o, a: nn.EmbeddingBag(3, 2, padding_idx=3)),
        r("input (B, n) or (n,)", lambda nn, o, a: bag(nn, o, a([[[0]]]))),
        r("integer dtype", lambda nn, o, a: bag(nn, o, o(2), a([0])), TypeError),
        r("expected offsets (B,), got (1, 1)", lambda nn, o, a: bag(nn, o, line(a), a([[0]]))),
        r(
            "weight (num_embeddings, dim)",
            lambda nn, o, a: nn.functional.embedding_bag(a([[0]]), o(3)),
        ),
    ]


def _heads() -> list[Case]:
    """Rows of ``multi_head_attention_forward``, beyond what the layer can do."""
    x, w = N(3, 2, 4), N(12, 4)
    start = (x, N(5, 2, 4), N(5, 2, 4), 4, 2)
    end = (False, 0.0, N(4, 4), N(4))
    name = "multi_head_attention_forward"
    return [
        case(name, *start, w, None, N(1, 1, 4), N(1, 1, 4), True, *end[1:], _note="added keys"),
        case(
            name,
            *start,
            w,
            N(12),
            None,
            None,
            *end,
            static_k=N(4, 6, 2),
            static_v=N(4, 6, 2),
            average_attn_weights=False,
            _note="static keys and values",
        ),
        case(
            name,
            *(x, N(5, 2, 3), N(5, 2, 2), 4, 2),
            None,
            N(12),
            None,
            None,
            *end,
            use_separate_proj_weight=True,
            q_proj_weight=N(4, 4),
            k_proj_weight=N(4, 3),
            v_proj_weight=N(4, 2),
            _note="projections of each",
        ),
        case(
            name,
            *start,
            w,
            N(12),
            None,
            None,
            False,
            0.5,
            N(4, 4),
            None,
            training=False,
            key_padding_mask=A([[0, 0, 1, 0, 0], [0, 0, 0, 0, 1]], bool),
            attn_mask=N(3, 5),
            _note="evaluation, masks",
        ),
    ]


RECURRENT, TRANSFORMER, BAGS = _recurrent(), _transformer(), _bags()
# What is recorded, and computed as one compiled program for each list.
GOLDEN = {
    "recurrent": [r for r in RECURRENT if "packed, both" in r.text or "projected" in r.text],
    "one layer": [r for r in RECURRENT if "of a state" in r.text and "unbatched" not in r.text],
    "transformer": [r for r in TRANSFORMER if "padded" in r.text or r.text.endswith("er")],
    "bags": [r for r in BAGS if r.grad],
}
HEADS = _heads()
CELLS_REFUSED, PACKING_REFUSED = _cells_refused(), _packing_refused()
TRANSFORMERS_REFUSED = _transformers_refused()

__all__ = [
    "BAGS",
    "CELLS_REFUSED",
    "GOLDEN",
    "HEADS",
    "PACKING_REFUSED",
    "RECURRENT",
    "TRANSFORMER",
    "TRANSFORMERS_REFUSED",
    "Refused",
    "Row",
    "cotangent",
    "flat",
    "undrawn",
]
