"""What a checkpoint's manifest says about its arrays, and whether the file agrees."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import dtypes, jsonable
from .container import Member

FORMAT_VERSION = 1
MANIFEST = "manifest.json"  # the member's name
DIGEST = "digest.sha256"  # and that of the checksum of manifest and directory
MAX_BYTES = 64 << 20

_MAX_AXES = 64  # as many as NumPy has
_MAX_NBYTES = 1 << 62


class KeyData(NamedTuple):
    """A typed PRNG key as what it consists of.

    Args:
        data: The array from ``jax.random.key_data``, of uint32.
        impl: The name of the generator, such as ``"threefry2x32"``.
    """

    data: Any
    impl: str


class Entry(NamedTuple):
    """What the file holds under one key.

    Args:
        dtype: The name of the true dtype.
        shape: The array's shape.
        impl: The generator's name if it is a PRNG key's data.
        crc: The checksum of the whole member.
    """

    dtype: str
    shape: tuple[int, ...]
    impl: str | None = None
    crc: int = 0

    @property
    def header(self) -> bytes:
        """What precedes the array's bytes in its member."""
        return dtypes.npy_header(self.dtype, self.shape)

    @property
    def nbytes(self) -> int:
        """How many bytes the array itself has."""
        return dtypes.array_nbytes(self.dtype, self.shape)

    def to_json(self) -> dict[str, Any]:
        """Return the manifest's form of it, which `parse_entry` reads."""
        form = {"dtype": self.dtype, "shape": list(self.shape), "crc32": self.crc}
        return form if self.impl is None else {**form, "key_impl": self.impl}


def parse_manifest(text: bytes) -> dict[str, Any]:
    """Decode a manifest.

    Args:
        text: The bytes of its member.

    Returns:
        The manifest; that its version is known and ``arrays`` a mapping has been checked.

    Raises:
        ValueError: If it is no manifest, or of a newer format.
    """
    try:
        manifest = jsonable.from_json(text)
    except ValueError as error:
        raise ValueError(f"member {MANIFEST!r}: not JSON ({error})") from None
    version = manifest.get("format_version") if type(manifest) is dict else None
    if type(version) is not int or version < 1:
        raise ValueError(f"member {MANIFEST!r}: no format_version")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"its format version, {version}, is newer than what this jaxsaw reads "
            f"({FORMAT_VERSION}); use a newer jaxsaw"
        )
    if type(manifest.get("arrays")) is not dict:
        raise ValueError(f"member {MANIFEST!r}: no mapping 'arrays'")
    return manifest


def match(arrays: dict[str, Any], members: dict[str, Member]) -> dict[str, Entry]:
    """Check that a manifest and a ZIP's directory say the same.

    Args:
        arrays: The manifest's ``arrays``.
        members: All members that should be arrays, by name.

    Returns:
        The entries by key.

    Raises:
        ValueError: Naming the member that is missing, unknown or different.
    """
    for name in members:
        if not name.endswith(".npy") or name.removesuffix(".npy") not in arrays:
            raise ValueError(f"member {name!r}: the manifest doesn't mention it")
    entries = {}
    for key, form in arrays.items():
        name = f"{key}.npy"
        if name not in members:
            raise ValueError(f"member {name!r} is missing")
        try:
            entry = parse_entry(form)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"member {name!r}: the manifest's entry is wrong ({error})") from None
        if (len(entry.header) + entry.nbytes, entry.crc) != members[name][1:3]:
            raise ValueError(f"member {name!r}: its size or checksum isn't that of the manifest")
        entries[key] = entry
    return entries


def parse_entry(form: Any) -> Entry:
    """Decode what a manifest says about one array.

    Args:
        form: What should be the result of `Entry.to_json`.

    Returns:
        The entry.

    Raises:
        KeyError, TypeError, ValueError: If it is something else, or an impossible array.
    """
    dtype, shape, crc, impl = form["dtype"], form["shape"], form["crc32"], form.get("key_impl")
    if dtype not in dtypes.NATIVE and dtype not in dtypes.EXTENDED:
        raise ValueError(f"unknown dtype {dtype!r:.80}")
    if type(shape) is not list or len(shape) > _MAX_AXES:
        raise ValueError(f"not a shape: {shape!r:.80}")
    nbytes = dtypes.true_dtype(dtype).itemsize
    for n in shape:
        if type(n) is not int or n < 0:
            raise ValueError(f"not a shape: {shape!r:.80}")
        nbytes *= n or 1  # NumPy bounds the other axes of an empty array too
    if nbytes > _MAX_NBYTES:
        raise ValueError(f"an impossible shape: {shape!r:.80}")
    if impl is not None and (type(impl) is not str or dtype != "uint32"):
        raise ValueError("not a PRNG key's data")
    return Entry(dtype, tuple(shape), impl, crc)
