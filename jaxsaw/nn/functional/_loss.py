"""What the losses share: reductions, weights, and the checks of shapes."""

import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxsaw.nn.functional._common import ArrayLike, accumulator, floating, promote


def check_reduction(
    name: str, reduction: str, size_average: Any = None, reduce: Any = None, *more: str
) -> None:
    """Refuse an unknown reduction, and the arguments that it replaced."""
    if size_average is not None or reduce is not None:
        raise ValueError(f"{name}: size_average and reduce aren't supported; use reduction=.")
    known = ("none", "mean", "sum", *more)
    if reduction not in known:
        raise ValueError(f"{name}: expected reduction to be one of {known}, got {reduction!r}.")


def reduced(loss: Array, reduction: str) -> Array:
    """Return the mean, the sum, or the loss itself."""
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def of_error(
    name: str,
    formula: Callable[[Array], Array],
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None,
    reduction: str,
    weighted_mean: bool = False,
) -> Array:
    """Apply a formula to the error, weight it, and reduce it."""
    x, goal = promote(jnp.asarray(input), jnp.asarray(target))
    floating(name, x, "input or target")
    check_broadcast(name, x, goal)
    if x.shape != goal.shape:
        warnings.warn(
            f"{name}: input {x.shape} and target {goal.shape} differ and are broadcast, which is "
            "seldom meant. Give them one shape.",
            stacklevel=3,
        )
    dtype = accumulator(x.dtype)
    loss = formula(x.astype(dtype) - goal.astype(dtype))
    if weight is not None:
        w = floating(name, weight, "weight").astype(dtype)
        if w.shape != x.shape:
            raise ValueError(f"{name}: expected weight {x.shape}, got {w.shape}.")
        loss = loss * w
        if weighted_mean and reduction == "mean":
            return (loss.sum() / w.sum()).astype(x.dtype)
    return reduced(loss, reduction).astype(x.dtype)


def check_broadcast(name: str, x: Array, goal: Array) -> None:
    """Refuse a target that doesn't broadcast with the input."""
    try:
        jnp.broadcast_shapes(x.shape, goal.shape)
    except ValueError:
        raise ValueError(
            f"{name}: expected target of the input's shape {x.shape}, got {goal.shape}."
        ) from None


def check_same_shape(name: str, x: Array, goal: Array) -> None:
    """Refuse a target of another shape than the input's."""
    if x.shape != goal.shape:
        raise ValueError(
            f"{name}: expected target of the input's shape {x.shape}, got {goal.shape}."
        )


def broadcasts(name: str, argument: str, value: ArrayLike, goal: Array) -> Array:
    """Return a factor, which must broadcast to the shape of ``goal``."""
    w = floating(name, value, argument)
    try:
        fits = jnp.broadcast_shapes(w.shape, goal.shape) == goal.shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name}: expected {argument} to broadcast to {goal.shape}, got {w.shape}."
        )
    return w


def times_weight(name: str, loss: Array, weight: ArrayLike | None) -> Array:
    """Multiply with weights that broadcast to the loss, if there are any."""
    if weight is None:
        return loss
    return loss * broadcasts(name, "weight", weight, loss).astype(loss.dtype)
