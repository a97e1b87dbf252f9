"""Losses: warnings, dtypes, and targets that can't be looked at."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import functional as F


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_broadcasting_warns(name):
    with pytest.warns(UserWarning, match=rf"{name}: input \(3, 1\) and target \(3,\) differ"):
        assert getattr(F, name)(jnp.ones((3, 1)), jnp.zeros(3), reduction="none").shape == (3, 3)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_bfloat16_adds_up_in_float32(name):
    x = jnp.ones(4096, jnp.bfloat16)
    loss = getattr(F, name)(x, 0 * x)
    assert loss.dtype == jnp.bfloat16
    assert loss.item() == getattr(F, name)(jnp.ones(1), jnp.zeros(1)).item()


def test_dtypes_are_promoted():
    assert F.mse_loss(jnp.ones(2, jnp.bfloat16), jnp.ones(2)).dtype == jnp.float32
    assert F.mse_loss(jnp.ones(2), jnp.ones(2, int)).dtype == jnp.float32
    assert F.mse_loss(jnp.ones(2, jnp.bfloat16), jnp.ones(2, int)).dtype == jnp.bfloat16


def test_cross_entropy_is_its_definition():
    r = np.random.RandomState(0)
    x, t = r.randn(5, 4), r.randint(0, 4, 5)
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    expected = -np.log(p[np.arange(5), t]).mean()
    np.testing.assert_allclose(F.cross_entropy(x, t), expected, rtol=1e-5)
    np.testing.assert_allclose(F.cross_entropy(x, np.eye(4)[t]), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_target_out_of_range_in_a_trace_is_nan(name, wrong):
    x = jnp.zeros((2, 3))
    loss = jax.jit(lambda t: getattr(F, name)(x, t, reduction="none"))(jnp.array([wrong, 1]))
    assert jnp.isnan(loss).tolist() == [True, False]


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.int16, jnp.int32])
def test_any_integers_are_targets(name, dtype):
    x = jnp.log(jnp.array([[0.25, 0.75]]))
    np.testing.assert_allclose(getattr(F, name)(x, jnp.array([1], dtype)), -np.log(0.75), rtol=1e-5)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_ignored_targets_alone_give_nan_for_the_mean_and_zero_gradients_for_the_sum(name):
    x, t = jnp.zeros((2, 3)), jnp.full(2, -100)
    assert jnp.isnan(getattr(F, name)(x, t))
    g = jax.grad(lambda x: getattr(F, name)(x, t, reduction="sum"))(x)
    assert not g.any()


def test_cross_entropy_of_large_logits_is_exact():
    x = jnp.array([[1e4, 1e4 + 1, -1e4]])
    np.testing.assert_allclose(F.cross_entropy(x, jnp.array([0])), 1.3132617, rtol=1e-6)


def test_cross_entropy_in_bfloat16_is_the_rounded_float32():
    x = jnp.asarray(np.random.RandomState(0).randn(8, 5000), jnp.bfloat16)
    t = jnp.arange(8)
    expected = F.cross_entropy(x.astype(jnp.float32), t)
    np.testing.assert_array_equal(F.cross_entropy(x, t), expected.astype(jnp.bfloat16))


def test_inputs_out_of_range_pass_in_a_trace():
    loss = jax.jit(F.binary_cross_entropy)(jnp.array([1.5]), jnp.array([0.0]))
    assert loss.shape == ()


def test_logits_may_be_large():
    x = jnp.array([-1e4, 1e4])
    loss, vjp = jax.vjp(lambda x: F.binary_cross_entropy_with_logits(x, jnp.array([1.0, 0.0])), x)
    assert loss.item() == 1e4
    assert vjp(jnp.ones(()))[0].tolist() == [-0.5, 0.5]


@pytest.mark.parametrize("name", ["binary_cross_entropy", "mse_loss", "kl_div"])
def test_second_derivatives(name):
    x, t = jnp.array([0.3, 0.6]), jnp.array([0.2, 0.7])
    assert jnp.isfinite(jax.hessian(lambda x: getattr(F, name)(x, t))(x)).all()


def test_hessian_of_binary_cross_entropy():
    x, t = 0.3, 0.2
    h = jax.hessian(lambda v: F.binary_cross_entropy(v, jnp.array([t])))(jnp.array([x]))
    np.testing.assert_allclose(h, [[t / x**2 + (1 - t) / (1 - x) ** 2]], rtol=1e-5)
