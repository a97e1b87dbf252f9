"""Named random streams."""

import copy
import pickle
import threading
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw.rngs import ambient, using
from jaxsaw.state import scope as scopes
from jaxsaw.state.graph import named_boxes


def key(seed):
    return jax.random.key(seed, impl="threefry2x32")


def fold(seed, n):
    return jax.random.fold_in(key(seed), n)


def state(rngs):
    return {
        name: np.asarray(
            jax.random.key_data(box.value)
            if jnp.issubdtype(box.dtype, jax.dtypes.prng_key)
            else box.value
        ).tolist()
        for name, box in named_boxes(rngs)
    }


# What streams give.


def test_the_nth_key_is_the_seed_folded_with_n():
    rngs = js.Rngs(params=15, dropout=16)
    for n in range(4):
        assert rngs.next("params") == fold(15, n)
    assert rngs.next("dropout") == fold(16, 0)
    assert rngs.counts == {"params": 4, "dropout": 1}


def test_three_ways_to_draw():
    rngs = js.Rngs(7, noise=8)
    assert rngs.noise() == fold(8, 0)
    assert rngs.next("noise") == fold(8, 1)
    assert rngs() == fold(7, 0)
    assert rngs() == fold(7, 1)


def test_streams_without_a_seed_follow_from_the_default():
    rngs = js.Rngs(3)
    for name in ("params", "dropout", "ünïcode"):
        derived = jax.random.fold_in(key(3), zlib.crc32(name.encode()))
        assert rngs.next(name) == jax.random.fold_in(derived, 0)
        assert rngs.next(name) == jax.random.fold_in(derived, 1)
    assert rngs.counts == {"params": 2, "dropout": 2, "ünïcode": 2}
    assert rngs() == fold(3, 0)


def test_named_seeds_beat_the_default():
    rngs = js.Rngs(3, params=4)
    assert rngs.next("params") == fold(4, 0)
    assert rngs.next("other") == js.Rngs(3).next("other")


def test_the_order_of_streams_does_not_matter():
    one, two = js.Rngs(0), js.Rngs(0)
    a = one.next("a"), one.next("b")
    b = two.next("b"), two.next("a")
    assert (a[0], a[1]) == (b[1], b[0])


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg", "threefry2x32"])
def test_the_ambient_default_does_not_change_what_a_seed_means(impl):
    with jax.default_prng_impl(impl):
        assert js.Rngs(params=1).next("params") == fold(1, 0)
        assert js.Rngs(1).next("params") == js.Rngs(key(1)).next("params")


@pytest.mark.parametrize("impl", ["rbg", "threefry2x32"])
def test_a_key_may_be_passed(impl):
    given = jax.random.key(9, impl=impl)
    rngs = js.Rngs(params=given)
    assert rngs.next("params") == jax.random.fold_in(given, 0)
    assert jax.random.key_impl(rngs.next("params")) == jax.random.key_impl(given)
    assert js.Rngs(given)() == jax.random.fold_in(given, 0)


@pytest.mark.parametrize(
    "seed", [5, np.int64(5), np.uint8(5), jnp.int32(5), js.Variable(5), key(5), js.Variable(key(5))]
)
def test_kinds_of_seeds(seed):
    assert js.Rngs(params=seed).next("params") == fold(5, 0)
    assert js.Rngs(seed)() == fold(5, 0)


def test_a_raw_key_may_be_passed():
    assert js.Rngs(params=jax.random.key_data(key(5))).next("params") == fold(5, 0)


@pytest.mark.parametrize("seed", [1.5, "a", True, np.float32(1), jnp.ones(3), np.arange(2), [1]])
def test_other_seeds_are_refused(seed):
    with pytest.raises(TypeError, match="the seed of dropout must be an integer or a typed key"):
        js.Rngs(dropout=seed)
    with pytest.raises(TypeError, match="the seed of default_seed must be"):
        js.Rngs(seed)
    with pytest.raises(TypeError, match="the seed of noise must be"):
        js.Rngs(0).reseed(noise=seed)


