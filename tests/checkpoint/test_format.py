"""The format is what docs/checkpoint_format.md says, and files of every version can be read."""

import hashlib
import json
import zipfile
import zlib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest

from jaxsaw import checkpoint
from jaxsaw.checkpoint import npz
from jaxsaw.state.graph import named_boxes

FIXTURES = Path(__file__).parent / "fixtures"
VERSION1 = FIXTURES / "version1.npz"


def load_maker():
    spec = spec_from_file_location("make_version1", FIXTURES / "make_version1.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_version1 = load_maker()


# A reader and a writer that know nothing but the page.


def digest(archive):
    sha = hashlib.sha256(archive.read("manifest.json"))
    for info in sorted(archive.infolist(), key=lambda info: info.filename):
        if info.filename != "digest.sha256":
            sha.update(f"\n{info.filename} {info.file_size} {info.CRC:08x}".encode())
    return sha.hexdigest().encode() + b"\n"


def read(path):
    with zipfile.ZipFile(path) as archive, np.load(path, allow_pickle=False) as arrays:
        manifest = json.loads(arrays["manifest.json"])
        assert manifest["format_version"] == 1
        assert archive.read("digest.sha256") == digest(archive)
        members = {f"{key}.npy" for key in manifest["arrays"]}
        assert {*archive.namelist()} == {*members, "manifest.json", "digest.sha256"}
        found = {}
        for key, entry in manifest["arrays"].items():
            assert zlib.crc32(archive.read(f"{key}.npy")) == entry["crc32"]
            array = arrays[key]
            if entry["dtype"] != array.dtype.name:
                array = array.view(getattr(ml_dtypes, entry["dtype"]))
            assert array.shape == tuple(entry["shape"])
            found[key] = (array, entry.get("key_impl"))
        return manifest, {
            (name, path): found[key]
            for name, section in manifest["objects"].items()
            for path, key in section["boxes"].items()
        }


def header(array):
    text = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape}}}"
    text = text.encode() + b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def write(path, arrays, manifest):
    """Store arrays, with triples of true dtype and generator, in an order of our own."""
    manifest = {"format_version": 1, "arrays": {}, **manifest}
    with zipfile.ZipFile(path, "w") as archive:
        for key, (array, dtype, impl) in arrays.items():
            content = header(array) + array.tobytes()
            archive.writestr(f"{key}.npy", content)
            entry = {"dtype": dtype, "shape": list(array.shape), "crc32": zlib.crc32(content)}
            manifest["arrays"][key] = entry if impl is None else {**entry, "key_impl": impl}
        archive.writestr("manifest.json", json.dumps(manifest, indent=2))
        archive.writestr("digest.sha256", digest(archive))


def data_of(array):
    is_key = jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(array) if is_key else array)


def test_the_page_is_enough_to_read(tmp_path):
    objects = make_version1.make(5)
    path = tmp_path / "a.npz"
    checkpoint.save(path, **objects, progress=[1], metadata={"a": None})
    manifest, arrays = read(path)
    assert (manifest["progress"], manifest["metadata"]) == ([1], {"a": None})
    seen = 0
    for name in ("model", "rngs", "everything"):
        for box_path, box in named_boxes(objects[name]):
            array, impl = arrays[name, box_path]
            expected = data_of(box._peek())
            assert array.dtype == expected.dtype and array.tobytes() == expected.tobytes()
            assert (impl is None) == (box._peek().dtype == expected.dtype)
            seen += 1
    assert seen == 19
    boxes = manifest["objects"]["everything"]["boxes"]
    assert boxes["tied"] == boxes["boxes.a/b ü"]
    assert arrays["everything", "key"][1] == "rbg"


def test_the_page_is_enough_to_write(tmp_path):
    path = tmp_path / "a.npz"
    objects = make_version1.make(4)["everything"]
    source = make_version1.make(2)["everything"]
    arrays, boxes = {}, {}
    for number, (name, box) in enumerate(named_boxes(source)):
        value = box._peek()
        data = data_of(value)
        stored = data if data.dtype.isbuiltin == 1 else data.view(f"u{data.dtype.itemsize}")
        impl = "rbg" if name == "key" else None
        arrays[f"a{90 - number}"] = (stored, data.dtype.name, impl)
        boxes[name] = f"a{90 - number}"
    boxes["tied"] = boxes["boxes.a/b ü"]
    sections = {"everything": {"class": "of theirs", "boxes": boxes, "configuration": {}}}
    content = {"objects": sections, "progress": 3, "metadata": None, "versions": {}, "new": 1}
    write(path, arrays, content)
    checkpoint.verify(path)
    assert checkpoint.restore(path, everything=objects).progress == 3
    for (name, box), (_, expected) in zip(named_boxes(objects), named_boxes(source), strict=True):
        assert data_of(box._peek()).tobytes() == data_of(expected._peek()).tobytes(), name


def test_the_pages_example_is_a_manifest():
    page = (Path(__file__).parents[2] / "docs" / "checkpoint_format.md").read_text()
    manifest = json.loads(page.split("```json\n")[1].split("```")[0])
    for entry in manifest["arrays"].values():
        npz_entry = checkpoint.manifest.parse_entry(entry)
        assert npz_entry.to_json() == entry
    assert manifest["format_version"] == npz.FORMAT_VERSION == 1
    assert f"`format_version` is {npz.FORMAT_VERSION}." in page
    checkpoint.state.check_sections("the page", manifest)
    for part in manifest:
        assert f"`{part}`" in page.split("| field |")[1]


# Files that were written once.


def test_version_1_is_read_for_good():
    checkpoint.verify(VERSION1)
    objects = make_version1.make(0)
    restored = checkpoint.restore(VERSION1, **objects)
    assert restored.progress == {
        "int": 2**70, "float": 0.1, "inf": float("inf"), "list": [None, True, "ü\n"],
    }  # fmt: skip
    expected = make_version1.make(3)["everything"]
    for (name, box), (_, same) in zip(
        named_boxes(objects["everything"]), named_boxes(expected), strict=True
    ):
        assert box.dtype == same.dtype and box.shape == same.shape, name
        assert data_of(box._peek()).tobytes() == data_of(same._peek()).tobytes(), name
    assert objects["optimizer"].param_groups[0]["lr"] == 0.125
    assert objects["optimizer"].step_count == 1
    assert objects["rngs"].counts["dropout"] == 1
    loss = make_version1.step(**objects)
    assert float(loss) == pytest.approx(restored.metadata["next_loss"], rel=1e-4)
    assert checkpoint.inspect(VERSION1)["versions"] == restored.versions


def test_version_1_is_what_the_page_says():
    manifest, arrays = read(VERSION1)
    assert manifest["progress"]["int"] == 2**70
    assert arrays["everything", "bfloat16"][0].tolist() == [3, 3]
    assert arrays["everything", "tied"][0].tolist() == [3, 3, 3]
