"""What of an object is static, as one small object that is equal for equal content.

A compiled program depends on the plain attributes of the modules that it was traced with. Their
values are reduced to hashable keys here, and the key of a whole object is interned, so that
signatures are compared by identity and moving from one to the next costs one look-up.
"""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any

import numpy as np

from jaxsaw.state.node import Node

SCALARS = frozenset((bool, int, str, bytes, type(None)))
_KEPT_TRANSITIONS = 16


class Signature:
    """The static content of an object; two are identical if their items are equal."""

    __slots__ = ("__weakref__", "_next", "items")

    def __init__(self, items: Any) -> None:
        self.items = items
        self._next: dict[Any, weakref.ref[Signature]] = {}

    def after(self, name: str, value: Any) -> Signature | None:
        """Return the signature with another value for a scalar attribute, if it is known."""
        if type(value) not in SCALARS:
            return None
        ref = self._next.get((name, type(value), value))
        return None if ref is None else ref()

    def learn(self, name: str, value: Any, result: Signature) -> None:
        """Remember what :meth:`after` shall return."""
        if type(value) in SCALARS:
            if len(self._next) >= _KEPT_TRANSITIONS:
                self._next.clear()
            self._next[name, type(value), value] = weakref.ref(result)


_interned: weakref.WeakValueDictionary[Any, Signature] = weakref.WeakValueDictionary()


def intern(items: Any) -> Signature:
    """Return the one signature with these (hashable) items."""
    found = _interned.get(items)
    if found is None:
        found = _interned.setdefault(items, Signature(items))
    return found


class _Same:
    """A key for an object that is only ever equal to itself."""

    __slots__ = ("object",)

    def __init__(self, value: Any) -> None:
        self.object = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.object is self.object

    def __hash__(self) -> int:
        return id(self.object) >> 4


def static_key(value: Any) -> Any:
    """Return a hashable key that is equal for values that a trace can't tell apart."""
    kind = type(value)
    if kind in SCALARS:
        return kind, value
    if kind is float or kind is complex:
        return kind, repr(value)
    if isinstance(value, Node):
        return "node"  # its place is in the skeleton of the graph
    if isinstance(value, list | tuple):
        return kind, tuple(map(static_key, value))
    if isinstance(value, dict):
        return kind, tuple((static_key(k), static_key(v)) for k, v in value.items())
    if kind in (set, frozenset):
        return kind, frozenset(map(static_key, value))
    if kind is types.FunctionType:
        return _function_key(value)
    if kind is types.MethodType:
        return kind, static_key(value.__func__), _Same(value.__self__)
    if isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
        return kind, tuple(map(static_key, parts))
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return _Same(value)
        return kind, value.shape, value.dtype, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return kind, value


def _function_key(function: types.FunctionType) -> Any:
    cells = []
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:
            content = None
        cells.append(_Same(content) if isinstance(content, Node) else static_key(content))
    defaults = (function.__defaults__, function.__kwdefaults__)
    if not cells and defaults == (None, None) and "<locals>" not in function.__qualname__:
        return function
    return function.__code__, tuple(cells), tuple(map(static_key, defaults))
