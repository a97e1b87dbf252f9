"""Sequences of different lengths: padded to one length, or packed without padding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxsaw.nn.functional._common import is_concrete

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Fields(NamedTuple):
    data: Array
    batch_sizes: np.ndarray
    sorted_indices: Array | None
    unsorted_indices: Array | None


class PackedSequence(_Fields):
    """Sequences of different lengths, without padding: all first steps, then all second, ...

    Recurrent layers take and return it. It is a pytree: ``data`` and the indices are its arrays,
    while ``batch_sizes`` is static, so that what is compiled is compiled anew for other lengths.
    Usually :func:`pack_padded_sequence` or :func:`pack_sequence` makes it.

    Args:
        data: ``(rows, *)``: the steps.
        batch_sizes: ``(T,)``: how many sequences there are at each step. Their values have to be
            known.
        sorted_indices: ``(B,)``: where each packed sequence was in the batch; None if it was there.
        unsorted_indices: ``(B,)``: the reverse; made from ``sorted_indices`` if None.

    Raises:
        ValueError: If ``batch_sizes`` isn't known.

    Source: ``torch.nn.utils.rnn.PackedSequence``.

    Example:
        >>> packed = nn.utils.rnn.pack_sequence([jnp.array([1, 2, 3]), jnp.array([4, 5])])
        >>> packed.data.tolist(), packed.batch_sizes.tolist()
        ([1, 4, 2, 5, 3], [2, 2, 1])
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Any,
        batch_sizes: Any = None,
        sorted_indices: Any = None,
        unsorted_indices: Any = None,
    ) -> PackedSequence:
        if batch_sizes is None:  # data may have both
            if not isinstance(data, tuple | list) or len(data) != 2:
                raise ValueError(
                    "PackedSequence: expected batch_sizes=, or data=(data, batch_sizes), got "
                    f"{type(data).__name__} only."
                )
            data, batch_sizes = data
        sizes = _known("PackedSequence", "batch_sizes", batch_sizes)
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, sizes, sorted_indices, unsorted_indices)


jax.tree_util.register_pytree_node(
    PackedSequence,
    lambda p: ((p.data, p.sorted_indices, p.unsorted_indices), tuple(p.batch_sizes.tolist())),
    lambda sizes, parts: PackedSequence(parts[0], np.array(sizes, np.int64), *parts[1:]),
)


def invert_permutation(permutation: Any) -> Any:
    """Return the permutation that undoes another one.

    Args:
        permutation: ``(n,)``, or None.

    Returns:
        ``(n,)``, or None for None.

    Source: ``torch.nn.utils.rnn.invert_permutation``.

    Example:
        >>> invert_permutation(jnp.array([2, 0, 1])).tolist()
        [1, 2, 0]
    """
    if permutation is None:
        return None
    return (np if isinstance(permutation, np.ndarray) else jnp).argsort(permutation)


def pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack padded sequences.

    Args:
        input: ``(T, B, *)``, or ``(B, T, *)`` with ``batch_first``.
        lengths: ``(B,)``: the length of each sequence. Their values have to be known, so inside of
            ``js.jit`` they can't be an argument that is traced.
        batch_first: Whether the batch axis comes first.
        enforce_sorted: Refuse lengths that grow. False sorts the sequences; what is unpacked has
            the order of the input again.

    Raises:
        ValueError: If the lengths don't fit, or aren't known.

    Source: ``torch.nn.utils.rnn.pack_padded_sequence``.

    Example:
        >>> x = jnp.array([[1, 2, 3], [4, 5, 0]])
        >>> pack_padded_sequence(x, [3, 2], batch_first=True).data.tolist()
        [1, 4, 2, 5, 3]
    """
    name, x = "pack_padded_sequence", jnp.asarray(input)
    sizes = _known(name, "lengths", lengths)
    if x.ndim < 2:
        raise ValueError(f"{name}: expected input (T, B, *) or (B, T, *), got {x.shape}.")
    x = x.swapaxes(0, 1) if batch_first else x  # (T, B, *)
    if sizes.shape != x.shape[1:2]:
        raise ValueError(f"{name}: expected {x.shape[1]} lengths, got {sizes.shape}.")
    if sizes.size == 0 or sizes.min() < 1 or sizes.max() > x.shape[0]:
        raise ValueError(
            f"{name}: expected lengths in [1, {x.shape[0]}], for at least one sequence, got "
            f"{sizes.tolist()}."
        )
    order = None
    if not enforce_sorted:
        order = np.argsort(-sizes, kind="stable")
        x, sizes = x[:, order], sizes[order]
    elif (np.diff(sizes) > 0).any():
        raise ValueError(
            f"{name}: expected lengths that don't grow, got {sizes.tolist()}. To let them be "
            "sorted, pass enforce_sorted=False."
        )
    alive = np.arange(sizes[0])[:, None] < sizes  # (T, B)
    rows = x[: sizes[0]].reshape(-1, *x.shape[2:])[np.flatnonzero(alive)]
    return PackedSequence(rows, alive.sum(1), order)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Array, Any]:
    """Unpack sequences into a padded array: the reverse of :func:`pack_padded_sequence`.

    Args:
        sequence: The packed sequences.
        batch_first: Whether the batch axis shall come first.
        padding_value: What stands where a sequence has ended.
        total_length: How many steps the array has; those of the longest sequence if None.

    Returns:
        ``(T, B, *)``, or ``(B, T, *)`` with ``batch_first``; and the lengths, ``(B,)`` integers.

    Raises:
        ValueError: If ``total_length`` is too small.

    Source: ``torch.nn.utils.rnn.pad_packed_sequence``.

    Example:
        >>> packed = pack_sequence([jnp.array([1, 2, 3]), jnp.array([4, 5])])
        >>> pad_packed_sequence(packed, batch_first=True)
        (Array([[1, 2, 3],
               [4, 5, 0]], dtype=int32), array([3, 2]))
    """
    data, sizes, _, unsorted = sequence
    steps = len(sizes) if total_length is None else total_length
    if steps < len(sizes):
        raise ValueError(
            f"pad_packed_sequence: expected total_length of at least {len(sizes)}, the longest "
            f"sequence, got {total_length}."
        )
    alive = np.arange(sizes[0]) < sizes[:, None]  # (T, B)
    shape = (steps * sizes[0], *data.shape[1:])
    padded = jnp.full(shape, padding_value, data.dtype).at[np.flatnonzero(alive)].set(data)
    padded = padded.reshape(steps, sizes[0], *data.shape[1:])
    lengths: Any = alive.sum(0)
    if unsorted is not None:
        lengths = (lengths if isinstance(unsorted, np.ndarray) else jnp.asarray(lengths))[unsorted]
        padded = padded[:, unsorted]
    return (padded.swapaxes(0, 1) if batch_first else padded), lengths


def pad_sequence(
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Array:
    """Put sequences of different lengths into one array.

    Args:
        sequences: Arrays ``(length, *)``.
        batch_first: Whether the batch axis shall come first.
        padding_value: What stands where there is no sequence.
        padding_side: ``"right"`` pads after the end of a sequence, ``"left"`` before its start.

    Returns:
        ``(T, B, *)``, or ``(B, T, *)`` with ``batch_first``.

    Raises:
        ValueError: If there are no sequences, they don't fit together, or the side is another.

    Source: ``torch.nn.utils.rnn.pad_sequence``.

    Example:
        >>> pad_sequence([jnp.array([1, 2, 3]), jnp.array([4, 5])], True).tolist()
        [[1, 2, 3], [4, 5, 0]]
    """
    if padding_side not in ("left", "right"):
        raise ValueError(
            f"pad_sequence: expected padding_side 'left' or 'right', got {padding_side!r}."
        )
    arrays = _arrays("pad_sequence", sequences)
    longest = max(len(x) for x in arrays)

    def padded(x: Array) -> Array:
        gap = longest - len(x)
        widths = ((gap, 0) if padding_side == "left" else (0, gap), *((0, 0),) * (x.ndim - 1))
        return jnp.pad(x, widths, constant_values=jnp.asarray(padding_value, x.dtype))

    return jnp.stack([padded(x) for x in arrays], 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Array]:
    """Take the sequences out of a padded array: the reverse of :func:`pad_sequence`.

    Args:
        padded_sequences: ``(T, B, *)``, or ``(B, T, *)`` with ``batch_first``.
        lengths: ``(B,)``: the length of each sequence. Their values have to be known.
        batch_first: Whether the batch axis comes first.

    Returns:
        ``B`` arrays ``(length, *)``.

    Raises:
        ValueError: If the lengths don't fit, or aren't known.

    Source: ``torch.nn.utils.rnn.unpad_sequence``.

    Example:
        >>> [x.tolist() for x in unpad_sequence(jnp.array([[1, 2], [3, 0]]), [2, 1], True)]
        [[1, 2], [3]]
    """
    x = jnp.asarray(padded_sequences)
    x = x if batch_first else x.swapaxes(0, 1)  # (B, T, *)
    sizes = _known("unpad_sequence", "lengths", lengths)
    if sizes.shape != x.shape[:1]:
        raise ValueError(f"unpad_sequence: expected {x.shape[0]} lengths, got {sizes.shape}.")
    return [row[:size] for row, size in zip(x, sizes.tolist(), strict=True)]


def pack_sequence(sequences: Any, enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences of different lengths.

    Args:
        sequences: Arrays ``(length, *)``.
        enforce_sorted: Refuse lengths that grow. False sorts the sequences.

    Raises:
        ValueError: If the sequences don't fit together, one is empty, or they aren't sorted.

    Source: ``torch.nn.utils.rnn.pack_sequence``.

    Example:
        >>> pack_sequence([jnp.array([1, 2]), jnp.array([3])]).data.tolist()
        [1, 3, 2]
    """
    arrays = _arrays("pack_sequence", sequences)
    lengths = [len(x) for x in arrays]
    return pack_padded_sequence(pad_sequence(arrays), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Array]:
    """Take the sequences out of packed ones: the reverse of :func:`pack_sequence`.

    Args:
        packed_sequences: The packed sequences.

    Returns:
        Arrays ``(length, *)``.

    Raises:
        ValueError: If the order of the sequences isn't known, inside of ``js.jit``.

    Source: ``torch.nn.utils.rnn.unpack_sequence``.

    Example:
        >>> packed = pack_sequence([jnp.array([1, 2]), jnp.array([3])])
        >>> [x.tolist() for x in unpack_sequence(packed)]
        [[1, 2], [3]]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def _known(name: str, argument: str, values: Any) -> np.ndarray:
    """Return integers as a NumPy array, or say that they have to be known."""
    if not all(map(is_concrete, values if isinstance(values, list | tuple) else (values,))):
        raise ValueError(
            f"{name}: the values of {argument} have to be known while a function is traced. Pass a "
            "NumPy array or a list that it closes over, or do this outside of it."
        )
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(
            f"{name}: expected {argument} to be integers of one axis, got {array.dtype} of shape "
            f"{array.shape}."
        )
    return array.astype(np.int64)


def _arrays(name: str, sequences: Iterable[Any]) -> list[Array]:
    """Return sequences as arrays that differ only in their length."""
    arrays = [jnp.asarray(x) for x in sequences]
    if not arrays:
        raise ValueError(f"{name}: expected at least one array, got none.")
    first = arrays[0]
    for x in arrays:
        if x.ndim == 0 or x.shape[1:] != first.shape[1:] or x.dtype != first.dtype:
            raise ValueError(
                f"{name}: expected arrays (length, *) that differ only in length, got "
                f"{first.dtype} of shape {first.shape} and {x.dtype} of shape {x.shape}."
            )
    return arrays
