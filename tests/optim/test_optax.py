"""Optimizers made of Optax's transformations, and those of ours that it has, too."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import checkpoint, optim
from jaxsaw.nn import Parameter
from tests.optim.cases import gradients, values

optax = pytest.importorskip("optax")

OPTAX = {
    "lion": (
        lambda p: optim.Lion(p, 1e-2, weight_decay=0.1),
        optax.lion(1e-2, weight_decay=0.1),
    ),
    "lamb": (
        lambda p: optim.Lamb(p, 1e-2, weight_decay=0.1),
        optax.lamb(1e-2, weight_decay=0.1),
    ),
    "adamw": (
        lambda p: optim.Optax(p, optax.adamw(1e-2, weight_decay=0.1)),
        optax.adamw(1e-2, weight_decay=0.1),
    ),
    "chain": (
        lambda p: optim.Optax(p, optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, 0.9))),
        optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, 0.9)),
    ),
}


@pytest.mark.parametrize("name", OPTAX)
def test_beside_optax(name):
    make, transformation = OPTAX[name]
    params = [Parameter(jnp.asarray(v)) for v in values()]
    arrays = [jnp.asarray(v) for v in values()]
    optimizer, state = make(params), transformation.init(arrays)
    step = js.jit(lambda grads: optimizer.step(grads))

    @jax.jit
    def update(grads, state, arrays):
        updates, state = transformation.update(grads, state, arrays)
        return optax.apply_updates(arrays, updates), state

    for t in range(30):
        grads = [jnp.asarray(g) for g in gradients(t)]
        step(grads)
        with jax.numpy_dtype_promotion("standard"):  # which Optax relies on
            arrays, state = update(grads, state, arrays)
    for p, want in zip(params, arrays, strict=True):
        np.testing.assert_allclose(p, want, rtol=2e-5, atol=1e-6)
    assert step.trace_count == 1


def test_the_state_of_optax_is_saved(tmp_path):
    p = Parameter(jnp.ones(3))
    optimizer = optim.Optax([("w", p)], optax.adam(0.1))
    optimizer.step([jnp.ones(3)])
    checkpoint.save(tmp_path / "x.npz", optimizer=optimizer)
    state = copy.deepcopy(optimizer.state_dict())
    others = []
    for load in ("restore", "load_state_dict"):
        q = Parameter(p.value)
        other = optim.Optax([("w", q)], optax.adam(0.1))
        if load == "restore":
            checkpoint.restore(tmp_path / "x.npz", optimizer=other)
        else:
            other.load_state_dict(state)
        other.step([jnp.full(3, 0.5)])
        others.append((other, q))
    optimizer.step([jnp.full(3, 0.5)])
    for _, q in others:
        np.testing.assert_array_equal(q, p)
    optimizer.step([None])
    np.testing.assert_array_equal(others[0][1], p)
    with pytest.raises(RuntimeError, match="nothing was loaded. Missing or of another shape"):
        optimizer.load_state_dict({**state, "optax": {}})


def test_optax_refuses():
    p = Parameter(jnp.ones(3))
    with pytest.raises(TypeError, match="expected a transformation such as optax.adam"):
        optim.Optax([p], 0.1)
    with pytest.raises(ValueError, match="one group"):
        optim.Optax([{"params": [p]}, {"params": [Parameter(jnp.ones(1))]}], optax.sgd(0.1))
