"""State that a compiled function reaches without being passed it is state all the same."""

import dataclasses
import functools
import types

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn


class Counter(js.Stateful):
    def __init__(self, start=0.0, factor=1.0):
        self.total = js.Variable(jnp.full((3,), start))
        self.factor = factor

    def add(self, x):
        self.total += self.factor * x
        return self.total * 1.0


def at(counter):
    return float(counter.total[0])


ONE = np.ones(3, np.float32)
GLOBAL = Counter()
OTHER = [GLOBAL]


def helper(x):
    return GLOBAL.add(x)


def deeper(x):
    return helper(x)


def test_a_global_is_read_afresh_and_written_back():
    global GLOBAL
    GLOBAL = Counter()
    f = js.jit(lambda x: GLOBAL.add(x))
    assert [float(f(ONE)[0]) for _ in range(3)] == [1, 2, 3]
    GLOBAL.total.value = jnp.full(3, 10.0)
    assert float(f(ONE)[0]) == 11
    assert f.trace_count == 1


def test_a_rebound_global_is_the_one_that_is_used():
    global GLOBAL
    first = GLOBAL = Counter()
    f = js.jit(lambda x: GLOBAL.add(x))
    f(ONE)
    second = GLOBAL = Counter(5.0)
    f(ONE)
    f(ONE)
    assert (at(first), at(second)) == (1, 7)
    GLOBAL = first
    f(ONE)
    assert (at(first), at(second)) == (2, 7)
    assert f.trace_count == 1


def test_a_global_of_a_function_that_the_function_reaches_is_watched():
    global GLOBAL
    GLOBAL = Counter()
    f = js.jit(lambda x: deeper(x))
    f(ONE)
    GLOBAL = Counter(5.0)
    f(ONE)
    assert at(GLOBAL) == 6


def test_a_global_that_an_inner_function_names_is_watched():
    global GLOBAL
    GLOBAL = Counter()

    @js.jit
    def f(x):
        return [(lambda: GLOBAL.add(y))() for y in (x, x)][-1]

    f(ONE)
    GLOBAL = Counter(5.0)
    f(ONE)
    assert at(GLOBAL) == 7


def test_two_ways_to_one_container_are_both_watched():
    global OTHER
    mine = OTHER = [Counter()]
    f = js.jit(lambda: mine[0].total + OTHER[0].total)
    f()
    OTHER = [Counter(1.0)]
    np.testing.assert_array_equal(f(), ONE)


def test_a_closure_cell_is_read_afresh():
    counter = Counter()

    @js.jit
    def f(x):
        return counter.add(x)

    f(ONE)
    first, counter = counter, Counter(5.0)
    f(ONE)
    assert (at(first), at(counter)) == (1, 6)


def test_a_default_is_state():
    counter = Counter()

    @js.jit
    def f(x, c=counter, *, k=counter):
        c.add(x)
        return k.add(x)

    f(ONE)
    f(ONE)
    assert at(counter) == 4
    other = Counter()
    f(ONE, other)
    assert (at(counter), at(other)) == (5, 1)


def test_a_partial_is_state():
    counter, named = Counter(), Counter()
    f = js.jit(functools.partial(lambda c, x, k: (c.add(x), k.add(x)), counter, k=named))
    f(ONE)
    f(ONE)
    assert (at(counter), at(named)) == (2, 2)


def test_a_bound_method_is_state():
    counter = Counter()
    f = js.jit(counter.add)
    f(ONE)
    f(ONE)
    assert at(counter) == 2


def test_a_bound_method_of_a_plain_instance_is_state():
    class Plain:
        def __init__(self):
            self.counter = Counter()

        def add(self, x):
            return self.counter.add(x)

    plain = Plain()
    f = js.jit(plain.add)
    f(ONE)
    first, plain.counter = plain.counter, Counter(5.0)
    f(ONE)
    assert (at(first), at(plain.counter)) == (1, 6)


@pytest.mark.parametrize(
    "hold",
    [
        lambda c: [c],
        lambda c: (c,),
        lambda c: {"k": c},
        lambda c: {"k": [(c,)]},
        lambda c: types.SimpleNamespace(c=[c]).c,
    ],
    ids=["list", "tuple", "dict", "nested", "attribute"],
)
def test_state_in_a_container_is_state(hold):
    counter = Counter()
    held = hold(counter)

    def find(value):
        while not isinstance(value, Counter):
            value = value["k"] if isinstance(value, dict) else value[0]
        return value

    f = js.jit(lambda x: find(held).add(x))
    f(ONE)
    f(ONE)
    assert at(counter) == 2


