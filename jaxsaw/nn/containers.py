"""Containers: modules in a row, and lists and dicts of modules and Parameters."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

import jax

from jaxsaw import _jax
from jaxsaw.nn.module import Module, layout
from jaxsaw.nn.parameter import Parameter
from jaxsaw.state.variable import Variable

ListSelf = TypeVar("ListSelf", bound="_List")


class _List(Module):
    """Items that are attributes named ``"0"``, ``"1"``, ...

    Subclasses say what an item may be.
    """

    def __init__(self, items: Iterable[Any] | None = None) -> None:
        super().__init__()
        if items is not None:
            self.extend(items)

    def _items(self) -> dict[str, Any]:
        """Return the items by their names, in order."""
        raise NotImplementedError

    def _checked(self, name: str, item: Any) -> Any:
        """Return what is kept for an item, or refuse it."""
        raise NotImplementedError

    def _part(self: ListSelf, items: dict[str, Any]) -> ListSelf:
        """Return a container of this kind with some of the items."""
        return type(self)(list(items.values()))

    def _index(self, index: Any) -> int:
        """Return a position counted from the front."""
        n = len(self)
        i = operator.index(index)
        if not -n <= i < n:
            raise IndexError(f"{self._who()}: the index {i} is out of range, there are {n} items.")
        return i % n

    def _refill(self, items: Iterable[Any]) -> None:
        """Hold these items instead, named by their new positions."""
        self._check_assignable("items")
        kept = [self._checked(str(i), item) for i, item in enumerate(items)]
        for name in self._items():
            del self.__dict__[name]
            self._vacant.pop(name, None)
        for i, item in enumerate(kept):
            self.__dict__[str(i)] = item
            self._link(str(i), item)
            if item is None:
                self._vacant[str(i)] = ("module", True)
        self._signature = None
        self._changed(structure=True)

    def __len__(self) -> int:
        return len(self._items())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items().values())

    @overload
    def __getitem__(self: ListSelf, index: slice) -> ListSelf: ...
    @overload
    def __getitem__(self, index: int) -> Any: ...
    def __getitem__(self, index: Any) -> Any:
        items = self._items()
        if isinstance(index, slice):
            return self._part(dict(list(items.items())[index]))
        return list(items.values())[self._index(index)]

    def __setitem__(self, index: Any, item: Any) -> None:
        if isinstance(index, slice):
            items = list(self)
            items[index] = item
            self._refill(items)
            return
        name = list(self._items())[self._index(index)]
        self._put(name, self._checked(name, item))

    def __delitem__(self, index: int | slice) -> None:
        items = list(self)
        del items[index if isinstance(index, slice) else self._index(index)]
        self._refill(items)

    def append(self: ListSelf, item: Any) -> ListSelf:
        """Add an item at the end.

        Args:
            item: The item.

        Returns:
            This container.
        """
        name = str(len(self))
        self._put(name, self._checked(name, item))
        return self

    def insert(self: ListSelf, index: int, item: Any) -> ListSelf:
        """Put an item before another.

        Args:
            index: The position of the other; from ``-len`` to ``len``.
            item: The item.

        Returns:
            This container.

        Raises:
            IndexError: If the position is out of range.
        """
        items = list(self)
        if not -len(items) <= index <= len(items):
            raise IndexError(
                f"{self._who()}: the index {index} is out of range, there are {len(items)} items."
            )
        items.insert(index, item)
        self._refill(items)
        return self

    def extend(self: ListSelf, items: Iterable[Any]) -> ListSelf:
        """Add several items at the end: all, or none if one is refused.

        Args:
            items: The items.

        Returns:
            This container.

        Raises:
            TypeError: If ``items`` isn't iterable.
        """
        if not isinstance(items, Iterable) or isinstance(items, str | Mapping | jax.Array):
            raise TypeError(
                f"{self._who()}: extend() expects a list or another iterable of items, "
                f"got {type(items).__name__}."
            )
        start = len(self)
        kept = [(str(i), self._checked(str(i), item)) for i, item in enumerate(items, start)]
        for name, item in kept:
            self._put(name, item)
        return self

    def _put(self, name: str, item: Any) -> None:
        setattr(self, name, item)

    def pop(self, index: int = -1) -> Any:
        """Take an item away, and return it.

        Args:
            index: Its position.
        """
        item = self[index]
        del self[index]
        return item

    def __iadd__(self: ListSelf, items: Iterable[Any]) -> ListSelf:
        return self.extend(items)

    def __add__(self: ListSelf, other: Iterable[Any]) -> ListSelf:
        if not isinstance(other, Iterable):
            return NotImplemented
        return type(self)([*self, *other])


class _ModuleSequence(_List):
    """What :class:`Sequential` and :class:`ModuleList` share."""

    def _items(self) -> dict[str, Any]:
        return self._modules

    def _checked(self, name: str, item: Any) -> Any:
        if item is not None and not isinstance(item, Module):
            raise TypeError(f"{self._at(name)}: expected a module, got {type(item).__name__}.")
        return item

    def _put(self, name: str, item: Any) -> None:
        self.add_module(name, item)


class Sequential(_ModuleSequence):
    """Modules that are called one after the other, each with the output of the one before.

    Args:
        *args: The modules, or one (ordered) dict of modules by name.

    Shape:
        - Input: that of the first module
        - Output: that of the last

    Source: ``torch.nn.Sequential``.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> from jaxsaw import nn
        >>> rngs = js.Rngs(params=0)
        >>> net = nn.Sequential(nn.Linear(3, 4, rngs=rngs), nn.ReLU(), nn.Linear(4, 1, rngs=rngs))
        >>> net(jnp.ones((2, 3))).shape
        (2, 1)
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], dict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)  # type: ignore[misc]
        return input

    def _part(self, items: dict[str, Any]) -> Any:
        return type(self)(OrderedDict(items))  # a slice keeps the names

    def __add__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            return NotImplemented
        return Sequential(*self, *other)

    def __mul__(self, times: int) -> Sequential:
        self._check_times(times)
        return Sequential(*(list(self) * times))

    def __rmul__(self, times: int) -> Sequential:
        return self * times

    def __imul__(self, times: int) -> Sequential:
        self._check_times(times)
        return self.extend(list(self) * (times - 1))

    def _check_times(self, times: Any) -> None:
        if not isinstance(times, int):
            raise TypeError(f"{self._who()}: can't be repeated {times!r} times; expected an int.")
        if times <= 0:
            raise ValueError(f"{self._who()}: can be repeated 1 time or more, got {times}.")


