"""How Lazy layers come to their parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw import _jax
from jaxsaw.nn._factory import as_dtype, place, required
from jaxsaw.nn._loading import loaded
from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Buffer, Parameter
from jaxsaw.rngs import Rngs
from jaxsaw.state import scope as scopes
from jaxsaw.state.variable import Variable, write

IntOrInts: TypeAlias = int | Sequence[int]


class _Uninitialized(Variable):
    """A box that has no shape yet."""

    __slots__ = ()

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError(
            f"{self.path} has no shape and no value yet, since its layer hasn't been called. Call "
            "the model once first, before an optimizer is made and outside of js.grad."
        )

    value = property(_refuse, _refuse)
    aval = property(_refuse)
    shape = property(_refuse)
    ndim = property(_refuse)
    size = property(_refuse)
    dtype = property(lambda self: _content(self).dtype)

    def _settled(self) -> type[Any]:
        """Return the class to become."""
        return Parameter if isinstance(self, Parameter) else Buffer

    def materialize(self, shape: Sequence[int], device: Any = None, dtype: Any = None) -> None:
        """Become a Parameter or Buffer of zeros.

        Args:
            shape: Its shape.
            device: Where it is.
            dtype: Its dtype; the one given to the constructor if None.
        """
        self._check_changeable("shape")
        dtype = self.dtype if dtype is None else as_dtype(dtype)
        array = place(jnp.zeros(tuple(shape), dtype), device)
        write(self, array)
        _change_class(self, self._settled())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        memo[id(self)] = twin = self.__copy__()
        return twin

    def __copy__(self) -> Any:
        twin = self._twin()
        twin._fill(self._peek(), exposed=True)
        return twin

    def __reduce__(self) -> Any:
        return _rebuilt, (type(self), np.asarray(self._peek()), self._attributes())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(_Uninitialized, Parameter):
    """A Parameter whose shape isn't known yet: what a Lazy layer has before its first call.

    Args:
        requires_grad: Whether it will be trained.
        device: Where it will be.
        dtype: Its dtype; float32 if None.

    Source: ``torch.nn.UninitializedParameter``.

    Example:
        >>> parameter = nn.UninitializedParameter()
        >>> parameter.materialize((2, 3))
        >>> type(parameter).__name__, parameter.shape
        ('Parameter', (2, 3))
    """

    __slots__ = ()

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        self.requires_grad = requires_grad
        self._fill(place(jnp.zeros(0, as_dtype(dtype)), device), exposed=False)


class UninitializedBuffer(_Uninitialized, Buffer):
    """A Buffer whose shape isn't known yet: what a Lazy layer has before its first call.

    Args:
        requires_grad: Accepted and ignored: buffers aren't trained.
        device: Where it will be.
        dtype: Its dtype; float32 if None.
        persistent: Whether ``state_dict()`` will have it.

    Source: ``torch.nn.UninitializedBuffer``.

    Example:
        >>> buffer = nn.UninitializedBuffer()
        >>> buffer.materialize((3,))
        >>> buffer.tolist()
        [0.0, 0.0, 0.0]
    """

    __slots__ = ()

    def __init__(
        self,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> None:
        self.persistent = persistent
        self._fill(place(jnp.zeros(0, as_dtype(dtype)), device), exposed=False)


class Lazy(Module):
    """What the Lazy layers share.

    A layer is built for an input of size 0, with the key that its weight will be drawn with; its
    boxes have no shape then. The first call builds an ordinary layer with this key, takes over its
    values, and becomes of its class. Nothing is drawn from a stream then, so that it makes no
    difference when that is, and whether a trace is going on.
    """

    __slots__ = ()

    cls_to_become: ClassVar[type[Module]]
    _size_name: ClassVar[str]  # the argument that isn't known
    _seed: _Seed
    _settings: tuple[tuple[str, Any], ...]

    def start(self, settings: dict[str, Any]) -> None:
        """Build the layer for an input of size 0; called by constructors."""
        settings = {k: v for k, v in settings.items() if k not in ("self", "__class__")}
        if "rngs" in settings:
            key = required(settings["rngs"], type(self).__name__).next("params")
            settings["rngs"] = _Replay(key)
        super().__init__(**{self._size_name: 0}, **settings)
        if "rngs" in settings:
            self._seed = _Seed(key)
            del settings["rngs"]
        self._settings = tuple(settings.items())
        for _, box in self._unsized():
            _change_class(box, _UNINITIALIZED[type(box)])

    def _unsized(self) -> Iterator[tuple[str, Variable]]:
        for name, box in self._held(Parameter, Buffer):
            if name != "num_batches_tracked":
                yield name, box

    def _size_of(self, shape: tuple[int, ...]) -> int:
        """Return the size that an input of this shape means."""
        raise NotImplementedError

    def _size_from(self, state: dict[str, tuple[int, ...]]) -> int | None:
        """Return the size that arrays of these shapes mean, by attribute name, if one does."""
        raise NotImplementedError

    def has_uninitialized_params(self) -> bool:
        """Return whether the layer waits for its first call."""
        return True

    def initialize_parameters(self, input: Any) -> None:
        """Make the parameters for an input, and become an ordinary layer.

        Args:
            input: An array that the layer will be called with.
        """
        self._grow(self._size_of(jnp.shape(input)))

    def forward(self, input: Any, *args: Any, **kwargs: Any) -> Any:
        self.initialize_parameters(input)
        return self.forward(input, *args, **kwargs)  # of the class that it has become

    def _twin_of(self, size: int) -> Module:
        """Return the ordinary layer that this one becomes."""
        settings = dict(self._settings)
        for _, box in self._unsized():
            settings["dtype"] = box.dtype  # which may have been cast since
        if "_seed" in self.__dict__:
            settings["rngs"] = _Replay(self._seed.key)
        return self.cls_to_become(**{self._size_name: size}, **settings)

    def _grow(self, size: int) -> Callable[[], None]:
        """Become an ordinary layer; return what makes it lazy again."""
        active = scopes.current()
        inside = active is not None and not active.encloses(self._birth)
        with _outside() if inside else _here():
            twin = self._twin_of(size)
            boxes = dict(self._unsized())
            before = {box: box._peek() for box in boxes.values()} if inside or not active else {}
            lazy, attributes = type(self), dict(self.__dict__)
            for name, box in boxes.items():
                settled = twin.__dict__[name]
                array = _beside(settled.value, before.get(box))
                _change_class(box, type(settled))
                write(box, array)
        for name in ("_seed", "_settings"):
            self.__dict__.pop(name, None)
        self.__dict__[self._size_name] = size
        _change_class(self, self.cls_to_become)

        def undo() -> None:
            self.__dict__.clear()
            self.__dict__.update(attributes)
            with _outside() if inside else _here():
                for box, array in before.items():
                    write(box, array)
                    _change_class(box, _UNINITIALIZED[type(box)])
            _change_class(self, lazy)

        if inside and active is not None:
            active.grew(self, size, undo)
        return undo

    # State.

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        for name, box in self._own_state():
            keep = keep_vars or isinstance(box, _Uninitialized)
            destination[prefix + name] = box if keep else box.value

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        plan = local_metadata["plan"]
        names = {name for name, _ in self._own_state()}
        given = {
            name: state_dict[prefix + name]
            for name in names
            if prefix + name in state_dict
            and not type(state_dict[prefix + name]).__name__.startswith("Uninitialized")
        }
        size = self._size_from({name: tuple(jnp.shape(v)) for name, v in given.items()})
        twin = None if size is None else self._twin_of(size)
        for name, box in self._own_state():
            key = prefix + name
            plan.known.add(key)
            if key not in state_dict:
                missing_keys.append(key)
            elif name in given:
                try:
                    like = box if twin is None else twin.__dict__[name]
                    if isinstance(like, _Uninitialized):
                        raise ValueError(f"{key}: the size of the input doesn't follow from it.")
                    plan.writes[box] = loaded(given[name], like, plan.assign)
                except ValueError as error:
                    error_msgs.append(str(error).replace("{key}", key))
        if size is not None:
            plan.extra.append((_Becoming(self), size))


class _Becoming:
    """What loading a state does to a Lazy layer before it writes the arrays."""

    def __init__(self, layer: Lazy) -> None:
        self._layer = layer
        self._undo: Callable[[], None] | None = None

    def get_extra_state(self) -> None:
        """Return nothing: see :meth:`set_extra_state`."""

    def set_extra_state(self, size: int | None) -> None:
        """Make the layer an ordinary one or, for None, a Lazy one again."""
        if size is not None:
            self._undo = self._layer._grow(size)
        elif self._undo is not None:
            self._undo()


class _Seed:
    """A key that a trace doesn't depend on: all are equal."""

    def __init__(self, key: Any) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Seed)

    def __hash__(self) -> int:
        return hash(_Seed)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Seed:
        return self

    def __reduce__(self) -> Any:
        data, impl = np.asarray(jax.random.key_data(self.key)), jax.random.key_impl(self.key)
        return _seed, (data, str(impl))


