"""Attributes of a module that are computed from its boxes whenever they are asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from jaxsaw.nn.module import Module

# How an attribute is computed and assigned, by the kind of computation.
Getter = Callable[..., Any]
Setter = Callable[[Any, str, Any], None]
KINDS: dict[str, tuple[Getter, Setter]] = {}


def computed(module: Module) -> dict[str, str]:
    """Return the names of a module's computed attributes, and their kinds."""
    return dict(getattr(type(module), "_computed", ()))


def original_class(module: Module) -> type[Module]:
    """Return the class that a module had before it had computed attributes."""
    cls = type(module)
    return cls.__bases__[0] if "_computed" in cls.__dict__ else cls


def compute(module: Module, name: str, kind: str | None) -> None:
    """Let an attribute be computed from now on or, for None, no longer be."""
    module._check_assignable(name)
    names = computed(module)
    names.pop(name, None)
    if kind is not None:
        names[name] = kind
    base: Any = original_class(module)
    cls = _with(base, tuple(sorted(names.items()))) if names else base
    object.__setattr__(module, "__class__", cls)
    module._signature = None
    module._changed(structure=True)


@functools.cache
def _with(base: Any, names: tuple[tuple[str, str], ...]) -> type[Module]:
    """Return the subclass of ``base`` with computed attributes: one, for all its modules."""
    members: dict[str, Any] = {
        "_computed": names,
        "__module__": base.__module__,
        "__doc__": base.__doc__,
        "__reduce_ex__": _reduce,
        "_get_name": _name_of,
    }
    for name, kind in names:
        get, set_ = KINDS[kind]
        members[name] = property(
            functools.partial(get, name=name),
            functools.partial(_assign, set_, name),
        )
    return type(base.__name__, (base,), members)


def _assign(set_: Setter, name: str, module: Module, value: Any) -> None:
    set_(module, name, value)


def _name_of(module: Module) -> str:
    name = original_class(module).__name__
    parametrized = "parametrized" in computed(module).values()
    return f"Parametrized{name}" if parametrized else name


def _reduce(module: Module, protocol: Any) -> Any:
    return _new, (original_class(module), type(module)._computed), module.__getstate__()  # type: ignore[attr-defined]


def _new(base: Any, names: tuple[tuple[str, str], ...]) -> Module:
    cls: Any = _with(base, names)
    module: Module = cls.__new__(cls)
    return module
