"""The transaction: what a traced function reads and writes, until it has ended well.

While jaxsaw traces a function, a :class:`Scope` is innermost in its thread. Reading a box asks
the scope; writing records the new value there and leaves the box alone. The transform that
opened the scope then takes :attr:`Scope.written` and commits it to the enclosing scope or, where
there is none, to the boxes. When tracing raises, the scope is dropped and nothing has changed.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from jaxsaw import _jax
from jaxsaw.state import pack

if TYPE_CHECKING:
    from jaxsaw.state.variable import Variable

_serials = itertools.count(1)


class _Active(threading.local):
    scope: Scope | None = None


active = _Active()


def current() -> Scope | None:
    """Return the innermost scope of this thread."""
    return active.scope


def innermost() -> Scope:
    """Return the innermost scope of this thread, where there is one for sure."""
    assert active.scope is not None
    return active.scope


def around() -> list[Scope]:
    """Return the scopes of this thread, the innermost first."""
    found, scope = [], active.scope
    while scope is not None:
        found.append(scope)
        scope = scope.parent
    return found


@contextmanager
def transaction() -> Iterator[Scope]:
    """Open a scope whose writes are committed at the end, all of them or, on an error, none."""
    scope = Scope()
    try:
        with scope:
            yield scope
        scope.commit({box: scope.values[box] for box in scope.written})
    except BaseException:
        scope.undo()
        raise


@dataclass(frozen=True, eq=False)
class Lanes:
    """What a scope has whose code is for one of many slices, in ``js.vmap`` or ``js.scan``.

    Attributes:
        own: The boxes that have a value for each slice, and its axis; all others are shared.
        index: The number of the slice, traced.
        randomness: Under ``js.vmap``, what a draw from a shared stream means: "error", "same" or
            "different".
    """

    own: dict[Variable, int]
    index: Any
    randomness: str | None = None


@dataclass(eq=False)
class Growth:
    """What was added to an object, and what takes it away again; None once that has run."""

    node: Any
    what: Any
    undo: Callable[[], None] | None


class Scope:
    """One transaction.

    Args:
        values: Boxes that have another value inside from the start (the arguments of a
            transform, such as the parameters that a gradient is taken of).
        lift: Called with a box that is read for the first time and that neither this scope nor
            ``values`` has a value for; returns the value to use. By default the enclosing
            scope, or the box, is asked.

    Attributes:
        values: The present value of each box that has one here.
        written: The boxes that were written or made here, in order; a dict used as a set.
        created: The boxes that were made here.
        growth: What the library added to existing objects, here or in a scope inside of this
            one that has ended well (see :meth:`grew`).
        lanes: Set where the code inside is for one of many slices.
        serials: The numbers that mark objects made here, or in a scope that was committed here.
        trace: The JAX trace that was current when the scope was entered. Only there may boxes
            be written: a value from an inner, raw transform would leak.
    """

    __slots__ = (
        "created",
        "growth",
        "lanes",
        "lift",
        "parent",
        "serials",
        "trace",
        "values",
        "written",
    )

    def __init__(
        self,
        values: dict[Variable, Any] | None = None,
        lift: Callable[[Variable], Any] | None = None,
    ) -> None:
        self.values: dict[Variable, Any] = dict(values or {})
        self.written: dict[Variable, None] = {}
        self.created: set[Variable] = set()
        self.lift = lift
        self.lanes: Lanes | None = None
        self.parent: Scope | None = None
        self.trace: Any = None
        self.serials = {next(_serials)}
        self.growth: list[Growth] = []

    def __enter__(self) -> Scope:
        self.parent = active.scope
        self.trace = _jax.current_trace()
        active.scope = self
        return self

    def __exit__(self, kind: type | None, *rest: Any) -> None:
        active.scope = self.parent
        if kind is not None:
            self.undo()
        elif self.parent is not None:
            self.parent.growth += self.growth

    def read(self, box: Variable) -> Any:
        """Return the value of a box as the code inside sees it."""
        if box in self.values:
            return self.values[box]
        if self.lift is not None:
            value = self.values[box] = self.lift(box)
            return value
        return box._read() if self.parent is None else self.parent.read(box)

    def look(self, box: Variable) -> Any:
        """Return what :meth:`read` does, for a look at shape and dtype only."""
        scope: Scope | None = self
        while scope is not None:
            if box in scope.values:
                return scope.values[box]
            scope = scope.parent
        return box._peek()

    def write(self, box: Variable, value: Any) -> None:
        """Record a new value.

        Raises:
            TypeError: In a raw JAX transform that is nested in the scope's own trace.
        """
        if _jax.current_trace() is not self.trace:
            raise TypeError(
                f"{box.path} was written inside a raw jax transform, where the new value would "
                "be lost. Use the jaxsaw twin, such as js.jit or js.vmap, or return the value."
            )
        self.values[box] = value
        self.written[box] = None

    def create(self, box: Variable, value: Any) -> None:
        """Record a box that is made while this scope is innermost."""
        self.created.add(box)
        self.values[box] = value
        self.written[box] = None

    def slice(self, box: Variable) -> None:
        """Read the slice of a box that is in :attr:`Lanes.own`, but came without a value."""
        assert self.lanes is not None
        axis, index = self.lanes.own[box], self.lanes.index
        whole = box._read() if self.parent is None else self.parent.read(box)
        with _jax.set_current_trace(self.trace):
            self.values[box] = jax.lax.dynamic_index_in_dim(whole, index, axis, keepdims=False)

    def grew(self, node: Any, what: Any, undo: Callable[[], None]) -> None:
        """Record that the library added a box, which isn't new to the trace, to an object.

        Args:
            node: The object; ``node._grow(what)`` adds the same to another of its kind.
            what: What was added.
            undo: Takes it away again, if this scope or one around it fails.
        """
        self.growth.append(Growth(node, what, undo))

    def undo(self) -> None:
        """Take back what :meth:`grew` was told of, the last first."""
        for growth in reversed(self.growth):
            undo, growth.undo = growth.undo, None
            if undo is not None:
                undo()
        self.growth.clear()

    def grown(self) -> list[tuple[Any, Any]]:
        """Return the objects to which something was added, and what, where it is still there."""
        return [(growth.node, growth.what) for growth in self.growth if growth.undo is not None]

    def close(self) -> None:
        """Let go of what belongs to the JAX trace, which ends now."""
        self.values.clear()
        self.trace = self.lift = None

    def commit(self, values: dict[Variable, Any], *, exposed: bool = True) -> None:
        """Pass values on to the enclosing scope or, outermost, to the boxes.

        Args:
            values: The final values of (some of) the boxes in :attr:`written`, as they are
                outside of the transform.
            exposed: Whether somebody else may hold the arrays.
        """
        if self.parent is None:
            pack.commit(values, exposed=exposed)
            return
        for box, value in values.items():
            if box in self.created:
                self.parent.create(box, value)
            else:
                self.parent.write(box, value)
        self.parent.serials |= self.serials

    def encloses(self, serial: int) -> bool:
        """Return whether an object with that serial of birth was made here or further out."""
        scope: Scope | None = self
        while scope is not None:
            if serial in scope.serials:
                return True
            scope = scope.parent
        return False


def serial_of_birth() -> int:
    """Return the serial of the innermost scope, or 0; objects are marked with it."""
    return 0 if active.scope is None else max(active.scope.serials)


def lanes_sharing(box: Variable) -> list[Lanes]:
    """Return the lanes around, outermost first, that share a box and what it holds."""
    found: list[Lanes] = []
    for scope in around():
        if box in scope.created:
            break
        lanes = scope.lanes
        if lanes is not None and lanes.randomness is not None and box not in lanes.own:
            found.append(lanes)
    return found[::-1]


def lanes_key(boxes: Sequence[Variable]) -> Any:
    """Return what a program that is traced here depends on, of the lanes around it."""
    if all(scope.lanes is None for scope in around()):
        return ()
    return tuple(tuple(lanes.randomness for lanes in lanes_sharing(box)) for box in boxes)
