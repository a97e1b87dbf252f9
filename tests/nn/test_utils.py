"""Parameters as one vector, and back."""

import jax.numpy as jnp
import pytest

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.nn.utils import parameters_to_vector, vector_to_parameters


def test_there_and_back():
    net = nn.Linear(3, 2, rngs=js.Rngs(0))
    vector = parameters_to_vector(net.parameters())
    assert vector.shape == (8,)
    assert vector[:6].tolist() == net.weight.reshape(-1).tolist()
    vector_to_parameters(vector * 2, net.parameters())
    assert parameters_to_vector(net.parameters()).tolist() == (vector * 2).tolist()
    assert parameters_to_vector([]).shape == (0,)


def test_what_is_refused():
    net = nn.Linear(3, 2, rngs=js.Rngs(0))
    before = parameters_to_vector(net.parameters())
    for vector in (jnp.ones(7), jnp.ones(9), jnp.ones((8, 1))):
        with pytest.raises(ValueError, match=r"expected vec \(8,\), got"):
            vector_to_parameters(vector, net.parameters())
    assert parameters_to_vector(net.parameters()).tolist() == before.tolist()
    net.bias = nn.Parameter(jnp.ones(2, jnp.bfloat16))
    with pytest.raises(TypeError, match="one dtype, got float32, bfloat16"):
        parameters_to_vector(net.parameters())
