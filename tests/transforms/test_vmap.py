"""js.vmap and stacks: lanes over objects that are mapped, shared, made inside or drawn from."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn, optim
from jaxsaw.nn import functional as F


def make_models(n=4):
    return [nn.Linear(2, 1, rngs=rngs) for rngs in js.Rngs(0).fork(n)]


def same(one, other, **kwargs):
    a, b = js.split(one)[1], js.split(other)[1]
    assert list(a) == list(b)
    for name in a:
        left, right = a[name], b[name]
        if jax.dtypes.issubdtype(left.dtype, jax.dtypes.prng_key):
            left, right = jax.random.key_data(left), jax.random.key_data(right)
        np.testing.assert_allclose(left, right, err_msg=name, **kwargs)


# Ensembles.


def test_a_stack_goes_back_to_its_objects():
    models = make_models()
    for one, other in zip(js.unstack(js.stack(models)), models, strict=True):
        same(one, other)
        assert js.split(one)[0] == js.split(other)[0]


def test_a_vmapped_constructor_makes_a_stack_of_what_the_constructor_makes():
    models = js.vmap(lambda rngs: nn.Linear(2, 1, rngs=rngs))(js.stack(js.Rngs(0).fork(4)))
    for one, other in zip(js.unstack(models), make_models(), strict=True):
        same(one, other)


def test_a_stack_of_pairs_keeps_them_connected():
    pairs = [(m, optim.Adam(m.parameters())) for m in make_models()]
    models, optimizers = js.stack(pairs)
    assert list(optimizers.state) == list(models.parameters())
    for model, optimizer in js.unstack((models, optimizers)):
        assert list(optimizer.state) == list(model.parameters())


@pytest.mark.parametrize("compiled", [False, True])
def test_eight_models_are_trained_in_one_step_as_each_alone(compiled):
    x, y = jnp.arange(6.0).reshape(3, 2), jnp.ones((3, 1))

    def step(model, optimizer, x, y):
        loss, grads = js.value_and_grad(lambda m: F.mse_loss(m(x), y))(model)
        optimizer.step(grads)
        return loss

    def init(rngs):
        model = nn.Linear(2, 1, rngs=rngs)
        return model, optim.Adam(model.parameters(), lr=0.1)

    models, optimizers = js.vmap(init)(js.stack(js.Rngs(0).fork(8)))
    all_at_once = js.vmap(step, in_axes=(0, 0, None, None))
    if compiled:
        all_at_once = js.jit(all_at_once)
    losses = [all_at_once(models, optimizers, x, y) for _ in range(3)]
    alone = [init(rngs) for rngs in js.Rngs(0).fork(8)]
    expected = [[step(*pair, x, y) for pair in alone] for _ in range(3)]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for one, (other, _) in zip(js.unstack(models), alone, strict=True):
        same(one, other, rtol=1e-5)
    assert optimizers.step_count.value.tolist() == [3] * 8


def test_axes_of_arguments_results_and_keywords():
    models = js.stack(make_models(3))
    x = jnp.arange(6.0).reshape(2, 3)

    def f(model, data, *, scale):
        return {"y": model(data["x"])[0] * scale, "model": model}, data["z"]

    out, z = js.vmap(f, in_axes=(0, {"x": 1, "z": None}), out_axes=({"y": 0, "model": 0}, None))(
        models, {"x": x, "z": 7.0}, scale=jnp.array([1.0, 2.0, 3.0])
    )
    expected = [m(x[:, i])[0] * (i + 1) for i, m in enumerate(js.unstack(models))]
    np.testing.assert_allclose(out["y"], expected, rtol=1e-6)
    assert out["model"] is models and float(z) == 7.0


def test_an_axis_other_than_the_first():
    box = js.Variable(jnp.arange(6.0).reshape(2, 3))

    def double(v, x):
        v.value = v * 2 + x
        return v.value

    out = js.vmap(double, in_axes=(1, 0), out_axes=1)(box, jnp.arange(3.0))
    expected = jnp.arange(6.0).reshape(2, 3) * 2 + jnp.arange(3.0)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(box, expected)


def test_a_closed_over_model_is_shared_and_its_state_keeps_its_shape():
    model = nn.Linear(2, 1, rngs=js.Rngs(0))
    x = jnp.arange(6.0).reshape(3, 2)
    np.testing.assert_allclose(js.vmap(lambda x: model(x))(x), model(x), rtol=1e-6)
    square = nn.Linear(2, 2, rngs=js.Rngs(0))  # an axis of the size of the batch stays what it is
    np.testing.assert_allclose(js.vmap(square)(x[:2]), square(x[:2]), rtol=1e-6)


def test_gradients_for_each_example():
    model = nn.Linear(2, 1, rngs=js.Rngs(0))
    x = jnp.arange(6.0).reshape(3, 2)
    loss = lambda m, x: (m(x) ** 2).sum()
    grads = js.jit(js.vmap(js.grad(loss), in_axes=(None, 0)))(model, x)
    assert list(grads) == ["weight", "bias"] and isinstance(grads, js.Grads)
    for i in range(3):
        one = js.grad(loss)(model, x[i])
        np.testing.assert_allclose(grads["weight"][i], one["weight"], rtol=1e-6)


def test_lanes_may_write_the_same_to_what_they_share():
    seen = js.Variable(jnp.zeros(()))

    def f(x):
        seen.value += 1
        seen.value += jax.lax.psum(x, "lanes")
        return x

    js.jit(js.vmap(f, axis_name="lanes"))(jnp.arange(4.0))
    assert float(seen) == 7


def test_batch_statistics_need_an_axis_name():
    norm = nn.BatchNorm1d(2)
    x = jax.random.normal(jax.random.key(0), (4, 3, 2))
    with pytest.raises(ValueError, match="lanes wrote different values to running_mean"):
        js.vmap(norm)(x)
    assert norm.running_mean.value.tolist() == [0, 0] and int(norm.num_batches_tracked) == 0
    mean = js.Variable(jnp.zeros(2))

    def f(x):
        mean.value = jax.lax.pmean(x.mean(0), "lanes")
        return x - mean

    out = js.vmap(f, axis_name="lanes")(x)
    np.testing.assert_allclose(out, x - x.mean((0, 1)), atol=1e-6)


def test_a_nested_vmap_maps_a_stack_of_stacks():
    grid = js.vmap(js.vmap(lambda rngs: nn.Linear(2, 1, rngs=rngs)))(
        js.stack([js.stack(rngs.fork(3)) for rngs in js.Rngs(0).fork(2)])
    )
    assert grid.weight.shape == (2, 3, 1, 2)
    x = jnp.ones(2)
    out = js.vmap(js.vmap(lambda m, x: m(x), in_axes=(0, None)), in_axes=(0, None))(grid, x)
    expected = [[m(x) for m in js.unstack(row)] for row in js.unstack(grid)]
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="no stack of them"):
        js.vmap(js.vmap(js.vmap(lambda m: m.weight.value)))(grid)


# Random streams.


def test_randomness_says_what_a_draw_from_a_shared_stream_means():
    rngs = js.Rngs(noise=3)
    draw = lambda x: jax.random.uniform(rngs.next("noise")) + x
    zeros = jnp.zeros(3)
    with pytest.raises(RuntimeError, match="noise.*randomness"):
        js.vmap(draw)(zeros)
    assert rngs.counts == {"noise": 0}
    same_key = js.vmap(draw, randomness="same")(zeros)
    key = js.Rngs(noise=3).next("noise")
    np.testing.assert_array_equal(same_key, [jax.random.uniform(key)] * 3)
    other_keys = js.jit(js.vmap(draw, randomness="different"))(zeros)
    key = jax.random.fold_in(jax.random.key(3), 1)
    expected = [jax.random.uniform(jax.random.fold_in(key, i)) for i in range(3)]
    np.testing.assert_array_equal(other_keys, expected)
    assert rngs.counts == {"noise": 2}


def test_a_mapped_stream_draws_in_each_lane_as_it_would_alone():
    children = js.Rngs(0, noise=1).fork(3)
    stacked = js.stack(children)
    out = js.jit(js.vmap(lambda r: jax.random.uniform(r.next("noise"))))(stacked)
    np.testing.assert_array_equal(out, [jax.random.uniform(c.next("noise")) for c in children])
    late = js.jit(js.vmap(lambda r: jax.random.uniform(r.next("late"))))  # derived inside
    for _ in range(2):
        expected = [jax.random.uniform(c.next("late")) for c in children]
        np.testing.assert_array_equal(late(stacked), expected)
    assert late.trace_count == 1
    assert stacked.counts == {"noise": [1, 1, 1], "late": [2, 2, 2]}
    for one, other in zip(js.unstack(stacked), children, strict=True):
        same(one, other)


def test_a_compiled_function_inside_knows_in_what_lanes_it_runs():
    rngs = js.Rngs(noise=3)
    draw = js.jit(lambda x: jax.random.uniform(rngs.next("noise")) + x)

    @js.jit
    def all_ways(x):
        alone = draw(0.0)
        return alone, js.vmap(draw, randomness="same")(x), js.vmap(draw, randomness="different")(x)

    _, one, other = all_ways(jnp.zeros(3))
    assert len(set(one.tolist())) == 1 and len(set(other.tolist())) == 3
    assert rngs.counts == {"noise": 3}

    @js.jit
    def refused(x):
        return draw(0.0), js.vmap(draw)(x)

    with pytest.raises(RuntimeError, match="randomness"):
        refused(jnp.zeros(3))
    assert rngs.counts == {"noise": 3}


# Errors, which leave everything as it was.


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda m, s: js.vmap(lambda m, x: m(x))(m, jnp.ones((3, 2))), r"in_axes=\(None, 0\)"),
        (lambda m, s: js.vmap(lambda m, x: x)(s, jnp.ones(4)), "weight has 3.*argument .1. has 4"),
        (lambda m, s: js.vmap(lambda x: x, in_axes=2)(jnp.ones(4)), "no axis 2"),
        (lambda m, s: js.vmap(lambda x: x, in_axes=None)(jnp.ones(4)), "no argument is mapped"),
        (lambda m, s: js.vmap(lambda a, b: a, in_axes=(0, None))(s, s), "weight.*axis 0.*None"),
        (lambda m, s: js.vmap(lambda a: a, in_axes=(0, 0))(s), "2 entries for 1"),
        (lambda m, s: js.vmap(lambda a: a.weight.value, out_axes=None)(s), "out_axes is None"),
        (lambda m, s: js.vmap(lambda a: a, randomness="some")(s), "randomness"),
        (lambda m, s: js.stack([m, nn.Linear(2, 2, rngs=js.Rngs(0))]), "object 1"),
        (lambda m, s: js.stack([m, copy.deepcopy(m).eval()]), "training"),
        (lambda m, s: js.stack([]), "at least one"),
        (lambda m, s: js.unstack(m), "isn't a stack"),
    ],
)
def test_what_does_not_fit_is_refused(call, text):
    model, stacked = nn.Linear(2, 1, rngs=js.Rngs(0)), js.stack(make_models(3))
    before = copy.deepcopy((model, stacked))
    with pytest.raises(ValueError, match=text):
        call(model, stacked)
    same(model, before[0])
    same(stacked, before[1])


def test_a_shared_box_that_lanes_write_differently_is_named_and_kept():
    model = nn.Sequential(nn.Linear(2, 2, rngs=js.Rngs(0)))

    def f(x):
        model[0].bias.value = x
        return x

    before = np.asarray(model[0].bias)
    for call in (js.vmap(f), js.jit(js.vmap(f))):
        with pytest.raises(ValueError, match=r"different values to 0\.bias.*js.stack"):
            call(jnp.ones((3, 2)))
        np.testing.assert_array_equal(model[0].bias, before)


def test_an_error_in_a_lane_changes_nothing():
    models, rngs = js.stack(make_models(3)), js.Rngs(0)

    def f(m):
        m.bias.value = m.bias + 1
        rngs.next("noise")
        raise KeyError("no")

    before = np.asarray(models.bias)
    with pytest.raises(KeyError):
        js.vmap(f, randomness="different")(models)
    np.testing.assert_array_equal(models.bias, before)
    assert rngs.counts == {}
