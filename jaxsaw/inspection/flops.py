"""Counting the arithmetic of a jaxpr, and where in a model it happens."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax

_MARK = "jaxsaw_layer_"
_FIND = re.compile(_MARK + r"(\d+)")

# One operation for each element of the result.
_ELEMENTWISE = frozenset(
    "add sub mul div rem max min neg abs sign exp exp2 expm1 log log1p sqrt rsqrt cbrt square "
    "integer_pow pow sin cos tan tanh sinh cosh asin acos atan atan2 asinh acosh atanh logistic "
    "erf erfc erf_inv lgamma digamma floor ceil round add_any cumsum cumprod cummax "
    "cumlogsumexp".split()
)
# One for each element that is read.
_REDUCTIONS = frozenset(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_window_sum reduce_window_max argmax "
    "argmin".split()
)


def scope_of(layer: int) -> Any:
    """Return a context in which operations are counted for a layer.

    Args:
        layer: Its number.
    """
    return jax.named_scope(f"{_MARK}{layer}")


def by_layer(closed: Any) -> Counter[int]:
    """Return the floating-point operations of each layer, by its number.

    Matrix products and convolutions count two for each multiplication and addition, elementwise
    functions one for each element. Loops of unknown length count once, branches by the largest.

    Args:
        closed: A jaxpr that was traced within :func:`scope_of`; -1 is what no layer did.
    """
    return _count(closed.jaxpr, -1)


def _count(jaxpr: Any, layer: int) -> Counter[int]:
    counts: Counter[int] = Counter()
    for eqn in jaxpr.eqns:
        marks = _FIND.findall(str(eqn.source_info.name_stack))
        inside = int(marks[-1]) if marks else layer
        name = eqn.primitive.name
        inner = list(_jaxprs(eqn.params))
        if inner and not name.startswith("reduce"):
            counted = [_count(sub, inside) for sub in inner]
            if name == "cond":
                counted = [max(counted, key=lambda c: c.total())]
            times = eqn.params["length"] if name == "scan" else 1
            for count in counted:
                for number, flops in count.items():
                    counts[number] += times * flops
        else:
            counts[inside] += _operations(name, eqn)
    return counts


def _jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    for key, value in params.items():
        if key.startswith(("jvp", "fwd", "bwd", "transpose", "vjp")):
            continue  # rules that a forward pass doesn't run
        for item in value if isinstance(value, tuple | list) else (value,):
            item = getattr(item, "jaxpr", item)
            if hasattr(item, "eqns"):
                yield item


def _operations(name: str, eqn: Any) -> int:
    aval = eqn.outvars[0].aval if eqn.outvars else None
    size = math.prod(getattr(aval, "shape", ()))
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        shape = eqn.invars[0].aval.shape
        return 2 * size * math.prod(shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        out_channels = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return 2 * size * math.prod(kernel) // max(out_channels, 1)
    if not jax.numpy.issubdtype(getattr(aval, "dtype", bool), jax.numpy.inexact):
        return 0
    if name in _REDUCTIONS:
        return math.prod(eqn.invars[0].aval.shape)
    return size if name in _ELEMENTWISE else 0
