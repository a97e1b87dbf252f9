"""Which layers are built and called with what: one table for goldens, ``jit`` and PyTorch.

``LAYERS`` rows must build in both frameworks and agree on everything: text, names, numbers,
gradients, buffers. ``REFUSED`` rows must raise in both.
"""

import zlib
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxsaw as js
from jaxsaw import nn
from tests.nn.functional.cases import A, B, Draw, I, N, P, S, U, cotangent

DRAWS_TO_START = (
    "Linear",
    "Bilinear",
    "Embedding",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "AdaptiveLogSoftmaxWithLoss",
    "MultiheadAttention",
    "LinearCrossEntropyLoss",
)


@dataclass(frozen=True)
class Layer:
    """A layer and the inputs of one call."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    inputs: tuple[Any, ...] = ()
    call: dict[str, Any] = field(default_factory=dict)
    grad: bool = True  # whether to compare gradients
    draws: bool = False  # whether it draws in training
    tolerance: float = 2e-5
    note: str = ""

    def __str__(self) -> str:
        parts = [_text(a) for a in self.args]
        parts += [f"{k}={_text(v)}" for k, v in self.kwargs.items()]
        shapes = ",".join(_text(a) for a in self.inputs)
        called = "".join(f" {k}={_text(v)}" for k, v in self.call.items())
        return f"{self.name}({','.join(parts)})({shapes}{called}){self.note}"

    def drawn(self, what: str, values: Any) -> Any:
        """Return ``values``, a tuple or dict, with their arrays drawn."""
        r = np.random.RandomState(zlib.crc32(f"{self}{what}".encode()))
        draw = lambda v: v.draw(r) if isinstance(v, Draw) else v
        if isinstance(values, dict):
            return {k: draw(v) for k, v in values.items()}
        return [draw(v) for v in values]

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the constructor's arguments."""
        return self.drawn("args", self.args), self.drawn("kwargs", self.kwargs)

    def call_arguments(self, step: int = 0) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call, other ones for each step."""
        return self.drawn(f"inputs{step}", self.inputs), self.drawn("call", self.call)

    def build(self) -> nn.Module:
        """Return jaxsaw's layer."""
        args, kwargs = self.arguments()
        if self.name in DRAWS_TO_START:
            kwargs["rngs"] = js.Rngs(0)
        cast = lambda v: jnp.asarray(v) if isinstance(v, np.ndarray) else v
        cls = getattr(nn, self.name)
        return cls(*map(cast, args), **{k: cast(v) for k, v in kwargs.items()})

    def state(self, like: dict[str, Any]) -> dict[str, np.ndarray]:
        """Return other values for a state."""
        state = {}
        for name, old in like.items():
            r = np.random.RandomState(zlib.crc32(f"{self}{name}".encode()))
            shape = tuple(old.shape)
            if name.endswith("num_batches_tracked"):
                state[name] = np.array(r.randint(1, 9), np.int64)
            elif name.endswith("running_var") or self.name.endswith("Loss"):
                state[name] = r.uniform(0.5, 1.5, shape).astype(np.float32)
            else:
                state[name] = (r.standard_normal(shape) * 0.5).astype(np.float32)
        return state


def _text(value: Any) -> str:
    if isinstance(value, Draw):
        array = value.draw(np.random.RandomState(0))
        return array.dtype.kind + "x".join(map(str, array.shape))
    return str(value).replace(" ", "")


