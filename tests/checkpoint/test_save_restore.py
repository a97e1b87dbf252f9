"""What a checkpoint holds, and what a restore changes, or doesn't."""

import os
import pickle
import subprocess
import sys
import threading
import zipfile

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import checkpoint, data, nn, optim
from jaxsaw.checkpoint import CheckpointError, npz
from jaxsaw.checkpoint import state as layer
from jaxsaw.checkpoint.paths import boxes_by_path, objects_by_path
from jaxsaw.state import pack
from jaxsaw.state.graph import named_boxes


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.npz"


class Net(nn.Module):
    def __init__(self, *, seed=0, width=4, rngs=None):
        super().__init__()
        rngs = rngs or js.Rngs(params=seed, dropout=seed + 1)
        self.first = nn.Linear(3, width, rngs=rngs)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.5, rngs=rngs)
        self.last = nn.Linear(width, 2, rngs=rngs)
        self.register_buffer("seen", jnp.zeros((), jnp.int32), persistent=False)

    def forward(self, x):
        self.seen += 1
        return self.last(self.drop(self.norm(self.first(x))))


def train(model, optimizer, seed=0):
    x = jax.random.normal(jax.random.key(seed), (8, 3))
    loss, grads = js.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
    optimizer.step(grads)
    return loss


train_jitted = js.jit(train)


def make(seed=0):
    model = Net(seed=seed)
    return model, optim.AdamW(model.parameters(), lr=0.1)


def bits(array):
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    host = np.asarray(array)
    return str(array.dtype), host.shape, host.tobytes()


def content(*objects):
    """Return every box, its array's dtype, shape and bits, by object and path."""
    return {
        (i, name): (box, bits(box._peek()), box._peek().sharding)
        for i, obj in enumerate(objects)
        for name, box in named_boxes(obj)
    }


def values(*objects):
    return {name: entry[1] for name, entry in content(*objects).items()}


class Holder(js.Stateful):
    def __init__(self, **attributes):
        for name, value in attributes.items():
            setattr(self, name, value)


# What a file holds.


def test_it_holds_every_box_of_each_object(path):
    model, optimizer = make()
    rngs = js.Rngs(sample=3)
    train(model, optimizer)
    checkpoint.save(path, model=model, optimizer=optimizer, rngs=rngs)
    loaded = checkpoint.load(path)
    assert list(loaded) == ["model", "optimizer", "rngs"]
    names = {name for name, _ in named_boxes(model)}
    assert {"seen", "drop.rngs.dropout.count", "norm.running_mean"} <= names
    assert set(loaded["model"]) >= names  # tied ones by each of their paths
    assert loaded["model"]["seen"] == 1
    assert loaded["model"]["drop.rngs.dropout.count"] == 1
    assert set(loaded["optimizer"]) == set(optimizer._owned_boxes())
    assert not any(name.startswith("params") for name in loaded["optimizer"])
    assert set(loaded["rngs"]) == {"sample.key", "sample.count"}
    for name, box in named_boxes(model):
        assert bits(loaded["model"][name]) == bits(box.value), name


def test_each_distinct_box_is_stored_once(path):
    model, optimizer = make()
    checkpoint.save(path, model=model, optimizer=optimizer, all=Holder(m=model, o=optimizer))
    boxes = {id(box) for _, box in named_boxes(model)} | {
        id(box) for box in optimizer._owned_boxes().values()
    }
    manifest = checkpoint.inspect(path)
    assert len(manifest["arrays"]) == len(boxes)
    assert (
        manifest["objects"]["all"]["boxes"]["m.seen"]
        == (manifest["objects"]["model"]["boxes"]["seen"])
    )


def test_a_scheduler_does_not_repeat_its_optimizer(path):
    _, optimizer = make()
    scheduler = optim.lr_scheduler.StepLR(optimizer, 2)
    checkpoint.save(path, scheduler=scheduler)
    section = checkpoint.inspect(path)["objects"]["scheduler"]
    assert section["boxes"].keys() >= {"last_epoch", "base_lrs.0", "lr.0"}
    assert not [name for name in section["boxes"] if name.startswith("optimizer")]
    assert section["configuration"] == {"": {"class": "StepLR"}}


def test_training_and_requires_grad_are_the_callers(path):
    model = Net()
    model.eval()
    model.first.requires_grad_(False)
    checkpoint.save(path, model=model)
    other = Net(seed=5)
    checkpoint.restore(path, model=other)
    assert other.training and other.first.weight.requires_grad
    assert values(other) == values(model)


