"""Gradients of functions of objects: ``jax.value_and_grad`` inside of a transaction.

The Parameters become the arguments of JAX's transform; inside, a scope gives their tracers to
whoever reads the boxes. Whatever was written inside comes out as auxiliary output, which turns
it into ordinary values, and is committed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw import _jax
from jaxsaw.state import scope as scopes
from jaxsaw.state.graph import boxes_of, named_boxes
from jaxsaw.state.node import Node, path_from_root
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.grads import Grads, Names

Wrt = Callable[[str, Variable], bool] | Iterable[Variable] | Variable | None


def value_and_grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    wrt: Wrt = None,
) -> Callable[..., Any]:
    """Return a function that computes the value of ``fn`` and its gradient.

    For an argument that is a module (or any Stateful) the gradient is taken with respect to its
    trainable Parameters and comes as a :class:`Grads`; for arrays it is as in JAX. State that
    ``fn`` changes, such as batch statistics and random streams, stays changed.

    Args:
        fn: Returns a scalar, or with ``has_aux`` a pair of a scalar and anything.
        argnums: Which positional arguments to differentiate; a sequence gives a tuple.
        has_aux: Whether ``fn`` returns a pair.
        wrt: Narrows the Parameters: a predicate of name and Parameter, or Parameters. These
            may also be ones that ``fn`` reaches without being passed them.

    Returns:
        A function with the arguments of ``fn`` that returns ``(value, gradient)``, or
        ``((value, aux), gradient)``.

    Raises:
        TypeError: (When called) if the value isn't a real scalar, or an argument can't be
            differentiated.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> from jaxsaw import nn
        >>> model = nn.Linear(2, 1, rngs=js.Rngs(0))
        >>> loss, grads = js.value_and_grad(lambda m: m(jnp.ones((1, 2))).sum())(model)
        >>> list(grads)
        ['weight', 'bias']
    """

    if wrt is not None and not callable(wrt) and not isinstance(wrt, Node):
        wrt = list(wrt)  # it may be an iterator, and is looked at on each call

    @functools.wraps(fn, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        targets = _Targets(fn, args, argnums, wrt)
        scope = scopes.Scope()

        def inner(boxed: list[Any], arrays: list[Any]) -> Any:
            scope.values.update(zip(targets.boxes, boxed, strict=True))
            with scope:
                out = fn(*targets.arguments(arrays), **kwargs)
                value, aux = _value_and_aux(fn, out, has_aux)
            written = [scope.values[box] for box in scope.written]
            scope.close()
            return value, (_Aux(aux), written)

        differentiate = jax.value_and_grad(inner, argnums=(0, 1), has_aux=True)
        try:
            (value, (aux, written)), (boxed, arrays) = differentiate(
                [box.value for box in targets.boxes], targets.arrays
            )
            scope.commit(dict(zip(scope.written, written, strict=True)))
        except BaseException:
            scope.undo()
            raise
        gradient = targets.gradient(boxed, arrays)
        return ((value, aux.tree) if has_aux else value), gradient

    return wrapped


def grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    wrt: Wrt = None,
) -> Callable[..., Any]:
    """Return a function that computes the gradient of ``fn``.

    Args:
        fn: As for :func:`value_and_grad`.
        argnums: As for :func:`value_and_grad`.
        has_aux: As for :func:`value_and_grad`.
        wrt: As for :func:`value_and_grad`.

    Returns:
        A function with the arguments of ``fn`` that returns the gradient, or ``(gradient, aux)``.

    Example:
        >>> import jaxsaw as js
        >>> float(js.grad(lambda x: x**2)(3.0))
        6.0
    """
    compute = value_and_grad(fn, argnums, has_aux, wrt)

    @functools.wraps(fn, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = compute(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


class _Targets:
    """What a gradient is taken of: boxes, and the arrays among the chosen arguments."""

    def __init__(self, fn: Any, args: tuple[Any, ...], argnums: Any, wrt: Wrt) -> None:
        self.single = not isinstance(argnums, Sequence)
        numbers = [argnums] if self.single else list(argnums)
        checked = [_checked(fn, number, args, wrt) for number in numbers]
        self.numbers = [number for number in checked if number is not None]
        self.args = args
        self.trees = []
        self.boxes: list[Variable] = []
        self.arrays: list[Any] = []
        self.choose = _chooser(wrt)
        seen: dict[Variable, str] = {}
        for number in self.numbers:
            leaves, tree = jax.tree.flatten(args[number], is_leaf=_is_node)
            self.trees.append((leaves, tree))
            for leaf in leaves:
                if isinstance(leaf, Node):
                    seen.update((box, name) for name, box in self._chosen(leaf))
                else:
                    self.arrays.append(_differentiable(fn, number, leaf))
        self.outside = [box for box in _listed(wrt) if box not in seen and box.requires_grad]
        self.boxes = [*seen, *self.outside]

    def _chosen(self, node: Node) -> list[tuple[str, Variable]]:
        return [
            (name, box)
            for name, box in named_boxes(node)
            if box.requires_grad and self.choose(name, box)
        ]

    def arguments(self, arrays: list[Any]) -> list[Any]:
        """Return the arguments of the call with ``arrays`` in the place of ours."""
        args = list(self.args)
        remaining = iter(arrays)
        for number, (leaves, tree) in zip(self.numbers, self.trees, strict=True):
            new = [leaf if _is_node(leaf) else next(remaining) for leaf in leaves]
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


@jax.tree_util.register_pytree_node_class
class _Aux:
    """Auxiliary output that may hold anything: its arrays are the children."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree

    def tree_flatten(self) -> Any:
        leaves, tree = jax.tree.flatten(self.tree, is_leaf=_is_node)
        arrays = [leaf for leaf in leaves if _is_array(leaf)]
        rest = [None if _is_array(leaf) else _Kept(leaf) for leaf in leaves]
        return arrays, (tree, tuple(rest))

    @classmethod
    def tree_unflatten(cls, aux: Any, arrays: Any) -> _Aux:
        tree, rest = aux
        remaining = iter(arrays)
        leaves = [next(remaining) if kept is None else kept.value for kept in rest]
        return cls(jax.tree.unflatten(tree, leaves))


