"""js.jit among other things: callbacks, late state, plain objects, results that can't be built."""

import threading
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import jaxsaw as js
from jaxsaw import checkpoint, nn, optim

X = jnp.ones((8, 4))


def line(seed):
    return nn.Linear(4, 1, rngs=js.Rngs(seed))


class Plain:
    def __init__(self):
        self.model = line(0)
        self.ema = None

    @js.jit(static_argnums=2)
    def by_position(self, x, text):
        return self.model(x) * len(text)

    @js.jit(static_argnames="text")
    def by_name(self, x, text):
        return self.model(x) * len(text)

    @js.jit
    def smoothed(self, x):
        return self.model(x) if self.ema is None else self.ema(x)


def test_a_result_that_cannot_be_copied_is_refused_when_tracing_and_nothing_changes():
    class Locked(nn.Module):
        def __init__(self):
            super().__init__()
            self.lock = threading.Lock()

    count = js.Variable(jnp.zeros(()))

    @js.jit
    def make(x):
        count.value += x
        return Locked()

    for _ in range(3):
        with pytest.raises(TypeError, match=r"returned a Locked .* can't be copied"):
            make(1.0)
    assert float(count) == 0


def test_a_result_whose_container_fails_leaves_whole_arrays():
    broken = [False]

    @jax.tree_util.register_pytree_node_class
    class Box:
        def __init__(self, value):
            self.value = value

        def tree_flatten(self):
            return (self.value,), None

        @classmethod
        def tree_unflatten(cls, aux, children):
            if broken[0]:
                raise ValueError("broken")
            return cls(*children)

    count = js.Variable.own(jnp.zeros(3))

    @js.jit
    def step(x):
        count.value += x
        return Box(count * 2)

    step(1.0)
    assert step(1.0).value.tolist() == [4, 4, 4]
    broken[0] = True
    with pytest.raises(ValueError, match="broken"):
        step(1.0)
    assert np.isfinite(np.asarray(count)).all()


def test_a_callback_may_read_evaluate_and_save_what_its_step_changes(tmp_path):
    model = line(0)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    evaluate = js.jit(lambda m: m(X).sum())
    before, seen = float(evaluate(model)), []

    @js.jit
    def step(model, optimizer):
        def report(loss):
            seen.append(float(evaluate(model)))
            checkpoint.save(tmp_path / "inside.npz", model=model)

        loss, grads = js.value_and_grad(lambda m: (m(X) ** 2).mean())(model)
        optimizer.step(grads)
        io_callback(report, None, loss)

    step(model, optimizer)
    assert seen == [before]
    assert float(evaluate(model)) != before
    checkpoint.restore(tmp_path / "inside.npz", model=model)
    assert float(evaluate(model)) == before


teacher = None


def test_a_global_that_held_nothing_is_seen_when_a_model_comes_to_stand_there():
    global teacher

    @js.jit
    def f(x):
        return x.sum() if teacher is None else teacher(x).sum()

    assert float(f(X)) == 32
    for seed in (0, 1):
        teacher = line(seed)
        for x in (X, X[:4]):
            assert np.allclose(f(x), teacher(x).sum())
    teacher = None


def test_an_attribute_of_a_plain_object_may_become_a_model():
    plain = Plain()
    assert np.allclose(plain.smoothed(X), plain.model(X))
    for seed in (1, 2):
        plain.ema = line(seed)
        assert np.allclose(plain.smoothed(X), plain.ema(X))


def test_static_arguments_of_methods_of_plain_classes():
    plain = Plain()
    for _ in range(2):
        assert np.allclose(plain.by_position(X, "ab"), 2 * plain.model(X))
        assert np.allclose(plain.by_name(X, "abc"), 3 * plain.model(X))
    assert plain.by_position.trace_count == plain.by_name.trace_count == 1


def test_a_bound_method_keeps_its_plain_object():
    expected = line(0)(X)
    assert np.allclose(Plain().smoothed(X), expected)
    method = Plain().smoothed
    assert np.allclose(method(X), expected)


def test_a_namespace_is_looked_into():
    space = types.SimpleNamespace(model=line(0))
    f = js.jit(lambda x: space.model(x))
    assert np.allclose(f(X), space.model(X))
    space.model = line(1)
    assert np.allclose(f(X), space.model(X))
    assert f.trace_count == 1


def test_gradients_of_many_eager_calls_are_one_kind_of_argument():
    model = line(0)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    apply = js.jit(lambda optimizer, grads: optimizer.step(grads))
    for _ in range(5):
        apply(optimizer, js.grad(lambda m: (m(X) ** 2).mean())(model))
    assert apply.trace_count == 1
    assert len(apply._bindings) == 1


def test_an_interrupted_reader_does_not_stop_later_writers():
    model = line(0)
    read = js.jit(lambda m: m(X).sum())
    read(model)
    for box in model.parameters():
        box._place[0].readers.add(threading.get_ident())

    @js.jit
    def write(m):
        m.weight.value *= 2

    before = np.asarray(model.weight)
    write(model)
    assert np.allclose(model.weight, 2 * before)
