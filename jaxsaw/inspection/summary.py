"""The table of a model's layers."""

from __future__ import annotations

import functools
import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from jaxsaw import nn
from jaxsaw.inspection import flops
from jaxsaw.inspection.tracing import abstractly
from jaxsaw.rngs import Rngs, using
from jaxsaw.state import graph
from jaxsaw.state.node import Node
from jaxsaw.state.variable import Variable

_TITLES = ("Layer", "Output shape", "Parameters", "FLOPs")


@dataclass(frozen=True)
class Row:
    """One layer.

    Attributes:
        path: The dotted path; empty for the model itself.
        kind: The name of the class.
        output: The shape of what it returned, in the structure that it has; None if it wasn't
            called.
        params: How many numbers its own Parameters have that no row above has counted.
        flops: What it computed itself, outside of the layers in it, in all of its calls.
    """

    path: str
    kind: str
    output: Any
    params: int
    flops: int | None


@dataclass(frozen=True)
class Summary:
    """A table of layers; ``str`` and notebooks show it.

    Attributes:
        rows: One for each distinct module, parents before what is in them.
        total_params: How many numbers all Parameters have; shared ones count once.
        trainable_params: The same, of those with ``requires_grad``.
        total_flops: Floating-point operations of one call; None without inputs.
    """

    rows: tuple[Row, ...]
    total_params: int
    trainable_params: int
    total_flops: int | None

    def __str__(self) -> str:
        cells = [_TITLES, *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        rule = "-" * max(map(len, lines))
        return "\n".join([lines[0], rule, *lines[1:], rule, *self._totals()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def line(cells: Any, tag: str) -> str:
            return "".join(
                f'<{tag} style="text-align: {"left" if i < 2 else "right"}; '
                f'white-space: pre">{html.escape(cell)}</{tag}>'
                for i, cell in enumerate(cells)
            )

        body = "".join(f"<tr>{line(_cells(row), 'td')}</tr>" for row in self.rows)
        totals = "<br>".join(map(html.escape, self._totals()))
        return (
            f"<table><thead><tr>{line(_TITLES, 'th')}</tr></thead><tbody>{body}</tbody>"
            f'<caption style="caption-side: bottom; text-align: left">{totals}</caption></table>'
        )

    def _totals(self) -> list[str]:
        frozen = self.total_params - self.trainable_params
        lines = [f"Parameters: {self.total_params:,} ({frozen:,} of them frozen)"]
        if self.total_flops is not None:
            lines.append(f"FLOPs of one call: {self.total_flops:,}")
        return lines


def summary(model: nn.Module, *inputs: Any, **kwargs: Any) -> Summary:
    """Return a table of a model's layers.

    The model is traced, not run: nothing is computed, and no statistics, random streams or modes
    change.

    Args:
        model: The model, in the mode that it shall be looked at in.
        *inputs: What it would be called with: arrays, or ``jax.ShapeDtypeStruct``. Without any
            the table has no output shapes and no FLOPs.
        **kwargs: The same, by name.

    Returns:
        A :class:`Summary`.

    Raises:
        TypeError: If ``model`` isn't a module.

    Example:
        >>> rngs = js.Rngs(0)
        >>> model = nn.Sequential(nn.Linear(4, 8, rngs=rngs), nn.Linear(8, 2, rngs=rngs))
        >>> table = summary(model, jnp.ones((5, 4)))
        >>> table.total_params
        58
        >>> table.rows[1].output
        (5, 8)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"summary: expected an nn.Module, got {type(model).__name__}.")
    boxes = [box for _, box in graph.named_boxes(model)]
    called = bool(inputs or kwargs)
    seen = _Seen()

    def look(*args: Any, **kwargs: Any) -> None:
        # A copy, which may be watched without a trace on the original.
        twin = graph.clone(model, {box: box.value for box in boxes})
        seen.watch(twin)
        if called:
            with using(Rngs(0)):  # shapes don't depend on what is drawn
                twin(*args, **kwargs)
        seen.count(twin)

    closed, _ = abstractly(look, inputs, kwargs, boxes)
    counted = flops.by_layer(closed) if called else None
    rows = tuple(
        Row(path, kind, seen.outputs.get(i), seen.params[i], counted[i] if counted else None)
        for i, (path, kind) in enumerate(seen.layers)
    )
    return Summary(
        rows,
        total_params=sum(seen.params),
        trainable_params=seen.trainable,
        total_flops=None if counted is None else counted.total(),
    )


class _Seen:
    """What was found out about the layers of a copy of the model."""

    def __init__(self) -> None:
        self.layers: list[tuple[str, str]] = []
        self.outputs: dict[int, Any] = {}
        self.params: list[int] = []
        self.trainable = 0

    def watch(self, model: nn.Module) -> None:
        for number, (path, module) in enumerate(model.named_modules()):
            self.layers.append((path, type(module).__name__))
            module.__dict__["forward"] = self._watched(number, module.forward)

    def _watched(self, number: int, forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with flops.scope_of(number):
                out = forward(*args, **kwargs)
            self.outputs[number] = _shapes(out)
            return out

        return watched

    def count(self, model: nn.Module) -> None:
        known: set[Variable] = set()
        for _, module in model.named_modules():
            own = 0
            for _, parameter in module.named_parameters(recurse=False):
                if parameter not in known:
                    known.add(parameter)
                    own += parameter.size
                    self.trainable += parameter.size if parameter.requires_grad else 0
            self.params.append(own)


def _shapes(out: Any) -> Any:
    return jax.tree.map(
        lambda x: tuple(x.shape) if hasattr(x, "shape") else type(x).__name__,
        out,
        is_leaf=lambda x: isinstance(x, Node),
    )


def _cells(row: Row) -> tuple[str, str, str, str]:
    depth = row.path.count(".") + 1 if row.path else 0
    name = f"{row.path} ({row.kind})" if row.path else row.kind
    return (
        "  " * depth + name,
        "" if row.output is None else str(row.output),
        f"{row.params:,}" if row.params else "",
        f"{row.flops:,}" if row.flops else "",
    )
