"""Linear and bilinear maps, against NumPy."""

import jax.numpy as jnp
import numpy as np

from jaxsaw.nn import functional as F
from jaxsaw.state.variable import Variable


def test_linear_is_a_matrix_product():
    r = np.random.RandomState(0)
    x, w, b = r.randn(2, 5, 3), r.randn(4, 3), r.randn(4)
    y = F.linear(input=x, weight=w, bias=b)
    np.testing.assert_allclose(y, x @ w.T + b, rtol=1e-5)
    assert y.dtype == jnp.float32


def test_variables_are_arrays():
    w, b = Variable(jnp.ones((4, 3))), Variable(jnp.ones(4))
    y = F.linear(Variable(jnp.ones((2, 3))), w, b)
    assert y.tolist() == [[4.0] * 4] * 2


def test_bilinear_is_a_sum_over_both():
    r = np.random.RandomState(0)
    a, b, w = r.randn(6, 3), r.randn(6, 5), r.randn(4, 3, 5)
    expected = np.einsum("ni,kij,nj->nk", a, w, b)
    np.testing.assert_allclose(F.bilinear(a, b, w), expected, rtol=1e-4, atol=1e-5)
