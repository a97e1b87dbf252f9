"""Lists and dicts that are attributes of a Stateful, and tell it when they change."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from jax import tree_util

from jaxsaw.state.node import Node


class _Watched:
    """What the watched list and dict share: the holder, and what a change sets off."""

    _holder: weakref.ref[Any] | None = None
    _name: str = ""

    def attach(self, holder: Any, name: str) -> None:
        """Report to ``holder`` from now on, and hand it what is in here already."""
        self._holder = weakref.ref(holder)
        self._name = name
        self._settle(holder)

    def _slots(self) -> Iterator[tuple[Any, Any]]:
        raise NotImplementedError

    def _put(self, key: Any, value: Any) -> None:
        raise NotImplementedError

    def copy(self) -> Any:
        """Return the items in a plain list or dict."""
        raise NotImplementedError

    def _restore(self, items: Any) -> None:
        raise NotImplementedError

    def _settle(self, holder: Any) -> None:
        """Let the holder turn items into what it keeps, and link them."""
        for key, item in list(self._slots()):
            name = f"{self._name}.{key}"
            kept = holder._admit_item(name, item)
            if kept is not item:
                self._put(key, kept)
            holder._link(name, kept)

    def _holds(self, key: Any, value: Any) -> bool:
        try:
            return self[key] is value  # type: ignore[index]
        except (LookupError, TypeError):
            return False

    def _change(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        holder = self._holder() if self._holder is not None else None
        if holder is None:
            return method(self, *args, **kwargs)
        holder._check_assignable(self._name)
        before = self.copy()
        result = method(self, *args, **kwargs)
        try:
            self._settle(holder)
        except BaseException:
            self._restore(before)
            raise
        holder._signature = None
        holder._changed(structure=True)
        return result


class WatchedList(_Watched, list):
    """A list that reports its changes to the Stateful that holds it."""

    def _slots(self) -> Iterator[tuple[Any, Any]]:
        return enumerate(self)

    def _put(self, key: Any, value: Any) -> None:
        list.__setitem__(self, key, value)

    copy = list.copy

    def _restore(self, items: Any) -> None:
        list.__setitem__(self, slice(None), items)

    def __deepcopy__(self, memo: dict[int, Any]) -> WatchedList:
        return WatchedList(deepcopy(item, memo) for item in self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return WatchedList, (list(self),)


class WatchedDict(_Watched, dict):
    """A dict that reports its changes to the Stateful that holds it."""

    def _slots(self) -> Iterator[tuple[Any, Any]]:
        return iter(self.items())

    def _put(self, key: Any, value: Any) -> None:
        dict.__setitem__(self, key, value)

    copy = dict.copy

    def _restore(self, items: Any) -> None:
        dict.clear(self)
        dict.update(self, items)

    def _settle(self, holder: Any) -> None:
        for key, item in self.items():
            if isinstance(item, Node) and not isinstance(key, str):
                raise TypeError(
                    f"{holder.path}.{self._name}: a dict of modules or Variables needs strings for "
                    f"keys, got {key!r}."
                )
        super()._settle(holder)

    def __deepcopy__(self, memo: dict[int, Any]) -> WatchedDict:
        return WatchedDict({key: deepcopy(item, memo) for key, item in self.items()})

    def __reduce_ex__(self, protocol: Any) -> Any:
        return WatchedDict, (dict(self),)


def _report(base: type, name: str) -> Callable[..., Any]:
    method = getattr(base, name)

    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name == "__setitem__" and self._holds(*args):
            return None  # as at the end of boxes[0] += 1
        return self._change(method, *args, **kwargs)

    changing.__name__, changing.__doc__ = name, method.__doc__
    return changing


for _base, _class, _names in (
    (
        list,
        WatchedList,
        "append extend insert pop remove clear sort reverse "
        "__setitem__ __delitem__ __iadd__ __imul__",
    ),
    (
        dict,
        WatchedDict,
        "update pop popitem clear setdefault __setitem__ __delitem__ __ior__",
    ),
):
    for _name in _names.split():
        setattr(_class, _name, _report(_base, _name))


def _flatten_dict(items: WatchedDict) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
    keys = tuple(sorted(items))  # as JAX does
    return [(tree_util.DictKey(key), items[key]) for key in keys], keys


def _flatten_list(items: WatchedList) -> tuple[list[tuple[Any, Any]], None]:
    return [(tree_util.SequenceKey(i), item) for i, item in enumerate(items)], None


def _plain_list(_: None, children: Any) -> Any:
    return list(children)


def _plain_dict(keys: tuple[Any, ...], children: Any) -> Any:
    return dict(zip(keys, children, strict=True))


# JAX knows list and dict themselves only, and takes their subclasses for leaves.
tree_util.register_pytree_with_keys(WatchedList, _flatten_list, _plain_list)
tree_util.register_pytree_with_keys(WatchedDict, _flatten_dict, _plain_dict)
