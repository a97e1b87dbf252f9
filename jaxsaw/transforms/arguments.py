"""Taking the arguments of a call apart: what is static, what is state, what is an array."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from jaxsaw import _jax
from jaxsaw.state.node import Node
from jaxsaw.transforms.grads import Grads


def is_node(leaf: Any) -> bool:
    """Return whether a leaf of the arguments is state."""
    return isinstance(leaf, Node)


def is_special(leaf: Any) -> bool:
    """Return whether a leaf of the arguments is state, or remembers some."""
    return isinstance(leaf, Node) or (type(leaf) is Grads and leaf.is_flat)


class Flat:
    """A tree of arguments, taken apart into arrays and Statefuls.

    Attributes:
        leaves: Both, in order.
        tree: The structure, a PyTreeDef.
        arrays: The leaves that aren't Stateful.
    """

    tree: Any

    def __init__(self, tree: Any) -> None:
        self.leaves, self.tree = jax.tree.flatten(tree, is_leaf=is_node)
        self.arrays = [leaf for leaf in self.leaves if not is_node(leaf)]

    @property
    def nodes(self) -> list[Node]:
        """The leaves that are Stateful."""
        return [leaf for leaf in self.leaves if is_node(leaf)]

    def rebuild(self, arrays: Iterable[Any]) -> Any:
        """Return the tree with other arrays."""
        remaining = iter(arrays)
        leaves = [leaf if is_node(leaf) else next(remaining) for leaf in self.leaves]
        return jax.tree.unflatten(self.tree, leaves)

    def paths(self, first: str) -> list[str]:
        """Return a description of the place of each leaf, such as ``carry['h']``."""
        found = jax.tree_util.tree_leaves_with_path(self.rebuild(self.arrays), is_leaf=is_node)
        return [first + jax.tree_util.keystr(path) for path, _ in found]


class Static:
    """The arguments of a function that are plain values to trace with.

    Args:
        fn: The function.
        nums: Their positions.
        names: Their names.
    """

    def __init__(
        self, fn: Callable[..., Any], nums: int | Sequence[int], names: str | Sequence[str]
    ) -> None:
        self.nums = {nums} if isinstance(nums, int) else set(nums)
        self.names = {names} if isinstance(names, str) else set(names)
        if not self:
            return
        parameters = _parameters(fn)
        if parameters is not None:
            positional = [p.name for p in parameters if p.kind in _POSITIONAL]
            for name in self.names - {p.name for p in parameters}:
                if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
                    raise ValueError(f"static_argnames: {name_of(fn)} has no argument {name!r}.")
            self.nums = {i % len(positional) if i < 0 else i for i in self.nums}
            self.names |= {positional[i] for i in self.nums if i < len(positional)}
            self.nums |= {i for i, name in enumerate(positional) if name in self.names}

    def __bool__(self) -> bool:
        return bool(self.nums or self.names)

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        """Return dynamic positional and keyword arguments, and the static ones, hashable."""
        if not self:
            return args, kwargs, ()
        dynamic = tuple(arg for i, arg in enumerate(args) if i not in self.nums)
        named = {name: value for name, value in kwargs.items() if name not in self.names}
        static = (
            *((i, arg) for i, arg in enumerate(args) if i in self.nums),
            *((name, kwargs[name]) for name in sorted(kwargs) if name in self.names),
        )
        for where, value in static:
            try:
                hash(value)
            except TypeError:
                raise ValueError(
                    f"The static argument {where!r} must be hashable, got {type(value).__name__}."
                ) from None
        return dynamic, named, tuple((where, type(value), value) for where, value in static)

    def join(
        self, dynamic: Sequence[Any], named: dict[str, Any], static: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return all arguments again; the inverse of :meth:`split`."""
        if not static:
            return tuple(dynamic), named
        placed = {where: value for where, _, value in static}
        remaining = iter(dynamic)
        count = len(dynamic) + sum(isinstance(where, int) for where in placed)
        args = tuple(placed[i] if i in placed else next(remaining) for i in range(count))
        given = {where: value for where, value in placed.items() if isinstance(where, str)}
        return args, {**named, **given}


def check_arguments(fn: Any, args: Iterable[Any], kwargs: dict[str, Any]) -> None:
    """Refuse arguments that can neither be traced nor carry state.

    Raises:
        TypeError: Naming the argument.
    """
    given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    for which, value in given:
        for path, leaf in jax.tree_util.tree_leaves_with_path(value, is_leaf=is_special):
            if not is_special(leaf) and not _is_traceable(leaf):
                where = _argument_name(fn, which) + jax.tree_util.keystr(path)
                raise TypeError(
                    f"The argument {where} of {name_of(fn)} is {_shown(leaf)}, which is neither "
                    "an array, a number nor a Stateful object. Pass "
                    f"static_argnames={_argument_name(fn, which)!r} to trace with its value, or "
                    "derive its class from js.Stateful if it holds state."
                )


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_TRACEABLE = (jax.Array, _jax.Tracer, np.ndarray, np.generic, bool, int, float, complex)


def _is_traceable(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype.kind in "biufcV" and not leaf.dtype.hasobject
    return isinstance(leaf, _TRACEABLE) or hasattr(leaf, "__jax_array__")


def _argument_name(fn: Any, which: int | str) -> str:
    if isinstance(which, str):
        return which
    parameters = _parameters(fn) or []
    positional = [p.name for p in parameters if p.kind in _POSITIONAL]
    return positional[which] if which < len(positional) else str(which)


def _parameters(fn: Any) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return None


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) < 60 else text[:57] + '...'} ({type(value).__name__})"


def name_of(fn: Any) -> str:
    """Return what to call a function in messages."""
    return getattr(fn, "__qualname__", None) or type(fn).__name__
