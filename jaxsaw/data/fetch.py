"""Making batches of a dataset's items, in this process or in a worker.

What an item gives depends on the epoch's key and on the item alone: Python's and NumPy's global
generators are seeded from both before it is asked for, and put back after the batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxsaw.data.seeding import Words, generators_put_back, seed_generators

# Datasets of these kinds run no code of a user's.
_PLAIN = (list, tuple, dict, str, bytes, range, np.ndarray, jax.Array)


@dataclass(frozen=True)
class Fetcher:
    """How a batch is made.

    Attributes:
        dataset: Where the items come from.
        collate: From a list of items to a batch; of an item where there is no batching.
        batched: Whether items come in batches.
    """

    dataset: Any
    collate: Callable[[Any], Any]
    batched: bool

    def fetch(self, indices: Any, words: Words) -> Any:
        """Return the batch of these indices (or, without batching, the item of one index).

        Args:
            indices: What the dataset is indexed with.
            words: The bits of the epoch's key.

        Raises:
            Exception: What the dataset raised, with the index in its message.
        """
        with generators_put_back():
            if not self.batched:
                return self._collated(self._item(indices, words), indices)
            return self._collated([self._item(index, words) for index in indices], indices)

    def stream(self, words: Words, skip: int, size: int | None, drop_last: bool) -> Iterator[Any]:
        """Yield the batches of an iterable dataset.

        Args:
            words: The bits of the epoch's key.
            skip: How many batches to leave out.
            size: The number of items of a batch; None for single items.
            drop_last: Whether to leave out a last batch that is smaller.
        """
        items = self._numbered(words)
        with generators_put_back():
            for _ in itertools.islice(items, skip * (size or 1)):
                pass
        while True:
            with generators_put_back():
                found = list(itertools.islice(items, size or 1))
                if not found or (drop_last and size is not None and len(found) < size):
                    return
                numbers = [number for number, _ in found]
                values = [value for _, value in found]
                batch = self._collated(values if size is not None else values[0], numbers)
            yield batch

    def _numbered(self, words: Words) -> Iterator[tuple[int, Any]]:
        seed_generators(words, "iter")
        iterator = iter(self.dataset)
        for number in itertools.count():
            seed_generators(words, number)
            try:
                value = next(iterator)
            except StopIteration:
                return
            except Exception as error:
                raise named(error, f"item {number} of {_title(self.dataset)}") from error
            yield number, value

    def _item(self, index: Any, words: Words) -> Any:
        if type(self.dataset) not in _PLAIN:
            seed_generators(words, index)
        try:
            return self.dataset[index]
        except Exception as error:
            shown = index if isinstance(index, np.integer) else repr(index)
            raise named(error, f"item {shown} of {_title(self.dataset)}") from error

    def _collated(self, items: Any, indices: Any) -> Any:
        try:
            return self.collate(items)
        except Exception as error:
            what = f"collating {_shown(indices)} of {_title(self.dataset)}"
            raise named(error, what) from error


def named(error: Exception, what: str) -> Exception:
    """Return an exception of the same kind that says what raised it.

    Args:
        error: What was raised.
        what: The item.
    """
    kind = type(error)
    text = f"DataLoader: {what} raised {kind.__name__}: {error}"
    if isinstance(error, StopIteration | StopAsyncIteration):
        return RuntimeError(text)  # it would end the iteration without a word
    try:
        twin = kind(text)
    except Exception:
        return RuntimeError(text)
    return twin if twin.args == (text,) else RuntimeError(text)


def _shown(indices: Any) -> str:
    if not isinstance(indices, list):
        return f"item {indices!r}"
    names = ", ".join(map(str, indices[:8]))
    return f"items {names}{', ...' if len(indices) > 8 else ''}"


def _title(dataset: Any) -> str:
    return type(dataset).__name__