@dataclass(frozen=True)
class Refused:
    """A constructor call that raises, with what the text says."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    error: type[Exception]
    text: str
    ours: bool = False  # PyTorch accepts this

    def __str__(self) -> str:
        return f"{self.name}{self.args}{self.kwargs}".replace(" ", "")

    def build(self) -> nn.Module:
        kwargs = dict(self.kwargs)
        if self.name in DRAWS_TO_START:
            kwargs["rngs"] = js.Rngs(0)
        return getattr(nn, self.name)(*self.args, **kwargs)


def layer(name: str, *args: Any, to: tuple[Any, ...], call: Any = None, **kwargs: Any) -> Layer:
    settings = {k[1:]: kwargs.pop(k) for k in list(kwargs) if k in ("_grad", "_draws", "_note")}
    if "_tolerance" in kwargs:
        settings["tolerance"] = kwargs.pop("_tolerance")
    return Layer(name, args, kwargs, to, call or {}, **settings)


def _linear() -> list[Layer]:
    return [
        layer("Identity", to=(N(2, 3),)),
        layer("Identity", 54, unused=0.1, to=(N(2, 3),)),
        layer("Linear", 3, 4, to=(N(2, 3),)),
        layer("Linear", 3, 4, to=(N(3),)),
        layer("Linear", 3, 4, bias=False, to=(N(2, 5, 3),)),
        layer("Linear", 1, 1, to=(N(2, 1),)),
        layer("Bilinear", 3, 4, 2, to=(N(5, 3), N(5, 4))),
        layer("Bilinear", 3, 4, 2, bias=False, to=(N(2, 5, 3), N(2, 5, 4))),
        layer("Embedding", 7, 3, to=(I(7, 2, 4),)),
        layer("Embedding", 7, 3, padding_idx=2, to=(I(7, 9),)),
        layer("Embedding", 7, 3, padding_idx=-1, to=(I(7, 9),)),
        layer("Embedding", 7, 3, scale_grad_by_freq=True, to=(I(4, 9),)),
        layer("Embedding", 7, 3, max_norm=0.7, to=(I(7, 4),), _grad=False),
        layer("Embedding", 7, 3, max_norm=0.7, norm_type=1.0, to=(I(7, 4),), _grad=False),
    ]


def _conv() -> list[Layer]:
    rows = []
    for n, size in ((1, (9,)), (2, (7, 6)), (3, (5, 4, 6))):
        name, x = f"Conv{n}d", N(2, 4, *size)
        rows += [
            layer(name, 4, 6, 3, to=(x,)),
            layer(name, 4, 6, 3, to=(N(4, *size),)),
            layer(name, 4, 6, 3, 2, 1, bias=False, to=(x,)),
            layer(name, 4, 6, 2, padding="same", to=(x,)),
            layer(name, 4, 6, 2, padding="valid", to=(x,)),
            layer(name, 4, 6, 3, groups=2, to=(x,)),
        ]
        if n < 3:
            rows += [
                layer(name, 4, 4, 3, groups=4, dilation=2, to=(x,)),
                layer(name, 4, 6, 2, padding="same", padding_mode="circular", to=(x,)),
            ]
        for mode in ("reflect", "replicate", "circular"):
            rows.append(layer(name, 4, 2, 3, padding=1, padding_mode=mode, to=(x,)))
    rows += [
        layer("Conv2d", 2, 3, (3, 2), (2, 1), (1, 0), (1, 2), to=(N(2, 2, 7, 6),)),
        layer("Conv2d", 2, 3, (3, 2), padding=(2, 1), padding_mode="reflect", to=(N(2, 2, 7, 6),)),
        layer("Conv1d", 2, 3, (3,), stride=(2,), to=(N(2, 2, 7),)),
    ]
    return rows


def _norm() -> list[Layer]:
    rows = []
    for n, sizes in ((1, ((5, 3), (4, 3, 6))), (2, ((2, 3, 4, 2),)), (3, ((2, 3, 2, 3, 2),))):
        for size in sizes:
            name, x = f"BatchNorm{n}d", N(*size, scale=2, shift=1)
            rows += [
                layer(name, 3, to=(x,)),
                layer(name, 3, momentum=None, to=(x,)),
            ]
            if len(size) != 3:
                continue
            rows += [
                layer(name, 3, eps=0.1, momentum=0.3, to=(x,)),
                layer(name, 3, affine=False, to=(x,)),
                layer(name, 3, track_running_stats=False, to=(x,)),
                layer(name, 3, affine=False, track_running_stats=False, to=(x,)),
                layer(name, 3, bias=False, to=(x,)),
                layer(name, 3, momentum=0.0, to=(x,)),
                layer(name, 3, momentum=1.0, to=(x,)),
            ]
    rows += [
        layer("LayerNorm", 4, to=(N(2, 3, 4),)),
        layer("LayerNorm", (3, 4), to=(N(2, 3, 4),)),
        layer("LayerNorm", [3, 4], eps=0.1, to=(N(2, 3, 4),)),
        layer("LayerNorm", 4, elementwise_affine=False, to=(N(2, 4),)),
        layer("LayerNorm", 4, bias=False, to=(N(2, 4),)),
        layer("GroupNorm", 2, 6, to=(N(2, 6, 5),)),
        layer("GroupNorm", 6, 6, to=(N(2, 6, 2, 3),)),
        layer("GroupNorm", 1, 6, eps=0.1, to=(N(2, 6),)),
        layer("GroupNorm", 3, 6, affine=False, to=(N(2, 6, 5),)),
        layer("GroupNorm", 3, 6, bias=False, to=(N(2, 6, 5),)),
        layer("RMSNorm", 4, to=(N(2, 3, 4),)),
        layer("RMSNorm", (3, 4), eps=0.1, to=(N(2, 3, 4),)),
        layer("RMSNorm", [4], elementwise_affine=False, to=(N(2, 4),)),
    ]
    return rows


def _dropout() -> list[Layer]:
    x = N(2, 3, 4, 5)
    rows = [
        layer(name, *args, to=(N(2, 3, 4) if name == "Dropout1d" else x,), _draws=args != (0.0,))
        for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d")
        for args in ((), (0.2,), (0.0,), (0.3, True))
    ]
    return [
        *rows,
        layer("AlphaDropout", 0.2, to=(x,), _draws=True),
        layer("FeatureAlphaDropout", 0.2, to=(x,), _draws=True),
        layer("Dropout", 1.0, to=(x,)),
    ]


def _pooling() -> list[Layer]:
    x1, x2 = N(2, 3, 11), N(2, 3, 8, 7)
    return [
        layer("MaxPool1d", 3, to=(x1,)),
        layer("MaxPool1d", 3, 2, 1, to=(N(3, 11),)),
        layer("MaxPool1d", 3, stride=2, dilation=2, ceil_mode=True, to=(x1,)),
        layer("MaxPool1d", 2, return_indices=True, to=(x1,)),
        layer("MaxPool2d", 2, to=(x2,)),
        layer("MaxPool2d", (3, 2), (2, 1), (1, 0), to=(N(3, 8, 7),)),
        layer("MaxPool2d", 3, 2, ceil_mode=True, return_indices=True, to=(x2,)),
        layer("MaxPool2d", 2, 1, dilation=2, to=(x2,)),
        layer("AvgPool1d", 3, to=(x1,)),
        layer("AvgPool1d", 3, 2, 1, to=(N(3, 11),)),
        layer("AvgPool1d", 3, 2, 1, count_include_pad=False, ceil_mode=True, to=(x1,)),
        layer("AvgPool2d", 2, to=(x2,)),
        layer("AvgPool2d", (3, 2), (2, 1), (1, 0), count_include_pad=False, to=(x2,)),
        layer("AvgPool2d", 3, 2, ceil_mode=True, divisor_override=4, to=(N(3, 8, 7),)),
        layer("AdaptiveAvgPool1d", 4, to=(x1,)),
        layer("AdaptiveAvgPool2d", 1, to=(x2,)),
        layer("AdaptiveAvgPool2d", (3, None), to=(N(3, 8, 7),)),
        layer("AdaptiveMaxPool1d", 4, to=(x1,)),
        layer("AdaptiveMaxPool1d", 4, return_indices=True, to=(x1,)),
        layer("AdaptiveMaxPool2d", (3, None), to=(x2,)),
        layer("AdaptiveMaxPool2d", 2, True, to=(x2,)),
    ]


def _shape() -> list[Layer]:
    x = N(2, 3, 4, 5)
    return [
        layer("Flatten", to=(x,)),
        layer("Flatten", 0, to=(x,)),
        layer("Flatten", 1, 2, to=(x,)),
        layer("Flatten", -2, -1, to=(x,)),
        layer("Flatten", 0, to=(A(0.5),)),
        layer("Unflatten", 1, (3, 1), to=(x,)),
        layer("Unflatten", -1, (5, -1), to=(x,)),
        layer("Unflatten", 2, [2, 2], to=(x,)),
    ]


def _activation() -> list[Layer]:
    x = N(2, 3, 4, scale=3)
    rows = []
    for name in ("ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardsigmoid", "Hardswish"):
        rows += [layer(name, to=(x,)), layer(name, inplace=True, to=(x,))]
    for name in ("Sigmoid", "LogSigmoid", "Tanh", "Tanhshrink", "Softsign", "GLU"):
        rows.append(layer(name, to=(N(2, 4, scale=3),)))
    for name in ("LeakyReLU", "ELU", "CELU", "Softplus", "Softshrink", "Hardshrink"):
        rows += [layer(name, to=(x,)), layer(name, 0.3, to=(x,))]
    for name in ("Softmax", "LogSoftmax", "Softmin"):
        rows += [layer(name, dim=dim, to=(x,)) for dim in (0, -1)]
    return [
        *rows,
        layer("LeakyReLU", 0.2, True, to=(x,)),
        layer("ELU", 0.2, True, to=(x,)),
        layer("CELU", 0.2, True, to=(x,)),
        layer("GELU", to=(x,)),
        layer("GELU", "tanh", to=(x,)),
        layer("Softplus", 2.0, 1.0, to=(x,)),
        layer("Hardtanh", to=(x,)),
        layer("Hardtanh", -0.5, 2.0, True, to=(x,)),
        layer("Threshold", 0.5, -1.0, to=(x,)),
        layer("Threshold", 0.5, -1.0, True, to=(x,)),
        layer("Softmax2d", to=(N(2, 3, 2, 2),)),
        layer("GLU", 1, to=(N(2, 4, 3),)),
        layer("RReLU", to=(x,), _draws=True),
        layer("RReLU", 0.3, 0.3, True, to=(x,)),
        layer("PReLU", to=(x,)),
        layer("PReLU", 3, init=0.1, to=(x,)),
    ]


def _loss() -> list[Layer]:
    rows = []
    pairs = {
        "MSELoss": (N(3, 4), N(3, 4)),
        "L1Loss": (N(3, 4), N(3, 4)),
        "SmoothL1Loss": (N(3, 4), N(3, 4)),
        "HuberLoss": (N(3, 4), N(3, 4)),
        "CrossEntropyLoss": (N(5, 4), I(4, 5)),
        "NLLLoss": (P(5, 4, log=True), I(4, 5)),
        "BCELoss": (U(3, 4), U(3, 4)),
        "BCEWithLogitsLoss": (N(3, 4), U(3, 4)),
        "KLDivLoss": (P(3, 4, log=True), P(3, 4)),
        "PoissonNLLLoss": (N(3, 4), U(3, 4)),
        "GaussianNLLLoss": (N(3, 4), N(3, 4), U(3, 4)),
        "MultiMarginLoss": (N(5, 4), I(4, 5)),
        "MultiLabelMarginLoss": (N(3, 4), A([[0, 2, -1, 1], [3, 1, 0, 2], [-1] * 4], int)),
        "MultiLabelSoftMarginLoss": (N(3, 4), S(3, 4)),
        "HingeEmbeddingLoss": (N(3, 4), S(3, 4)),
        "SoftMarginLoss": (N(3, 4), A([1, -1, -1, 1], np.int32)),
        "CosineEmbeddingLoss": (N(3, 4), N(3, 4), S(3)),
        "MarginRankingLoss": (N(3), N(3), S(3)),
        "TripletMarginLoss": (N(3, 4), N(3, 4), N(3, 4)),
        "TripletMarginWithDistanceLoss": (N(3, 4), N(3, 4), N(3, 4)),
        "CTCLoss": (
            P(5, 2, 4, dim=2, log=True),
            A([[1, 2], [1, 0]], int),
            A([5, 4], int),
            A([2, 1], int),
        ),
    }
    for name, inputs in pairs.items():
        rows += [layer(name, reduction=r, to=inputs) for r in ("mean", "sum", "none")]
    class_pairs = {name: pairs[name] for name in ("CrossEntropyLoss", "NLLLoss")}
    for name, inputs in class_pairs.items():
        rows += [
            layer(name, U(4), to=inputs),
            layer(name, weight=U(4), ignore_index=1, reduction="sum", to=inputs),
        ]
    return [
        *rows,
        layer("SmoothL1Loss", beta=0.3, to=pairs["MSELoss"]),
        layer("HuberLoss", delta=0.3, to=pairs["MSELoss"]),
        layer("CrossEntropyLoss", label_smoothing=0.1, to=(N(2, 4, 3), I(4, 2, 3))),
        layer("CrossEntropyLoss", to=(N(5, 4), P(5, 4))),
        layer("BCELoss", U(4), to=pairs["BCELoss"]),
        layer("BCEWithLogitsLoss", U(4), pos_weight=U(4), to=pairs["BCEWithLogitsLoss"]),
        layer("KLDivLoss", reduction="batchmean", to=pairs["KLDivLoss"]),
        layer("KLDivLoss", log_target=True, to=(P(3, 4, log=True), P(3, 4, log=True))),
        layer("PoissonNLLLoss", False, True, eps=0.1, to=(U(3, 4), U(3, 4))),
        layer("GaussianNLLLoss", full=True, eps=0.3, to=pairs["GaussianNLLLoss"]),
        layer("MultiMarginLoss", 2, 0.5, U(4), to=pairs["MultiMarginLoss"]),
        layer("MultiLabelSoftMarginLoss", U(4), to=pairs["MultiLabelSoftMarginLoss"]),
        layer("HingeEmbeddingLoss", 0.3, to=pairs["HingeEmbeddingLoss"]),
        layer("CosineEmbeddingLoss", 0.3, to=pairs["CosineEmbeddingLoss"]),
        layer("MarginRankingLoss", 0.3, to=pairs["MarginRankingLoss"]),
        layer("TripletMarginLoss", 0.3, 1.0, 0.1, True, to=pairs["TripletMarginLoss"]),
        layer(
            "TripletMarginWithDistanceLoss", margin=0.3, swap=True, to=pairs["TripletMarginLoss"]
        ),
        layer("CTCLoss", 3, "sum", True, to=pairs["CTCLoss"]),
        layer("LinearCrossEntropyLoss", 4, 5, to=(N(3, 4), I(5, 3))),
        layer(
            "LinearCrossEntropyLoss",
            4,
            5,
            out_features=(2,),
            bias=True,
            weight=U(5),
            ignore_index=1,
            label_smoothing=0.1,
            reduction="none",
            to=(N(3, 4), I(5, 3, 2)),
        ),
        layer(
            "AdaptiveLogSoftmaxWithLoss",
            8,
            9,
            [2, 5],
            2.0,
            to=(N(6, 8), A([0, 1, 2, 4, 5, 8], int)),
        ),
        layer("AdaptiveLogSoftmaxWithLoss", 8, 9, [4], head_bias=True, to=(N(8), A(5, int))),
        layer("CosineSimilarity", to=(N(3, 4), N(3, 4))),
        layer("CosineSimilarity", 0, 0.1, to=(N(3, 4), N(3, 4))),
        layer("PairwiseDistance", to=(N(3, 4), N(3, 4))),
        layer("PairwiseDistance", 1.0, 0.1, True, to=(N(3, 4), N(3, 4))),
    ]


def _attention() -> list[Layer]:
    name = "MultiheadAttention"
    q, k, v = N(3, 2, 8), N(4, 2, 8), N(4, 2, 8)  # (L, N, E) and (S, N, E)
    causal = A(np.triu(np.ones((3, 4), bool), 1), bool)
    padding = A([[0, 0, 1, 0], [0, 0, 0, 1]], bool)
    floats = N(3, 4)
    each = N(4, 3, 4)  # (N * heads, L, S)
    rows = [
        layer(name, 8, 2, to=(q, k, v)),
        layer(name, 8, 2, bias=False, to=(q, k, v)),
        layer(name, 8, 2, batch_first=True, to=(N(2, 3, 8), N(2, 4, 8), N(2, 4, 8))),
        layer(name, 8, 2, to=(N(3, 8), N(4, 8), N(4, 8))),
        layer(name, 8, 2, kdim=5, vdim=6, to=(q, N(4, 2, 5), N(4, 2, 6))),
        layer(name, 8, 2, kdim=5, bias=False, to=(q, N(4, 2, 5), N(4, 2, 8))),
        layer(name, 8, 2, add_bias_kv=True, to=(q, k, v)),
        layer(name, 8, 2, add_zero_attn=True, to=(q, k, v)),
        layer(name, 8, 1, to=(q, k, v), call={"average_attn_weights": False}),
        layer(name, 8, 4, to=(q, k, v), call={"average_attn_weights": False}),
    ]
    for need in (True, False):
        masks = [
            {"attn_mask": causal},
            {"attn_mask": floats},
            {"attn_mask": each},
            {"key_padding_mask": padding},
            {"key_padding_mask": padding, "attn_mask": causal},
            {"key_padding_mask": N(2, 4), "attn_mask": floats},
        ]
        for i, mask in enumerate(masks):
            call = {**mask, "need_weights": need}
            rows.append(layer(name, 8, 2, to=(q, k, v), call=call, _note=f"#{i}"))
        call = {"need_weights": need, "key_padding_mask": padding, "attn_mask": causal}
        rows += [
            layer(name, 8, 2, to=(q, k, v), call={"need_weights": need}),
            layer(name, 8, 2, add_bias_kv=True, add_zero_attn=True, to=(q, k, v), call=call),
            layer(
                name,
                8,
                2,
                batch_first=True,
                to=(N(2, 3, 8), N(2, 3, 8), N(2, 3, 8)),
                call={
                    "need_weights": need,
                    "is_causal": True,
                    "attn_mask": A(np.triu(np.ones((3, 3), bool), 1), bool),
                },
            ),
            layer(
                name,
                8,
                2,
                to=(N(3, 8), N(4, 8), N(4, 8)),
                call={"need_weights": need, "key_padding_mask": A([0, 0, 1, 0], bool)},
            ),
        ]
    rows.append(layer(name, 8, 2, dropout=0.3, to=(q, k, v), _draws=True))
    return rows


LAYERS = [
    *_linear(),
    *_conv(),
    *_norm(),
    *_dropout(),
    *_pooling(),
    *_shape(),
    *_activation(),
    *_loss(),
    *_attention(),
]


def refused(name: str, text: str, *args: Any, error=ValueError, ours=False, **kwargs: Any):
    return Refused(name, args, kwargs, error, text, ours)


REFUSED = [
    refused("Linear", "Linear: expected sizes of at least 0, got in_features=-1", -1, 2),
    refused("Bilinear", "Bilinear: expected in1_features of at least 1, got 0", 0, 2, 3),
    refused("Embedding", "expected padding_idx in [-3, 2], got 3", 3, 2, 3),
    refused("Embedding", "expected padding_idx in [-3, 2], got -4", 3, 2, padding_idx=-4),
    refused("Conv1d", "Conv1d: expected groups of at least 1, got 0", 2, 2, 3, groups=0),
    refused("Conv1d", "expected in_channels that groups=2 divides, got 3", 3, 2, 3, groups=2),
    refused("Conv2d", "expected out_channels that groups=2 divides, got 3", 2, 3, 3, groups=2),
    refused("Conv2d", "'same' or 'valid', got 'full'", 2, 2, 3, padding="full"),
    refused("Conv2d", "padding='same' needs stride 1, got (2, 2)", 2, 2, 3, 2, "same"),
    refused("Conv3d", "got 'mirror'", 2, 2, 3, padding_mode="mirror"),
    refused("Conv2d", "kernel_size to be an int or 2 ints", 2, 2, (3, 3, 3), ours=True),
    refused("GroupNorm", "num_channels=4 and num_groups=3", 3, 4),
    refused("Dropout", "Dropout: expected p in [0, 1], got 1.5", 1.5),
    refused("Dropout2d", "Dropout2d: expected p in [0, 1], got -0.1", -0.1),
    refused("AlphaDropout", "AlphaDropout: expected p in [0, 1]", 2),
    refused("Hardtanh", "expected max_val above min_val, got 0 and 1", 1, 0),
    refused("Unflatten", "expected dim to be an int", "1", (2, 3), error=TypeError, ours=True),
    refused("Unflatten", "of integers, got (2.5, 2)", 1, (2.5, 2), error=TypeError),
    refused("Unflatten", "of integers, got 3", 1, 3, error=TypeError),
    refused("HuberLoss", "expected delta to be a number, got '1'", delta="1", error=TypeError),
    refused("MSELoss", "aren't supported; use reduction=", size_average=True, ours=True),
    refused("CrossEntropyLoss", "aren't supported; use reduction=", reduce=False, ours=True),
    refused("MultiMarginLoss", "expected p to be 1 or 2, got 3", 3),
    refused("TripletMarginLoss", "TripletMarginLoss: expected margin above 0, got 0.0", 0.0),
    refused("TripletMarginWithDistanceLoss", "expected margin above 0, got -1", margin=-1),
    refused("AdaptiveLogSoftmaxWithLoss", "from 1 to n_classes - 1 = 8, got []", 8, 9, []),
    refused("AdaptiveLogSoftmaxWithLoss", "ascending cutoffs", 8, 9, [3, 3]),
    refused("AdaptiveLogSoftmaxWithLoss", "ascending cutoffs", 8, 9, [2, 9]),
    refused("LinearCrossEntropyLoss", "in [0, 1], got 1.5", 3, 4, label_smoothing=1.5),
    refused("MultiheadAttention", "embed_dim and num_heads of at least 1, got 0 and 2", 0, 2),
    refused("MultiheadAttention", "that num_heads=3 divides, got 8", 8, 3),
]

__all__ = ["B", "LAYERS", "REFUSED", "Layer", "Refused", "cotangent"]
