"""A traced function as a value: a jaxpr whose inputs and outputs include boxes.

The user's function runs once, under ``jax.make_jaxpr``. Reading a box for the first time records
an equation without operands; afterwards these equations become inputs, and what was written
becomes outputs. The result can be run any number of times, in any surroundings.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax

from jaxsaw import _jax
from jaxsaw.state import scope as scopes
from jaxsaw.state.graph import boxes_of, graph_of
from jaxsaw.state.node import Node
from jaxsaw.state.stateful import Stateful
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.grads import Names
from jaxsaw.transforms.output import GradsOut, Old, Output


class World:
    """The boxes and objects that a call can see, numbered so that equal calls agree.

    Args:
        roots: The Statefuls and boxes among the arguments, and those that the function reaches.
        strays: Boxes that earlier traces met elsewhere; they keep their numbers.
    """

    def __init__(self, roots: Sequence[Node], strays: Sequence[Variable] = ()) -> None:
        self.roots = list(roots)
        self.boxes: list[Variable] = []
        self.ends: list[int] = []
        self.numbers: dict[Variable, int] = {}
        sharing: list[Any] = []
        firsts: dict[int, int] = {}
        for i, root in enumerate(self.roots):
            first = firsts.setdefault(id(root), i)
            before = len(self.boxes)
            found = [self.number(box) for box in boxes_of(root)] if first == i else []
            fresh = len(self.boxes) - before == len(found)
            sharing.append(first if fresh else (first, tuple(found)))
            self.ends.append(len(self.boxes))
        self.sharing = tuple(sharing)
        for box in strays:
            self.number(box)

    def number(self, box: Variable) -> int:
        """Return the number of a box; one that no root holds gets the next, as a stray."""
        number = self.numbers.get(box)
        if number is None:
            number = self.numbers[box] = len(self.boxes)
            self.boxes.append(box)
        return number

    def strays(self) -> list[Variable]:
        """Return the boxes that no root holds."""
        return self.boxes[self.ends[-1] if self.ends else 0 :]

    def by_root(self, numbers: Iterable[int]) -> list[list[int]]:
        """Return numbers in order, in one list for each root that is the first to hold some."""
        parts: dict[int, list[int]] = {}
        for number in sorted(numbers):
            parts.setdefault(bisect_right(self.ends, number), []).append(number)
        return list(parts.values())

    def locate(self, node: Node) -> Any:
        """Return where to find an object again in an equal world, or the object itself."""
        for i, root in enumerate(self.roots):
            if root is node:
                return i, None
        for i, root in enumerate(self.roots):
            if isinstance(root, Stateful):
                for j, other in enumerate(graph_of(root).nodes):
                    if other is node:
                        return i, j
        return node

    def find(self, place: Any) -> Any:
        """Return the object at a place given by :meth:`locate`."""
        if isinstance(place, Node):
            return place
        root = self.roots[place[0]]
        return root if place[1] is None else graph_of(root).nodes[place[1]]

    def names(self, grads: GradsOut) -> Names:
        """Return the static part of gradients that a program returned."""
        return Names(grads.names, [self.boxes[number] for number in grads.numbers])


class Program:
    """A function, traced for one structure of state and one set of shapes.

    Attributes:
        closed: The jaxpr. Its inputs are the boxes in ``reads``, then the arguments' arrays; its
            outputs the new values of the boxes in ``writes``, then what ``out`` needs.
        reads: Numbers of the boxes that are inputs.
        writes: Numbers of the boxes that get new values.
        steady: For each of ``writes``, whether shape and dtype stay as they are.
        growth: What the library added to objects while tracing, in terms of the world.
        may_raise: Whether running it may call back into Python.
        captured: Tracers of enclosing traces that it closed over; its last inputs.
        out: Rebuilds the function's result.
    """

    def __init__(self, fn: Callable[..., Any], arrays: Sequence[Any], world: World) -> None:
        """Trace ``fn``, which takes arrays, reads and writes boxes, and returns anything."""
        seen: dict[int, Any] = {}
        outer = scopes.current()

        def lift(box: Variable) -> Any:
            number = world.number(box)
            value = box._peek() if outer is None else outer.look(box)
            tracer = _jax.bind_read(scope.trace, number, _jax.typeof(value))
            seen[number] = tracer
            return tracer

        scope = scopes.Scope(lift=lift)
        result: dict[str, Any] = {}

        def body(*flat: Any) -> list[Any]:
            with scope:
                out = fn(*flat)
                result["out"], outs = Output.of(out, scope, world)
            written = {
                box: scope.values[box]
                for box in scope.written
                if box not in scope.created
                and scope.values[box] is not seen.get(world.numbers.get(box, -1))
            }
            result["written"] = [world.number(box) for box in written]
            result["read"] = sorted(seen)
            seen.clear()
            scope.close()
            return [*written.values(), *outs]

        try:
            closed = jax.make_jaxpr(body)(*arrays)
            if outer is None:
                result["out"].check()
        except BaseException:
            scope.undo()
            raise
        self._scope: scopes.Scope | None = scope
        self.out: Output = result["out"]
        self.writes: list[int] = result["written"]
        self.reads: list[int] = result["read"]
        self.growth = [(world.locate(node), what) for node, what in scope.grown()]
        self.closed, self.captured = _jax.lift_reads(closed, self.reads)
        closed = self.closed
        avals = [v.aval for v in closed.jaxpr.invars]
        of = dict(zip(self.reads, avals, strict=False))
        outvars = closed.jaxpr.outvars
        for number in self.writes:
            if number not in of:
                value = world.boxes[number]
                of[number] = _jax.typeof(value._peek() if outer is None else outer.look(value))
        self.steady = [
            same_type(of[number], var.aval)
            for number, var in zip(self.writes, outvars, strict=False)
        ]
        self.may_raise = _jax.may_raise(closed.jaxpr)
        if self.captured and _jax.current_trace() is _jax.EVAL:
            scope.undo()
            raise jax.errors.UnexpectedTracerError(
                "A compiled function used a tracer that was kept from another trace, which has "
                "ended. Keep what a traced function computes in a js.Variable, or return it."
            )
        self._copied = _aliases(closed.jaxpr, len(self.reads), len(self.writes))

    def release(self) -> Callable[[], None]:
        """Let go of the objects that were there when it was traced.

        Returns:
            What takes back what tracing added to them.
        """
        scope, self._scope = self._scope, None
        assert scope is not None
        return scope.undo

    def renumber(self, old: World, new: World) -> None:
        """Go over to another numbering of the same boxes."""
        self.reads = [new.number(old.boxes[i]) for i in self.reads]
        self.writes = [new.number(old.boxes[i]) for i in self.writes]
        for leaf in self.out.leaves:
            if isinstance(leaf, GradsOut):
                leaf.numbers = [new.number(old.boxes[i]) for i in leaf.numbers]
            elif isinstance(leaf, Old):
                leaf.place = new.locate(old.find(leaf.place))

    def run(self, boxes: Sequence[Any], arrays: Sequence[Any], name: str) -> Any:
        """Run in the current trace.

        Args:
            boxes: Values of the boxes in ``reads``.
            arrays: The arguments' arrays.
            name: How to call the computation.

        Returns:
            The new values of ``writes``, and the arrays for ``out``.
        """
        if _jax.current_trace() is _jax.EVAL:  # JAX is looking for the operation that made a NaN
            outs = self.evaluate(boxes, arrays)
        else:
            outs = _jax.call_jaxpr(self.closed, [*boxes, *arrays, *self.captured], name)
        outs = list(outs)
        for i in self._copied:
            outs[i] = _jax.copy_p.bind(outs[i])
        return outs[: len(self.writes)], outs[len(self.writes) :]

    def evaluate(self, boxes: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
        """Run in the current trace, operation by operation; return all outputs."""
        return _jax.eval_jaxpr(self.closed, [*boxes, *arrays, *self.captured])

    def step(
        self, values: Mapping[int, Any], arrays: Sequence[Any]
    ) -> tuple[dict[int, Any], list[Any]]:
        """Run in the current trace, inline.

        Args:
            values: The value of each box that is read, by number.
            arrays: The arguments' arrays.

        Returns:
            The new values by number, and the arrays for ``out``.
        """
        outs = self.evaluate([values[number] for number in self.reads], arrays)
        n = len(self.writes)
        return dict(zip(self.writes, outs[:n], strict=True)), outs[n:]

    def types(self) -> tuple[dict[int, Any], list[Any]]:
        """Return the abstract values of what :meth:`step` returns."""
        avals = [var.aval for var in self.closed.jaxpr.outvars]
        n = len(self.writes)
        return dict(zip(self.writes, avals[:n], strict=True)), avals[n:]


class Recorded:
    """A function of arrays for a JAX transform that runs it just once.

    Args:
        fn: Takes a list of arrays, reads and writes boxes, and returns anything.
        nodes: The Statefuls among its arguments.
    """

    def __init__(self, fn: Callable[[list[Any]], Any], nodes: Sequence[Node]) -> None:
        self.fn = fn
        self.world = World(nodes)
        self.scope = scopes.Scope()

    def __call__(self, arrays: list[Any]) -> tuple[list[Any], list[Any]]:
        """Return the values of what was written, and the arrays of the result."""
        scope = self.scope
        with scope:
            self._out, outs = Output.of(self.fn(arrays), scope, self.world)
        self._written = [box for box in scope.written if box not in scope.created]
        written = [scope.values[box] for box in self._written]
        scope.close()
        return written, outs

    def commit(self, written: Sequence[Any], outs: Sequence[Any]) -> Any:
        """Write what was written; return the result."""
        self.scope.commit(dict(zip(self._written, written, strict=True)))
        return self._out.build(outs, self.world)


def same_type(a: Any, b: Any) -> bool:
    """Return whether two abstract values agree in shape and dtype."""
    return a.shape == b.shape and a.dtype == b.dtype


def shown(aval: Any) -> str:
    """Return an abstract value as text, such as ``float32[8, 3]``."""
    return f"{aval.dtype}{list(aval.shape)}"


def _aliases(jaxpr: Any, n_boxes: int, n_writes: int) -> list[int]:
    """Return the outputs that need an array of their own.

    A written value or a result that is an input as it stands, or the same value twice, would
    share its buffer with something that the next call donates.
    """
    boxes = set(map(id, jaxpr.invars[:n_boxes]))
    inputs = set(map(id, jaxpr.invars))
    taken: set[int] = set()
    copied = []
    for i, var in enumerate(jaxpr.outvars):
        if isinstance(var, _jax.Literal):
            continue
        if id(var) in (inputs if i < n_writes else boxes) or (id(var) in taken):
            copied.append(i)
        if i < n_writes:
            taken.add(id(var))
    return copied
