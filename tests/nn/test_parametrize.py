"""Computed parameters: parametrizations, pruning, and calls with other values."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn, optim
from jaxsaw.nn.utils import parametrizations, parametrize, prune, stateless

X = jnp.asarray(np.random.RandomState(0).randn(2, 3), jnp.float32)


class Double(nn.Module):
    def forward(self, x):
        return 2 * x


def layer(seed=0):
    return nn.Linear(3, 3, rngs=js.Rngs(seed))


def loss(model):
    return (model(X) ** 2).sum()


def step(model, optimizer):
    value, grads = js.value_and_grad(loss)(model)
    optimizer.step(grads)
    return value


KINDS = {
    "own": lambda m: parametrize.register_parametrization(m, "weight", Double()),
    "weight norm": parametrizations.weight_norm,
    "spectral norm": lambda m: parametrizations.spectral_norm(m, rngs=js.Rngs(1)),
    "orthogonal": parametrizations.orthogonal,
    "pruned": lambda m: prune.l1_unstructured(m, "weight", 4),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


@every_kind
def test_training_is_compiled_once_for_all_models(make):
    compiled = js.jit(step)
    eager, fast, other = make(layer()), make(layer()), make(layer(5))
    optimizers = [optim.SGD(m.parameters(), lr=0.1) for m in (eager, fast, other)]
    for _ in range(2):
        step(eager, optimizers[0])
        compiled(fast, optimizers[1])
        compiled(other, optimizers[2])
    assert compiled.trace_count == 1
    for name, value in eager.state_dict().items():
        np.testing.assert_allclose(fast.state_dict()[name], value, rtol=1e-4, atol=1e-5)


@every_kind
def test_copies_and_pickles(make):
    model = nn.Sequential(make(layer())).eval()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert repr(twin) == repr(model) and type(twin[0]) is type(model[0])
        np.testing.assert_array_equal(twin(X), model(X))
        for box in twin.parameters():
            box.value = box + 1
        assert (twin(X) != model(X)).any()


def test_the_optimizer_goes_on_with_the_same_parameter():
    model = layer()
    weight, before = model.weight, model(X)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    prune.identity(model, "weight")
    np.testing.assert_array_equal(model(X), before)
    step(model, optimizer)
    assert prune.remove(model, "weight").weight is weight
    assert (model(X) != before).any()


def test_what_is_pruned_gets_no_gradient():
    model = prune.custom_from_mask(layer(), "weight", jnp.eye(3))
    grads = js.grad(loss)(model)
    assert ((grads["weight_orig"] == 0) == (jnp.eye(3) == 0)).all()
    with pytest.raises(TypeError, match="is pruned: write weight_orig instead"):
        model.weight = jnp.ones((3, 3))
    with pytest.raises(ValueError, match="bias isn't pruned"):
        prune.remove(model, "bias")
    with pytest.raises(ValueError, match="at most 9, which are left, got 10"):
        prune.l1_unstructured(layer(), "weight", 10)
    with pytest.raises(ValueError, match=r"float in \[0, 1\], got 1\.5"):
        prune.l1_unstructured(layer(), "weight", 1.5)
    with pytest.raises(TypeError, match="pass rngs=js.Rngs"):
        prune.random_unstructured(layer(), "weight", 1)
    with pytest.raises(TypeError, match="expected an unstructured method"):
        prune.global_unstructured([], prune.LnStructured, amount=1, n=1)


def test_several_parametrizations_and_the_way_back():
    model = layer()
    weight, value = model.weight, model.weight.value
    for _ in range(2):
        parametrize.register_parametrization(model, "weight", Double())
    np.testing.assert_array_equal(model.weight, 4 * value)
    assert parametrize.is_parametrized(model) and not parametrize.is_parametrized(model, "bias")
    assert parametrize.type_before_parametrizations(model) is nn.Linear
    with pytest.raises(RuntimeError, match="Double has no right_inverse"):
        model.weight = value
    parametrize.remove_parametrizations(model, "weight", leave_parametrized=False)
    assert model.weight is weight and type(model) is nn.Linear
    np.testing.assert_array_equal(model.weight, value)
    with pytest.raises(ValueError, match=r"weight isn't parametrized"):
        parametrize.remove_parametrizations(model, "weight")


def test_one_computation_inside_of_cached():
    calls = []

    class Count(nn.Module):
        def forward(self, x):
            calls.append(1)
            return x

    model = parametrize.register_parametrization(layer(), "weight", Count(), unsafe=True)
    calls.clear()
    with parametrize.cached():
        model(X)
        model(X)
        assert len(calls) == 1
        js.jit(lambda m: m(X) + m(X))(model)
        model(X)
        assert len(calls) == 2
    model(X)
    assert len(calls) == 3


class Narrow(nn.Module):
    def forward(self, x):
        return x[:1]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda m: parametrize.register_parametrization(m, "weight", Narrow()),
            ValueError,
            r"Narrow\.forward: expected shape \(3, 3\) and dtype float32 to stay, got \(1, 3\)",
        ),
        (
            lambda m: parametrize.register_parametrization(m, "training", Double()),
            ValueError,
            "expected a Parameter or a Buffer to parametrize",
        ),
        (lambda m: parametrizations.weight_norm(m, "wrong"), ValueError, "to be a Parameter"),
        (lambda m: parametrizations.orthogonal(m, "bias"), ValueError, "2 axes or more"),
        (lambda m: parametrizations.orthogonal(m, "weight", "polar"), ValueError, "'polar'"),
        (lambda m: parametrizations.spectral_norm(m), TypeError, "pass rngs=js.Rngs"),
        (lambda m: parametrizations.spectral_norm(m, dim=2), IndexError, r"dim in \[-2, 1\]"),
        (lambda m: parametrizations.spectral_norm(m, n_power_iterations=0), ValueError, "above 0"),
        (lambda m: nn.utils.fuse_linear_bn_eval(m, nn.BatchNorm1d(3)), ValueError, "evaluation"),
        (lambda m: nn.utils.fuse_linear_bn_eval(m, nn.BatchNorm1d(2)), ValueError, "3 features"),
        (lambda m: nn.utils.clip_grad_norm_(m.parameters(), 1.0), RuntimeError, "optim.clip_grad"),
        (lambda m: nn.utils.get_total_norm([jnp.inf], 2.0, True), RuntimeError, "isn't finite"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, text):
    model = layer()
    before = dict(model.state_dict())
    with pytest.raises(error, match=text):
        call(model)
    assert type(model) is nn.Linear
    for name, value in before.items():
        np.testing.assert_array_equal(model.state_dict()[name], value)


def test_functional_call():
    model = nn.Sequential(nn.Linear(3, 2, rngs=js.Rngs(0)), nn.BatchNorm1d(2))
    state = {name: value + 1 for name, value in model.state_dict().items()}
    before = dict(model.state_dict())
    call = jax.jit(lambda state, x: stateless.functional_call(model, state, (x,), strict=True))
    assert call(state, X).shape == (2, 2)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    del state["1.running_mean"]
    with pytest.raises(RuntimeError, match=r"missing: \['1\.running_mean'\]"):
        stateless.functional_call(model, state, X, strict=True)
    stateless.functional_call(model, state, X)
    assert (model[1].running_mean.value != 0).all()
    assert int(model[1].num_batches_tracked) == 0
    with pytest.raises(ValueError, match=r"expected 0\.bias \(2,\), got \(3,\)"):
        stateless.functional_call(model, {"0.bias": jnp.ones(3)}, X)
