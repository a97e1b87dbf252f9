"""Look-ups: what happens to indices out of range, and to rows that are too long."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import functional as F
from jaxsaw.nn.functional.embedding import renormalize
from jaxsaw.state.variable import Variable

TABLE = jnp.arange(6.0).reshape(3, 2)


def test_rows():
    index = jnp.array([[2, 0], [1, 1]])
    np.testing.assert_array_equal(F.embedding(index, TABLE), np.asarray(TABLE)[np.asarray(index)])


@pytest.mark.parametrize("index", [-1, 3])
def test_out_of_range_in_a_trace_is_nan(index):
    y = jax.jit(F.embedding)(jnp.array([index, 1]), TABLE)
    assert jnp.isnan(y[0]).all()
    assert y[1].tolist() == [2.0, 3.0]


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.int16, jnp.int32])
def test_any_integers(dtype):
    assert F.embedding(jnp.array([2], dtype), TABLE).tolist() == [[4.0, 5.0]]
    assert F.one_hot(jnp.array([1], dtype), 2).tolist() == [[0, 1]]


@pytest.mark.parametrize("index", [-1, 3])
def test_out_of_range_in_a_trace_is_nan_for_narrow_indices(index):
    y = jax.jit(F.embedding)(jnp.array([index], jnp.int8), jnp.ones((3, 2)))
    assert jnp.isnan(y).all()


def test_padding_gets_no_gradient():
    g = jax.grad(lambda w: F.embedding(jnp.array([0, 1, 1]), w, padding_idx=1).sum())(TABLE)
    assert g.tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]


def test_max_norm_shortens_the_rows_of_a_variable():
    weight = Variable(TABLE)
    y = F.embedding(jnp.array([2]), weight, max_norm=1.0)
    np.testing.assert_allclose(jnp.linalg.norm(y), 1, rtol=1e-5)
    np.testing.assert_array_equal(weight.value[:2], TABLE[:2])
    np.testing.assert_array_equal(weight.value[2], y[0])


def test_max_norm_leaves_an_array_alone():
    table = jnp.array(TABLE)
    F.embedding(jnp.array([2]), table, max_norm=1.0)
    np.testing.assert_array_equal(table, TABLE)


def test_renormalize_has_the_gradient_of_the_identity():
    def loss(w):
        return (renormalize(w, jnp.array([1, 2]), 1.0) * TABLE).sum()

    np.testing.assert_array_equal(jax.grad(loss)(TABLE), TABLE)


def test_one_hot_in_a_trace_needs_the_number_of_classes():
    with pytest.raises(ValueError, match="one_hot: pass num_classes= inside jit"):
        jax.jit(F.one_hot)(jnp.array([1]))
    y = jax.jit(lambda i: F.one_hot(i, 3))(jnp.array([1, 5, -1]))
    assert y.tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