def test_numpy_opens_it_without_pickle_and_nothing_is_ever_pickled(path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("pickle was used")

    for name in ("load", "loads", "dump", "dumps", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    model, optimizer = make()
    checkpoint.save(path, model=model, optimizer=optimizer)
    checkpoint.restore(path, model=model, optimizer=optimizer)
    checkpoint.verify(path)
    dict(checkpoint.load(path)["model"])
    with np.load(path, allow_pickle=False) as file:
        assert all(file[name] is not None for name in file.files if name[0] == "a")
    with zipfile.ZipFile(path) as file:
        assert all(info.compress_type == zipfile.ZIP_STORED for info in file.infolist())


def test_missing_folders_are_made_and_a_path_is_a_plain_path(tmp_path):
    path = tmp_path / "a" / "b" / "no suffix"
    checkpoint.save(str(path), model=Net())
    assert os.listdir(path.parent) == ["no suffix"]
    checkpoint.verify(path)


def test_nothing_but_progress(path):
    checkpoint.save(path, progress={"n": 1})
    assert checkpoint.restore(path).progress == {"n": 1}
    assert list(checkpoint.load(path)) == []


# Progress and metadata.

PLAIN = {
    "none": None,
    "bools": [True, False],
    "int": 2**70,
    "floats": [0.1, -0.0, 1e300, float("inf"), 3.0],
    "str": "ü\n\x00/",
    "empty": [[], {}, ""],
    "": {"nested": [{"a": [1, [2.5]]}]},
}


def test_progress_and_metadata_keep_their_types(path):
    checkpoint.save(path, progress=PLAIN, metadata=[PLAIN])
    restored = checkpoint.restore(path)
    for given, came in ((PLAIN, restored.progress), ([PLAIN], restored.metadata)):
        assert repr(came) == repr(given)  # tells 1, 1.0 and True, and 0.0 and -0.0, apart
    loaded = checkpoint.load(path)
    assert repr(loaded.progress) == repr(PLAIN) and repr(loaded.metadata) == repr([PLAIN])
    manifest = checkpoint.inspect(path)
    assert repr(manifest["progress"]) == repr(PLAIN)
    assert manifest["format_version"] == 1
    assert restored.versions == loaded.versions == manifest["versions"]
    assert set(restored.versions) == {"jaxsaw", "jax", "numpy", "python"}
    assert restored.versions["jax"] == jax.__version__


@pytest.mark.parametrize(
    "value",
    [(1, 2), np.float32(1), np.ones(2), jnp.ones(()), {1: 2}, {"a": {3}}, b"x", 1j, object()],
    ids=lambda value: type(value).__name__,
)
def test_other_values_are_refused_by_name_and_nothing_is_written(path, value):
    with pytest.raises(TypeError, match=r"progress\[\"here\"\]"):
        checkpoint.save(path, model=Net(), progress={"here": value})
    with pytest.raises(TypeError, match=r"metadata\[0\]"):
        checkpoint.save(path, model=Net(), metadata=[value])
    assert not path.exists()


# Names.

NAMES = [
    *("file", "allow_pickle", "a0", "a0.npy", "manifest", "self", "w", "w.npy", "a.b", "a..b"),
    *("a/b", "/a", "../a", ".", "..", "", " ", "a b", "ü€𝄞", "A", "a", "x" * 300, "\n", "con"),
    *("__class__", "class", "boxes", "0", "params", "*", '"', "\\", "a\\b", "\x00"),
]


def test_names_of_objects(path):
    boxes = {name: js.Variable(jnp.asarray(i)) for i, name in enumerate(NAMES)}
    checkpoint.save(path, **{n: b for n, b in boxes.items() if n != "self"})
    fresh = {name: js.Variable(jnp.asarray(-1)) for name in NAMES if name != "self"}
    checkpoint.restore(path, **fresh)
    for name, box in fresh.items():
        assert int(box) == NAMES.index(name), name
        assert checkpoint.load(path)[name][""] == NAMES.index(name)


def test_names_of_boxes(path):
    def holder(value):
        return Holder(boxes={name: js.Variable(jnp.asarray(value(i))) for i, name in NUMBERED})

    NUMBERED = [*enumerate(NAMES)]
    checkpoint.save(path, all=holder(lambda i: i))
    fresh = holder(lambda i: -1)
    checkpoint.restore(path, all=fresh)
    assert {name: int(box) for name, box in fresh.boxes.items()} == {
        name: i for i, name in NUMBERED
    }


def test_boxes_that_dots_in_keys_give_one_path_are_told_apart(path):
    def holder(*numbers):
        a, b, c = (js.Variable(jnp.asarray(n)) for n in numbers)
        return Holder(d={"a.b": a, "a": {"b": b, "b#2": c}})

    checkpoint.save(path, all=holder(1, 2, 3))
    fresh = holder(0, 0, 0)
    checkpoint.restore(path, all=fresh)
    assert [int(fresh.d["a.b"]), int(fresh.d["a"]["b"]), int(fresh.d["a"]["b#2"])] == [1, 2, 3]


def test_layer_10_does_not_land_in_slot_2(path):
    def stack(seed):
        return nn.Sequential(*(nn.Linear(2, 2, rngs=js.Rngs(seed + i)) for i in range(12)))

    old, new = stack(0), stack(50)
    checkpoint.save(path, model=old)
    checkpoint.restore(path, model=new)
    for i in range(12):
        np.testing.assert_array_equal(new[i].weight, old[i].weight)


def test_the_name_strict_is_refused(path):
    with pytest.raises(TypeError, match="use another name"):
        checkpoint.save(path, strict=Net())
    checkpoint.save(path, model=Net())
    with pytest.raises(TypeError, match="strict must be a bool, got Net"):
        checkpoint.restore(path, strict=Net())


@pytest.mark.parametrize("function", [checkpoint.save, checkpoint.restore])
def test_what_is_not_stateful_is_refused(path, function):
    with pytest.raises(TypeError, match="x must be a Stateful object.*got dict.*progress="):
        function(path, x={"a": jnp.ones(2)})
    assert not path.exists()


# Dtypes and shapes.


def has(dtype):
    try:
        return jnp.asarray(np.ones((2, 3), dtype)).dtype == dtype
    except Exception:  # which one depends on the release
        return False


DTYPES = [np.dtype(t) for t in "? i1 i2 i4 u1 u2 u4 f2 f4 c8".split()] + [
    np.dtype(scalar)
    for name in sorted(dir(ml_dtypes))
    if isinstance(scalar := getattr(ml_dtypes, name), type)
    and issubclass(scalar, np.generic)
    and has(scalar)
]


def some(dtype, shape):
    raw = np.arange(int(np.prod(shape))).reshape(shape) % 2
    return jnp.asarray(raw.astype(dtype))


@pytest.mark.parametrize("shape", [(), (0, 3), (1, 1), (3, 5), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_shape(path, dtype, shape):
    box = js.Variable(some(dtype, shape))
    fresh = js.Variable(jnp.zeros_like(box.value))
    checkpoint.save(path, x=box)
    checkpoint.restore(path, x=fresh)
    assert bits(fresh.value) == bits(box.value)
    assert fresh.value.dtype == dtype
    assert not fresh.value.weak_type
    assert bits(checkpoint.load(path)["x"][""]) == bits(box.value)
    entry = checkpoint.inspect(path)["arrays"]["a0"]
    assert (entry["dtype"], entry["shape"]) == (str(dtype), list(shape))


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64", "complex128"])
def test_64_bits_come_back_also_when_x64_is_off_by_then(path, dtype):
    with js._jax.enable_x64(True):
        box = js.Variable(jnp.asarray([1, 2, 3], dtype))
        fresh = js.Variable(jnp.zeros(3, dtype))
        checkpoint.save(path, x=box)
    checkpoint.restore(path, x=fresh)
    assert bits(fresh._peek()) == bits(box._peek())
    assert fresh._peek().dtype == dtype


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2)], ids=str)
def test_keys(path, impl, shape):
    def keys(seed):
        key = jax.random.key(seed, impl=impl)
        return js.Variable(jax.random.split(key, shape) if shape else key)

    box, fresh = keys(1), keys(2)
    checkpoint.save(path, key=box)
    checkpoint.restore(path, key=fresh)
    assert fresh.value.dtype == box.value.dtype
    assert bits(fresh.value) == bits(box.value)
    assert bits(checkpoint.load(path)["key"][""]) == bits(box.value)


def test_a_key_fits_only_a_key_of_its_kind(path):
    key = jax.random.key(0)
    cases = {
        "impl": (key, jax.random.key(0, impl="rbg")),
        "shape": (key, jax.random.split(key)),
        "array": (key, jnp.zeros(2, jnp.uint32)),
        "other": (jnp.zeros(2, jnp.uint32), key),
    }
    for name, (saved, target) in cases.items():
        checkpoint.save(path, **{name: js.Variable(saved)})
        with pytest.raises(CheckpointError, match=f"mismatched: {name}: .* in the file, .* here"):
            checkpoint.restore(path, **{name: js.Variable(target)})


def test_key_data_of_the_wrong_size_is_an_error_of_the_file(path):
    def write(data, impl):
        sections = {"key": {"boxes": {"": "a0"}, "configuration": {}}}
        rest = {"progress": None, "metadata": None, "versions": {}}
        npz.write(path, [npz.KeyData(data, impl)], {"objects": sections, **rest})

    box = js.Variable(jax.random.key(0))
    before = content(box)
    for size, impl in ((7, "threefry2x32"), (2, "new")):
        write(np.zeros(size, np.uint32), impl)
        with pytest.raises(CheckpointError, match="mismatched: key: key data of"):
            checkpoint.restore(path, key=box)
        with pytest.raises(CheckpointError, match="state.npz"):
            checkpoint.load(path)["key"][""]
        assert content(box) == before


# Ties.


class Pair(nn.Module):
    def __init__(self, tied, seed=0):
        super().__init__()
        rngs = js.Rngs(seed)
        self.a = nn.Linear(2, 2, rngs=rngs)
        self.b = nn.Linear(2, 2, rngs=rngs)
        if tied == "box":
            self.b.weight = self.a.weight
        elif tied == "module":
            self.b = self.a


@pytest.mark.parametrize("tied", ["box", "module"])
def test_ties_come_back_tied(path, tied):
    old, new = Pair(tied), Pair(tied, seed=1)
    checkpoint.save(path, model=old)
    checkpoint.restore(path, model=new)
    assert new.a.weight is new.b.weight
    assert values(new) == values(old)


@pytest.mark.parametrize("tied", ["box", "module"])
def test_a_tied_file_fills_an_untied_model(path, tied):
    old, new = Pair(tied), Pair("", seed=1)
    checkpoint.save(path, model=old)
    checkpoint.restore(path, model=new)
    assert new.a.weight is not new.b.weight
    np.testing.assert_array_equal(new.a.weight, old.a.weight)
    np.testing.assert_array_equal(new.b.weight, old.a.weight)

    @js.jit
    def step(model):
        model.a.weight += 1.0
        model.b.weight += 2.0

    step(new)  # both were read into one place in memory
    np.testing.assert_array_equal(new.a.weight, old.a.weight + 1.0)
    np.testing.assert_array_equal(new.b.weight, old.a.weight + 2.0)


def test_an_untied_file_fills_a_tied_model_only_if_the_values_agree(path):
    old, new = Pair(""), Pair("box", seed=1)
    checkpoint.save(path, model=old)
    before = content(new)
    with pytest.raises(
        CheckpointError, match=r"model\.a\.weight and model\.b\.weight: one array here"
    ) as error:
        checkpoint.restore(path, model=new)
    assert len(error.value.mismatched) == 1
    assert content(new) == before
    restored = checkpoint.restore(path, strict=False, model=new)
    assert restored.mismatched == error.value.mismatched
    assert content(new)[0, "a.weight"] == before[0, "a.weight"]  # left as it was
    np.testing.assert_array_equal(new.b.bias, old.b.bias)

    old.b.weight.value = old.a.weight.value
    checkpoint.save(path, model=old)
    checkpoint.restore(path, model=new)
    np.testing.assert_array_equal(new.a.weight, old.a.weight)


def test_a_box_that_one_of_its_names_does_not_fit_is_skipped(path):
    old = Holder(a=js.Variable(jnp.ones(2)), b=js.Variable(jnp.ones(3)))
    checkpoint.save(path, x=old)
    box = js.Variable(jnp.zeros(2))
    restored = checkpoint.restore(path, strict=False, x=Holder(a=box, b=box))
    assert restored.mismatched == ["x.b: float32[3] in the file, float32[2] here"]
    assert box.value.tolist() == [0, 0]


def test_ties_are_compared_bit_by_bit(path):
    old = Holder(a=js.Variable(jnp.float32(0.0)), b=js.Variable(jnp.float32(-0.0)))
    box = js.Variable(jnp.float32(7))
    checkpoint.save(path, x=old)
    with pytest.raises(CheckpointError, match="one array here"):
        checkpoint.restore(path, x=Holder(a=box, b=box))
    old = Holder(a=js.Variable(jnp.float32(np.nan)), b=js.Variable(jnp.float32(np.nan)))
    checkpoint.save(path, x=old)
    checkpoint.restore(path, x=Holder(a=box, b=box))
    assert np.isnan(float(box))


def test_objects_that_hold_each_other(path):
    parent, child = Holder(n=js.Variable(jnp.int32(1))), Holder(n=js.Variable(jnp.int32(2)))
    parent.child, child.parent = child, parent
    assert set(boxes_by_path(parent)) == {"n", "child.n"}
    assert list(objects_by_path(parent)) == ["", "child."]
    checkpoint.save(path, x=parent)
    child.n.value = 0
    checkpoint.restore(path, x=parent)
    assert int(child.n) == 2


# Streams.


def test_streams_inside_of_layers(path):
    model = nn.Sequential(nn.Dropout(0.5, rngs=js.Rngs(dropout=1)), nn.Dropout(0.5))
    x = jnp.ones((4, 4))
    rngs = js.Rngs(dropout=2)
    model(x, rngs=rngs)
    model[0](x)
    checkpoint.save(path, model=model, rngs=rngs)
    expected = model[0](x), model(x, rngs=rngs)
    checkpoint.restore(path, model=model, rngs=rngs)
    np.testing.assert_array_equal(model[0](x), expected[0])
    np.testing.assert_array_equal(model(x, rngs=rngs), expected[1])


def test_derived_streams_are_made(path):
    rngs = js.Rngs(0)
    [rngs.noise() for _ in range(3)]
    checkpoint.save(path, rngs=rngs)
    fresh = js.Rngs(7)
    checkpoint.restore(path, rngs=fresh)
    assert fresh.counts == {"noise": 3}
    assert bits(fresh.noise()) == bits(rngs.noise())
    assert bits(fresh.other()) == bits(rngs.other())
    assert bits(fresh()) == bits(rngs())


def test_derived_streams_are_reset(path):
    rngs = js.Rngs(0)
    checkpoint.save(path, rngs=rngs)
    first = bits(rngs.noise())
    stream = rngs._streams["noise"].count
    rngs.noise()
    checkpoint.restore(path, rngs=rngs)
    assert rngs.counts == {"noise": 0}
    assert rngs._streams["noise"].count is stream
    assert bits(rngs.noise()) == first


def test_derived_streams_below_other_objects(path):
    rngs = js.Rngs(0)
    rngs.noise()
    checkpoint.save(path, x=Holder(deep=[Holder(rngs=rngs)]))
    fresh = js.Rngs(0)
    checkpoint.restore(path, x=Holder(deep=[Holder(rngs=fresh)]))
    assert fresh.counts == {"noise": 1}


def test_streams_that_were_added_go_away_when_the_restore_fails(path):
    rngs, model = js.Rngs(0), Net()
    rngs.noise()
    checkpoint.save(path, rngs=rngs, model=model)
    fresh = js.Rngs(7)
    before = content(fresh)
    with pytest.raises(CheckpointError):
        checkpoint.restore(path, rngs=fresh, model=Net(width=5))
    assert fresh.counts == {}
    assert content(fresh) == before


def test_a_named_stream_is_not_made_of_a_default_seed(path):
    rngs = js.Rngs(noise=1)
    checkpoint.save(path, rngs=rngs)
    with pytest.raises(CheckpointError) as error:
        checkpoint.restore(path, rngs=js.Rngs(0))
    assert "rngs.noise.key" in error.value.unexpected
    assert "rngs._default.key" in error.value.missing


# Boxes that an optimizer makes when it needs them.


def weights(n=3):
    return [(f"w{i}", nn.Parameter(jnp.full(2, float(i)))) for i in range(n)]


GRADS = [jnp.ones(2)] * 3


def test_lags_are_made(path):
    old = optim.Adam(weights(), lr=0.1)
    old.step([None, *GRADS[1:]])
    old.step(GRADS)
    params = Holder(w=[p for _, p in weights()])
    checkpoint.save(path, optimizer=old)
    new = optim.Adam([(f"w{i}", p) for i, p in enumerate(params.w)], lr=0.5)
    checkpoint.restore(path, optimizer=new)
    assert new._lags.value.tolist() == [1, 0, 0]
    assert [bits(b.value) for b in new._owned_boxes().values()] == [
        bits(b.value) for b in old._owned_boxes().values()
    ]


def test_lags_are_reset(path):
    optimizer = optim.Adam(weights(), lr=0.1)
    optimizer.step(GRADS)
    checkpoint.save(path, optimizer=optimizer)
    optimizer.step([None, *GRADS[1:]])
    checkpoint.restore(path, optimizer=optimizer)
    assert optimizer._lags.value.tolist() == [0, 0, 0]
    assert int(optimizer.step_count) == 1


def test_lags_go_away_when_the_restore_fails(path):
    old = optim.Adam(weights(), lr=0.1)
    old.step([None, *GRADS[1:]])
    checkpoint.save(path, optimizer=old, x=js.Variable(jnp.ones(2)))
    new = optim.Adam(weights(), lr=0.1)
    before = content(new)
    with pytest.raises(CheckpointError):
        checkpoint.restore(path, optimizer=new, x=js.Variable(jnp.ones(3)))
    assert new._lags is None
    assert content(new) == before


def test_momentum_that_was_switched_on_later(path):
    def make():
        named = weights()
        return Holder(w=[p for _, p in named]), optim.SGD(named, lr=0.1)

    w, old = make()
    checkpoint.save(path, w=w, optimizer=old)
    old.param_groups[0]["momentum"] = 0.9
    for _ in range(2):
        old.step(GRADS)
    later = path.with_name("later.npz")
    checkpoint.save(later, w=w, optimizer=old)

    v, new = make()
    checkpoint.restore(later, w=v, optimizer=new)
    assert float(new.param_groups[0]["momentum"]) == 0.9
    old.step(GRADS)
    new.step(GRADS)
    assert values(v) == values(w)

    checkpoint.restore(path, w=v, optimizer=new)  # back to before there was any
    assert float(new.param_groups[0]["momentum"]) == 0.0
    assert not np.any(new.state[v.w[0]]["momentum_buffer"].value)


def test_momentum_goes_away_when_the_restore_fails(path):
    old = optim.SGD(weights(), lr=0.1)
    old.param_groups[0]["momentum"] = 0.9
    checkpoint.save(path, optimizer=old, x=js.Variable(jnp.ones(2)))
    new = optim.SGD(weights(), lr=0.1)
    before, graph_key = content(new), js.state.graph.graph_of(new).key
    with pytest.raises(CheckpointError):
        checkpoint.restore(path, optimizer=new, x=js.Variable(jnp.ones(3)))
    assert content(new) == before
    assert js.state.graph.graph_of(new).key == graph_key
    assert new.param_groups[0]["momentum"] == 0


# Configuration.


def test_hyper_parameters_come_from_the_file(path):
    model, optimizer = make()
    optimizer.param_groups[0]["lr"] = 0.125
    optimizer.param_groups[0]["betas"] = (0.5, 0.75)
    checkpoint.save(path, model=model, optimizer=optimizer)
    model, optimizer = make()
    checkpoint.restore(path, model=model, optimizer=optimizer)
    group = optimizer.param_groups[0]
    assert (float(group["lr"]), *map(float, group["betas"])) == (0.125, 0.5, 0.75)


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (lambda named: optim.AdamW(named, lr=0.1), "class is 'Adam' in the file, 'AdamW' here"),
        (lambda named: optim.Adam(named, lr=0.1, amsgrad=True), "amsgrad is False in the file"),
        (lambda named: optim.Adam(named[::-1], lr=0.1), "params"),
        (lambda named: optim.Adam([("v", p) for _, p in named[:1]], lr=0.1), "w0"),
        (
            lambda named: optim.Adam([{"params": [n]} for n in named], lr=0.1),
            "param_groups",
        ),
    ],
    ids=["class", "flag", "order", "names", "groups"],
)
def test_another_configuration_of_the_optimizer_is_an_error(path, other, text):
    old = optim.Adam(weights(), lr=0.1)
    old.step(GRADS)
    checkpoint.save(path, optimizer=old)
    new = other(weights())
    before = content(new)
    with pytest.raises(CheckpointError, match=text) as error:
        checkpoint.restore(path, optimizer=new)
    assert error.value.mismatched
    assert content(new) == before
    # Otherwise it is skipped as a whole: by position, state would go to the wrong Parameter.
    restored = checkpoint.restore(path, strict=False, optimizer=new)
    assert restored.mismatched == error.value.mismatched
    assert restored.missing == restored.unexpected == []
    assert content(new) == before


