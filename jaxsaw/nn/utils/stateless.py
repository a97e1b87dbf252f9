"""A module as a function of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from jaxsaw.nn.module import Module
from jaxsaw.state.scope import Scope
from jaxsaw.state.variable import Variable

__all__ = ["functional_call"]


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Any],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other values of its Parameters and Buffers, inside raw JAX too.

    What the call writes to boxes that were given is dropped; to others, it is written.

    Args:
        module: The module.
        parameters_and_buffers: Arrays by dotted names.
        args: The arguments: a tuple of them, or a single one.
        kwargs: Arguments by name.
        tie_weights: Accepted; a box that has several names is one box in any case.
        strict: Refuse names that are missing or unexpected.

    Returns:
        What the module returns.

    Raises:
        RuntimeError: With ``strict``, if a name is missing or unexpected.
        ValueError: If an array has another shape than its box.

    Source: ``torch.nn.utils.stateless.functional_call``, ``torch.func.functional_call``.

    Example:
        >>> layer = nn.Linear(1, 1, rngs=js.Rngs(params=0))
        >>> call = lambda w: functional_call(layer, {"weight": w}, jnp.ones((1, 1))).sum()
        >>> jax.grad(call)(jnp.ones((1, 1))).tolist()
        [[1.0]]
    """
    boxes: dict[str, Variable] = {}
    boxes.update(module.named_parameters(remove_duplicate=False))
    boxes.update(module.named_buffers(remove_duplicate=False))
    if strict:
        given = {boxes[name] for name in parameters_and_buffers if name in boxes}
        missing = [name for name, box in boxes.items() if box not in given]
        unexpected = [name for name in parameters_and_buffers if name not in boxes]
        if missing or unexpected:
            raise RuntimeError(
                f"functional_call: expected the names of {type(module).__name__}; missing: "
                f"{missing or 'none'}, unexpected: {unexpected or 'none'}."
            )
    values: dict[Variable, Any] = {}
    for name, value in parameters_and_buffers.items():
        if name not in boxes:
            continue
        array = jnp.asarray(value)
        if array.shape != boxes[name].shape:
            raise ValueError(
                f"functional_call: expected {name} {boxes[name].shape}, got {array.shape}."
            )
        values[boxes[name]] = array
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with Scope(values) as scope:
        result = module(*arguments, **(kwargs or {}))
    written = {box: scope.values[box] for box in scope.written if box not in values}
    scope.commit(written)
    return result