class ModuleList(_ModuleSequence):
    """A list of modules. It has no ``forward``: go over it with ``for``.

    Args:
        modules: The modules.

    Source: ``torch.nn.ModuleList``.

    Example:
        >>> from jaxsaw import nn
        >>> layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])
        >>> layers.append(nn.ReLU())
        ModuleList(
          (0): ReLU()
          (1): Tanh()
          (2): ReLU()
        )
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __repr__(self) -> str:
        lines: list[str] = []
        modules = list(self)
        start = 0
        while start < len(modules):  # equal ones in a row take one line
            text = repr(modules[start])
            end = start + 1
            while end < len(modules) and repr(modules[end]) == text:
                end += 1
            count = end - start
            lines.append(
                f"({start}): {text}" if count == 1 else f"({start}-{end - 1}): {count} x {text}"
            )
            start = end
        return layout(self._get_name(), [], lines)


class ParameterList(_List):
    """A list of Parameters. Arrays become Parameters; other values are kept as they are.

    Args:
        values: The items.

    Source: ``torch.nn.ParameterList``.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxsaw import nn
        >>> scales = nn.ParameterList([jnp.ones(3), jnp.ones(4)])
        >>> [name for name, _ in scales.named_parameters()]
        ['0', '1']
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        if values is not None:
            self.extend(values)

    def _items(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name.isdigit()}

    def _checked(self, name: str, item: Any) -> Any:
        return _as_parameter(item)

    def extra_repr(self) -> str:
        return "\n".join(_described(name, item) for name, item in self._items().items())

    def __repr__(self) -> str:
        return layout(self._get_name(), self.extra_repr().splitlines(), [])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{self._who()}: a ParameterList can't be called.")


