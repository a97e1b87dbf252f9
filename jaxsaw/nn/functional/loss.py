"""Losses of numbers and of distributions.

They are computed in float32 at least, and returned in the input's dtype.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxsaw.nn.functional._common import (
    ArrayLike,
    accumulator,
    floating,
    is_concrete,
    magnitude,
    promote,
    same_dtype,
)
from jaxsaw.nn.functional._loss import (
    broadcasts,
    check_broadcast,
    check_reduction,
    check_same_shape,
    of_error,
    reduced,
    times_weight,
)


def mse_loss(
    input: ArrayLike,
    target: ArrayLike,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    weight: ArrayLike | None = None,
) -> Array:
    """Take the squared error, ``(input - target)^2``.

    Args:
        input: Any shape.
        target: The same shape (another one broadcasts, with a warning).
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weight: A factor for each element, of the input's shape; the mean is divided by their sum.

    Returns:
        A scalar, or the shape of the inputs for ``"none"``.

    Raises:
        ValueError: If the shapes or ``reduction`` don't fit.
        TypeError: If neither input is floating.

    Source: ``torch.nn.functional.mse_loss``.

    Example:
        >>> mse_loss(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0])).item()
        2.0
    """
    check_reduction("mse_loss", reduction, size_average, reduce)
    return of_error("mse_loss", jnp.square, input, target, weight, reduction, weighted_mean=True)


def l1_loss(
    input: ArrayLike,
    target: ArrayLike,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    weight: ArrayLike | None = None,
) -> Array:
    """Take the absolute error, ``|input - target|``.

    Args:
        input: Any shape.
        target: The same shape (another one broadcasts, with a warning).
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weight: A factor for each element, of the input's shape; the mean is divided by their sum.

    Returns:
        A scalar, or the shape of the inputs for ``"none"``.

    Raises:
        ValueError: If the shapes or ``reduction`` don't fit.
        TypeError: If neither input is floating.

    Source: ``torch.nn.functional.l1_loss``.

    Example:
        >>> l1_loss(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0])).item()
        1.0
    """
    check_reduction("l1_loss", reduction, size_average, reduce)
    return of_error("l1_loss", magnitude, input, target, weight, reduction, weighted_mean=True)


def smooth_l1_loss(
    input: ArrayLike,
    target: ArrayLike,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Array:
    """Take ``d^2 / (2 * beta)`` for errors ``d`` below ``beta``, else ``d - beta / 2``.

    Args:
        input: Any shape.
        target: The same shape (another one broadcasts, with a warning).
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        beta: Where the parabola meets the line; 0 gives :func:`l1_loss`.

    Returns:
        A scalar, or the shape of the inputs for ``"none"``.

    Raises:
        ValueError: If the shapes or ``reduction`` don't fit, or ``beta`` is negative.
        TypeError: If neither input is floating.

    Source: ``torch.nn.functional.smooth_l1_loss``; Girshick, 2015.

    Example:
        >>> smooth_l1_loss(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0]), reduction="none").tolist()
        [0.0, 1.5]
    """
    check_reduction("smooth_l1_loss", reduction, size_average, reduce)
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: expected beta of at least 0, got {beta}.")

    def formula(error: Array) -> Array:
        size = magnitude(error)
        if beta == 0:
            return size
        return jnp.where(size < beta, 0.5 * jnp.square(error) / beta, size - 0.5 * beta)

    return of_error("smooth_l1_loss", formula, input, target, None, reduction)


def huber_loss(
    input: ArrayLike,
    target: ArrayLike,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: ArrayLike | None = None,
) -> Array:
    """Take ``d^2 / 2`` for errors ``d`` up to ``delta``, else ``delta * (d - delta / 2)``.

    Args:
        input: Any shape.
        target: The same shape (another one broadcasts, with a warning).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        delta: Where the parabola meets the line.
        weight: A factor for each element, of the input's shape.

    Returns:
        A scalar, or the shape of the inputs for ``"none"``.

    Raises:
        ValueError: If the shapes or ``reduction`` don't fit, or ``delta`` isn't positive.
        TypeError: If neither input is floating.

    Source: ``torch.nn.functional.huber_loss``; Huber, 1964.

    Example:
        >>> huber_loss(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0]), reduction="none").tolist()
        [0.0, 1.5]
    """
    check_reduction("huber_loss", reduction)
    if delta <= 0:
        raise ValueError(f"huber_loss: expected delta above 0, got {delta}.")

    def formula(error: Array) -> Array:
        size = magnitude(error)
        return jnp.where(size < delta, 0.5 * jnp.square(error), delta * (size - 0.5 * delta))

    return of_error("huber_loss", formula, input, target, weight, reduction)


def binary_cross_entropy(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Take ``-(target * log(input) + (1 - target) * log(1 - input))``.

    As in PyTorch no logarithm goes below -100, and the gradient is ``(input - target) /
    max(input * (1 - input), 1e-12)``.

    Args:
        input: Probabilities, any shape.
        target: Probabilities, the same shape.
        weight: A factor that broadcasts to that shape.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or the shape of the inputs for ``"none"``.

    Raises:
        ValueError: If shapes or ``reduction`` don't fit, or an input is outside of [0, 1].
        TypeError: If the dtypes don't fit.

    Source: ``torch.nn.functional.binary_cross_entropy``.

    Example:
        >>> round(binary_cross_entropy(jnp.array([0.5]), jnp.array([1.0])).item(), 4)
        0.6931
    """
    name = "binary_cross_entropy"
    check_reduction(name, reduction, size_average, reduce)
    x, goal = floating(name, input), floating(name, target, "target")
    check_same_shape(name, x, goal)
    same_dtype(name, input=x, target=goal)
    if is_concrete(x) and x.size:
        values = np.asarray(x)
        if not (values.min() >= 0 and values.max() <= 1):
            raise ValueError(
                f"{name}: expected input in [0, 1], got [{values.min()}, {values.max()}]. "
                "For logits use binary_cross_entropy_with_logits."
            )
    dtype = accumulator(x.dtype)
    loss = _binary_entropy(x.astype(dtype), goal.astype(dtype))
    loss = times_weight(name, loss, weight)
    return reduced(loss, reduction).astype(x.dtype)


