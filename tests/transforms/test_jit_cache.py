"""What js.jit keeps: programs that fit come back, and nothing that is gone is held or lost."""

import functools
import gc
import sys
import warnings
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn, optim
from jaxsaw.state import signature


class Net(nn.Module):
    def __init__(self, seed=0, width=4):
        super().__init__()
        self.first = nn.Linear(3, width, rngs=js.Rngs(seed))
        self.norm = nn.BatchNorm1d(width)
        self.options = {"scale": 1.0, "names": ["a"]}
        self.flag = False

    def forward(self, x):
        x = self.norm(self.first(x)) * self.options["scale"]
        return -x if self.flag else x


class Two(js.Stateful):
    def __init__(self, a=None, b=None):
        self.a = js.Variable(jnp.zeros(3) if a is None else a)
        self.b = js.Variable(jnp.ones(3) if b is None else b)


X = np.arange(12, dtype=np.float32).reshape(4, 3)


@js.jit
def train(model, optimizer, x):
    loss, grads = js.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
    optimizer.step(grads)
    return loss


def enable_x64():
    where = jax if hasattr(jax, "enable_x64") else jax.experimental
    return where.enable_x64(True)


def run(model, f=None):
    return np.asarray((f or js.jit(lambda m, x: m(x)))(model, X))


# Static attributes.


def test_changing_a_plain_attribute_retraces_and_changing_it_back_does_not():
    model = Net()
    f = js.jit(lambda m, x: m(x))
    out = run(model, f)
    model.flag = True
    np.testing.assert_array_equal(run(model, f), -out)
    assert f.trace_count == 2
    for flag in (False, True, False):
        model.flag = flag
        np.testing.assert_array_equal(run(model, f), -out if flag else out)
    assert f.trace_count == 2


def test_train_and_eval_flip_back_and_forth_without_a_trace():
    model = Net()
    f = js.jit(lambda m, x: m(x))
    run(model, f)
    model.eval()
    run(model, f)
    for _ in range(3):
        model.train()
        run(model, f)
        model.eval()
        run(model, f)
    assert f.trace_count == 2
    assert int(model.norm.num_batches_tracked) == 4


def test_a_flip_on_one_model_leaves_the_calls_on_others_alone():
    one, two = Net(), Net()
    f = js.jit(lambda m, x: m(x))
    run(one, f), run(two, f)
    bindings = dict(f._bindings)
    one.eval()
    run(two, f)
    assert dict(f._bindings) == bindings
    assert f.trace_count == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.options.update(scale=2.0),
        lambda m: m.options.__setitem__("scale", 2.0),
        lambda m: setattr(m, "options", {"scale": 2.0, "names": ["a"]}),
    ],
)
def test_changing_a_dict_of_an_attribute_is_a_change(change):
    model = Net()
    f = js.jit(lambda m, x: m(x))
    model.eval()
    out = run(model, f)
    change(model)
    np.testing.assert_allclose(run(model, f), 2 * out, rtol=1e-6)
    model.options["scale"] = 1.0
    np.testing.assert_array_equal(run(model, f), out)
    assert f.trace_count == 2


def test_changing_a_list_of_an_attribute_in_place_is_a_change():
    class Scaled(js.Stateful):
        def __init__(self):
            self.factors = [1.0]

    model = Scaled()
    f = js.jit(lambda m, x: x * sum(m.factors))
    np.testing.assert_array_equal(f(model, X), X)
    model.factors.append(2.0)
    np.testing.assert_array_equal(f(model, X), 3 * X)
    model.factors[0] = 0.0
    np.testing.assert_array_equal(f(model, X), 2 * X)
    model.factors = [1.0]
    np.testing.assert_array_equal(f(model, X), X)