def test_another_loader_is_an_error(path):
    def loader(batch_size):
        items = data.TensorDataset(np.arange(12.0))
        return data.DataLoader(items, batch_size, shuffle=True, rngs=js.Rngs(data=0))

    old, new = loader(3), loader(4)
    next(iter(old))
    checkpoint.save(path, loader=old)
    with pytest.raises(CheckpointError, match="batch_size is 3 in the file, 4 here"):
        checkpoint.restore(path, loader=new)
    assert checkpoint.restore(path, strict=False, loader=new).mismatched
    assert len(list(new)) == 3  # an epoch from its beginning


def test_a_scheduler_goes_with_another_optimizer(path):
    _, optimizer = make()
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    scheduler.step()
    checkpoint.save(path, scheduler=scheduler)
    other = optim.lr_scheduler.StepLR(optim.SGD(weights(), lr=0.1), 1, gamma=0.5)
    checkpoint.restore(path, scheduler=other)
    assert int(other.last_epoch) == 1


# What doesn't fit.


def test_asked_for_and_not_in_the_file(path):
    model, optimizer = make()
    checkpoint.save(path, model=model)
    before = content(model, optimizer)
    for strict in (True, False):
        with pytest.raises(
            CheckpointError, match=r"holds no 'optimizer', 'x' \(it holds: 'model'\)"
        ) as error:
            x = js.Variable(jnp.ones(2))
            checkpoint.restore(path, strict=strict, model=model, optimizer=optimizer, x=x)
        assert error.value.missing == ["optimizer", "x"]
    assert content(model, optimizer) == before