def binary_cross_entropy_with_logits(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    pos_weight: ArrayLike | None = None,
) -> Array:
    """Take :func:`binary_cross_entropy` of ``sigmoid(input)``, without overflow.

    Args:
        input: Logits, any shape.
        target: Probabilities, the same shape.
        weight: A factor that broadcasts to that shape.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        pos_weight: A factor for the positive part, that broadcasts to that shape.

    Returns:
        A scalar, or the shape of the inputs for ``"none"``.

    Raises:
        ValueError: If shapes or ``reduction`` don't fit.
        TypeError: If the dtypes don't fit.

    Source: ``torch.nn.functional.binary_cross_entropy_with_logits``.

    Example:
        >>> round(binary_cross_entropy_with_logits(jnp.zeros(2), jnp.ones(2)).item(), 4)
        0.6931
    """
    name = "binary_cross_entropy_with_logits"
    check_reduction(name, reduction, size_average, reduce)
    x, goal = floating(name, input), floating(name, target, "target")
    check_same_shape(name, x, goal)
    (_, goal), dtype = promote(x, goal), accumulator(x.dtype)
    out = goal.dtype
    wide, goal = x.astype(dtype), goal.astype(dtype)
    positive = goal
    if pos_weight is not None:
        positive = goal * broadcasts(name, "pos_weight", pos_weight, goal).astype(dtype)
    loss = -positive * jax.nn.log_sigmoid(wide) - (1 - goal) * jax.nn.log_sigmoid(-wide)
    loss = times_weight(name, loss, weight)
    return reduced(loss, reduction).astype(out)


