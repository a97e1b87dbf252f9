"""What is called, with what: one table for the golden numbers, for ``jit`` and for PyTorch.

``Case`` rows must work and give PyTorch's numbers; ``Refusal`` rows must raise, in PyTorch too
unless they say ``ours``. Arrays are written as shapes, and drawn from a generator that is seeded
by the row's name and whose stream NumPy has frozen.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

inf = float("inf")


@dataclass(frozen=True)
class Draw:
    """An array that is drawn when the row is used."""

    draw: Callable[[np.random.RandomState], np.ndarray]


def N(*shape: int, scale: float = 1.0, shift: float = 0.0) -> Draw:
    """Return normal floats."""
    return Draw(lambda r: (r.standard_normal(shape) * scale + shift).astype(np.float32))


def U(*shape: int) -> Draw:
    """Return probabilities, away from 0 and 1."""
    return Draw(lambda r: r.uniform(0.05, 0.95, shape).astype(np.float32))


def P(*shape: int, dim: int = 1, log: bool = False) -> Draw:
    """Return probabilities that add up to 1, or their logarithms."""

    def draw(r: np.random.RandomState) -> np.ndarray:
        x = np.exp(r.standard_normal(shape))
        x = x / x.sum(dim, keepdims=True)
        return (np.log(x) if log else x).astype(np.float32)

    return Draw(draw)


def I(high: int, *shape: int) -> Draw:  # noqa: E743
    """Return integers in [0, high)."""
    return Draw(lambda r: r.randint(0, high, shape).astype(np.int32))


def B(*shape: int) -> Draw:
    """Return booleans, about half of them True."""
    return Draw(lambda r: r.uniform(size=shape) < 0.5)


def S(*shape: int) -> Draw:
    """Return signs, as floats."""
    return Draw(lambda r: np.where(r.uniform(size=shape) < 0.5, -1, 1).astype(np.float32))


def A(values: Any, dtype: Any = np.float32) -> Draw:
    """Return these values."""
    return Draw(lambda r: np.array(values, dtype))


# Arguments that PyTorch has no gradient for.
FIXED = {
    "batch_norm": "12",
    "cross_entropy": ("2", "weight"),
    "nll_loss": "2",
    "binary_cross_entropy": "2",
    "binary_cross_entropy_with_logits": ("2", "pos_weight"),
    "soft_margin_loss": "1",
    "multi_margin_loss": ("4", "weight"),
    "linear_cross_entropy": "weight",
    "instance_norm": "12",
    "fractional_max_pool2d": ("_random_samples",),
    "fractional_max_pool3d": ("_random_samples",),
}


@dataclass(frozen=True)
class Case:
    """A call that works."""

    function: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    grad: bool = True  # whether to compare gradients
    narrow: bool = True  # whether to compare in bfloat16 too
    note: str = ""

    def __str__(self) -> str:
        parts = [self.note] if self.note else [_text(a) for a in self.args]
        parts += [f"{k}={_text(v)}" for k, v in self.kwargs.items() if not self.note]
        return f"{self.function}({', '.join(parts)})"

    def has_gradient(self, argument: str, value: Any) -> bool:
        """Say whether the gradient of this argument is compared."""
        is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f"
        return self.grad and is_float and argument not in FIXED.get(self.function, ())

    def materialise(self) -> dict[str, Any]:
        """Draw the arrays; return all arguments by position ("0", "1", ...) or name."""
        r = np.random.RandomState(zlib.crc32(str(self).encode()))
        arguments = {**{str(i): a for i, a in enumerate(self.args)}, **self.kwargs}
        return {k: v.draw(r) if isinstance(v, Draw) else v for k, v in arguments.items()}


@dataclass(frozen=True)
class Refusal(Case):
    """A call that raises."""

    error: type[Exception] = ValueError
    text: str = ""
    ours: bool = False  # PyTorch accepts this
    values: bool = False  # it is the values that are refused, so only where they are known


def call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call with arguments by position ("0", "1", ...) or name."""
    names = [name for name in arguments if not name.isdigit()]
    positions = map(str, range(len(arguments) - len(names)))
    return function(*[arguments[i] for i in positions], **{k: arguments[k] for k in names})


def cotangent(shape: tuple[int, ...]) -> np.ndarray:
    """Return what to multiply an output of this shape with, to get gradients."""
    return np.random.RandomState(0).standard_normal(shape).astype(np.float32)


def _text(value: Any) -> str:
    if isinstance(value, Draw):
        array = value.draw(np.random.RandomState(0))
        kind = {"f": "", "i": "i", "b": "b", "u": "u"}[array.dtype.kind]
        return kind + "x".join(map(str, array.shape)) if array.shape else kind + "scalar"
    return str(value).replace(" ", "")


def case(function: str, *args: Any, _grad=True, _narrow=True, _note="", **kwargs: Any) -> Case:
    return Case(function, args, kwargs, _grad, _narrow, _note)


def refused(
    function: str,
    text: str,
    *args: Any,
    _error=ValueError,
    _ours=False,
    _values=False,
    **kwargs: Any,
) -> Refusal:
    return Refusal(function, args, kwargs, False, False, "", _error, text, _ours, _values)


def _linear() -> list[Case]:
    return [
        case("linear", N(4, 3), N(2, 3)),
        case("linear", N(4, 3), N(2, 3), N(2)),
        case("linear", N(2, 5, 3), N(2, 3), N(2)),
        case("linear", N(3), N(2, 3), N(2)),
        case("linear", N(4, 3), N(3)),
        case("linear", N(3), N(3), A(0.5)),
        case("linear", N(0, 3), N(2, 3), N(2)),
        case("linear", N(1, 1), N(1, 1)),
        case("bilinear", N(4, 3), N(4, 5), N(2, 3, 5)),
        case("bilinear", N(4, 3), N(4, 5), N(2, 3, 5), N(2)),
        case("bilinear", N(2, 4, 3), N(2, 4, 5), N(1, 3, 5), N(1)),
        case("bilinear", N(3), N(5), N(2, 3, 5)),
        refused("linear", "expected input (..., 4), got (2, 3)", N(2, 3), N(1, 4)),
        refused("linear", "expected weight (out, in) or (in,)", N(2, 3), N(1, 2, 3)),
        refused("linear", "expected bias (4,), got (3,)", N(2, 3), N(4, 3), N(3)),
        refused(
            "linear",
            "expected one dtype, got input float32, weight int32",
            N(2, 3),
            I(2, 4, 3),
            _error=TypeError,
        ),
        refused("bilinear", "same leading axes", N(2, 3), N(3, 4), N(5, 3, 4)),
        refused("bilinear", "expected weight (out, in1, in2)", N(2, 3), N(2, 4), N(3, 4)),
        refused("bilinear", "expected inputs (..., 3) and (..., 4)", N(2, 3), N(2, 5), N(5, 3, 4)),
        refused("bilinear", "expected bias (5,)", N(2, 3), N(2, 4), N(5, 3, 4), N(4)),
    ]


