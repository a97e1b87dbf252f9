"""Stacks: many objects of one architecture as one object, whose arrays have a further axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp

from jaxsaw.state.graph import boxes_of, clone, graph_of, named_boxes
from jaxsaw.state.node import Node
from jaxsaw.state.stateful import Stateful
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.arguments import Flat
from jaxsaw.transforms.program import World
from jaxsaw.transforms.reasons import difference


def stack(objects: Sequence[Any]) -> Any:
    """Return one object that holds the arrays of several, along a new first axis.

    It is what :func:`jaxsaw.vmap` maps over, as an ensemble. Nothing is shared with the originals.

    Args:
        objects: Modules (or any Statefuls) of the same structure; or tuples, lists or dicts of
            them, such as pairs of a model and its optimizer, which stay connected in the stack.

    Returns:
        An object like each of them, in which every Variable has one more axis.

    Raises:
        ValueError: If there is none, or if they differ in structure, attributes or shapes.

    Example:
        >>> import jaxsaw as js
        >>> from jaxsaw import nn
        >>> models = js.stack([nn.Linear(2, 1, rngs=rngs) for rngs in js.Rngs(0).fork(8)])
        >>> models.weight.shape
        (8, 1, 2)
    """
    return stack_but(objects, ())


def unstack(stacked: Any, length: int | None = None) -> list[Any]:
    """Return the objects that a stack holds; the inverse of :func:`stack`.

    Args:
        stacked: What :func:`stack`, or a constructor under :func:`jaxsaw.vmap`, returned.
        length: How many there are, where no array says so.

    Returns:
        New objects, which share nothing with the stack.

    Raises:
        ValueError: If it isn't a stack.

    Example:
        >>> import jaxsaw as js
        >>> from jaxsaw import nn
        >>> models = js.stack([nn.Linear(2, 1, rngs=rngs) for rngs in js.Rngs(0).fork(8)])
        >>> [model.weight.shape for model in js.unstack(models)][:2]
        [(1, 2), (1, 2)]
    """
    flat = Flat(stacked)
    boxes: dict[Variable, Any] = {}
    shared: list[Node] = []
    for node in flat.nodes:
        if isinstance(node, Stateful) and not axes_of(node):
            raise ValueError(f"js.unstack: {node.path} ({type(node).__name__}) isn't a stack.")
        boxes.update((box, box.value) for box in stacked_boxes(node))
        shared += [n for n in _statefuls(node) if axes_of(n) < axes_of(node)]
    sizes = {len(array) for array in (*boxes.values(), *flat.arrays)}
    sizes |= set() if length is None else {length}
    if not sizes:
        raise ValueError("js.unstack: no array says how many objects there are; pass length=.")
    if len(sizes) != 1:
        raise ValueError(f"js.unstack: the arrays have different first axes: {sorted(sizes)}.")
    found = []
    for i in range(sizes.pop()):
        arrays = {box: array[i] for box, array in boxes.items()}
        memo: dict[int, Any] = {id(node): node for node in shared}
        one = clone(flat.rebuild([array[i] for array in flat.arrays]), arrays, memo, exposed=False)
        mark(Flat(one).nodes, -1, shared)
        found.append(one)
    return found


def stack_but(objects: Sequence[Any], shared: Iterable[Node]) -> Any:
    """Return what :func:`stack` does, but with some Statefuls below in it as they are."""
    objects = list(objects)
    if not objects:
        raise ValueError("js.stack needs at least one object.")
    flats = [Flat(obj) for obj in objects]
    first = flats[0]
    sharing = World(first.nodes).sharing
    shared = list(shared)
    kept = {box for node in shared for box in boxes_of(node)}
    columns: dict[Variable, list[Any]] = {}
    for i, flat in enumerate(flats):
        if flat.tree != first.tree:
            raise ValueError(f"js.stack: object {i} is {flat.tree}, object 0 is {first.tree}.")
        for one, other in zip(first.leaves, flat.leaves, strict=True):
            _check_alike(one, other, i)
        if World(flat.nodes).sharing != sharing:
            raise ValueError(
                f"js.stack: object {i} isn't built like object 0: its parts share other Variables "
                "with each other."
            )
        for one, other in zip(first.leaves, flat.leaves, strict=True):
            if isinstance(one, Node):
                pairs = zip(boxes_of(one), boxes_of(other), strict=True)
                for box, twin in pairs:
                    if box not in kept and len(columns.setdefault(box, [])) == i:
                        columns[box].append(twin.value)
    memo: dict[int, Any] = {id(node): node for node in shared}
    boxes = {box: jnp.stack(values) for box, values in columns.items()}
    arrays = [jnp.stack(column) for column in zip(*(f.arrays for f in flats), strict=True)]
    stacked = clone(first.rebuild(arrays), boxes, memo, exposed=False)
    mark(Flat(stacked).nodes, 1, shared)
    return stacked


def stacked_boxes(node: Node) -> list[Variable]:
    """Return the boxes of a stack that have its axis: all, but for those it shares with others."""
    if isinstance(node, Variable):
        return [node]
    found: dict[Variable, None] = {}
    for holder in _statefuls(node):
        if axes_of(holder) >= axes_of(node):
            found.update((box, None) for _, box in holder._edges() if isinstance(box, Variable))
    return list(found)


def _statefuls(root: Node) -> list[Stateful]:
    nodes = (root, *(() if isinstance(root, Variable) else graph_of(root).nodes))
    return [node for node in nodes if isinstance(node, Stateful)]


def axes_of(node: Node) -> int:
    """Return how many axes the arrays of an object have because it is a stack (of stacks)."""
    return int(node.__dict__.get(_MARK, 0)) if isinstance(node, Stateful) else 0


def mark(roots: Iterable[Node], change: int, but: Iterable[Node] = ()) -> None:
    """Note that the objects below ``roots`` have more, or fewer, such axes, but for some."""
    done = {id(other) for node in but for other in _statefuls(node)}
    for root in roots:
        for node in _statefuls(root):
            if id(node) not in done:
                done.add(id(node))
                axes = axes_of(node) + change
                node.__dict__.pop(_MARK, None)
                if axes:
                    node.__dict__[_MARK] = axes
                node._signature = None
                node._changed()


_MARK = "_stacked"


def _check_alike(one: Any, other: Any, i: int) -> None:
    """Raise if object ``i`` differs from the first one in anything but the values of arrays."""
    if not isinstance(one, Node) or not isinstance(other, Node):
        if isinstance(one, Node) or isinstance(other, Node) or jnp.shape(one) != jnp.shape(other):
            raise ValueError(f"js.stack: object {i} holds {other!r} where object 0 holds {one!r}.")
        return
    if isinstance(one, Stateful) and isinstance(other, Stateful):
        what = difference(one, other)
        if what is not None:
            raise ValueError(f"js.stack: object {i} isn't built like object 0: {what}.")
    for (name, box), (_, twin) in zip(named_boxes(one), named_boxes(other), strict=True):
        if (box.shape, box.dtype) != (twin.shape, twin.dtype):
            raise ValueError(
                f"js.stack: {name or box.path} is {twin.dtype}{list(twin.shape)} in object {i} "
                f"and {box.dtype}{list(box.shape)} in object 0."
            )
