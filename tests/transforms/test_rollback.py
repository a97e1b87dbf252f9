"""What raises changes nothing, and leaves everything usable."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn, optim

X = np.arange(6, dtype=np.float32).reshape(3, 2)


class State:
    """A model, an optimizer and streams, and what they hold, as numbers."""

    def __init__(self):
        self.model = nn.Sequential(
            nn.Linear(2, 4, rngs=js.Rngs(0)), nn.BatchNorm1d(4), nn.Dropout(0.5),
            nn.Linear(4, 1, rngs=js.Rngs(1)),
        )  # fmt: skip
        self.optimizer = optim.Adam(self.model.parameters(), lr=0.1)
        self.rngs = js.Rngs(0)

    def objects(self):
        return self.model, self.optimizer, self.rngs

    def values(self):
        arrays = {}
        for i, obj in enumerate(self.objects()):
            for name, array in js.split(obj)[1].items():
                is_key = jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
                arrays[i, name] = np.asarray(jax.random.key_data(array) if is_key else array)
        return arrays

    def check(self, before):
        after = self.values()
        assert list(after) == list(before)
        for name in after:
            np.testing.assert_array_equal(after[name], before[name], str(name))


def train(model, optimizer, rngs, x, fail=None):
    """Change everything, then fail."""
    loss, grads = js.value_and_grad(lambda m: (m(x, rngs=rngs) ** 2).mean())(model)
    optimizer.step(grads)
    rngs.next("more")
    if fail is not None:
        fail()
    return loss


def failing(error):
    def fail():
        raise error

    return fail


ERRORS = pytest.mark.parametrize(
    "error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3), RecursionError(), IndexError()],
    ids=lambda e: type(e).__name__,
)  # fmt: skip


@ERRORS
def test_a_trace_that_raises_changes_nothing_and_the_next_call_is_right(error):
    state, twin = State(), State()
    step = js.jit(train, static_argnames="fail")
    fail = failing(error)
    for n in range(2):
        before = state.values()
        with pytest.raises(type(error)):
            step(*state.objects(), X, fail=fail)
        state.check(before)
        a, b = step(*state.objects(), X), step.__wrapped__(*twin.objects(), X)
        np.testing.assert_allclose(a, b, rtol=1e-4)
        assert state.rngs.counts == twin.rngs.counts == {"dropout": n + 1, "more": n + 1}


@ERRORS
@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: js.grad(f),
        lambda f: js.jit(js.grad(f)),
        lambda f: js.grad(js.jit(f)),
        lambda f: js.grad(js.grad(f)),
        lambda f: js.jit(js.jit(f)),
        lambda f: lambda x: js.eval_shape(f, x),
    ],
    ids=["grad", "jit-grad", "grad-jit", "grad-grad", "jit-jit", "eval_shape"],
)
def test_transforms_that_raise_change_nothing(wrap, error):
    state = State()

    def f(x):
        train(*state.objects(), X)
        raise error

    before = state.values()
    for _ in range(2):
        with pytest.raises(type(error)):
            wrap(f)(1.0)
        state.check(before)
        assert state.rngs.counts == {}
    assert not isinstance(state.model[0].weight.value, jax.core.Tracer)


def test_an_inner_call_that_raises_and_is_caught_leaves_the_outer_one_right():
    count, other = js.Variable(jnp.zeros(3)), js.Variable(jnp.zeros(3))

    @js.jit
    def inner(fail):
        count.value = count + 10.0
        raise ValueError("no")

    @js.jit
    def outer(x):
        count.value = count + 1.0
        for wrapped in (inner, js.grad(inner), js.jit(js.grad(inner))):
            with pytest.raises(ValueError):
                wrapped(1.0)
        other.value = other + count
        return count * x

    for n in range(1, 3):
        np.testing.assert_array_equal(outer(1.0), [n] * 3)
    np.testing.assert_array_equal(other, [3] * 3)


def test_an_eager_gradient_that_raises_after_its_loss_changes_nothing():
    rngs, count = js.Rngs(0), js.Variable(jnp.zeros(()))

    @jax.custom_vjp
    def bad(x):
        return x

    def backward(_, g):
        raise ValueError("in the backward pass")

    bad.defvjp(lambda x: (x, None), backward)

    def loss(x):
        count.value = count + 1.0
        rngs.next("noise")
        return bad(x)

    with pytest.raises(ValueError, match="backward"):
        js.grad(loss)(1.0)
    assert float(count) == 0 and rngs.counts == {}


def test_under_disable_jit_it_is_all_or_nothing():
    state = State()
    step = js.jit(train, static_argnames="fail")
    before = state.values()
    with jax.disable_jit():
        with pytest.raises(ValueError):
            step(*state.objects(), X, fail=failing(ValueError()))
    state.check(before)


def test_a_program_that_can_not_be_compiled_changes_nothing():
    state = State()
    step = js.jit(train, compiler_options={"no_such_option": True})
    before = state.values()
    for _ in range(2):
        with pytest.raises(Exception, match="no_such_option"):
            step(*state.objects(), X)
        state.check(before)
    js.jit(train)(*state.objects(), X)
    assert int(state.optimizer.step_count) == 1


class Boom(Exception):
    pass


class Callback:
    """Raises when it is told to, while the program runs."""

    def __init__(self):
        self.armed = False
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        if self.armed:
            raise Boom("in the callback")
        return np.asarray(x)


@pytest.mark.parametrize("kind", ["pure", "io"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "cached"])
def test_a_callback_that_raises_changes_nothing(kind, first):
    callback = Callback()
    model = nn.Linear(2, 2, rngs=js.Rngs(0))
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    shape = jax.ShapeDtypeStruct((), jnp.float32)
    call = {
        "pure": lambda x: jax.pure_callback(callback, shape, x),
        "io": lambda x: jax.experimental.io_callback(callback, shape, x, ordered=False),
    }[kind]

    @js.jit
    def step(model, optimizer):
        loss, grads = js.value_and_grad(lambda m: (m(X) ** 2).mean())(model)
        optimizer.step(grads)
        return call(loss)

    if not first:
        step(model, optimizer)
    callback.armed = True
    for _ in range(2):
        before = [np.asarray(box) for box in (*model.parameters(), optimizer.step_count)]
        with pytest.raises(Exception, match="in the callback"):
            step(model, optimizer)
        after = [np.asarray(box) for box in (*model.parameters(), optimizer.step_count)]
        for a, b in zip(after, before):
            np.testing.assert_array_equal(a, b)
    callback.armed = False
    step(model, optimizer)
    assert int(optimizer.step_count) == 1 + (not first)


def test_a_callback_may_read_the_state_of_the_running_step():
    v = js.Variable(jnp.zeros(()))
    seen = []
    shape = jax.ShapeDtypeStruct((), jnp.float32)

    @js.jit
    def step():
        v.value = v + 1.0
        return jax.pure_callback(lambda x: seen.append(float(v)) or np.asarray(x), shape, v.value)

    step(), step()
    assert seen == [0, 1] and float(v) == 2


def test_debug_prints_do_no_harm(capsys):
    v = js.Variable(jnp.zeros(()))

    @js.jit
    def step():
        v.value = v + 1.0
        jax.debug.print("now {}", v.value)

    step(), step()
    jax.effects_barrier()
    assert capsys.readouterr().out.split() == ["now", "1.0", "now", "2.0"]


@pytest.mark.parametrize("first", [True, False], ids=["first", "cached"])
@pytest.mark.parametrize("what", ["nans", "infs"])
def test_under_debug_nans_a_nan_changes_nothing(what, first, capsys):
    v, w = js.Variable(jnp.zeros(2)), js.Variable(jnp.ones(2))

    @js.jit
    def step(x):
        w.value = w + 1.0
        v.value = v + w / x if what == "infs" else v + x / x
        return v.sum()

    if not first:
        step(jnp.ones(2))
    before = np.asarray(v), np.asarray(w)
    with jax.debug_nans(what == "nans"), jax.debug_infs(what == "infs"):
        for _ in range(2):
            with pytest.raises(FloatingPointError):
                step(jnp.zeros(2))
            np.testing.assert_array_equal(v, before[0])
            np.testing.assert_array_equal(w, before[1])
        step(jnp.ones(2))
    np.testing.assert_array_equal(w, before[1] + 1)
    step(jnp.ones(2))
    np.testing.assert_array_equal(w, before[1] + 2)


def test_tracers_that_were_kept_do_no_harm():
    v = js.Variable(jnp.zeros(2))
    kept = []

    @js.jit
    def f(x):
        v.value = v + x
        kept.append(v.value)
        return x

    f(jnp.ones(2))
    with pytest.raises(jax.errors.UnexpectedTracerError):
        kept[0] + 1.0
    f(jnp.ones(2))
    np.testing.assert_array_equal(v, [2, 2])


def test_writing_a_kept_tracer_into_a_box_is_no_trap():
    v, kept = js.Variable(jnp.zeros(2)), []
    js.jit(lambda x: kept.append(x * 2.0))(jnp.ones(2))

    @js.jit
    def f():
        v.value = kept[0]

    with pytest.raises(jax.errors.UnexpectedTracerError, match="kept from another trace"):
        f()
    np.testing.assert_array_equal(v, [0, 0])


def test_no_tracers_leak():
    state = State()
    with jax.checking_leaks():
        js.jit(functools.partial(train, fail=None))(*state.objects(), X)
        js.grad(lambda m: (m(X, rngs=state.rngs) ** 2).mean())(state.model)


def test_arguments_that_do_not_fit_change_nothing():
    state = State()
    step = js.jit(train)
    step(*state.objects(), X)
    before = state.values()
    with pytest.raises((TypeError, ValueError)):
        step(*state.objects(), np.ones((3, 5), np.float32))
    state.check(before)
    step(*state.objects(), X)
    assert int(state.optimizer.step_count) == 2
