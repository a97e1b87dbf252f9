"""Equal layers in a row, run as one loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from jaxsaw.nn.module import Module
from jaxsaw.rngs import Rngs
from jaxsaw.state.graph import boxes_of, graph_of
from jaxsaw.transforms.loops import scan
from jaxsaw.transforms.remat import remat as rematerialized
from jaxsaw.transforms.stack import axes_of, stack_but, stacked_boxes, unstack

if TYPE_CHECKING:
    from jaxsaw.nn._loading import Plan
    from jaxsaw.nn.module import IncompatibleKeys


class Stack(Module):
    """Apply equal layers one after the other, compiled as a loop over one of them.

    A model of 96 layers compiles about as fast as one of two. The layers' arrays are kept
    stacked: ``parameters()`` gives one Parameter of shape ``(layers, ...)`` for each that a layer
    has, while ``state_dict()`` has the names and shapes of a :class:`ModuleList` of the layers
    (``"0.weight"``) and loads from them.

    Args:
        layers: Modules of the same structure, which are copied; or one stack of them, from
            ``js.stack`` or a constructor under ``js.vmap``. Streams (``Rngs``) that all of them
            hold stay shared, and are drawn from by one layer after the other.
        remat: Compute each layer again in the backward pass, instead of storing what is in it.
        policy: What is stored all the same, of ``jax.checkpoint_policies``.
        unroll: How many layers are one iteration of the compiled loop.

    Shape:
        - Input: what a layer takes, and further arguments that all layers get.
        - Output: the same as the input.

    Raises:
        ValueError: If the layers differ, share a Parameter or a Buffer, or are none.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> from jaxsaw import nn
        >>> rngs = js.Rngs(0)
        >>> layers = nn.Stack([nn.Linear(4, 4, rngs=rngs) for _ in range(96)])
        >>> layers(jnp.ones((2, 4))).shape, layers.layers.weight.shape
        ((2, 4), (96, 4, 4))
        >>> list(layers.state_dict())[:2]
        ['0.weight', '0.bias']
    """

    def __init__(
        self,
        layers: Iterable[Module] | Module,
        *,
        remat: bool = False,
        policy: Callable[..., bool] | None = None,
        unroll: int = 1,
    ) -> None:
        super().__init__()
        if isinstance(layers, Module) and axes_of(layers):
            self.layers = layers
            self._count = len(unstack(layers))
        elif not isinstance(layers, Iterable):
            raise TypeError(
                f"Stack: expected several layers, or a stack of them from js.stack, got one "
                f"{type(layers).__name__}."
            )
        else:
            layers = list(layers)
            self.layers = stack_but(layers, _shared_streams(layers))
            self._count = len(layers)
        self.remat = remat
        self.policy = policy
        self.unroll = unroll

    def forward(self, input: Any, *args: Any, **kwargs: Any) -> Any:
        def layer_of(x: Any, layer: Module) -> Any:
            return layer(x, *args, **kwargs)

        if self.remat:
            layer_of = rematerialized(layer_of, prevent_cse=False, policy=self.policy)

        def step(x: Any, layer: Module) -> tuple[Any, None]:
            return layer_of(x, layer), None

        return scan(step, input, self.layers, len(self), unroll=self.unroll)[0]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Module:
        """Return a copy of one layer."""
        return list(self)[index]

    def __iter__(self) -> Iterator[Module]:
        """Yield a copy of each layer."""
        return iter(unstack(self.layers, len(self)))

    def state_dict(
        self,
        *,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """Return the arrays of the layers by the names that they have in a ``ModuleList``.

        Args:
            destination: A dict to add to.
            prefix: Put before the names.
            keep_vars: Has no effect here: no box holds the array of one layer.

        Returns:
            An ordered dict of arrays.
        """
        state: dict[str, Any] = {} if destination is None else destination
        for i, layer in enumerate(self):
            layer.state_dict(destination=state, prefix=f"{prefix}{i}.")
        return state

    def _load(
        self,
        prefix: str,
        state: dict[str, Any],
        plan: Plan,
        keys: IncompatibleKeys,
        errors: list[str],
    ) -> None:
        layers = list(self)
        for i, layer in enumerate(layers):
            layer._load(f"{prefix}{i}.", state, plan, keys, errors)
        own = set(stacked_boxes(self.layers))
        for box, *row in zip(boxes_of(self.layers), *map(boxes_of, layers), strict=True):
            if box in own and any(one in plan.writes for one in row):
                new = [plan.writes.pop(one) if one in plan.writes else one.value for one in row]
                plan.writes[box] = jnp.stack(new)

    def extra_repr(self) -> str:
        return f"{len(self)} layers"


def _shared_streams(layers: list[Module]) -> list[Rngs]:
    """Return the streams that all layers hold; refuse other state that they share."""
    held = [dict.fromkeys(graph_of(layer).nodes) for layer in layers]
    streams = [node for node in held[0] if isinstance(node, Rngs)] if held else []
    shared = [node for node in streams if all(node in nodes for nodes in held)]
    seen: set[Any] = set()
    in_all = {box for node in shared for box in boxes_of(node)}
    for layer in layers:
        boxes = [box for box in boxes_of(layer) if box not in in_all]
        for box in boxes:
            if box in seen:
                raise ValueError(
                    f"Stack: some layers share {box.path}, which then has no value for each "
                    "layer. Use a ModuleList, or pass it to the layers as an argument. (A stream "
                    "may be shared by all layers.)"
                )
        seen.update(boxes)
    return shared
