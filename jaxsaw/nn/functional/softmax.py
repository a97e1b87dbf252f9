"""Softmax and its kin."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxsaw.nn.functional._common import (
    ArrayLike,
    Streams,
    accumulator,
    axis,
    draw_key,
    floating,
)


def softmax(input: ArrayLike, dim: int | None = None, dtype: Any = None) -> Array:
    """Apply ``exp(x) / sum(exp(x))`` along an axis.

    Args:
        input: Any shape.
        dim: The axis. None warns and guesses, as in PyTorch: 0 for 0, 1 and 3 dimensions, else 1.
        dtype: Cast the input to this first.

    Returns:
        The input's shape, and its dtype or ``dtype``; computed in float32 at least.

    Raises:
        ValueError: If ``dim`` is out of range.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.softmax``.

    Example:
        >>> softmax(jnp.zeros((1, 4)), dim=1).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    x, d, out = _along("softmax", input, dim, dtype)
    return jax.nn.softmax(x, axis=d).astype(out)


def log_softmax(input: ArrayLike, dim: int | None = None, dtype: Any = None) -> Array:
    """Apply ``x - log(sum(exp(x)))`` along an axis.

    Args:
        input: Any shape.
        dim: The axis. None warns and guesses, as in PyTorch: 0 for 0, 1 and 3 dimensions, else 1.
        dtype: Cast the input to this first.

    Returns:
        The input's shape, and its dtype or ``dtype``; computed in float32 at least.

    Raises:
        ValueError: If ``dim`` is out of range.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.log_softmax``.

    Example:
        >>> log_softmax(jnp.array([0.0, 100.0]), dim=0).tolist()
        [-100.0, 0.0]
    """
    x, d, out = _along("log_softmax", input, dim, dtype)
    return jax.nn.log_softmax(x, axis=d).astype(out)


def softmin(input: ArrayLike, dim: int | None = None, dtype: Any = None) -> Array:
    """Apply ``exp(-x) / sum(exp(-x))`` along an axis.

    Args:
        input: Any shape.
        dim: The axis. None warns and guesses, as in PyTorch: 0 for 0, 1 and 3 dimensions, else 1.
        dtype: Cast the input to this first.

    Returns:
        The input's shape, and its dtype or ``dtype``; computed in float32 at least.

    Raises:
        ValueError: If ``dim`` is out of range.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.softmin``.

    Example:
        >>> softmin(jnp.array([0.0, 200.0]), dim=0).tolist()
        [1.0, 0.0]
    """
    x, d, out = _along("softmin", input, dim, dtype)
    return jax.nn.softmax(-x, axis=d).astype(out)


def gumbel_softmax(
    logits: ArrayLike,
    tau: float = 1,
    hard: bool = False,
    eps: float = 1e-10,
    dim: int = -1,
    *,
    rngs: Streams | None = None,
) -> Array:
    """Draw from a categorical distribution, so that it has a gradient.

    That is ``softmax((logits + g) / tau)`` with noise ``g`` of the Gumbel distribution.

    Args:
        logits: Unnormalised log-probabilities, any shape.
        tau: Temperature; the lower, the nearer to one-hot.
        hard: Return one-hot vectors, with the gradient of the soft ones.
        eps: Accepted and ignored.
        dim: The axis.
        rngs: Where the stream ``dropout`` comes from; the ambient one if None.

    Returns:
        The shape and dtype of the logits.

    Raises:
        ValueError: If ``dim`` is out of range.
        TypeError: If the logits aren't floating.

    Source: ``torch.nn.functional.gumbel_softmax``; Jang et al., 2016; Maddison et al., 2016.

    Example:
        >>> y = gumbel_softmax(jnp.zeros((2, 5)), hard=True, rngs=js.Rngs(dropout=0))
        >>> y.sum(-1).tolist()
        [1.0, 1.0]
    """
    x, d, dtype = _along("gumbel_softmax", logits, dim, None)
    noise = jax.random.gumbel(draw_key("gumbel_softmax", rngs), x.shape, x.dtype)
    soft = jax.nn.softmax((x + noise) / tau, axis=d)
    if not hard:
        return soft.astype(dtype)
    hot = jax.nn.one_hot(soft.argmax(d), x.shape[d], axis=d, dtype=x.dtype)
    return (hot - jax.lax.stop_gradient(soft) + soft).astype(dtype)


def _along(name: str, input: ArrayLike, dim: int | None, dtype: Any) -> tuple[Array, Any, Any]:
    """Return the input in the dtype to compute in, the axis, and the dtype to return."""
    x = jnp.asarray(input)
    x = floating(name, x if dtype is None else x.astype(dtype))
    if dim is None:
        dim = 0 if x.ndim in (0, 1, 3) else 1
        warnings.warn(f"{name}: dim=None guesses dim={dim}; pass dim=.", stacklevel=3)
    d = axis(name, dim, x.ndim)
    # PyTorch lets a scalar have an axis.
    return x.astype(accumulator(x.dtype)), d if x.ndim else (), x.dtype