def test_an_item_that_is_replaced_is_the_one_that_is_used():
    models = {"a": Counter(), "b": [Counter()]}

    @js.jit
    def f(x):
        models["a"].add(x)
        models["b"][0].add(x)

    f(ONE)
    models["a"] = Counter(5.0)
    models["b"][0] = Counter(7.0)
    f(ONE)
    assert (at(models["a"]), at(models["b"][0])) == (6, 8)


def test_a_list_of_models_may_change_its_length():
    models = [Counter()]

    @js.jit
    def f(x):
        for model in models:
            model.add(x)

    f(ONE)
    models.append(Counter())
    f(ONE)
    assert [at(model) for model in models] == [2, 1]
    models.pop()
    f(ONE)
    assert [at(model) for model in models] == [3]
    assert f.trace_count == 2


def test_an_attribute_of_a_plain_instance_is_watched():
    @dataclasses.dataclass
    class Config:
        model: Counter
        scale: float

    config = Config(Counter(), 2.0)
    f = js.jit(lambda x: config.model.add(x * config.scale))
    f(ONE)
    config.model = Counter(5.0)
    f(ONE)
    assert at(config.model) == 7


def test_a_module_of_python_that_holds_a_model_is_watched():
    module = types.ModuleType("mine")
    module.model = Counter()
    globals()["mine"] = module
    try:
        f = js.jit(lambda x: mine.model.add(x))  # noqa: F821
        f(ONE)
        module.model = Counter(5.0)
        f(ONE)
        assert at(module.model) == 6
    finally:
        del globals()["mine"]


def test_plain_python_values_outside_statefuls_are_constants():
    scale = 2.0

    @js.jit
    def f(x):
        return x * scale

    f(ONE)
    scale = 3.0
    np.testing.assert_array_equal(f(ONE), 2 * ONE)
    assert scale == 3.0


def test_calling_eval_on_a_global_model_has_its_effect():
    model = nn.Dropout(0.5)
    rngs = js.Rngs(dropout=0)
    f = js.jit(lambda x: model(x, rngs=rngs))
    x = jnp.ones(100)
    assert set(np.asarray(f(x))) == {0, 2}
    model.eval()
    np.testing.assert_array_equal(f(x), x)
    model.train()
    assert set(np.asarray(f(x))) == {0, 2}
    assert f.trace_count == 2
    assert rngs.counts == {"dropout": 2}


def test_a_stateful_of_which_only_an_attribute_is_read_is_part_of_the_key():
    settings = Counter(factor=2.0)
    f = js.jit(lambda x: x * settings.factor)
    np.testing.assert_array_equal(f(ONE), 2 * ONE)
    settings.factor = 3.0
    np.testing.assert_array_equal(f(ONE), 3 * ONE)


def test_a_replaced_submodule_is_the_one_that_is_read_and_written():
    model = nn.Sequential(nn.Linear(4, 8, rngs=js.Rngs(0)), nn.BatchNorm1d(8))
    f = js.jit(model)
    x = jnp.arange(8.0).reshape(2, 4)
    f(x)
    old = model[1]
    model[1] = nn.BatchNorm1d(8)
    f(x)
    f(x)
    assert int(old.num_batches_tracked) == 1
    assert int(model[1].num_batches_tracked) == 2


def test_a_replaced_parameter_is_the_one_that_is_read():
    model = nn.Linear(2, 1, rngs=js.Rngs(0))
    f = js.jit(lambda x: model(x))
    f(jnp.ones((1, 2)))
    model.weight = nn.Parameter(jnp.zeros((1, 2)))
    np.testing.assert_array_equal(f(jnp.ones((1, 2))), [[0]])


def test_tying_and_untying_weights_has_its_effect():
    pair = nn.Sequential(nn.Linear(2, 2, rngs=js.Rngs(0)), nn.Linear(2, 2, rngs=js.Rngs(1)))

    @js.jit
    def f(pair):
        pair[0].weight += 1.0
        pair[1].weight += 1.0

    f(pair)
    own = pair[1].weight
    pair[1].weight = pair[0].weight
    before = pair[0].weight.value
    f(pair)
    np.testing.assert_array_equal(pair[0].weight, before + 2)
    pair[1].weight = own
    before = own.value
    f(pair)
    np.testing.assert_array_equal(own, before + 1)
    assert f.trace_count == 2


@pytest.mark.parametrize("change", ["shape", "dtype", "both"])
def test_state_whose_shape_or_dtype_changed_out_of_band_is_never_a_stale_hit(change):
    v = js.Variable(jnp.ones(3))
    f = js.jit(lambda: v + v)
    f()
    v.value = {
        "shape": jnp.ones((2, 2)),
        "dtype": jnp.ones(3, jnp.bfloat16),
        "both": jnp.ones((), jnp.int32),
    }[change]
    out = f()
    assert (out.shape, out.dtype) == (v.shape, v.dtype)
    v.value = jnp.ones(3)
    assert f().shape == (3,)
    assert f.trace_count == 2


