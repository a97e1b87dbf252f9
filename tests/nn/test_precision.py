"""Mixed precision: dtypes of parameters, of the computation, and of what comes out."""

import copy
import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn, optim
from jaxsaw.nn import functional as F

X = jnp.asarray(np.random.RandomState(0).randn(4, 2, 6), jnp.float32)


class Spy(nn.Module):
    """Notes the dtypes that it sees."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(jnp.ones(3))

    def forward(self, x):
        SEEN.append((str(x.dtype), str((self.scale * 1).dtype)))
        return x * self.scale[:, None]


SEEN = []


def net():
    rngs = js.Rngs(0)
    return nn.Sequential(
        nn.Conv1d(2, 3, 3, rngs=rngs),
        nn.BatchNorm1d(3),
        Spy(),
        nn.Flatten(),
        nn.LayerNorm(12),
        nn.Linear(12, 2, rngs=rngs),
    )


def test_parameters_stay_wide_and_the_computation_is_narrow():
    model = nn.apply_policy(net(), nn.Policy())
    SEEN.clear()
    loss = lambda m: F.cross_entropy(m(X), jnp.array([0, 1, 0, 1]))
    call = js.jit(js.value_and_grad(loss))
    value, grads = call(model)
    assert SEEN == [("bfloat16", "bfloat16")]
    assert value.dtype == jnp.float32
    wide = net()
    expected, wanted = call(wide)
    np.testing.assert_allclose(value, expected, rtol=0.03)
    for name, grad in grads.items():
        assert grad.dtype == jnp.float32
        np.testing.assert_allclose(grad, wanted[name], rtol=0.1, atol=0.05)
    for box in (*model.parameters(), model[1].running_mean):
        assert box.dtype == jnp.float32
    assert int(model[1].num_batches_tracked) == 1
    np.testing.assert_allclose(model[1].running_var, wide[1].running_var, rtol=0.02)


def test_a_compiled_step():
    model = nn.apply_policy(net(), nn.Policy())
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @js.jit
    def step(model, optimizer):
        loss, grads = js.value_and_grad(lambda m: jnp.square(m(X)).mean())(model)
        optimizer.step(grads)
        return loss

    losses = [float(step(model, optimizer)) for _ in range(5)]
    assert losses[-1] < losses[0] and step.trace_count == 1
    assert model[0].weight.dtype == jnp.float32
    nn.apply_policy(model, nn.Policy(compute="float16"))
    step(model, optimizer)
    assert step.trace_count == 2


def test_a_policy_of_its_own_inside_and_none():
    model = net()
    nn.apply_policy(model, nn.Policy(compute="float16", output="bfloat16"))
    nn.apply_policy(model[2], nn.Policy(compute="float32", output="float16"))
    SEEN.clear()
    for twin in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin(X).dtype == jnp.bfloat16
    nn.apply_policy(model[2], None)
    model(X)
    nn.apply_policy(model, None)
    assert model(X).dtype == jnp.float32 and model._hooks is None
    assert SEEN == [("float32", "float32")] * 3 + [("float16", "float16"), ("float32", "float32")]


def test_a_wide_part_of_a_narrow_model_sees_its_parameters_as_they_are():
    inner = nn.apply_policy(Spy(), nn.Policy(compute="float32"))
    inner.scale.value = jnp.full(3, 1.001)
    model = nn.apply_policy(nn.Sequential(inner), nn.Policy())
    assert (model(jnp.ones((1, 3, 2))) == jnp.float32(1.001)).all()


def test_parameters_may_be_kept_narrow():
    layer = nn.apply_policy(nn.Linear(2, 2, rngs=js.Rngs(0)), nn.Policy("bfloat16", "float32"))
    assert layer.weight.dtype == jnp.bfloat16
    assert js.grad(lambda m: m(jnp.ones((1, 2))).sum())(layer)["weight"].dtype == jnp.bfloat16


def test_what_is_no_floating_dtype_is_refused():
    with pytest.raises(TypeError, match="expected compute to be a floating dtype, got int32"):
        nn.Policy(compute=jnp.int32)


def test_streams_and_named_arguments_go_through():
    class Drops(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x, *, mask=None):
            assert mask.dtype == jnp.bool_ and x.dtype == jnp.bfloat16
            return self.drop(x), {"kept": mask}

    model = nn.apply_policy(Drops(), nn.Policy())
    out, kept = model(jnp.ones(8), mask=jnp.ones(8, bool), rngs=js.Rngs(dropout=0))
    assert out.dtype == jnp.float32 and kept["kept"].dtype == jnp.bool_


@pytest.mark.parametrize(
    "make",
    [
        lambda r: (nn.Linear(6, 2, rngs=r), X),
        lambda r: (nn.Conv1d(2, 3, 3, rngs=r), X),
        lambda r: (nn.BatchNorm1d(2), X),
        lambda r: (nn.GroupNorm(1, 2), X),
        lambda r: (nn.LSTM(6, 3, batch_first=True, rngs=r), X),
    ],
    ids=["linear", "conv", "batch", "group", "lstm"],
)
def test_models_may_be_narrow_altogether(make):
    layer, x = make(js.Rngs(0))
    first = lambda y: y[0] if isinstance(y, tuple) else y
    wide = first(layer(x))
    narrow = first(layer.to(jnp.bfloat16)(x.astype(jnp.bfloat16)))
    assert narrow.dtype == jnp.bfloat16
    np.testing.assert_allclose(narrow.astype(jnp.float32), wide, rtol=0.1, atol=0.05)
