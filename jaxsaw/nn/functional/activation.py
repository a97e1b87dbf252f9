"""Activations: functions of each element."""

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
    same_dtype,
)

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def relu(input: ArrayLike, inplace: bool = False) -> Array:
    """Apply ``max(x, 0)`` to each element.

    Args:
        input: Any shape.
        inplace: Accepted and ignored.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input is boolean.

    Source: ``torch.nn.functional.relu``; Nair and Hinton, 2010.

    Example:
        >>> relu(jnp.array([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """
    return jax.nn.relu(_number("relu", input))


def relu6(input: ArrayLike, inplace: bool = False) -> Array:
    """Apply ``min(max(x, 0), 6)`` to each element.

    Args:
        input: Any shape.
        inplace: Accepted and ignored.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input is boolean.

    Source: ``torch.nn.functional.relu6``; Krizhevsky, 2010.

    Example:
        >>> relu6(jnp.array([-1.0, 2.0, 8.0])).tolist()
        [0.0, 2.0, 6.0]
    """
    return _clip(_number("relu6", input), 0, 6)


def leaky_relu(input: ArrayLike, negative_slope: float = 0.01, inplace: bool = False) -> Array:
    """Apply ``x`` where it is positive, else ``negative_slope * x``.

    Args:
        input: Any shape.
        negative_slope: Slope on the left of 0.
        inplace: Accepted and ignored.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.leaky_relu``; Maas et al., 2013.

    Example:
        >>> leaky_relu(jnp.array([-2.0, 2.0]), 0.5).tolist()
        [-1.0, 2.0]
    """
    x = floating("leaky_relu", input)
    return jnp.where(x > 0, x, x * negative_slope)


def elu(input: ArrayLike, alpha: float = 1.0, inplace: bool = False) -> Array:
    """Apply ``x`` where it is positive, else ``alpha * (exp(x) - 1)``.

    Args:
        input: Any shape.
        alpha: Minus the limit on the left.
        inplace: Accepted and ignored.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.elu``; Clevert, Unterthiner and Hochreiter, 2015.

    Example:
        >>> elu(jnp.array([-100.0, 2.0])).tolist()
        [-1.0, 2.0]
    """
    x, dtype = _wide("elu", input)
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.where(x > 0, 0, x))).astype(dtype)


def selu(input: ArrayLike, inplace: bool = False) -> Array:
    """Apply ``scale * elu(x, alpha)`` with the constants of self-normalising networks.

    Args:
        input: Any shape.
        inplace: Accepted and ignored.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.selu``; Klambauer et al., 2017.

    Example:
        >>> [round(y, 3) for y in selu(jnp.array([-100.0, 1.0])).tolist()]
        [-1.758, 1.051]
    """
    x, dtype = _wide("selu", input)
    return (_SELU_SCALE * elu(x, _SELU_ALPHA)).astype(dtype)


def celu(input: ArrayLike, alpha: float = 1.0, inplace: bool = False) -> Array:
    """Apply ``x`` where it is positive, else ``alpha * (exp(x / alpha) - 1)``.

    Args:
        input: Any shape.
        alpha: Minus the limit on the left.
        inplace: Accepted and ignored.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input isn't floating.
        ValueError: If ``alpha`` is 0.

    Source: ``torch.nn.functional.celu``; Barron, 2017.

    Example:
        >>> celu(jnp.array([-100.0, 2.0]), 0.5).tolist()
        [-0.5, 2.0]
    """
    x, dtype = _wide("celu", input)
    if alpha == 0:
        raise ValueError("celu: expected alpha other than 0.")
    negative = alpha * jnp.expm1(jnp.where(x > 0, 0, x) / alpha)
    return jnp.where(x > 0, x, negative).astype(dtype)


