"""What js.jit refuses, and what it says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn, optim


class Counter(js.Stateful):
    def __init__(self):
        self.total = js.Variable(jnp.zeros(3))
        self.calls = 0
        self.names = ["a"]


class Holder(js.Stateful):
    def __init__(self):
        self.inner = Counter()


@pytest.mark.parametrize(
    "value, shown", [("mean", "'mean'"), (len, "len"), (object(), "object"), (np.array("a"), "a")]
)
def test_arguments_that_can_not_be_traced_are_refused_by_name(value, shown):
    @js.jit
    def reduce(x, mode):
        return x

    for call in (lambda: reduce(jnp.ones(3), value), lambda: reduce(jnp.ones(3), mode=value)):
        with pytest.raises(
            TypeError, match="(?s)argument mode of .*reduce.*static_argnames='mode'"
        ):
            call()
    with pytest.raises(TypeError, match=shown):
        reduce(jnp.ones(3), value)


def test_an_argument_inside_a_tree_is_named_with_its_place():
    f = js.jit(lambda tree: tree["x"])
    with pytest.raises(TypeError, match=r"tree\['mode'\]\[1\]"):
        f({"x": jnp.ones(3), "mode": [1, "mean"]})


def test_a_refused_argument_after_a_good_call_is_named_too():
    f = js.jit(lambda x, mode=None: x)
    f(jnp.ones(3), jnp.ones(3))
    with pytest.raises(TypeError, match="argument mode"):
        f(jnp.ones(3), "mean")
    f(jnp.ones(3), jnp.ones(3))
    assert f.trace_count == 1


def test_an_unhashable_static_argument_is_refused():
    f = js.jit(lambda x, n: x, static_argnames="n")
    with pytest.raises(ValueError, match="static argument .* must be hashable, got list"):
        f(jnp.ones(3), [1])


def test_an_unknown_static_name_is_refused_at_once():
    with pytest.raises(ValueError, match="no argument 'm'"):
        js.jit(lambda x, n: x, static_argnames="m")


def test_generators_coroutines_and_what_is_not_callable_are_refused():
    def generator():
        yield 1

    async def coroutine():
        return 1

    for fn in (generator, coroutine):
        with pytest.raises(TypeError, match="ordinary functions"):
            js.jit(fn)
    with pytest.raises(TypeError, match="takes a callable, got 3"):
        js.jit(3)


def test_a_missing_argument_is_pythons_error():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        js.jit(lambda x, y: x)(jnp.ones(3))


def test_a_result_that_is_no_array_is_refused():
    for value in ("text", object(), len):
        with pytest.raises(TypeError, match="A traced function returned"):
            js.jit(lambda value=value: value)()


def test_assigning_a_plain_attribute_of_an_existing_object_names_it():
    holder = Holder()

    @js.jit
    def f(h):
        h.inner.calls += 1

    with pytest.raises(RuntimeError, match="inner.calls was assigned inside a traced.*Variable"):
        f(holder)
    assert holder.inner.calls == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.names.append("b"),
        lambda c: c.names.__setitem__(0, "b"),
        lambda c: setattr(c, "cache", c.total.value),
        lambda c: setattr(c, "new", 1),
        lambda c: delattr(c, "calls"),
        lambda c: setattr(c, "total", js.Variable(jnp.ones(3))),
    ],
    ids=["append", "item", "tracer", "new", "del", "box"],
)
def test_every_change_of_a_static_attribute_inside_is_an_error(change):
    counter = Counter()
    with pytest.raises(RuntimeError, match="assigned inside a traced function"):
        js.jit(lambda c: change(c))(counter)
    assert (counter.calls, counter.names, len(vars(counter))) == (0, ["a"], 3)
    np.testing.assert_array_equal(counter.total, np.zeros(3))


def test_assigning_an_equal_value_inside_is_no_error():
    model = nn.Sequential(nn.Linear(2, 2, rngs=js.Rngs(0)), nn.Dropout(0.5)).eval()
    counter = Counter()

    @js.jit
    def f(x):
        model.eval()
        counter.calls = 0
        counter.names = ["a"]
        return model(x)

    assert f(jnp.ones((1, 2))).shape == (1, 2)
    with pytest.raises(RuntimeError, match="training was assigned inside"):
        js.jit(lambda x: model.train()(x))(jnp.ones((1, 2)))
    assert not model.training and not model[1].training


def test_objects_made_inside_are_free():
    @js.jit
    def f(x):
        counter = Counter()
        counter.calls += 1
        counter.names.append("b")
        counter.extra = nn.Linear(3, 3, rngs=js.Rngs(0))
        counter.total.value = x
        return counter.extra(counter.total)

    assert f(jnp.ones(3)).shape == (3,)


def test_freezing_inside_is_an_error():
    model = nn.Linear(2, 2, rngs=js.Rngs(0))
    with pytest.raises(RuntimeError, match="weight.requires_grad was changed inside"):
        js.jit(lambda m: setattr(m.weight, "requires_grad", False))(model)
    assert model.weight.requires_grad


def test_writing_inside_a_raw_transform_names_the_variable():
    holder = Holder()

    def write(x):
        holder.inner.total += x
        return x.sum()

    raw = {
        "jit": lambda: jax.jit(write)(jnp.ones(3)),
        "grad": lambda: jax.grad(write)(jnp.ones(3)),
        "vmap": lambda: jax.vmap(write)(jnp.ones((2, 3))),
        "scan": lambda: jax.lax.scan(lambda c, x: (c, write(x)), 0, jnp.ones((2, 3))),
        "cond": lambda: jax.lax.cond(True, write, write, jnp.ones(3)),
    }
    for name, call in raw.items():
        for how in (call, js.jit(call)):
            with pytest.raises(TypeError, match="inner.total was written inside a raw jax"):
                how()
            np.testing.assert_array_equal(holder.inner.total, np.zeros(3), name)


@pytest.mark.parametrize("transform", [js.grad, js.jit], ids=["grad", "jit"])
def test_a_js_transform_inside_a_raw_one_may_not_write_either(transform):
    holder = Holder()

    def write(x):
        holder.inner.total += x
        return x.sum()

    with pytest.raises(TypeError, match="inner.total was written inside a raw jax"):
        jax.vmap(lambda x: transform(write)(x))(jnp.ones((2, 3)))
    np.testing.assert_array_equal(holder.inner.total, np.zeros(3))


@pytest.mark.parametrize(
    "raw",
    [jax.jit, jax.grad, jax.vmap, lambda f: lambda m: jax.tree.map(f, m)],
    ids=["jit", "grad", "vmap", "tree"],
)
def test_a_module_in_a_raw_transform_is_a_clear_error(raw):
    model = nn.Sequential(nn.Linear(2, 2, rngs=js.Rngs(0)))
    with pytest.raises(TypeError, match="Sequential.*raw jax transform.*js.jit.*js.split"):
        raw(lambda m: m)(model)
    with pytest.raises(TypeError, match=r"0 \(Linear\) went into"):
        raw(lambda m: m)({"layer": model[0]})


def test_gradients_of_another_model_are_refused_in_a_cached_call_too():
    models = [nn.Linear(2, 1, rngs=js.Rngs(i)) for i in range(2)]
    optimizers = [optim.SGD(m.parameters(), lr=0.1) for m in models]
    grads = [js.grad(lambda m: m(jnp.ones((1, 2))).sum())(m) for m in models]
    step = js.jit(lambda m, o, g: o.step(g))
    for n in range(2):
        step(models[n], optimizers[n], grads[n])
    assert step.trace_count == 1
    before = models[0].weight.value
    for call in (step, step.__wrapped__):
        with pytest.raises(ValueError, match="weight"):
            call(models[0], optimizers[0], grads[1])
    np.testing.assert_array_equal(models[0].weight, before)


def test_a_box_from_a_trace_that_has_ended_says_so():
    leaked = []
    js.jit(lambda: leaked.append(nn.Linear(2, 2, rngs=js.Rngs(0))))()
    with pytest.raises(RuntimeError, match="weight was made inside a trace that has ended"):
        leaked[0].weight.value  # noqa: B018


def test_a_box_can_not_be_made_inside_a_raw_transform():
    with pytest.raises(TypeError, match="Variable can't be made inside a raw jax transform"):
        jax.jit(lambda x: js.Variable(x).value)(jnp.ones(3))


def test_python_control_flow_on_state_is_jaxs_error():
    counter = Counter()
    with pytest.raises(jax.errors.TracerBoolConversionError):
        js.jit(lambda c: 1 if c.total.sum() > 0 else 2)(counter)


def test_a_stream_that_does_not_exist_lists_those_that_do():
    rngs = js.Rngs(params=0)
    with pytest.raises(KeyError, match=r"no stream 'dropout' \(it has: params\)"):
        js.jit(lambda rngs: rngs.next("dropout"))(rngs)
    assert rngs.counts == {"params": 0}


def test_repr_names_the_function():
    def step(x):
        return x

    assert repr(js.jit(step)).endswith("step>")
    assert "js.jit" in repr(js.jit(step))
