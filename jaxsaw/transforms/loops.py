"""Loops that are compiled as loops: ``jax.lax``'s, with the state that a body writes in the carry.

A body is traced once, on its own, which tells what it reads and writes. What it writes joins the
carry, what it only reads stays a constant of the loop, and stacks among ``xs`` are sliced like
arrays. Then JAX gets a body of arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw import _jax
from jaxsaw.state import scope as scopes
from jaxsaw.state.node import Node
from jaxsaw.state.stateful import Stateful
from jaxsaw.state.variable import Variable, write
from jaxsaw.transforms.arguments import Flat, is_node, name_of
from jaxsaw.transforms.program import Program, World, same_type, shown
from jaxsaw.transforms.stack import axes_of, stacked_boxes
from jaxsaw.transforms.vmap import build_stacked


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Run ``carry, y = f(carry, x)`` for each slice of ``xs`` along its first axis.

    State that ``f`` reads and writes, wherever it comes from, is carried along: afterwards it is
    what the same Python loop would have left. Each step draws anew from random streams.

    Args:
        f: The body.
        init: The first carry: a pytree of arrays and Statefuls, which must come back as they are.
        xs: A pytree of arrays and stacks (see :func:`jaxsaw.stack`), of which ``f`` gets a slice.
        length: How many steps, where ``xs`` doesn't say so.
        reverse: Whether to begin at the end.
        unroll: How many steps are one iteration of the compiled loop.

    Returns:
        The last carry, and the stacked ``y``; objects that ``f`` makes and returns as ``y`` come
        as a stack.

    Raises:
        TypeError: If the carry, or a box that ``f`` writes, changes its structure, shape or dtype.
        ValueError: If the lengths of ``xs`` differ.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> seen = js.Variable(jnp.zeros(()))
        >>> def body(total, x):
        ...     seen.value += 1
        ...     return total + x, total
        >>> total, before = js.scan(body, 0.0, jnp.arange(4.0))
        >>> float(total), before.tolist(), float(seen)
        (6.0, [0.0, 0.0, 1.0, 3.0], 4.0)
    """
    with scopes.transaction():
        carry, slices = _Carry("js.scan", f, init), Flat(xs)
        world = World([*carry.flat.nodes, *slices.nodes])
        stacked = _stacked_boxes(slices)
        n, m = _length(length, slices, stacked), len(slices.arrays)
        parts = [*map(jnp.asarray, slices.arrays), *(box.value for box in stacked)]
        parts += [jnp.arange(n)] if stacked else []
        own = dict.fromkeys(stacked, 0)

        def body(*flat: Any) -> Any:
            arrays, rest = flat[: carry.size], flat[carry.size :]
            if stacked:
                scope = scopes.innermost()
                scope.lanes = scopes.Lanes(own, rest[-1])
                scope.values.update(zip(stacked, rest[m:], strict=False))
                for box in own.keys() - scope.values.keys():
                    scope.slice(box)
            out = f(carry.flat.rebuild(arrays), slices.rebuild(rest[:m]))
            if not isinstance(out, tuple) or len(out) != 2:
                raise TypeError(f"js.scan: {name_of(f)} must return (carry, y), got {out!r}.")
            return carry.arrays_of(out[0]), jax.tree.map(_at_this_step, out[1], is_leaf=is_node)

        kinds = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in parts]
        program = carry.settle(lambda arrays: Program(body, [*arrays, *kinds], world))
        places = {world.number(box): _row(box) for box in own}
        sliced = [number for number in program.writes if number in places]
        state = _State("js.scan", world, [program], apart=places)

        def step(carried: Any, x: Any) -> Any:
            arrays, written = carried
            new, outs = program.step(state.values(written), [*arrays, *x])
            slices = [new[number] for number in sliced]
            return (outs[: carry.size], state.written(new)), (outs[carry.size :], slices)

        (arrays, written), (ys, slices_written) = jax.lax.scan(
            step, (carry.arrays, state.first), parts, n, reverse, unroll
        )
        state.commit(written)
        for number, value in zip(sliced, slices_written, strict=True):
            write(world.boxes[number], value)
        axes = [None] * carry.size + [0] * len(ys)
        last, y = build_stacked(program.out, [*arrays, *ys], world, axes)
        return carry.flat.rebuild(last), y


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int | bool | None = None,
) -> Any:
    """Run ``val = body_fun(i, val)`` for ``i`` from ``lower`` up to, but not including, ``upper``.

    Args:
        lower: The first ``i``.
        upper: The end.
        body_fun: The body, which may read and write state and draw from random streams.
        init_val: The first value: a pytree of arrays and Statefuls.
        unroll: As in ``jax.lax.fori_loop``.

    Returns:
        The last value.

    Raises:
        TypeError: If the value, or a box that the body writes, changes its type.

    Example:
        >>> import jaxsaw as js
        >>> int(js.fori_loop(0, 4, lambda i, total: total + i, 0))
        6
    """
    with scopes.transaction():
        carry = _Carry("js.fori_loop", body_fun, init_val)
        world = World(carry.flat.nodes)
        dtype = jnp.result_type(lower, upper)

        def body(i: Any, *arrays: Any) -> Any:
            return carry.arrays_of(body_fun(i, carry.flat.rebuild(arrays)))

        first = jax.ShapeDtypeStruct((), jax.dtypes.canonicalize_dtype(dtype))
        program = carry.settle(lambda arrays: Program(body, [first, *arrays], world))
        state = _State("js.fori_loop", world, [program])

        def step(i: Any, carried: Any) -> Any:
            arrays, written = carried
            i = jax.lax.convert_element_type(i, first.dtype)
            new, outs = program.step(state.values(written), [i, *arrays])
            return outs, state.written(new)

        options = {} if unroll is None else {"unroll": unroll}
        init = (carry.arrays, state.first)
        arrays, written = jax.lax.fori_loop(lower, upper, step, init, **options)
        state.commit(written)
        return carry.flat.rebuild(arrays)


