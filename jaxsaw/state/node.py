"""What boxes and the objects that hold them have in common: a place in an object graph.

A node knows the object that first held it, which gives its dotted path, and the graphs (see
:mod:`jaxsaw.state.graph`) that a walk found it in, which it tells about its changes.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

SLOTS = ("_graph", "_graphs", "_owner", "_signature")


class Node:
    """A box or a Stateful.

    Attributes:
        _graph: The graph with this node as its root, once someone asked for it.
        _graphs: Weak references to all graphs that contain this node.
        _owner: A weak reference to the first holder, and the attribute name it used.
        _signature: What of this node is static, as an interned object; None when not known.
    """

    if not TYPE_CHECKING:
        __slots__ = ()  # subclasses make the slots: one of them has another base with a layout
    _graph: Any
    _graphs: tuple[weakref.ref[Any], ...]
    _owner: tuple[weakref.ref[Any], str] | None
    _signature: Any
    _is_box = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self._graph = None
        self._graphs = ()
        self._owner = None
        self._signature = None
        return self

    @property
    def path(self) -> str:
        """The dotted path in the outermost object that holds this one, or the class's name."""
        return path_from_root(self)[1] or type(self).__name__

    def _edges(self) -> Iterable[tuple[str, Node]]:
        """Return the nodes that this one holds, by their (dotted) attribute names."""
        return ()

    def _sign(self) -> Any:
        """Compute :attr:`_signature`."""
        return type(self)

    def _changed(self, *, structure: bool = False) -> None:
        """Tell every graph with this node that a static attribute, or an edge, is another now."""
        for ref in self._graphs:
            graph = ref()
            if graph is not None:
                graph.stamp = 0
                if self._is_box:
                    graph.box_signature = None
                graph.stale = graph.stale or structure

    def _adopt(self, child: Node, name: str) -> None:
        """Become the holder that gives ``child`` its path, unless it has another already."""
        owner = child._owner
        if owner is None or (old := owner[0]()) is None or _name_in(old, child, owner[1]) is None:
            child._owner = (weakref.ref(self), name)


def path_from_root(node: Node) -> tuple[Node, str]:
    """Return the outermost holder of ``node`` and the dotted path from there."""
    names: list[str] = []
    seen = {id(node)}
    while node._owner is not None:
        holder = node._owner[0]()
        if holder is None or id(holder) in seen:
            break
        name = _name_in(holder, node, node._owner[1])
        if name is None:
            break
        seen.add(id(holder))
        names.append(name)
        node = holder
    return node, ".".join(reversed(names))


def _name_in(holder: Node, child: Node, hint: str) -> str | None:
    if getattr(holder, "__dict__", {}).get(hint) is child:
        return hint
    return next((name for name, node in holder._edges() if node is child), None)
