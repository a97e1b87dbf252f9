"""Raw JAX inside jaxsaw and around it, and libraries that know pytrees of arrays only."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.nn import functional as F

X = jax.random.normal(jax.random.key(0), (4, 2))


def make_model():
    first, last = nn.Linear(2, 3, rngs=js.Rngs(0)), nn.Linear(3, 1, rngs=js.Rngs(1))
    return nn.Sequential(first, nn.Tanh(), last)


def shard_map(f):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    spec = jax.sharding.PartitionSpec("data")
    run = getattr(jax, "shard_map", None)
    if run is None:
        from jax.experimental.shard_map import shard_map as run
    return run(f, mesh=mesh, in_specs=spec, out_specs=spec)


RAW = {
    "vmap": lambda f: jax.vmap(f),
    "grad": lambda f: lambda x: jax.grad(lambda x: f(x).sum())(x),
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, x: (c, f(x)), 0, x)[1],
    "checkpoint": lambda f: jax.checkpoint(f),
    "shard_map": shard_map,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x,))[1],
    "map": lambda f: lambda x: jax.lax.map(f, x),
    "cond": lambda f: lambda x: jax.lax.cond(True, f, lambda x: f(x) * 2, x),
    "jit": lambda f: jax.jit(f),
}


@pytest.mark.parametrize("raw", RAW)
def test_a_raw_transform_inside_may_read(raw):
    model = make_model()
    frozen, arrays = js.split(model)
    ours = js.jit(lambda m, x: RAW[raw](lambda x: m(x))(x))(model, X)
    theirs = RAW[raw](lambda x: js.merge(frozen, arrays)(x))(X)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    model[0].weight.value = model[0].weight * 2  # which is read afresh
    assert not np.allclose(js.jit(lambda m, x: RAW[raw](lambda x: m(x))(x))(model, X), theirs)


@pytest.mark.parametrize("raw", RAW)
@pytest.mark.parametrize("around", [js.jit, lambda f: f, js.vmap, js.remat])
def test_a_raw_transform_inside_that_writes_is_refused_by_name(raw, around):
    model = nn.Sequential(nn.BatchNorm1d(2))

    def write(x):
        model[0].running_mean.value = x.reshape(-1)[:2] * 1.0
        return x

    before = np.asarray(model[0].running_mean)
    x = jnp.stack([X, X]) if around is js.vmap else X
    with pytest.raises(TypeError, match=r"0\.running_mean was written inside a raw jax transform"):
        around(RAW[raw](write))(x)
    np.testing.assert_array_equal(model[0].running_mean, before)


@pytest.mark.parametrize("raw", RAW)
def test_compiled_functions_of_arrays_run_inside_raw_transforms(raw):
    model = make_model()
    f = js.jit(lambda x: js.vmap(model)(jnp.stack([x, x])).sum(0))
    ours, theirs = RAW[raw](f)(X), RAW[raw](lambda x: 2 * model(x))(X)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "wrap", [js.jit, js.remat, js.vmap, lambda f: lambda x: js.jvp(f, (x,), (x,))[0]]
)
def test_transforms_of_arrays_work_without_any_state(wrap):
    np.testing.assert_allclose(wrap(jnp.sin)(X), jnp.sin(X), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(wrap(jnp.sin))(X), jnp.sin(X), rtol=1e-6)


def test_a_step_with_optax_over_split_and_merge():
    optax = pytest.importorskip("optax")
    frozen, params = js.split(make_model())
    tx = optax.adam(1e-2)

    @functools.partial(jax.jit, static_argnums=0)
    @jax.numpy_dtype_promotion("standard")  # which Optax relies on
    def step(frozen, params, state):
        loss = lambda params: F.mse_loss(js.merge(frozen, params)(X), jnp.ones((4, 1)))
        value, grads = jax.value_and_grad(loss)(params)
        updates, state = tx.update(grads, state)
        return value, optax.apply_updates(params, updates), state

    state = tx.init(params)
    losses = []
    for _ in range(50):
        value, params, state = step(frozen, params, state)
        losses.append(float(value))
    assert losses[-1] < 0.5 * losses[0] and step._cache_size() == 1


def test_a_solver_of_the_ecosystem_fits_a_model():
    optimistix = pytest.importorskip("optimistix")
    frozen, params = js.split(make_model())
    y = jnp.sin(X.sum(-1, keepdims=True))

    def residuals(params, _):
        return js.merge(frozen, params)(X) - y

    solver = optimistix.LevenbergMarquardt(rtol=1e-4, atol=1e-4)
    with jax.numpy_dtype_promotion("standard"):
        found = optimistix.least_squares(residuals, solver, params, max_steps=50, throw=False)
    assert float((residuals(found.value, None) ** 2).sum()) < 1e-3
    assert float((residuals(params, None) ** 2).sum()) > 0.1
