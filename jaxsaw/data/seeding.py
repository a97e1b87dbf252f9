"""Randomness without JAX: what follows from an epoch's key, also in a worker process.

``RandomState`` is NumPy's frozen generator: what it gives stays the same in all releases, so an
epoch has the same order after a restore on another machine.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

Words = tuple[int, ...]


def words_of(key: Any) -> Words:
    """Return the bits of a typed key as 32-bit integers."""
    return tuple(np.asarray(jax.random.key_data(key)).ravel().tolist())


def permutation(words: Words, n: int) -> np.ndarray:
    """Return the numbers below ``n`` in the order that follows from a key.

    Args:
        words: The bits of the key.
        n: How many.

    Returns:
        Integers, ``(n,)``.
    """
    return np.random.RandomState(words).permutation(n)


def generator_states() -> tuple[Any, Any]:
    """Return the states of Python's and NumPy's global generators."""
    return random.getstate(), np.random.get_state(legacy=False)


def set_generator_states(states: tuple[Any, Any]) -> None:
    """Set what :func:`generator_states` returned."""
    random.setstate(states[0])
    np.random.set_state(states[1])


@contextmanager
def generators_put_back() -> Iterator[None]:
    """Leave both global generators as they were, whatever happens within."""
    before = generator_states()
    try:
        yield
    finally:
        set_generator_states(before)


def seed_generators(words: Words, item: Any) -> None:
    """Seed both global generators for one item.

    Args:
        words: The bits of the epoch's key.
        item: The item's index, or any other object whose ``repr`` tells it apart.
    """
    number = item if isinstance(item, int | np.integer) else zlib.crc32(repr(item).encode())
    bits = struct.pack(f"<{len(words)}Iq", *words, number)
    np.random.seed(zlib.crc32(bits))
    random.seed(int.from_bytes(bits, "little"))
