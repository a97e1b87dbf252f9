"""The command line, averages, and weights in and out of safetensors files."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import checkpoint, nn
from jaxsaw.checkpoint import CheckpointError
from jaxsaw.checkpoint.__main__ import main
from jaxsaw.checkpoint.safetensors import read_safetensors


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *arguments):
    status = main([*map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def run_json(capsys, *arguments):
    status, out, _ = run(capsys, *arguments, "--json")
    return status, json.loads(out)


class Holder(js.Stateful):
    def __init__(self, **boxes):
        for name, value in boxes.items():
            setattr(self, name, js.Variable(value))


def small(n=1.0, **more):
    return Holder(
        w=jnp.full(2, float(n)), half=jnp.full(2, n, jnp.bfloat16), count=jnp.int32(n), **more
    )


# show, verify, diff


def test_show(folder, capsys):
    model = nn.Linear(2, 3, rngs=js.Rngs(0))
    odd = Holder(**{"a\x1b[31m\n": jnp.zeros((3, 0))})
    checkpoint.save("a.npz", model=model, odd=odd, progress={"epoch": 3}, rngs=js.Rngs(a=1))
    status, out, _ = run(capsys, "show", "a.npz")
    assert status == 0 and "\x1b" not in out and "a\\x1b[31m\\x0a" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["weight", "float32[3,", "2]", "24", "B", "a0"] in lines
    assert "model: Linear" in out and "key data of threefry2x32" in out
    assert 'progress: {"epoch": 3}' in out and f"jax {jax.__version__}" in out
    status, manifest = run_json(capsys, "show", "a.npz")
    assert status == 0 and manifest == checkpoint.inspect("a.npz")


def test_verify(folder, capsys):
    checkpoint.save("good.npz", box=small())
    content = bytearray((folder / "good.npz").read_bytes())
    content[165] ^= 1  # in the first array's bytes
    (folder / "bad.npz").write_bytes(content)
    assert run(capsys, "verify", "good.npz")[0] == 0
    status, out, _ = run(capsys, "verify", "good.npz", "bad.npz", "none.npz")
    good, bad, none = out.splitlines()
    assert status == 1 and good.split() == ["good.npz", "good"]
    assert "bad:" in bad and "checksum" in bad and "No such file" in none
    status, found = run_json(capsys, "verify", "good.npz", "bad.npz")
    assert status == 1 and [entry["ok"] for entry in found] == [True, False]


def test_diff(folder, capsys):
    checkpoint.save("a.npz", box=small(1), key=js.Variable(jax.random.key(0)), progress={"n": 1})
    checkpoint.save("same.npz", box=small(1), key=js.Variable(jax.random.key(0)), progress={"n": 1})
    more = small(3, flag=jnp.array(True), gone=jnp.zeros(2))
    more.half = js.Variable(jnp.zeros(3))
    checkpoint.save("b.npz", box=more, key=js.Variable(jax.random.key(1)), progress={"n": 2})
    status, out, _ = run(capsys, "diff", "a.npz", "same.npz")
    assert status == 0 and "equal: 4 names" in out
    status, found = run_json(capsys, "diff", "a.npz", "b.npz")
    assert status == 1
    assert found["first_only"] == [] and found["second_only"] == ["box.flag", "box.gone"]
    assert found["mismatched"] == ["box.half: bfloat16[2] against float32[3]"]
    assert found["different"] == {"box.count": 2.0, "box.w": 2.0, "key": None}
    assert found["progress"] == [{"n": 1}, {"n": 2}] and found["metadata"] is None
    status, out, _ = run(capsys, "diff", "b.npz", "a.npz")
    assert status == 1 and "only in b.npz" in out and "by up to 2" in out and '{"n": 2}' in out


def test_diff_tells_bits_and_types_apart(folder, capsys):
    checkpoint.save("a.npz", box=Holder(x=jnp.float32([0.0, jnp.nan])), progress=1)
    checkpoint.save("b.npz", box=Holder(x=jnp.float32([-0.0, jnp.nan])), progress=1.0)
    assert run(capsys, "diff", "a.npz", "a.npz")[0] == 0
    status, found = run_json(capsys, "diff", "a.npz", "b.npz")
    assert status == 1 and [*found["different"]] == ["box.x"] and found["progress"] == [1, 1.0]


@pytest.mark.parametrize("command", [[], ["show"], ["frobnicate", "a"], ["diff", "a"], ["verify"]])
def test_wrong_usage(command, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(command)
    assert leaving.value.code == 2 and "usage" in capsys.readouterr().err


def test_bad_files(folder, capsys):
    (folder / "a.npz").write_text("no checkpoint")
    for command in ("show a.npz", "show none", "diff a.npz a.npz", "convert a.npz b.safetensors",
                    "average b.npz a.npz"):  # fmt: skip
        status, out, err = run(capsys, *command.split())
        assert (status, out) == (1, "") and err.startswith("error: ")
    assert sorted(path.name for path in folder.iterdir()) == ["a.npz"]


def test_as_a_program(folder):
    checkpoint.save("a.npz", box=small())
    command = [sys.executable, "-m", "jaxsaw.checkpoint", "verify", "a.npz"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["a.npz", "good"], "")


# average


def test_average(folder, capsys):
    for n in (1, 2, 6):
        key = js.Variable(jax.random.key(n))
        checkpoint.save(f"{n}.npz", model=small(n), other=js.Variable(float(n)), key=key,
                        progress={"n": n})  # fmt: skip
    assert run(capsys, "average", "mean.npz", "1.npz", "2.npz", "6.npz")[0] == 0
    mean = checkpoint.load("mean.npz")
    assert mean["model"]["w"].tolist() == [3, 3] and mean["model"]["half"].dtype == "bfloat16"
    assert mean["model"]["half"].tolist() == [3, 3] and mean["other"][""] == 3
    assert mean["model"]["count"] == 6 and mean.progress == {"n": 6}
    assert mean["key"][""] == jax.random.key(6)
    assert checkpoint.inspect("mean.npz")["average_of"] == ["1.npz", "2.npz", "6.npz"]
    restored = small(0)
    checkpoint.restore("mean.npz", model=restored)
    assert restored.w.tolist() == [3, 3]

    arguments = ["average", "6.npz", "1.npz", "2.npz", "6.npz", "--last", 2, "--object", "model"]
    assert run_json(capsys, *arguments) == (0, {"path": "6.npz", "arrays": 5})
    mean = checkpoint.load("6.npz")
    assert mean["model"]["w"].tolist() == [4, 4] and mean["other"][""] == 6


def test_average_in_double_precision(folder):
    values = np.float32([1, 2**-24, 2**-24, 2**-24])
    for n, value in enumerate(values):
        checkpoint.save(f"{n}.npz", box=js.Variable(jnp.float32(value)))
    checkpoint.average("mean.npz", [f"{n}.npz" for n in range(4)])
    assert checkpoint.load("mean.npz")["box"][""] == np.float32(values.astype(float).mean())


def test_average_of_what_differs(folder, capsys):
    checkpoint.save("a.npz", model=small(1))
    checkpoint.save("b.npz", model=small(1, more=jnp.zeros(2)))
    with pytest.raises(CheckpointError, match="missing: model.more; unexpected: nothing") as error:
        checkpoint.average("c.npz", ["a.npz", "b.npz"])
    assert error.value.missing == ["model.more"]
    one, two = small(1), small(1)
    one.half, two.half = js.Variable(jnp.zeros(2)), two.w
    checkpoint.save("a.npz", model=one)
    checkpoint.save("b.npz", model=two)
    with pytest.raises(CheckpointError, match="tied in one of them only"):
        checkpoint.average("c.npz", ["a.npz", "b.npz"])
    with pytest.raises(ValueError, match="holds no 'nodel'"):
        checkpoint.average("c.npz", ["a.npz"], objects=["nodel"])
    with pytest.raises(ValueError, match="at least one file"):
        checkpoint.average("c.npz", [])
    assert run(capsys, "average", "c.npz", "a.npz", "--last", "0")[0] == 2
    assert not (folder / "c.npz").exists()


# safetensors

EVERY = {
    "f32": jnp.float32([[1, 2], [3, 4]]),
    "empty": np.zeros((0, 3), np.int64),
    "scalar": np.array(True),
    "f64": np.arange(3.0)[::-1],
    "c": np.complex64([1j]),
    "big": np.arange(3, dtype=">i2"),
    "bf": np.array([1.5, -2], ml_dtypes.bfloat16),
    "f8": np.array([1.5, -2], ml_dtypes.float8_e4m3fn),
    "ü/\n": np.uint8([1]),
}


def test_safetensors_round_trip(folder):
    checkpoint.save_safetensors("a/b.safetensors", EVERY, metadata={"who": "me"})
    found = checkpoint.load_safetensors("a/b.safetensors")
    assert found.keys() == EVERY.keys()
    for name, array in found.items():
        expected = np.asarray(EVERY[name])
        assert array.dtype == expected.dtype.newbyteorder("="), name
        assert array.tolist() == expected.tolist() and array.shape == expected.shape, name
    assert read_safetensors("a/b.safetensors")[1] == {"format": "pt", "who": "me"}


def test_what_the_safetensors_package_reads_and_writes(folder):
    import safetensors.numpy

    common = {name: a for name, a in EVERY.items() if name not in ("bf", "f8")}
    checkpoint.save_safetensors("a.safetensors", common)
    for name, array in safetensors.numpy.load_file("a.safetensors").items():
        np.testing.assert_array_equal(array, common[name])
    theirs = {name: np.ascontiguousarray(array) for name, array in common.items()}
    safetensors.numpy.save_file(theirs, "b.safetensors", metadata={"x": "y"})
    found, metadata = read_safetensors("b.safetensors")
    assert metadata == {"x": "y"} and found.keys() == common.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, common[name])


def test_what_has_no_place_in_safetensors(folder):
    for array in (np.zeros(1, complex), jnp.zeros(2, jnp.int4), np.array("text")):
        with pytest.raises(TypeError, match="dtype"):
            checkpoint.save_safetensors("a.safetensors", {"x": array})
    with pytest.raises(TypeError, match="expected texts"):
        checkpoint.save_safetensors("a.safetensors", {"__metadata__": np.zeros(1)})
    with pytest.raises(TypeError, match="expected texts"):
        checkpoint.save_safetensors("a.safetensors", {}, metadata={"n": 1})
    assert not [*folder.iterdir()]


def form(**changes):
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ({"a": form()}, 7),
        ({"a": form()}, 9),
        ({"a": form(shape=[3])}, 8),
        ({"a": form(shape=[-1, -2])}, 8),
        ({"a": form(shape=[2.0])}, 8),
        ({"a": form(shape=[2**70, 0], data_offsets=[0, 0])}, 0),
        ({"a": form(dtype="F31")}, 8),
        ({"a": form(dtype=[])}, 8),
        ({"a": form(data_offsets=[8, 0])}, 8),
        ({"a": form(data_offsets=[4, 12])}, 12),
        ({"a": form(), "b": form()}, 8),
        ({"a": form(data_offsets=[0])}, 8),
        ({"a": {}}, 0),
        ({"a": 3}, 0),
        ([], 0),
        ({"__metadata__": {"a": 1}}, 0),
        ({"__metadata__": []}, 0),
        ({"a": form(dtype="U32"), "__metadata__": {"jaxsaw.keys": "3"}}, 8),
    ],
)
def test_bad_safetensors(folder, header, data):
    text = json.dumps(header).encode()
    (folder / "a").write_bytes(len(text).to_bytes(8, "little") + text + bytes(data))
    with pytest.raises(CheckpointError, match="^a: no valid safetensors file"):
        checkpoint.load_safetensors("a")


@pytest.mark.parametrize(
    "content",
    [b"", b"\1", b"\xff" * 16, (2).to_bytes(8, "little") + b"{", b"\x0a" + bytes(7) + b"[" * 10,
     (17).to_bytes(8, "little") + b'{"a": 1, "a": 2} ', (2).to_bytes(8, "little") + b"\xff\xff"],
)  # fmt: skip
def test_bad_bytes(folder, content):
    (folder / "a").write_bytes(content)
    with pytest.raises(CheckpointError, match="^a: no valid safetensors file"):
        checkpoint.load_safetensors("a")


def test_convert_there_and_back(folder, capsys):
    model = nn.Sequential(nn.Linear(2, 2, rngs=js.Rngs(0)), nn.Dropout(rngs=js.Rngs(dropout=1)))
    checkpoint.save("a.npz", model=model, rngs=js.Rngs(b=2))
    assert run(capsys, "convert", "a.npz", "b.safetensors")[0] == 0
    status, report = run_json(capsys, "convert", "b.safetensors", "c.npz")
    assert (status, report["path"]) == (0, "c.npz")
    checkpoint.restore("c.npz", model=model)
    _, found = run_json(capsys, "diff", "a.npz", "c.npz")
    assert not found["different"] and not found["mismatched"] and not found["second_only"]
    assert found["first_only"] == ["rngs.b.key", "rngs.b.count"]
    assert run(capsys, "convert", "a.npz", "d.safetensors", "--object", "rngs")[0] == 0
    assert [*checkpoint.load_safetensors("d.safetensors")] == ["b.key", "b.count"]
    status, _, err = run(capsys, "convert", "a.npz", "d.safetensors", "--object", "none")
    assert status == 2 and "it holds: model, rngs" in err
    assert run(capsys, "convert", "a.npz", "b.npz")[0] == 2
