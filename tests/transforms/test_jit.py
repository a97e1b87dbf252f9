"""js.jit: what a compiled function is given, what it gives back, and what it changes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn


class Counter(js.Stateful):
    """One box, one static attribute, a method that changes the box."""

    def __init__(self, start=0.0, factor=1):
        self.total = js.Variable(jnp.full((3,), start))
        self.factor = factor

    def add(self, x):
        self.total += self.factor * x
        return self.total * 2.0


class Pair(js.Stateful):
    def __init__(self, first, second):
        self.first = first
        self.second = second


ONES = np.ones(3, np.float32)


def test_what_the_function_changed_is_changed_afterwards():
    counter = Counter()
    step = js.jit(lambda counter, x: counter.add(x))
    for n in range(1, 4):
        out = step(counter, jnp.ones(3))
        np.testing.assert_array_equal(counter.total, n * ONES)
        np.testing.assert_array_equal(out, 2 * n * ONES)
    assert step.trace_count == 1


def test_a_written_box_is_read_back_with_its_new_value():
    @js.jit
    def f(v):
        v.value = v + 1.0
        first = v.value
        v *= 3.0
        v[0] = 0.0
        return first, v.value

    v = js.Variable(jnp.zeros(3))
    first, second = f(v)
    np.testing.assert_array_equal(first, [1, 1, 1])
    np.testing.assert_array_equal(second, [0, 3, 3])
    np.testing.assert_array_equal(v, [0, 3, 3])


def test_a_variable_counts_as_a_stateful_with_one_box():
    f = js.jit(lambda v, x: v.__iadd__(x) is v)
    v, w = js.Variable(jnp.zeros(3)), js.Variable(jnp.zeros(3))
    f(v, jnp.ones(3))
    f(w, jnp.ones(3))
    assert f.trace_count == 1
    np.testing.assert_array_equal(v, ONES)
    np.testing.assert_array_equal(w, ONES)


@pytest.mark.parametrize("nested", [False, True])
def test_a_box_passed_where_an_array_was_is_written(nested):
    @js.jit
    def f(tree):
        y = tree["a"] if nested else tree
        y += 1.0
        return y * 1.0

    def wrap(x):
        return {"a": x} if nested else x

    f(wrap(jnp.zeros(3)))
    v = js.Variable(jnp.zeros(3))
    for n in range(1, 4):
        f(wrap(v))
        np.testing.assert_array_equal(v, n * ONES)
    np.testing.assert_array_equal(f(wrap(jnp.zeros(3))), ONES)
    assert f.trace_count == 2


def test_a_box_passed_by_keyword_where_an_array_was_is_written():
    @js.jit
    def f(x, *, y):
        y += x
        return x

    f(jnp.ones(3), y=jnp.zeros(3))
    v = js.Variable(jnp.zeros(3))
    f(jnp.ones(3), y=v)
    np.testing.assert_array_equal(v, ONES)


def test_arguments_may_be_any_mix_of_statefuls_pytrees_keywords_and_static_values():
    a, b, c = Counter(), Counter(), Counter()

    @functools.partial(js.jit, static_argnames=("scale", "name"))
    def f(x, tree, scale, /, *rest, other, name="n"):
        for node in (tree["a"], tree["list"][1], other):
            node.add(x * scale)
        assert isinstance(scale, int) and name in ("n", "m")
        return [x, rest, {"k": tree["list"][0]}]

    f(jnp.ones(3), {"a": a, "list": (jnp.zeros(2), b)}, 2, jnp.ones(()), other=c)
    out = f(jnp.ones(3), {"a": a, "list": (jnp.zeros(2), b)}, 2, jnp.ones(()), other=c)
    assert f.trace_count == 1
    np.testing.assert_array_equal(out[2]["k"], [0, 0])
    for node in (a, b, c):
        np.testing.assert_array_equal(node.total, 4 * ONES)
    f(jnp.ones(3), {"a": a, "list": (jnp.zeros(2), b)}, 2, jnp.ones(()), other=c, name="m")
    f(jnp.ones(3), {"a": a, "list": (jnp.zeros(2), b)}, 3, jnp.ones(()), other=c)
    assert f.trace_count == 3


def test_static_argnums_count_from_the_end_too_and_go_by_name():
    @functools.partial(js.jit, static_argnums=-1)
    def f(x, n):
        return x * n if isinstance(n, int) else None

    np.testing.assert_array_equal(f(jnp.ones(3), 2), 2 * ONES)
    np.testing.assert_array_equal(f(jnp.ones(3), n=3), 3 * ONES)


def test_static_values_that_are_equal_but_of_other_types_are_other_values():
    f = js.jit(lambda x, flag: str(type(flag)) and x * (2.0 if flag is True else 3.0),
               static_argnums=1)  # fmt: skip
    np.testing.assert_array_equal(f(jnp.ones(3), True), 2 * ONES)
    np.testing.assert_array_equal(f(jnp.ones(3), 1), 3 * ONES)


def test_python_numbers_are_traced_and_weak():
    f = js.jit(lambda x, s: x * s)
    for s in (2.0, 3.0, -1.0):
        out = f(jnp.ones(3, jnp.bfloat16), s)
        assert out.dtype == jnp.bfloat16 and float(out[0]) == s
    assert f.trace_count == 1
    assert f(jnp.ones(3, jnp.int32), 4).dtype == jnp.int32


def test_numpy_arrays_are_arguments_too():
    f = js.jit(lambda x: x * 2.0)
    np.testing.assert_array_equal(f(np.ones(3, np.float32)), 2 * ONES)


def test_none_and_empty_containers_are_passed_through():
    f = js.jit(lambda x, y, z: (x, y, z))
    assert f(None, (), {}) == (None, (), {})


def test_it_is_a_decorator_with_and_without_arguments():
    counter = Counter()

    @js.jit
    def f(x):
        """Say something."""
        return counter.add(x)

    @js.jit(donate=False)
    def g(x):
        return counter.add(x)

    f(jnp.ones(3))
    g(jnp.ones(3))
    np.testing.assert_array_equal(counter.total, 2 * ONES)
    assert f.__name__ == "f" and f.__doc__ == "Say something."
    assert isinstance(f, js.JitFunction)


def test_a_decorated_method_acts_on_the_live_object():
    class Machine(js.Stateful):
        def __init__(self):
            self.total = js.Variable(jnp.zeros(3))

        @js.jit
        def add(self, x):
            self.total += x
            return self.total.sum()

    a, b = Machine(), Machine()
    a.add(jnp.ones(3))
    b.add(jnp.ones(3))
    a.add(x=jnp.ones(3))
    np.testing.assert_array_equal(a.total, 2 * ONES)
    np.testing.assert_array_equal(b.total, ONES)
    Machine.add(b, jnp.ones(3))
    np.testing.assert_array_equal(b.total, 2 * ONES)


def test_a_method_with_static_arguments():
    class Machine(js.Stateful):
        def __init__(self):
            self.total = js.Variable(jnp.zeros(3))

        @functools.partial(js.jit, static_argnames="how")
        def add(self, x, how):
            self.total += x if how == "once" else x * 2.0

    machine = Machine()
    machine.add(jnp.ones(3), "once")
    machine.add(jnp.ones(3), how="twice")
    np.testing.assert_array_equal(machine.total, 3 * ONES)


def test_a_decorated_method_of_a_plain_class_has_its_own_state():
    class Trainer:
        def __init__(self):
            self.counter = Counter()

        @js.jit
        def run(self, x):
            return self.counter.add(x)

    a, b = Trainer(), Trainer()
    for trainer in (a, b, a):
        trainer.run(jnp.ones(3))
    np.testing.assert_array_equal(a.counter.total, 2 * ONES)
    np.testing.assert_array_equal(b.counter.total, ONES)
    assert Trainer.run is Trainer.__dict__["run"]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda m: js.jit(m),
        lambda m: js.jit(m.forward),
        lambda m: js.jit(lambda x: m(x)),
        lambda m: functools.partial(js.jit(lambda m, x: m(x)), m),
        lambda m: js.jit(functools.partial(lambda m, x: m(x), m)),
        lambda m: js.jit(functools.partial(lambda x, m: m(x), m=m)),
    ],
    ids=["model", "method", "lambda", "argument", "partial", "keyword"],
)
def test_every_way_to_wrap_a_model_acts_on_the_same_live_object(wrap):
    model = nn.BatchNorm1d(2)
    f = wrap(model)
    x = jnp.array([[1.0, 2.0], [3.0, 6.0]])
    for n in range(1, 4):
        f(x)
        assert int(model.num_batches_tracked) == n
    model.weight.value = jnp.zeros(2)
    np.testing.assert_array_equal(f(x), np.zeros((2, 2)))


def test_an_object_that_is_passed_and_closed_over_is_one_object():
    counter = Counter()

    @js.jit
    def f(passed, tree):
        passed.total += 1.0
        counter.total += 1.0
        tree["again"][0].total += 1.0
        return counter.total * 1.0

    for n in range(1, 4):
        out = f(counter, {"again": [counter]})
        np.testing.assert_array_equal(out, 3 * n * ONES)
        np.testing.assert_array_equal(counter.total, 3 * n * ONES)


def test_what_one_object_shares_with_another_is_part_of_the_key():
    @js.jit
    def f(a, b):
        a.total += 1.0
        b.total += 1.0

    a, b = Counter(), Counter()
    f(a, b)
    f(a, a)
    np.testing.assert_array_equal(a.total, 3 * ONES)
    np.testing.assert_array_equal(b.total, ONES)


def test_a_shared_box_inside_two_objects_is_one_box():
    shared = Counter()
    left, right = Pair(shared, Counter()), Pair(Counter(), shared)

    @js.jit
    def f(left, right):
        left.first.total += 1.0
        right.second.total += 1.0

    f(left, right)
    f(left, right)
    np.testing.assert_array_equal(shared.total, 4 * ONES)


def test_a_module_made_inside_is_returned():
    model = js.jit(lambda: nn.Linear(2, 3, rngs=js.Rngs(params=0)))()
    eager = nn.Linear(2, 3, rngs=js.Rngs(params=0))
    np.testing.assert_array_equal(model.weight, eager.weight)
    model.weight.value = model.weight + 1.0
    assert model(jnp.ones((1, 2))).shape == (1, 3)


def test_each_call_returns_another_module():
    make = js.jit(lambda x: Counter() if x is None else Pair(js.Variable(x), js.Variable(x)))
    a, b = make(jnp.ones(2)), make(jnp.zeros(2))
    a.first.value = jnp.full(2, 7.0)
    np.testing.assert_array_equal(a.second, [1, 1])
    np.testing.assert_array_equal(b.first, [0, 0])
    assert make.trace_count == 1


def test_objects_made_inside_still_share_when_they_are_returned():
    def make():
        counter = Counter()
        return counter, {"pair": Pair(counter, counter.total)}, counter.total

    counter, tree, box = js.jit(make)()
    assert tree["pair"].first is counter
    assert tree["pair"].second is counter.total is box


def test_a_module_made_inside_around_another_holds_that_one():
    @js.jit
    def wrap(counter):
        return Pair(counter, js.Variable(counter.total * 2.0))

    a, b = Counter(1.0), Counter(2.0)
    first, second = wrap(a), wrap(b)
    assert wrap.trace_count == 1
    assert first.first is a and second.first is b
    np.testing.assert_array_equal(second.second, 4 * ONES)


def test_an_argument_is_returned_as_the_object_that_it_is():
    f = js.jit(lambda pair: (pair.first, [pair], pair.second.total))
    for pair in (Pair(Counter(), Counter()), Pair(Counter(), Counter())):
        first, (same,), box = f(pair)
        assert first is pair.first and same is pair and box is pair.second.total
    assert f.trace_count == 1


def test_state_may_change_its_shape_and_dtype():
    @js.jit
    def double(v):
        v.value = jnp.concatenate([v.value, v.value])
        return v.sum()

    v = js.Variable(jnp.ones(1))
    assert [float(double(v)) for _ in range(3)] == [2, 4, 8]
    assert v.shape == (8,)

    @js.jit
    def widen(v):
        v.value = v.astype(jnp.int32)

    widen(v)
    assert v.dtype == jnp.int32


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "bfloat16", "complex64", "key"])
def test_every_dtype_can_be_state(dtype):
    value = jax.random.key(0) if dtype == "key" else jnp.ones(3, dtype)
    a, b = js.Variable(value), js.Variable(value)

    @js.jit
    def swap(a, b):
        a.value, b.value = b.value, a.value

    swap(a, b)
    assert a.dtype == b.dtype == value.dtype


def test_an_empty_box_and_a_scalar_are_state():
    a, b = js.Variable(jnp.zeros((0, 3))), js.Variable(jnp.zeros(()))

    @js.jit
    def f():
        a.value = a + 1.0
        b.value = b + 1.0

    f()
    f()
    assert a.shape == (0, 3) and float(b) == 2.0


def test_a_function_without_state_is_an_ordinary_jit():
    f = js.jit(lambda x, y=2.0: x @ x.T * y)
    np.testing.assert_array_equal(f(jnp.ones((2, 2))), np.full((2, 2), 4))
    np.testing.assert_array_equal(f(jnp.ones((2, 2)), y=1.0), np.full((2, 2), 2))


def test_nested_jit_writes_into_the_enclosing_call():
    counter = Counter()
    inner = js.jit(lambda c, x: c.add(x))

    @js.jit
    def outer(c, x):
        inner(c, x)
        inner(c, x * 2.0)
        return inner(c, x)

    for n in range(1, 4):
        out = outer(counter, jnp.ones(3))
        np.testing.assert_array_equal(counter.total, 4 * n * ONES)
        np.testing.assert_array_equal(out, 8 * n * ONES)
    assert inner.trace_count == 1


def test_one_callable_works_eagerly_nested_and_under_eval_shape_in_any_order():
    counter = Counter()
    f = js.jit(lambda x: counter.add(x))
    uses = {
        "eager": lambda: f(jnp.ones(3)),
        "jit": lambda: js.jit(lambda x: f(x))(jnp.ones(3)),
        "grad": lambda: js.grad(lambda x: f(x).sum())(jnp.ones(3)),
        "shape": lambda: js.eval_shape(f, jnp.ones(3)),
    }
    expected = 0
    for order in (["shape", "jit", "eager", "grad"], ["grad", "eager", "jit", "shape"]):
        for name in order:
            uses[name]()
            expected += name != "shape"
            np.testing.assert_array_equal(counter.total, expected * ONES)


def test_a_reading_jit_function_runs_inside_raw_vmap_and_grad():
    model = nn.Linear(3, 2, rngs=js.Rngs(0))
    f = js.jit(lambda x: model(x))
    xs = jnp.arange(12.0).reshape(4, 3)
    np.testing.assert_allclose(jax.vmap(f)(xs), model(xs), rtol=1e-6)
    np.testing.assert_allclose(
        jax.grad(lambda x: f(x).sum())(xs[0]), model.weight.sum(0), rtol=1e-6
    )
    np.testing.assert_allclose(jax.jit(f)(xs), f(xs), rtol=1e-6)


def test_a_raw_transform_inside_may_read_state():
    model = nn.Linear(3, 2, rngs=js.Rngs(0))
    xs = jnp.arange(12.0).reshape(4, 3)
    expected = model(xs)

    @js.jit
    def f(xs):
        mapped = jax.vmap(lambda x: model(x))(xs)
        _, scanned = jax.lax.scan(lambda c, x: (c, model(x)), 0, xs)
        looped = jax.lax.fori_loop(0, 2, lambda i, y: y + model(xs), jnp.zeros((4, 2)))
        branch = jax.lax.cond(xs[0, 0] < 1, lambda: model(xs), lambda: -model(xs))
        return mapped, scanned, looped / 2.0, branch, jax.checkpoint(model.forward)(xs)

    for _ in range(2):
        for out in f(xs):
            np.testing.assert_allclose(out, expected, rtol=1e-5)


def test_under_disable_jit_it_runs_eagerly():
    counter = Counter()
    seen = []

    @js.jit
    def f(x):
        seen.append(x)
        return counter.add(x)

    f(jnp.ones(3))
    with jax.disable_jit():
        f(jnp.ones(3))
        f(jnp.ones(3))
    f(jnp.ones(3))
    np.testing.assert_array_equal(counter.total, 4 * ONES)
    assert [isinstance(x, jax.core.Tracer) for x in seen] == [True, False, False]


def test_lower_changes_nothing_and_can_be_compiled():
    counter = Counter()
    f = js.jit(lambda c, x: c.add(x))
    lowered = f.lower(counter, jnp.ones(3))
    assert "stablehlo" in lowered.as_text() or "func.func" in lowered.as_text()
    assert lowered.compile().cost_analysis() is not None
    np.testing.assert_array_equal(counter.total, 0 * ONES)
    f(counter, jnp.ones(3))
    np.testing.assert_array_equal(counter.total, ONES)


def test_in_and_out_shardings_and_compiler_options_are_passed_on():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    counter = Counter()
    f = js.jit(
        lambda c, x: c.add(x),
        in_shardings=(sharding,),
        out_shardings=sharding,
        compiler_options={"xla_cpu_enable_fast_math": True},
    )
    assert f(counter, jnp.ones(3)).sharding == sharding
    np.testing.assert_array_equal(counter.total, ONES)


def test_storing_a_compiled_method_registers_nothing_and_recurses_nowhere():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(jnp.ones(3))
            self.fast = js.jit(self.forward)
            self.slow = self.forward

        def forward(self, x):
            return self.scale * x

    net = Net()
    assert [name for name, _ in net.named_parameters()] == ["scale"]
    np.testing.assert_array_equal(net.fast(jnp.ones(3)), ONES)
    np.testing.assert_array_equal(js.jit(net)(jnp.ones(3)), ONES)
    net.scale.value = jnp.zeros(3)
    np.testing.assert_array_equal(net.fast(jnp.ones(3)), 0 * ONES)


def test_a_copy_of_what_stores_a_compiled_method_uses_the_copy():
    import copy

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(jnp.ones(3))
            self.fast = js.jit(self.forward)

        def forward(self, x):
            return self.scale * x

    net = Net()
    net.fast(jnp.ones(3))
    twin = copy.deepcopy(net)
    twin.scale.value = jnp.zeros(3)
    np.testing.assert_array_equal(twin.fast(jnp.ones(3)), 0 * ONES)
    np.testing.assert_array_equal(net.fast(jnp.ones(3)), ONES)


def test_grads_are_arguments_and_results():
    model = nn.Linear(2, 1, rngs=js.Rngs(0))
    grads_of = js.jit(lambda m, x: js.grad(lambda m: m(x).sum())(m))
    grads = grads_of(model, jnp.ones((1, 2)))
    assert isinstance(grads, js.Grads) and list(grads) == ["weight", "bias"]
    assert grads.boxes == (model.weight, model.bias) or all(
        a is b for a, b in zip(grads.boxes, (model.weight, model.bias))
    )

    @js.jit
    def descend(m, grads):
        for box, g in zip(grads.boxes, grads.values()):
            box.value = box - g
        return jax.tree.map(lambda g: 2.0 * g, grads)

    before = model.weight.value
    for n in range(1, 3):
        doubled = descend(model, grads)
        np.testing.assert_allclose(model.weight, before - n * grads["weight"], rtol=1e-6)
        assert isinstance(doubled, js.Grads)
        np.testing.assert_array_equal(doubled["weight"], 2 * grads["weight"])
    assert descend.trace_count == 1


def test_gradients_accumulate_over_calls_with_tree_map():
    model = nn.Linear(2, 1, rngs=js.Rngs(0))
    step = js.jit(lambda m, x: js.grad(lambda m: m(x).sum())(m))
    total = step(model, jnp.ones((1, 2)))
    total = jax.tree.map(jnp.add, total, step(model, jnp.ones((1, 2))))
    np.testing.assert_array_equal(total["weight"], [[2, 2]])
    assert total.boxes[0] is model.weight


def test_returned_gradients_belong_to_the_model_of_that_call():
    step = js.jit(lambda m, x: js.grad(lambda m: m(x).sum())(m))
    a, b = (nn.Linear(2, 1, rngs=js.Rngs(i)) for i in range(2))
    for model in (a, b, a):
        assert step(model, jnp.ones((1, 2))).boxes[0] is model.weight
    assert step.trace_count == 1
