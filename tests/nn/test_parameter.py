"""``Parameter`` and ``Buffer``: what they hold, what is static, what survives a copy."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.state.graph import graph_of


@pytest.mark.parametrize("value", [3, True, np.arange(3), jnp.arange(3), jnp.ones(2, bool)])
def test_what_can_not_be_trained_is_refused(value):
    with pytest.raises(TypeError, match="Parameter: expected floats or complex numbers"):
        nn.Parameter(value)


def test_keys_are_refused():
    with pytest.raises(TypeError, match="got key<fry>. For other state use nn.Buffer"):
        nn.Parameter(jax.random.key(0))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16, jnp.complex64])
def test_what_can_be_trained(dtype):
    parameter = nn.Parameter(jnp.ones(2, dtype))
    assert parameter.dtype == dtype and parameter.requires_grad


def test_numbers_and_weak_arrays_become_strong_float32():
    assert nn.Parameter(1.5).dtype == jnp.float32
    weak = jnp.asarray(1.5)
    assert weak.weak_type
    assert not nn.Parameter(weak).value.weak_type


def test_writing_integers_is_refused():
    net = nn.Linear(2, 2, rngs=js.Rngs(0))
    with pytest.raises(TypeError, match="weight: expected floats or complex numbers"):
        net.weight.value = jnp.ones((2, 2), jnp.int32)
    net.weight.value = np.ones((2, 2), np.int32)  # NumPy's are cast to the box's dtype
    assert net.weight.dtype == jnp.float32


def test_a_parameter_of_a_parameter_is_another_box():
    first = nn.Parameter(jnp.ones(2))
    second = nn.Parameter(first)
    second.value = jnp.zeros(2)
    assert first.tolist() == [1.0, 1.0]


def test_requires_grad():
    parameter = nn.Parameter(jnp.ones(2), False)
    assert not parameter.requires_grad
    assert parameter.requires_grad_() is parameter and parameter.requires_grad
    assert not parameter.requires_grad_(False).requires_grad


def test_requires_grad_is_static():
    net = nn.Sequential(nn.Linear(2, 2, rngs=js.Rngs(0)))
    stamps = []
    for value in (True, False, True, False):
        net[0].bias.requires_grad = value
        stamps.append(graph_of(net).stamp)
    assert stamps[0] == stamps[2] != stamps[1] == stamps[3]
    other = nn.Sequential(nn.Linear(2, 2, rngs=js.Rngs(1)))
    other[0].bias.requires_grad = False
    assert graph_of(other).key == graph_of(net).key


def test_axes_are_static():
    net = nn.Module()
    net.weight = nn.Parameter(jnp.ones((2, 3)), axes=("out", None))
    key = graph_of(net).key
    assert net.weight.axes == ("out", None)
    net.weight.axes = None
    assert graph_of(net).key != key


def test_static_attributes_do_not_change_in_a_trace():
    net = nn.Linear(2, 2, rngs=js.Rngs(0))

    def freeze(m, value):
        m.weight.requires_grad = value
        return 0

    def persist(m):
        m.persistent = False
        return 0

    with pytest.raises(RuntimeError, match="weight.requires_grad was changed inside a traced"):
        js.jit(freeze, static_argnums=1)(net, False)
    assert net.weight.requires_grad
    js.jit(freeze, static_argnums=1)(net, True)
    with pytest.raises(RuntimeError, match="persistent was changed inside a traced"):
        js.jit(persist)(nn.Buffer(jnp.ones(1)))


def test_static_attributes_of_what_is_made_in_a_trace():
    def make():
        parameter = nn.Parameter(jnp.ones(2), requires_grad=False)
        parameter.axes = ("x",)
        net = nn.Module()
        net.weight = parameter
        net.register_buffer("mean", jnp.ones(2), persistent=False)
        net.mean.persistent = True
        return net

    net = js.jit(make)()
    assert (net.weight.requires_grad, net.weight.axes) == (False, ("x",))
    assert net.mean.persistent


def test_buffers_hold_anything():
    for value in (3, True, np.arange(3), jnp.ones(2), jax.random.key(0)):
        assert nn.Buffer(value).persistent
    assert not nn.Buffer(1.0, persistent=False).persistent
    assert not nn.Buffer(1.0, False).persistent


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))])
def test_copies_keep_everything(twin):
    parameter = nn.Parameter(jnp.ones(2, jnp.bfloat16), False, axes=("x",))
    other = twin(parameter)
    assert type(other) is nn.Parameter and other is not parameter
    assert (other.requires_grad, other.axes, other.dtype) == (False, ("x",), jnp.bfloat16)
    parameter.value = jnp.zeros(2, jnp.bfloat16)
    assert other.tolist() == [1.0, 1.0]
    buffer = twin(nn.Buffer(jnp.arange(2), False))
    assert not buffer.persistent and buffer.tolist() == [0, 1]


def test_subclasses_keep_their_kind():
    class Special(nn.Parameter):
        pass

    assert type(copy.deepcopy(Special(jnp.ones(1)))) is Special


def test_gradients_go_to_what_requires_them():
    net = nn.Linear(2, 2, rngs=js.Rngs(0))
    net.bias.requires_grad = False
    grads = js.grad(lambda m: m(jnp.ones(2)).sum())(net)
    assert list(grads) == ["weight"]