def gelu(input: ArrayLike, approximate: str = "none") -> Array:
    """Apply ``x * P(z <= x)`` for a normal ``z`` to each element.

    Args:
        input: Any shape.
        approximate: ``"none"`` for the exact function, ``"tanh"`` for the faster formula.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input isn't floating.
        ValueError: If ``approximate`` is neither.

    Source: ``torch.nn.functional.gelu``; Hendrycks and Gimpel, 2016.

    Example:
        >>> [round(y, 3) for y in gelu(jnp.array([0.0, 1.0])).tolist()]
        [0.0, 0.841]
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: expected approximate='none' or 'tanh', got {approximate!r}.")
    x, dtype = _wide("gelu", input)
    return jax.nn.gelu(x, approximate=approximate == "tanh").astype(dtype)


def silu(input: ArrayLike, inplace: bool = False) -> Array:
    """Apply ``x * sigmoid(x)`` to each element.

    Args:
        input: Any shape.
        inplace: Accepted and ignored.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.silu``; Elfwing, Uchibe and Doya, 2017.

    Example:
        >>> silu(jnp.array([0.0, 100.0])).tolist()
        [0.0, 100.0]
    """
    x, dtype = _wide("silu", input)
    return (x * jax.nn.sigmoid(x)).astype(dtype)


def mish(input: ArrayLike, inplace: bool = False) -> Array:
    """Apply ``x * tanh(softplus(x))`` to each element.

    Args:
        input: Any shape.
        inplace: Accepted and ignored.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.mish``; Misra, 2019.

    Example:
        >>> mish(jnp.array([0.0, 100.0])).tolist()
        [0.0, 100.0]
    """
    x, dtype = _wide("mish", input)
    return (x * jnp.tanh(jax.nn.softplus(x))).astype(dtype)


def sigmoid(input: ArrayLike) -> Array:
    """Apply ``1 / (1 + exp(-x))`` to each element.

    Args:
        input: Any shape.

    Returns:
        The input's shape; its dtype, or the default float for integers.

    Raises:
        TypeError: If the input isn't numeric.

    Source: ``torch.nn.functional.sigmoid``.

    Example:
        >>> sigmoid(jnp.array([0.0])).tolist()
        [0.5]
    """
    return jax.nn.sigmoid(_as_float(input))


def logsigmoid(input: ArrayLike) -> Array:
    """Apply ``log(sigmoid(x))`` to each element, without overflow.

    Args:
        input: Any shape.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.logsigmoid``.

    Example:
        >>> logsigmoid(jnp.array([-100.0])).tolist()
        [-100.0]
    """
    x, dtype = _wide("logsigmoid", input)
    return jax.nn.log_sigmoid(x).astype(dtype)


def hardsigmoid(input: ArrayLike, inplace: bool = False) -> Array:
    """Apply ``relu6(x + 3) / 6`` to each element.

    Args:
        input: Any shape.
        inplace: Accepted and ignored.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.hardsigmoid``; Courbariaux, Bengio and David, 2015.

    Example:
        >>> hardsigmoid(jnp.array([-4.0, 0.0, 4.0])).tolist()
        [0.0, 0.5, 1.0]
    """
    x, dtype = _wide("hardsigmoid", input)
    return (_clip(x + 3, 0, 6) / 6).astype(dtype)


def hardswish(input: ArrayLike, inplace: bool = False) -> Array:
    """Apply ``x * relu6(x + 3) / 6`` to each element.

    Args:
        input: Any shape.
        inplace: Accepted and ignored.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.hardswish``; Howard et al., 2019.

    Example:
        >>> hardswish(jnp.array([-4.0, 0.0, 4.0])).tolist()
        [0.0, 0.0, 4.0]
    """
    x, dtype = _wide("hardswish", input)
    middle = x * (x + 3) / 6
    return jnp.where(x <= -3, 0, jnp.where(x >= 3, x, middle)).astype(dtype)


def hardtanh(
    input: ArrayLike, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Array:
    """Clip each element to ``[min_val, max_val]``.

    Args:
        input: Any shape.
        min_val: Lower limit.
        max_val: Upper limit.
        inplace: Accepted and ignored.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input is boolean.
        ValueError: If ``min_val > max_val``.

    Source: ``torch.nn.functional.hardtanh``.

    Example:
        >>> hardtanh(jnp.array([-2.0, 0.5])).tolist()
        [-1.0, 0.5]
    """
    x = _number("hardtanh", input)
    if min_val > max_val:
        raise ValueError(f"hardtanh: expected min_val <= max_val, got {min_val} and {max_val}.")
    return _clip(x, min_val, max_val)


def tanh(input: ArrayLike) -> Array:
    """Apply the hyperbolic tangent to each element.

    Args:
        input: Any shape.

    Returns:
        The input's shape; its dtype, or the default float for integers.

    Raises:
        TypeError: If the input isn't numeric.

    Source: ``torch.nn.functional.tanh``.

    Example:
        >>> tanh(jnp.array([0.0, 100.0])).tolist()
        [0.0, 1.0]
    """
    return jnp.tanh(_as_float(input))


def tanhshrink(input: ArrayLike) -> Array:
    """Apply ``x - tanh(x)`` to each element.

    Args:
        input: Any shape.

    Returns:
        The input's shape; its dtype, or the default float for integers.

    Raises:
        TypeError: If the input isn't numeric.

    Source: ``torch.nn.functional.tanhshrink``.

    Example:
        >>> tanhshrink(jnp.array([0.0, 100.0])).tolist()
        [0.0, 99.0]
    """
    x = _as_float(input)
    return x - jnp.tanh(x)


def softplus(input: ArrayLike, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """Apply ``log(1 + exp(beta * x)) / beta`` to each element.

    Args:
        input: Any shape.
        beta: Sharpness of the bend.
        threshold: Where ``beta * x`` is above this, the result is ``x``.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.softplus``; Dugas et al., 2001.

    Example:
        >>> softplus(jnp.array([-100.0, 100.0])).tolist()
        [0.0, 100.0]
    """
    x, dtype = _wide("softplus", input)
    return jnp.where(x * beta > threshold, x, jax.nn.softplus(x * beta) / beta).astype(dtype)


def softsign(input: ArrayLike) -> Array:
    """Apply ``x / (1 + |x|)`` to each element.

    Args:
        input: Any shape.

    Returns:
        The input's shape; its dtype, or the default float for integers.

    Raises:
        TypeError: If the input isn't numeric.

    Source: ``torch.nn.functional.softsign``.

    Example:
        >>> softsign(jnp.array([-1.0, 3.0])).tolist()
        [-0.5, 0.75]
    """
    x = _as_float(input)
    return x / (1 + jnp.abs(x))


def softshrink(input: ArrayLike, lambd: float = 0.5) -> Array:
    """Move each element towards 0 by ``lambd``, and not beyond.

    Args:
        input: Any shape.
        lambd: How far.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input isn't floating.
        ValueError: If ``lambd`` is negative.

    Source: ``torch.nn.functional.softshrink``.

    Example:
        >>> softshrink(jnp.array([-1.0, 0.25])).tolist()
        [-0.5, 0.0]
    """
    x = floating("softshrink", input)
    if lambd < 0:
        raise ValueError(f"softshrink: expected lambd of at least 0, got {lambd}.")
    return jnp.where(x > lambd, x - lambd, jnp.where(x < -lambd, x + lambd, x * 0))


def hardshrink(input: ArrayLike, lambd: float = 0.5) -> Array:
    """Set elements within ``[-lambd, lambd]`` to 0.

    Args:
        input: Any shape.
        lambd: The limit.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.hardshrink``.

    Example:
        >>> hardshrink(jnp.array([-1.0, 0.25])).tolist()
        [-1.0, 0.0]
    """
    x = floating("hardshrink", input)
    return jnp.where((x >= -lambd) & (x <= lambd), 0, x)


def threshold(input: ArrayLike, threshold: float, value: float, inplace: bool = False) -> Array:
    """Apply ``x`` where it is above ``threshold``, else ``value``.

    Args:
        input: Any shape.
        threshold: The limit.
        value: What stands in for elements not above it.
        inplace: Accepted and ignored.

    Returns:
        The input's shape and dtype.

    Raises:
        TypeError: If the input is boolean.

    Source: ``torch.nn.functional.threshold``.

    Example:
        >>> threshold(jnp.array([-1.0, 2.0]), 0.0, -5.0).tolist()
        [-5.0, 2.0]
    """
    x = _number("threshold", input)
    return jnp.where(x <= threshold, jnp.asarray(value, x.dtype), x)


def glu(input: ArrayLike, dim: int = -1) -> Array:
    """Halve the axis ``dim`` to ``a`` and ``b``, and apply ``a * sigmoid(b)``.

    Args:
        input: Any shape.
        dim: The axis.

    Returns:
        The input's shape with half the size at ``dim``.

    Raises:
        ValueError: If the size isn't even.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.glu``; Dauphin et al., 2016.

    Example:
        >>> glu(jnp.ones((2, 6))).shape
        (2, 3)
    """
    x, dtype = _wide("glu", input)
    d = axis("glu", dim, x.ndim)
    if x.ndim == 0 or x.shape[d] % 2:
        raise ValueError(f"glu: expected an even size at dim {dim}, got input {x.shape}.")
    a, b = jnp.split(x, 2, axis=d)
    return (a * jax.nn.sigmoid(b)).astype(dtype)


def prelu(input: ArrayLike, weight: ArrayLike) -> Array:
    """Apply ``x`` where it is positive, else ``weight * x``, with one weight or one a channel.

    Args:
        input: Any shape.
        weight: ``(1,)``, or ``(C,)`` for input ``(N, C, *)``.

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: If the number of weights doesn't fit.
        TypeError: If a dtype doesn't fit.

    Source: ``torch.nn.functional.prelu``; He et al., 2015.

    Example:
        >>> prelu(jnp.array([[-2.0, -2.0]]), jnp.array([0.5, 0.25])).tolist()
        [[-1.0, -0.5]]
    """
    x, w = floating("prelu", input), floating("prelu", weight, "weight")
    channels = x.shape[1] if x.ndim > 1 else 1
    if w.ndim > 1 or w.size not in (1, channels):
        raise ValueError(
            f"prelu: expected weight (1,) or ({channels},) for input {x.shape}, got {w.shape}."
        )
    same_dtype("prelu", input=x, weight=w)
    w = w.reshape(-1, *(1,) * (x.ndim - 2)) if x.ndim > 1 else w.reshape(())
    return jnp.where(x > 0, x, w * x)


def rrelu(
    input: ArrayLike,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
    *,
    rngs: Streams | None = None,
) -> Array:
    """Apply ``x`` where it is positive, else ``a * x`` with a random slope for each element.

    Args:
        input: Any shape.
        lower: The least slope.
        upper: The largest slope.
        training: False takes the mean of the two for every slope, and draws nothing.
        inplace: Accepted and ignored.
        rngs: Where the stream ``dropout`` comes from; the ambient one if None.

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: If ``lower`` is above ``upper``.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.rrelu``; Xu et al., 2015.

    Example:
        >>> rrelu(jnp.array([-1.0, 2.0]), 0.25, 0.75).tolist()
        [-0.5, 2.0]
    """
    x = floating("rrelu", input)
    if lower > upper:
        raise ValueError(f"rrelu: expected lower <= upper, got {lower} and {upper}.")
    if not training or lower == upper:
        return leaky_relu(x, (lower + upper) / 2)
    key = draw_key("rrelu", rngs)
    slope = jax.random.uniform(key, x.shape, accumulator(x.dtype), lower, upper)
    return jnp.where(x > 0, x, slope.astype(x.dtype) * x)


def _number(name: str, input: ArrayLike) -> Array:
    x = jnp.asarray(input)
    if x.dtype == bool:
        raise TypeError(f"{name}: expected input of numbers, got bool.")
    return x


def _as_float(input: ArrayLike) -> Array:
    """Return an array of floats, integers cast to the default float as PyTorch does."""
    x = jnp.asarray(input)
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)


def _wide(name: str, input: ArrayLike) -> tuple[Array, Any]:
    """Return the input in the dtype to compute in, and the dtype to return."""
    x = floating(name, input)
    return x.astype(accumulator(x.dtype)), x.dtype


def _clip(x: Array, low: float, high: float) -> Array:
    """Clip, with a gradient of 0 on the limits themselves."""
    low_, high_ = jnp.asarray(low, x.dtype), jnp.asarray(high, x.dtype)
    return jnp.where(x <= low_, low_, jnp.where(x >= high_, high_, x))
