"""What is written comes back, through jaxsaw, through NumPy and through other ZIP tools."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxsaw.checkpoint import container, dtypes, npz

ALL = {**dtypes.NATIVE, **dtypes.EXTENDED}
SHAPES: list[tuple[int, ...]] = [(), (1,), (0,), (0, 3), (1, 1), (2, 3), (3, 0, 2), (5,)]


def random_array(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Random bits, so that nan payloads and denormals occur too."""
    rng = np.random.default_rng(seed)
    size = math.prod(shape)
    if dtype == np.bool_:
        return rng.integers(0, 2, size).astype(bool).reshape(shape)
    if dtype.itemsize == 1 and dtype.name in dtypes.EXTENDED:
        return rng.integers(0, 2, size).astype(dtype).reshape(shape)
    raw = rng.integers(0, 256, size * dtype.itemsize, dtype=np.uint8)
    return raw.view(dtype).reshape(shape)


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is np.ndarray
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == np.asarray(expected).tobytes()


def write_and_read(path: Path, arrays: list[Any]) -> dict[str, Any]:
    npz.write(path, arrays, {})
    return npz.read_arrays(path)


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_dtype(tmp_path: Path, name: str) -> None:
    arrays = [random_array(ALL[name], shape, seed) for seed, shape in enumerate(SHAPES)]
    found = write_and_read(tmp_path / "a.npz", arrays)
    assert list(found) == [f"a{i}" for i in range(len(SHAPES))]
    for array, expected in zip(found.values(), arrays, strict=True):
        assert_same(array, expected)


@given(data=st.data())
def test_any_layout(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "layout.npz"
    dtype = ALL[data.draw(st.sampled_from(sorted(ALL)))]
    shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=4)))
    array = random_array(dtype, shape, data.draw(st.integers(0, 99)))
    for axis, step in enumerate(data.draw(st.lists(st.sampled_from([1, 2, -1]), max_size=4))):
        if axis < array.ndim:
            array = array[(slice(None),) * axis + (slice(None, None, step),)]
    if data.draw(st.booleans()):
        array = array.T
    if data.draw(st.booleans()):
        array = np.asfortranarray(array)  # makes () into (1,)
    if dtype.name in dtypes.NATIVE and data.draw(st.booleans()):
        array = array.astype(array.dtype.newbyteorder(">"))
    found = write_and_read(path, [array])["a0"]
    assert found.dtype == dtype
    assert_same(found, array.astype(dtype))


def test_jax_arrays(tmp_path: Path) -> None:
    arrays = [jnp.ones((2, 3), d) for d in (jnp.bfloat16, jnp.int4, jnp.float8_e4m3fn, bool)]
    arrays += [jnp.arange(300_000.0), jnp.zeros(()), jnp.array([1 + 2j])]
    found = write_and_read(tmp_path / "a.npz", arrays)
    for array, expected in zip(found.values(), arrays, strict=True):
        assert_same(array, np.asarray(expected))


def test_saving_leaves_no_host_copy_behind(tmp_path: Path) -> None:
    array: Any = jnp.ones(300_000)
    npz.write(tmp_path / "a.npz", [array], {})
    assert array._npy_value is None  # where JAX keeps the copy that numpy.asarray makes


def test_sharded_arrays(tmp_path: Path) -> None:
    script = """
        import sys, jax, jax.numpy as jnp, numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        from jaxsaw.checkpoint import npz
        mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
        x = jnp.arange(48.0).reshape(4, 12)
        specs = [P("a", "b"), P(None, "b"), P(("a", "b")), P()]
        placed = [jax.device_put(x, NamedSharding(mesh, spec)) for spec in specs]
        npz.write(sys.argv[1], placed, {})
        for array in npz.read_arrays(sys.argv[1]).values():
            np.testing.assert_array_equal(array, x)
    """
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    run_python(script, str(tmp_path / "a.npz"), env=flags)


def run_python(script: str, *args: str, env: dict[str, str] | None = None) -> None:
    root = Path(npz.__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *args],
        env={**os.environ, "PYTHONPATH": str(root), **(env or {})},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr


def test_keys(tmp_path: Path) -> None:
    keys = [jax.random.key(3), jax.random.split(jax.random.key(4, impl="rbg"), 5)]
    pairs = [(jax.random.key_data(key), str(jax.random.key_impl(key))) for key in keys]
    found = write_and_read(tmp_path / "a.npz", [np.zeros(2, np.uint32), *pairs])
    assert type(found["a0"]) is np.ndarray
    for i, key in enumerate(keys):
        data, impl = found[f"a{i + 1}"]
        assert isinstance(found[f"a{i + 1}"], npz.KeyData)
        again = jax.random.wrap_key_data(data, impl=impl)
        assert again.dtype == key.dtype
        assert (jax.random.key_data(again) == jax.random.key_data(key)).all()


def test_arrays_are_aligned_and_owned(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with (
        npz.Reader(path) if path.exists() else _written(path, [np.arange(7), np.ones(9)]) as reader
    ):
        arrays = [reader.array("a0"), *dict(reader.arrays()).values()]
    path.unlink()
    for array in arrays:
        assert array.ctypes.data % 64 == 0 and array.flags.writeable
        array[...] = 0


def _written(path: Path, arrays: list[Any]) -> npz.Reader:
    npz.write(path, arrays, {})
    return npz.Reader(path)


def test_reader_is_lazy_and_keeps_order(tmp_path: Path) -> None:
    arrays = [np.full(n, i) for i, n in enumerate([3, 50_000, 1, 0, 70_000, 200_000] * 4)]
    with _written(tmp_path / "a.npz", arrays) as reader:
        assert reader.keys() == [f"a{i}" for i in range(24)]
        wanted = ["a4", "a0", "a23", "a4"]
        found = list(reader.arrays(wanted))
        assert [key for key, _ in found] == wanted
        for key, array in found:
            assert_same(array, arrays[int(key[1:])])
        half = reader.arrays()
        assert next(half)[0] == "a0"
        half.close()
        with pytest.raises(npz.CheckpointError, match="it has no array 'b'"):
            reader.array("b")
    with pytest.raises(ValueError, match="closed file"):
        reader.array("a0")


def test_numpy_opens_it(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    arrays = [np.arange(6.0).reshape(2, 3), jnp.ones(3, jnp.bfloat16), np.array(True)]
    npz.write(path, arrays, {"names": {"file": "a0"}})
    with np.load(path, allow_pickle=False) as file:
        assert_same(file["a0"], arrays[0])
        assert_same(file["a1"], np.asarray(arrays[1]).view(np.uint16))
        assert_same(file["a2"], arrays[2])
        assert json.loads(file["manifest.json"])["names"] == {"file": "a0"}
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        assert {info.date_time for info in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert file.read("manifest.json").startswith(b'{"format_version": 1, "arrays": ')


@pytest.mark.parametrize("name", sorted(ALL))
@pytest.mark.parametrize("shape", [*SHAPES, (1,) * 30, (2**40, 0)])
def test_header_is_numpys(name: str, shape: tuple[int, ...]) -> None:
    header = dtypes.npy_header(name, shape)
    assert len(header) % 64 == 0
    file = io.BytesIO(header)
    assert np.lib.format.read_magic(file) == (1, 0)
    expected = (shape, False, dtypes.stored_dtype(name))
    assert np.lib.format.read_array_header_1_0(file) == expected
    assert file.read() == b""


def test_same_content_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        npz.write(tmp_path / name, [np.arange(9), np.ones(300_000)], {"progress": {"b": 1, "a": 2}})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


MANIFEST: dict[str, Any] = {
    "objects": {"model": {"a/../ü \x00 w.npy": "a0", "": "a1", "x" * 300: "a2"}},
    "progress": [None, True, 1, 1.0, -0.0, 1e300, 10**400, math.inf, "\u2028é😀", [], {}, [[1]]],
    "manifest.json": False,
}


def test_manifest_keeps_types(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    npz.write(path, [np.zeros(1)] * 3, MANIFEST)
    found = npz.read_manifest(path)
    assert list(found)[:2] == ["format_version", "arrays"]
    assert found.pop("format_version") == npz.FORMAT_VERSION
    assert list(found.pop("arrays")) == ["a0", "a1", "a2"]
    assert repr(found) == repr(MANIFEST)  # which tells 1 from 1.0 and True, and 0.0 from -0.0


def test_without_arrays(tmp_path: Path) -> None:
    assert write_and_read(tmp_path / "a.npz", []) == {}


class _Pipe(io.RawIOBase):
    """A file that can't seek, so that zipfile writes data descriptors."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += data
        return len(data)


def _repack(path: Path, change: str) -> None:
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    output: Any = _Pipe() if change == "stream" else io.BytesIO()
    with zipfile.ZipFile(output, "w") as file:
        for name in reversed(members) if change == "reversed" else members:
            info = zipfile.ZipInfo(name, (2031, 5, 6, 7, 8, 10))
            if change == "extra":
                info.extra, info.comment = b"\x55\x54\x05\x00\x01\x00\x00\x00\x00", b"a comment"
            with file.open(info, "w", force_zip64=change == "zip64") as member:
                member.write(members[name])
        if change == "comment":
            file.comment = b"PK, somewhat longer than nothing"
    path.write_bytes(output.data if change == "stream" else output.getvalue())


@pytest.mark.parametrize("change", ["reversed", "stream", "extra", "zip64", "comment"])
def test_repacked_file_is_valid(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.npz"
    arrays = [random_array(ALL["bfloat16"], (40, 50), 0), np.arange(3), np.zeros((0, 2))]
    npz.write(path, arrays, MANIFEST)
    before, manifest = path.read_bytes(), npz.read_manifest(path)
    _repack(path, change)
    assert path.read_bytes() != before
    assert repr(npz.read_manifest(path)) == repr(manifest)
    for array, expected in zip(npz.read_arrays(path).values(), arrays, strict=True):
        assert_same(array, expected)


def test_many_members(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    npz.write(path, [np.array(i) for i in range(66_000)], {})  # a ZIP without ZIP64 has 65,535
    with npz.Reader(path) as reader:
        assert len(reader.keys()) == 66_000
        assert reader.array("a65999") == 65_999
    with zipfile.ZipFile(path) as file:
        assert len(file.namelist()) == 66_002


def test_more_members_than_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "MAX_DIRECTORY", 300)
    with pytest.raises(ValueError, match="12 members are more than one file can hold"):
        npz.write(tmp_path / "a.npz", [np.ones(1)] * 10, {})


def test_zip64_sizes_and_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    arrays = [np.arange(10.0), np.arange(20_000), np.ones(3), np.ones(70_000)]
    monkeypatch.setattr(container, "ZIP64_FROM", 10_000)
    npz.write(path, arrays, {})
    monkeypatch.undo()
    assert b"PK\6\6" in path.read_bytes()
    for array, expected in zip(npz.read_arrays(path).values(), arrays, strict=True):
        assert_same(array, expected)
    with np.load(path, allow_pickle=False) as file:
        for i, expected in enumerate(arrays):
            assert_same(file[f"a{i}"], expected)


@pytest.mark.parametrize("dtype", [object, "S3", "U2", "M8[s]", [("a", "f4")], "V4"])
def test_refused_dtypes(tmp_path: Path, dtype: Any) -> None:
    with pytest.raises(TypeError, match=r"^arrays\[1\]: can't store an array of dtype"):
        npz.write(tmp_path / "a.npz", [np.zeros(1), np.zeros(3, dtype)], {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (jax.random.key(0), "pass (jax.random.key_data(key), str(jax.random.key_impl(key)))"),
        ((np.zeros(2, np.int32), "rbg"), "a key is uint32 data and a str, got int32 and 'rbg'"),
        ((np.zeros(2, np.uint32), 3), "a key is uint32 data and a str, got uint32 and 3"),
        ((np.zeros(2),), "not enough values to unpack"),
        ([1.0], "'list' object has no attribute 'dtype'"),
    ],
)
def test_refused_values(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(TypeError) as error:
        npz.write(tmp_path / "a.npz", [value], {})
    assert str(error.value).startswith("arrays[0]: ") and message in str(error.value)


@pytest.mark.parametrize("name", ["arrays", "format_version"])
def test_reserved_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"manifest: '{name}' is written by the file layer"):
        npz.write(tmp_path / "a.npz", [], {name: 1})


def test_manifest_of_other_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match=r'^manifest\["progress"\]\[1\]: expected None, .*got set\.'
    ):
        npz.write(tmp_path / "a.npz", [], {"progress": [1, {2}]})
    assert list(tmp_path.iterdir()) == []


def test_huge_manifest_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="bytes are more than the limit, 67108864"):
        npz.write(path, [], {"text": "x" * (64 << 20)})
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
