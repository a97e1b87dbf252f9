"""The functional view: objects as plain pytrees, and shapes without computing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

from jaxsaw.state import scope as scopes
from jaxsaw.state.graph import clone, graph_of, named_boxes
from jaxsaw.state.node import Node
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.arguments import Flat


class Structure:
    """Everything about an object but its arrays; hashable, so it can be a static argument."""

    __slots__ = ("_boxes", "_key", "_template")

    def __init__(self, obj: Node) -> None:
        boxes = dict(named_boxes(obj))
        self._template = _empty_copy(obj)
        self._boxes = dict(named_boxes(self._template))
        self._key = type(obj) if isinstance(obj, Variable) else graph_of(obj).key
        assert list(boxes) == list(self._boxes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"Structure({type(self._template).__name__}, {len(self._boxes)} arrays)"


def split(obj: Node) -> tuple[Structure, dict[str, Any]]:
    """Return an object as a structure and a plain pytree of its arrays.

    Args:
        obj: A module, optimizer, Rngs or any other Stateful.

    Returns:
        The structure, and a dict from dotted name to array; what is shared occurs once.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import jaxsaw as js
        >>> from jaxsaw import nn
        >>> structure, arrays = js.split(nn.Linear(2, 1, rngs=js.Rngs(0)))
        >>> x = jnp.ones((1, 2))
        >>> loss = lambda arrays: js.merge(structure, arrays)(x).sum()
        >>> jax.grad(loss)(arrays)["weight"]
        Array([[1., 1.]], dtype=float32)
    """
    if not isinstance(obj, Node):
        raise TypeError(f"js.split takes a Stateful object, got {type(obj).__name__}.")
    return Structure(obj), {name: box.value for name, box in named_boxes(obj)}


def merge(structure: Structure, arrays: Mapping[str, Any]) -> Any:
    """Return a new object of a structure that :func:`split` gave, with these arrays.

    Args:
        structure: From :func:`split`.
        arrays: An array, or tracer, for each name.

    Raises:
        ValueError: If names are missing or unexpected.
    """
    missing = [name for name in structure._boxes if name not in arrays]
    unexpected = [name for name in arrays if name not in structure._boxes]
    if missing or unexpected:
        raise ValueError(
            f"js.merge: the arrays don't fit {structure!r}: missing {missing}, "
            f"unexpected {unexpected}."
        )
    return clone(structure._template, {b: arrays[name] for name, b in structure._boxes.items()})


def eval_shape(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return shapes and dtypes of what ``fn`` would return, without computing anything.

    Nothing that ``fn`` writes or draws is kept.

    Args:
        fn: The function.
        *args: Statefuls, arrays, or anything with ``shape`` and ``dtype``, in any containers.
        **kwargs: Likewise.

    Returns:
        The structure of the result, with a ``jax.ShapeDtypeStruct`` for each array.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> from jaxsaw import nn
        >>> js.eval_shape(nn.Linear(2, 1, rngs=js.Rngs(0)), jnp.ones((8, 2))).shape
        (8, 1)
    """
    flat = Flat((args, kwargs))

    def body(arrays: list[Any]) -> Any:
        args, kwargs = flat.rebuild(arrays)
        scope = scopes.Scope()
        try:
            with scope:
                out = fn(*args, **kwargs)
                return jax.tree.map(
                    lambda x: x.value if isinstance(x, Variable) else x,
                    out,
                    is_leaf=lambda x: isinstance(x, Variable),
                )
        finally:
            scope.undo()

    return jax.eval_shape(body, flat.arrays)


def _empty_copy(obj: Node) -> Any:
    return clone(obj, {box: None for _, box in named_boxes(obj)})