def test_in_the_file_and_not_asked_for(path):
    model, optimizer = make()
    checkpoint.save(path, model=model, optimizer=optimizer, progress=1)
    restored = checkpoint.restore(path, model=model, optimizer=None)
    assert restored.missing == restored.unexpected == restored.mismatched == []
    assert checkpoint.restore(path).progress == 1


class Old(nn.Module):
    def __init__(self):
        super().__init__()
        rngs = js.Rngs(0)
        self.same = nn.Linear(2, 2, rngs=rngs)
        self.gone = nn.Linear(2, 2, bias=False, rngs=rngs)
        self.shape = nn.Parameter(jnp.ones(3))
        self.dtype = nn.Parameter(jnp.ones(2))
        self.one = nn.Parameter(jnp.ones(1))


class New(nn.Module):
    def __init__(self):
        super().__init__()
        rngs = js.Rngs(1)
        self.same = nn.Linear(2, 2, rngs=rngs)
        self.added = nn.Linear(2, 2, bias=False, rngs=rngs)
        self.shape = nn.Parameter(jnp.ones(4))
        self.dtype = nn.Parameter(jnp.ones(2, jnp.bfloat16))
        self.one = nn.Parameter(jnp.ones(()))


DIFFERENCES = {
    "missing": ["model.added.weight"],
    "unexpected": ["model.gone.weight"],
    "mismatched": [
        "model.shape: float32[3] in the file, float32[4] here",
        "model.dtype: float32[2] in the file, bfloat16[2] here",
        "model.one: float32[1] in the file, float32[] here",
    ],
}


