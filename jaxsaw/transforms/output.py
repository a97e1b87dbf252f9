"""The result of a traced function, taken apart into arrays and what rebuilds it around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from jaxsaw import _jax
from jaxsaw.state import scope as scopes
from jaxsaw.state.graph import boxes_of, clone, graph_of
from jaxsaw.state.node import Node
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.arguments import is_special
from jaxsaw.transforms.grads import Grads

if TYPE_CHECKING:
    from jaxsaw.transforms.program import World


class Output:
    """The result of a traced function: a tree of arrays, objects and gradients.

    Attributes:
        plain: The tree structure if there are only arrays, in containers that JAX itself knows;
            else None, and the result is built in Python after the state is in place.
    """

    def __init__(self, tree: Any, leaves: list[Any]) -> None:
        self.tree = tree
        self.leaves = leaves
        self.plain = tree if _is_built_in(tree) and not any(leaves) else None

    @classmethod
    def of(cls, value: Any, scope: scopes.Scope, world: World) -> tuple[Output, list[Any]]:
        """Take a result apart while its scope is still there.

        Returns:
            The structure, and the arrays in it.
        """
        leaves, tree = jax.tree.flatten(value, is_leaf=is_special)
        arrays: list[Any] = []
        kinds: list[Any] = []
        done: set[Variable] = set()
        for leaf in leaves:
            if isinstance(leaf, Grads):
                kinds.append(GradsOut(leaf._names.names, [world.number(b) for b in leaf.boxes]))
                arrays += leaf.arrays
            elif isinstance(leaf, Node) and _born_in(leaf, scope):
                made = [box for box in boxes_of(leaf) if box in scope.created - done]
                held = [] if isinstance(leaf, Variable) else graph_of(leaf).nodes
                old = [(node, world.locate(node)) for node in held if not _born_in(node, scope)]
                kinds.append(_New(leaf, made, old))
                arrays += [scope.values[box] for box in made]
                done.update(made)
            elif isinstance(leaf, Node):
                kinds.append(Old(world.locate(leaf)))
            else:
                _check_output(leaf)
                kinds.append(None)
                arrays.append(leaf)
        return cls(tree, kinds), arrays

    def count(self, leaf: Any) -> int:
        """Return how many arrays a leaf is built of."""
        return 1 if leaf is None else leaf.count

    def old(self, world: World) -> list[Node]:
        """Return the objects that weren't made inside, but are held by some that were."""
        made = [leaf for leaf in self.leaves if isinstance(leaf, _New)]
        return [world.find(place) for leaf in made for _, place in leaf.old]

    def check(self) -> None:
        """Refuse objects that each call would have to copy and can't."""
        memo: dict[int, Any] = {}
        for leaf in self.leaves:
            if isinstance(leaf, _New):
                leaf.check(memo)

    def build(self, arrays: Sequence[Any], world: Any) -> Any:
        """Return the result for the arrays of one run.

        Args:
            arrays: The arrays.
            world: Says ``find(place)`` and ``names(grads)`` for the objects of that run.
        """
        if self.plain is not None:
            return jax.tree.unflatten(self.plain, arrays)
        remaining = iter(arrays)
        memo: dict[int, Any] = {}  # what two results share is shared afterwards
        leaves = [
            next(remaining) if leaf is None else leaf.build(remaining, world, memo)
            for leaf in self.leaves
        ]
        return jax.tree.unflatten(self.tree, leaves)


class GradsOut:
    """The place of a Grads in a result: its names, and the numbers of its boxes."""

    def __init__(self, names: tuple[str, ...], numbers: list[int]) -> None:
        self.names = names
        self.numbers = numbers
        self.count = len(names)

    def build(self, arrays: Any, world: Any, memo: Any) -> Grads:
        return Grads(world.names(self), [next(arrays) for _ in self.names])


class _New:
    """The place of an object that was made inside; ``old`` are those it holds that weren't."""

    def __init__(self, template: Node, boxes: list[Variable], old: list[tuple[Node, Any]]) -> None:
        self.template = template
        self.boxes = boxes
        self.count = len(boxes)
        self.old = old

    def check(self, memo: dict[int, Any]) -> None:
        memo.update((id(node), node) for node, _ in self.old)
        try:
            clone(self.template, dict.fromkeys(self.boxes), memo, exposed=False)
        except Exception as error:
            raise TypeError(
                f"A traced function returned a {type(self.template).__name__} that it made, of "
                f"which each call must give a copy, and that can't be copied: {error}"
            ) from error

    def build(self, arrays: Any, world: Any, memo: Any) -> Any:
        memo.update((id(node), world.find(place)) for node, place in self.old)
        return clone(self.template, {box: next(arrays) for box in self.boxes}, memo, exposed=False)


class Old:
    """The place of an object that was there before, and comes back as it is."""

    count = 0

    def __init__(self, place: Any) -> None:
        self.place = place

    def build(self, arrays: Any, world: Any, memo: Any) -> Any:
        return world.find(self.place)


def _is_built_in(tree: Any) -> bool:
    data = tree.node_data()
    if data is None:
        return True
    return data[0] in (tuple, list, dict, type(None)) and all(map(_is_built_in, tree.children()))


def _born_in(node: Node, scope: scopes.Scope) -> bool:
    if isinstance(node, Variable):
        return node in scope.created
    return node._birth in scope.serials  # type: ignore[attr-defined]


def _check_output(leaf: Any) -> None:
    if not isinstance(leaf, jax.Array | _jax.Tracer | bool | int | float | complex) and not (
        hasattr(leaf, "dtype") and hasattr(leaf, "shape")
    ):
        raise TypeError(
            f"A traced function returned {leaf!r} ({type(leaf).__name__}). It may return arrays, "
            "numbers, None, Stateful objects, and containers of these."
        )
