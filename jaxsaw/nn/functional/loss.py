"""Losses. They are computed in float32 at least, and returned in the input's dtype."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxsaw.nn.functional._common import (
    ArrayLike,
    accumulator,
    floating,
    integers,
    is_concrete,
    magnitude,
    promote,
    same_dtype,
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
    _check_reduction("mse_loss", reduction, size_average, reduce)
    return _elementwise(
        "mse_loss", jnp.square, input, target, weight, reduction, weighted_mean=True
    )


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
    _check_reduction("l1_loss", reduction, size_average, reduce)
    return _elementwise("l1_loss", magnitude, input, target, weight, reduction, weighted_mean=True)


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
    _check_reduction("smooth_l1_loss", reduction, size_average, reduce)
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: expected beta of at least 0, got {beta}.")

    def formula(error: Array) -> Array:
        size = magnitude(error)
        if beta == 0:
            return size
        return jnp.where(size < beta, 0.5 * jnp.square(error) / beta, size - 0.5 * beta)

    return _elementwise("smooth_l1_loss", formula, input, target, None, reduction)


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
    _check_reduction("huber_loss", reduction)
    if delta <= 0:
        raise ValueError(f"huber_loss: expected delta above 0, got {delta}.")

    def formula(error: Array) -> Array:
        size = magnitude(error)
        return jnp.where(size < delta, 0.5 * jnp.square(error), delta * (size - 0.5 * delta))

    return _elementwise("huber_loss", formula, input, target, weight, reduction)


def cross_entropy(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """Take minus the logarithm of the probability that ``softmax(input)`` gives to the target.

    Args:
        input: Logits, ``(N, C, *)`` or ``(C,)``.
        target: Class indices, ``(N, *)`` or ``()``; or probabilities, of the input's shape.
        weight: A factor for each class, ``(C,)``. With class indices, the mean is divided by the
            sum of the targets' weights.
        size_average: Not supported; use ``reduction``.
        ignore_index: A class index that counts for nothing.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: How much of the target is spread evenly over the classes, in [0, 1].

    Returns:
        A scalar, or ``(N, *)`` or ``()`` for ``"none"``. While tracing, when targets can't be
        looked at, the loss of one out of range is NaN.

    Raises:
        ValueError: If shapes or settings don't fit, or a target is out of range.
        TypeError: If the dtypes don't fit.

    Source: ``torch.nn.functional.cross_entropy``; Szegedy et al., 2015, for the smoothing.

    Example:
        >>> round(cross_entropy(jnp.zeros((2, 4)), jnp.array([0, 3])).item(), 4)
        1.3863
    """
    name = "cross_entropy"
    _check_reduction(name, reduction, size_average, reduce)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"{name}: expected label_smoothing in [0, 1], got {label_smoothing}.")
    x, goal = _logits(name, input), jnp.asarray(target)
    w = _class_weight(name, weight, x)
    dim = min(x.ndim - 1, 1)
    wide = x.astype(accumulator(x.dtype))
    # Moved so that the largest is 0, and no sum overflows or loses the small ones.
    shifted = wide - lax.stop_gradient(wide.max(dim, keepdims=True))
    log_total = jnp.log(jnp.exp(shifted).sum(dim))  # (N, *)

    if goal.shape == x.shape:
        goal = floating(name, goal, "target with probabilities").astype(wide.dtype)
        if ignore_index != -100:
            raise ValueError(f"{name}: ignore_index needs a target of class indices.")
        goal = goal * (1 - label_smoothing) + label_smoothing / x.shape[dim]
        goal = goal if w is None else goal * _along(w, dim, x.ndim)
        loss = -(goal * (shifted - jnp.expand_dims(log_total, dim))).sum(dim)
        return _reduce(loss, reduction).astype(x.dtype)

    index, counts = _class_indices(name, x, goal, ignore_index)
    picked = jnp.take_along_axis(shifted, jnp.expand_dims(index, dim), dim, mode="fill").squeeze(
        dim
    )
    share = counts.astype(wide.dtype)  # what each target weighs
    if w is not None:
        share = share * jnp.take(w, index, mode="clip")
    loss = jnp.where(counts, share * (log_total - picked), 0)
    if label_smoothing > 0:
        classes = 1 if w is None else _along(w, dim, x.ndim)
        even = (classes * (jnp.expand_dims(log_total, dim) - shifted)).sum(dim) / x.shape[dim]
        even = jnp.where(counts, even, 0)
        loss = (1 - label_smoothing) * loss + label_smoothing * even
    if reduction == "mean":
        return (loss.sum() / share.sum()).astype(x.dtype)
    return _reduce(loss, reduction).astype(x.dtype)


def nll_loss(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Take minus the log-probability of the target class.

    Args:
        input: Log-probabilities, ``(N, C, *)`` or ``(C,)``.
        target: Class indices, ``(N, *)`` or ``()``.
        weight: A factor for each class, ``(C,)``; the mean is divided by the sum of the targets'.
        size_average: Not supported; use ``reduction``.
        ignore_index: A class index that counts for nothing.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, *)`` or ``()`` for ``"none"``. While tracing, when targets can't be
        looked at, the loss of one out of range is NaN.

    Raises:
        ValueError: If shapes or ``reduction`` don't fit, or a target is out of range.
        TypeError: If the dtypes don't fit.

    Source: ``torch.nn.functional.nll_loss``.

    Example:
        >>> nll_loss(jnp.array([[-1.0, -2.0]]), jnp.array([1])).item()
        2.0
    """
    _check_reduction("nll_loss", reduction, size_average, reduce)
    x = _logits("nll_loss", input)
    w = _class_weight("nll_loss", weight, x)
    dim = min(x.ndim - 1, 1)
    wide = x.astype(accumulator(x.dtype))
    index, counts = _class_indices("nll_loss", x, jnp.asarray(target), ignore_index)
    picked = jnp.take_along_axis(wide, jnp.expand_dims(index, dim), dim, mode="fill").squeeze(dim)
    share = counts.astype(wide.dtype)
    if w is not None:
        share = share * jnp.take(w, index, mode="clip")
    loss = jnp.where(counts, -share * picked, 0)
    if reduction == "mean":
        return (loss.sum() / share.sum()).astype(x.dtype)
    return _reduce(loss, reduction).astype(x.dtype)


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
    _check_reduction(name, reduction, size_average, reduce)
    x, goal = floating(name, input), floating(name, target, "target")
    _check_same_shape(name, x, goal)
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
    loss = _times_weight(name, loss, weight)
    return _reduce(loss, reduction).astype(x.dtype)


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
    _check_reduction(name, reduction, size_average, reduce)
    x, goal = floating(name, input), floating(name, target, "target")
    _check_same_shape(name, x, goal)
    (_, goal), dtype = promote(x, goal), accumulator(x.dtype)
    out = goal.dtype
    wide, goal = x.astype(dtype), goal.astype(dtype)
    positive = goal
    if pos_weight is not None:
        positive = goal * _broadcasts(name, "pos_weight", pos_weight, goal).astype(dtype)
    loss = -positive * jax.nn.log_sigmoid(wide) - (1 - goal) * jax.nn.log_sigmoid(-wide)
    loss = _times_weight(name, loss, weight)
    return _reduce(loss, reduction).astype(out)


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
        _check_reduction("kl_div", reduction, size_average, reduce, "batchmean")
    x, goal = promote(floating("kl_div", input), floating("kl_div", target, "target"))
    wide, goal = (v.astype(accumulator(x.dtype)) for v in (x, goal))
    _check_broadcast("kl_div", wide, goal)
    if log_target:
        loss = jnp.exp(goal) * (goal - wide)
    else:
        loss = jax.scipy.special.xlogy(goal, goal) - goal * wide
    if reduction == "batchmean":
        return (loss.sum() / (x.shape[0] if x.ndim else 1)).astype(x.dtype)
    return _reduce(loss, reduction).astype(x.dtype)


