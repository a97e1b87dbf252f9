"""One function for many lanes at once: ``jax.vmap`` inside of a transaction.

A box that is passed with an axis has a value for each lane; inside, a scope gives that value to
whoever reads it. All other boxes are shared: they are read from the enclosing scope, and what the
lanes write to them has to be the same in all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.api_util import flatten_axes

from jaxsaw import _jax
from jaxsaw.state import scope as scopes
from jaxsaw.state.graph import boxes_of
from jaxsaw.state.node import Node
from jaxsaw.state.stateful import Stateful
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.arguments import Flat, name_of
from jaxsaw.transforms.output import Output
from jaxsaw.transforms.program import World
from jaxsaw.transforms.stack import axes_of, mark, stacked_boxes


def vmap(
    fn: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_size: int | None = None,
    axis_name: Any = None,
    randomness: str = "error",
) -> Callable[..., Any]:
    """Return a function that runs ``fn`` for each slice of its arguments, all at once.

    A Stateful that is passed with an axis must be a stack (see :func:`jaxsaw.stack`): lane ``i``
    reads and writes the ``i``-th object in it. With ``None``, and where ``fn`` reaches it by
    itself, it is one object for all lanes, which may only write the same to it.

    Args:
        fn: The function. One that constructs an object returns a stack of objects.
        in_axes: The axis to map over: one for all positional arguments, or a tuple with one (or
            None, or a pytree of these) for each. Arrays passed by keyword are mapped over axis 0,
            stacks too, and other Statefuls are shared.
        out_axes: Where the results have the axis; None for what is the same in all lanes.
        axis_size: How many lanes there are, where no argument says so.
        axis_name: A name for the lanes, for ``jax.lax.pmean`` and the like.
        randomness: What it means to draw from a random stream that the lanes share: "error",
            "same" (all lanes draw the same key) or "different" (lane ``i`` draws
            ``fold_in(key, i)``). The stream advances once.

    Returns:
        A function with the arguments of ``fn``.

    Raises:
        ValueError: (When called) if axes don't fit the arguments, or each other, or if lanes
            write different values to what they share.
        RuntimeError: (When called) if a shared stream is drawn from with ``randomness="error"``.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> from jaxsaw import nn
        >>> models = js.vmap(lambda rngs: nn.Linear(2, 1, rngs=rngs))(js.stack(js.Rngs(0).fork(8)))
        >>> js.vmap(lambda model, x: model(x), in_axes=(0, None))(models, jnp.ones(2)).shape
        (8, 1)
    """
    if randomness not in ("error", "same", "different"):
        raise ValueError(
            f'js.vmap: randomness is "error", "same" or "different", got {randomness!r}.'
        )

    @functools.wraps(fn, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        lanes = _Mapped(fn, in_axes, axis_size, args, kwargs)
        with scopes.transaction():
            return lanes.run(out_axes, axis_name, randomness)

    return wrapped


class _Mapped:
    """One call: its arguments, their axes, and the number of lanes.

    Attributes:
        axes: The axis of each box that has a value for each lane.
    """

    def __init__(
        self, fn: Any, in_axes: Any, size: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.fn = fn
        self.flat = Flat((args, kwargs))
        axes = _axes_of_arguments(in_axes, args, kwargs)
        self.axes: dict[Variable, int] = {}
        self.array_axes: list[int | None] = []
        shared: set[Variable] = set()
        sizes: dict[str, int] = {}
        names = [name.removeprefix("[0]") for name in self.flat.paths("")]
        for leaf, axis, name in zip(self.flat.leaves, axes, names, strict=True):
            if not isinstance(leaf, Node):
                self.array_axes.append(axis)
                if axis is not None:
                    sizes[f"argument {name}"] = _size(leaf, axis, f"argument {name}")
                continue
            boxes = stacked_boxes(leaf)
            if axis is None:
                shared.update(boxes_of(leaf))
                continue
            _check_stack(leaf, in_axes, args)
            for box in boxes:
                if self.axes.setdefault(box, axis) != axis:
                    raise _conflict(box, self.axes[box], axis)
                sizes[box.path] = _size(box, axis, box.path)
        for box in self.axes:
            if box in shared:
                raise _conflict(box, self.axes[box], None)
        if size is not None:
            sizes["axis_size"] = size
        if len(set(sizes.values())) != 1:
            found = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            raise ValueError(
                f"js.vmap of {name_of(fn)}: "
                + (f"the sizes of the mapped axes differ: {found}." if sizes else _NOTHING)
            )
        self.size = next(iter(sizes.values()))

    def run(self, out_axes: Any, axis_name: Any, randomness: str) -> Any:
        """Run the function in the innermost scope."""
        scope, own = scopes.Scope(), self.axes
        world = World(self.flat.nodes)
        found: dict[str, Any] = {}

        def body(values: list[Any], arrays: list[Any], index: Any) -> Any:
            scope.lanes = scopes.Lanes(own, index, randomness)
            scope.values.update(zip(own, values, strict=True))
            with scope:
                args, kwargs = self.flat.rebuild(arrays)
                found["out"], outs = Output.of(self.fn(*args, **kwargs), scope, world)
                found["axes"] = axes = _axes_of_results(self.fn, found["out"], out_axes, outs)
                mapped: list[Any] = []
                same: list[Any] = []
                found["written"] = written = _written(scope)
                for box in written:
                    (mapped if box in own else same).append(_checked(scope, box, own))
            scope.close()
            for value, axis in zip(outs, axes, strict=True):
                (same if axis is None else mapped).append(value)
            return mapped, same

        in_axes = ([*own.values()], self.array_axes, 0)
        run = jax.vmap(
            body, in_axes=in_axes, out_axes=(0, None), axis_size=self.size, axis_name=axis_name
        )
        values = [box.value for box in own]
        results = map(iter, run(values, self.flat.arrays, jnp.arange(self.size)))
        of_lanes, of_all = results
        new = {
            box: jnp.moveaxis(next(of_lanes), 0, own[box]) if box in own else next(of_all)
            for box in found["written"]
        }
        scope.commit(new)
        arrays = [
            next(of_all) if axis is None else jnp.moveaxis(next(of_lanes), 0, axis)
            for axis in found["axes"]
        ]
        return build_stacked(found["out"], arrays, world, found["axes"])


def build_stacked(out: Output, arrays: list[Any], world: World, axes: list[Any]) -> Any:
    """Return a result whose arrays have a further axis; objects in it become stacks.

    Args:
        out: The result for one lane.
        arrays: Its arrays, for all lanes.
        world: That of the function.
        axes: The further axis of each array, or None.
    """
    result = out.build(arrays, world)
    remaining = iter(axes)
    stacks = []
    for kind, leaf in zip(out.leaves, out.tree.flatten_up_to(result), strict=True):
        own = [next(remaining) for _ in range(out.count(kind))]
        if isinstance(leaf, Node) and own and own[0] is not None:
            stacks.append(leaf)
    mark(stacks, 1, out.old(world))
    return result


_NOTHING = "no argument is mapped. Give one an axis in in_axes=, or say axis_size=."


def _axes_of_arguments(in_axes: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the axis, or None, of each leaf of the arguments."""
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise ValueError(
            f"js.vmap: in_axes has {len(in_axes)} entries for {len(args)} positional arguments."
        )
    positional = Flat(args)
    try:
        axes = flatten_axes("in_axes", positional.tree, in_axes)
    except ValueError as error:
        raise ValueError(f"js.vmap: in_axes={in_axes} doesn't fit the arguments. {error}") from None
    if not all(axis is None or isinstance(axis, int) for axis in axes):
        raise TypeError(f"js.vmap: in_axes holds integers and None, got {in_axes}.")
    named = Flat(kwargs).leaves
    return [*axes, *(None if _is_single(leaf) else 0 for leaf in named)]