def _embedding() -> list[Case]:
    many = A([[1, 1, 0], [3, 1, 1]], np.int32)
    return [
        case("embedding", I(5, 2, 3), N(5, 4)),
        case("embedding", A(2, np.int32), N(5, 4)),
        case("embedding", I(5, 0), N(5, 4)),
        case("embedding", many, N(5, 4), padding_idx=1),
        case("embedding", many, N(5, 4), padding_idx=-2),
        case("embedding", many, N(5, 4), scale_grad_by_freq=True),
        case("embedding", many, N(5, 4), 1, None, 2.0, True, _note="padding and frequency"),
        case("embedding", many, N(5, 4), max_norm=1.0, _note="max_norm"),
        case("embedding", many, N(5, 4), max_norm=1.0, norm_type=1.0, _note="max_norm, 1-norm"),
        case("embedding", many, N(5, 4), max_norm=1.0, norm_type=inf, _note="max_norm, inf"),
        case("one_hot", I(4, 2, 3), 5, _grad=False),
        case("one_hot", I(4, 5), _grad=False, _narrow=False),
        case("one_hot", A(2, np.int32), 4, _grad=False),
        refused(
            "embedding", "expected indices in [0, 2], got 5", A([5], int), N(3, 2), _values=True
        ),
        refused(
            "embedding",
            "expected indices in [0, 2], got -1",
            A([0, -1], int),
            N(3, 2),
            _values=True,
        ),
        refused("embedding", "integer dtype", N(2), N(3, 2), _error=TypeError),
        refused("embedding", "expected weight (num_embeddings, dim)", A([1], int), N(3)),
        refused("embedding", "padding_idx in [-3, 2], got 3", A([1], int), N(3, 2), 3),
        refused("one_hot", "class indices in [0, 2], got 5", A([1, 5], int), 3, _values=True),
        refused("one_hot", "class indices in [0, 2], got -5", A([1, -5], int), 3, _values=True),
        refused("one_hot", "class indices in [0, 1], got -1", A([1, -1], int), _values=True),
        refused("one_hot", "num_classes= for an empty input", A([], int), _values=True),
        refused("one_hot", "num_classes of -1 or at least 1, got 0", A([0], int), 0),
        refused("one_hot", "integer dtype", N(2), _error=TypeError),
    ]


def _conv() -> list[Case]:
    rows = [
        case("conv1d", N(2, 3, 9), N(4, 3, 3)),
        case("conv1d", N(2, 3, 9), N(4, 3, 3), N(4)),
        case("conv1d", N(3, 9), N(4, 3, 3), N(4)),
        case("conv1d", N(0, 3, 9), N(4, 3, 3), N(4)),
        case("conv1d", N(2, 3, 3), N(4, 3, 3)),
        case("conv1d", N(2, 3, 9), N(4, 3, 1), N(4), 2),
        case("conv1d", N(2, 3, 9), N(4, 3, 3), stride=(2,), padding=(1,), dilation=(2,)),
        case("conv2d", N(2, 3, 7, 6), N(4, 3, 3, 2)),
        case("conv2d", N(3, 7, 6), N(4, 3, 3, 2), N(4)),
        case("conv2d", N(2, 3, 7, 6), N(4, 3, 3, 2), N(4), (2, 1), (1, 0), (1, 2)),
        case("conv2d", N(2, 3, 7, 6), N(4, 3, 3, 3), stride=2, padding=1),
        case("conv2d", N(2, 3, 7, 6), N(4, 3, 3, 3), padding=(1,)),
        case("conv2d", N(2, 4, 5, 5), N(6, 2, 3, 3), N(6), groups=2),
        case("conv2d", N(2, 4, 5, 5), N(8, 1, 3, 3), N(8), padding=1, groups=4),
        case("conv2d", N(1, 1, 1, 1), N(1, 1, 1, 1)),
        case("conv3d", N(2, 2, 4, 5, 3), N(3, 2, 2, 3, 1), N(3)),
        case("conv3d", N(2, 4, 5, 3), N(3, 2, 2, 3, 1), N(3)),
        case("conv3d", N(1, 4, 5, 5, 5), N(4, 2, 3, 3, 3), None, 2, 1, 1, 2),
    ]
    for kernel in (1, 2, 3, 4):
        for dilation in (1, 2):
            weight = N(2, 2, kernel)
            rows.append(case("conv1d", N(1, 2, 9), weight, padding="same", dilation=dilation))
    return rows + [
        case("conv1d", N(1, 2, 9), N(2, 2, 2), padding="valid", stride=2),
        case("conv2d", N(1, 2, 6, 5), N(2, 2, 3, 2), padding="same", dilation=(1, 2)),
        case("conv3d", N(1, 2, 4, 3, 4), N(2, 2, 3, 2, 1), padding="same"),
        refused("conv1d", "expected input (N, C, L) or (C, L)", N(1, 1, 4, 4), N(1, 1, 2)),
        refused("conv2d", "expected input (N, C, H, W) or (C, H, W)", N(4, 4), N(1, 1, 2, 2)),
        refused("conv3d", "(N, C, D, H, W)", N(4, 4, 4), N(1, 1, 2, 2, 2)),
        refused("conv2d", "expected weight of 4 dimensions", N(1, 1, 4, 4), N(1, 1, 2)),
        refused("conv1d", "needs stride 1", N(1, 1, 4), N(1, 1, 2), stride=2, padding="same"),
        refused("conv1d", "'same' or 'valid', got 'SAME'", N(1, 1, 4), N(1, 1, 2), padding="SAME"),
        refused("conv2d", "int or 2 ints", N(1, 1, 4, 4), N(1, 1, 2, 2), padding=(1, 1, 1)),
        refused("conv1d", "padding of at least 0", N(1, 1, 4), N(1, 1, 2), padding=-1),
        refused("conv1d", "stride of at least 1", N(1, 1, 4), N(1, 1, 2), stride=0),
        refused("conv1d", "dilation of at least 1", N(1, 1, 4), N(1, 1, 2), dilation=0),
        refused(
            "conv1d", "stride to be an int", N(1, 1, 4), N(1, 1, 2), stride=1.5, _error=TypeError
        ),
        refused("conv1d", "reaches over (5,), more than", N(1, 1, 4), N(1, 1, 5)),
        refused("conv1d", "reaches over (5,), more than", N(1, 1, 4), N(1, 1, 3), dilation=2),
        refused("conv2d", "input with 1 channels", N(1, 2, 4, 4), N(1, 1, 2, 2)),
        refused("conv2d", "don't divide into 2 groups", N(1, 2, 4, 4), N(3, 1, 2, 2), groups=2),
        refused("conv1d", "expected bias (3,)", N(1, 1, 4), N(3, 1, 2), N(2)),
        refused("conv1d", "one dtype", N(1, 1, 4), I(2, 1, 1, 2), _error=TypeError),
    ]


