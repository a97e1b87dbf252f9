"""Bounds on gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import optim
from jaxsaw.nn import Parameter


class Two(js.Stateful):
    def __init__(self):
        self.a, self.b = Parameter(jnp.array([3.0])), Parameter(jnp.array([-4.0]))


def grads():
    return js.grad(lambda m: (m.a.value**2 / 2).sum() + (m.b.value**2 / 2).sum())(Two())


@pytest.mark.parametrize(
    "order, norm", [(2.0, 5.0), (1, 7.0), (float("inf"), 4.0), ("inf", 4.0), (-np.inf, 3.0), (0, 2)]
)
def test_norm(order, norm):
    assert float(optim.global_norm(grads(), order)) == norm
    assert float(optim.clip_grad_norm(grads(), 1.0, order)[1]) == norm


def test_clipping_keeps_structure_boxes_and_dtypes():
    model = Two()
    found = js.grad(lambda m: (m.a.value**2 / 2).sum() + (m.b.value**2 / 2).sum())(model)
    clipped, norm = optim.clip_grad_norm(found, max_norm=1.0)
    assert isinstance(clipped, js.Grads) and clipped.boxes == (model.a, model.b)
    np.testing.assert_allclose([clipped["a"][0], clipped["b"][0]], [0.6, -0.8], rtol=1e-6)
    assert norm.dtype == jnp.float32 and norm.shape == ()
    optim.SGD([model.a, model.b]).step(clipped)
    mixed = {"x": jnp.ones(2, jnp.bfloat16), "y": [jnp.ones((), jnp.float16), None]}
    clipped, norm = optim.clip_grad_norm(mixed, jnp.float32(0.5))
    assert jax.tree.map(lambda x: x.dtype, clipped) == jax.tree.map(lambda x: x.dtype, mixed)
    np.testing.assert_allclose(norm, np.sqrt(3), rtol=1e-6)


def test_small_gradients_are_left_alone():
    for norm in (5.1, 1e9, float("inf")):
        clipped, _ = optim.clip_grad_norm(grads(), norm)
        assert clipped["a"] == 3 and clipped["b"] == -4


def test_norms_are_summed_in_float32():
    many = [jnp.full(10_000, 0.1, jnp.bfloat16), jnp.full(3, 300.0, jnp.float16)]
    want = np.sqrt(sum((np.asarray(x, np.float64) ** 2).sum() for x in many))
    np.testing.assert_allclose(optim.global_norm(many), want, rtol=1e-6)


def test_complex_gradients():
    clipped, norm = optim.clip_grad_norm([jnp.array([3 + 4j])], 1.0)
    assert norm == 5
    np.testing.assert_allclose(clipped[0], [0.6 + 0.8j], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_nonfinite_norms(bad):
    found = [jnp.array([1.0, bad])]
    optim.clip_grad_norm(found, 1.0)
    with pytest.raises(
        RuntimeError, match="norm of order 2.0 is (inf|nan), .*error_if_nonfinite=False"
    ):
        optim.clip_grad_norm(found, 1.0, error_if_nonfinite=True)
    traced = jax.jit(lambda g: optim.clip_grad_norm(g, 1.0, error_if_nonfinite=True)[1])
    assert not np.isfinite(traced(found))


def test_nothing_to_clip():
    clipped, norm = optim.clip_grad_norm({}, 1.0)
    assert clipped == {} and norm == 0
    assert optim.global_norm([jnp.ones((0, 3)), jnp.ones(4)], "inf") == 1


def test_values():
    clipped = optim.clip_grad_value(grads(), 3.5)
    assert isinstance(clipped, js.Grads)
    assert clipped["a"] == 3 and clipped["b"] == -3.5
    assert optim.clip_grad_value([jnp.full(2, 9, jnp.bfloat16)], 2)[0].dtype == jnp.bfloat16


def test_inside_of_a_compiled_step():
    model = Two()
    optimizer = optim.SGD([model.a, model.b], lr=1.0)

    @js.jit
    def step():
        found = js.grad(lambda m: (m.a.value**2 / 2).sum() + (m.b.value**2 / 2).sum())(model)
        clipped, norm = optim.clip_grad_norm(found, 1.0)
        optimizer.step(clipped)
        return norm

    assert step() == 5
    np.testing.assert_allclose([model.a.value[0], model.b.value[0]], [2.4, -3.2], rtol=1e-6)


def test_parameters_in_the_place_of_gradients_are_refused():
    parameters = [Parameter(jnp.ones(3))]
    with pytest.raises(TypeError, match=r"Expected gradients .* got a Parameter.*grads, norm ="):
        optim.clip_grad_norm(parameters, 1.0)
    with pytest.raises(TypeError, match="got a generator"):
        optim.clip_grad_norm((p for p in parameters), 1.0)