def _is_single(leaf: Any) -> bool:
    return isinstance(leaf, Stateful) and not axes_of(leaf)


def _check_stack(node: Node, in_axes: Any, args: tuple[Any, ...]) -> None:
    boxes = boxes_of(node)
    if not isinstance(node, Stateful) or not boxes:
        return
    taken = sum(
        scope.lanes is not None and boxes[0] in scope.lanes.own for scope in scopes.around()
    )
    if axes_of(node) <= taken:
        each = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        fixed = tuple(None if arg is node else a for arg, a in zip(args, each, strict=True))
        raise ValueError(
            f"js.vmap: {node.path} ({type(node).__name__}) is one object and no stack of them, so "
            f"it has no axis to map over. Share it with in_axes={fixed}, or make a stack of "
            "several with js.stack."
        )


def _size(array: Any, axis: int, name: str) -> int:
    shape = jnp.shape(array) if not isinstance(array, Variable) else array.shape
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"js.vmap: {name} has shape {shape}, and so no axis {axis} to map over.")
    return int(shape[axis])


def _conflict(box: Variable, one: Any, other: Any) -> ValueError:
    return ValueError(
        f"js.vmap: {box.path} is in several arguments, with axis {one} and with axis {other}. "
        "Give all of them the same axis."
    )


def _axes_of_results(fn: Any, out: Output, out_axes: Any, arrays: list[Any]) -> list[Any]:
    """Return the axis, or None, of each array of a result."""
    try:
        each = flatten_axes("out_axes", out.tree, out_axes)
    except ValueError as error:
        raise ValueError(f"js.vmap: out_axes={out_axes} doesn't fit the result. {error}") from None
    axes = [a for a, kind in zip(each, out.leaves, strict=True) for _ in range(out.count(kind))]
    for axis, array in zip(axes, arrays, strict=True):
        if axis is None and _jax.is_batched(array):
            raise ValueError(
                f"js.vmap of {name_of(fn)}: out_axes is None for a result that differs between the "
                "lanes. Give it an axis, or reduce it over the lanes with axis_name= and "
                "jax.lax.pmean."
            )
    return axes


def _written(scope: scopes.Scope) -> list[Variable]:
    return [box for box in scope.written if box not in scope.created]


def _checked(scope: scopes.Scope, box: Variable, own: dict[Variable, int]) -> Any:
    value = scope.values[box]
    if box not in own and _jax.is_batched(value):
        raise ValueError(
            f"js.vmap: the lanes wrote different values to {box.path}, which they share. Map over "
            "a stack of it (js.stack, and an axis in in_axes=), or reduce over the lanes before "
            "writing, with axis_name= and jax.lax.pmean."
        )
    return value