def test_a_numpy_attribute_counts_by_content_for_another_model():
    class Scaled(js.Stateful):
        def __init__(self, values):
            self.values = np.array(values, np.float32)

    f = js.jit(lambda m, x: x * m.values)
    np.testing.assert_array_equal(f(Scaled([1, 2, 3]), X), X * [1, 2, 3])
    np.testing.assert_array_equal(f(Scaled([1, 2, 3]), X), X * [1, 2, 3])
    assert f.trace_count == 1
    np.testing.assert_array_equal(f(Scaled([3, 2, 1]), X), X * [3, 2, 1])
    assert f.trace_count == 2


def test_an_equal_value_of_another_type_is_another_value():
    class Typed(js.Stateful):
        def __init__(self):
            self.value = 1

    model = Typed()
    f = js.jit(lambda m, x: x * (2.0 if m.value is True else 3.0))
    np.testing.assert_array_equal(f(model, X), 3 * X)
    model.value = True
    np.testing.assert_array_equal(f(model, X), 2 * X)
    model.value = 1
    np.testing.assert_array_equal(f(model, X), 3 * X)


def test_freezing_a_parameter_retraces_and_unfreezing_does_not():
    model = nn.Linear(3, 2, rngs=js.Rngs(0))
    f = js.jit(lambda m, x: js.grad(lambda m: m(x).sum())(m))
    assert list(f(model, X)) == ["weight", "bias"]
    model.weight.requires_grad = False
    assert list(f(model, X)) == ["bias"]
    model.weight.requires_grad = True
    assert list(f(model, X)) == ["weight", "bias"]
    assert f.trace_count == 2


# Shapes and settings.


