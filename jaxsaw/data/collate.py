"""From a list of items to a batch, and from there to the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def default_collate(batch: Sequence[Any]) -> Any:
    """Stack items into a batch.

    Arrays and numbers become arrays with one more axis in front, in NumPy (a loader puts them
    on the device afterwards); JAX arrays stay on theirs. Python's floats become float32. Tuples,
    named tuples, lists and dicts are collated field by field; strings and bytes become a list.

    Args:
        batch: Items of one structure; their arrays have equal shapes.

    Returns:
        The batch, in the structure of an item.

    Raises:
        TypeError: For items that can't be stacked.
        ValueError: For shapes, lengths or keys that differ.

    Example:
        >>> default_collate([(1, "a"), (2, "b")])
        (array([1, 2]), ['a', 'b'])
    """
    return _collate(list(batch), "item")


def _collate(items: list[Any], name: str) -> Any:
    if not items:
        raise ValueError("default_collate: expected at least one item, got none.")
    first = items[0]
    if isinstance(first, str | bytes):
        return items
    if isinstance(first, Mapping):
        return _collate_mappings(items, name)
    if isinstance(first, tuple | list):
        return _collate_sequences(items, name)
    if all(isinstance(item, float) and not isinstance(item, np.generic) for item in items):
        return np.asarray(items, np.float32)
    if all(isinstance(item, jax.Array) for item in items):
        _check_shapes(items, name)
        return jnp.stack(items)
    arrays = [_as_array(item, name) for item in items]
    _check_shapes(arrays, name)
    return np.stack(arrays)


def _collate_mappings(items: list[Any], name: str) -> Any:
    first = items[0]
    for item in items:
        if not isinstance(item, Mapping) or item.keys() != first.keys():
            raise ValueError(
                f"default_collate: expected {name} to have the keys {list(first)} throughout the "
                f"batch, got {list(item) if isinstance(item, Mapping) else type(item).__name__}."
            )
    return {key: _collate([item[key] for item in items], f"{name}[{key!r}]") for key in first}


def _collate_sequences(items: list[Any], name: str) -> Any:
    first = items[0]
    for item in items:
        if not isinstance(item, tuple | list) or len(item) != len(first):
            raise ValueError(
                f"default_collate: expected {name} to have {len(first)} entries throughout the "
                f"batch, got {len(item) if hasattr(item, '__len__') else type(item).__name__}."
            )
    fields = [_collate(list(field), f"{name}[{i}]") for i, field in enumerate(zip(*items))]
    return like(first, fields)


def like(sequence: Any, fields: list[Any]) -> Any:
    """Return ``fields`` as a list, a tuple or the named tuple that ``sequence`` is."""
    if hasattr(sequence, "_fields"):
        return type(sequence)(*fields)
    return tuple(fields) if isinstance(sequence, tuple) else fields


def _as_array(item: Any, name: str) -> np.ndarray:
    if isinstance(item, np.ndarray | np.generic | bool | int | float | complex) or hasattr(
        item, "__array__"
    ):
        array = np.asarray(item)
        if not array.dtype.hasobject:
            return array
    raise TypeError(
        f"default_collate: expected {name} to be an array, a number, a string, or a tuple, list "
        f"or dict of these, got {type(item).__name__}. Pass collate_fn= to the DataLoader."
    )


def _check_shapes(arrays: list[Any], name: str) -> None:
    shapes = {array.shape: None for array in arrays}
    if len(shapes) > 1:
        raise ValueError(
            f"default_collate: expected {name} to have one shape throughout the batch, got "
            f"{', '.join(map(str, shapes))}. Pad the items, or pass collate_fn= to the DataLoader."
        )


def to_device(batch: Any, *, fresh: bool) -> Any:
    """Put the NumPy arrays of a batch on the device.

    Args:
        batch: Arrays, or lists, tuples and dicts of these; whatever else is in there stays.
        fresh: Whether nobody else holds the arrays. If someone may, they are copied, since JAX
            can go on to use the memory of a NumPy array that it is given.
    """
    if isinstance(batch, np.ndarray | np.generic):
        if not _has_jax_dtype(batch.dtype):
            return batch
        return jax.device_put(np.asarray(batch)) if fresh else jnp.array(batch)
    if isinstance(batch, dict):
        fields = {key: to_device(value, fresh=fresh) for key, value in batch.items()}
        return fields if type(batch) is dict else _refill(batch, fields)
    if isinstance(batch, list | tuple):
        return like(batch, [to_device(field, fresh=fresh) for field in batch])
    return batch


def _refill(mapping: Any, fields: dict[Any, Any]) -> Any:
    twin = mapping.copy()
    twin.update(fields)
    return twin


def _has_jax_dtype(dtype: np.dtype) -> bool:
    return dtype.kind in "biufc" or dtype.type.__module__ == "ml_dtypes"