def test_several_keys_are_no_seed():
    with pytest.raises(TypeError, match="the seed of params"):
        js.Rngs(params=jax.random.split(key(0), 3))


@pytest.mark.parametrize("seed", [0, -1, 2**31, 2**32 - 1])
def test_the_range_of_seeds(seed):
    assert js.Rngs(params=seed).next("params") == fold(seed, 0)


# Errors and warnings.


def test_an_unknown_stream_lists_those_that_exist():
    rngs = js.Rngs(params=0, noise=1)
    with pytest.raises(KeyError, match=r"no stream 'dropout' \(it has: params, noise\)"):
        rngs.next("dropout")
    with pytest.raises(KeyError, match=r"Pass Rngs\(dropout=0\) or a default, Rngs\(0\)"):
        rngs.dropout()
    with pytest.raises(KeyError, match=r"it has: none"):
        js.Rngs().next("params")
    assert rngs.counts == {"params": 0, "noise": 0}


def test_without_a_default_there_is_no_nameless_draw():
    with pytest.raises(KeyError, match=r"no default seed. Pass one: Rngs\(0\)"):
        js.Rngs(params=0)()


def test_equal_seeds_are_warned_of():
    with pytest.warns(UserWarning, match="'params' and 'dropout' have the same seed 1"):
        js.Rngs(params=1, dropout=1)
    with pytest.warns(UserWarning, match="'a' and 'b' have the same seed 2"):
        js.Rngs(0).reseed(a=2, b=2)
    js.Rngs(1, params=1)  # the default's streams are folded with their names


def test_private_names_are_no_streams():
    rngs = js.Rngs(0)
    for name in ("_other", "__len__", "__array__"):
        assert not hasattr(rngs, name)
    assert rngs.counts == {}


def test_contains():
    assert "params" in js.Rngs(params=0)
    assert "dropout" not in js.Rngs(params=0)
    assert "dropout" in js.Rngs(0)


# State.


def test_boxes():
    rngs = js.Rngs(0, params=1)
    rngs.next("dropout")
    assert state(rngs) == {
        "_default.key": [0, 0],
        "_default.count": 0,
        "params.key": [0, 1],
        "params.count": 0,
        "dropout.count": 1,
    }
    counts = [box for name, box in named_boxes(rngs) if name.endswith("count")]
    assert all(box.dtype == jnp.uint32 for box in counts)


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_copies_go_on_from_the_same_place(twin_of):
    rngs = js.Rngs(0, params=1)
    rngs.next("params"), rngs.next("dropout"), rngs()
    twin = twin_of(rngs)
    assert twin.counts == rngs.counts
    assert [twin.next("params"), twin.next("dropout"), twin(), twin.next("new")] == [
        rngs.next("params"),
        rngs.next("dropout"),
        rngs(),
        rngs.next("new"),
    ]
    twin.next("params")
    assert rngs.counts["params"] == 2


def test_reseeding_starts_again():
    rngs = js.Rngs(0, params=1)
    rngs.next("params"), rngs.next("derived")
    box = dict(named_boxes(rngs))["params.key"]
    rngs.reseed(params=5, derived=6, new=7)
    assert rngs.counts == {"params": 0, "derived": 0, "new": 0}
    assert [rngs.next(n) for n in ("params", "derived", "new")] == [fold(s, 0) for s in (5, 6, 7)]
    assert dict(named_boxes(rngs))["params.key"] is box


def test_a_failed_reseed_changes_nothing():
    rngs = js.Rngs(params=1)
    before = state(rngs)
    with pytest.raises(TypeError):
        rngs.reseed(params=2, noise="x")
    assert state(rngs) == before


def test_fork_draws_one_key_from_each_stream():
    rngs = js.Rngs(0, params=1)
    rngs.next("dropout")
    children = rngs.fork(3)
    assert rngs.counts == {"params": 1, "dropout": 2}
    assert int(dict(named_boxes(rngs))["_default.count"]) == 1
    for i, child in enumerate(children):
        assert child.counts == {"params": 0, "dropout": 0}
        drawn = jax.random.fold_in(fold(1, 0), i)
        assert child.next("params") == jax.random.fold_in(drawn, 0)
        default = jax.random.fold_in(fold(0, 0), i)
        assert child() == jax.random.fold_in(default, 0)
    keys = [str(jax.random.key_data(child.next("dropout"))) for child in children]
    assert len(set(keys)) == 3


