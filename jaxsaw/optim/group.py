"""Parameter groups: which Parameters an optimizer trains, and with which hyper-parameters."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.state import scope as scopes
from jaxsaw.state.node import Node
from jaxsaw.state.stateful import Stateful
from jaxsaw.state.variable import Variable, write

Array = jax.Array


class HyperParameter(Variable):
    """A box for a number that may change while training, such as a learning rate.

    It keeps its dtype whatever is written. Where precision matters, a second box holds the rest
    that its dtype leaves of a double, so that ``1 - beta`` is what it would be in double:
    ``1 - float32(0.999)`` alone is off by 1e-5.

    Example:
        >>> lr = HyperParameter.of(0.1)
        >>> lr.value = 0.01
        >>> lr.dtype, float(lr)
        (dtype('float32'), 0.01)
    """

    __slots__ = ("_rest",)

    _rest: Variable | None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self._rest = None
        return self

    @classmethod
    def of(cls, number: Any, dtype: Any = jnp.float32, like: Any = None) -> HyperParameter:
        """Return a box for a number.

        Args:
            number: A Python number, a NumPy or JAX scalar, or a Variable.
            dtype: The dtype to keep it in.
            like: An array (or None) whose devices hold it, too.
        """
        return cls.own(place(_split(number, dtype)[0].reshape(()), like))

    @property
    def value(self) -> Any:
        """The array in the box. What is assigned is cast to its dtype."""
        return super().value

    @value.setter
    def value(self, new: Any) -> None:
        high, low = _split(new, self.dtype)
        shape = self.shape
        if high.size != 1 and high.shape != shape:
            raise ValueError(f"{self.path}: expected a number, got shape {high.shape}.")
        for box, part in ((self, high), (self._rest, low)):
            if box is not None:
                full = part if part.shape == shape else jnp.broadcast_to(part.reshape(()), shape)
                write(box, place(full, look(box)))

    def __setitem__(self, index: Any, new: Any) -> None:
        old = self.value
        self.value = new if index is ... else old.at[index].set(jnp.asarray(new, old.dtype))

    def __float__(self) -> float:
        return float(self.number())

    def number(self) -> Any:
        """Return the number as it was written, in double; inside a trace, the traced array."""
        high, low = self.value, None if self._rest is None else self._rest.value
        if isinstance(high, jax.core.Tracer):
            return high
        high = np.asarray(high)
        total = high.astype(np.float64)
        if low is not None:
            total = total + np.asarray(low, np.float64)
        if high.shape:
            return total
        short = float(str(high))
        exact = low is None or _split(short, high.dtype) == (high, np.asarray(low))
        return short if exact else float(total)

    def complement(self) -> Any:
        """Return one minus the number, as precisely as if computed in double."""
        rest = 1 - self.value
        return rest if self._rest is None else rest - self._rest.value


@jax.jit
def bias_correction(complement: Any, steps: Any) -> Any:
    """Return ``1 - beta ** steps``, accurately also where ``beta`` is close to one.

    Args:
        complement: ``1 - beta``, a scalar.
        steps: How many steps were done, integers of any shape.

    Example:
        >>> round(float(bias_correction(jnp.float32(0.001), jnp.int32(1))), 8)
        0.001
    """
    return -jnp.expm1(steps.astype(complement.dtype) * jnp.log1p(-complement))


class ParamGroup(Stateful, MutableMapping):
    """Parameters and the hyper-parameters that they are trained with, by PyTorch's keys.

    Reading a number gives its Variable; assigning one writes that Variable, so that nothing is
    compiled again. Flags (``amsgrad``, ...) are static.

    Example:
        >>> from jaxsaw import nn, optim
        >>> model = nn.Linear(2, 1, rngs=js.Rngs(0))
        >>> group = optim.SGD(model.parameters(), lr=0.1).param_groups[0]
        >>> group["lr"] = 0.01
        >>> float(group["lr"]), [p.shape for p in group["params"]]
        (0.01, [(1, 2), (1,)])
    """

    _params: tuple[Any, ...]

    def __init__(
        self,
        params: Sequence[Any],
        names: Sequence[str],
        settings: dict[str, Any],
        *,
        static: Sequence[str] = (),
        precise: Sequence[str] = (),
        dormant: Sequence[str] = (),
        dtype: Any = jnp.float32,
        like: Any = None,
    ) -> None:
        """Box the numbers among the settings.

        Args:
            params: The Parameters.
            names: A name for each.
            settings: All but ``params``.
            static: Numbers that aren't boxed.
            precise: Numbers of which ``complement()`` is needed.
            dormant: Numbers that stay static as long as they are zero.
            dtype: The dtype of boxes.
            like: An array whose devices hold the boxes, too.
        """
        self.__dict__["_params"] = tuple(params)  # not adopted: they belong to their module
        self._names = tuple(names)
        self._dormant = tuple(dormant)
        rests: dict[str, Variable] = {}

        def box(key: str, number: Any, precise: bool) -> HyperParameter:
            hyper = HyperParameter.of(number, dtype, like)
            if precise:
                rest = _split(number, dtype)[1].reshape(())
                hyper._rest = rests[key] = Variable.own(place(rest, like))
            return hyper

        entries: dict[str, Any] = {}
        for key, value in settings.items():
            if key in static or (key in dormant and _is_zero(value)):
                entries[key] = value
            elif _is_number(value):
                entries[key] = box(key, value, key in precise)
            elif isinstance(value, tuple | list) and value and all(map(_is_number, value)):
                entries[key] = tuple(
                    box(f"{key}.{i}", item, key in precise) for i, item in enumerate(value)
                )
            else:
                entries[key] = value
        self._entries = entries
        self._rests = rests

    def __getitem__(self, key: str) -> Any:
        if key == "params":
            return list(self._params)
        try:
            return self._entries[key]
        except KeyError:
            known = ", ".join(self)
            raise KeyError(f"{self.path} has no {key!r}; it has: {known}.") from None

    def __setitem__(self, key: str, value: Any) -> None:
        if key == "params":
            raise TypeError(f"{self.path}['params'] is fixed; see optimizer.add_param_group(...).")
        entry = self._entries.get(key)
        if entry is value and entry is not None:
            return
        if isinstance(entry, HyperParameter):
            _check_number(f"{self.path}[{key!r}]", value)
            with at_once():
                entry.value = value
        elif isinstance(entry, tuple) and entry and isinstance(entry[0], HyperParameter):
            if not isinstance(value, tuple | list) or len(value) != len(entry):
                raise TypeError(
                    f"{self.path}[{key!r}]: expected {len(entry)} numbers, got {value!r}."
                )
            for item in value:
                _check_number(f"{self.path}[{key!r}]", item)
            with at_once():
                for box, item in zip(entry, value, strict=True):
                    if box is not item:
                        box.value = item
        elif key in self._dormant:
            self._waken(key, value)
        else:
            self._entries[key] = value

    def __delitem__(self, key: str) -> None:
        if key == "params" or self.is_boxed(key):
            raise TypeError(f"{self.path}[{key!r}] can't be deleted.")
        del self._entries[key]

    def __iter__(self) -> Iterator[str]:
        yield "params"
        yield from self._entries

    def __len__(self) -> int:
        return 1 + len(self._entries)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = Stateful.__hash__

    def __repr__(self) -> str:
        return "\n".join(
            f"    {key}: {plain(value)}" for key, value in self.items() if key != "params"
        )

    def numbers(self) -> dict[str, Any]:
        """Return the settings with plain numbers (in a trace, arrays) in the place of boxes."""
        return {key: plain(value) for key, value in self._entries.items()}

    def remember(self, key: str, number: Any) -> HyperParameter:
        """Return the box ``key``, made of ``number`` where the group has none yet."""
        if key not in self._entries:
            lr = self._entries["lr"]
            self._entries[key] = HyperParameter.of(number, lr.dtype, look(lr))
        return self._entries[key]

    def _waken(self, key: str, number: Any) -> None:
        """Box a number that was zero so far, and have the optimizer make what it needs then."""
        _check_number(f"{self.path}[{key!r}]", number)
        if _is_zero(number):
            return
        lr = self._entries["lr"]
        owner = self._owner[0]() if self._owner is not None else None
        self._entries[key] = HyperParameter.of(number, lr.dtype, look(lr))
        if owner is not None:
            owner._fill_slots(self)

    def is_boxed(self, key: str) -> bool:
        """Return whether a setting is a number in a box (or several)."""
        entry = self._entries.get(key)
        first = entry[0] if isinstance(entry, tuple) and entry else entry
        return isinstance(first, HyperParameter)

    def _edges(self) -> Iterator[tuple[str, Node]]:
        for name, node in super()._edges():
            kind, _, rest = name.partition(".")
            if kind == "_entries":
                yield rest, node
            elif kind == "_rests":
                yield f"{rest}.rest", node

    def _link(self, name: str, value: Any) -> None:
        if not name.startswith("_params"):
            super()._link(name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for key, rest in self._rests.items():
            name, _, index = key.partition(".")
            entry = self._entries[name]
            (entry[int(index)] if index else entry)._rest = rest


@contextmanager
def at_once() -> Iterator[scopes.Scope]:
    """Commit what is written within when it ends well, all at one instant."""
    with scopes.Scope() as scope:
        yield scope
    scope.commit({box: scope.values[box] for box in scope.written})


def look(box: Variable) -> Any:
    """Return the array in a box, for a look at its shape, dtype and sharding only."""
    active = scopes.current()
    return box._peek() if active is None else active.look(box)


def place(array: Any, like: Any) -> Any:
    """Return a strongly typed array, on the devices of ``like`` where that is bound to some."""
    if isinstance(array, jax.core.Tracer):
        return array
    if isinstance(like, jax.Array) and not isinstance(like, jax.core.Tracer) and like.committed:
        return jax.device_put(array, like.sharding)
    return jnp.asarray(array, array.dtype)


def plain(value: Any) -> Any:
    """Return the number in a HyperParameter, or a tuple of them; anything else as it is."""
    if isinstance(value, HyperParameter):
        return value.number()
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value


def _split(number: Any, dtype: Any) -> tuple[Any, Any]:
    """Return a number in ``dtype``, and the rest that it leaves of the double."""
    if isinstance(number, HyperParameter):
        number = number.number()
    if isinstance(number, Variable):
        number = number.value
    if isinstance(number, jax.core.Tracer):
        high = jax.lax.convert_element_type(number, dtype)
        return high, jnp.zeros(high.shape, dtype)
    double: Any = np.asarray(number, np.float64)
    rounded = double.astype(dtype)
    return rounded, (double - rounded.astype(np.float64)).astype(dtype)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | str) or value is None:
        return False
    if isinstance(value, int | float):
        return True
    dtype = getattr(value, "dtype", None)
    return dtype is not None and np.size(value) == 1 and jnp.issubdtype(dtype, jnp.number)


def _is_zero(value: Any) -> bool:
    return not isinstance(value, jax.core.Tracer) and _is_number(value) and float(value) == 0


def _check_number(who: str, value: Any) -> None:
    if isinstance(value, bool | str) or not (
        isinstance(value, int | float) or hasattr(value, "dtype")
    ):
        raise TypeError(f"{who}: expected a number, got {value!r}.")
