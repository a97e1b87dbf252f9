"""Losses of classes: one right class, or several.

They are computed in float32 at least, and returned in the input's dtype.
"""

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
    promote,
    same_dtype,
)
from jaxsaw.nn.functional._loss import (
    check_broadcast,
    check_reduction,
    check_same_shape,
    reduced,
    times_weight,
)


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
    check_reduction(name, reduction, size_average, reduce)
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
        return reduced(loss, reduction).astype(x.dtype)

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
    return reduced(loss, reduction).astype(x.dtype)


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
    check_reduction("nll_loss", reduction, size_average, reduce)
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
    return reduced(loss, reduction).astype(x.dtype)


def linear_cross_entropy(
    input: ArrayLike,
    linear_weight: ArrayLike,
    target: ArrayLike,
    *,
    linear_bias: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: None = None,
) -> Array:
    """Apply a linear map, and take the :func:`cross_entropy` of what it gives.

    Args:
        input: ``(N, in_features)`` or ``(in_features,)``.
        linear_weight: ``(C, *, in_features)``.
        target: Class indices, ``(N, *)`` or ``()``; or probabilities, ``(N, C, *)`` or ``(C,)``.
        linear_bias: ``(C, *)``.
        weight: A factor for each class, ``(C,)``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        ignore_index: A class index that counts for nothing; -100 if None.
        label_smoothing: How much of the target is spread evenly over the classes, in [0, 1].
        options: Not supported; ``js.remat`` keeps the logits from being stored.

    Returns:
        A scalar, or ``(N, *)`` or ``()`` for ``"none"``.

    Raises:
        ValueError: If shapes or settings don't fit, or a target is out of range.
        TypeError: If the dtypes don't fit.

    Source: ``torch.nn.functional.linear_cross_entropy``.

    Example:
        >>> x, w = jnp.ones((2, 3)), jnp.zeros((4, 3))
        >>> round(linear_cross_entropy(x, w, jnp.array([0, 3])).item(), 4)
        1.3863
    """
    name = "linear_cross_entropy"
    if options is not None:
        raise ValueError(f"{name}: options aren't supported. js.remat spares the logits' memory.")
    x, w = floating(name, input), floating(name, linear_weight, "linear_weight")
    b = None if linear_bias is None else floating(name, linear_bias, "linear_bias")
    if w.ndim < 2 or x.ndim not in (1, 2) or x.shape[-1] != w.shape[-1]:
        raise ValueError(
            f"{name}: expected input (N, in_features) and linear_weight (C, *, in_features), "
            f"got {x.shape} and {w.shape}."
        )
    if x.ndim == 1 and w.ndim > 2:
        raise ValueError(
            f"{name}: linear_weight {w.shape} needs input (N, {w.shape[-1]}), got {x.shape}."
        )
    if b is not None and b.shape != w.shape[:-1]:
        raise ValueError(f"{name}: expected linear_bias {w.shape[:-1]}, got {b.shape}.")
    same_dtype(name, input=x, linear_weight=w, linear_bias=b)
    logits = lax.dot_general(x, w, (((x.ndim - 1,), (w.ndim - 1,)), ((), ())))
    return cross_entropy(
        logits if b is None else logits + b,
        target,
        weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def multi_margin_loss(
    input: ArrayLike,
    target: ArrayLike,
    p: int = 1,
    margin: float = 1.0,
    weight: ArrayLike | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Take how far other classes come near the right one: ``max(0, margin - x[y] + x[i])^p``.

    It is summed over the wrong classes ``i`` and divided by the number of classes.

    Args:
        input: Scores, ``(N, C)`` or ``(C,)``.
        target: Class indices, ``(N,)`` or ``()``.
        p: 1 or 2.
        margin: How far the right class should be above the others.
        weight: A factor for each class, ``(C,)``; the target's counts.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N,)`` or ``()`` for ``"none"``. While tracing, when targets can't be
        looked at, the loss of one out of range is NaN.

    Raises:
        ValueError: If shapes or settings don't fit, or a target is out of range.
        TypeError: If the dtypes don't fit.

    Source: ``torch.nn.functional.multi_margin_loss``; Crammer and Singer, 2001.

    Example:
        >>> x = jnp.array([[2.0, 1.5, 0.0, 0.0]])
        >>> multi_margin_loss(x, jnp.array([0])).item()
        0.125
    """
    name = "multi_margin_loss"
    check_reduction(name, reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError(f"{name}: expected p to be 1 or 2, got {p}.")
    x = floating(name, input)
    if x.ndim not in (1, 2):
        raise ValueError(f"{name}: expected input (N, C) or (C,), got {x.shape}.")
    w = _class_weight(name, weight, x)
    wide = x.astype(accumulator(x.dtype))
    index, _ = _class_indices(name, x, jnp.asarray(target), None)
    index = index[..., None]
    gap = margin - jnp.take_along_axis(wide, index, -1, mode="fill") + wide
    gap = jnp.where((gap <= 0) | (jnp.arange(x.shape[-1]) == index), 0, gap) ** p
    loss = gap.sum(-1) / x.shape[-1]
    loss = loss if w is None else loss * jnp.take(w, index[..., 0], mode="clip")
    return reduced(loss, reduction).astype(x.dtype)


def multilabel_margin_loss(
    input: ArrayLike,
    target: ArrayLike,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Take how far wrong classes come near right ones: ``max(0, 1 - x[y] + x[i])``.

    It is summed over the right classes ``y`` and the wrong ones ``i``, and divided by the number
    of classes.

    Args:
        input: Scores, ``(N, C)`` or ``(C,)``.
        target: The right classes, of the same shape; those behind the first -1 don't count.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N,)`` or ``()`` for ``"none"``.

    Raises:
        ValueError: If shapes or ``reduction`` don't fit, or a target is out of range.
        TypeError: If the dtypes don't fit.

    Source: ``torch.nn.functional.multilabel_margin_loss``.

    Example:
        >>> x, y = jnp.array([0.5, 2.0, 0.0]), jnp.array([1, -1, -1])
        >>> multilabel_margin_loss(x, y).item()
        0.0
    """
    name = "multilabel_margin_loss"
    check_reduction(name, reduction, size_average, reduce)
    x, index = floating(name, input), integers(name, target, "target")
    if x.ndim not in (1, 2):
        raise ValueError(f"{name}: expected input (N, C) or (C,), got {x.shape}.")
    check_same_shape(name, x, index)
    classes = x.shape[-1]
    _check_range(name, index, -1, classes - 1, "targets in")
    wide = x.astype(accumulator(x.dtype))
    index = index.astype(jnp.int32)
    counts = jnp.cumprod(index >= 0, -1).astype(bool)  # (N, C), the right classes
    right = (counts[..., None] & (index[..., None] == jnp.arange(classes))).any(-2)
    scores = jnp.take_along_axis(wide, jnp.where(counts, index, 0), -1, mode="fill")
    gap = 1 - scores[..., None] + wide[..., None, :]  # (N, right ones, C)
    gap = jnp.where((gap <= 0) | ~counts[..., None] | right[..., None, :], 0, gap)
    return reduced(gap.sum((-2, -1)) / classes, reduction).astype(x.dtype)


def multilabel_soft_margin_loss(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Take the mean over the classes of the binary cross entropy of logits.

    Args:
        input: Logits, ``(..., C)``.
        target: 0 or 1 for each class, of a shape that broadcasts with it.
        weight: A factor for each class, or one that broadcasts to the input's shape.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(...)`` for ``"none"``.

    Raises:
        ValueError: If shapes or ``reduction`` don't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.multilabel_soft_margin_loss``.

    Example:
        >>> round(multilabel_soft_margin_loss(jnp.zeros(3), jnp.array([1.0, 0.0, 1.0])).item(), 4)
        0.6931
    """
    name = "multilabel_soft_margin_loss"
    check_reduction(name, reduction, size_average, reduce)
    x, goal = promote(floating(name, input), jnp.asarray(target))
    if x.ndim == 0:
        raise ValueError(f"{name}: expected input (..., C), got ().")
    check_broadcast(name, x, goal)
    out, (x, goal) = x.dtype, (v.astype(accumulator(x.dtype)) for v in (x, goal))
    loss = -goal * jax.nn.log_sigmoid(x) - (1 - goal) * jax.nn.log_sigmoid(-x)
    return reduced(times_weight(name, loss, weight).mean(-1), reduction).astype(out)


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


def _class_indices(
    name: str, x: Array, target: Array, ignore_index: int | None
) -> tuple[Array, Array]:
    """Return indices that are safe to look up, and which of them count."""
    expected = x.shape[:1] * (x.ndim > 1) + x.shape[2:]
    if target.shape != expected:
        raise ValueError(
            f"{name}: expected target {expected} for input {x.shape}, got {target.shape}."
        )
    index = integers(name, target, "target with class indices")
    classes = x.shape[min(x.ndim - 1, 1)]
    _check_range(name, index, 0, classes - 1, "targets in", ignore_index)
    index = index.astype(jnp.int32)
    counts = jnp.ones_like(index, bool) if ignore_index is None else index != ignore_index
    # A negative index would count from the end; out of range instead, it gives NaN.
    return jnp.where(counts, jnp.where(index < 0, classes, index), 0), counts


def _check_range(
    name: str, index: Array, low: int, high: int, what: str, ignored: int | None = None
) -> None:
    """Refuse an index out of range, where it can be looked at."""
    if not is_concrete(index):
        return
    values = np.asarray(index)
    wrong = values[((values < low) | (values > high)) & (values != ignored)]
    if wrong.size:
        also = "" if ignored is None else f" or ignore_index={ignored}"
        raise ValueError(f"{name}: expected {what} [{low}, {high}]{also}, got {wrong[0]}.")
