"""Linear and bilinear maps."""

import jax.numpy as jnp
from jax import Array, lax

from jaxsaw.nn.functional._common import ArrayLike, same_dtype


def linear(input: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None) -> Array:
    """Apply a linear map to the last axis: ``y = x @ weight.T + bias``.

    Args:
        input: ``(..., in_features)``.
        weight: ``(out_features, in_features)``, or ``(in_features,)`` for a single output.
        bias: ``(out_features,)``, or ``()`` for a single output.

    Returns:
        ``(..., out_features)``, or ``(...)`` for a single output.

    Raises:
        ValueError: If the shapes don't fit.
        TypeError: If the dtypes differ.

    Source: ``torch.nn.functional.linear``.

    Example:
        >>> linear(jnp.ones((4, 3)), jnp.ones((2, 3)), jnp.zeros(2)).shape
        (4, 2)
    """
    x, w = jnp.asarray(input), jnp.asarray(weight)
    b = None if bias is None else jnp.asarray(bias)
    if w.ndim not in (1, 2):
        raise ValueError(f"linear: expected weight (out, in) or (in,), got {w.shape}.")
    if x.ndim == 0 or x.shape[-1] != w.shape[-1]:
        raise ValueError(f"linear: expected input (..., {w.shape[-1]}), got {x.shape}.")
    if b is not None and b.shape != w.shape[:-1]:
        raise ValueError(f"linear: expected bias {w.shape[:-1]}, got {b.shape}.")
    same_dtype("linear", input=x, weight=w, bias=b)
    y = lax.dot_general(x, w, (((x.ndim - 1,), (w.ndim - 1,)), ((), ())))
    return y if b is None else y + b


def bilinear(
    input1: ArrayLike, input2: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None
) -> Array:
    """Apply a bilinear map to the last axes: ``y[k] = x1 @ weight[k] @ x2 + bias[k]``.

    Args:
        input1: ``(..., in1_features)``.
        input2: ``(..., in2_features)``, with the same leading axes.
        weight: ``(out_features, in1_features, in2_features)``.
        bias: ``(out_features,)``.

    Returns:
        ``(..., out_features)``.

    Raises:
        ValueError: If the shapes don't fit.
        TypeError: If the dtypes differ.

    Source: ``torch.nn.functional.bilinear``.

    Example:
        >>> bilinear(jnp.ones((4, 3)), jnp.ones((4, 5)), jnp.ones((2, 3, 5))).shape
        (4, 2)
    """
    x1, x2, w = jnp.asarray(input1), jnp.asarray(input2), jnp.asarray(weight)
    b = None if bias is None else jnp.asarray(bias)
    if w.ndim != 3:
        raise ValueError(f"bilinear: expected weight (out, in1, in2), got {w.shape}.")
    if x1.ndim == 0 or x2.ndim == 0 or x1.shape[:-1] != x2.shape[:-1]:
        raise ValueError(
            f"bilinear: expected inputs with the same leading axes, got {x1.shape} and {x2.shape}."
        )
    if (x1.shape[-1], x2.shape[-1]) != w.shape[1:]:
        raise ValueError(
            f"bilinear: expected inputs (..., {w.shape[1]}) and (..., {w.shape[2]}), "
            f"got {x1.shape} and {x2.shape}."
        )
    if b is not None and b.shape != w.shape[:1]:
        raise ValueError(f"bilinear: expected bias {w.shape[:1]}, got {b.shape}.")
    same_dtype("bilinear", input1=x1, input2=x2, weight=w, bias=b)
    y = jnp.einsum("...i,oij,...j->...o", x1, w, x2)
    return y if b is None else y + b