def test_what_a_fork_gives_is_independent_of_n():
    assert js.Rngs(a=0).fork(2)[1].next("a") == js.Rngs(a=0).fork(5)[1].next("a")
    assert js.Rngs(a=0).fork(0) == []


# Traces.


def draws(rngs):
    return [
        jax.random.key_data(k)
        for k in (rngs.next("params"), rngs.next("new"), rngs.params(), rngs())
    ]


def test_a_trace_gives_the_same_keys_and_positions():
    eager, traced = js.Rngs(0, params=1), js.Rngs(0, params=1)
    run = js.jit(draws)
    for _ in range(3):
        np.testing.assert_array_equal(draws(eager), run(traced))
        assert state(eager) == state(traced)
    assert run.trace_count <= 2


def test_a_new_stream_causes_no_second_trace():
    rngs = js.Rngs(0)
    run = js.jit(lambda r: jax.random.normal(r.next("noise")))
    values = {float(run(rngs)) for _ in range(3)}
    assert len(values) == 3
    assert rngs.counts == {"noise": 3}
    assert run.trace_count == 1
    fresh = js.Rngs(0)
    assert float(run(fresh)) in values
    assert run.trace_count == 1
    assert fresh.counts == {"noise": 1}


def test_a_failed_trace_advances_nothing():
    rngs = js.Rngs(0, params=1)

    @js.jit
    def fail():
        rngs.next("params"), rngs.next("new"), rngs()
        raise ValueError("no")

    before = state(rngs)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            fail()
    assert state(rngs) == before
    assert rngs.counts == {"params": 0}
    assert rngs.next("new") == js.Rngs(0).next("new")


def test_a_scope_that_raises_forgets_new_streams():
    rngs = js.Rngs(0)
    with pytest.raises(KeyError):
        with scopes.Scope():
            rngs.next("a")
            raise KeyError
    assert rngs.counts == {}


def test_drawing_in_a_raw_transform_is_refused():
    rngs = js.Rngs(params=0)
    with pytest.raises(TypeError, match="params.count was written inside a raw jax transform"):
        jax.jit(lambda: rngs.next("params"))()
    assert rngs.counts == {"params": 0}


def test_gradients_advance_streams():
    rngs = js.Rngs(noise=0)
    loss = lambda x: (x * jax.random.normal(rngs.next("noise"), x.shape)).sum()
    got = js.grad(loss)(jnp.ones(3))
    np.testing.assert_array_equal(got, jax.random.normal(fold(0, 0), (3,)))
    assert rngs.counts == {"noise": 1}


def test_random_is_that_of_jax():
    assert js.random is jax.random


# The ambient streams.


def test_ambient_streams_come_first():
    mine, outer, inner = js.Rngs(0), js.Rngs(1), js.Rngs(2)
    assert ambient("dropout", mine) is mine
    with using(outer):
        assert ambient("dropout", mine) is outer
        with using(inner):
            assert ambient("dropout") is inner
        with using(None):
            assert ambient("dropout") is outer
        assert ambient("dropout") is outer
    assert ambient("dropout", mine) is mine


def test_ambient_streams_end_with_the_call_that_raises():
    with pytest.raises(KeyError):
        with using(js.Rngs(0)):
            raise KeyError
    with pytest.raises(RuntimeError, match=r"Dropout .* rngs=js.Rngs\(dropout=0\).*model.eval"):
        ambient("dropout", who="Dropout")


def test_ambient_streams_are_per_thread():
    seen = []
    with using(js.Rngs(0)):
        thread = threading.Thread(target=lambda: seen.append(ambient("x", "own")))
        thread.start()
        thread.join()
    assert seen == ["own"]


def test_repr():
    assert repr(js.Rngs(params=0, dropout=1)) == "Rngs(params, dropout)"