def test_all_differences_are_listed_together(path):
    old, new = Old(), New()
    checkpoint.save(path, model=old)
    before = content(new)
    with pytest.raises(CheckpointError) as error:
        checkpoint.restore(path, model=new)
    for kind, expected in DIFFERENCES.items():
        assert sorted(getattr(error.value, kind)) == sorted(expected)
        assert all(text in str(error.value) for text in expected)
    assert str(path) in str(error.value) and "strict=False" in str(error.value)
    assert content(new) == before

    restored = checkpoint.restore(path, strict=False, model=new)
    for kind, expected in DIFFERENCES.items():
        assert sorted(getattr(restored, kind)) == sorted(expected)
    after = content(new)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {(0, "same.weight")}  # biases are zero on both sides
    np.testing.assert_array_equal(new.same.weight, old.same.weight)


# Files.


@pytest.mark.parametrize(
    "function", [checkpoint.restore, checkpoint.load, checkpoint.inspect, checkpoint.verify]
)
def test_no_file_and_no_checkpoint(path, function):
    with pytest.raises(FileNotFoundError):
        function(path)
    path.write_bytes(b"something else")
    with pytest.raises(CheckpointError, match="state.npz"):
        function(path)
    npz.write(path, [], {})  # one of another kind
    with pytest.raises(CheckpointError, match="objects"):
        function(path)


