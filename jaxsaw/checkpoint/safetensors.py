"""Weights as safetensors files, which Hugging Face's libraries and many others read.

Such a file is the length of a header, the header in JSON, and the arrays' bytes one after another:
https://huggingface.co/docs/safetensors. Nothing but JAX and NumPy is needed here.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxsaw.checkpoint import dtypes
from jaxsaw.checkpoint.atomic import replacing
from jaxsaw.checkpoint.errors import CheckpointError
from jaxsaw.checkpoint.jsonable import from_json
from jaxsaw.checkpoint.npz import KeyData
from jaxsaw.checkpoint.reader import _open_at_once
from jaxsaw.checkpoint.state import Path, storable
from jaxsaw.state.variable import Variable

_MAX_HEADER = 100_000_000  # the format's own limit
_KEYS = "jaxsaw.keys"  # the field of the metadata that tells random keys from other uint32
_DTYPES = {
    "BOOL": "bool",
    **{f"{letter}{bits}": f"{kind}{bits}" for letter, kind in (("I", "int"), ("U", "uint"))
       for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "BF16": "bfloat16",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip
_NAMES = {name: code for code, name in _DTYPES.items()}


def save_safetensors(
    path: Path, arrays: Mapping[str, Any], *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays, such as a ``state_dict``, into a safetensors file, atomically.

    Args:
        path: The file, by convention ``*.safetensors``; missing folders are made.
        arrays: NumPy or JAX arrays, or Variables, by name. Random keys are stored as their data.
        metadata: Texts by name, which describe the file.

    Raises:
        TypeError: If the format has no such dtype, or a name or text isn't a str.
        OSError: If the file can't be written; an older one at this path is left as it was.

    Example:
        >>> model = nn.Linear(2, 1, rngs=js.Rngs(0))
        >>> checkpoint.save_safetensors("linear.safetensors", model.state_dict())
        >>> model.load_state_dict(checkpoint.load_safetensors("linear.safetensors"))
        IncompatibleKeys(missing_keys=[], unexpected_keys=[])
    """
    texts = {"format": "pt", **(metadata or {})}  # PyTorch's names and layouts
    tensors, keys = {}, {}
    for name, array in arrays.items():
        value = array._peek() if isinstance(array, Variable) else array
        if isinstance(value, jax.Array):
            value = storable(value)
        if isinstance(value, KeyData):
            value, keys[name] = value
        tensors[name] = value if isinstance(value, jax.Array) else np.asarray(value)
    if keys:
        texts[_KEYS] = json.dumps(keys)
    for text in (*tensors, *texts, *texts.values()):
        if not isinstance(text, str) or text == "__metadata__":
            raise TypeError(f"save_safetensors: expected texts and other names, got {text!r}.")
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))  # aligned
    header: dict[str, Any] = {"__metadata__": texts, **dict.fromkeys(tensors)}
    end = 0
    for name in order:
        dtype, shape = _code(name, tensors[name].dtype), tensors[name].shape
        start, end = end, end + dtypes.array_nbytes(_DTYPES[dtype], shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    content = json.dumps(header, ensure_ascii=False).encode()
    content += b" " * (-len(content) % 8)
    with replacing(path) as file, open(file, "wb", closefd=False) as output:
        output.write(len(content).to_bytes(8, "little") + content)
        for name in order:
            output.write(dtypes.host_bytes(tensors[name]))


def load_safetensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Read the arrays of a safetensors file.

    Args:
        path: The file; from PyTorch, from jaxsaw or from elsewhere.

    Returns:
        NumPy arrays by name, which a module's ``load_state_dict`` takes. Random keys are their
        data.

    Raises:
        CheckpointError: If the file isn't valid, or holds a dtype that JAX hasn't.
        FileNotFoundError: If there is no such file.
    """
    arrays, _ = read_safetensors(path)
    return {name: a.data if isinstance(a, KeyData) else a for name, a in arrays.items()}


def read_safetensors(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Read a safetensors file with what it says of itself.

    Args:
        path: The file.

    Returns:
        NumPy arrays, or `KeyData`, by name; and the metadata.

    Raises:
        CheckpointError: As for :func:`load_safetensors`.
        FileNotFoundError: If there is no such file.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        try:
            return _parse(file)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{os.fspath(path)}: no valid safetensors file: {error}."
            ) from None


def _code(name: str, dtype: Any) -> str:
    known = dtypes.dtype_name(dtype)
    if known not in _NAMES:
        raise TypeError(f"save_safetensors: {name}: the format has no dtype {known}; cast it.")
    return _NAMES[known]


def _parse(file: Any) -> tuple[dict[str, Any], dict[str, str]]:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("not a regular file")
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(_MAX_HEADER, status.st_size - 8):
        raise ValueError(f"a header of {length} bytes, in a file of {status.st_size}")
    header = from_json(file.read(length))
    if type(header) is not dict:
        raise ValueError("its header is no mapping")
    texts = header.pop("__metadata__", {})
    if type(texts) is not dict or not all(type(text) is str for text in texts.values()):
        raise ValueError("its metadata are no texts")
    entries = {name: _entry(name, form) for name, form in header.items()}
    at = 0
    for name, (dtype, shape, start, end) in sorted(entries.items(), key=lambda e: e[1][2:]):
        if start != at or end - start != dtypes.array_nbytes(dtype, shape):
            raise ValueError(f"{name!r}: its bytes are elsewhere, or not as many as it says")
        at = end
    if at != status.st_size - 8 - length:
        raise ValueError("its arrays don't fill the file, or are cut off")
    keys = from_json(texts.pop(_KEYS, "{}").encode())
    arrays: dict[str, Any] = {}
    for name, (dtype, shape, start, end) in entries.items():
        file.seek(8 + length + start)
        data = np.fromfile(file, np.uint8, end - start)
        array = data.view(dtypes.stored_dtype(dtype).newbyteorder("<"))
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        array = array.view(dtypes.true_dtype(dtype)).reshape(shape)
        is_key = name in keys and dtype == "uint32" and type(keys[name]) is str
        arrays[name] = KeyData(array, keys[name]) if is_key else array
    return arrays, texts


def _entry(name: str, form: Any) -> tuple[str, tuple[int, ...], int, int]:
    code, shape, offsets = form["dtype"], form["shape"], form["data_offsets"]
    if _DTYPES.get(code) not in dtypes.NATIVE and _DTYPES.get(code) not in dtypes.EXTENDED:
        raise ValueError(f"{name!r}: unknown dtype {code!r:.80}")
    for numbers in (shape, offsets):
        if type(numbers) is not list or not all(type(n) is int and n >= 0 for n in numbers):
            raise ValueError(f"{name!r}: its shape or its offsets are none")
    if len(shape) > 64 or len(offsets) != 2:
        raise ValueError(f"{name!r}: its shape or its offsets are none")
    return _DTYPES[code], tuple(shape), offsets[0], offsets[1]
