"""Each family: its formula, and what its constructor refuses."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import checkpoint, nn, optim
from jaxsaw.nn import Parameter


def parameter():
    return Parameter(jnp.array([1.0, -2.0, 3.0]))


def gradient(t):
    return np.float32([0.5, -1.0, 1e-3]) * np.float32(t + 1)


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda p: optim.SGD(p, lr=-1.0), "SGD: lr must be at least 0, got -1.0"),
        (lambda p: optim.SGD(p, momentum=-1), "SGD: momentum must be at least 0"),
        (lambda p: optim.SGD(p, weight_decay=-1), "SGD: weight_decay must be at least 0"),
        (lambda p: optim.SGD(p, nesterov=True), "nesterov needs momentum > 0"),
        (lambda p: optim.SGD(p, 0.1, 0.9, 0.1, nesterov=True), "nesterov .* dampening=0.1"),
        (lambda p: optim.SGD(p, lr=np.ones(2)), "SGD: lr must be a single number"),
        (lambda p: optim.Adam(p, lr=-1e-3), "Adam: lr must be at least 0"),
        (lambda p: optim.Adam(p, lr=float("nan")), "Adam: lr must be at least 0, got nan"),
        (lambda p: optim.Adam(p, eps=-1.0), "Adam: eps must be at least 0"),
        (
            lambda p: optim.Adam(p, betas=(1.0, 0.9)),
            r"Adam: betas\[0\] must be .* below 1, got 1.0",
        ),
        (lambda p: optim.Adam(p, betas=(0.9, -0.1)), r"Adam: betas\[1\] must be"),
        (lambda p: optim.AdamW(p, weight_decay=-0.1), "AdamW: weight_decay must be at least 0"),
    ],
)
def test_refused_values(make, text):
    with pytest.raises(ValueError, match=text):
        make([parameter()])


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda p: optim.SGD(p, lr="0.1"), TypeError, "SGD: lr must be a number, got '0.1'"),
        (lambda p: optim.Adam(p, betas=0.9), TypeError, "Adam: betas must be two numbers, got 0.9"),
        (lambda p: optim.Adam(p, fused=True, foreach=True), RuntimeError, "fused and foreach"),
        (lambda p: optim.SGD(p, fused=True, differentiable=True), RuntimeError, "fused and diff"),
    ],
)
def test_refused_kinds(make, error, text):
    with pytest.raises(error, match=text):
        make([parameter()])


def run(optimizer, p, n=5):
    for t in range(n):
        optimizer.step([jnp.asarray(gradient(t))])
    return np.asarray(p, np.float64)


def test_adam_is_its_formula():
    p = parameter()
    x, m, v, largest = np.asarray(p, np.float64), 0.0, 0.0, 0.0
    for t in range(5):
        g = -gradient(t).astype(np.float64) * (1 - t / 3) + 0.1 * x
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        largest = np.maximum(largest, v)
        x = x - 0.01 / (1 - 0.9 ** (t + 1)) * m / (
            np.sqrt(largest) / np.sqrt(1 - 0.999 ** (t + 1)) + 1e-4
        )
    optimizer = optim.Adam([p], 0.01, eps=1e-4, weight_decay=0.1, amsgrad=True, maximize=True)
    for t in range(5):
        optimizer.step([jnp.asarray(gradient(t) * np.float32(1 - t / 3))])
    np.testing.assert_allclose(p, x, rtol=1e-6)
    np.testing.assert_allclose(optimizer.state[p]["max_exp_avg_sq"], largest, rtol=1e-5)


def test_the_first_step_of_adam_is_exact():
    """1 - float32(0.999) is off by 1e-5, which the second moment would show."""
    p = parameter()
    optimizer = optim.Adam([p])
    optimizer.step([jnp.ones(3)])
    np.testing.assert_array_equal(optimizer.state[p]["exp_avg_sq"], np.full(3, np.float32(0.001)))
    np.testing.assert_allclose(optimizer.state[p]["exp_avg"], 0.1, rtol=1e-7)


def test_adamw_decays_apart_from_the_gradient():
    p = parameter()
    start = np.asarray(p)
    optim.AdamW([p], lr=0.1, weight_decay=0.5).step([jnp.zeros(3)])
    np.testing.assert_allclose(p, start * 0.95, rtol=1e-7)


def test_sgd_is_its_formula():
    for nesterov, dampening in ((False, 0.0), (False, 0.25), (True, 0.0)):
        p = parameter()
        x, buffer = np.asarray(p, np.float64), None
        for t in range(5):
            g = gradient(t) + 0.1 * x
            buffer = g if buffer is None else 0.9 * buffer + (1 - dampening) * g
            x = x - 0.05 * (g + 0.9 * buffer if nesterov else buffer)
        got = run(optim.SGD([p], 0.05, 0.9, dampening, 0.1, nesterov), p)
        np.testing.assert_allclose(got, x, rtol=1e-6)


def test_plain_sgd_keeps_no_arrays():
    p = parameter()
    assert run(optim.SGD([p], lr=1.0), p, n=1).tolist() == [0.5, -1.0, np.float32(2.999)]
    assert optim.SGD([p]).state[p] == {}


@pytest.mark.parametrize("value", [jnp.float32(0.1), np.float64(0.1), jnp.ones(1) * 0.1])
def test_scalars_of_any_kind_are_learning_rates(value):
    p = parameter()
    optimizer = optim.SGD([p], lr=value)
    assert optimizer.param_groups[0]["lr"].shape == ()
    assert float(optimizer.param_groups[0]["lr"]) == 0.1


EVERY = {
    "adadelta": lambda p: optim.Adadelta(p),
    "adafactor": lambda p: optim.Adafactor(p, eps=(1e-6, 1e-3)),
    "adagrad": lambda p: optim.Adagrad(p),
    "adamax": lambda p: optim.Adamax(p),
    "asgd": lambda p: optim.ASGD(p),
    "lamb": lambda p: optim.Lamb(p),
    "lion": lambda p: optim.Lion(p),
    "muon": lambda p: optim.Muon(p),
    "nadam": lambda p: optim.NAdam(p),
    "radam": lambda p: optim.RAdam(p),
    "rmsprop": lambda p: optim.RMSprop(p, momentum=0.9, centered=True),
    "rprop": lambda p: optim.Rprop(p),
    "sparse adam": lambda p: optim.SparseAdam(p),
}


@pytest.mark.parametrize("name", EVERY)
def test_any_number_may_change_and_a_checkpoint_holds_all(name, tmp_path):
    make = EVERY[name]
    build = lambda: [("a", Parameter(jnp.ones((3, 2)))), ("b", Parameter(jnp.full((2, 2), 0.5)))]
    params, twins = build(), build()
    optimizer, other = make(params), make(twins)
    step = js.jit(lambda o, *grads: o.step(list(grads)))
    grads = [jnp.full((3, 2), 0.3), jnp.full((2, 2), -2.0)]
    step(optimizer, *grads)
    group = optimizer.param_groups[0]
    for key, value in group.numbers().items():
        if group.is_boxed(key):
            smaller = lambda x: 0.9 * x
            group[key] = tuple(map(smaller, value)) if isinstance(value, tuple) else smaller(value)
    step(optimizer, *grads)
    if name in ("nadam", "asgd"):  # whose state has scalars
        optimizer.step([None, grads[1]])
    names = ("params", "optimizer")
    objects = lambda o, pairs: dict(zip(names, (nn.ParameterDict(dict(pairs)), o), strict=True))
    checkpoint.save(tmp_path / "x.npz", **objects(optimizer, params))
    checkpoint.restore(tmp_path / "x.npz", **objects(other, twins))
    step(optimizer, *grads)
    step(other, *grads)
    for (_, p), (_, q) in zip(params, twins, strict=True):
        np.testing.assert_array_equal(p, q)
        assert np.isfinite(np.asarray(p)).all() and not np.array_equal(p, build()[0][1][0])
    assert step.trace_count == (2 if name in ("nadam", "asgd") else 1)  # without and with lags


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda p: optim.Muon([p]), "Muon: only Parameters with two axes .* has shape .3,."),
        (lambda p: optim.Muon([p], ns_steps=100), "ns_steps must be below 100"),
        (lambda p: optim.Adadelta([p], rho=2.0), "rho must be between 0 and 1, got 2.0"),
        (lambda p: optim.Rprop([p], etas=(0.5, 0.9)), "etas must be 0 < etas.0. < 1 < etas.1."),
        (lambda p: optim.SparseAdam([p], lr=0), "SparseAdam: lr must be above 0, got 0"),
        (lambda p: optim.Lion([p], betas=(0.9, 1.0)), r"Lion: betas\[1\] must be"),
        (lambda p: optim.Lamb([p], eps=-1.0), "Lamb: eps must be at least 0"),
    ],
)
def test_refused_values_of_other_families(make, text):
    with pytest.raises(ValueError, match=text):
        make(parameter())


@pytest.mark.parametrize("name", ["Adafactor", "Muon", "SparseAdam", "LBFGS"])
def test_complex_parameters_that_are_refused(name):
    with pytest.raises(ValueError, match=f"{name}: .* is complex. Train its real and imaginary"):
        getattr(optim, name)([Parameter(jnp.ones((2, 2), jnp.complex64))])