def _pooling() -> list[Case]:
    ties = A(np.maximum(np.arange(36) % 5 - 2, 0).reshape(1, 1, 6, 6))
    rows = [
        case("max_pool2d", ties, 3, 1, 1, _note="ties"),
        case("max_pool2d", ties, 3, 1, 1, return_indices=True, _note="ties, indices"),
        case("max_pool2d", ties, 2, 1, 1, dilation=2, _note="ties, dilation"),
        case("adaptive_max_pool2d", ties, 4, _note="ties"),
        case("max_pool1d", N(4, 9), 3),
        case("max_pool1d", N(2, 4, 9), (3,), (2,), (1,)),
        case("max_pool1d", N(2, 4, 9), 2, 3, 1, 2, True),
        case("max_pool1d", N(0, 4, 9), 3),
        case("max_pool2d", N(4, 9, 8), 3),
        case("max_pool2d", N(2, 4, 9, 8), (3, 2), (2, 1), (1, 0), (1, 2)),
        case("max_pool2d", N(0, 4, 9, 8), 3, return_indices=True, _grad=False),
        case("max_pool2d", I(99, 2, 4, 4), 2, _grad=False, _note="integers"),
        case("max_pool2d", A([[[-inf, -inf], [-inf, 1]]]), 1, _grad=False, _note="minus infinity"),
        case("max_pool2d", N(1, 1, 1, 1), 1),
        case("avg_pool1d", N(4, 9), 3),
        case("avg_pool1d", N(2, 4, 9), (3,), (2,), (1,)),
        case("avg_pool2d", N(4, 9, 8), 3),
        case("avg_pool2d", N(2, 4, 9, 8), (3, 2), (2, 1), (1, 0)),
        case("avg_pool2d", N(2, 4, 9, 8), 3, 2, 1, True, False, 5),
        case("avg_pool2d", N(2, 4, 9, 8), 3, divisor_override=-2),
        case("avg_pool2d", N(0, 4, 9, 8), 3),
        case("adaptive_avg_pool1d", N(4, 9), 3),
        case("adaptive_avg_pool1d", N(2, 4, 9), (4,)),
        case("adaptive_max_pool1d", N(4, 9), 3),
        case("adaptive_max_pool1d", N(2, 4, 9), (4,), True),
        case("adaptive_avg_pool2d", N(4, 6, 8), (None, 3)),
        case("adaptive_max_pool2d", N(4, 6, 8), (None, 3), return_indices=True),
        case("adaptive_avg_pool2d", N(0, 4, 6, 8), 2),
    ]
    # Sizes at which floor and ceil, and where a last window may start, all differ.
    for n in (5, 6, 8):
        for kernel, stride, pad in ((2, 2, 1), (3, 2, 1), (2, 3, 1), (4, 3, 2)):
            for ceil in (False, True):
                x = N(1, 1, n)
                for indices in (False, True):
                    k = {"ceil_mode": ceil, "return_indices": indices, "_narrow": False}
                    rows.append(case("max_pool1d", x, kernel, stride, pad, **k))
                for count in (True, False):
                    k = {"ceil_mode": ceil, "count_include_pad": count, "_narrow": False}
                    rows.append(case("avg_pool1d", x, kernel, stride, pad, **k))
    for kernel, stride, pad, dilation in ((2, 2, 1, 1), (3, 2, 1, 1), (2, 2, 1, 2), (3, 1, 0, 3)):
        for ceil in (False, True):
            for indices in (False, True):
                k = {
                    "dilation": dilation,
                    "ceil_mode": ceil,
                    "return_indices": indices,
                    "_narrow": ceil,
                }
                rows.append(case("max_pool2d", N(1, 2, 7, 8), kernel, stride, pad, **k))
    for ceil in (False, True):
        for count in (False, True):
            k = {"ceil_mode": ceil, "count_include_pad": count}
            rows.append(case("avg_pool2d", N(1, 2, 7, 8), (2, 3), 2, 1, **k))
    for n, m in ((7, 3), (6, 3), (3, 5), (5, 5), (5, 1), (1, 1), (10, 7)):
        k = {"_narrow": n == 7}
        rows += [
            case("adaptive_avg_pool1d", N(1, 2, n), m, **k),
            case("adaptive_max_pool1d", N(1, 2, n), m, return_indices=True, **k),
            case("adaptive_avg_pool2d", N(1, 2, n, 4), (m, 3), **k),
            case("adaptive_max_pool2d", N(1, 2, n, 4), (m, 3), **k),
            case("adaptive_max_pool2d", N(2, 4, n), (3, m), return_indices=True, **k),
        ]
    return rows + [
        refused("max_pool1d", "(N, C, L) or (C, L)", N(1, 1, 1, 4), 2),
        refused("avg_pool2d", "(N, C, H, W) or (C, H, W)", N(1, 4), 2),
        refused("max_pool1d", "at most half of kernel_size 2, got 2", N(1, 1, 5), 2, 2, 2),
        refused("max_pool2d", "at most half of kernel_size 2", N(1, 9, 9), 2, 2, 2, dilation=3),
        refused("avg_pool1d", "at most half of kernel_size 2", N(1, 1, 5), 2, 2, 2),
        refused("max_pool1d", "too small for kernel_size (2,)", N(1, 1, 1), 2),
        refused("max_pool2d", "too small for kernel_size (2, 2)", N(1, 1, 1, 1), 2),
        refused("avg_pool2d", "too small", N(1, 1, 0, 4), 2),
        refused("max_pool2d", "int or 2 ints", N(1, 4, 4), (1, 2, 3)),
        refused("max_pool2d", "stride of at least 1", N(1, 4, 4), 2, 0),
        refused("avg_pool2d", "divisor_override other than 0", N(1, 4, 4), 2, divisor_override=0),
        refused("adaptive_avg_pool2d", "output_size of at least 1", N(1, 4, 4), -1),
        refused("adaptive_avg_pool2d", "output_size to be an int or 2", N(1, 4, 4), (1, 2, 3)),
        refused("adaptive_max_pool2d", "non-empty spatial axes", N(1, 0, 4), 2),
        refused("max_pool2d", "floating or integer", B(1, 4, 4), 2, _error=TypeError),
        refused("avg_pool2d", "floating dtype", B(1, 4, 4), 2, _error=TypeError),
    ]


