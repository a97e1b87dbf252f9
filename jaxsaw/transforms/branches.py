"""Choices that are made when a program runs: ``jax.lax``'s, with the state that a branch writes.

Each branch is traced on its own. What any of them writes becomes a result of all: a branch that
doesn't write a box gives back the value that it had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw.state import scope as scopes
from jaxsaw.state.variable import Variable, write
from jaxsaw.transforms.arguments import Flat, name_of
from jaxsaw.transforms.output import GradsOut
from jaxsaw.transforms.program import Program, World, same_type, shown


def cond(
    pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any
) -> Any:
    """Run one of two functions, as a scalar says when the program runs.

    The branch that isn't taken writes nothing and draws nothing.

    Args:
        pred: A boolean scalar.
        true_fun: Takes the operands; it may read and write state and draw from random streams.
        false_fun: Likewise; it must return arrays of the same types.
        *operands: Arrays, Statefuls, and containers of these.

    Returns:
        What the chosen function returned.

    Raises:
        TypeError: If the results, or what is written to a box, differ in structure, shape or
            dtype.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> taken = js.Variable(jnp.zeros((), jnp.int32))
        >>> def count(x):
        ...     taken.value += 1
        ...     return x + 1
        >>> float(js.cond(True, count, lambda x: x, 1.0)), int(taken)
        (2.0, 1)
    """
    _check_scalar("js.cond", pred)
    pred = pred.value if isinstance(pred, Variable) else pred
    return _choose("js.cond", pred, (true_fun, false_fun), operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Run one of several functions, as an integer says when the program runs.

    Args:
        index: An integer scalar, which is clamped to the range of ``branches``.
        branches: Functions of the operands, as for :func:`cond`.
        *operands: Arrays, Statefuls, and containers of these.

    Returns:
        What the chosen function returned.

    Raises:
        ValueError: If there is no branch.
        TypeError: If the results, or what is written to a box, differ in structure, shape or
            dtype.

    Example:
        >>> import jaxsaw as js
        >>> float(js.switch(1, [lambda x: x, lambda x: -x], 3.0))
        -3.0
    """
    if not branches:
        raise ValueError("js.switch needs at least one branch.")
    _check_scalar("js.switch", index)
    index = index.value if isinstance(index, Variable) else index
    return _choose("js.switch", index, tuple(branches), operands)


def _choose(who: str, which: Any, branches: tuple[Callable[..., Any], ...], operands: Any) -> Any:
    with scopes.transaction():
        flat = Flat(operands)
        world = World(flat.nodes)
        arrays = [jnp.asarray(array) for array in flat.arrays]
        programs = [
            Program(lambda *new, fn=fn: fn(*flat.rebuild(new)), arrays, world) for fn in branches
        ]
        _check_results(who, branches, programs)
        written = list(dict.fromkeys(n for program in programs for n in program.writes))
        _check_written(who, branches, programs, world, written)
        read = {number for program in programs for number in program.reads}
        values = {number: world.boxes[number].value for number in (*written, *read)}

        def run(program: Program) -> Callable[..., Any]:
            def branch(boxes: list[Any], arrays: list[Any]) -> Any:
                values_here = dict(zip(values, boxes, strict=True))
                new, outs = program.step(values_here, arrays)
                return [new.get(number, values_here[number]) for number in written], outs

            return branch

        given = ([*values.values()], arrays)
        if who == "js.cond":
            new, outs = jax.lax.cond(which, *map(run, programs), *given)
        else:
            new, outs = jax.lax.switch(which, [*map(run, programs)], *given)
        for number, value in zip(written, new, strict=True):
            write(world.boxes[number], value)
        return programs[0].out.build(outs, world)


def _check_scalar(who: str, value: Any) -> None:
    if jnp.shape(value) != ():
        raise TypeError(
            f"{who}: what chooses a branch must be a scalar, got shape {jnp.shape(value)}. For a "
            "choice element by element, use jnp.where."
        )


def _check_results(who: str, branches: Sequence[Any], programs: Sequence[Program]) -> None:
    first, *others = programs
    for fn, program in zip(branches[1:], others, strict=True):
        between = f"{who}: {name_of(branches[0])} and {name_of(fn)} return different"
        if program.out.tree != first.out.tree:
            raise TypeError(f"{between} structures: {first.out.tree} and {program.out.tree}.")
        for one, other in zip(first.out.leaves, program.out.leaves, strict=True):
            if not _alike(one, other):
                raise TypeError(f"{between} objects. Return arrays, and write state in place.")
        for one, other in zip(first.types()[1], program.types()[1], strict=True):
            if not same_type(one, other):
                raise TypeError(f"{between} types: {shown(one)} and {shown(other)}.")


def _alike(one: Any, other: Any) -> bool:
    """Return whether two leaves of results can stand for each other."""
    if isinstance(one, GradsOut) and isinstance(other, GradsOut):
        return (one.names, one.numbers) == (other.names, other.numbers)
    place = getattr(one, "place", None)
    same_place = place is not None and place == getattr(other, "place", None)
    return (one is None and other is None) or same_place


def _check_written(
    who: str,
    branches: Sequence[Any],
    programs: Sequence[Program],
    world: World,
    written: Sequence[int],
) -> None:
    for number in written:
        box = world.boxes[number]
        types = [program.types()[0].get(number, box.aval) for program in programs]
        for fn, kind in zip(branches[1:], types[1:], strict=True):
            if not same_type(types[0], kind):
                raise TypeError(
                    f"{who}: {box.path} would be {shown(types[0])} after {name_of(branches[0])} "
                    f"and {shown(kind)} after {name_of(fn)}. Write the same shape and dtype in "
                    "every branch."
                )