def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any
) -> Any:
    """Run ``val = body_fun(val)`` as long as ``cond_fun(val)`` is true.

    Args:
        cond_fun: Returns a boolean scalar; it may read state but not write any, nor draw.
        body_fun: The body, which may read and write state and draw from random streams.
        init_val: The first value: a pytree of arrays and Statefuls.

    Returns:
        The last value.

    Raises:
        TypeError: If the value, or a box that the body writes, changes its type, or if the
            condition writes one.

    Example:
        >>> import jaxsaw as js
        >>> int(js.while_loop(lambda n: n < 100, lambda n: n * 2, 3))
        192
    """
    with scopes.transaction():
        carry = _Carry("js.while_loop", body_fun, init_val)
        world = World(carry.flat.nodes)

        def body(*arrays: Any) -> Any:
            return carry.arrays_of(body_fun(carry.flat.rebuild(arrays)))

        def condition(*arrays: Any) -> Any:
            result = cond_fun(carry.flat.rebuild(arrays))
            if jnp.shape(result) != () or jnp.result_type(result) != jnp.bool_:
                raise TypeError(
                    f"js.while_loop: {name_of(cond_fun)} must return a boolean scalar, got "
                    f"{_jax.typeof(jnp.asarray(result))}."
                )
            return result.value if isinstance(result, Variable) else result

        program = carry.settle(lambda arrays: Program(body, arrays, world))
        test = Program(condition, carry.arrays, world)
        if test.writes:
            raise TypeError(
                f"js.while_loop: the condition {name_of(cond_fun)} wrote "
                f"{world.boxes[test.writes[0]].path}. Write state in the body only."
            )
        state = _State("js.while_loop", world, [program, test])

        def step(carried: Any) -> Any:
            arrays, written = carried
            new, outs = program.step(state.values(written), arrays)
            return outs, state.written(new)

        def go_on(carried: Any) -> Any:
            arrays, written = carried
            return test.step(state.values(written), arrays)[1][0]

        arrays, written = jax.lax.while_loop(go_on, step, (carry.arrays, state.first))
        state.commit(written)
        return carry.flat.rebuild(arrays)


def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """Combine the elements of arrays along an axis with an associative function, in parallel.

    Args:
        fn: Takes two slices of ``elems``, of any length along the axis, and combines them one by
            one. It is called a few times in all, and what it writes is what those calls write.
        elems: A pytree of arrays.
        reverse: Whether to begin at the end.
        axis: The axis.

    Returns:
        All partial results, in the structure of ``elems``.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> js.associative_scan(lambda a, b: a * b, jnp.arange(1.0, 5.0)).tolist()
        [1.0, 2.0, 6.0, 24.0]
    """
    with scopes.transaction():
        return jax.lax.associative_scan(fn, elems, reverse, axis)


