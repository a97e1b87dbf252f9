"""Why a function was traced: the difference from the time before, in one line."""

from __future__ import annotations

import re
import warnings
from typing import Any

from jaxsaw import _jax
from jaxsaw.state.graph import Graph, graph_of
from jaxsaw.state.node import Node
from jaxsaw.state.stateful import Stateful


def reason(fn: Any, roots: list[Node], arrays: list[Any]) -> str:
    """Return what is new about a call, and remember it for the next comparison.

    Args:
        fn: The compiled function; its ``_last`` is what this function left there.
        roots: The objects that hold its state.
        arrays: The arrays among its arguments.
    """
    graphs = [graph_of(root) for root in roots]
    now = (
        tuple(graph.skeleton for graph in graphs),
        tuple(graph.key[1] for graph in graphs),
        tuple(str(_jax.typeof(array)) for array in arrays),
    )
    before, fn._last = getattr(fn, "_last", None), now
    if before is None:
        return "first call"
    if before[0] != now[0]:
        return "structure of the state changed"
    changes = []
    for root, graph, old, new in zip(roots, graphs, before[1], now[1], strict=True):
        changes += _changes(root, graph, old, new)
    if changes:
        more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
        return f"static attribute changed: {changes[0]}{more}"
    for i, (a, b) in enumerate(zip(before[2], now[2], strict=False)):
        if a != b:
            return f"array argument {i} changed from {a} to {b}"
    if len(before[2]) != len(now[2]):
        return f"number of array arguments changed from {len(before[2])} to {len(now[2])}"
    return "shape or dtype of the state, a static argument or a JAX setting changed"


def warn_of_repetition(fn: Any, name: str) -> None:
    """Warn, once for each, of what has made a function be traced more than a few times.

    Args:
        fn: The compiled function, with its ``_history``.
        name: How to call it.
    """
    what = _subject(fn._history[-1])
    if what is None:
        return
    times = [_subject(line) for line in fn._history].count(what)
    if times == _A_FEW:
        advice = (
            "pad to a few sizes, or pass a mask"
            if what.startswith("array")
            else "keep what changes often in a js.Variable, or pass it as an array"
        )
        warnings.warn(
            f"{name} was traced {times} times because of the same thing, {what}. Each time costs a "
            f"compilation: {advice}. jaxsaw.inspection.retraces tells them all.",
            stacklevel=2,
        )


_A_FEW = 8


def _subject(line: str) -> str | None:
    """Return what changed, without the values: an attribute by its path, or an argument."""
    found = re.match(r"static attribute changed: (.*?) from |(array argument \d+) changed", line)
    return None if found is None else found[1] or found[2]


def difference(one: Node, other: Node) -> str | None:
    """Return how an object differs from another, apart from the values of arrays, if it does."""
    a, b = graph_of(one), graph_of(other)
    if a.skeleton != b.skeleton:
        names = sorted(set(a.names) ^ set(b.names))
        return f"only one of them has {', '.join(names)}" if names else "their structures differ"
    return next(iter(_changes(other, b, a.key[1], b.key[1])), None)


def _changes(root: Node, graph: Graph, old: Any, new: Any) -> list[str]:
    """Return what changed between two sets of signatures, by node."""
    nodes = (root, *graph.nodes)
    one, other = ((*signatures[:-1], *signatures[-1].items) for signatures in (old, new))
    return [
        f"{node.path}: {_difference(a, b)}"
        for node, a, b in zip(nodes, one, other, strict=True)
        if a is not b
    ]


def _difference(old: Any, new: Any) -> str:
    a, b = getattr(old, "items", ()), getattr(new, "items", ())
    if not (isinstance(a, tuple) and isinstance(b, tuple) and a and isinstance(a[0], type)):
        return f"{old} became {new}"
    if not issubclass(a[0], Stateful):
        return f"{a[1:]} became {b[1:]}"
    was, now = dict(a[1:]), dict(b[1:])
    names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    return ", ".join(f"{n} from {_value(was.get(n))} to {_value(now.get(n))}" for n in names)


def _value(key: Any) -> str:
    return repr(key[1]) if isinstance(key, tuple) and len(key) == 2 else "another value"
