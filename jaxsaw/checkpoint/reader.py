"""Reading a checkpoint that may come from anywhere: all is checked, nothing of it is run."""

from __future__ import annotations

import os
import stat
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from . import container, dtypes
from .errors import CheckpointError
from .manifest import DIGEST, MANIFEST, MAX_BYTES, Entry, KeyData, match, parse_manifest

_CHUNK = 1 << 20  # read, then checked while the processor's cache still holds it
_SMALL = 256 << 10  # below it, handing the work to a thread takes longer than the work
_ALIGNMENT = 64  # JAX on a CPU takes such an array over without a copy
_THREADS = min(4, os.cpu_count() or 1)


class Reader:
    """An open checkpoint, whose arrays are read when they are asked for.

    Opening checks the structure of the file and the manifest; each array's checksum is checked
    when it is read, on the copy that is returned. Several threads may use one reader.

    Args:
        path: The file.

    Raises:
        FileNotFoundError: If there is none.
        OSError: If it can't be read.
        CheckpointError: If it isn't a complete, unaltered checkpoint, or of a newer format.

    Example:
        >>> checkpoint.save("example.npz", count=js.Variable(3))
        >>> with Reader("example.npz") as reader:
        ...     reader.array("a0")
        array(3, dtype=int32)
    """

    manifest: dict[str, Any]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._file = open(path, "rb", buffering=0, opener=_open_at_once)  # noqa: SIM115
        try:
            self.manifest, self._entries, self._offsets = self._open(self._file.fileno())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; arrays that were read stay."""
        self._file.close()

    def keys(self) -> list[str]:
        """Return the keys of all arrays, as in ``manifest["arrays"]``."""
        return list(self._entries)

    def array(self, key: str) -> Any:
        """Read one array into memory of its own, and check it.

        Args:
            key: One of `keys`.

        Returns:
            A NumPy array of the true dtype, aligned to 64 bytes, or `KeyData` for a PRNG key.

        Raises:
            CheckpointError: If the file has no such array, or its checksum differs.
            ValueError: If the reader is closed.
        """
        return self._fill(key, *_allocate(self._find(key)))

    def arrays(self, keys: Iterable[str] | None = None) -> Generator[tuple[str, Any], None, None]:
        """Read several arrays in threads, a few ahead of what was asked for.

        Args:
            keys: Which ones, in which order; None for all.

        Yields:
            Pairs of key and what `array` returns.

        Raises:
            CheckpointError: As `array` does.
        """
        pending: deque[tuple[str, Callable[[], Any]]] = deque()

        def take() -> tuple[str, Any]:
            key, result = pending.popleft()
            return key, result()

        with ThreadPoolExecutor(_THREADS, "jaxsaw-read") as pool:
            try:
                for key in self._entries if keys is None else keys:
                    # Memory comes from this thread: what others allocate is fresh from the system
                    # each time, which takes as long as the reading.
                    work = partial(self._fill, key, *_allocate(self._find(key)))
                    small = self._entries[key].nbytes < _SMALL
                    pending.append((key, work if small else pool.submit(work).result))
                    if len(pending) > 2 * _THREADS:
                        yield take()
                while pending:
                    yield take()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _fill(self, key: str, host: np.ndarray[Any, Any], unread: memoryview) -> Any:
        entry, name, file = self._entries[key], f"{key}.npy", self._file.fileno()
        header, at = entry.header, self._offsets[name]
        if os.pread(file, len(header), at) != header:
            raise self._error(f"member {name!r}: its NPY header isn't that of the manifest")
        at, crc = at + len(header), zlib.crc32(header)
        while unread:
            count = os.preadv(file, [unread[:_CHUNK]], at)
            if count == 0:
                raise self._error(f"member {name!r}: cut off")
            crc = zlib.crc32(unread[:count], crc)
            unread, at = unread[count:], at + count
        if crc != entry.crc:
            raise self._error(f"member {name!r}: its checksum differs from the manifest's")
        return host if entry.impl is None else KeyData(host, entry.impl)

    def _find(self, key: str) -> Entry:
        if key not in self._entries:
            raise self._error(f"it has no array {key!r}")
        return self._entries[key]

    def _error(self, what: object) -> CheckpointError:
        return CheckpointError(f"{self.path}: {what}.")

    def _open(self, file: int) -> tuple[dict[str, Any], dict[str, Entry], dict[str, int]]:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise self._error("not a regular file")
        try:
            listed, end = container.read_directory(file, status.st_size)
            offsets = container.locate(file, listed, end)
            members = {member.name: member for member in listed}
            text = _read_text(file, members, offsets, MANIFEST, MAX_BYTES)
            manifest = parse_manifest(text)
            saved = _read_text(file, members, offsets, DIGEST, 65)
            del members[DIGEST]
            if container.digest(members.values(), text) != saved:
                raise ValueError("the checksum of its directory and manifest differs")
            del members[MANIFEST]
            return manifest, match(manifest["arrays"], members), offsets
        except ValueError as error:
            raise self._error(error) from None


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a checkpoint's manifest, with the structure of the file checked.

    Args:
        path: The file.

    Returns:
        The manifest: ``format_version``, ``arrays`` and whatever was given to `write`.

    Raises:
        FileNotFoundError: If there is no file.
        OSError: If it can't be read.
        CheckpointError: If it isn't a complete, unaltered checkpoint, or of a newer format.
    """
    with Reader(path) as reader:
        return reader.manifest


def read_arrays(path: str | os.PathLike[str], keys: Iterable[str] | None = None) -> dict[str, Any]:
    """Read and check a checkpoint's arrays.

    Args:
        path: The file.
        keys: Which ones; None for all.

    Returns:
        From key to what `Reader.array` returns.

    Raises:
        FileNotFoundError: If there is no file.
        OSError: If it can't be read.
        CheckpointError: If the file is damaged or lacks one of them.
    """
    with Reader(path) as reader:
        return dict(reader.arrays(keys))


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe that nobody writes to would wait


def _read_text(
    file: int,
    members: dict[str, container.Member],
    offsets: dict[str, int],
    name: str,
    limit: int,
) -> bytes:
    if name not in members:
        raise ValueError(f"member {name!r} is missing; not a checkpoint of this library")
    size = members[name].size
    if size > limit:
        raise ValueError(f"member {name!r}: {size} bytes are more than the limit, {limit}")
    text = os.pread(file, size, offsets[name])
    if zlib.crc32(text) != members[name].crc:
        raise ValueError(f"member {name!r}: its checksum differs from the directory's")
    return text


def _allocate(entry: Entry) -> tuple[np.ndarray[Any, Any], memoryview]:
    # The array, and its bytes to be filled.
    raw = np.empty(entry.nbytes + _ALIGNMENT, np.uint8)
    start = -raw.__array_interface__["data"][0] % _ALIGNMENT
    raw = raw[start : start + entry.nbytes]
    return raw.view(dtypes.true_dtype(entry.dtype)).reshape(entry.shape), raw.data
