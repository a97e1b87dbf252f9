"""Norms and distances: gradients where the norm is zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import functional as F


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 3.0, jnp.inf])
def test_gradients_at_zero_are_finite(p):
    x = jnp.zeros((2, 3)).at[1, 1].set(4)
    g = jax.grad(lambda x: (F.normalize(x, p) * jnp.arange(3.0)).sum())(x)
    assert jnp.isfinite(g).all()
    g = jax.grad(lambda x: F.pairwise_distance(x, jnp.zeros((2, 3)), p, eps=0.0).sum())(x)
    assert jnp.isfinite(g).all()
    assert g[0].tolist() == [0.0] * 3


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, jnp.inf, -jnp.inf])
def test_distance_is_numpys_norm(p):
    a, b = np.random.RandomState(0).randn(2, 5, 4).astype(np.float32)
    expected = np.linalg.norm(a - b, ord=p, axis=1)
    np.testing.assert_allclose(F.pairwise_distance(a, b, p, eps=0.0), expected, rtol=1e-5)


def test_bfloat16_adds_up_in_float32():
    x = jnp.ones((1, 4096), jnp.bfloat16)
    assert F.pairwise_distance(x, 0 * x, eps=0.0).item() == 64.0
    assert F.cosine_similarity(x, x).item() == 1.0


def test_dtypes_are_promoted():
    y = F.cosine_similarity(jnp.ones((2, 3), jnp.bfloat16), jnp.ones((2, 3)))
    assert y.dtype == jnp.float32