def _norm() -> list[Case]:
    mean, var = N(3), U(3)
    rows = []
    for shape in ((4, 3), (2, 3, 5), (2, 3, 4, 2), (2, 3, 2, 2, 2), (1, 3, 4)):
        rows += [
            case("batch_norm", N(*shape, shift=2), None, None, training=True),
            case("batch_norm", N(*shape, shift=2), None, None, N(3), N(3), True),
            case("batch_norm", N(*shape, shift=2), mean, var),
            case("batch_norm", N(*shape, shift=2), mean, var, N(3), N(3), eps=0.1),
        ]
    rows += [
        case("batch_norm", N(4, 3), mean, var, N(3)),
        case("batch_norm", N(1, 3), mean, var),
        case("batch_norm", N(0, 3), mean, var, N(3), N(3)),
        case("layer_norm", N(4, 6, shift=2), (6,)),
        case("layer_norm", N(4, 6, shift=2), (6,), N(6), N(6)),
        case("layer_norm", N(4, 6, shift=2), (6,), N(6)),
        case("layer_norm", N(2, 3, 4), (3, 4), N(3, 4), N(3, 4), 0.1),
        case("layer_norm", N(6), (6,)),
        case("layer_norm", N(2, 1), (1,)),
        case("layer_norm", N(0, 6), (6,), N(6), N(6)),
        case("rms_norm", N(4, 6, shift=2), (6,)),
        case("rms_norm", N(4, 6, scale=1e-3), (6,), N(6)),
        case("rms_norm", N(2, 3, 4), (3, 4), N(3, 4), 0.1),
        case("rms_norm", N(6), (6,)),
        case("group_norm", N(2, 6), 2),
        case("group_norm", N(2, 6, 4, shift=2), 3, N(6), N(6)),
        case("group_norm", N(2, 6, 4, 3), 1, N(6)),
        case("group_norm", N(2, 6, 4, 3), 6, N(6), N(6), 0.1),
        case("group_norm", N(0, 6, 4), 3, N(6), N(6)),
        refused("batch_norm", "expected running_mean and running_var", N(2, 3), None, None),
        refused("batch_norm", "more than 1 value per channel", N(1, 3), None, None, training=True),
        refused("batch_norm", "running_mean (3,) for input (2, 3), got (4,)", N(2, 3), N(4), U(3)),
        refused("batch_norm", "running_var (3,)", N(2, 3), N(3), U(1)),
        refused("batch_norm", "expected weight (3,)", N(2, 3), N(3), U(3), N(2)),
        refused("batch_norm", "expected bias (3,)", N(2, 3), N(3), U(3), N(3), N(2)),
        refused("batch_norm", "(N, C, *), got (3,)", N(3), N(3), U(3)),
        refused("batch_norm", "floating dtype", I(3, 2, 3), N(3), U(3), _error=TypeError),
        refused("layer_norm", "expected input (*, 3), got (1, 4)", N(1, 4), (3,)),
        refused("layer_norm", "at least one axis", N(1, 4), ()),
        refused("layer_norm", "expected weight (4,)", N(1, 4), (4,), N(3)),
        refused("layer_norm", "expected bias (4,)", N(1, 4), (4,), N(4), N(3)),
        refused("rms_norm", "expected input (*, 3), got (1, 4)", N(1, 4), (3,)),
        refused("rms_norm", "expected weight (4,)", N(1, 4), (4,), N(3)),
        refused("group_norm", "don't divide into 3 groups", N(2, 4), 3),
        refused("group_norm", "more than 1 value per group", N(1, 4), 4),
        refused("group_norm", "(N, C, *), got (4,)", N(4), 2),
        refused("group_norm", "expected weight (4,)", N(2, 4), 2, N(2)),
        refused("group_norm", "expected bias (4,)", N(2, 4), 2, N(4), N(2)),
    ]
    return rows


def _activation() -> list[Case]:
    # The places where something bends, and where naive formulas overflow.
    bends = A([-200, -88, -20, -6, -3, -1, -0.5, -1e-3, 0, 1e-3, 0.5, 1, 3, 6, 20, 88, 200])
    options: dict[str, list[dict[str, Any]]] = {
        "relu": [{"inplace": True}],
        "relu6": [{"inplace": True}],
        "leaky_relu": [
            {},
            {"negative_slope": 0.3},
            {"negative_slope": -0.5},
            {"negative_slope": 0.2, "inplace": True},
        ],
        "elu": [{}, {"alpha": 2.0}],
        "selu": [{}],
        "celu": [{}, {"alpha": 2.0}, {"alpha": 0.5}],
        "gelu": [{}, {"approximate": "tanh"}],
        "silu": [{}],
        "mish": [{}],
        "sigmoid": [{}],
        "logsigmoid": [{}],
        "hardsigmoid": [{}],
        "hardswish": [{}],
        "hardtanh": [{}, {"min_val": -3.0, "max_val": 0.5}],
        "tanh": [{}],
        "tanhshrink": [{}],
        "softplus": [{}, {"beta": 2.0}, {"beta": 0.5, "threshold": 3.0}],
        "softsign": [{}],
        "softshrink": [{}, {"lambd": 1.0}, {"lambd": 0.0}],
        "rrelu": [{}, {"lower": 0.1, "upper": 0.9}],
        "hardshrink": [{}, {"lambd": 1.0}, {"lambd": -1.0}],
        "threshold": [{"threshold": 0.5, "value": -7.0}, {"threshold": -1.0, "value": 0.0}],
    }
    rows = []
    for name, many in options.items():
        for k in many:
            text = ",".join(f"{key}={value}" for key, value in k.items())
            rows.append(case(name, bends, _note=f"bends,{text}", **k))
            rows.append(case(name, N(3, 4, scale=3), **k))
        rows.append(case(name, N(0, 2), _narrow=False, **many[0]))
    for name in ("relu", "relu6", "hardtanh", "sigmoid", "tanh", "softsign", "tanhshrink"):
        rows.append(case(name, I(9, 5), _grad=False))
    for name in ("softmax", "log_softmax", "softmin"):
        rows += [
            case(name, N(3, 4, scale=3), dim=1),
            case(name, N(3, 4), dim=0),
            case(name, N(2, 3, 4), 1),
            case(name, N(2, 3, 4), dim=-3),
            case(name, N(5, scale=100), dim=0),
            case(name, N(2, 1), dim=1),
            case(name, A([[0, -inf, 1], [200, -200, 0]]), dim=1, _note="infinite"),
            refused(name, "expected dim in [-2, 1]", N(3, 4), dim=2, _error=ValueError),
            refused(name, "floating dtype", I(3, 3, 4), dim=1, _error=TypeError),
        ]
    return rows + [
        case("glu", N(3, 4)),
        case("glu", N(4, 3), 0),
        case("glu", N(2, 6, 3), dim=1),
        case("prelu", N(2, 3, 4), A([0.25])),
        case("prelu", N(2, 3, 4), N(3)),
        case("prelu", N(2, 3), N(3)),
        case("prelu", N(4), N(1)),
        case("prelu", A([[0.0, -1.0, 1.0]]), A([0.1, 0.2, 0.3]), _note="at zero"),
        refused("relu", "expected input of numbers, got bool", B(3), _error=TypeError),
        refused("gelu", "floating dtype", I(3, 3), _error=TypeError),
        refused("silu", "floating dtype", I(3, 3), _error=TypeError),
        refused("leaky_relu", "floating dtype", I(3, 3), _error=TypeError),
        refused("celu", "alpha other than 0", N(3), 0.0),
        refused("gelu", "'none' or 'tanh', got 'x'", N(3), approximate="x"),
        refused("softshrink", "lambd of at least 0, got -1.0", N(3), -1.0),
        refused("hardtanh", "min_val <= max_val, got 1.0 and -1.0", N(3), 1.0, -1.0),
        refused("rrelu", "lower <= upper, got 0.5 and 0.2", N(3), 0.5, 0.2),
        refused("rrelu", "floating dtype", I(3, 3), _error=TypeError),
        refused("gumbel_softmax", "floating dtype", I(3, 3), _error=TypeError),
        refused("gumbel_softmax", "expected dim in [-1, 0]", N(3), dim=2),
        refused("glu", "even size at dim -1, got input (3,)", N(3)),
        refused("glu", "expected dim in [-2, 1]", N(2, 2), 2),
        refused("prelu", "weight (1,) or (3,) for input (2, 3), got (2,)", N(2, 3), N(2)),
        refused("prelu", "weight (1,) or (1,) for input (3,), got (3,)", N(3), N(3)),
        refused("prelu", "one dtype", N(3), A([1], np.float16), _error=TypeError),
    ]


