"""The names under which an object's boxes stand in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxsaw.state.node import Node
from jaxsaw.state.variable import Variable


def boxes_by_path(obj: Node) -> dict[str, Variable]:
    """Return every box of an object by every dotted path to it.

    An object that says which boxes are its own (an optimizer, which doesn't own its Parameters)
    contributes only these. Where keys with dots give several boxes one path, the later ones get
    ``#2``, ``#3``, ... appended.
    """
    found: dict[str, Variable] = {}
    for path, box in _boxes(obj, "", ()):
        name, n = path, 1
        while found.setdefault(name, box) is not box:
            n += 1
            name = f"{path}#{n}"
    return found


def objects_by_path(obj: Node) -> dict[str, Node]:
    """Return an object and those below it that contribute boxes, by their first dotted paths.

    Each path ends in a dot, except that of the object itself, which is empty.
    """
    found: dict[int, tuple[str, Node]] = {}
    _collect(obj, "", None, found)
    return dict(found.values())


def configurations(obj: Node) -> dict[str, Any]:
    """Return what an object and those below it say must agree with a file, by their paths."""
    return {
        prefix.removesuffix("."): plain(node._configuration())
        for prefix, node in objects_by_path(obj).items()
        if hasattr(node, "_configuration")
    }


def plain(value: Any) -> Any:
    """Return a value as JSON gives it back, to be saved, or compared with one from a file."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _boxes(node: Node, prefix: str, above: tuple[int, ...]) -> Iterator[tuple[str, Variable]]:
    if isinstance(node, Variable):
        yield prefix.removesuffix("."), node
    elif hasattr(node, "_owned_boxes"):
        for name, box in node._owned_boxes().items():
            yield prefix + name, box
    elif id(node) not in above:
        for name, child in node._edges():
            yield from _boxes(child, f"{prefix}{name}.", (*above, id(node)))


def _collect(
    node: Node, prefix: str, owned: set[str] | None, found: dict[int, tuple[str, Node]]
) -> None:
    if isinstance(node, Variable) or id(node) in found:
        return
    found[id(node)] = (prefix, node)
    if hasattr(node, "_owned_boxes"):
        # What an owner merely refers to (a scheduler to its optimizer) has no part in it.
        owned = {prefix + name for name in node._owned_boxes()}
    for name, child in node._edges():
        below = f"{prefix}{name}."
        if owned is None or any(path.startswith(below) for path in owned):
            _collect(child, below, owned, found)