def test_a_box_that_is_reached_in_no_watched_way_is_bound_when_it_is_traced():
    class Holder:
        counter = Counter()

    def find():
        return Holder

    f = js.jit(lambda x: find().counter.add(x))
    f(ONE)
    f(ONE)
    assert at(Holder.counter) == 2


def test_a_box_in_a_container_without_its_module_is_state():
    boxes = [js.Variable(jnp.zeros(3)) for _ in range(3)]

    @js.jit
    def f():
        for box in boxes:
            box += 1.0

    f()
    f()
    assert [float(box[0]) for box in boxes] == [2, 2, 2]


def test_a_jit_function_that_another_one_calls_shows_its_state():
    global GLOBAL
    GLOBAL = Counter()
    inner = js.jit(lambda x: GLOBAL.add(x))
    outer = js.jit(lambda x: inner(x))
    outer(ONE)
    GLOBAL = Counter(5.0)
    outer(ONE)
    assert at(GLOBAL) == 6


def test_a_stateful_that_a_module_holds_in_a_list_is_found_when_it_is_appended():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = []

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    net = Net()
    f = js.jit(net)
    x = jnp.ones((1, 2))
    np.testing.assert_array_equal(f(x), x)
    net.layers.append(nn.Linear(2, 2, rngs=js.Rngs(0)))
    np.testing.assert_allclose(f(x), net.layers[0](x), rtol=1e-6)


def test_a_stream_that_is_first_asked_for_inside_is_committed_and_causes_no_second_trace():
    rngs, twin = js.Rngs(0), js.Rngs(0)
    f = js.jit(lambda rngs: rngs.next("noise"))
    keys = [f(rngs) for _ in range(3)]
    expected = [twin.next("noise") for _ in range(3)]
    assert keys == expected or all(bool(a == b) for a, b in zip(keys, expected))
    assert rngs.counts == twin.counts == {"noise": 3}
    assert f.trace_count == 1
    f(js.Rngs(0))
    assert f.trace_count == 1


def test_jit_eager_and_a_retrace_in_the_middle_give_the_same_keys():
    model, rngs, twin = nn.Dropout(0.5), js.Rngs(dropout=3), js.Rngs(dropout=3)
    f = js.jit(lambda x: model(x, rngs=rngs))
    for n in (4, 5, 4, 6, 4):
        np.testing.assert_array_equal(f(jnp.ones(n)), model(jnp.ones(n), rngs=twin))
        assert rngs.counts == twin.counts


def test_streams_advance_once_per_call_however_often_the_body_was_traced():
    rngs = js.Rngs(a=0)
    f = js.jit(lambda x: (rngs.next("a"), x)[1])
    for n in range(1, 6):
        f(jnp.ones(n))
        assert rngs.counts == {"a": n}
    assert f.trace_count == 5


def test_programs_of_one_structure_that_write_different_boxes_keep_apart():
    class Two(js.Stateful):
        def __init__(self):
            self.a, self.b = js.Variable(jnp.zeros(3)), js.Variable(jnp.zeros(3))

    @js.jit
    def f(m, x):
        m.a.value = m.a + m.b
        if x.shape == (4,):
            m.b.value = m.b + 1.0

    one, two = Two(), Two()
    for x in (jnp.ones(8), jnp.ones(4), jnp.ones(8)):
        for model in (one, two):
            f(model, x)
    for model in (one, two):
        np.testing.assert_array_equal(model.a, ONE)
        np.testing.assert_array_equal(model.b, ONE)
    assert f.trace_count == 2


def test_a_stream_that_another_shape_asks_for_leaves_earlier_programs_right():
    rngs, counter = js.Rngs(0), Counter()

    @js.jit
    def f(rngs, counter, x):
        counter.total += 1.0
        if x.shape == (4,):
            return rngs.next("noise")
        return counter.total * 1.0

    for x in (jnp.ones(8), jnp.ones(4), jnp.ones(8), jnp.ones(4)):
        f(rngs, counter, x)
    assert at(counter) == 4
    assert rngs.counts == {"noise": 2}


walked = []


class Walked:
    @property
    def __dict__(self):
        walked.append(self)
        return {}


named_like_an_attribute = Walked()


def test_a_global_that_only_an_attribute_is_named_like_is_left_alone():
    class Thing(js.Stateful):
        named_like_an_attribute = 3.0

    thing = Thing()
    assert float(js.jit(lambda: jnp.asarray(thing.named_like_an_attribute))()) == 3
    assert walked == []
