"""Pooling, against loops and at its edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import functional as F


@pytest.mark.parametrize("reduce", ["max", "avg"])
def test_against_loops(reduce):
    x = np.random.RandomState(0).randn(2, 3, 7, 8).astype(np.float32)
    y = getattr(F, f"{reduce}_pool2d")(x, (3, 2), (2, 3))
    for i in range(3):
        for j in range(3):
            window = x[:, :, 2 * i : 2 * i + 3, 3 * j : 3 * j + 2]
            expected = window.max((2, 3)) if reduce == "max" else window.mean((2, 3))
            np.testing.assert_allclose(y[:, :, i, j], expected, rtol=1e-5, atol=1e-6)


def test_indices_find_the_maxima():
    x = jnp.asarray(np.random.RandomState(0).randn(2, 3, 7, 8), jnp.float32)
    for y, where in (
        F.max_pool2d(x, 3, 2, 1, return_indices=True),
        F.adaptive_max_pool2d(x, (3, 5), return_indices=True),
    ):
        found = jnp.take_along_axis(x.reshape(2, 3, -1), where.reshape(2, 3, -1), 2)
        np.testing.assert_array_equal(found.reshape(y.shape), y)
        assert where.dtype == jnp.int32


@pytest.mark.parametrize("dilation", [1, 2])
def test_the_first_of_equal_maxima_gets_the_gradient(dilation):
    g = jax.grad(lambda x: F.max_pool1d(x, 2, dilation=dilation).sum())(jnp.zeros((1, 3)))
    assert g.tolist() == [[1.0, 0.0, 0.0]]


def test_second_derivatives():
    x = jnp.array([[1.0, 2.0, 4.0, 3.0]])
    h = jax.hessian(lambda x: (F.max_pool1d(x, 2) ** 2).sum())(x).reshape(4, 4)
    np.testing.assert_array_equal(np.diag(h), [0, 2, 2, 0])


@pytest.mark.parametrize("return_indices", [False, True])
def test_nan_is_a_maximum(return_indices):
    y = F.max_pool1d(jnp.array([[1.0, jnp.nan, 0.0, 1.0]]), 2, return_indices=return_indices)
    values = y[0] if return_indices else y
    assert jnp.isnan(values).tolist() == [[True, False]]


def test_windows_of_minus_infinity_have_indices_inside():
    x = jnp.full((1, 3), -jnp.inf)
    y, where = F.max_pool1d(x, 3, 1, 1, return_indices=True)
    assert y.tolist() == [[-jnp.inf] * 3]
    assert where.tolist() == [[0, 0, 1]]


def test_bfloat16_means_add_up_in_float32():
    x = jnp.ones((1, 4096), jnp.bfloat16)
    assert F.avg_pool1d(x, 4096).item() == 1.0
    assert F.adaptive_avg_pool1d(x, 1).item() == 1.0
    assert F.adaptive_avg_pool1d(x, 3).dtype == jnp.bfloat16