def _elementwise(
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
    _check_broadcast(name, x, goal)
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
    return _reduce(loss, reduction).astype(x.dtype)


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


def _reduce(loss: Array, reduction: str) -> Array:
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def _check_reduction(
    name: str, reduction: str, size_average: Any = None, reduce: Any = None, *more: str
) -> None:
    if size_average is not None or reduce is not None:
        raise ValueError(f"{name}: size_average and reduce aren't supported; use reduction=.")
    known = ("none", "mean", "sum", *more)
    if reduction not in known:
        raise ValueError(f"{name}: expected reduction to be one of {known}, got {reduction!r}.")


def _check_broadcast(name: str, x: Array, goal: Array) -> None:
    try:
        jnp.broadcast_shapes(x.shape, goal.shape)
    except ValueError:
        raise ValueError(
            f"{name}: expected target of the input's shape {x.shape}, got {goal.shape}."
        ) from None


def _check_same_shape(name: str, x: Array, goal: Array) -> None:
    if x.shape != goal.shape:
        raise ValueError(
            f"{name}: expected target of the input's shape {x.shape}, got {goal.shape}."
        )


def _broadcasts(name: str, argument: str, value: ArrayLike, goal: Array) -> Array:
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


def _times_weight(name: str, loss: Array, weight: ArrayLike | None) -> Array:
    if weight is None:
        return loss
    return loss * _broadcasts(name, "weight", weight, loss).astype(loss.dtype)


def _logits(name: str, input: ArrayLike) -> Array:
    x = floating(name, input)
    if x.ndim == 0:
        raise ValueError(f"{name}: expected input (N, C, *) or (C,), got ().")
    return x


def _class_weight(name: str, weight: ArrayLike | None, x: Array) -> Array | None:
    if weight is None:
        return None
    w = floating(name, weight, "weight")
    classes = x.shape[min(x.ndim - 1, 1)]
    if w.shape != (classes,):
        raise ValueError(
            f"{name}: expected weight ({classes},) for {classes} classes, got {w.shape}."
        )
    same_dtype(name, input=x, weight=w)
    return w.astype(accumulator(x.dtype))


def _along(w: Array, dim: int, ndim: int) -> Array:
    return w.reshape(-1, *(1,) * (ndim - 1 - dim))


def _class_indices(name: str, x: Array, target: Array, ignore_index: int) -> tuple[Array, Array]:
    """Return indices that are safe to look up, and which of them count."""
    expected = x.shape[:1] * (x.ndim > 1) + x.shape[2:]
    if target.shape != expected:
        raise ValueError(
            f"{name}: expected target {expected} for input {x.shape}, got {target.shape}."
        )
    index = integers(name, target, "target with class indices")
    classes = x.shape[min(x.ndim - 1, 1)]
    if is_concrete(index):
        values = np.asarray(index)
        wrong = values[((values < 0) | (values >= classes)) & (values != ignore_index)]
        if wrong.size:
            raise ValueError(
                f"{name}: expected targets in [0, {classes - 1}] or ignore_index={ignore_index}, "
                f"got {wrong[0]}."
            )
    index = index.astype(jnp.int32)
    counts = index != ignore_index
    # A negative index would count from the end; out of range instead, it gives NaN.
    return jnp.where(counts, jnp.where(index < 0, classes, index), 0), counts
