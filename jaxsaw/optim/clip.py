"""Bounds on gradients: by their common norm, or each by itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.optim.rule import working_dtype
from jaxsaw.state.variable import Variable

Array = jax.Array


def global_norm(grads: Any, norm_type: float = 2.0) -> Array:
    """Return the norm of all gradients, as if they were one vector.

    Args:
        grads: A :class:`~jaxsaw.Grads`, or any pytree of arrays.
        norm_type: The order; ``inf`` for the largest absolute value.

    Returns:
        A scalar, computed in float32 (float64 if one of the arrays is).

    Source: ``torch.nn.utils.get_total_norm``.

    Example:
        >>> float(global_norm([jnp.array([3.0]), jnp.array([4.0])]))
        5.0
    """
    norm_type = float(norm_type)
    arrays = [_array(x) for x in _gradients(grads)]
    dtype = working_dtype(arrays)
    parts = [_measure(x, norm_type, dtype) for x in arrays if x.size]
    if not parts:
        return jnp.zeros((), dtype)
    if norm_type == np.inf:
        return reduce(jnp.maximum, parts)
    if norm_type == -np.inf:
        return reduce(jnp.minimum, parts)
    total = jnp.stack(parts).sum()
    if norm_type == 2.0:
        return jnp.sqrt(total)
    return total if norm_type in (0.0, 1.0) else total ** (1.0 / norm_type)


def clip_grad_norm(
    grads: Any,
    max_norm: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> tuple[Any, Array]:
    """Scale all gradients down alike, so that their common norm is at most ``max_norm``.

    Args:
        grads: A :class:`~jaxsaw.Grads`, or any pytree of arrays.
        max_norm: The largest norm that is left as it is.
        norm_type: The order of the norm; ``inf`` for the largest absolute value.
        error_if_nonfinite: Whether to refuse a norm that is infinite or not a number. Inside a
            trace, where its value isn't known, nothing is refused.

    Returns:
        The gradients, in the structure and dtypes that they came in, and their norm before.

    Raises:
        RuntimeError: See ``error_if_nonfinite``.

    Source: ``torch.nn.utils.clip_grad_norm_``, which changes gradients in place.

    Example:
        >>> clipped, norm = clip_grad_norm([jnp.array([3.0]), jnp.array([4.0])], max_norm=1.0)
        >>> float(norm), [round(float(g[0]), 3) for g in clipped]
        (5.0, [0.6, 0.8])
    """
    norm = global_norm(grads, norm_type)
    if error_if_nonfinite and not isinstance(norm, jax.core.Tracer) and not np.isfinite(norm):
        raise RuntimeError(
            f"clip_grad_norm: the norm of order {float(norm_type)} is {norm}, so the gradients "
            "can't be scaled. Look at the loss and its gradients, or pass "
            "error_if_nonfinite=False."
        )
    bound = _array(max_norm).astype(norm.dtype)
    scale = jnp.minimum(bound / (norm + 1e-6), 1.0)
    return jax.tree.map(lambda x: _scaled(_array(x), scale), grads), norm


def clip_grad_value(grads: Any, clip_value: Any) -> Any:
    """Bound each element of each gradient.

    Args:
        grads: A :class:`~jaxsaw.Grads`, or any pytree of arrays.
        clip_value: The largest absolute value.

    Returns:
        The gradients, in the structure and dtypes that they came in.

    Source: ``torch.nn.utils.clip_grad_value_``, which changes gradients in place.

    Example:
        >>> clip_grad_value([jnp.array([3.0, -0.5])], 1.0)
        [Array([ 1. , -0.5], dtype=float32)]
    """
    bound = _array(clip_value)
    return jax.tree.map(lambda x: _bounded(_array(x), bound), grads)


@partial(jax.jit, static_argnames=("norm_type", "dtype"))
def _measure(x: Any, norm_type: float, dtype: Any) -> Any:
    """Return what one array adds to a norm."""
    size = jnp.abs(x).astype(dtype)
    if norm_type == np.inf:
        return size.max()
    if norm_type == -np.inf:
        return size.min()
    if norm_type == 0.0:
        return (size != 0).sum(dtype=dtype)
    if norm_type == 2.0:
        return (size * size).sum()
    return (size if norm_type == 1.0 else size**norm_type).sum()


@jax.jit
def _scaled(x: Any, scale: Any) -> Any:
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return jax.lax.complex(_scaled(jnp.real(x), scale), _scaled(jnp.imag(x), scale))
    return (x.astype(scale.dtype) * scale).astype(x.dtype)


@jax.jit
def _bounded(x: Any, bound: Any) -> Any:
    bound = bound.astype(x.dtype)
    return jnp.clip(x, -bound, bound)


def _gradients(grads: Any) -> list[Any]:
    leaves = [grads] if isinstance(grads, Iterator) else jax.tree.leaves(grads)
    for leaf in leaves:
        if isinstance(leaf, Variable) or not hasattr(leaf, "dtype"):
            raise TypeError(
                f"Expected gradients (a Grads, or arrays), got a {type(leaf).__name__}. There is "
                "no .grad to change in place: write grads, norm = optim.clip_grad_norm(grads, 1.0)."
            )
    return leaves


def _array(x: Any) -> Any:
    if isinstance(x, Variable):
        return x.value
    return x if hasattr(x, "dtype") else jnp.float32(x)
