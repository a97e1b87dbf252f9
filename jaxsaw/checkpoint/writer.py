"""Writing a checkpoint at the speed of the disk, its checksums included."""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import Any

from . import container, dtypes, jsonable
from .atomic import replacing
from .manifest import DIGEST, FORMAT_VERSION, MANIFEST, MAX_BYTES, Entry

_CHUNK = 8 << 20  # what one system call writes
_SMALL = 256 << 10  # below it a copy, or a checksum here and now, is cheaper than a call


def write(path: str | os.PathLike[str], arrays: Sequence[Any], manifest: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically, as `replacing` does.

    Args:
        path: Where the file goes; missing folders are made.
        arrays: NumPy arrays, JAX arrays, or ``(data, impl)`` pairs for typed PRNG keys. The n-th
            becomes the member ``a{n}.npy``. One at a time is brought to the host.
        manifest: What the file says beside ``format_version`` and ``arrays``.

    Raises:
        TypeError: If an array's dtype or a value in the manifest can't be stored.
        ValueError: If the manifest is too large, or uses a name that is taken.
        OSError: If anything about the writing fails; the old file is untouched then.

    Example:
        >>> write("example.npz", [jnp.ones(3)], {"names": {"weight": "a0"}})
        >>> np.load("example.npz")["a0"]
        array([1., 1., 1.], dtype=float32)
    """
    content = dict(manifest)
    for name in ("format_version", "arrays"):
        if name in content:
            raise ValueError(f"manifest: {name!r} is written by the file layer itself.")
    jsonable.check_jsonable(content, "manifest", depth=jsonable.MANIFEST_DEPTH)
    entries = [_describe(array, index) for index, array in enumerate(arrays)]
    with replacing(path) as file:
        _write_content(file, arrays, entries, content)


def _describe(array: Any, index: int) -> Entry:
    impl = None
    try:
        if isinstance(array, tuple):
            array, impl = array
        name = dtypes.dtype_name(array.dtype)
        if impl is not None and (name != "uint32" or type(impl) is not str):
            raise TypeError(f"a key is uint32 data and a str, got {name} and {impl!r}.")
        return Entry(name, tuple(int(n) for n in array.shape), impl)
    except (AttributeError, TypeError, ValueError) as error:
        raise TypeError(f"arrays[{index}]: {error}") from error


def _write_content(
    file: int, arrays: Sequence[Any], entries: list[Entry], content: dict[str, Any]
) -> None:
    output = _Output(file)
    members: list[container.Member] = []
    with _Checksums() as checksums:
        for index, (array, entry) in enumerate(zip(arrays, entries, strict=True)):
            data = array[0] if isinstance(array, tuple) else array
            members.append(_write_array(output, checksums, f"a{index}.npy", data, entry))
    forms = {
        f"a{index}": entry._replace(crc=member.crc).to_json()
        for index, (entry, member) in enumerate(zip(entries, members, strict=True))
    }
    text = jsonable.to_json({"format_version": FORMAT_VERSION, "arrays": forms, **content})
    if len(text) > MAX_BYTES:
        raise ValueError(f"manifest: {len(text)} bytes are more than the limit, {MAX_BYTES}.")
    members.append(_write_text(output, MANIFEST, text))
    members.append(_write_text(output, DIGEST, container.digest(members, text)))
    output.write(container.directory(members, output.position))
    output.flush()


def _write_array(
    output: _Output, checksums: _Checksums, name: str, array: Any, entry: Entry
) -> container.Member:
    header, start = entry.header, output.position
    size, crc = len(header) + entry.nbytes, zlib.crc32(header)
    data = dtypes.host_bytes(array)
    if entry.nbytes < _SMALL:
        crc = zlib.crc32(data, crc)
        output.write(container.local_header(name, size, crc) + header)
        output.write(data)
    else:
        # The checksum is computed beside the writing, and put into its place afterwards.
        checksums.start(data, crc)
        output.write(container.local_header(name, size, 0) + header)
        output.write(data)
        crc = checksums.result()
        output.patch(start + container.CRC_FIELD, crc.to_bytes(4, "little"))
    return container.Member(name, size, crc, start)


def _write_text(output: _Output, name: str, text: bytes) -> container.Member:
    member = container.Member(name, len(text), zlib.crc32(text), output.position)
    output.write(container.local_header(name, member.size, member.crc) + text)
    return member


class _Output:
    # An unbuffered file: large buffers are written from where they are, small ones are gathered.

    def __init__(self, file: int) -> None:
        self._file = file
        self._written = 0
        self._started = 0  # up to here the system was asked to begin with the disk
        self._pending = bytearray()

    @property
    def position(self) -> int:
        return self._written + len(self._pending)

    def write(self, data: bytes | memoryview) -> None:
        if len(data) >= _SMALL:
            self.flush()
            self._write_all(memoryview(data))
        else:
            self._pending += data
            if len(self._pending) >= _CHUNK:
                self.flush()

    def flush(self) -> None:
        pending, self._pending = self._pending, bytearray()
        self._write_all(memoryview(pending))

    def patch(self, offset: int, data: bytes) -> None:
        while data:
            count = os.pwrite(self._file, data, offset)
            data, offset = data[count:], offset + count

    def _write_all(self, view: memoryview) -> None:
        while view:
            count = os.write(self._file, view[:_CHUNK])  # which may be short
            self._written += count
            view = view[count:]
            if self._written - self._started >= _CHUNK:
                self._start_write_back()

    def _start_write_back(self) -> None:
        # On Linux this advice starts the writing to the disk, and fsync has less to wait for.
        length = self._written - self._started
        with contextlib.suppress(OSError, AttributeError):
            os.posix_fadvise(self._file, self._started, length, os.POSIX_FADV_DONTNEED)
        self._started = self._written


class _Checksums:
    # crc32 in a thread of its own. A plain thread, as an executor refuses work while Python exits,
    # when a save in the background may still be running. From 3.12 on no thread can be started
    # then either: the checksums are computed here and now.

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[memoryview, int] | None] = SimpleQueue()
        self._results: SimpleQueue[int] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="jaxsaw-crc32", daemon=True)

    def __enter__(self) -> _Checksums:
        with contextlib.suppress(RuntimeError):
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.ident is not None:
            self._jobs.put(None)
            self._thread.join()

    def start(self, data: memoryview, crc: int) -> None:
        if self._thread.ident is not None:
            self._jobs.put((data, crc))
        else:
            self._results.put(zlib.crc32(data, crc))

    def result(self) -> int:
        return self._results.get()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._results.put(zlib.crc32(*job))
            del job
