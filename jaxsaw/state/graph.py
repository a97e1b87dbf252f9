"""What a walk over an object graph found, kept until something in it changes.

A :class:`Graph` belongs to a root. It lists the boxes below it in a fixed order, with the names
of their first paths, and has a *stamp*: a number that is this graph's alone and stays the same
as long as nothing static in it changes. A compiled function recognises its state by the stamps
of the roots, without a walk. Equal architectures have different stamps but equal keys.
"""

from __future__ import annotations

import itertools
import weakref
from copy import deepcopy
from operator import attrgetter
from typing import Any

from jaxsaw import _jax
from jaxsaw.state import scope as scopes
from jaxsaw.state.node import Node
from jaxsaw.state.signature import Signature, intern
from jaxsaw.state.variable import Variable

_stamps = itertools.count(1)
_signature_of = attrgetter("_signature")


class Graph:
    """The boxes and objects below a root.

    Attributes:
        boxes: The distinct boxes in the order of the walk (empty where the root is a box).
        names: The dotted path of each box from the root; its first, if it has several.
        holders: The other nodes, but for the root, which keeps this object alive.
        skeleton: Classes, attribute names and sharing; equal for equal architectures.
        key: The skeleton together with all static attributes: the signatures of the root and of
            the holders, and one that stands for those of the boxes.
        stamp: The number of this graph in its present static state; 0 when that must be found.
        stale: Whether edges have changed, so that a new walk is needed.
    """

    __slots__ = (
        "__weakref__",
        "_stamps",
        "box_signature",
        "boxes",
        "holders",
        "key",
        "names",
        "skeleton",
        "stale",
        "stamp",
    )

    def __init__(self, root: Node) -> None:
        self.boxes: list[Variable] = []
        self.names: list[str] = []
        self.holders: list[Node] = []
        self.box_signature: Signature | None = None
        self._stamps: dict[Any, int] = {}
        self.stale = False
        self.stamp = 0
        skeleton: list[Any] = []
        self._walk(root, "", {id(root): 0}, skeleton)
        self.skeleton = tuple(skeleton)
        ref = weakref.ref(self)
        for node in (root, *self.nodes):
            node._graphs = (*(r for r in node._graphs if r() is not None), ref)
        self.find_key(root)

    @property
    def nodes(self) -> list[Node]:
        """All nodes but the root: the holders, then the boxes."""
        return [*self.holders, *self.boxes]

    def _walk(self, node: Node, prefix: str, found: dict[int, int], skeleton: list[Any]) -> None:
        edges = []
        for name, child in node._edges():
            index = found.get(id(child))
            if index is None:
                index = found[id(child)] = len(found)
                if isinstance(child, Variable):
                    self.boxes.append(child)
                    self.names.append(prefix + name)
                else:
                    self.holders.append(child)
                    self._walk(child, f"{prefix}{name}.", found, skeleton)
            edges.append((name, index))
        skeleton.append((type(node), *edges))

    def find_key(self, root: Node) -> None:
        """Bring key and stamp up to date after a static attribute has changed."""
        if self.box_signature is None:
            self.box_signature = intern(tuple(map(_signed, self.boxes)))
        signatures = (root._signature, *map(_signature_of, self.holders), self.box_signature)
        if None in signatures:
            signatures = (_signed(root), *map(_signed, self.holders), self.box_signature)
        self.key = (self.skeleton, signatures)
        self.stamp = self._stamps.get(signatures) or self._stamps.setdefault(
            signatures, next(_stamps)
        )


def _signed(node: Node) -> Any:
    """Return the signature of a node, which is computed where it isn't known."""
    if node._signature is None:
        node._signature = node._sign()
    return node._signature


def graph_of(root: Node) -> Graph:
    """Return the present graph of ``root``, from a walk only where its edges have changed."""
    graph = root._graph
    if graph is None or graph.stale:
        graph = root._graph = Graph(root)
    elif graph.stamp == 0:
        graph.find_key(root)
    return graph


def boxes_of(root: Node) -> list[Variable]:
    """Return the distinct boxes of ``root`` in the order of a walk."""
    return [root] if isinstance(root, Variable) else graph_of(root).boxes


def named_boxes(root: Node) -> list[tuple[str, Variable]]:
    """Return the distinct boxes of ``root`` with their first dotted paths."""
    if isinstance(root, Variable):
        return [("", root)]
    graph = graph_of(root)
    return list(zip(graph.names, graph.boxes, strict=True))


def clone(
    value: Any,
    arrays: dict[Variable, Any],
    memo: dict[int, Any] | None = None,
    *,
    exposed: bool = True,
) -> Any:
    """Return a deep copy of ``value`` in which boxes are new and hold other arrays.

    Args:
        value: A Stateful, or any structure of them.
        arrays: The array for each box below; boxes that aren't here are copied as they are.
        memo: What stands for other objects below, by their ids, as in :func:`copy.deepcopy`.
        exposed: Whether somebody else may hold the arrays.
    """
    memo = {} if memo is None else memo
    for box, array in arrays.items():
        twin = memo[id(box)] = box._twin()
        active = scopes.current()
        if active is None:
            twin._settle(array, exposed=exposed, trace=_jax.current_trace())
        else:
            twin._place = None
            active.create(twin, array)
    return deepcopy(value, memo)
