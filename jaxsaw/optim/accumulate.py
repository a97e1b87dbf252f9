"""Gradients of a large batch, a part of it after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw.state.node import Node
from jaxsaw.transforms.functional import eval_shape
from jaxsaw.transforms.loops import scan

Array = jax.Array


def accumulate(fn: Callable[..., Any], steps: int) -> Callable[..., Any]:
    """Make a function that works through its batch in parts, and averages the results.

    The parts go through one compiled loop, so memory is that of one part, and of one set of
    gradients. State that ``fn`` writes (batch statistics, random streams) goes on from part to
    part.

    Args:
        fn: Returns arrays, such as ``js.value_and_grad(loss)`` does. Its results are means over
            the batch.
        steps: In how many parts.

    Returns:
        A function with the arguments of ``fn``. Arrays, alone or in containers, are split along
        their first axis; models and other Statefuls are passed on as they are. Floats in the
        result are averaged; of anything else, the last part's is returned.

    Raises:
        ValueError: If ``steps`` isn't positive, or (in a call) an axis can't be split so.

    Example:
        >>> model = nn.Linear(3, 1, rngs=js.Rngs(0))
        >>> loss = lambda m, x, y: F.mse_loss(m(x), y)
        >>> x, y = jnp.ones((8, 3)), jnp.zeros((8, 1))
        >>> value, grads = accumulate(js.value_and_grad(loss), 4)(model, x, y)
        >>> bool(jnp.allclose(value, loss(model, x, y))), list(grads)
        (True, ['weight', 'bias'])
    """
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"accumulate: steps must be a positive integer, got {steps!r}.")

    def accumulated(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=lambda x: isinstance(x, Node))
        places = [i for i, leaf in enumerate(leaves) if getattr(leaf, "ndim", 0) > 0]
        places = [i for i in places if not isinstance(leaves[i], Node)]
        parts = [_split(leaves[i], steps) for i in places]

        def part(arrays: Any) -> Any:
            mine = list(leaves)
            for i, array in zip(places, arrays, strict=True):
                mine[i] = array
            given, named = jax.tree.unflatten(tree, mine)
            return fn(*given, **named)

        def add(total: Any, arrays: Any) -> tuple[Any, None]:
            return jax.tree.map(_plus, total, part(arrays)), None

        shapes = eval_shape(part, [array[0] for array in parts])
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        total, _ = scan(add, zeros, parts, length=steps)
        return jax.tree.map(lambda x: x / steps if _is_float(x) else x, total)

    return accumulated


def _split(array: Any, steps: int) -> Any:
    if array.shape[0] % steps:
        raise ValueError(
            f"accumulate: can't split {array.shape[0]} items into {steps} equal parts. Drop the "
            "rest of the batch, or choose another number."
        )
    return array.reshape(steps, array.shape[0] // steps, *array.shape[1:])


def _plus(total: Any, new: Any) -> Any:
    return total + new if _is_float(new) else new


def _is_float(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))
