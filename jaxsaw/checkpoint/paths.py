"""The names under which an object's boxes stand in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxsaw.state.node import Node
from jaxsaw.state.variable import Variable


def boxes_by_path(obj: Node) -> dict[str, Variable]:
    """Return every box of an object by every dotted path to it.

    An object that says which boxes are its own (an optimizer, which doesn't own its Parameters)
    contributes only these.
    """
    return dict(_boxes(obj, "", ()))


def objects_by_path(obj: Node) -> dict[str, Node]:
    """Return an object and all objects below it, each by its first dotted path and a dot."""
    found: dict[int, tuple[str, Node]] = {}
    waiting: list[tuple[str, Node]] = [("", obj)]
    while waiting:
        prefix, node = waiting.pop()
        if isinstance(node, Variable) or id(node) in found:
            continue
        found[id(node)] = (prefix, node)
        waiting += [(f"{prefix}{name}.", child) for name, child in node._edges()]
    return dict(found.values())


def configurations(obj: Node) -> dict[str, Any]:
    """Return what an object and those below it say must agree with a file, by their paths."""
    return {
        prefix.removesuffix("."): node._configuration()  # type: ignore[attr-defined]
        for prefix, node in objects_by_path(obj).items()
        if hasattr(node, "_configuration")
    }


def _boxes(node: Node, prefix: str, above: tuple[int, ...]) -> Iterator[tuple[str, Variable]]:
    if isinstance(node, Variable):
        yield prefix.removesuffix("."), node
    elif hasattr(node, "_owned_boxes"):
        for name, box in node._owned_boxes().items():
            yield prefix + name, box
    elif id(node) not in above:
        for name, child in node._edges():
            yield from _boxes(child, f"{prefix}{name}.", (*above, id(node)))
