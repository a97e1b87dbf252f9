"""Lazy layers become what they would have been, however they come to their first call."""

import copy
import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn, optim

X = jnp.asarray(np.random.RandomState(0).randn(2, 3, 7), jnp.float32)


def lazy(seed=0):
    rngs = js.Rngs(seed)
    norm = nn.LazyBatchNorm1d()
    return nn.Sequential(
        nn.LazyConv1d(4, 3, rngs=rngs), norm, nn.Flatten(), nn.LazyLinear(2, rngs=rngs)
    )


@pytest.fixture(scope="module")
def known():
    """An ordinary model, after one step."""
    rngs = js.Rngs(0)
    model = nn.Sequential(
        nn.Conv1d(3, 4, 3, rngs=rngs), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(20, 2, rngs=rngs)
    )
    return model, model(X)


def assert_same(model, known):
    state, expected = model.state_dict(), known.state_dict()
    assert list(state) == list(expected) and repr(model) == repr(known)
    for name, value in expected.items():
        np.testing.assert_allclose(state[name], value, rtol=1e-5, atol=1e-6)
    for a, b in zip(model.modules(), known.modules(), strict=True):
        assert type(a) is type(b)
        plain = lambda m: {k: v for k, v in vars(m).items() if not isinstance(v, js.Variable)}
        if not isinstance(a, nn.Sequential):
            assert plain(a) == plain(b)
    for a, b in zip(model.parameters(), known.parameters(), strict=True):
        assert type(a) is type(b) is nn.Parameter


@pytest.mark.parametrize(
    "twin",
    [lambda m: m, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))],
    ids=["itself", "copied", "pickled"],
)
def test_the_first_call(twin, known):
    model = twin(lazy())
    boxes = list(model.parameters())
    np.testing.assert_allclose(model(X), known[1], rtol=1e-5, atol=1e-6)
    assert_same(model, known[0])
    assert all(a is b for a, b in zip(boxes, model.parameters(), strict=True))


def test_the_first_call_may_be_compiled(known):
    step = js.jit(lambda m, x: m(x))
    model, other = lazy(), lazy(5)
    np.testing.assert_allclose(step(model, X), known[1], rtol=1e-5, atol=1e-6)
    assert_same(model, known[0])
    step(model, X)
    step(other, X)
    assert step.trace_count == 1
    assert (other[0].weight != model[0].weight).all()


def test_a_trace_that_fails_leaves_it_lazy(known):
    model = lazy()

    @js.jit
    def fail(model):
        model(X)
        raise KeyError("stop")

    with pytest.raises(KeyError):
        fail(model)
    assert repr(model) == repr(lazy())
    assert model[0].has_uninitialized_params()
    np.testing.assert_allclose(model(X), known[1], rtol=1e-5, atol=1e-6)


def test_it_may_be_made_and_called_inside_a_trace(known):
    def make():
        model = lazy()
        model(X)
        return model

    assert_same(js.jit(make)(), known[0])


def test_loading_makes_it_known(known):
    model = lazy(3)
    assert model.load_state_dict(known[0].state_dict()) == ([], [])
    assert_same(model, known[0])


@pytest.mark.parametrize("change", ["missing", "shape", "rank"])
def test_what_does_not_fit_changes_nothing(change, known):
    state = dict(known[0].state_dict())
    if change == "missing":
        del state["3.weight"], state["3.bias"]
    else:
        state["3.bias"] = jnp.zeros((3,) if change == "shape" else (2, 1))
    model = lazy()
    with pytest.raises(RuntimeError, match="nothing was loaded"):
        model.load_state_dict(state)
    assert repr(model) == repr(lazy())


def test_states_without_shapes(known):
    model = lazy()
    state = model.state_dict()
    assert list(state) == list(known[0].state_dict())
    assert isinstance(state["0.weight"], nn.UninitializedParameter)
    assert isinstance(state["1.running_var"], nn.UninitializedBuffer)
    assert model.load_state_dict(lazy(1).state_dict()) == ([], [])
    assert repr(model) == repr(lazy())
    with pytest.raises(RuntimeError, match=r"0\.weight has no shape and no value yet"):
        js.value_and_grad(lambda m: m(X).sum())(model)
    for look in (lambda p: p.shape, lambda p: p + 1, lambda p: p.value, np.asarray, len):
        with pytest.raises(RuntimeError, match="Call the model once first"):
            look(model[0].weight)


def test_casting_and_freezing_come_first():
    model = lazy().to(jnp.bfloat16).requires_grad_(False)
    model(X.astype(jnp.bfloat16))
    for box in model.parameters():
        assert box.dtype == jnp.bfloat16 and not box.requires_grad


def test_uninitialized_boxes_become_ordinary_ones():
    box = nn.UninitializedParameter(requires_grad=False, dtype=jnp.bfloat16)
    assert repr(box) == "<UninitializedParameter>" and box.dtype == jnp.bfloat16
    with pytest.raises(RuntimeError, match="inside a traced function"):
        js.jit(lambda: box.materialize((2,)))()
    box.materialize((2, 3))
    assert type(box) is nn.Parameter and box.shape == (2, 3) and not box.requires_grad
    buffer = nn.UninitializedBuffer(persistent=False)
    buffer.materialize((2,), dtype=jnp.int32)
    assert type(buffer) is nn.Buffer and buffer.dtype == jnp.int32 and not buffer.persistent


@pytest.mark.parametrize(
    ("make", "shape", "text"),
    [
        (lambda r: nn.LazyLinear(2, rngs=r), (), r"input \(\.\.\., in_features\)"),
        (lambda r: nn.LazyConv2d(2, 3, rngs=r), (3, 4), "3 or 4 axes"),
        (lambda r: nn.LazyConvTranspose1d(2, 3, rngs=r), (3,), "2 or 3 axes"),
        (lambda r: nn.LazyBatchNorm1d(), (2,), "2 or 3 axes"),
        (lambda r: nn.LazyInstanceNorm3d(), (2, 3, 4), "4 or 5 axes"),
    ],
)
def test_inputs_of_other_ranks_are_refused(make, shape, text):
    layer = make(js.Rngs(0))
    with pytest.raises(ValueError, match=text):
        layer(jnp.ones(shape))
    assert "Lazy" in repr(layer)


def test_streams_are_asked_for_at_once():
    rngs = js.Rngs(params=0)
    layer = nn.LazyConv2d(4, 3, rngs=rngs)
    assert rngs.counts == {"params": 1}
    layer(jnp.ones((1, 2, 4, 4)))
    assert rngs.counts == {"params": 1}
    with pytest.raises(TypeError, match="LazyLinear draws its first values"):
        nn.LazyLinear(2)


def test_an_optimizer_wants_a_model_that_was_called():
    model = nn.Sequential(nn.LazyLinear(3, rngs=js.Rngs(0)))
    with pytest.raises(RuntimeError, match=r"0\.weight has no shape.*before an optimizer is made"):
        optim.Adam(model.parameters())
    model(jnp.ones((1, 2)))
    optim.Adam(model.parameters())
