"""Tracing a function of Statefuls to a jaxpr, and leaving no trace on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from jaxsaw.state import scope as scopes
from jaxsaw.state.node import Node
from jaxsaw.state.variable import Variable


def abstractly(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], boxes: list[Variable]
) -> tuple[Any, list[Variable]]:
    """Trace a call; nothing is computed, and what it writes or draws is dropped.

    Args:
        fn: The function. It may return anything; only arrays become outputs.
        args: Its arguments: Statefuls, arrays, ``jax.ShapeDtypeStruct`` and static values.
        kwargs: The same, by name.
        boxes: Those whose values are inputs.

    Returns:
        The jaxpr, whose inputs are ``boxes`` and the array arguments, and whose outputs are what
        the function returns and writes; and the other boxes that it read, which are constants.
    """
    leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=lambda x: isinstance(x, Node))
    places = [i for i, leaf in enumerate(leaves) if _is_array(leaf)]
    others: list[Variable] = []

    def read(box: Variable) -> Any:
        others.append(box)
        return box._read()

    def body(state: list[Any], arrays: list[Any]) -> Any:
        filled = list(leaves)
        for i, array in zip(places, arrays, strict=True):
            filled[i] = array
        args, kwargs = jax.tree.unflatten(tree, filled)
        scope = scopes.Scope(dict(zip(boxes, state, strict=True)), lift=read)
        try:
            with scope:
                out = fn(*args, **kwargs)
                found = jax.tree.leaves(out, is_leaf=lambda x: isinstance(x, Node))
                results = [x.value if isinstance(x, Variable) else x for x in found]
                written = [scope.values[box] for box in scope.written]
                return [x for x in (*results, *written) if _is_array(x)]
        finally:
            scope.undo()

    state = [jax.ShapeDtypeStruct(box.shape, box.dtype) for box in boxes]
    return jax.make_jaxpr(body)(state, [_struct(leaves[i]) for i in places]), others


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, Node) and not isinstance(leaf, Variable):
        return False
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _struct(array: Any) -> jax.ShapeDtypeStruct:
    dtype = jax.dtypes.canonicalize_dtype(array.dtype, allow_extended_dtype=True)
    return jax.ShapeDtypeStruct(array.shape, dtype)