class _Replay(Rngs):
    """Streams that give one key, whatever they are asked for."""

    def __init__(self, key: Any) -> None:
        super().__init__()
        self._seed = _Seed(key)

    def next(self, name: str) -> Any:
        """Return the key."""
        return self._seed.key


_UNINITIALIZED = {Parameter: UninitializedParameter, Buffer: UninitializedBuffer}


def _seed(data: Any, impl: str) -> _Seed:
    return _Seed(jax.random.wrap_key_data(jnp.asarray(data), impl=impl))


def _rebuilt(cls: type[Any], data: Any, attributes: dict[str, Any]) -> Any:
    return cls.own(jnp.asarray(data), **attributes)


def _content(box: Variable) -> Any:
    active = scopes.current()
    return box._peek() if active is None else active.look(box)


def _change_class(node: Any, cls: type[Any]) -> None:
    object.__setattr__(node, "__class__", cls)
    node._signature = None
    node._changed(structure=True)


def _beside(array: Any, old: Any) -> Any:
    """Return an array where an older one was put."""
    return array if old is None or not old.committed else jax.device_put(array, old.sharding)


@contextmanager
def _here() -> Iterator[None]:
    yield


@contextmanager
def _outside() -> Iterator[None]:
    """Compute outside of all traces and scopes."""
    scope, scopes.active.scope = scopes.active.scope, None
    try:
        with _jax.set_current_trace(_jax.EVAL):
            yield
    finally:
        scopes.active.scope = scope
