"""Arrays as `.npy` members: which dtypes there are, and the bytes that stand for them.

NumPy's own dtypes are stored as they are, little-endian. The others that JAX has (bfloat16, float8,
int4, ...) are stored as unsigned integers with the same bits, so that NumPy alone can open the
file; the manifest names the true dtype.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import jax
import ml_dtypes
import numpy as np

NATIVE = {
    np.dtype(name).name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}
EXTENDED = {
    np.dtype(scalar).name: np.dtype(scalar)
    for scalar in vars(ml_dtypes).values()
    if isinstance(scalar, type) and issubclass(scalar, np.generic)
}
_TRUE = NATIVE | EXTENDED
_NAMES = {dtype: name for name, dtype in _TRUE.items()}
_STORED = {
    name: (dtype if name in NATIVE else np.dtype(f"u{dtype.itemsize}")).newbyteorder("<")
    for name, dtype in _TRUE.items()
}


def dtype_name(dtype: Any) -> str:
    """Return the name under which a manifest records a dtype.

    Args:
        dtype: The dtype of a NumPy or JAX array.

    Returns:
        The dtype's name, such as ``"bfloat16"``; byte order isn't part of it.

    Raises:
        TypeError: For what a checkpoint doesn't hold (objects, strings, dates, JAX's keys).

    Example:
        >>> dtype_name(np.dtype(">f4"))
        'float32'
    """
    if isinstance(dtype, np.dtype):
        name = _NAMES.get(dtype) or _NAMES.get(dtype.newbyteorder("="))
        if name is not None:
            return name
    if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        raise TypeError(
            f"can't store an array of {dtype}; pass "
            "(jax.random.key_data(key), str(jax.random.key_impl(key)))."
        )
    raise TypeError(f"can't store an array of dtype {dtype}.")


def true_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype with this name (KeyError if there is none here).

    Args:
        name: A name from `dtype_name`.

    Returns:
        The dtype, in native byte order.
    """
    return _TRUE[name]


def stored_dtype(name: str) -> np.dtype[Any]:
    """Return the little-endian dtype that NumPy reads from the member.

    Args:
        name: A name from `dtype_name`.

    Returns:
        The dtype itself, or unsigned integers of its size if NumPy doesn't have it.

    Example:
        >>> stored_dtype("bfloat16").str
        '<u2'
    """
    return _STORED[name]


@lru_cache(maxsize=1024)
def npy_header(name: str, shape: tuple[int, ...]) -> bytes:
    """Return what precedes an array's bytes in its `.npy` member.

    It depends on nothing but its arguments, so a reader compares it instead of parsing it.

    Args:
        name: A name from `dtype_name`.
        shape: The array's shape.

    Returns:
        A version 1.0 header of C-ordered data, its length a multiple of 64.
    """
    described = f"{{'descr': '{stored_dtype(name).str}', 'fortran_order': False, 'shape': {shape}}}"
    padding = -(10 + len(described) + 1) % 64
    text = described.encode() + b" " * padding + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def array_nbytes(name: str, shape: tuple[int, ...]) -> int:
    """Return how many bytes such an array has in the file, whatever the shape claims.

    Args:
        name: A name from `dtype_name`.
        shape: The array's shape.

    Returns:
        A Python int, which doesn't overflow.
    """
    return _TRUE[name].itemsize * math.prod(shape)


def host_bytes(array: Any) -> memoryview:
    """Return an array's bytes as they are stored; copies only what has to be copied.

    Args:
        array: A NumPy or JAX array of a dtype that `dtype_name` accepts.

    Returns:
        Its elements, C-ordered and little-endian, as a view of bytes.
    """
    host = _on_host(array) if isinstance(array, jax.Array) else np.asarray(array)
    name = dtype_name(host.dtype)
    stored = _STORED[name]
    if name in EXTENDED:
        host = host.view(stored.newbyteorder("="))
    return np.asarray(host, dtype=stored, order="C").reshape(-1).view(np.uint8).data


def _on_host(array: jax.Array) -> np.ndarray[Any, Any]:
    # An Array keeps the host copy that was made of it. Aliases are asked here, which are dropped,
    # so that saving doesn't leave a second copy of the whole state in the host's memory.
    if array.is_fully_replicated:
        return np.asarray(array.addressable_data(0))
    if not array.is_fully_addressable:
        raise ValueError(
            "can't store an array that is spread over several hosts in one file; "
            "save to a directory (a path that ends in a slash)."
        )
    host = np.empty(array.shape, array.dtype)
    for shard in array.addressable_shards:
        if shard.replica_id == 0:
            host[shard.index] = np.asarray(shard.data.addressable_data(0))
    return host