class _Carry:
    """What a loop hands on from step to step, apart from state.

    Attributes:
        arrays: Its arrays at the beginning.
        size: How many there are.
    """

    def __init__(self, who: str, body: Any, init: Any) -> None:
        self.who = who
        self.body = body
        self.flat = Flat(init)
        self.arrays = [jnp.asarray(array) for array in self.flat.arrays]
        self.size = len(self.arrays)

    def arrays_of(self, new: Any) -> list[Any]:
        """Return the arrays of a carry that the body returned, if it has the structure of ours."""
        flat = Flat(new)
        if flat.tree != self.flat.tree:
            raise TypeError(
                f"{self.who}: {name_of(self.body)} got a carry of the structure {self.flat.tree} "
                f"and returned {flat.tree}."
            )
        arrays = []
        for ours, theirs in zip(self.flat.leaves, flat.leaves, strict=True):
            if isinstance(ours, Node):
                if theirs is not ours:
                    raise TypeError(
                        f"{self.who}: {name_of(self.body)} must return the {type(ours).__name__} "
                        f"in the carry ({ours.path}) as it is, after changing its state; it "
                        f"returned another {type(theirs).__name__}."
                    )
            elif isinstance(theirs, Stateful):
                raise TypeError(
                    f"{self.who}: {name_of(self.body)} returned a {type(theirs).__name__} in the "
                    "place of an array of the carry."
                )
            else:
                arrays.append(theirs.value if isinstance(theirs, Variable) else theirs)
        return arrays

    def settle(self, run: Callable[[Sequence[Any]], Program]) -> Program:
        """Trace the body, again where a weakly typed carry comes back as another type.

        Args:
            run: Traces it for given arrays.
        """
        while True:
            program = run(self.arrays)
            types = program.types()[1][: self.size]
            changed = False
            for i, (array, new) in enumerate(zip(self.arrays, types, strict=True)):
                old = _jax.typeof(array)
                if same_type(old, new) and old.weak_type == new.weak_type:
                    continue
                if old.shape != new.shape or not old.weak_type:
                    if same_type(old, new):
                        continue  # it comes back weakly typed, which JAX takes
                    paths = zip(self.flat.paths("carry"), self.flat.leaves, strict=True)
                    path = [path for path, leaf in paths if not is_node(leaf)][i]
                    raise TypeError(
                        f"{self.who}: {path} goes into {name_of(self.body)} as {shown(old)} and "
                        f"comes back as {shown(new)}. A carry keeps its shape and dtype; convert "
                        "it with .astype or .reshape."
                    )
                self.arrays[i] = jax.lax.convert_element_type(array, new.dtype)
                changed = True
            if not changed:
                return program


class _State:
    """The boxes that a loop reads and writes.

    Args:
        who: The transform.
        world: The world of the bodies.
        programs: The bodies.
        apart: The types of boxes, by number, of which each step has its own slice.

    Attributes:
        first: The values of the written boxes at the beginning.
    """

    def __init__(
        self,
        who: str,
        world: World,
        programs: Sequence[Program],
        apart: dict[int, Any] | None = None,
    ) -> None:
        apart = apart or {}
        self.boxes = world.boxes
        self.numbers = [n for program in programs for n in program.writes if n not in apart]
        for program in programs:
            for number, new in program.types()[0].items():
                old = apart[number] if number in apart else self.boxes[number].aval
                if not same_type(old, new):
                    raise TypeError(
                        f"{who}: the body writes {shown(new)} to {self.boxes[number].path}, which "
                        f"is {shown(old)}. State that a loop carries keeps its shape and dtype."
                    )
        read = [number for program in programs for number in program.reads]
        self._outside = {number: self.boxes[number].value for number in read}
        self.first = [self.boxes[number].value for number in self.numbers]

    def values(self, written: Sequence[Any]) -> dict[int, Any]:
        """Return the values of all boxes in a step."""
        return {**self._outside, **dict(zip(self.numbers, written, strict=True))}

    def written(self, new: dict[int, Any]) -> list[Any]:
        """Return what goes on to the next step."""
        return [new[number] for number in self.numbers]

    def commit(self, written: Sequence[Any]) -> None:
        """Write the values after the last step."""
        for number, value in zip(self.numbers, written, strict=True):
            write(self.boxes[number], value)


def _at_this_step(y: Any) -> Any:
    """Return the present array of a box that was there before, for a ``y`` of each step."""
    is_old = isinstance(y, Variable) and y not in scopes.innermost().created
    return y.value if is_old else y


def _stacked_boxes(slices: Flat) -> list[Variable]:
    boxes: dict[Variable, None] = {}
    for node in slices.nodes:
        if isinstance(node, Stateful) and not axes_of(node):
            raise ValueError(
                f"js.scan: {node.path} ({type(node).__name__}) in xs is one object and no stack of "
                "them. Make a stack of several with js.stack, or let the body close over it."
            )
        boxes.update(dict.fromkeys(stacked_boxes(node)))
    return list(boxes)


def _row(box: Variable) -> jax.ShapeDtypeStruct:
    """Return the type of a slice of a box."""
    return jax.ShapeDtypeStruct(box.shape[1:], box.dtype)


def _length(length: int | None, slices: Flat, stacked: Sequence[Variable]) -> int:
    """Return how many slices there are."""
    sizes: dict[str, int] = {}
    arrays = iter(slices.arrays)
    for leaf, path in zip(slices.leaves, slices.paths("xs"), strict=True):
        if isinstance(leaf, Stateful | Variable):
            continue
        shape = jnp.shape(next(arrays))
        if not shape:
            raise ValueError(f"js.scan: {path} is a scalar and has no axis to go along.")
        sizes[path] = shape[0]
    sizes |= {box.path: box.shape[0] for box in stacked}
    if length is not None:
        sizes["length"] = operator.index(length)
        if sizes["length"] < 0:
            raise ValueError(f"js.scan: length must not be negative, got {length}.")
    if len(set(sizes.values())) != 1:
        found = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise ValueError(
            f"js.scan: the lengths differ: {found}."
            if sizes
            else "js.scan: give xs, or length=, to say how many steps there are."
        )
    return next(iter(sizes.values()))
