"""Activations: gradients where something bends, and where a naive formula overflows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import functional as F

SMOOTH = [
    "gelu",
    "silu",
    "mish",
    "sigmoid",
    "logsigmoid",
    "softplus",
    "tanh",
    "elu",
    "selu",
    "celu",
]
ALL = [
    *SMOOTH,
    *["relu", "relu6", "leaky_relu", "hardsigmoid", "hardswish", "hardtanh", "tanhshrink"],
    *["softsign", "softshrink", "hardshrink"],
]


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_finite_everywhere(name):
    x = jnp.array([-1e30, -1e4, -100.0, -1.0, 0.0, 1.0, 100.0, 1e4])
    y, vjp = jax.vjp(getattr(F, name), x)
    assert jnp.isfinite(y).all()
    assert jnp.isfinite(vjp(jnp.ones_like(x))[0]).all()


@pytest.mark.parametrize("name", ALL)
def test_nan_stays_nan(name):
    assert jnp.isnan(getattr(F, name)(jnp.array([jnp.nan])))[0]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_dtype_is_kept(name, dtype):
    x = jnp.linspace(-4, 4, 9).astype(dtype)
    y, vjp = jax.vjp(getattr(F, name), x)
    assert y.dtype == vjp(y)[0].dtype == dtype


@pytest.mark.parametrize("name", ["gelu", "silu", "mish", "softplus", "logsigmoid", "elu", "celu"])
def test_bfloat16_is_the_rounded_float32(name):
    x = jnp.linspace(-8, 8, 101).astype(jnp.bfloat16)
    expected = getattr(F, name)(x.astype(jnp.float32)).astype(jnp.bfloat16)
    np.testing.assert_array_equal(getattr(F, name)(x), expected)


@pytest.mark.parametrize(
    ("shape", "dim"), [((4,), 0), ((3, 4), 1), ((2, 3, 4), 0), ((1, 2, 3, 4), 1)]
)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_softmax_guesses_its_axis_as_pytorch_does(name, shape, dim):
    x = jnp.asarray(np.random.RandomState(0).randn(*shape), jnp.float32)
    function = getattr(F, name)
    with pytest.warns(UserWarning, match=rf"{name}: dim=None guesses dim={dim}; pass dim="):
        y = function(x)
    np.testing.assert_array_equal(y, function(x, dim))


def test_softmax_casts_first_where_dtype_says_so():
    y = F.softmax(jnp.arange(3), dim=0, dtype=jnp.float32)
    assert y.dtype == jnp.float32
    assert F.softmax(jnp.zeros(3), 0, dtype=jnp.bfloat16).dtype == jnp.bfloat16


def test_softmax_in_bfloat16_adds_up_in_float32():
    y = F.softmax(jnp.zeros(4096, jnp.bfloat16), dim=0)
    assert y.dtype == jnp.bfloat16
    assert y[0].item() == 2**-12


def test_softmax_of_a_scalar():
    assert F.softmax(jnp.float32(3.0), dim=0).item() == 1.0
    assert F.log_softmax(jnp.float32(3.0), dim=-1).item() == 0.0


def test_inplace_changes_nothing_in_place():
    x = jnp.array([-1.0])
    F.relu(x, inplace=True)
    assert x.item() == -1.0
