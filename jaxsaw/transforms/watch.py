"""State that a function reaches without being passed it.

A walk over a function's closure cells, the globals that it names, its defaults, partials and
bound ``self``, and on through plain containers and instances, finds the Statefuls it can see.
What the walk found is looked at again on each call, along the ways that led to it: a rebound
global is another root, a container of another length is a reason for a new walk.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from jaxsaw.state.containers import WatchedDict, WatchedList
from jaxsaw.state.node import Node

Getter = Callable[[], Any]

_stamp_of = attrgetter("_graph.stamp")

_OPAQUE = sys.stdlib_module_names | {"jax", "jaxlib", "jaxsaw", "numpy", "ml_dtypes"}
_MISSING = object()


class Watch:
    """The Statefuls that a function reaches, and the ways to them.

    Args:
        fn: Any callable.

    Attributes:
        getters: One for each way to a Stateful; returns what stands there now.
        checks: Pairs of a getter and what it must (identically) return for the ways to hold.
        form: The ways and the lengths of containers along them, hashable.
    """

    def __init__(self, fn: Any) -> None:
        self.getters: list[Getter] = []
        self.checks: list[tuple[Getter, Any]] = []
        self._names: list[str] = []
        self._seen: dict[int, bool] = {}  # whether a Stateful was found below a value
        self._keep: list[Any] = []
        self._visit(fn, lambda: fn, [], "")
        self.form = (tuple(self._names), tuple(v for _, v in self.checks if type(v) is int))
        del self._seen, self._keep, self._names

    def roots(self) -> list[Node] | None:
        """Return what stands at the end of each way, or None if the ways must be found anew."""
        for get, expected in self.checks:
            if get() is not expected and (type(expected) is not int or get() != expected):
                return None
        found = [get() for get in self.getters]
        return found if all(isinstance(node, Node) for node in found) else None

    def key(self, form: int, n: int) -> Callable[[Sequence[Any]], Any]:
        """Return a function that gives the key of a call: ``form``, ``n``, and stamps of graphs.

        It raises AttributeError, or returns None, where the ways must be found anew.

        Args:
            form: The number of :attr:`form`.
            n: How many arguments, at the beginning, are Statefuls; their stamps come first.
        """
        getters, checks = self.getters, self.checks
        if not checks and not getters and n == 1:
            return lambda args: (form, 1, args[0]._graph.stamp)
        if not checks and not getters and n == 2:
            return lambda args: (form, 2, args[0]._graph.stamp, args[1]._graph.stamp)
        if not checks and len(getters) == 1 and n == 0:
            (get,) = getters
            return lambda args: (form, 0, get()._graph.stamp)

        def key(args: Sequence[Any]) -> Any:
            for get, expected in checks:
                found = get()
                if found is not expected and (type(expected) is not int or found != expected):
                    return None
            return (form, n, *map(_stamp_of, args[:n]), *[get()._graph.stamp for get in getters])

        return key

    def _visit(self, value: Any, get: Getter, way: list[tuple[Getter, Any]], name: str) -> bool:
        if isinstance(value, Node):
            self.getters.append(get)
            self._names.append(name)
            self.checks += [check for check in way if check not in self.checks]
            return True
        if isinstance(value, WatchedList | WatchedDict):
            return False
        inwards = [*way, (get, value)] if way or name else way
        if id(value) in self._seen:
            found = self._seen[id(value)]
            if found:  # what is below is known, this way to it isn't
                self.checks += [check for check in inwards if check not in self.checks]
            return found
        steps = _steps(value)
        if steps is None:
            return False
        self._seen[id(value)] = found = False
        self._keep.append(value)
        way = inwards
        if isinstance(value, list | dict):
            way = [*way, (value.__len__, len(value))]
        empty: list[Getter] = []
        for label, step in steps:
            child = step()
            if child is None and label != "default":
                empty.append(step)
            elif child is not _MISSING:
                name_there = f"{name}{label}" if name else label.lstrip(".")
                found = self._visit(child, step, way, name_there) or found
        if found or isinstance(value, types.FunctionType):
            self.checks += [(step, None) for step in empty]  # a model may come to stand there
        self._seen[id(value)] = found
        return found


def _steps(value: Any) -> Iterator[tuple[str, Getter]] | None:
    """Return the ways on from a value, or None where it isn't looked into."""
    if isinstance(value, types.FunctionType):
        if (value.__module__ or "").partition(".")[0] in _OPAQUE and value.__module__ != "__main__":
            return None
        return _function_steps(value)
    if isinstance(value, types.MethodType):
        return iter([("", lambda: value.__self__), ("", lambda: value.__func__)])
    if isinstance(value, functools.partial):
        return _partial_steps(value)
    if isinstance(value, list | tuple):
        return ((f"[{i}]", _item(value, i)) for i in range(len(value)))
    if isinstance(value, dict):
        return ((f"[{key!r}]", _item(value, key)) for key in list(value))
    if _is_plain_instance(value):
        attributes = vars(value)
        return ((f".{key}", _item(attributes, key)) for key in list(attributes))
    if hasattr(type(value), "__watch__"):
        return iter([("", p) for p in value.__watch__()])
    wrapped = getattr(value, "__wrapped__", None)
    if callable(wrapped) and not isinstance(value, type):
        return iter([("", lambda: wrapped)])
    return None


def _function_steps(function: types.FunctionType) -> Iterator[tuple[str, Getter]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, _cell(cell)
    scope = function.__globals__
    modules: list[types.ModuleType] = []
    globals_named, names = _names(function.__code__)
    for name in sorted(globals_named):
        if name in scope:
            if isinstance(scope[name], types.ModuleType):
                modules.append(scope[name])
            yield name, _item(scope, name)
    for module in modules:
        if module.__name__.partition(".")[0] not in _OPAQUE:
            for name in sorted(names & vars(module).keys()):
                yield f"{module.__name__}.{name}", _item(vars(module), name)
    for i in range(len(function.__defaults__ or ())):
        yield "default", _default(function, i)
    for name in function.__kwdefaults__ or ():
        yield name, _item(function.__kwdefaults__, name)
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield "", lambda: wrapped


def _partial_steps(partial: functools.partial[Any]) -> Iterator[tuple[str, Getter]]:
    yield "", lambda: partial.func
    for i in range(len(partial.args)):
        yield f"argument {i}", _item(partial.args, i)
    for name in partial.keywords:
        yield name, _item(partial.keywords, name)


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the globals that a function and those inside it name, and attributes too."""
    found = {step.argval for step in dis.get_instructions(code) if step.opname in _OF_GLOBALS}
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            inner, attributes = _names(const)
            found |= inner
            names |= attributes
    return frozenset(found), frozenset(names)


_OF_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")


def _is_plain_instance(value: Any) -> bool:
    kind = type(value)
    if not hasattr(value, "__dict__") or isinstance(value, type | types.ModuleType):
        return False
    if kind is types.SimpleNamespace:
        return True
    return (kind.__module__ or "").partition(".")[0] not in _OPAQUE


def _item(container: Any, key: Any) -> Getter:
    def get() -> Any:
        try:
            return container[key]
        except LookupError:
            return _MISSING

    return get


def _cell(cell: types.CellType) -> Getter:
    def get() -> Any:
        try:
            return cell.cell_contents
        except ValueError:
            return _MISSING

    return get


def _default(function: types.FunctionType, i: int) -> Getter:
    return lambda: (function.__defaults__ or ())[i]