def test_the_last_smaller_batch_retraces_from_the_current_state_and_going_back_is_a_hit():
    model = Net()
    twin = Net()
    f = js.jit(lambda m, x: m(x))
    for n in (4, 4, 3, 4, 3):
        np.testing.assert_allclose(f(model, X[:n]), twin(X[:n]), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(model.norm.running_var, twin.norm.running_var, rtol=1e-6)
    assert f.trace_count == 2


def test_weak_types_never_cause_a_second_trace():
    v = js.Variable(1.0)
    f = js.jit(lambda v: v.__iadd__(1.0) is v)
    f(v)
    v.value = 2.0
    f(v)
    v.value = jnp.asarray(3.0)
    f(v)
    v.value = v * 2.0
    f(v)
    assert float(v) == 9.0
    assert f.trace_count == 1


@pytest.mark.parametrize("setting", ["matmul_precision", "x64", "device"])
def test_what_keys_jax_jit_keys_js_jit(setting):
    context = {
        "matmul_precision": lambda: jax.default_matmul_precision("highest"),
        "x64": lambda: enable_x64(),
        "device": lambda: jax.default_device(jax.devices()[0]),
    }[setting]
    v = js.Variable(jnp.ones((2, 2)))
    f = js.jit(lambda x: v @ x)
    g = jax.jit(lambda v, x: v @ x)
    x = np.ones((2, 2), np.float32)
    for _ in range(2):
        f(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            with context():
                assert f(x).dtype == g(v.value, x).dtype
    assert f.trace_count <= 2
    if setting == "matmul_precision":
        assert f.trace_count == 2


def test_settings_that_change_the_result_are_seen():
    v = js.Variable(jnp.ones((2, 2)))
    f = js.jit(lambda n: v.sum() + jnp.arange(n).astype(jnp.float32).sum(), static_argnums=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with enable_x64():
            wide = js.jit(lambda: jnp.zeros(2, jnp.float64) * 1.0)
            assert wide().dtype == jnp.float64
    assert float(f(3)) == 7.0


# Other objects of the same architecture.


def test_a_fresh_model_of_the_same_architecture_hits_the_cache_of_the_old_one():
    before = train.trace_count
    losses = []
    for seed in range(4):
        model = Net(seed)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        losses.append([float(train(model, optimizer, X)) for _ in range(3)])
    assert train.trace_count <= before + 1
    assert len({tuple(loss) for loss in losses}) == 4


def test_another_architecture_retraces_and_does_not_mix():
    f = js.jit(lambda m, x: m(x))
    small, large = Net(width=4), Net(width=6)
    assert f(small, X).shape == (4, 4)
    assert f(large, X).shape == (4, 6)
    assert f(small, X).shape == (4, 4)
    assert f.trace_count == 2


def test_old_models_and_their_arrays_are_collected():
    f = js.jit(lambda m, x: m(x))
    model = Net()
    f(model, X)
    f(model, X)
    gc.collect()
    arrays = len(jax.live_arrays())
    refs = [weakref.ref(model), weakref.ref(model.first.weight), weakref.ref(model.norm)]
    del model
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3
    assert len(jax.live_arrays()) <= arrays - 6
    assert len(f._bindings) == 0
    f(Net(1), X)
    assert f.trace_count == 1


def test_old_optimizers_and_streams_are_collected():
    model = Net()
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    train(model, optimizer, X)
    ref = weakref.ref(optimizer)
    bindings = len(train._bindings)
    del optimizer
    gc.collect()
    assert ref() is None
    assert len(train._bindings) < bindings


def test_an_instance_of_a_plain_class_with_a_compiled_method_is_collected():
    class Trainer:
        def __init__(self):
            self.model = Two()

        @js.jit
        def run(self):
            self.model.a += self.model.b

    trainer = Trainer()
    trainer.run()
    ref, method = weakref.ref(trainer), Trainer.__dict__["run"]
    del trainer
    gc.collect()
    assert ref() is None
    assert not method._methods


def test_a_compiled_function_is_collected_with_what_it_closes_over():
    def build():
        model = Two()
        f = js.jit(lambda: model.a + model.b)
        f()
        return weakref.ref(f), weakref.ref(model)

    refs = build()
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_no_registry_grows():
    f = js.jit(lambda m, x: m(x))

    def epoch(seed):
        model = Net(seed)
        f(model, X)
        model.eval()
        f(model, X)
        model.train()
        f(model, X)

    def sizes():
        gc.collect()
        return (
            len(f._bindings), len(f._plans), len(f._forms), len(f._growth), len(f._methods),
            len(f._history), sum(len(plan.programs) + len(plan.pending) for plan in
                                 f._plans.values()),
            len(signature._interned),
        )  # fmt: skip

    epoch(0)
    epoch(1)
    before = sizes()
    for seed in range(2, 12):
        epoch(seed)
    assert sizes() == before
    assert f.trace_count == 2


def test_graphs_that_are_gone_leave_nothing_on_shared_boxes():
    shared = nn.Linear(3, 3, rngs=js.Rngs(0))
    f = js.jit(lambda m, x: m(x))
    for _ in range(20):
        f(nn.Sequential(shared), X)
    gc.collect()
    f(nn.Sequential(shared), X)
    assert len(shared.weight._graphs) <= 4


def test_references_to_a_model_do_not_grow_with_calls():
    model = Two()
    f = js.jit(lambda m: m.a + m.b)
    f(model)
    before = sys.getrefcount(model)
    for _ in range(50):
        f(model)
    assert sys.getrefcount(model) == before


# Donation.


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def alive(*arrays):
    return not any(array.is_deleted() for array in arrays)


@js.jit
def bump(m):
    m.a += 1.0


def test_an_array_that_a_user_holds_is_never_deleted():
    given = jnp.zeros(3)
    model = Two(given)
    read = []
    for _ in range(4):
        read.append(model.a.value)
        bump(model)
    state = nn.Linear(2, 2, rngs=js.Rngs(0))
    held = state.state_dict()
    js.jit(lambda m: m.weight.__iadd__(1.0) is m)(state)
    arrays = [value.value if isinstance(value, js.Variable) else value for value in held.values()]
    assert alive(given, *read, *arrays)
    assert [float(array[0]) for array in read] == [0, 1, 2, 3]


def test_a_result_that_is_also_state_is_never_deleted():
    model = Two()

    @js.jit
    def f(m):
        m.a += 1.0
        return m.a.value, m.a * 1.0, {"same": m.a.value}, m.b.value

    outs = [f(model) for _ in range(3)]
    for n, (a, b, c, unchanged) in enumerate(outs, 1):
        assert alive(a, b, c["same"], unchanged)
        assert float(a[0]) == float(b[0]) == float(c["same"][0]) == n
    js.jit(lambda m: m.b.__iadd__(1.0) is m)(model)
    assert alive(outs[0][3])


def test_written_state_that_nobody_holds_is_donated():
    model = Two()
    bump(model)  # the first arrays were made by the user
    place = model.a._place
    array = place[0].slot[0][place[1]]
    bump(model)
    assert array.is_deleted()


def test_a_first_step_copies_nothing_that_constructors_made(monkeypatch):
    model = nn.Linear(3, 2, rngs=js.Rngs(0))
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    copied = []
    from jaxsaw.state.pack import Pack

    original = Pack.protect
    monkeypatch.setattr(
        Pack, "protect", lambda self, content: copied.append(self) or original(self, content)
    )
    for _ in range(3):
        train(model, optimizer, X)
    assert not copied


def test_donate_false_keeps_the_old_arrays():
    model = Two()
    f = js.jit(lambda m: m.a.__iadd__(1.0) is m, donate=False)
    f(model)
    place = model.a._place
    array = place[0].slot[0][place[1]]
    f(model)
    assert alive(array)
    assert float(model.a[0]) == 2


def test_a_plain_array_argument_is_never_donated():
    model, x = Two(), jnp.full(3, 5.0)

    @js.jit
    def f(m, x):
        m.a.value = x
        m.b.value = m.b + x

    for _ in range(3):
        f(model, x)
    assert alive(x)
    np.testing.assert_array_equal(model.a, x)
    bump(model)
    np.testing.assert_array_equal(x, [5, 5, 5])


def test_the_same_array_in_two_boxes_is_no_double_donation():
    array = jnp.zeros(3)
    model = Two(array, array)

    @js.jit
    def f(m):
        m.a += 1.0
        m.b += 2.0

    for _ in range(3):
        f(model)
    np.testing.assert_array_equal(model.a, [3, 3, 3])
    np.testing.assert_array_equal(model.b, [6, 6, 6])
    assert alive(array)


def test_a_donated_array_that_is_also_an_argument_is_whole():
    model = Two()

    @js.jit
    def f(m, x):
        m.a.value = m.a + x
        return x * 1.0

    f(model, jnp.ones(3))
    for expected in (2, 4, 8):
        x = model.a.value
        out = f(model, x)
        assert alive(x, out)
        assert float(model.a[0]) == expected


def test_two_boxes_swap_their_values():
    model = Two()

    @js.jit
    def swap(m):
        m.a.value, m.b.value = m.b.value, m.a.value

    for n in range(1, 5):
        swap(model)
        assert (float(model.a[0]), float(model.b[0])) == ((1, 0) if n % 2 else (0, 1))


def test_one_value_written_into_two_boxes_is_two_arrays():
    model = Two()

    @js.jit
    def f(m):
        new = m.a + m.b
        m.a.value = new
        m.b.value = new
        return new

    outs = [f(model) for _ in range(3)]
    assert [float(out[0]) for out in outs] == [1, 2, 4]
    assert alive(*outs)
    bump(model)
    assert (float(model.a[0]), float(model.b[0])) == (5, 4)


def test_one_box_copied_to_another_is_two_arrays():
    model = Two()

    @js.jit
    def f(m):
        m.b.value = m.a.value

    f(model)
    bump(model)
    assert (float(model.a[0]), float(model.b[0])) == (1, 0)
    model.b.value = model.a.value  # eagerly, too
    bump(model)
    assert (float(model.a[0]), float(model.b[0])) == (2, 1)


def test_a_constant_written_into_a_box_is_not_donated_away():
    constant = jnp.arange(3.0)
    model = Two()

    @js.jit
    def f(m):
        m.a.value = constant
        m.b.value = constant
        return constant

    for _ in range(3):
        out = f(model)
        bump(model)
    np.testing.assert_array_equal(constant, [0, 1, 2])
    np.testing.assert_array_equal(out, [0, 1, 2])
    np.testing.assert_array_equal(model.a, [1, 2, 3])


def test_a_module_made_inside_shares_no_buffer_with_results_or_arguments():
    @js.jit
    def make(x):
        y = x + 1.0
        return y, Two(y, y), Two(x, x)

    x = jnp.zeros(3)
    y, first, second = make(x)
    for model in (first, second):
        bump(model), bump(model)
        model.b.value = model.b + 1.0
    np.testing.assert_array_equal(x, [0, 0, 0])
    np.testing.assert_array_equal(y, [1, 1, 1])
    np.testing.assert_array_equal(first.a, [3, 3, 3])
    np.testing.assert_array_equal(second.b, [1, 1, 1])


def test_a_box_written_with_what_it_holds_is_unchanged():
    model = Two()
    f = js.jit(lambda m: setattr(m.a, "value", m.a.value))
    for _ in range(3):
        f(model)
    assert float(model.a[0]) == 0


def test_state_that_changes_its_dtype_is_not_donated_in_vain():
    model = Two()

    @js.jit
    def f(m):
        m.a.value = m.a.astype(jnp.int32 if m.a.dtype == jnp.float32 else jnp.float32)
        m.b.value = jnp.concatenate([m.b.value, m.b.value])

    for _ in range(3):
        f(model)
    assert model.a.dtype == jnp.int32 and model.b.shape == (24,)


def test_read_only_state_is_never_donated():
    model = Two()
    f = js.jit(lambda m: m.a + m.b)
    array = model.a._place[0].slot[0][model.a._place[1]]
    f(model)
    f(model)
    assert alive(array)


def test_a_shared_box_of_model_and_optimizer_is_one_buffer():
    model = nn.Linear(3, 2, rngs=js.Rngs(0))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    twin = nn.Linear(3, 2, rngs=js.Rngs(0))
    other = optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        train(model, optimizer, X)
        train.__wrapped__(twin, other, X)
    np.testing.assert_allclose(model.weight, twin.weight, rtol=1e-5)


def test_deepcopied_and_pickled_models_share_nothing_with_the_original():
    import copy
    import pickle

    model = Two()
    bump(model)
    twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    bump(model)
    for twin in twins:
        bump(twin), bump(twin)
        assert float(twin.a[0]) == 3
    assert float(model.a[0]) == 2


def test_functions_that_share_boxes_in_other_combinations_move_them_without_loss():
    a, b, c = (js.Variable(jnp.full(3, float(n))) for n in range(3))

    def adder(*boxes):
        @js.jit
        def add():
            for box in boxes:
                box += 1.0

        return add

    for f in (adder(a, b), adder(b, c), adder(a), adder(a, b, c), adder(c)):
        f()
        f()
    assert [float(box[0]) for box in (a, b, c)] == [6, 7, 8]


def test_trace_count_and_history_say_how_often_and_why():
    model = Net()
    f = js.jit(lambda m, x: m(x))
    run(model, f)
    model.flag = True
    run(model, f)
    f(model, X[:2])
    assert f.trace_count == len(f._history) == 3
    assert f._history[0] == "first call"
    assert "flag" in f._history[1] and "False" in f._history[1] and "True" in f._history[1]
    assert "(4, 3)" in f._history[2] or "float32[4,3]" in f._history[2]


def test_a_static_argument_makes_one_trace_for_each_value():
    f = functools.partial(js.jit, static_argnames="n")(lambda m, n: m.a * n)
    model = Two()
    for n in (1.0, 2.0, 1.0, 2.0):
        f(model, n=n)
    assert f.trace_count == 2