def _distance() -> list[Case]:
    rows = [
        case("normalize", N(3, 4), dim=(0, 1)),
        case("normalize", N(2, 3, 4), 2.0, -1),
        case("normalize", A([[0.0, 0.0], [3.0, 4.0]]), _note="zero vector"),
        case("normalize", N(3, 4), eps=2.0),
        case("cosine_similarity", N(3, 4), N(3, 4)),
        case("cosine_similarity", N(3, 4), N(4)),
        case("cosine_similarity", N(3, 4), N(3, 1), dim=0),
        case("cosine_similarity", N(2, 3, 4), N(2, 3, 4), -1),
        case("cosine_similarity", A([[0.0, 0.0]]), A([[3.0, 4.0]]), _note="zero vector"),
        case("pairwise_distance", N(4), N(4)),
        case("pairwise_distance", N(3, 4), N(4)),
        case("pairwise_distance", N(3, 4), N(3, 4), keepdim=True),
        case("pairwise_distance", A([[1.0, 2.0]]), A([[1.0, 2.0]]), eps=0.0, _note="equal"),
        case("pairwise_distance", A([[1, 2]]), A([[1, 3]]), 1.0, eps=0.0, _note="partly equal"),
        case("pdist", A([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0]]), _note="equal rows"),
        case("pdist", N(1, 4), _grad=False),
        case("pdist", N(3, 0), _narrow=False, _grad=False),
        refused("pdist", "expected input (N, M), got (3,)", N(3)),
        refused("pdist", "p of at least 0, got -1.0", N(3, 2), -1.0),
        refused("normalize", "floating dtype", I(3, 2, 3), _error=TypeError),
        refused("normalize", "expected dim in [-1, 0]", N(3)),
        refused("cosine_similarity", "shapes that broadcast", N(2, 3), N(2, 4)),
        refused("cosine_similarity", "expected dim in [-2, 1]", N(2, 3), N(2, 3), 2),
        refused("pairwise_distance", "shapes that broadcast", N(2, 3), N(2, 4)),
    ]
    for p in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, inf, -inf):
        grad = p != 0
        rows.append(case("normalize", N(3, 4), p, _grad=grad))
        rows.append(case("pairwise_distance", N(3, 4), N(3, 4), p, _grad=grad))
        if p >= 0:
            rows.append(case("pdist", N(4, 3), p, _grad=grad, _narrow=p in (1, 2, inf)))
    return rows


def _loss() -> list[Case]:
    rows = []
    for reduction in ("mean", "sum", "none"):
        r = {"reduction": reduction, "_narrow": reduction == "mean"}
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
            rows.append(case(name, N(3, 4), N(3, 4), **r))
            rows.append(case(name, A([0, 1, -2]), A([0, 1, 1]), _note=f"equal, {reduction}", **r))
        for name in ("mse_loss", "l1_loss", "huber_loss"):
            rows.append(case(name, N(3, 4), N(3, 4), weight=U(3, 4), **r))
        for beta in (0.0, 0.3, 2.0):
            rows.append(case("smooth_l1_loss", N(3, 4), N(3, 4), beta=beta, **r))
        rows.append(case("huber_loss", N(3, 4), N(3, 4), delta=0.3, **r))
        for smoothing in (0.0, 0.1, 1.0):
            s = {"label_smoothing": smoothing, **r}
            s["_narrow"] = reduction == "mean" and smoothing == 0.1
            rows += [
                case("cross_entropy", N(4, 3), I(3, 4), **s),
                case("cross_entropy", N(4, 3), I(3, 4), U(3), **s),
                case("cross_entropy", N(3), A(1, np.int32), **s),
                case("cross_entropy", N(3), A(1, np.int32), U(3), **s),
                case("cross_entropy", N(2, 3, 4), I(3, 2, 4), U(3), ignore_index=1, **s),
                case("cross_entropy", N(2, 3, 4, 2), I(3, 2, 4, 2), **s),
                case("cross_entropy", N(4, 3), A([0, -100, 2, -100], int), weight=U(3), **s),
                case("cross_entropy", N(4, 3), P(4, 3), **s),
                case("cross_entropy", N(2, 3, 4), P(2, 3, 4), U(3), **s),
                case("cross_entropy", N(3), P(3, dim=0), U(3), **s),
            ]
        rows += [
            case(
                "cross_entropy",
                A([[1e4, 1e4 + 1, 0]]),
                A([1], np.int32),
                _note=f"large, {reduction}",
                **r,
            ),
            case("nll_loss", P(4, 3, log=True), I(3, 4), **r),
            case("nll_loss", P(4, 3, log=True), I(3, 4), U(3), **r),
            case("nll_loss", P(3, dim=0, log=True), A(2, np.int32), **r),
            case("nll_loss", P(2, 3, 4, log=True), I(3, 2, 4), U(3), ignore_index=0, **r),
            case("binary_cross_entropy", U(3, 4), U(3, 4), **r),
            case("binary_cross_entropy", U(3, 4), U(3, 4), U(4), **r),
            case("binary_cross_entropy_with_logits", N(3, 4, scale=3), U(3, 4), **r),
            case("binary_cross_entropy_with_logits", N(3, 4), U(3, 4), U(4), **r),
            case("binary_cross_entropy_with_logits", N(3, 4), U(3, 4), pos_weight=U(4), **r),
            case(
                "binary_cross_entropy_with_logits",
                N(3, 4),
                U(3, 4),
                U(3, 1),
                pos_weight=U(3, 4),
                **r,
            ),
        ]
    for reduction in ("batchmean", "sum", "none"):
        r = {"reduction": reduction}
        rows.append(case("kl_div", P(4, 3, log=True), P(4, 3), **r))
        rows.append(case("kl_div", P(4, 3, log=True), P(4, 3, log=True), log_target=True, **r))
    infinite = A([-1000.0, -100, -50, 0, 50, 100, 1000])
    half = A([0, 0.5, 1, 0.5, 0, 1, 1])
    x = N(2, 3)
    return rows + [
        case("binary_cross_entropy_with_logits", infinite, half, _note="large"),
        case(
            "binary_cross_entropy", A([0, 0, 1, 1]), A([0, 1, 0, 1]), _note="corners", _grad=False
        ),
        case("cross_entropy", A([[0, -inf, 1]]), A([2], np.int32), _note="masked"),
        case(
            "kl_div", A([[-1.0, -2.0]]), A([[0.0, 0.5]]), reduction="sum", _grad=False, _note="zero"
        ),
        case("mse_loss", N(0, 2), N(0, 2), reduction="sum"),
        case("cross_entropy", N(0, 3), I(3, 0), reduction="sum"),
        refused("mse_loss", "reduction to be one of", x, x, reduction="avg"),
        refused("kl_div", "'batchmean')", x, x, reduction="avg"),
        refused("mse_loss", "use reduction=", x, x, True, _ours=True),
        refused("cross_entropy", "use reduction=", x, I(3, 2), reduce=False, _ours=True),
        refused("mse_loss", "input's shape (2, 3), got (4,)", x, N(4), reduction="none"),
        refused("kl_div", "input's shape (2, 3), got (4,)", x, N(4), reduction="sum"),
        refused("mse_loss", "expected weight (2, 3), got (3,)", x, x, weight=U(3)),
        refused("mse_loss", "floating dtype", I(3, 2), I(3, 2), _error=TypeError),
        refused("smooth_l1_loss", "beta of at least 0, got -1.0", x, x, beta=-1.0),
        refused("huber_loss", "delta above 0, got 0.0", x, x, delta=0.0),
        refused(
            "cross_entropy",
            "targets in [0, 2] or ignore_index=-100, got -1",
            x,
            A([-1, 0], int),
            _values=True,
        ),
        refused(
            "cross_entropy",
            "targets in [0, 2] or ignore_index=-100, got 3",
            x,
            A([3, 0], int),
            _values=True,
        ),
        refused("cross_entropy", "expected target (2,) for input (2, 3), got (3,)", x, I(3, 3)),
        refused("cross_entropy", "expected target (2, 4)", N(2, 3, 4), I(3, 2, 5)),
        refused("cross_entropy", "expected target (2, 4)", N(2, 3, 4), I(3, 2)),
        refused("cross_entropy", "integer dtype, got float32", x, N(2), _error=TypeError),
        refused("cross_entropy", "weight (3,) for 3 classes, got (4,)", x, I(3, 2), U(4)),
        refused(
            "cross_entropy", "label_smoothing in [0, 1], got 1.5", x, I(3, 2), label_smoothing=1.5
        ),
        refused("cross_entropy", "ignore_index needs", x, P(2, 3), ignore_index=1),
        refused("cross_entropy", "expected target (2,)", x, P(2, 4)),
        refused("cross_entropy", "floating dtype", x, I(3, 2, 3), _error=TypeError),
        refused("cross_entropy", "(N, C, *) or (C,), got ()", A(1.0), A(0, int)),
        refused("nll_loss", "targets in [0, 2]", x, A([3, 0], int), _values=True),
        refused("nll_loss", "expected target (2,)", x, I(3, 3)),
        refused("binary_cross_entropy", "input in [0, 1], got", A([1.5]), A([0.0]), _values=True),
        refused("binary_cross_entropy", "input's shape (1,), got (2,)", U(1), U(2)),
        refused("binary_cross_entropy_with_logits", "input's shape (1,)", U(1), U(2)),
        refused("binary_cross_entropy", "expected weight to broadcast to (2,)", U(2), U(2), U(3)),
        refused(
            "binary_cross_entropy_with_logits",
            "pos_weight to broadcast",
            U(2),
            U(2),
            pos_weight=U(3),
        ),
    ]


