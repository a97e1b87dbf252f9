"""Functions as JAX's derivatives take them: arrays in, arrays out, and no state.

The Parameters become arguments; inside, a scope gives their tracers to whoever reads the boxes.
Whatever was written inside comes out as auxiliary output, which turns it into ordinary values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw import _jax
from jaxsaw.state import scope as scopes
from jaxsaw.state.graph import boxes_of, named_boxes
from jaxsaw.state.node import Node, path_from_root
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.arguments import is_node, name_of
from jaxsaw.transforms.grads import Grads, Names

Wrt = Callable[[str, Variable], bool] | Iterable[Variable] | Variable | None


class Pure:
    """One run of a function inside a derivative.

    Args:
        targets: The function, its arguments, and what the derivative is taken of.
        kwargs: Its keyword arguments.
        has_aux: Whether it returns a pair of a value and anything.

    Attributes:
        tree: The structure of the value, once it has run.
    """

    def __init__(self, targets: Targets, kwargs: dict[str, Any], has_aux: bool) -> None:
        self.targets = targets
        self.kwargs = kwargs
        self.has_aux = has_aux
        self.tree: Any = None
        self._scope = scopes.Scope()

    def __call__(self, boxed: list[Any], arrays: list[Any]) -> tuple[list[Any], Any]:
        """Run the function.

        Args:
            boxed: Values for the boxes of the targets.
            arrays: Values for their arrays.

        Returns:
            The arrays of the value, and what :meth:`commit` takes.
        """
        fn, scope = self.targets.fn, scopes.Scope(dict(zip(self.targets.boxes, boxed, strict=True)))
        with scope:
            value, aux = fn(*self.targets.arguments(arrays), **self.kwargs), None
            if self.has_aux:
                if not isinstance(value, tuple) or len(value) != 2:
                    raise TypeError(
                        f"{name_of(fn)} must return (value, aux) with has_aux=True, got {value!r}."
                    )
                value, aux = value
            leaves, self.tree = jax.tree.flatten(value, is_leaf=is_node)
            leaves = [leaf.value if isinstance(leaf, Variable) else leaf for leaf in leaves]
        written = [scope.values[box] for box in scope.written]
        scope.close()
        self._scope = scope
        return leaves, (_Aux.of(aux), written)

    def value(self, leaves: Sequence[Any]) -> Any:
        """Return the value with other leaves."""
        return jax.tree.unflatten(self.tree, leaves)

    def leaves(self, value: Any) -> list[Any]:
        """Return the leaves of something with the structure of the value.

        Raises:
            TypeError: If it has another structure.
        """
        leaves, tree = jax.tree.flatten(value)
        if tree != self.tree:
            raise TypeError(
                f"{name_of(self.targets.fn)} returns the structure {self.tree}, but the cotangent "
                f"has {tree}."
            )
        return leaves

    def commit(self, rest: Any) -> Any:
        """Write what the function wrote; return the auxiliary part of its result."""
        aux, written = rest
        self._scope.commit(dict(zip(self._scope.written, written, strict=True)))
        return aux.value()


class Targets:
    """What a gradient is taken of: boxes, and the arrays among the chosen arguments."""

    def __init__(
        self, fn: Any, args: tuple[Any, ...], argnums: Any, wrt: Wrt, *, any_dtype: bool = False
    ) -> None:
        self.fn = fn
        self.single = not isinstance(argnums, Sequence)
        numbers = [argnums] if self.single else list(argnums)
        checked = [_checked(fn, number, args, wrt) for number in numbers]
        self.numbers = [number for number in checked if number is not None]
        self.args = args
        self.trees: list[Any] = []
        self.boxes: list[Variable] = []
        self.arrays: list[Any] = []
        self.choose = _chooser(wrt)
        seen: dict[Variable, str] = {}
        for number in self.numbers:
            leaves, tree = jax.tree.flatten(args[number], is_leaf=is_node)
            self.trees.append((leaves, tree))
            for leaf in leaves:
                if isinstance(leaf, Node):
                    seen.update((box, name) for name, box in self._chosen(leaf))
                else:
                    self.arrays.append(
                        jnp.asarray(leaf) if any_dtype else _differentiable(fn, number, leaf)
                    )
        self.outside = [box for box in _listed(wrt) if box not in seen and box.requires_grad]
        self.boxes = [*seen, *self.outside]

    def _chosen(self, node: Node) -> list[tuple[str, Variable]]:
        return [
            (name, box)
            for name, box in named_boxes(node)
            if box.requires_grad and self.choose(name, box)
        ]

    def values(self) -> list[Any]:
        """Return the present values of the boxes."""
        return [box.value for box in self.boxes]

    def arguments(self, arrays: list[Any]) -> list[Any]:
        """Return the arguments of the call with ``arrays`` in the place of ours."""
        args = list(self.args)
        remaining = iter(arrays)
        for number, (leaves, tree) in zip(self.numbers, self.trees, strict=True):
            new = [leaf if is_node(leaf) else next(remaining) for leaf in leaves]
            args[number] = jax.tree.unflatten(tree, new)
        return args

    def gradient(self, boxed: list[Any], arrays: list[Any]) -> Any:
        """Return gradients in the structure of the chosen arguments."""
        of = dict(zip(self.boxes, boxed, strict=True))
        outside = [(path_from_root(box)[1], box) for box in self.outside]
        remaining = iter(arrays)
        results = []
        for leaves, tree in self.trees:
            new = []
            for leaf in leaves:
                if isinstance(leaf, Node):
                    new.append(_grads([*self._chosen(leaf), *outside], of))
                    outside = []
                else:
                    new.append(next(remaining))
            results.append(jax.tree.unflatten(tree, new))
        if outside:
            results.append(_grads(outside, of))
        return results[0] if self.single or not self.numbers else tuple(results)

    def tangents(self, given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return tangents for the boxes and for the arrays; zero for a box that has none.

        Args:
            given: One for each chosen argument, with a Grads (or a dict by name) in the place of
                each Stateful.
        """
        if len(given) != len(self.trees):
            raise TypeError(
                f"{name_of(self.fn)}: expected {len(self.trees)} tangents, one for each argument, "
                f"got {len(given)}."
            )
        of: dict[Variable, Any] = {}
        arrays: list[Any] = []
        for (leaves, tree), tangent in zip(self.trees, given, strict=True):
            for leaf, part in zip(leaves, tree.flatten_up_to(tangent), strict=True):
                if isinstance(leaf, Node):
                    for box, array in self._tangents_of(leaf, part).items():
                        if of.setdefault(box, array) is not array:
                            raise ValueError(
                                f"{box.path} is in several arguments and got several tangents. "
                                "Give it one, and leave it out of the others."
                            )
                else:
                    arrays.append(part)
        return [of.get(box, jnp.zeros_like(box.value)) for box in self.boxes], arrays

    def _tangents_of(self, node: Node, part: Any) -> dict[Variable, Any]:
        if isinstance(part, Grads):
            found = dict(zip(part.boxes, part.arrays, strict=True))
            known: set[Variable] = set(self.boxes)
            unknown = [box.path for box in found if box not in known]
        elif isinstance(part, Mapping):
            named = dict(self._chosen(node))
            found = {named[name]: array for name, array in part.items() if name in named}
            unknown = [name for name in part if name not in named]
        else:
            raise TypeError(
                f"The tangent of {node.path} must be a js.Grads, or a dict by the names of its "
                f"Parameters, got {type(part).__name__}."
            )
        if unknown:
            raise ValueError(f"{node.path} has no trainable Parameter {', '.join(unknown)}.")
        for box, array in found.items():
            if jnp.shape(array) != box.shape:
                raise ValueError(
                    f"{box.path} has shape {box.shape}, but its tangent {jnp.shape(array)}."
                )
        return found