def rewritten(path, change):
    with npz.Reader(path) as reader:
        arrays = [array for _, array in reader.arrays()]
        manifest = dict(reader.manifest)
    del manifest["format_version"], manifest["arrays"]
    change(manifest)
    npz.write(path, arrays, manifest)


HOSTILE = {
    "no objects": lambda m: m.pop("objects"),
    "no versions": lambda m: m.update(versions=[]),
    "no progress": lambda m: m.pop("progress"),
    "no metadata": lambda m: m.pop("metadata"),
    "a list of objects": lambda m: m.update(objects=[]),
    "an object that is none": lambda m: m["objects"].update(model=3),
    "no boxes": lambda m: m["objects"]["model"].pop("boxes"),
    "a list of boxes": lambda m: m["objects"]["model"].update(boxes=["a0"]),
    "no configuration": lambda m: m["objects"]["model"].pop("configuration"),
    "a member that isn't there": lambda m: m["objects"]["model"]["boxes"].update(seen="a99"),
    "a member that is none": lambda m: m["objects"]["model"]["boxes"].update(seen=["a0"]),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_manifests_of_others(path, change):
    model = Net()
    checkpoint.save(path, model=model)
    rewritten(path, change)
    before = content(model)
    for function in (checkpoint.load, checkpoint.inspect, checkpoint.verify):
        with pytest.raises(CheckpointError, match="state.npz: member 'manifest.json'"):
            function(path)
    with pytest.raises(CheckpointError, match="state.npz: member 'manifest.json'"):
        checkpoint.restore(path, model=model)
    assert content(model) == before


@pytest.mark.parametrize("configuration", [None, 3, [], {"class": []}, {"param_groups": 1}, {}])
def test_configurations_of_others(path, configuration):
    optimizer = optim.Adam(weights(), lr=0.1)
    checkpoint.save(path, optimizer=optimizer)
    rewritten(path, lambda m: m["objects"]["optimizer"].update(configuration={"": configuration}))
    with pytest.raises(CheckpointError, match="mismatched: optimizer: "):
        checkpoint.restore(path, optimizer=optimizer)


def test_a_flipped_bit_in_the_last_array_changes_nothing(path):
    model, optimizer = make()
    train(model, optimizer)
    checkpoint.save(path, model=model, optimizer=optimizer)
    manifest = checkpoint.inspect(path)
    last = list(manifest["arrays"])[-1]
    with zipfile.ZipFile(path) as file:
        info = file.getinfo(f"{last}.npy")
        start = info.header_offset + 30 + len(info.filename)
    raw = bytearray(path.read_bytes())
    raw[start + info.file_size - 1] ^= 1
    path.write_bytes(raw)
    fresh = make(seed=3)
    before = content(*fresh)
    with pytest.raises(CheckpointError, match=f"state.npz.*{last}"):
        checkpoint.restore(path, model=fresh[0], optimizer=fresh[1])
    assert content(*fresh) == before
    checkpoint.inspect(path)  # its structure is whole
    with pytest.raises(CheckpointError, match=last):
        checkpoint.verify(path)


def test_verify_returns_none(path):
    checkpoint.save(path, model=Net())
    assert checkpoint.verify(path) is None


def test_a_failed_save_leaves_the_old_file_and_the_state(path, monkeypatch):
    model, optimizer = make()
    checkpoint.save(path, model=model)
    old, before = path.read_bytes(), content(model, optimizer)

    def fail(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(path, model=model, optimizer=optimizer)
    monkeypatch.undo()
    assert path.read_bytes() == old and os.listdir(path.parent) == [path.name]
    assert content(model, optimizer) == before
    train_jitted(model, optimizer)
    assert all(not p.exposed for p in {box._place[0] for box in model.parameters()})


# Loading without objects.


def test_load_is_lazy_and_outlives_the_file(path, monkeypatch):
    model = Net()
    checkpoint.save(path, model=model)
    reads = []
    read = npz.Reader.array
    monkeypatch.setattr(npz.Reader, "array", lambda self, k: reads.append(k) or read(self, k))
    section = checkpoint.load(path)["model"]  # the rest of what load returned is gone
    assert "first.weight" in section and "other" not in section and reads == []
    path.unlink()
    np.testing.assert_array_equal(section["first.weight"], model.first.weight)
    assert len(reads) == 1
    with pytest.raises(KeyError):
        section["other"]
    assert "model: " in repr(Loaded := layer.Loaded(section._reader)) and len(Loaded) == 1


# What a restore leaves alone.


def test_boxes_are_the_same_and_nothing_is_traced_or_compiled_again(path):
    model, optimizer = make()
    step = js.jit(train)
    for seed in range(2):
        step(model, optimizer, seed)
    checkpoint.save(path, model=model, optimizer=optimizer)
    boxes = {name: entry[0] for name, entry in content(model, optimizer).items()}
    expected = values(model, optimizer)
    losses = [float(step(model, optimizer, seed)) for seed in range(2, 4)]
    after = values(model, optimizer)
    with jax.log_compiles(False):
        count = step.trace_count
        checkpoint.restore(path, model=model, optimizer=optimizer)
        assert values(model, optimizer) == expected
        assert {n: entry[0] for n, entry in content(model, optimizer).items()} == boxes
        compiles = compiled_programs()
        assert [float(step(model, optimizer, seed)) for seed in range(2, 4)] == losses
    assert step.trace_count == count
    assert compiled_programs() == compiles
    assert values(model, optimizer) == after


_compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: "backend_compile" in event and _compiled.append(event)
)


def compiled_programs():
    return len(_compiled)


def test_a_restored_array_that_someone_holds_is_left_alone_by_the_next_step(path):
    model, optimizer = make()
    checkpoint.save(path, model=model, optimizer=optimizer)
    train_jitted(model, optimizer)
    held = model.first.weight.value
    copy = np.array(held)
    checkpoint.restore(path, model=model, optimizer=optimizer)
    np.testing.assert_array_equal(held, copy)
    again = model.first.weight.value
    copy = np.array(again)
    train_jitted(model, optimizer)
    np.testing.assert_array_equal(again, copy)


def test_a_first_step_after_a_restore_donates_and_never_writes_into_numpys_memory(
    path, monkeypatch
):
    box = js.Variable(jnp.zeros(1 << 16))
    checkpoint.save(path, x=Holder(a=js.Variable(jnp.ones(1 << 16))))
    hosts = []
    placed = layer._placed
    monkeypatch.setattr(layer, "_placed", lambda v, old: hosts.append(v) or placed(v, old))
    checkpoint.restore(path, x=Holder(a=box))
    assert not box._place[0].exposed
    array = box._peek()

    @js.jit
    def step():
        box.value = box.value + 1.0

    step()
    assert array.is_deleted()
    np.testing.assert_array_equal(hosts[0], 1.0)  # where the restored array was read into
    np.testing.assert_array_equal(box, 2.0)


def test_an_interrupt_leaves_all_or_nothing(path, monkeypatch):
    model, optimizer = make()
    checkpoint.save(path, model=model, optimizer=optimizer)
    saved = values(model, optimizer)
    placed = layer._placed
    calls = [0]

    def interrupted(value, old):
        calls[0] += 1
        if calls[0] == stop:
            raise KeyboardInterrupt
        return placed(value, old)

    monkeypatch.setattr(layer, "_placed", interrupted)
    monkeypatch.setattr(layer, "_is_host", lambda array: on_host)
    for on_host, stop in ((True, 3), (False, 3), (False, 1)):  # noqa: B007
        calls[0] = 0
        train(model, optimizer)
        before = content(model, optimizer)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.restore(path, model=model, optimizer=optimizer)
        if on_host:
            assert content(model, optimizer) == before
        else:
            assert values(model, optimizer) == saved


def test_an_error_while_arrays_are_placed_changes_nothing(path, monkeypatch):
    rngs = js.Rngs(0)
    rngs.noise()
    checkpoint.save(path, rngs=rngs)
    fresh = js.Rngs(1)
    before = content(fresh)

    def fail(value, old):
        raise RuntimeError("device")

    monkeypatch.setattr(layer, "_placed", fail)
    with pytest.raises(RuntimeError, match="device"):
        checkpoint.restore(path, rngs=fresh)
    assert content(fresh) == before


def test_saving_leaves_no_second_copy_on_the_host(path):
    box = js.Variable(jnp.ones(1 << 16))
    checkpoint.save(path, x=box)
    assert box._peek()._npy_value is None
    assert not [p for p in box._place[0].exposed if type(p) is not int]


# Traces and threads.


@pytest.mark.parametrize("function", [checkpoint.save, checkpoint.restore])
def test_inside_of_a_trace_it_is_refused(path, function):
    model = Net()
    checkpoint.save(path, model=model)
    before, file = content(model), path.read_bytes()

    def call(x):
        function(path, model=model)
        return x

    grad = js.grad(lambda m: function(path, model=m) or m.first.weight.sum())
    for run in (lambda: js.jit(call)(1.0), lambda: jax.jit(call)(1.0), lambda: grad(model)):
        with pytest.raises(RuntimeError, match="inside a traced function.*between the steps"):
            run()
    with jax.disable_jit(), pytest.raises(RuntimeError, match="inside a traced function"):
        js.jit(call)(1.0)
    assert content(model) == before and path.read_bytes() == file


def test_a_save_holds_its_arrays_while_another_thread_trains(path, monkeypatch):
    model, optimizer = make()
    train_jitted(model, optimizer)
    expected = values(model, optimizer)
    writing, go_on = threading.Event(), threading.Event()
    write = layer.write

    def slow(*args):
        writing.set()
        assert go_on.wait(30)
        write(*args)

    monkeypatch.setattr(layer, "write", slow)
    saved = {"model": model, "optimizer": optimizer}
    thread = threading.Thread(target=checkpoint.save, args=(path,), kwargs=saved)
    thread.start()
    assert writing.wait(30)
    for seed in range(3):
        train_jitted(model, optimizer, seed)
    go_on.set()
    thread.join()
    other = make(seed=9)
    checkpoint.restore(path, model=other[0], optimizer=other[1])
    assert values(*other) == expected
    train_jitted(model, optimizer)
    assert not [
        p for box in model.parameters() for p in box._place[0].exposed if type(p) is not int
    ]


def test_saves_see_all_boxes_of_one_step(path):
    a, b = (js.Variable(jnp.zeros(1000, jnp.int32)) for _ in range(2))
    holder = Holder(a=a, b=b)

    @js.jit
    def step():
        a.value += 1
        b.value += 1

    step()
    done = threading.Event()
    thread = threading.Thread(target=lambda: [step() for _ in iter(done.is_set, True)])
    thread.start()
    try:
        for _ in range(10):
            checkpoint.save(path, x=holder)
            section = checkpoint.load(path)["x"]
            assert np.unique(np.concatenate([section["a"], section["b"]])).size == 1
    finally:
        done.set()
        thread.join()


# Objects of the user's own.


class Trainer(js.Stateful):
    def __init__(self, seed=0):
        self.model = Net(seed=seed)
        self.optimizer = optim.AdamW(self.model.parameters(), lr=0.1)
        self.scheduler = optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.rngs = js.Rngs(seed)
        items = data.TensorDataset(np.arange(24, dtype=np.float32).reshape(8, 3))
        self.loader = data.DataLoader(items, 2, shuffle=True, rngs=js.Rngs(data=seed))
        self.best = js.Variable(jnp.float32(np.inf))
        self.history = [js.Variable(jnp.zeros(2)), {"deep": (js.Variable(jnp.ones(())),)}]

    def run(self, batches):
        seen = []
        for i, (x,) in enumerate(self.loader):
            noise = 0.1 * jax.random.normal(self.rngs.next("noise"), x.shape)
            loss, grads = js.value_and_grad(lambda m, x=x + noise: (m(x) ** 2).mean())(self.model)
            self.optimizer.step(grads)
            self.best.value = jnp.minimum(self.best, loss)
            self.history[1]["deep"][0].value += 1.0
            seen.append(np.asarray(x).tolist())
            if i + 1 == batches:
                break
        self.scheduler.step()
        return seen


def test_one_object_that_holds_everything(path):
    old, new = Trainer(), Trainer(seed=4)
    old.run(2)
    checkpoint.save(path, trainer=old)
    names = set(checkpoint.inspect(path)["objects"]["trainer"]["boxes"])
    assert {
        *("model.seen", "optimizer.step_count", "scheduler.last_epoch", "rngs.noise.count"),
        *("loader.position", "loader.rngs.data.key", "best", "history.0", "history.1.deep.0"),
    } <= names
    checkpoint.restore(path, trainer=new)
    checkpoint.restore(path, trainer=old)  # or its loader would begin a new epoch
    assert new.run(9) == old.run(9)
    mine, theirs = values(old), values(new)
    differing = [name for name in mine if mine[name] != theirs[name]]
    assert differing == []


# Devices.

SHARDED = """
import os, sys
import numpy as np, jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import jaxsaw as js
from jaxsaw import checkpoint, nn, optim
devices = jax.devices()
assert len(devices) == 8
mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))

def make(seed, spec):
    model = nn.Linear(8, 4, rngs=js.Rngs(seed))
    for p in model.parameters():
        where = NamedSharding(mesh, spec if p.ndim == 2 else P())
        p.value = jax.device_put(p.value, where)
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    return model, optimizer

def step(model, optimizer):
    x = jnp.ones((2, 8))
    loss, grads = js.value_and_grad(lambda m: (m(x) ** 2).sum())(model)
    optimizer.step(grads)
    return loss

path = sys.argv[1]
old = make(0, P("x", "y"))
js.jit(step)(*old)
checkpoint.save(path, model=old[0], optimizer=old[1])
np.testing.assert_array_equal(checkpoint.load(path)["model"]["weight"], old[0].weight)

layouts = [P("x", "y"), P("y"), P(None, "x"), P(), None]
for spec in layouts:
    if spec is None:  # not bound to any device
        model = nn.Linear(8, 4, rngs=js.Rngs(1))
        new = model, optim.Adam(model.parameters(), lr=0.1)
    else:
        new = make(1, spec)
    fast = js.jit(step)
    fast(*new)
    fast(*new)
    before = {n: (b._peek().sharding, b._peek().committed)
              for n, b in js.state.graph.named_boxes(new[1])}
    count = fast.trace_count
    checkpoint.restore(path, model=new[0], optimizer=new[1])
    after = {n: (b._peek().sharding, b._peek().committed)
             for n, b in js.state.graph.named_boxes(new[1])}
    assert before == after, spec
    assert np.asarray(new[0].weight).tobytes() == np.asarray(old[0].weight).tobytes()
    fast(*new)
    assert fast.trace_count == count, spec

# One array that isn't bound to a device lies on another than the default one; and keys.
with jax.default_device(devices[3]):
    far = js.Variable(jnp.zeros(3))
    key = js.Variable(jax.random.key(1))
everywhere = js.Variable(jax.device_put(jax.random.split(jax.random.key(2), 8),
                                        NamedSharding(mesh, P("x"))))
class All(js.Stateful):
    def __init__(self):
        self.far, self.key, self.everywhere = far, key, everywhere
boxes = [far, key, everywhere]
before = [(b._peek().sharding, b._peek().committed) for b in boxes]
bits = [np.asarray(jax.random.key_data(b._peek())).tobytes() for b in boxes[1:]]
checkpoint.save(path, all=All())
with jax.default_device(devices[3]):
    far.value = far.value + 1
checkpoint.restore(path, all=All())
assert [(b._peek().sharding, b._peek().committed) for b in boxes] == before
assert far.value.tolist() == [0, 0, 0]
assert [np.asarray(jax.random.key_data(b._peek())).tobytes() for b in boxes[1:]] == bits
print("well")
"""


def run(code, *args, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, args)],
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_arrays_take_the_sharding_of_the_target(path):
    flags = "--xla_force_host_platform_device_count=8"
    assert "well" in run(SHARDED, path, XLA_FLAGS=flags)


MEMORY = """
import resource, sys
import jax, jax.numpy as jnp
import jaxsaw as js
from jaxsaw import checkpoint

class All(js.Stateful):
    def __init__(self):
        self.boxes = [js.Variable.own(jnp.full(1 << 20, float(i))) for i in range(64)]  # 256 MB

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

small = js.Variable(jnp.ones(10))
checkpoint.save(sys.argv[1], small=small)
checkpoint.restore(sys.argv[1], small=small)
everything = All()
jax.block_until_ready([box._peek() for box in everything.boxes])
before = peak()
checkpoint.save(sys.argv[1], all=everything)
saved = peak()
checkpoint.restore(sys.argv[1], all=everything)
print(saved - before, peak() - before)
"""


def test_saving_takes_no_memory_and_restoring_one_copy(path):
    saved, restored = map(int, run(MEMORY, path).split())
    assert saved < 64
    assert restored < 256 + 64


def test_packs_that_hold_nothing_are_left_alone():
    arrays, tokens = pack.hold([])
    assert (arrays, tokens) == ([], [])