def _losses_of_classes_and_margins() -> list[Case]:
    rows: list[Case] = []
    x, v = N(3, 4), N(4)
    counts = A([[0, 1, 2, 5], [3, 1, 0, 9], [2, 2, 7, 1]])
    for i, reduction in enumerate(("mean", "sum", "none")):
        r = {"reduction": reduction}
        one = {"_narrow": i == 0, **r}
        rows += [
            case("poisson_nll_loss", x, counts, **one),
            case("gaussian_nll_loss", x, x, U(3, 4), **one),
            case("multi_margin_loss", x, I(4, 3), **one),
            case(
                "multilabel_margin_loss", x, A([[0, -1, 1, 2], [3, 1, 2, 0], [2] * 4], int), **one
            ),
            case("multilabel_soft_margin_loss", x, S(3, 4), **one),
            case("hinge_embedding_loss", x, S(3, 4), **one),
            case("soft_margin_loss", x, S(3, 4), **one),
            case("cosine_embedding_loss", x, x, S(3), **one),
            case("margin_ranking_loss", x, x, S(3, 4), **one),
            case("triplet_margin_loss", x, x, x, **one),
            case("triplet_margin_with_distance_loss", x, x, x, **one),
            case("linear_cross_entropy", x, N(5, 4), I(5, 3), **one),
        ]
    # Of log(0) times 0 PyTorch makes a gradient that is NaN.
    positive = A([[1, 1, 2, 5], [3, 1, 0.5, 9], [2, 2, 7, 1]])
    spread = N(3, 4, scale=60)
    none = {"reduction": "none"}
    return [
        *rows,
        case("poisson_nll_loss", x, positive, full=True, **none),
        case("poisson_nll_loss", U(3, 4), positive, log_input=False, full=True, **none),
        case("poisson_nll_loss", U(3, 4), counts, False, eps=0.5, _narrow=False, **none),
        case("poisson_nll_loss", x, N(4), _narrow=False, **none),
        case("gaussian_nll_loss", x, x, U(3), full=True, **none),
        case("gaussian_nll_loss", x, x, U(3, 1), **none),
        case("gaussian_nll_loss", x, x, U(1, 4), _narrow=False, **none),
        case("gaussian_nll_loss", x, x, 0.5, _narrow=False, **none),
        case("gaussian_nll_loss", x, x, U(3, 4), eps=0.5, **none),
        case("multi_margin_loss", x, I(4, 3), 2, 0.5, U(4), **none),
        case("multi_margin_loss", x, I(4, 3), weight=U(4), _narrow=False),
        case("multi_margin_loss", v, A(2, int), _narrow=False, **none),
        case("multi_margin_loss", A([[1, 2, 2, 1]]), A([1], int), _note="on the margin"),
        case("multilabel_margin_loss", v, A([3, 0, -1, 1], int), _narrow=False, **none),
        case("multilabel_margin_loss", v, A([-1, 0, 1, 2], int), _narrow=False, **none),
        case("multilabel_soft_margin_loss", x, U(3, 4), U(4), **none),
        case("multilabel_soft_margin_loss", v, U(4), _narrow=False, **none),
        case("multilabel_soft_margin_loss", spread, U(3, 4), _note="large", _narrow=False, **none),
        case("hinge_embedding_loss", x, S(3, 4), 0.3, **none),
        case("hinge_embedding_loss", x, S(4), _narrow=False, **none),
        case("hinge_embedding_loss", A([0.5, 0.5]), A([-1, 0]), 0.5, _note="on the margin", **none),
        case("soft_margin_loss", N(3, 4, scale=20), S(3, 4), _note="large", _narrow=False, **none),
        case("soft_margin_loss", x, S(4), _narrow=False, **none),
        case("cosine_embedding_loss", x, x, S(3), 0.3, **none),
        case("cosine_embedding_loss", v, v, A(-1.0), _narrow=False, **none),
        case("cosine_embedding_loss", x, N(1, 4), S(3), _narrow=False, **none),
        case("cosine_embedding_loss", A([[0, 0], [1, 1]]), A([[1, 2], [1, 1]]), A([1, -1]), **none),
        case("cosine_embedding_loss", x, x, A([0, 1, 2]), _narrow=False, **none),
        case("margin_ranking_loss", x, x, S(3, 4), 0.5, **none),
        case("margin_ranking_loss", x, N(1, 4), S(3, 1), _narrow=False, **none),
        case("margin_ranking_loss", A([1, 1]), A([1, 1]), A([1, -1]), _note="equal", **none),
        case("triplet_margin_loss", x, x, x, 0.5, 1.0, 0.1, True, **none),
        case("triplet_margin_loss", x, x, x, p=3.0, swap=True, _narrow=False, **none),
        case("triplet_margin_loss", v, v, v, _narrow=False, **none),
        case("triplet_margin_loss", x, x, N(1, 4), _narrow=False, **none),
        case("triplet_margin_with_distance_loss", x, x, x, margin=0.5, swap=True, **none),
        case("linear_cross_entropy", v, N(5, 4), A(2, int), _narrow=False),
        case("linear_cross_entropy", x, N(5, 4), P(3, 5), linear_bias=N(5), weight=U(5)),
        case(
            "linear_cross_entropy",
            x,
            N(5, 2, 4),
            I(5, 3, 2),
            linear_bias=N(5, 2),
            weight=U(5),
            ignore_index=1,
            label_smoothing=0.2,
            **none,
        ),
        refused("poisson_nll_loss", "input's shape (3, 4), got (5,)", x, N(5)),
        refused("poisson_nll_loss", "reduction to be one of", x, x, reduction="avg"),
        refused("gaussian_nll_loss", "expected var (3, 4), (3,) or", x, x, U(4)),
        refused("gaussian_nll_loss", "got (1, 1)", x, x, U(1, 1)),
        refused("gaussian_nll_loss", "var of at least 0", x, x, A([[-1.0]] * 3), _values=True),
        refused("multi_margin_loss", "p to be 1 or 2, got 3", x, I(4, 3), 3),
        refused("multi_margin_loss", "expected target (3,)", x, I(4, 2)),
        refused(
            "multi_margin_loss", "targets in [0, 3], got 4", x, A([0, 4, 1], int), _values=True
        ),
        refused("multi_margin_loss", "weight (4,) for 4 classes", x, I(4, 3), weight=U(3)),
        refused("multi_margin_loss", "(N, C) or (C,), got (2, 3, 4)", N(2, 3, 4), I(3, 2, 4)),
        refused("multilabel_margin_loss", "input's shape (3, 4), got (4,)", x, I(4, 4)),
        refused(
            "multilabel_margin_loss", "targets in [-1, 3]", v, A([4, 0, 0, 0], int), _values=True
        ),
        refused("multilabel_margin_loss", "integer dtype", x, N(3, 4), _error=TypeError),
        refused("multilabel_soft_margin_loss", "input's shape", x, U(3)),
        refused("hinge_embedding_loss", "input's shape (3, 4), got (3,)", x, S(3)),
        refused("soft_margin_loss", "input's shape (3, 4), got (3,)", x, S(3)),
        refused("cosine_embedding_loss", "(N, D) and target (N,), or (D,) and ()", x, x, S(3, 4)),
        refused("cosine_embedding_loss", "(N, D) and target (N,)", x, x, A(1.0)),
        refused("margin_ranking_loss", "one number of axes, got input1 (3, 4)", x, x, S(4)),
        refused("triplet_margin_loss", "one number of axes, got anchor (3, 4)", x, x, v),
        refused("triplet_margin_loss", "margin above 0, got 0.0", x, x, x, 0.0),
        refused("triplet_margin_with_distance_loss", "margin above 0", x, x, x, margin=-1.0),
        refused("triplet_margin_with_distance_loss", "got anchor (3, 4)", x, x, v),
        refused("linear_cross_entropy", "got (3, 4) and (5, 3)", x, N(5, 3), I(5, 3)),
        refused("linear_cross_entropy", "needs input (N, 4), got (4,)", v, N(5, 2, 4), I(5, 2)),
        refused("linear_cross_entropy", "linear_bias (5,)", x, N(5, 4), I(5, 3), linear_bias=N(4)),
    ]


