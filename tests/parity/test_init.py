"""``nn.init`` writes PyTorch's values, or draws from its distributions."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import init
from jaxsaw.rngs import Rngs
from jaxsaw.state.variable import Variable
from tests.parity.oracle import torch

theirs = torch.nn.init
NONLINEARITIES = [
    *(f"conv{n}d" for n in (1, 2, 3)),
    *(f"conv_transpose{n}d" for n in (1, 2, 3)),
    *("linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu"),
]


def zeros(*shape, dtype=jnp.float32):
    return Variable(jnp.zeros(shape, dtype))


@pytest.mark.parametrize(
    ("name", "param"),
    [
        *(
            (n, None)
            for n in "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d".split()
        ),
        *((n, None) for n in "conv_transpose3d sigmoid tanh relu leaky_relu selu".split()),
        ("leaky_relu", 0.2),
        ("leaky_relu", math.sqrt(5)),
        ("leaky_relu", 1),
    ],
)
def test_gain(name, param):
    assert init.calculate_gain(name, param) == theirs.calculate_gain(name, param)


@pytest.mark.parametrize(
    ("name", "shape", "kwargs"),
    [
        ("constant_", (2, 3), {"val": 0.3}),
        ("ones_", (2,), {}),
        ("zeros_", (), {}),
        ("eye_", (3, 3), {}),
        ("eye_", (2, 4), {}),
        ("eye_", (4, 2), {}),
        ("dirac_", (4, 3, 3), {}),
        ("dirac_", (3, 4, 2, 5), {}),
        ("dirac_", (6, 2, 3, 3), {"groups": 3}),
        ("dirac_", (4, 4, 3, 1, 2), {"groups": 2}),
        ("normal_", (2, 3), {"mean": 2.0, "std": 0.0}),
    ],
)
def test_what_is_determined(name, shape, kwargs):
    box = Variable(jnp.full(shape, 7.0))
    draws = {"rngs": Rngs(0)} if name == "normal_" else {}
    assert getattr(init, name)(box, **kwargs, **draws) is box
    expected = getattr(theirs, name)(torch.full(shape, 7.0), **kwargs)
    np.testing.assert_array_equal(box.value, expected.numpy())
    assert box.dtype == jnp.float32


@pytest.mark.parametrize("shape", [(150, 200), (20, 30, 5, 5)])
@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("uniform_", {"a": -1.0, "b": 3.0}),
        ("normal_", {"mean": 1.0, "std": 2.0}),
        ("trunc_normal_", {}),
        ("trunc_normal_", {"mean": 0.5, "std": 0.7, "a": -0.1, "b": 0.6}),
        ("trunc_normal_", {"mean": 0.0, "std": 0.02}),
        ("xavier_uniform_", {}),
        ("xavier_uniform_", {"gain": 2.0}),
        ("xavier_normal_", {}),
        ("kaiming_uniform_", {}),
        ("kaiming_uniform_", {"a": math.sqrt(5)}),
        ("kaiming_uniform_", {"mode": "fan_out", "nonlinearity": "relu"}),
        ("kaiming_normal_", {}),
        ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "tanh"}),
        ("orthogonal_", {"gain": 3.0}),
    ],
)
def test_distribution(name, kwargs, shape):
    ours = getattr(init, name)(zeros(*shape), **kwargs, rngs=Rngs(params=1))
    torch.manual_seed(1)
    x, y = np.asarray(ours.value).ravel(), getattr(theirs, name)(torch.zeros(shape), **kwargs)
    y = y.numpy().ravel()
    spread = y.std()
    assert abs(x.mean() - y.mean()) < 0.05 * spread
    assert abs(x.std() / spread - 1) < 0.03
    # Quantiles tell uniform from normal, and the extremes where a distribution has an end.
    q = np.linspace(0.05, 0.95, 19)
    np.testing.assert_allclose(np.quantile(x, q), np.quantile(y, q), atol=0.06 * spread)
    if "uniform" in name or name == "trunc_normal_":
        np.testing.assert_allclose([x.min(), x.max()], [y.min(), y.max()], atol=0.9 * spread)
        if "std" not in kwargs or kwargs["std"] != 0.02:
            np.testing.assert_allclose([x.min(), x.max()], [y.min(), y.max()], atol=0.02 * spread)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (4, 3, 2), (5, 5)])
def test_orthogonal(shape):
    w = init.orthogonal_(zeros(*shape), gain=2.0, rngs=Rngs(params=0)).value
    w = np.asarray(w).reshape(shape[0], -1)
    small = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


@pytest.mark.parametrize("sparsity", [0.0, 0.1, 0.5, 1.0])
def test_sparse(sparsity):
    ours = init.sparse_(zeros(50, 40), sparsity, std=0.1, rngs=Rngs(params=0)).value
    expected = theirs.sparse_(torch.zeros(50, 40), sparsity, std=0.1)
    np.testing.assert_array_equal((ours == 0).sum(0), (expected == 0).sum(0))
    if sparsity < 1:
        nonzero = np.asarray(ours)[np.asarray(ours) != 0]
        assert abs(nonzero.std() / 0.1 - 1) < 0.06
        # The zeros are at other places in each column.
        assert len(np.unique(ours == 0, axis=1).T) > 30 or sparsity == 0


@pytest.mark.parametrize(
    ("name", "shape", "kwargs"),
    [
        ("eye_", (3,), {}),
        ("dirac_", (3, 3), {}),
        ("dirac_", (3, 3, 3), {"groups": 2}),
        ("xavier_uniform_", (3,), {}),
        ("xavier_normal_", (3,), {}),
        ("kaiming_uniform_", (3,), {}),
        ("kaiming_normal_", (3, 3), {"mode": "fan"}),
        ("kaiming_normal_", (3, 3), {"nonlinearity": "cosine"}),
        ("orthogonal_", (3,), {}),
        ("sparse_", (3,), {"sparsity": 0.1}),
        ("normal_", (3,), {"std": -1.0}),
    ],
)
def test_both_refuse(name, shape, kwargs):
    draws = {} if name in ("eye_", "dirac_") else {"rngs": Rngs(0)}
    with pytest.raises(ValueError, match=f"{name}: |calculate_gain: "):
        getattr(init, name)(zeros(*shape), **kwargs, **draws)
    with pytest.raises((ValueError, RuntimeError)):
        getattr(theirs, name)(torch.zeros(shape), **kwargs)
