"""Objects that hold boxes: the base class of modules, optimizers, streams and loaders."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import jax

from jaxsaw import _jax
from jaxsaw.state import scope as scopes
from jaxsaw.state.containers import WatchedDict, WatchedList
from jaxsaw.state.node import SLOTS, Node
from jaxsaw.state.signature import SCALARS, Signature, intern, static_key
from jaxsaw.state.variable import Variable

_MISSING = object()


class Stateful(Node):
    """An object whose attributes may be boxes, other Stateful objects and plain values.

    Subclass it for state of your own. What changes while a program runs belongs in a
    :class:`Variable`; everything else is static: compiled functions are traced anew when it is
    given another value.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> class Counter(js.Stateful):
        ...     def __init__(self):
        ...         self.count = js.Variable(jnp.zeros((), jnp.int32))
        >>> counter = Counter()
        >>> @js.jit
        ... def bump():
        ...     counter.count += 1
        >>> bump(); bump(); int(counter.count)
        2
    """

    __slots__ = ("__dict__", "__weakref__", "_birth", *SLOTS)

    _birth: int

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        object.__setattr__(self, "_birth", scopes.serial_of_birth())
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        jax.tree_util.register_pytree_node(cls, _refuse_flatten, _refuse_unflatten)

    # Attributes.

    def __setattr__(self, name: str, value: Any) -> None:
        old = self.__dict__.get(name, _MISSING)
        if old is value:
            return
        if isinstance(old, Variable) and value is not None and not isinstance(value, Node):
            self._assign_array(name, old, value)
            return
        if name in _SLOTS or (old is _MISSING and _is_descriptor(type(self), name)):
            object.__setattr__(self, name, value)
            return
        if old is not _MISSING and _equal(old, value):
            return
        self._check_assignable(name)
        value = self._admit(name, value)
        self.__dict__[name] = value
        self._link(name, value)
        self._note(name, old, value)

    def __delattr__(self, name: str) -> None:
        if name not in self.__dict__:
            object.__delattr__(self, name)
            return
        self._check_assignable(name)
        del self.__dict__[name]
        self._signature = None
        self._changed(structure=True)

    def _assign_array(self, name: str, box: Variable, value: Any) -> None:
        """Write the box that is there instead of replacing it."""
        if not isinstance(value, jax.Array | _jax.Tracer) and not hasattr(value, "__array__"):
            raise TypeError(
                f"{self.path}.{name} is a {type(box).__name__}: assign an array to write it, or "
                f"use {name}.value = {value!r}."
            )
        box.value = value

    def _admit(self, name: str, value: Any) -> Any:
        """Return what is stored when ``value`` is assigned to an attribute."""
        return self._admit_item(name, value)

    def _admit_item(self, name: str, value: Any) -> Any:
        """Return what is stored for ``value``, an attribute or an item of a container of ours."""
        if isinstance(value, Node) or type(value) in SCALARS:
            return value
        kind = type(value)
        if kind is list or (kind is WatchedList and value._holder is not None):
            return WatchedList(value)
        if kind is dict or (kind is WatchedDict and value._holder is not None):
            return WatchedDict(value)
        if kind is tuple:
            items = tuple(self._admit_item(f"{name}.{i}", item) for i, item in enumerate(value))
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
        if isinstance(value, jax.Array | _jax.Tracer):
            return self._box(value)
        return value

    def _box(self, array: Any) -> Variable:
        return Variable(array)

    def _link(self, name: str, value: Any) -> None:
        """Become the holder of what ``value`` is or contains."""
        if isinstance(value, Node):
            self._adopt(value, name)
        elif isinstance(value, WatchedList | WatchedDict):
            value.attach(self, name)
        elif type(value) is tuple:
            for i, item in enumerate(value):
                self._link(f"{name}.{i}", item)

    def _note(self, name: str, old: Any, new: Any) -> None:
        """Tell the graphs of a new attribute value."""
        signature = self._signature
        if signature is None and not self._graphs:
            return
        structure = old is _MISSING or _holds_nodes(old) or _holds_nodes(new)
        self._signature = None
        if not structure and signature is not None:
            self._signature = signature.after(name, new)
            if self._signature is None and type(new) in SCALARS:
                self._signature = self._sign()
                signature.learn(name, new, self._signature)
        self._changed(structure=structure)

    def _check_assignable(self, name: str) -> None:
        active = scopes.current()
        if active is not None and not active.encloses(self._birth):
            raise RuntimeError(
                f"{self.path}.{name} was assigned inside a traced function. A plain attribute "
                "that changes there would be lost or frozen: keep what changes in a js.Variable "
                f"(self.{name} = js.Variable(...) in the constructor), or assign it outside."
            )

    # The object graph.

    def _edges(self) -> Iterator[tuple[str, Node]]:
        for name, value in self.__dict__.items():
            if isinstance(value, Node):
                yield name, value
            elif isinstance(value, list | tuple | dict):
                yield from _edges_in(name, value)

    def _sign(self) -> Signature:
        items = [(name, static_key(value)) for name, value in self.__dict__.items()]
        return intern((type(self), *items))

    def _restored(self) -> None:
        """Take note that a checkpoint has written boxes of this object."""

    # Copies.

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        twin = memo[id(self)] = type(self).__new__(type(self))
        state = {name: deepcopy(value, memo) for name, value in self.__getstate__().items()}
        twin.__setstate__(state)
        return twin

    def __copy__(self) -> Any:
        twin = type(self).__new__(type(self))
        twin.__setstate__(
            {
                name: value.copy() if isinstance(value, WatchedList | WatchedDict) else value
                for name, value in self.__getstate__().items()
            }
        )
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            if type(value) in (list, dict):
                value = self._admit_item(name, value)
            self.__dict__[name] = value
            self._link(name, value)


_SLOTS = frozenset((*SLOTS, "_birth"))


def _edges_in(prefix: str, value: Any) -> Iterator[tuple[str, Node]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, Node):
            yield f"{prefix}.{key}", item
        elif isinstance(item, list | tuple | dict):
            yield from _edges_in(f"{prefix}.{key}", item)


def _holds_nodes(value: Any) -> bool:
    if isinstance(value, Node):
        return True
    return isinstance(value, list | tuple | dict) and bool(value)


def _equal(old: Any, new: Any) -> bool:
    if type(old) is not type(new) and not isinstance(old, WatchedList | WatchedDict):
        return False
    if type(new) in SCALARS:
        return old == new
    if scopes.current() is None or isinstance(old, Node):
        return False
    kind = type(old)
    return static_key(old) == static_key(kind(new) if kind in (WatchedList, WatchedDict) else new)


def _is_descriptor(cls: type, name: str) -> bool:
    return hasattr(getattr(cls, name, None), "__set__")


def _refuse_flatten(node: Any) -> Any:
    raise TypeError(
        f"{node.path} ({type(node).__name__}) went into a raw jax transform or tree function, "
        "where changes to its state would be lost. Use the jaxsaw twin, such as js.jit or js.vmap, "
        "or js.split(object) for a plain pytree of arrays."
    )


def _refuse_unflatten(aux: Any, children: Any) -> Any:
    raise TypeError("A Stateful is not a pytree; see js.split and js.merge.")


jax.tree_util.register_pytree_node(Stateful, _refuse_flatten, _refuse_unflatten)