@jax.tree_util.register_pytree_node_class
class _Aux:
    """Auxiliary output that may hold anything: its arrays are the children."""

    def __init__(self, arrays: Sequence[Any], rest: Any) -> None:
        self.arrays = arrays
        self.rest = rest

    @classmethod
    def of(cls, value: Any) -> _Aux:
        """Take a value apart."""
        leaves, tree = jax.tree.flatten(value, is_leaf=is_node)
        arrays = [leaf for leaf in leaves if _is_array(leaf)]
        return cls(arrays, (tree, tuple(None if _is_array(x) else _Kept(x) for x in leaves)))

    def value(self) -> Any:
        """Return the value again."""
        tree, rest = self.rest
        remaining = iter(self.arrays)
        leaves = [next(remaining) if kept is None else kept.value for kept in rest]
        return jax.tree.unflatten(tree, leaves)

    def tree_flatten(self) -> Any:
        return self.arrays, self.rest

    @classmethod
    def tree_unflatten(cls, rest: Any, arrays: Any) -> _Aux:
        return cls(arrays, rest)


class _Kept:
    """A value in the static part of a tree, where only identity counts."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _grads(named: list[tuple[str, Variable]], of: dict[Variable, Any]) -> Grads:
    names = Names([name for name, _ in named], [box for _, box in named])
    return Grads(names, [of[box] for _, box in named])


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | _jax.Tracer) and not isinstance(leaf, Node)


def _checked(fn: Any, number: int, args: tuple[Any, ...], wrt: Wrt) -> int | None:
    if -len(args) <= number < len(args):
        return number % len(args)
    if not args and _listed(wrt):
        return None
    raise TypeError(
        f"{name_of(fn)} was called with {len(args)} positional arguments, but its gradient is "
        f"taken of argument {number}. Pass it by position, or set argnums= (or wrt= for "
        "Parameters that the function reaches by itself)."
    )


def _differentiable(fn: Any, number: int, leaf: Any) -> Any:
    if isinstance(leaf, float | complex):
        return jnp.asarray(leaf)
    dtype = getattr(leaf, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.inexact):
        what = type(leaf).__name__ if dtype is None else f"an array of {dtype}"
        raise TypeError(
            f"Argument {number} of {name_of(fn)} is {what}, which can't be differentiated. "
            "Set argnums= to the argument that is a module or an array of floats."
        )
    return leaf


def _chooser(wrt: Wrt) -> Callable[[str, Variable], bool]:
    if wrt is None:
        return lambda name, box: True
    if callable(wrt) and not isinstance(wrt, Node):
        return wrt
    listed = set(map(id, _listed(wrt)))
    return lambda name, box: id(box) in listed


def listed_once(wrt: Wrt) -> Wrt:
    """Return ``wrt`` as something that can be looked at again: it may be an iterator."""
    if wrt is None or callable(wrt) or isinstance(wrt, Node):
        return wrt
    return list(wrt)


def _listed(wrt: Any) -> list[Variable]:
    if isinstance(wrt, Node):
        return boxes_of(wrt)
    if wrt is None or callable(wrt):
        return []
    wrt = list(wrt)
    for box in wrt:
        if not isinstance(box, Variable):
            raise TypeError(f"wrt= takes a predicate or Parameters, got {type(box).__name__}.")
    return wrt
