"""Connectionist temporal classification: sequences that aren't aligned with their labels."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxsaw.nn.functional._common import ArrayLike, accumulator, floating, integers, is_concrete
from jaxsaw.nn.functional._loss import check_reduction

# Stands for log(0): no sum of logarithms reaches it, and differences of two are no NaN.
_NEVER = -1e30


def ctc_loss(
    log_probs: ArrayLike,
    targets: ArrayLike,
    input_lengths: ArrayLike | Sequence[int],
    target_lengths: ArrayLike | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Array:
    """Take minus the log-probability of all alignments of the targets with the input.

    An alignment gives each time step a label or the blank; repeated labels count once unless a
    blank is between them. As in PyTorch, the gradient is that for log-probabilities that come from
    a ``log_softmax``.

    Args:
        log_probs: Log-probabilities of ``C`` labels at ``T`` times, ``(T, N, C)`` or ``(T, C)``.
        targets: Labels, ``(N, S)`` or ``(S,)``; or those of the whole batch one after the other,
            ``(sum of target_lengths,)``.
        input_lengths: How many times count, ``(N,)`` or ``()``.
        target_lengths: How many labels count, ``(N,)`` or ``()``.
        blank: The label that stands for none.
        reduction: ``"mean"`` (each loss divided by its number of labels first), ``"sum"`` or
            ``"none"``.
        zero_infinity: The loss is 0 where the input is too short for its labels, where it
            would be infinite.

    Returns:
        A scalar, or ``(N,)`` or ``()`` for ``"none"``.

    Raises:
        ValueError: If shapes, lengths or settings don't fit, or a label is out of range.
        TypeError: If the dtypes don't fit.

    Source: ``torch.nn.functional.ctc_loss``; Graves et al., 2006.

    Example:
        >>> even = jnp.log(jnp.full((2, 1, 2), 0.5))  # two times, one label and the blank
        >>> round(ctc_loss(even, jnp.array([[1]]), (2,), (1,), reduction="sum").item(), 3)
        0.288
    """
    name = "ctc_loss"
    check_reduction(name, reduction)
    given = floating(name, log_probs, "log_probs")
    if given.ndim not in (2, 3):
        raise ValueError(f"{name}: expected log_probs (T, N, C) or (T, C), got {given.shape}.")
    x = given.astype(accumulator(given.dtype))
    x = x if given.ndim == 3 else x[:, None]
    times, batch, labels = x.shape
    if not 0 <= blank < labels:
        raise ValueError(f"{name}: expected blank in [0, {labels - 1}], got {blank}.")
    spans = _lengths(name, "input_lengths", input_lengths, batch, times)
    counts = _lengths(name, "target_lengths", target_lengths, batch, None)
    padded = _padded(name, jnp.asarray(targets), counts, batch)
    valid = jnp.arange(padded.shape[1]) < counts[:, None]
    _check_labels(name, padded, valid, labels)
    loss = _forward(x, jnp.where(valid, padded, blank), spans, counts, blank)
    if zero_infinity:
        loss = jnp.where(jnp.isinf(loss), 0, loss)
    if reduction == "mean":
        return (loss / jnp.maximum(counts, 1).astype(loss.dtype)).mean().astype(given.dtype)
    loss = loss.sum() if reduction == "sum" else loss if given.ndim == 3 else loss[0]
    return loss.astype(given.dtype)


def _forward(x: Array, targets: Array, spans: Array, counts: Array, blank: int) -> Array:
    """Return the losses of a batch, by one scan over the times."""
    (times, batch, _), size = x.shape, targets.shape[1]
    # The labels with a blank before, between and after them: (N, 2 * S + 1).
    path = jnp.full((batch, 2 * size + 1), blank).at[:, 1::2].set(targets)
    # A label may follow another one directly, where it isn't the same.
    skips = jnp.zeros(path.shape, bool).at[:, 3::2].set(targets[:, 1:] != targets[:, :-1])
    emitted = jnp.take_along_axis(x, jnp.broadcast_to(path, (times, *path.shape)), 2)

    def step(alpha: Array, inputs: tuple[Array, Array]) -> tuple[Array, None]:
        time, here = inputs
        before = jnp.pad(alpha, ((0, 0), (2, 0)), constant_values=_NEVER)  # (N, 2 * S + 3)
        skipped = jnp.where(skips, before[:, :-2], _NEVER)
        total = _log_sum(jnp.stack([alpha, before[:, 1:-1], skipped]), 0) + here
        return jnp.where((time < spans)[:, None], jnp.maximum(total, _NEVER), alpha), None

    # Before the first step, as if a blank had just been emitted at the start of the path.
    start = jnp.full(path.shape, _NEVER, x.dtype)
    start = jnp.where(jnp.arange(path.shape[1]) == 0, 0, start)
    last, _ = lax.scan(step, start, (jnp.arange(times), emitted))

    ends = 2 * counts[:, None] - jnp.arange(2)  # a last blank, and the last label
    final = jnp.take_along_axis(last, jnp.maximum(ends, 0), 1)
    total = _log_sum(jnp.where(ends < 0, _NEVER, final), 1)
    # Adds nothing, and to the gradient what log_softmax takes away again.
    mass = jnp.where(jnp.arange(times)[:, None] < spans, jnp.exp(x).sum(-1), 0).sum(0)
    return jnp.where(total < _NEVER / 2, jnp.inf, -total + mass - lax.stop_gradient(mass))


def _log_sum(x: Array, axis: int) -> Array:
    largest = lax.stop_gradient(x.max(axis, keepdims=True))
    return jnp.log(jnp.exp(x - largest).sum(axis)) + largest.squeeze(axis)


def _lengths(
    name: str, argument: str, value: ArrayLike | Sequence[int], batch: int, limit: int | None
) -> Any:
    """Return lengths, one for each sequence: a NumPy array where they are known."""
    # Lengths that are known stay so inside of a trace.
    x = np.asarray(value) if is_concrete(value) else jnp.asarray(value)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise TypeError(f"{name}: expected {argument} of an integer dtype, got {x.dtype}.")
    if x.shape != (batch,) and not (batch == 1 and x.shape == ()):
        raise ValueError(f"{name}: expected {argument} ({batch},), got {x.shape}.")
    if is_concrete(x):
        wrong = x.ravel()
        wrong = wrong[(wrong < 0) | (wrong > (np.inf if limit is None else limit))]
        if wrong.size:
            most = "0 or more" if limit is None else f"in [0, {limit}]"
            raise ValueError(f"{name}: expected {argument} {most}, got {wrong[0]}.")
    return x.astype(np.int32).reshape(batch)


def _padded(name: str, targets: Array, counts: Any, batch: int) -> Array:
    """Return the labels as ``(N, S)``."""
    labels = integers(name, targets, "targets").astype(jnp.int32)
    if labels.ndim == 2:
        if labels.shape[0] != batch:
            raise ValueError(f"{name}: expected targets ({batch}, S), got {labels.shape}.")
        if is_concrete(counts) and counts.max(initial=0) > labels.shape[1]:
            raise ValueError(
                f"{name}: expected target_lengths in [0, {labels.shape[1]}] for targets "
                f"{labels.shape}, got {counts.max()}."
            )
        return labels
    if labels.ndim != 1:
        raise ValueError(f"{name}: expected targets (N, S) or (total,), got {labels.shape}.")
    longest = labels.size
    if is_concrete(counts):
        if counts.sum() != labels.size:
            raise ValueError(
                f"{name}: expected targets ({counts.sum()},), which is the sum of target_lengths, "
                f"got {labels.shape}."
            )
        longest = int(counts.max(initial=0))
    starts = jnp.cumsum(counts) - counts
    places = starts[:, None] + jnp.arange(longest)
    return jnp.take(labels, places, mode="clip") if labels.size else jnp.zeros(places.shape, int)


def _check_labels(name: str, labels: Array, valid: Array, most: int) -> None:
    if not (is_concrete(labels) and is_concrete(valid)):
        return
    values = np.asarray(labels)[np.asarray(valid)]
    wrong = values[(values < 0) | (values >= most)]
    if wrong.size:
        raise ValueError(f"{name}: expected labels in [0, {most - 1}], got {wrong[0]}.")
