"""Layers for sequences, and what they are called with: one table for goldens and for PyTorch.

A row is built and called by the same code in both frameworks, which gives the outputs, flat.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.nn.functional.cases import A, B, Draw, I, N, cotangent


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
    """Return a row of a layer by its name; what isn't a field of ``Row`` goes to its constructor."""
    fields = {k: settings.pop(k) for k in ("call", "lengths", "grad") if k in settings}
    make = lambda nn, **k: getattr(nn, name)(*args, **settings, **k)
    return Row(f"{name} {text}", make, to, **fields)


def _recurrent() -> list[Row]:
    x, lengths = N(5, 3, 3), (3, 5, 2)
    rows = []
    for name in ("RNN", "GRU", "LSTM"):
        state = lambda *shape, two=name == "LSTM": (N(*shape), N(*shape)) if two else N(*shape)
        rows += [
            row("plain", name, 3, 4, to=(x,)),
            row("of a state", name, 3, 4, to=(x, state(1, 3, 4))),
            row("without bias, batch first", name, 3, 4, bias=False, batch_first=True, to=(x,)),
            row("unbatched", name, 3, 4, batch_first=True, to=(N(5, 3),)),
            row(
                "unbatched, of a state",
                name,
                3,
                4,
                num_layers=2,
                bidirectional=True,
                to=(N(5, 3), state(4, 4)),
            ),
            row(
                "of three layers, both ways",
                name,
                3,
                4,
                num_layers=3,
                bidirectional=True,
                to=(x, state(6, 3, 4)),
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
                to=(N(3, 5, 3), state(4, 3, 4)),
            ),
            row("of one step", name, 3, 4, to=(N(1, 1, 3),)),
        ]
    rows += [
        row("with relu", "RNN", 3, 4, 2, "relu", to=(x,)),
        row("with relu, packed", "RNN", 3, 4, nonlinearity="relu", lengths=lengths, to=(x,)),
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
        row("without a batch", "LSTM", 3, 4, to=(N(5, 0, 3),), grad=False),
        row("of equal lengths", "GRU", 3, 4, lengths=(5, 5, 5), to=(x,)),
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
PADDING = A([[0, 0, 0, 1], [0, 0, 1, 1]], bool)


def _transformer() -> list[Row]:
    name, x = "TransformerEncoderLayer", N(4, 2, 4)
    encoder: Any = lambda nn, n, norm=None, **k: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 6, 0.0, **k), n, norm, enable_nested_tensor=False
    )
    decoder: Any = lambda nn, n, norm=None, **k: nn.TransformerDecoder(
        nn.TransformerDecoderLayer(4, 2, 6, 0.0, **k), n, norm
    )
    rows = [
        row("plain", name, 4, 2, 6, 0.0, to=(x,)),
        row("gelu, norm first", name, 4, 2, 6, 0.0, "gelu", 0.1, norm_first=True, to=(x,)),
        row("without bias", name, 4, 2, 6, 0.0, batch_first=True, bias=False, to=(N(2, 4, 4),)),
        row("unbatched", name, 4, 2, 6, 0.0, to=(N(4, 4),)),
        row("causal", name, 4, 2, 6, 0.0, to=(x,), call={"src_mask": CAUSAL, "is_causal": True}),
        row("masked", name, 4, 2, 6, 0.0, to=(x,), call={"src_mask": N(4, 4)}),
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
        Row("TransformerEncoder without norm", lambda nn, **k: encoder(nn, 1, **k), (N(4, 4),)),
    ]
    name, memory = "TransformerDecoderLayer", N(3, 2, 4)
    masks = {
        "tgt_mask": CAUSAL,
        "memory_mask": B(4, 3),
        "tgt_key_padding_mask": PADDING,
        "memory_key_padding_mask": A([[0, 0, 0], [0, 0, 0]], bool),
    }
    rows += [
        row("plain", name, 4, 2, 6, 0.0, to=(x, memory)),
        row("gelu, norm first", name, 4, 2, 6, 0.0, "gelu", norm_first=True, to=(x, memory)),
        row("unbatched, no bias", name, 4, 2, 6, 0.0, bias=False, to=(N(4, 4), N(3, 4))),
        row(
            "masked",
            name,
            4,
            2,
            6,
            0.0,
            to=(x, memory),
            call={**masks, "memory_mask": N(4, 3), "tgt_is_causal": True},
        ),
        row(
            "batch first",
            name,
            4,
            2,
            6,
            0.0,
            batch_first=True,
            to=(N(2, 4, 4), N(2, 3, 4)),
            call={"memory_key_padding_mask": A([[0, 0, 1], [0, 1, 0]], bool)},
        ),
        Row(
            "TransformerDecoder",
            lambda nn, **k: decoder(nn, 2, nn.LayerNorm(4), **k),
            (x, memory),
            {"tgt_mask": CAUSAL, "tgt_is_causal": True},
        ),
        row("plain", "Transformer", 4, 2, 1, 2, 6, 0.0, to=(memory, x)),
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
            to=(N(2, 4, 4), N(2, 4, 4)),
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
    line, starts = A([1, 2, 4, 4, 3, 2, 4, 1], np.int32), A([0, 2, 2, 5], np.int32)
    ends = A([0, 2, 2, 5, 7], np.int32)
    rows = []
    for mode in ("sum", "mean", "max"):
        rows += [
            row(f"{mode}", name, 5, 3, mode=mode, to=(many,)),
            row(f"{mode}, offsets", name, 5, 3, mode=mode, to=(line, starts)),
            row(f"{mode}, padding", name, 5, 3, mode=mode, padding_idx=-1, to=(line, starts)),
            row(f"{mode}, padding in rows", name, 5, 3, mode=mode, padding_idx=2, to=(many,)),
            row(
                f"{mode}, ends", name, 5, 3, mode=mode, include_last_offset=True, to=(line, ends)
            ),
            row(f"{mode}, long rows", name, 5, 3, 0.5, 1.0, mode=mode, to=(many,), grad=False),
        ]
    for mode in ("sum", "mean"):
        rows.append(
            row(f"{mode}, by frequency", name, 5, 3, None, 2.0, True, mode, to=(line, starts))
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


RECURRENT, TRANSFORMER, BAGS = _recurrent(), _transformer(), _bags()

__all__ = ["BAGS", "RECURRENT", "TRANSFORMER", "Row", "cotangent", "flat"]
