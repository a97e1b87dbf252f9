"""Normalisation: statistics, where they go, and in which dtype they are computed."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import functional as F
from jaxsaw.nn.functional.norm import batch_norm_train
from jaxsaw.state.variable import Variable


def data(*shape, dtype=jnp.float32):
    return jnp.asarray(np.random.RandomState(0).randn(*shape) * 3 + 5, dtype)


def test_batch_norm_moves_the_statistics_of_variables():
    x = data(4, 3, 5)
    mean, var = Variable(jnp.zeros(3)), Variable(jnp.ones(3))
    y = F.batch_norm(x, mean, var, training=True, momentum=0.25)
    flat = np.asarray(x, np.float64).swapaxes(0, 1).reshape(3, -1)
    np.testing.assert_allclose(mean.value, 0.25 * flat.mean(1), rtol=1e-5)
    np.testing.assert_allclose(var.value, 0.75 + 0.25 * flat.var(1, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(jnp.var(y, axis=(0, 2)), 1, rtol=1e-4)


def test_batch_norm_leaves_arrays_alone():
    mean, var = jnp.zeros(3), jnp.ones(3)
    F.batch_norm(data(4, 3), mean, var, training=True)
    assert mean.tolist() == [0.0] * 3
    assert var.tolist() == [1.0] * 3


def test_batch_norm_in_evaluation_changes_nothing():
    mean, var = Variable(jnp.zeros(3)), Variable(jnp.ones(3))
    F.batch_norm(data(4, 3), mean, var)
    assert mean.value.tolist() == [0.0] * 3
    assert var.value.tolist() == [1.0] * 3


def test_batch_norm_keeps_the_dtype_of_the_statistics():
    mean, var = Variable(jnp.zeros(3, jnp.bfloat16)), Variable(jnp.ones(3, jnp.bfloat16))
    F.batch_norm(data(4, 3, dtype=jnp.bfloat16), mean, var, training=True)
    assert mean.dtype == var.dtype == jnp.bfloat16


def test_batch_norm_refuses_before_it_writes():
    mean, var = Variable(jnp.zeros(3)), Variable(jnp.ones(3))
    with pytest.raises(ValueError, match="more than 1 value per channel in training"):
        F.batch_norm(data(1, 3), mean, var, training=True)
    assert mean.value.tolist() == [0.0] * 3


def test_the_pure_part():
    x = data(4, 3, 5)
    y, mean, var = batch_norm_train(x, eps=1e-3)
    np.testing.assert_array_equal(y, F.batch_norm(x, None, None, training=True, eps=1e-3))
    np.testing.assert_allclose(mean, np.mean(x, (0, 2)), rtol=1e-6)
    np.testing.assert_allclose(var, np.var(x, (0, 2), ddof=1), rtol=1e-5)


CALLS = {
    "batch_norm": lambda x, w: F.batch_norm(x, None, None, w, w, True),
    "layer_norm": lambda x, w: F.layer_norm(x, (64,), w, w),
    "rms_norm": lambda x, w: F.rms_norm(x, (64,), w),
    "group_norm": lambda x, w: F.group_norm(x, 4, w, w),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_floats_are_computed_in_float32(name, dtype):
    x = data(128, 64, dtype=dtype)
    expected = CALLS[name](x.astype(jnp.float32), jnp.ones(64))
    for w in (jnp.ones(64, dtype), jnp.ones(64)):
        y = CALLS[name](x, w)
        assert y.dtype == dtype
        np.testing.assert_array_equal(y, expected.astype(dtype))


def test_a_narrower_weight_is_refused():
    with pytest.raises(TypeError, match="layer_norm: expected weight of dtype float32,"):
        F.layer_norm(data(2, 3), (3,), jnp.ones(3, jnp.bfloat16))


def test_large_means_keep_the_variance():
    x = jnp.asarray(np.random.RandomState(0).randn(64, 2) + 1e4, jnp.float32)
    _, _, var = batch_norm_train(x)
    np.testing.assert_allclose(var, np.var(np.asarray(x, np.float64), 0, ddof=1), rtol=1e-4)