def _ctc() -> list[Case]:
    f = "ctc_loss"
    x = Draw(lambda r: P(6, 3, 5, dim=2, log=True).draw(r))
    two = A([[1, 2], [3, 3], [4, 0]], int)
    wide = A([[1, 2, 2, 4], [3, 3, 1, 0], [4, 1, 1, 1]], int)
    lengths = A([6, 5, 4], int), A([2, 2, 1], int)
    return [
        case(f, x, two, *lengths),
        case(f, x, two, *lengths, reduction="sum", _narrow=False),
        case(f, x, two, *lengths, reduction="none"),
        case(f, x, wide, A([6, 6, 6], int), A([4, 3, 4], int), reduction="none"),
        case(f, x, A([1, 2, 3, 3, 4], int), *lengths, reduction="none", _note="in one row"),
        case(f, x, A([[1, 2], [3, 3], [2, 0]], int), *lengths, blank=4, reduction="none"),
        case(f, x, two, A([6, 5, 4], int), A([0, 2, 0], int), _note="no labels"),
        case(f, x, two, (6, 5, 4), (2, 2, 1), _narrow=False, _note="tuples"),
        case(f, x, two, A([2, 2, 1], int), A([2, 2, 1], int), zero_infinity=True, _note="short"),
        case(
            f,
            x,
            two,
            A([6, 2, 0], int),
            A([2, 2, 1], int),
            reduction="none",
            _grad=False,
            _note="too short",
        ),
        case(f, P(6, 5, log=True), A([1, 2], int), A(6, int), A(2, int), reduction="none"),
        case(f, P(6, 5, log=True), A([1, 2], int), A([6], int), A([2], int), _narrow=False),
        refused(f, "input_lengths in [0, 6], got 7", x, two, (7, 6, 6), (2, 2, 1), _values=True),
        refused(f, "target_lengths in [0, 2]", x, two, (6, 6, 6), (3, 2, 1), _values=True),
        refused(f, "input_lengths (3,), got (2,)", x, two, (6, 6), (2, 2, 1)),
        refused(f, "target_lengths (3,), got (2,)", x, two, (6, 6, 6), (2, 2)),
        refused(f, "blank in [0, 4], got 5", x, two, (6, 6, 6), (2, 2, 1), 5),
        refused(f, "targets (3, S), got (2, 2)", x, I(4, 2, 2), (6, 6, 6), (2, 2, 1)),
        refused(f, "targets (5,), which", x, I(4, 4), (6, 6, 6), (2, 2, 1)),
        refused(
            f,
            "labels in [0, 4]",
            x,
            A([[9] * 2] * 3, int),
            (6,) * 3,
            (2,) * 3,
            _ours=True,
            _values=True,
        ),
        refused(f, "(T, N, C) or (T, C), got (5,)", N(5), two, (6, 6, 6), (2, 2, 1)),
        refused(
            f,
            "targets of an integer dtype",
            x,
            N(3, 2),
            (6,) * 3,
            (2,) * 3,
            _ours=True,
            _error=TypeError,
        ),
    ]