class _Dict(Module):
    """Items that are attributes with the names of their keys."""

    def _items(self) -> dict[str, Any]:
        """Return the items by their names, in order."""
        raise NotImplementedError

    def _checked(self, name: str, item: Any) -> Any:
        """Return what is kept for an item, or refuse it."""
        raise NotImplementedError

    def _check_key(self, key: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(
                f"{self._who()}: expected a string for a key, got {type(key).__name__}."
            )

    def __len__(self) -> int:
        return len(self._items())

    def __iter__(self) -> Iterator[str]:
        return iter(self._items())

    def __contains__(self, key: object) -> bool:
        return key in self._items()

    def __getitem__(self, key: str) -> Any:
        items = self._items()
        if key not in items:
            known = ", ".join(map(repr, items)) or "nothing"
            raise KeyError(f"{self._who()} has no {key!r} (it has {known}).")
        return items[key]

    def __setitem__(self, key: str, item: Any) -> None:
        self._set_items([(key, item)])

    def _set_items(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Set items: all, or none if one is refused."""
        kept = []
        for key, item in pairs:
            self._check_key(key)
            self._check_free(key)
            kept.append((key, self._checked(key, item)))
        for key, item in kept:
            self._put(key, item)

    def _put(self, key: str, item: Any) -> None:
        setattr(self, key, item)

    def _check_free(self, key: str) -> None:
        if key not in self._items():
            self._check_new(key, "item")

    def __delitem__(self, key: str) -> None:
        self[key]
        delattr(self, key)

    def keys(self) -> Iterable[str]:
        """Return the keys, in order."""
        return self._items().keys()

    def values(self) -> Iterable[Any]:
        """Return the items, in order."""
        return self._items().values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return keys and items, in order."""
        return self._items().items()

    def pop(self, key: str, *default: Any) -> Any:
        """Take an item away, and return it.

        Args:
            key: Its key.
            *default: What to return if there is no such key; without it that is an error.

        Raises:
            KeyError: If there is no such key and no default.
        """
        if default and key not in self:
            return default[0]
        item = self[key]
        del self[key]
        return item

    def clear(self) -> None:
        """Take all items away."""
        for key in list(self):
            del self[key]

    def update(self, items: Any) -> None:
        """Add items, or put them where those with the same keys are: all, or none.

        Args:
            items: A mapping, a container like this one, or pairs.

        Raises:
            TypeError: If ``items`` is none of these.
            ValueError: If one of the pairs isn't one.
        """
        self._set_items(_pairs(self, items))


class ModuleDict(_Dict):
    """A dict of modules. It has no ``forward``.

    Args:
        modules: The modules by name: a mapping, or pairs.

    Source: ``torch.nn.ModuleDict``.

    Example:
        >>> from jaxsaw import nn
        >>> choices = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})
        >>> choices["tanh"]
        Tanh()
    """

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def _items(self) -> dict[str, Any]:
        return self._modules

    def _checked(self, name: str, item: Any) -> Any:
        if item is not None and not isinstance(item, Module):
            raise TypeError(f"{self._at(name)}: expected a module, got {type(item).__name__}.")
        return item

    def _put(self, key: str, item: Any) -> None:
        self.add_module(key, item)


class ParameterDict(_Dict):
    """A dict of Parameters. Arrays become Parameters; other values are kept as they are.

    Args:
        parameters: The items by name: a mapping, or pairs.

    Source: ``torch.nn.ParameterDict``.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxsaw import nn
        >>> scales = nn.ParameterDict({"left": jnp.ones(3), "right": jnp.ones(4)})
        >>> scales["right"].shape
        (4,)
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        if parameters is not None:
            self.update(parameters)

    def _items(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "training"}

    def _checked(self, name: str, item: Any) -> Any:
        return _as_parameter(item)

    def copy(self) -> ParameterDict:
        """Return another dict with the same Parameters."""
        return type(self)(self._items())

    def get(self, key: str, default: Any = None) -> Any:
        """Return an item.

        Args:
            key: Its key.
            default: What to return if there is none.
        """
        return self._items().get(key, default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return an item, after adding it if there is none.

        Args:
            key: Its key.
            default: What to add.
        """
        if key not in self:
            self[key] = default
        return self[key]

    def popitem(self) -> tuple[str, Any]:
        """Take the last item away, and return its key and it.

        Raises:
            KeyError: If there is none.
        """
        if not len(self):
            raise KeyError(f"{self._who()}: popitem() on an empty container.")
        key = list(self)[-1]
        return key, self.pop(key)

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Return another dict with these keys.

        Args:
            keys: The keys.
            default: The item for each of them.
        """
        return type(self)([(key, default) for key in keys])

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._items())

    def __or__(self, other: Any) -> ParameterDict:
        if not isinstance(other, ParameterDict):
            return NotImplemented
        return type(self)({**self._items(), **other._items()})

    def __ior__(self, other: Any) -> ParameterDict:
        if not isinstance(other, ParameterDict):
            return NotImplemented
        self.update(other)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_described(name, item) for name, item in self._items().items())

    def __repr__(self) -> str:
        return layout(self._get_name(), self.extra_repr().splitlines(), [])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{self._who()}: a ParameterDict can't be called.")


def _as_parameter(item: Any) -> Any:
    if isinstance(item, jax.Array | _jax.Tracer) and not isinstance(item, Variable):
        return Parameter(item)
    return item


def _described(name: str, item: Any) -> str:
    kind = type(item).__name__
    if isinstance(item, Variable):
        return f"({name}): {kind} of shape {item.shape} and dtype {item.dtype}"
    return f"({name}): {kind}" + (f" {item!r}" if not isinstance(item, Module) else "")


def _pairs(holder: _Dict, items: Any) -> list[tuple[Any, Any]]:
    if isinstance(items, Mapping | _Dict):
        return list(items.items())
    if not isinstance(items, Iterable) or isinstance(items, str):
        raise TypeError(
            f"{holder._who()}: expected a mapping or pairs of key and item, "
            f"got {type(items).__name__}."
        )
    pairs = []
    for i, pair in enumerate(items):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(
                f"{holder._who()}: expected pairs of key and item, got {pair!r} at position {i}."
            )
        pairs.append((pair[0], pair[1]))
    return pairs