class _Kept:
    """A value in the static part of a tree, where only identity counts."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _grads(named: list[tuple[str, Variable]], of: dict[Variable, Any]) -> Grads:
    names = Names([name for name, _ in named], [box for _, box in named])
    return Grads(names, [of[box] for _, box in named])


def _is_node(leaf: Any) -> bool:
    return isinstance(leaf, Node)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | _jax.Tracer) and not isinstance(leaf, Node)


def _value_and_aux(fn: Any, out: Any, has_aux: bool) -> tuple[Any, Any]:
    aux = None
    if has_aux:
        if not isinstance(out, tuple) or len(out) != 2:
            raise TypeError(f"{_name(fn)} must return (value, aux) with has_aux=True, got {out!r}.")
        out, aux = out
    value = out.value if isinstance(out, Variable) else out
    shape = getattr(value, "shape", ())
    if shape != () or not isinstance(value, jax.Array | _jax.Tracer | float | int):
        got = f"shape {shape}" if shape else type(value).__name__
        raise TypeError(
            f"{_name(fn)} must return a scalar to be differentiated, got {got}. Reduce it, "
            "for example with .mean(), or return (value, aux) with has_aux=True."
        )
    return jnp.asarray(value), aux


def _checked(fn: Any, number: int, args: tuple[Any, ...], wrt: Wrt) -> int | None:
    if -len(args) <= number < len(args):
        return number % len(args)
    if not args and _listed(wrt):
        return None
    raise TypeError(
        f"{_name(fn)} was called with {len(args)} positional arguments, but its gradient is "
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
            f"Argument {number} of {_name(fn)} is {what}, which can't be differentiated. "
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


def _name(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__name__