def _attention() -> list[Case]:
    f = "scaled_dot_product_attention"
    q, k, v = N(2, 4, 5, 8), N(2, 4, 6, 8), N(2, 4, 6, 8)
    dead = A([[1, 1, 0], [0, 0, 0], [1, 0, 1]], bool)
    minus = A([[0, 1, -inf], [-inf, -inf, -inf], [0.5, -inf, 1]])
    s = N(2, 3, 4)
    return [
        case(f, q, k, v),
        case(f, q, k, v, scale=0.1),
        case(f, q, k, v, is_causal=True),
        case(f, k, q, q, is_causal=True, _note="causal, more queries than keys"),
        case(f, q, k, v, B(5, 6)),
        case(f, q, k, v, B(2, 1, 5, 6)),
        case(f, q, k, v, B(4, 5, 6)),
        case(f, q, k, v, B(2, 1, 1, 6)),
        case(f, q, k, v, N(5, 6)),
        case(f, q, k, v, B(5, 6), is_causal=True, _narrow=False),
        case(f, q, k, v, N(2, 4, 5, 6)),
        case(f, s, s, s),
        case(f, s, s, s, is_causal=True),
        case(f, s, s, s, dead, _note="a query without keys"),
        case(f, s, s, s, minus, _note="a query without keys, floats", _narrow=False),
        case(f, N(3, 4), N(5, 4), N(5, 4)),
        case(f, N(3, 4), N(5, 4), N(5, 4), B(5)),
        case(f, N(2, 2, 2, 3, 4), N(2, 2, 2, 3, 4), N(2, 2, 2, 3, 4)),
        case(f, N(2, 2, 3, 4), N(2, 2, 5, 4), N(2, 2, 5, 7)),
        case(f, N(2, 2, 3, 4), N(2, 2, 5, 4), N(2, 2, 5, 7), B(3, 5)),
        case(f, N(2, 2, 3, 4), N(2, 2, 5, 4), N(2, 2, 5, 7), is_causal=True),
        case(f, N(2, 6, 3, 4), N(2, 2, 5, 4), N(2, 2, 5, 4), enable_gqa=True),
        case(f, N(2, 6, 3, 4), N(2, 2, 5, 4), N(2, 3, 5, 4), enable_gqa=True),
        case(f, N(2, 6, 3, 4), N(2, 1, 5, 4), N(2, 1, 5, 4), B(2, 6, 3, 5), enable_gqa=True),
        case(f, N(4, 2, 3, 5), N(1, 2, 3, 5), N(1, 2, 3, 5)),
        case(f, N(1, 2, 3, 5), N(4, 2, 3, 5), N(4, 2, 3, 5)),
        case(f, N(4, 2, 3, 5), N(2, 3, 5), N(2, 3, 5)),
        case(f, N(2, 2, 3, 5), N(2, 2, 0, 5), N(2, 2, 0, 5), _grad=False),
        case(f, N(1, 1, 1, 1), N(1, 1, 1, 1), N(1, 1, 1, 1)),
        case(f, N(1, 1, 3, 4, scale=30), N(1, 1, 3, 4, scale=30), N(1, 1, 3, 4), _narrow=False),
        refused(f, "at least 2 dimensions each", N(3), N(3), N(3)),
        refused(f, "key (..., S, E)", N(2, 3, 4), N(2, 3, 5), N(2, 3, 5)),
        refused(f, "value (..., S, Ev)", N(2, 3, 4), N(2, 3, 4), N(2, 5, 4)),
        refused(f, "pass enable_gqa=True", N(2, 6, 3, 4), N(2, 2, 5, 4), N(2, 2, 5, 4)),
        refused(
            f,
            "divide the 6 query heads",
            N(2, 6, 3, 4),
            N(2, 4, 5, 4),
            N(2, 4, 5, 4),
            enable_gqa=True,
        ),
        refused(f, "heads axis with enable_gqa", N(3, 4), N(3, 4), N(3, 4), enable_gqa=True),
        refused(f, "attn_mask to broadcast to (2, 3, 3)", s, s, s, B(3, 4)),
        refused(f, "attn_mask to broadcast to (2, 3, 3)", s, s, s, B(5, 1, 3, 3), _ours=True),
        refused(f, "attn_mask of dtype bool", s, s, s, I(2, 3, 3), _error=TypeError),
        refused(f, "one dtype", s, s, A(np.ones((2, 3, 4)), np.float16), _error=TypeError),
        refused(f, "dropout_p in [0, 1], got 1.5", s, s, s, dropout_p=1.5),
    ]


def _shape() -> list[Case]:
    rows = []
    for mode in ("reflect", "replicate", "circular"):
        rows += [
            case("pad", N(2, 3, 4), (1, 2), mode),
            case("pad", N(3, 4), (2, 1), mode),
            case("pad", N(2, 3, 4, 5), (1, 2, 3, 0), mode),
            case("pad", N(3, 4, 5), (1, 2, 0, 1), mode),
            case("pad", N(1, 2, 3, 4, 5), (1, 2, 0, 1, 1, 1), mode),
            case("pad", N(2, 3, 4), (2, -1), mode),
            refused("pad", "can't pad", N(2, 3, 0 if mode == "replicate" else 4), (5, 0), mode),
            refused("pad", "takes no value", N(2, 3, 4), (1, 0), mode, 1.0),
            refused("pad", "all spatial axes", N(4), (1, 0), mode),
            refused("pad", "all spatial axes", N(1, 2, 3, 4), (1, 0), mode),
            refused("pad", "all spatial axes", N(2, 3), (1, 0, 1, 1), mode),
        ]
    return rows + [
        case("pad", N(2, 3), (1, 2)),
        case("pad", N(2, 3), (1, 2, 0, 1), value=2.5),
        case("pad", N(2, 3, 4), (-1, 2)),
        case("pad", N(2, 3), ()),
        case("pad", I(5, 2, 3), (1, 1), "constant", 7, _grad=False),
        case("pixel_shuffle", N(2, 8, 3, 4), 2),
        case("pixel_shuffle", N(9, 1, 2), 3),
        case("pixel_shuffle", N(2, 3, 4), 1),
        case("pixel_unshuffle", N(2, 2, 6, 4), 2),
        case("pixel_unshuffle", N(1, 3, 6), 3),
        case("unfold", N(2, 3, 5, 6), (2, 3)),
        case("unfold", N(3, 5, 6), 2, 2, 1, 2),
        case("unfold", N(1, 1, 7, 8), (2, 3), (2, 1), (1, 0), (1, 2)),
        case("fold", N(2, 12, 20), (5, 6), 2),
        case("fold", N(12, 20), (5, 6), 2),
        case("fold", N(1, 8, 9), (5, 6), 2, 2, 1, 2),
        refused("pad", "even number of amounts", N(3, 4), (5, 0, 1)),
        refused("pad", "at most 4 for input (3, 4)", N(3, 4), (5, 0, 1, 1, 1, 1)),
        refused("pad", "mode to be one of constant, reflect", N(2, 3, 4), (1, 1), "x"),
        refused("pad", "crops more", N(2, 3), (-2, -2)),
        refused("pixel_shuffle", "(*, C * 4, H, W), got (3, 2, 2)", N(3, 2, 2), 2),
        refused("pixel_shuffle", "upscale_factor of at least 1", N(3, 2, 2), 0),
        refused("pixel_unshuffle", "(*, C, H * 2, W * 2)", N(3, 3, 3), 2),
        refused("unfold", "(N, C, H, W) or (C, H, W)", N(3, 3), 2),
        refused("unfold", "too small for kernel_size (4, 4)", N(1, 3, 3), 4),
        refused("fold", "(N, C * 4, 4)", N(1, 4, 5), (3, 3), 2),
        refused("fold", "(N, C * 4, 4)", N(3, 4), (3, 3), 2),
    ]


TOPICS = {
    "linear": _linear(),
    "embedding": _embedding(),
    "conv": _conv(),
    "pooling": _pooling(),
    "norm": _norm(),
    "activation": _activation(),
    "distance": _distance(),
    "loss": [*_loss(), *_losses_of_classes_and_margins(), *_ctc()],
    "attention": _attention(),
    "shape": _shape(),
}
ROWS = [row for rows in TOPICS.values() for row in rows]
CASES = [row for row in ROWS if not isinstance(row, Refusal)]
REFUSALS = [row for row in ROWS if isinstance(row, Refusal)]
# What is recorded, and compared in bfloat16: one row of a kind.
GOLDEN = [row for row in CASES if row.narrow]
