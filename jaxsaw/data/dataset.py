"""Datasets: what a loader takes its items from."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from jaxsaw.data.seeding import permutation, words_of
from jaxsaw.rngs import Rngs
from jaxsaw.state.variable import Variable


class Dataset:
    """Items by index. Subclasses define ``__getitem__`` and, usually, ``__len__``.

    A :class:`DataLoader` also takes any other object that has both, such as a list.

    Example:
        >>> class Squares(Dataset):
        ...     def __getitem__(self, index):
        ...         return index * index
        ...     def __len__(self):
        ...         return 10
        >>> Squares()[3]
        9
    """

    def __getitem__(self, index: Any) -> Any:
        """Return one item."""
        raise NotImplementedError(f"{type(self).__name__} defines no __getitem__(self, index).")

    def __add__(self, other: Any) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset:
    """Items as a stream. Subclasses define ``__iter__``.

    A loader with worker processes reads it in one of them, since only one can keep the order.

    Example:
        >>> class Countdown(IterableDataset):
        ...     def __iter__(self):
        ...         return iter([3, 2, 1])
        >>> list(Countdown())
        [3, 2, 1]
    """

    def __iter__(self) -> Iterator[Any]:
        """Return a new iterator over the items."""
        raise NotImplementedError(f"{type(self).__name__} defines no __iter__(self).")


class TensorDataset(Dataset):
    """Arrays that belong together: item i is the tuple of their i-th entries.

    Args:
        *tensors: NumPy or JAX arrays, each ``(N, ...)``.

    Raises:
        ValueError: If their lengths differ, or there are none.

    Example:
        >>> x, y = np.ones((4, 2)), np.arange(4)
        >>> dataset = TensorDataset(x, y)
        >>> len(dataset)
        4
        >>> dataset[1][0].shape
        (2,)
    """

    def __init__(self, *tensors: Any) -> None:
        self.tensors = tuple(map(_as_array, tensors))
        shapes = [tensor.shape for tensor in self.tensors]
        if not shapes or any(not shape or shape[0] != shapes[0][0] for shape in shapes):
            raise ValueError(
                "TensorDataset: expected arrays of one length, (N, ...), got shapes "
                f"{', '.join(map(str, shapes)) or 'none'}."
            )

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]

    def _take(self, indices: np.ndarray) -> tuple[Any, ...]:
        """Return what collating the items would, in one step."""
        length = len(self)
        wrong = indices[(indices < -length) | (indices >= length)]
        if wrong.size:
            raise IndexError(f"TensorDataset: index {wrong[0]} is out of range, length {length}.")
        return tuple(tensor[indices] for tensor in self.tensors)

    def __getstate__(self) -> dict[str, Any]:
        # As NumPy arrays, so that a worker process needs no JAX to read them.
        tensors = tuple(t if _is_key(t) else np.asarray(t) for t in self.tensors)
        return {**self.__dict__, "tensors": tensors}


class Subset(Dataset):
    """Some items of another dataset.

    Args:
        dataset: The whole.
        indices: The indices of the items, in the order they shall have.

    Example:
        >>> subset = Subset(["a", "b", "c"], [2, 0])
        >>> [subset[i] for i in range(len(subset))]
        ['c', 'a']
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    """Several datasets one after the other.

    Args:
        datasets: The parts; each has a length.

    Raises:
        ValueError: If there are none.
        TypeError: If one of them is an :class:`IterableDataset`.

    Example:
        >>> both = ConcatDataset([["a", "b"], ["c"]])
        >>> len(both), both[2], both[-3]
        (3, 'c', 'a')
    """

    def __init__(self, datasets: Any) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: expected at least one dataset, got none.")
        for number, dataset in enumerate(self.datasets):
            if isinstance(dataset, IterableDataset):
                raise TypeError(
                    f"ConcatDataset: dataset {number} is a {type(dataset).__name__}, an "
                    "IterableDataset, whose items have no index."
                )
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __getitem__(self, index: int) -> Any:
        length = len(self)
        if not -length <= index < length:
            raise IndexError(f"ConcatDataset: index {index} is out of range, length {length}.")
        index %= length
        part = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[part - 1] if part else 0
        return self.datasets[part][index - before]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


def random_split(dataset: Any, lengths: Sequence[float], *, rngs: Rngs) -> list[Subset]:
    """Split a dataset at random into parts that don't overlap.

    Args:
        dataset: A dataset with a length.
        lengths: The number of items of each part, or fractions that add up to 1. What rounding
            down leaves over goes to the first parts, one item each.
        rngs: Draws one key from the stream ``data``.

    Returns:
        One :class:`Subset` for each length.

    Raises:
        ValueError: If the lengths don't add up to that of the dataset, or one is negative.

    Example:
        >>> train, test = random_split(range(10), [0.8, 0.2], rngs=js.Rngs(data=0))
        >>> len(train), len(test)
        (8, 2)
    """
    total = len(dataset)
    sizes: list[Any] = list(lengths)
    if any(size < 0 for size in sizes):
        raise ValueError(f"random_split: expected lengths of at least 0, got {sizes}.")
    if math.isclose(sum(sizes), 1.0):
        sizes = [math.floor(total * fraction) for fraction in sizes]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
    if sum(sizes) != total:
        raise ValueError(
            f"random_split: the lengths {list(lengths)} add up to {sum(lengths)}; expected "
            f"{total}, the length of the dataset, or fractions that add up to 1."
        )
    order = permutation(words_of(rngs.next("data")), total).tolist()
    sizes = list(map(int, sizes))
    ends = itertools.accumulate(sizes)
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def taker(dataset: Any) -> Callable[[Sequence[Any]], Any] | None:
    """Return a function from indices to a whole batch, for a dataset that consists of arrays.

    Args:
        dataset: Any dataset; None is returned for what isn't made of a :class:`TensorDataset`.
    """
    if type(dataset) is TensorDataset:
        return lambda indices: dataset._take(_integers(indices))
    if type(dataset) is Subset and (inner := taker(dataset.dataset)) is not None:
        chosen = _integers(dataset.indices)
        return lambda indices: inner(chosen[_integers(indices)])
    return None


def _integers(indices: Sequence[Any]) -> np.ndarray:
    rows = np.asarray(indices)
    if rows.dtype.kind not in "iu" and rows.size:
        raise TypeError(f"TensorDataset: expected integers as indices, got {indices!r}.")
    return rows.astype(np.int64, copy=False)


def _as_array(tensor: Any) -> Any:
    if isinstance(tensor, Variable):
        return tensor.value
    return tensor if isinstance(tensor, jax.Array) else np.asarray(tensor)


def _is_key(tensor: Any) -> bool:
    return jax.dtypes.issubdtype(tensor.dtype, jax.dtypes.prng_key)