def kl_div(
    input: ArrayLike,
    target: ArrayLike,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Array:
    """Take the terms of the Kullback-Leibler divergence, ``target * (log(target) - input)``.

    Args:
        input: Log-probabilities, any shape.
        target: Probabilities, the same shape (another one broadcasts).
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"batchmean"`` for the divergence itself; ``"mean"`` (over all elements),
            ``"sum"`` or ``"none"``.
        log_target: The target is log-probabilities too.

    Returns:
        A scalar, or the shape of the inputs for ``"none"``.

    Raises:
        ValueError: If shapes or ``reduction`` don't fit.
        TypeError: If the inputs aren't floating.

    Source: ``torch.nn.functional.kl_div``; Kullback and Leibler, 1951.

    Example:
        >>> p = jnp.array([[0.5, 0.5]])
        >>> kl_div(jnp.log(p), p, reduction="batchmean").item()
        0.0
    """
    if reduction != "batchmean":
        check_reduction("kl_div", reduction, size_average, reduce, "batchmean")
    x, goal = promote(floating("kl_div", input), floating("kl_div", target, "target"))
    wide, goal = (v.astype(accumulator(x.dtype)) for v in (x, goal))
    check_broadcast("kl_div", wide, goal)
    if log_target:
        loss = jnp.exp(goal) * (goal - wide)
    else:
        loss = jax.scipy.special.xlogy(goal, goal) - goal * wide
    if reduction == "batchmean":
        return (loss.sum() / (x.shape[0] if x.ndim else 1)).astype(x.dtype)
    return reduced(loss, reduction).astype(x.dtype)


def poisson_nll_loss(
    input: ArrayLike,
    target: ArrayLike,
    log_input: bool = True,
    full: bool = False,
    size_average: None = None,
    eps: float = 1e-8,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Take minus the log-likelihood of counts under a Poisson distribution.

    That is ``exp(input) - target * input`` or, for a rate, ``input - target * log(input + eps)``.

    Args:
        input: The logarithm of the rate, any shape.
        target: The counts, a shape that broadcasts with it.
        log_input: False means that the input is the rate itself.
        full: Add Stirling's formula for ``log(target!)``, where the target is above 1.
        size_average: Not supported; use ``reduction``.
        eps: Keeps the logarithm finite.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or the shape of the inputs for ``"none"``.

    Raises:
        ValueError: If shapes or ``reduction`` don't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.poisson_nll_loss``.

    Example:
        >>> poisson_nll_loss(jnp.zeros(2), jnp.array([0.0, 3.0])).item()
        1.0
    """
    name = "poisson_nll_loss"
    check_reduction(name, reduction, size_average, reduce)
    x, goal = promote(floating(name, input), jnp.asarray(target))
    check_broadcast(name, x, goal)
    out, (x, goal) = x.dtype, (v.astype(accumulator(x.dtype)) for v in (x, goal))
    loss = jnp.exp(x) - goal * x if log_input else x - goal * jnp.log(x + eps)
    if full:
        large = jnp.where(goal > 1, goal, 1)
        stirling = large * jnp.log(large) - large + 0.5 * jnp.log(2 * math.pi * large)
        loss = loss + jnp.where(goal > 1, stirling, 0)
    return reduced(loss, reduction).astype(out)


def gaussian_nll_loss(
    input: ArrayLike,
    target: ArrayLike,
    var: ArrayLike,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Array:
    """Take minus the log-likelihood under a normal distribution.

    That is ``(log(var) + (input - target)^2 / var) / 2``. As in PyTorch, a variance below ``eps``
    counts as ``eps``, and has the gradient that ``eps`` would have.

    Args:
        input: The mean, any shape.
        target: The same shape, or one that broadcasts.
        var: The variance: a number, the input's shape, or that without its last axis; one axis
            may also have size 1.
        full: Add the constant ``log(2 * pi) / 2``.
        eps: The least variance.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or the shape of the inputs for ``"none"``.

    Raises:
        ValueError: If shapes or ``reduction`` don't fit, or a variance is negative.
        TypeError: If the inputs aren't floating.

    Source: ``torch.nn.functional.gaussian_nll_loss``; Nix and Weigend, 1994.

    Example:
        >>> gaussian_nll_loss(jnp.zeros(2), jnp.array([0.0, 2.0]), jnp.ones(2)).item()
        1.0
    """
    name = "gaussian_nll_loss"
    check_reduction(name, reduction)
    x, goal = promote(floating(name, input), floating(name, target, "target"))
    check_broadcast(name, x, goal)
    out, (x, goal) = x.dtype, (v.astype(accumulator(x.dtype)) for v in (x, goal))
    v = jnp.broadcast_to(var, x.shape) if isinstance(var, int | float) else jnp.asarray(var)
    shape, v = v.shape, v.astype(x.dtype)
    v = v[..., None] if v.shape == x.shape[:-1] and x.ndim else v
    others = [a for a, b in zip(v.shape, x.shape, strict=False) if a != b]
    if v.ndim != x.ndim or others not in ([], [1]):
        raise ValueError(
            f"{name}: expected var {x.shape}, {x.shape[:-1]} or with one axis of size 1, "
            f"got {shape}."
        )
    if is_concrete(v) and v.size and np.asarray(v).min() < 0:
        raise ValueError(f"{name}: expected var of at least 0, got {np.asarray(v).min()}.")
    v = v + jax.lax.stop_gradient(jnp.maximum(v, eps) - v)
    loss = 0.5 * (jnp.log(v) + jnp.square(x - goal) / v)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return reduced(loss, reduction).astype(out)


@jax.custom_jvp
def _binary_entropy(x: Array, goal: Array) -> Array:
    log_x, log_rest = jnp.maximum(jnp.log(x), -100), jnp.maximum(jnp.log1p(-x), -100)
    return (goal - 1) * log_rest - goal * log_x


@_binary_entropy.defjvp
def _binary_entropy_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    (x, goal), (dx, dgoal) = primals, tangents
    slope = (x - goal) / jnp.maximum(x * (1 - x), 1e-12)
    return _binary_entropy(x, goal), slope * dx + (jnp.log1p(-x) - jnp.log(x)) * dgoal
