"""Damaged and forged files give a CheckpointError or exactly what was written, and soon."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jaxsaw.checkpoint import container, dtypes, npz

Members = list[tuple[str, bytes]]
ARRAYS: list[Any] = [
    np.arange(12.0).reshape(3, 4),
    np.arange(12.0).reshape(3, 4) + 1,  # so that swapping the two changes no shape
    np.arange(6).astype(ml_dtypes.bfloat16),
    (np.array([1, 2], np.uint32), "threefry2x32"),
    np.zeros((0, 3), np.int8),
]
EXTRA = {"names": {"weight": "a0", "bias": "a1"}, "progress": {"step": 3, "loss": float("nan")}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "state.npz"
    npz.write(path, ARRAYS, EXTRA)
    return path


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """No test here takes long, or much memory, whatever a file claims."""
    tracemalloc.start()
    start = time.perf_counter()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.perf_counter() - start < 60 and peak < 500 << 20


def read_everything(path: Path) -> tuple[str, list[tuple[str, str, tuple[int, ...], bytes]]]:
    with npz.Reader(path) as reader:
        arrays = []
        for key, value in reader.arrays():
            array, impl = value if isinstance(value, npz.KeyData) else (value, "")
            arrays.append((key + impl, array.dtype.name, array.shape, array.tobytes()))
        return repr(reader.manifest), arrays


def assert_refused(path: Path, message: str) -> None:
    with pytest.raises(npz.CheckpointError) as error:
        read_everything(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


def members_of(path: Path) -> Members:
    with zipfile.ZipFile(path) as file:
        return [(name, file.read(name)) for name in file.namelist()]


def forge(
    path: Path, members: Members, sign: bool = True, method: int = zipfile.ZIP_STORED
) -> None:
    """Pack members as another tool would; signed, with the digest that makes them consistent."""
    if sign:
        manifest = dict(members).get("manifest.json", b"")
        members = [(name, data) for name, data in members if name != "digest.sha256"]
        listed = [container.Member(name, len(data), zlib.crc32(data), 0) for name, data in members]
        members.append(("digest.sha256", container.digest(listed, manifest)))
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members:
            file.writestr(zipfile.ZipInfo(name), data, method)


def forge_manifest(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    members = members_of(path)
    manifest = json.loads(dict(members)["manifest.json"])
    change(manifest)
    text = json.dumps(manifest).encode()
    forge(path, [(name, text if name == "manifest.json" else data) for name, data in members])


# Random damage.


def flip(data: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        changed[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def flip_in_directory(data: bytes, rng: np.random.Generator) -> bytes:
    start = data.index(b"PK\1\2")
    return data[:start] + flip(data[start:], rng)


def flip_in_local_header(data: bytes, rng: np.random.Generator) -> bytes:
    starts = [i for i in range(len(data)) if data.startswith(b"PK\3\4", i)]
    start = starts[rng.integers(len(starts))]
    return data[:start] + flip(data[start : start + 40], rng) + data[start + 40 :]


def truncate(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: rng.integers(len(data))]


def cut_out(data: bytes, rng: np.random.Generator) -> bytes:
    start = int(rng.integers(len(data)))
    return data[:start] + data[start + int(rng.integers(1, len(data))) :]


def insert(data: bytes, rng: np.random.Generator) -> bytes:
    start = rng.integers(len(data) + 1)
    return data[:start] + rng.bytes(int(rng.integers(1, 100))) + data[start:]


def blank(data: bytes, rng: np.random.Generator) -> bytes:
    start = int(rng.integers(len(data)))
    length = min(int(rng.integers(1, 600)), len(data) - start)
    return data[:start] + bytes(length) + data[start + length :]


def repeat(data: bytes, rng: np.random.Generator) -> bytes:
    start, end, to = rng.integers(0, len(data), 3)
    chunk = data[start:end]
    return data[:to] + chunk + data[to + len(chunk) :]


def huge_number(data: bytes, rng: np.random.Generator) -> bytes:
    start = rng.integers(max(0, data.index(b"PK\1\2") - 100), len(data) - 8)
    number = [2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 2][rng.integers(5)]
    form = struct.pack("<I", number) if rng.integers(2) else struct.pack("<Q", number << 31)
    return data[:start] + form + data[start + len(form) :]


DAMAGES = [
    *(flip, flip_in_directory, flip_in_local_header, truncate, cut_out, insert, blank, repeat),
    huge_number,
]


@pytest.mark.parametrize("kind", ["plain", "zip64", "streamed"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_random_damage(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[bytes, np.random.Generator], bytes],
    kind: str,
) -> None:
    if kind == "zip64":
        with monkeypatch.context() as patch:
            patch.setattr(container, "ZIP64_FROM", 0)
            npz.write(path, ARRAYS, EXTRA)
    elif kind == "streamed":
        stream(path)
    expected, data = read_everything(path), path.read_bytes()
    rng = np.random.default_rng(zlib.crc32(f"{damage.__name__} {kind}".encode()))
    refused = 0
    for _ in range(80):
        path.write_bytes(damage(data, rng))
        start = time.perf_counter()
        try:
            assert read_everything(path) == expected
        except npz.CheckpointError as error:
            assert str(error).startswith(f"{path}: ")
            refused += 1
        assert time.perf_counter() - start < 5
    assert refused > 20  # the others changed a date, an attribute or nothing


def stream(path: Path) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: Any) -> int:
            raise io.UnsupportedOperation

        tell = seek

    members, output = members_of(path), Pipe()
    with zipfile.ZipFile(output, "w") as file:
        for name, content in members:
            file.writestr(zipfile.ZipInfo(name), content)
    path.write_bytes(output.getvalue())


def test_all_of_the_content_counts(path: Path) -> None:
    expected, data = read_everything(path), path.read_bytes()
    spans = []
    with zipfile.ZipFile(path) as file:
        for info in file.infolist():
            start = info.header_offset + 30 + len(info.filename)
            spans.append((start, start + info.file_size))
    for start, end in spans:
        for at in range(start, end, 4):
            path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
            with pytest.raises(npz.CheckpointError):
                read_everything(path)
    path.write_bytes(data)
    assert read_everything(path) == expected


@pytest.mark.parametrize(
    "data", [b"", b"PK", b"PK\5\6" + bytes(18), b"\x93NUMPY", bytes(10**6), b"PK\5\6" * 10**5]
)
def test_other_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    assert_refused(path, "")


def test_the_digest_covers_all_but_offsets() -> None:
    member = container.Member("a0.npy", 5, 7, 9)
    changes: list[dict[str, Any]] = [{}, {"name": "a1.npy"}, {"size": 6}, {"crc": 8}]
    digests = {container.digest([member._replace(**change)], b"{}") for change in changes}
    digests |= {container.digest([], b"{}"), container.digest([member], b"{ }")}
    assert len(digests) == 6
    assert container.digest([member._replace(offset=0)], b"{}") in digests


def test_an_ordinary_npz(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, weight=np.ones(3))
    assert_refused(path, "member 'manifest.json' is missing; not a checkpoint of this library.")


def test_what_isnt_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        npz.read_manifest(tmp_path / "none.npz")
    with pytest.raises(IsADirectoryError):
        npz.read_manifest(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert_refused(tmp_path / "pipe", "not a regular file")
    if os.geteuid() != 0:
        (tmp_path / "secret").touch(mode=0)
        with pytest.raises(PermissionError):
            npz.read_manifest(tmp_path / "secret")


def test_file_that_shrinks_while_it_is_open(path: Path) -> None:
    npz.write(path, [np.ones(200_000)], {})
    with npz.Reader(path) as reader:
        os.truncate(path, 1_000_000)
        with pytest.raises(npz.CheckpointError, match="member 'a0.npy': cut off"):
            reader.array("a0")


def test_damage_in_large_arrays_names_the_member(path: Path) -> None:
    npz.write(path, [np.full(200_000, i) for i in range(6)], {})
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert_refused(path, "member 'a3.npy': its checksum differs from the manifest's.")


def test_damage_in_the_manifest_names_it(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b'{"format_version', b'("format_version'))
    assert_refused(path, "member 'manifest.json': its checksum differs from the directory's.")


# Files that are packed consistently, and wrong.


def test_swapped_members(path: Path) -> None:
    members = dict(members_of(path))
    members["a0.npy"], members["a1.npy"] = members["a1.npy"], members["a0.npy"]
    forge(path, list(members.items()), sign=False)
    assert_refused(path, "the checksum of its directory and manifest differs.")
    forge(path, list(members.items()))
    assert_refused(path, "member 'a0.npy': its size or checksum isn't that of the manifest.")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicated_member(path: Path) -> None:
    members = members_of(path)
    for name, data in members:
        forge(path, [*members, (name, data)], sign=False)
        assert_refused(path, f"member {name!r}: occurs twice.")


def test_missing_member(path: Path) -> None:
    members = members_of(path)
    for left_out, _ in members:
        rest = [(name, data) for name, data in members if name != left_out]
        forge(path, rest, sign=False)
        text = left_out if not left_out.startswith("a") else "checksum of its directory"
        assert_refused(path, text)
        if left_out != "digest.sha256":
            forge(path, rest)
            assert_refused(path, f"member {left_out!r} is missing")


@pytest.mark.parametrize(
    "name", ["x.npy", "a9.npy", "a0", "../a.npy", "/etc/passwd", "a0.npy/", "b.txt", "", "é.npy"]
)
def test_additional_member(path: Path, name: str) -> None:
    content = os.urandom(20)
    forge(path, [*members_of(path), (name, content)])
    assert_refused(path, f"member {name!r}: " if name.isascii() else "not a name of a checkpoint's")
    assert sorted(p.name for p in path.parent.iterdir()) == ["state.npz"]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressed_members(path: Path, method: int) -> None:
    forge(path, members_of(path), method=method)
    assert_refused(path, "compressed; a checkpoint's members are stored as is.")


def test_compression_bomb(path: Path) -> None:
    forge(path, [("manifest.json", bytes(100 << 20))], method=zipfile.ZIP_DEFLATED)
    tracemalloc.reset_peak()
    assert_refused(path, "member 'manifest.json': compressed")
    assert tracemalloc.get_traced_memory()[1] < 50 << 20


def test_encrypted_member(path: Path) -> None:
    data = path.read_bytes()
    for signature, at in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        start = data.index(signature) + at
        path.write_bytes(data[:start] + b"\1" + data[start + 1 :])
        assert_refused(path, "member 'a0.npy': encrypted, or of an unknown kind.")


END, END64, LOCATOR, ENTRY, LOCAL = b"PK\5\6", b"PK\6\6", b"PK\6\7", b"PK\1\2", b"PK\3\4"


@pytest.mark.parametrize(
    ("zip64", "record", "field", "form", "change", "message"),
    [
        (False, END, 4, "<H", 1, "a ZIP in several parts"),
        (False, END, 6, "<H", 1, "a ZIP in several parts"),
        (False, END, 8, "<H", 1, "a ZIP in several parts"),
        (False, END, 8, "<I", 0x00010001, "the ZIP's directory is cut off"),
        (False, END, 8, "<I", -0x00010001, "the ZIP's directory has another size than it says"),
        (False, END, 12, "<I", 1, "the ZIP's directory isn't where it should be"),
        (False, END, 16, "<I", -1, "the ZIP's directory isn't where it should be"),
        (False, END, 20, "<H", 1, "bytes follow the end of the ZIP"),
        (False, ENTRY, 20, "<I", 1, "its sizes contradict each other"),
        (False, ENTRY, 34, "<H", 1, "its sizes contradict each other"),
        (False, ENTRY, 28, "<H", 1, "the ZIP's directory is damaged"),
        (False, LOCAL, 28, "<H", 200, "overlaps another part of the file"),
        (False, LOCAL, 0, "<I", 1, "no local header at its offset"),
        (False, LOCAL, 14, "<I", 1, "its local header contradicts the directory"),
        (False, LOCAL, 30, "<B", 1, "its local header has another name"),
        (False, LOCAL, 22, "<I", 1, "its local header contradicts the directory"),
        (True, END, 10, "<H", -2, "the ZIP's end records contradict each other"),
        (True, END64, 0, "<I", 1, "the ZIP64 end record isn't where it should be"),
        (True, END64, 4, "<Q", 1, "the ZIP64 end record has another size than it says"),
        (True, END64, 16, "<I", 1, "a ZIP in several parts"),
        (True, END64, 40, "<Q", 2**40, "the ZIP's directory isn't where it should be"),
        (True, END64, 48, "<Q", 2**40, "the ZIP's directory isn't where it should be"),
        (True, LOCATOR, 4, "<I", 1, "the ZIP64 end record has another size than it says"),
        (True, LOCATOR, 8, "<Q", 2**62, "the ZIP64 end record isn't where it should be"),
        (True, LOCATOR, 16, "<I", 1, "the ZIP64 end record has another size than it says"),
        (True, ENTRY, 60, "<Q", 1, "its sizes contradict each other"),
        (True, ENTRY, 72, "<Q", 2**63, "overlaps another part of the file"),
        (True, ENTRY, 54, "<H", 1, "its large size or offset is missing"),
    ],
)
def test_every_field_is_checked(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    zip64: bool,
    record: bytes,
    field: int,
    form: str,
    change: int,
    message: str,
) -> None:
    with monkeypatch.context() as patch:
        if zip64:
            patch.setattr(container, "ZIP64_FROM", 0)
        npz.write(path, ARRAYS, EXTRA)
    data = bytearray(path.read_bytes())
    at = (data.rindex if record == LOCAL else data.index)(record) + field
    (value,) = struct.unpack_from(form, data, at)
    struct.pack_into(form, data, at, value + change)
    path.write_bytes(data)
    assert_refused(path, message)


def test_directory_of_impossible_size(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "MAX_DIRECTORY", 300)
    assert_refused(path, "the ZIP's directory has an impossible size.")


def test_bytes_after_the_end(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")
    assert_refused(path, "bytes follow the end of the ZIP.")


def test_overlapping_members(path: Path) -> None:
    data = bytearray(path.read_bytes())
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 4)
    data[second + 42 : second + 46] = bytes(4)  # the second member starts where the first does
    path.write_bytes(data)
    assert_refused(path, "overlaps another part of the file.")


def test_deep_and_large_json(path: Path) -> None:
    others = [(name, data) for name, data in members_of(path) if name != "manifest.json"]
    for text, message in (
        (
            b'{"a":' * 150 + b"1" + b"}" * 150,
            "member 'manifest.json': not JSON (nested too deeply)",
        ),
        (b"[" * 10**6, "member 'manifest.json': not JSON (nested too deeply)"),
        (b'{"a": 1, "a": 2}', "member 'manifest.json': not JSON (a key occurs twice)"),
        (b'{"a": ' + b"9" * 10**6 + b"}", "member 'manifest.json': not JSON (Exceeds the limit"),
        (b"\xff", "member 'manifest.json': not JSON ("),
        (b"", "member 'manifest.json': not JSON ("),
        (b"[]", "member 'manifest.json': no format_version."),
        (b"{}", "member 'manifest.json': no format_version."),
        (b'{"format_version": 1}', "member 'manifest.json': no mapping 'arrays'."),
        (b" " * (65 << 20), "bytes are more than the limit, 67108864."),
    ):
        forge(path, [("manifest.json", text), *others])
        assert_refused(path, message)


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.0, None, [1]])
def test_format_versions_that_arent(path: Path, version: Any) -> None:
    forge_manifest(path, lambda manifest: manifest.update(format_version=version))
    assert_refused(path, "member 'manifest.json': no format_version.")


def test_newer_format(path: Path) -> None:
    newer = npz.FORMAT_VERSION + 1
    forge_manifest(path, lambda manifest: manifest.update(format_version=newer, arrays=[]))
    forge(path, [*members_of(path), ("something-new", b"")], sign=False)
    assert_refused(
        path, f"its format version, {newer}, is newer than what this jaxsaw reads (1); use a newer"
    )


@pytest.mark.parametrize(
    "change",
    [
        *({"dtype": name} for name in ("object", "O", "float31", "<f8", "", None, 3, ["float64"])),
        *({"dtype": name} for name in ("float32", "int64", "bfloat16")),
        *({"shape": shape} for shape in ([4, 3], [12], [3, 4, 1], [3], [], None, "34", 12)),
        *(
            {"shape": shape}
            for shape in ([-3, -4], [3.0, 4], [True, 12], [[3, 4]], [1] * 65 + [12])
        ),
        *({"shape": shape} for shape in ([2**62, 4], [0, 2**62], [2**31, 2**31, 0], [10**4000])),
        *({"crc32": crc} for crc in (0, -1, "0", None, 2**40)),
        *({"key_impl": impl} for impl in ("threefry2x32", 3, False)),
    ],
)
def test_wrong_entry(path: Path, change: dict[str, Any]) -> None:
    forge_manifest(path, lambda manifest: manifest["arrays"]["a0"].update(change))
    assert_refused(path, "member 'a0.npy': ")


@pytest.mark.parametrize("shape", [(0, 2**61, 3), (1,) * 64 + (0,)])
def test_shapes_that_numpy_hasnt(path: Path, shape: tuple[int, ...]) -> None:
    """In a file that is right otherwise."""
    header = dtypes.npy_header("int8", shape)
    forge(path, [(n, header if n == "a4.npy" else data) for n, data in members_of(path)])
    entry = {"dtype": "int8", "shape": list(shape), "crc32": zlib.crc32(header)}
    forge_manifest(path, lambda manifest: manifest["arrays"].update(a4=entry))
    assert_refused(path, "member 'a4.npy': the manifest's entry is wrong (")


@pytest.mark.parametrize("entry", [None, 3, [], "dtype", {}, {"dtype": "float64", "shape": [3, 4]}])
def test_entry_of_another_kind(path: Path, entry: Any) -> None:
    forge_manifest(path, lambda manifest: manifest["arrays"].update(a0=entry))
    assert_refused(path, "member 'a0.npy': the manifest's entry is wrong (")


def test_entry_without_member(path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["arrays"]["../../etc/passwd"] = manifest["arrays"]["a0"]

    forge_manifest(path, change)
    assert_refused(path, "member '../../etc/passwd.npy' is missing.")


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("it-was-run",)


@pytest.mark.parametrize("kind", ["object array", "pickle", "other header"])
def test_nothing_is_unpickled(path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(path.parent)
    buffer = io.BytesIO()
    if kind == "pickle":
        buffer.write(pickle.dumps(Evil()))
    elif kind == "other header":
        np.save(buffer, np.arange(6.0).reshape(2, 3))
    else:
        np.save(buffer, np.array([Evil()], object), allow_pickle=True)
    evil, members = buffer.getvalue(), dict(members_of(path))
    members["a0.npy"] = evil
    forge(path, list(members.items()))

    def change(manifest: dict[str, Any]) -> None:
        size = len(evil) - 128
        entry = {"dtype": "uint8", "shape": [size], "crc32": zlib.crc32(evil)}
        manifest["arrays"]["a0"] = entry

    forge_manifest(path, change)
    assert_refused(path, "member 'a0.npy': ")
    assert not Path("it-was-run").exists()
