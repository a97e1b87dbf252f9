"""Named random streams: a key and a number of draws, both of them state.

The n-th draw from a stream is ``fold_in(key, n)``, so what a stream gives depends on its seed and
on how often it was asked, and on nothing else.
"""

from __future__ import annotations

import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.state import scope as scopes
from jaxsaw.state.node import Node
from jaxsaw.state.stateful import Stateful
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.stack import axes_of, mark

IMPL = "threefry2x32"


class Rngs(Stateful):
    """Random streams by name.

    ``rngs.next("dropout")``, or ``rngs.dropout()``, draws a key from the stream ``dropout``.
    Layers draw their initial weights from ``params``, and what they need in a forward pass from
    ``dropout``.

    Args:
        default_seed: A seed (or typed key) from which every stream that isn't named gets a key
            of its own. ``rngs()`` draws from it directly.
        **streams: Seeds (or typed keys) of named streams.

    Raises:
        TypeError: If a seed is neither an integer nor a typed key.

    Example:
        >>> import jaxsaw as js
        >>> rngs = js.Rngs(params=0, dropout=1)
        >>> key = rngs.next("params")
        >>> rngs.counts
        {'params': 1, 'dropout': 0}
    """

    def __init__(self, default_seed: Any = None, /, **streams: Any) -> None:
        self._default: Any = None
        self._streams: Any = {}  # _Stream by name
        if default_seed is not None:
            self._default = _Stream(_key(default_seed, "default_seed"))
        _warn_of_equal_seeds(streams)
        for name, seed in streams.items():
            self._streams[name] = _Stream(_key(seed, name))

    def next(self, name: str) -> jax.Array:
        """Draw the next key of a stream.

        Args:
            name: The stream.

        Returns:
            A typed key.

        Raises:
            KeyError: If there is neither such a stream nor a default seed.
        """
        stream = self._streams.get(name)
        if stream is None:
            stream = self._derive(name)
        return stream.draw(self._key_of(name, stream))

    def __call__(self) -> jax.Array:
        """Draw the next key from the default seed itself."""
        if self._default is None:
            raise KeyError(f"{self._title()} has no default seed. Pass one: Rngs(0).")
        return self._default.draw(self._default.key.value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("shape", "dtype", "ndim", "aval"):
            raise AttributeError(name)  # what is asked of things that may be arrays

        def draw() -> jax.Array:
            return self.next(name)

        return draw

    @property
    def counts(self) -> dict[str, int]:
        """How many keys were drawn from each named or used stream."""
        return {name: np.asarray(stream.count).tolist() for name, stream in self._streams.items()}

    def fork(self, n: int) -> list[Rngs]:
        """Draw one key from every stream and split it among ``n`` new objects.

        Args:
            n: How many.

        Returns:
            ``n`` independent Rngs with the same streams.
        """
        keys = {name: self.next(name) for name in self._streams}
        default = None if self._default is None else self()
        children = []
        for i in range(n):
            child = Rngs(None if default is None else jax.random.fold_in(default, i))
            for name, key in keys.items():
                child._streams[name] = _Stream(jax.random.fold_in(key, i))
            children.append(child)
        return children

    def reseed(self, **seeds: Any) -> None:
        """Start streams again from new seeds (or typed keys), at their first draw.

        Args:
            **seeds: The new seed of each stream; one that doesn't exist yet is added.
        """
        _warn_of_equal_seeds(seeds)
        keys = {name: _key(seed, name) for name, seed in seeds.items()}
        for name, key in keys.items():
            stream = self._streams.get(name)
            if stream is None or stream.key is None:
                self._streams[name] = _Stream(key)
            else:
                stream.key.value = key
                stream.count.value = 0

    def __contains__(self, name: object) -> bool:
        return name in self._streams or self._default is not None

    def __repr__(self) -> str:
        return f"Rngs({', '.join(self._streams)})"

    def _key_of(self, name: str, stream: _Stream) -> Any:
        if stream.key is not None:
            return stream.key.value
        return jax.random.fold_in(self._default.key.value, zlib.crc32(name.encode()))

    def _derive(self, name: str) -> _Stream:
        """Add a stream that takes its key from the default seed, also inside a trace."""
        if self._default is None:
            known = ", ".join(self._streams) or "none"
            raise KeyError(
                f"{self._title()} has no stream {name!r} (it has: {known}). "
                f"Pass Rngs({name}=0) or a default, Rngs(0)."
            )
        stream = _Stream.__new__(_Stream)
        stream.__dict__.update(key=None, count=_zero_beside(self._default.key))
        stream._link("count", stream.count)
        mark([stream], axes_of(self))
        dict.__setitem__(self._streams, name, stream)
        self._streams.attach(self, "_streams")
        self._signature = None
        self._changed(structure=True)
        active = scopes.current()
        if active is not None:
            active.grew(self, name, lambda: self._forget(name))
        return stream

    def _grow(self, name: str) -> Callable[[], None]:
        """Add what a trace or a checkpoint found missing; return what takes it away again."""
        if name not in self._streams:
            self._derive(name)
        return lambda: self._forget(name)

    def _on_demand(self, names: list[str]) -> list[str]:
        """Return the streams to add so that a checkpoint with these names fits."""
        if self._default is None:
            return []
        counts = [name.removesuffix(".count") for name in names if name.endswith(".count")]
        return [n for n in counts if f"{n}.key" not in names and n not in self._streams]

    def _first_value(self, name: str, names: list[str]) -> Any:
        """Return what a box that a checkpoint with these names lacks was then, if that is known.

        It is for the count of a stream that follows from the default seed: zero.
        """
        stream = self._streams.get(name.removesuffix(".count"))
        is_derived = stream is not None and stream.key is None and name.endswith(".count")
        return jnp.zeros((), jnp.uint32) if is_derived else None

    def _forget(self, name: str) -> None:
        dict.pop(self._streams, name)
        self._signature = None
        self._changed(structure=True)

    def _edges(self) -> Iterator[tuple[str, Node]]:
        if self._default is not None:
            yield "_default", self._default
        yield from self._streams.items()

    def _title(self) -> str:
        return self.path


class _Stream(Stateful):
    """A key (None where it follows from the default seed) and how often it was drawn from."""

    def __init__(self, key: Any) -> None:
        self.key = None if key is None else Variable.own(key)
        self.count = Variable.own(jnp.zeros((), jnp.uint32))

    def draw(self, key: Any) -> Any:
        lanes = scopes.lanes_sharing(self.count) if scopes.active.scope is not None else ()
        if any(shared.randomness == "error" for shared in lanes):
            raise RuntimeError(
                f"{self.path}: a random stream that the lanes of js.vmap share was drawn from. Say "
                'randomness="different" for another key in each lane, randomness="same" for the '
                "same one, or map over a stack of streams, js.stack(rngs.fork(n))."
            )
        n = self.count.value
        self.count.value = n + 1
        key = jax.random.fold_in(key, n)
        for shared in lanes:
            if shared.randomness == "different":
                key = jax.random.fold_in(key, shared.index)
        return key


class _Ambient(threading.local):
    rngs: Rngs | None = None


_ambient = _Ambient()


@contextmanager
def using(rngs: Rngs | None) -> Iterator[None]:
    """Make ``rngs`` the one that layers and functions draw from, in this thread, within."""
    before = _ambient.rngs
    _ambient.rngs = rngs if rngs is not None else before
    try:
        yield
    finally:
        _ambient.rngs = before


def ambient(name: str, own: Rngs | None = None, who: str = "This function") -> Rngs:
    """Return the streams to draw from: those of the enclosing call, or else the layer's own.

    Args:
        name: The stream that will be asked for.
        own: The streams that the layer was built with.
        who: Who asks, for the error.

    Raises:
        RuntimeError: If there are none.
    """
    found = _ambient.rngs if _ambient.rngs is not None else own
    if found is None:
        raise RuntimeError(
            f"{who} draws random numbers in training mode and has no stream {name!r}. Pass "
            f"rngs=js.Rngs({name}=0) to this call or to the enclosing model(x, rngs=...), give "
            "rngs= to the layer's constructor, or call model.eval()."
        )
    return found


def _key(seed: Any, name: str) -> Any:
    if isinstance(seed, Variable):
        seed = seed.value
    dtype = getattr(seed, "dtype", None)
    if dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        return seed.copy() if seed.shape == () else _refuse(seed, name)
    shape = getattr(seed, "shape", ())
    if shape == (2,) and dtype == jnp.uint32:
        return jax.random.wrap_key_data(seed, impl=IMPL)
    integral = dtype is not None and jnp.issubdtype(dtype, jnp.integer) and shape == ()
    if isinstance(seed, bool) or not (isinstance(seed, int) or integral):
        _refuse(seed, name)
    return jax.random.key(seed, impl=IMPL)


def _refuse(seed: Any, name: str) -> Any:
    raise TypeError(f"Rngs: the seed of {name} must be an integer or a typed key, got {seed!r}.")


def _warn_of_equal_seeds(streams: dict[str, Any]) -> None:
    first: dict[int, str] = {}
    for name, seed in streams.items():
        if isinstance(seed, int) and first.setdefault(seed, name) != name:
            warnings.warn(
                f"Rngs: the streams {first[seed]!r} and {name!r} have the same seed {seed} and "
                "will draw the same keys.",
                stacklevel=3,
            )


def _zero_beside(key: Variable) -> Variable:
    """Return a count of zero that exists outside of all scopes, also when asked for in one.

    Where ``key`` has a value for each of many slices, the count has one too.
    """
    around = scopes.around()
    outermost = [scope.values[key] for scope in around if key in scope.created]
    array = outermost[-1] if outermost else key._peek()
    box = Variable.__new__(Variable)
    with jax.ensure_compile_time_eval():
        box._settle(jnp.zeros(array.shape, jnp.uint32))
    for scope in reversed(around):
        if scope.lanes is not None and key in scope.lanes.own:
            scope.lanes.own[box] = scope.lanes.own[key]
            scope.slice(box)
    return box
