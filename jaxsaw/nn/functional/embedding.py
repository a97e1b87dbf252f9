"""Rows of a table by their index, and one-hot vectors."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxsaw.nn.functional._common import (
    ArrayLike,
    accumulator,
    floating,
    integers,
    is_box,
    is_concrete,
    same_dtype,
)


def embedding(
    input: ArrayLike,
    weight: ArrayLike,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Array:
    """Look up rows of ``weight``.

    Args:
        input: Indices of any shape.
        weight: The table, ``(num_embeddings, embedding_dim)``.
        padding_idx: A row that gets no gradient.
        max_norm: Rows that are looked up and longer than this are shortened to it. If ``weight`` is
            a Variable, the shortened rows are written to it.
        norm_type: Which p-norm ``max_norm`` means.
        scale_grad_by_freq: Divide a row's gradient by how often it occurs in ``input``.
        sparse: Accepted and ignored: gradients are dense arrays.

    Returns:
        ``(*input.shape, embedding_dim)``. While tracing, when indices can't be looked at, a row of
        an index out of range is NaN.

    Raises:
        ValueError: If the table isn't 2-D, or an index or ``padding_idx`` is out of range.
        TypeError: If the indices aren't integers.

    Source: ``torch.nn.functional.embedding``.

    Example:
        >>> embedding(jnp.array([0, 2]), jnp.array([[1.0], [2.0], [3.0]])).tolist()
        [[1.0], [3.0]]
    """
    index = integers("embedding", input)
    return _rows("embedding", index, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)


def embedding_bag(
    input: ArrayLike,
    weight: ArrayLike,
    offsets: ArrayLike | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: ArrayLike | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Array:
    """Look up rows of ``weight``, and return the sum, mean or maximum of each bag of them.

    An empty bag gives zeros.

    Args:
        input: Indices: ``(B, n)``, ``B`` bags of ``n``; or ``(n,)``, bags one after the other.
        weight: The table, ``(num_embeddings, embedding_dim)``.
        offsets: ``(B,)``: where each bag of an input ``(n,)`` starts; the first one at 0.
        max_norm: Rows that are looked up and longer than this are shortened to it. If ``weight`` is
            a Variable, the shortened rows are written to it.
        norm_type: Which p-norm ``max_norm`` means.
        scale_grad_by_freq: Divide a row's gradient by how often it occurs in ``input``.
        mode: ``"sum"``, ``"mean"`` or ``"max"``.
        sparse: Accepted and ignored: gradients are dense arrays.
        per_sample_weights: With ``"sum"``, what to multiply each row with, like ``input``.
        include_last_offset: Whether ``offsets`` ends with one more: where the last bag ends.
        padding_idx: An index that isn't counted among its bag.

    Returns:
        ``(B, embedding_dim)``. While tracing, when indices can't be looked at, a bag with an index
        out of range is NaN.

    Raises:
        ValueError: If shapes or options don't fit, or an index, offset or ``padding_idx`` is out of
            range.
        TypeError: If the indices aren't integers.

    Source: ``torch.nn.functional.embedding_bag``.

    Example:
        >>> table = jnp.array([[1.0], [2.0], [4.0]])
        >>> embedding_bag(jnp.array([0, 2, 1]), table, jnp.array([0, 2]), mode="sum").tolist()
        [[5.0], [2.0]]
    """
    name = "embedding_bag"
    index = integers(name, input)
    starts = None if offsets is None else integers(name, offsets, "offsets")
    factors = None
    if per_sample_weights is not None:
        factors = floating(name, per_sample_weights, "per_sample_weights")
    _check_bags(index, starts, mode, scale_grad_by_freq, factors)
    ids, bags = None, index.shape[0]  # of the bag that each index belongs to
    if starts is not None:
        _check_offsets(starts, index.shape[0], include_last_offset)
        places = jnp.arange(index.shape[0], dtype=starts.dtype)
        ids = jnp.searchsorted(starts, places, side="right") - 1
        bags = starts.shape[0] - bool(include_last_offset)

    rows = _rows(name, index, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    counted = jnp.ones((*index.shape, 1), bool)
    if padding_idx is not None:
        counted = (index != padding_idx % weight.shape[0])[..., None]  # type: ignore[union-attr,index]
    if mode == "max":
        return _largest(rows, counted, ids, bags)
    if factors is not None:
        same_dtype(name, weight=rows, per_sample_weights=factors)
        rows = rows * factors[..., None]
    wide = accumulator(rows.dtype)
    total = _total(jnp.where(counted, rows, 0).astype(wide), ids, bags)
    if mode == "mean":
        total = total / jnp.maximum(_total(counted.astype(wide), ids, bags), 1)
    return total.astype(rows.dtype)


def _total(x: Array, ids: Array | None, bags: int) -> Array:
    """Add up what belongs to each bag: ``(B, n, D)``, or ``(n, D)`` with ids, to ``(B, D)``."""
    return x.sum(1) if ids is None else jax.ops.segment_sum(x, ids, bags)


def _largest(rows: Array, counted: Array, ids: Array | None, bags: int) -> Array:
    """Return the maximum of each bag, whose gradient goes to the first row that has it."""
    if ids is None:
        ids = jnp.repeat(jnp.arange(bags), rows.shape[1], total_repeat_length=counted.size)
        rows, counted = (x.reshape(-1, x.shape[-1]) for x in (rows, counted))
    n = rows.shape[0]
    values = lax.stop_gradient(jnp.where(counted, rows, -jnp.inf))  # (n, D)
    best = jax.ops.segment_max(values, ids, bags)  # (B, D)
    places = jnp.arange(n)[:, None]
    wins = (values == best[ids]) | jnp.isnan(values)
    hits = jnp.where(counted & wins, places, n)
    first = jax.ops.segment_min(hits, ids, bags)  # (B, D)
    found = jnp.take_along_axis(rows, jnp.minimum(first, max(n - 1, 0)), 0) if n else best
    return jnp.where(first < n, found, 0)


def _check_bags(
    index: Array,
    offsets: Array | None,
    mode: str,
    scale_grad_by_freq: bool,
    factors: Array | None,
) -> None:
    name = "embedding_bag"
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"{name}: expected mode 'sum', 'mean' or 'max', got {mode!r}.")
    if index.ndim not in (1, 2):
        raise ValueError(f"{name}: expected input (B, n) or (n,), got {index.shape}.")
    if (offsets is None) != (index.ndim == 2):
        raise ValueError(
            f"{name}: expected offsets for an input (n,), and None for (B, n), got input "
            f"{index.shape} and offsets {None if offsets is None else offsets.shape}."
        )
    if mode == "max" and scale_grad_by_freq:
        raise ValueError(f"{name}: scale_grad_by_freq has no meaning with mode='max'.")
    if factors is not None:
        if mode != "sum":
            raise ValueError(f"{name}: per_sample_weights needs mode='sum', got {mode!r}.")
        if factors.shape != index.shape:
            raise ValueError(
                f"{name}: expected per_sample_weights {index.shape}, got {factors.shape}."
            )


def _check_offsets(starts: Array, size: int, include_last: bool) -> None:
    if starts.ndim != 1 or starts.shape[0] < include_last:
        raise ValueError(f"embedding_bag: expected offsets (B,), got {starts.shape}.")
    if not is_concrete(starts) or starts.size == 0:
        return
    values = np.asarray(starts)
    if values[0] != 0 or values[-1] > size or (np.diff(values) < 0).any():
        raise ValueError(
            f"embedding_bag: expected offsets that start at 0, don't fall and end at {size} at "
            f"most, got {values.tolist()}."
        )


def _rows(
    name: str,
    index: Array,
    weight: ArrayLike,
    padding_idx: int | None,
    max_norm: float | None,
    norm_type: float,
    scale_grad_by_freq: bool,
) -> Array:
    """Look up rows, ``(*index.shape, embedding_dim)``."""
    table = floating(name, weight, "weight")
    if table.ndim != 2:
        raise ValueError(f"{name}: expected weight (num_embeddings, dim), got {table.shape}.")
    rows = table.shape[0]
    _check_range(name, "indices", index, rows)
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise ValueError(
                f"{name}: expected padding_idx in [{-rows}, {rows - 1}], got {padding_idx}."
            )
        padding_idx %= rows
    if max_norm is not None:
        table = renormalize(table, index, max_norm, norm_type)
        if is_box(weight):
            weight.value = table  # type: ignore[union-attr]

    # Not table[index], where a negative index counts from the end: out of range, it gives NaN.
    axes = lax.GatherDimensionNumbers(
        offset_dims=(index.ndim,), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    y = lax.gather(table, index[..., None], axes, (1, table.shape[1]), mode="fill")
    if scale_grad_by_freq:
        count = jnp.zeros(rows, accumulator(table.dtype)).at[index].add(1)
        share = (1 / jnp.maximum(count, 1)[index][..., None]).astype(table.dtype)
        y = y * share + lax.stop_gradient(y * (1 - share))
    if padding_idx is not None:
        y = jnp.where((index == padding_idx)[..., None], lax.stop_gradient(y), y)
    return y


def renormalize(
    weight: ArrayLike, input: ArrayLike, max_norm: float, norm_type: float = 2.0
) -> Array:
    """Return the table with the rows that ``input`` names shortened to ``max_norm``.

    The gradient is that of the identity, as of a change in place that nobody differentiates.

    Args:
        weight: The table, ``(num_embeddings, embedding_dim)``.
        input: Indices of any shape.
        max_norm: The longest that a named row may be.
        norm_type: Which p-norm.

    Returns:
        ``(num_embeddings, embedding_dim)``.

    Source: ``torch.nn.functional.embedding`` with ``max_norm``.

    Example:
        >>> renormalize(jnp.array([[2.0], [2.0]]), jnp.array([1]), 1.0).round(3).tolist()
        [[2.0], [1.0]]
    """
    table, index = jnp.asarray(weight), jnp.asarray(input)
    wide = lax.stop_gradient(table).astype(accumulator(table.dtype))
    norm = jnp.linalg.norm(wide, ord=norm_type, axis=1)  # (rows,)
    named = jnp.zeros(table.shape[0], bool).at[index.reshape(-1)].set(True)
    scale = jnp.where(named & (norm > max_norm), max_norm / (norm + 1e-7), 1)
    shorter = (wide * scale[:, None]).astype(table.dtype)
    # Rows that stay don't take part in the sum, which would round them.
    return jnp.where((scale < 1)[:, None], shorter + (table - lax.stop_gradient(table)), table)


def one_hot(input: ArrayLike, num_classes: int = -1) -> Array:
    """Turn class indices into vectors with a single 1.

    Args:
        input: Class indices of any shape.
        num_classes: Length of the vectors; -1 takes the largest index plus one, which needs values
            that can be looked at, so not while tracing.

    Returns:
        Integers, ``(*input.shape, num_classes)``. While tracing, an index out of range gives zeros.

    Raises:
        ValueError: If an index is out of range, or ``num_classes`` is -1 while tracing.
        TypeError: If the indices aren't integers.

    Source: ``torch.nn.functional.one_hot``.

    Example:
        >>> one_hot(jnp.array([0, 2])).tolist()
        [[1, 0, 0], [0, 0, 1]]
    """
    index = integers("one_hot", input)
    if num_classes == -1:
        if not is_concrete(index):
            raise ValueError(
                "one_hot: pass num_classes= inside jit: the values aren't known there."
            )
        if index.size == 0:
            raise ValueError("one_hot: pass num_classes= for an empty input.")
        num_classes = int(np.max(np.asarray(index))) + 1
        _check_range("one_hot", "class indices", index, max(num_classes, 1))
    if num_classes < 1:
        raise ValueError(f"one_hot: expected num_classes of -1 or at least 1, got {num_classes}.")
    _check_range("one_hot", "class indices", index, num_classes)
    classes = jnp.arange(num_classes, dtype=jnp.int32)
    return (index[..., None].astype(jnp.int32) == classes).astype(int)


def _check_range(name: str, what: str, index: Array, size: int) -> None:
    """Raise a ValueError if an index is outside of [0, size), as far as values are known."""
    if not is_concrete(index) or index.size == 0:
        return
    values = np.asarray(index)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= size:
        worst = low if low < 0 else high
        raise ValueError(f"{name}: expected {what} in [0, {size - 1}], got {worst}.")
