"""What transforms owe each other: sharing, several calls, and being inside of one another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn, optim

X = jnp.array([1.0, 2.0])


def linear(seed=0):
    return nn.Linear(2, 2, rngs=js.Rngs(seed))


class Noisy(nn.Module):
    def __init__(self, rngs):
        super().__init__()
        self.linear = nn.Linear(2, 2, rngs=rngs)
        self.dropout = nn.Dropout(0.5, rngs=rngs)

    def forward(self, x):
        return self.dropout(self.linear(x))


@pytest.mark.parametrize(
    "around",
    [
        lambda f: js.scan(lambda c, _: (f(), (c, None))[1], 0.0, length=2),
        lambda f: js.jit(lambda z: (f(), z)[1])(1.0),
        lambda f: js.grad(lambda z: (f(), z)[1])(1.0),
    ],
)
def test_what_was_compiled_ahead_is_refused_inside_another_transform(around):
    box = js.Variable(jnp.zeros(()))

    @js.jit
    def count():
        box.value = box + 1

    compiled = count.lower().compile()
    with pytest.raises(TypeError, match="compiled ahead"):
        around(compiled)
    compiled()
    assert float(box) == 1


def test_what_was_compiled_ahead_runs_under_debug_nans():
    a, b = js.Variable(jnp.ones(2)), js.Variable(jnp.ones(2))

    @js.jit
    def f(x):
        a.value = a + x.sum()
        if x.ndim == 2:
            b.value = b * 2

    compiled = f.lower(jnp.ones(2)).compile()
    f(jnp.ones((2, 2)))
    with jax.debug_nans(True):
        compiled(jnp.ones(2))
    assert a.value.tolist() == [7, 7] and b.value.tolist() == [2, 2]


def test_a_stack_of_tuples_has_the_sharing_of_each():
    one, a, b = linear(0), linear(1), linear(2)
    with pytest.raises(ValueError, match="share"):
        js.stack([(one, one), (a, b)])
    first, second = linear(0), linear(1)
    foreign = [optim.SGD(first.parameters(), lr=0.1) for _ in range(2)]
    with pytest.raises(ValueError, match="object 1"):
        js.stack([(first, foreign[0]), (second, foreign[1])])


def test_layers_that_share_with_some_others_only_are_refused():
    a, b, c = linear(0), linear(1), linear(2)
    c.weight = b.weight
    with pytest.raises(ValueError, match="share weight"):
        nn.Stack([a, b, c])
    one, other = js.Rngs(0), js.Rngs(1)
    with pytest.raises(ValueError, match="share"):
        nn.Stack([Noisy(one), Noisy(other), Noisy(other)])


def test_a_carry_is_the_same_box_or_an_array():
    a, b = js.Variable(jnp.array(1.0)), js.Variable(jnp.array(5.0))
    with pytest.raises(TypeError, match="must return the Variable"):
        js.fori_loop(0, 3, lambda i, v: b, a)

    def body(carry, x):
        a.value = carry + x
        return a, a

    last, history = js.scan(body, jnp.array(0.0), jnp.arange(4.0))
    assert float(last) == 6 and history.tolist() == [0, 1, 3, 6]


def test_one_model_in_two_primals_gets_one_tangent():
    model = linear()
    f = lambda p, q: (p.bias * q.weight).sum()
    ones = {"bias": jnp.ones(2)}
    assert js.jvp(f, (model, model), (ones, {}))[1] == js.jvp(f, (model, model), ({}, ones))[1]
    with pytest.raises(ValueError, match="several tangents"):
        js.jvp(f, (model, model), (ones, {"bias": jnp.zeros(2)}))


def test_a_constructor_in_lanes_leaves_its_streams_as_they_are():
    streams = js.stack(js.Rngs(params=0, dropout=1).fork(2))
    draw = js.jit(js.vmap(lambda rngs: jax.random.uniform(rngs.next("dropout"))))
    for _ in range(3):
        models = js.vmap(Noisy)(streams)
        draw(streams)
    assert draw.trace_count == 1 and models.dropout.rngs is streams
    for model, alone in zip(js.unstack(models), js.unstack(streams), strict=True):
        assert model.dropout.rngs.counts == alone.counts


def test_an_ensemble_of_stacks_from_a_constructor():
    make = lambda rngs: nn.Stack([Noisy(rngs) for _ in range(2)])
    stacks = js.vmap(make)(js.stack(js.Rngs(0).fork(3)))
    out = js.vmap(lambda m, x: m(x), in_axes=(0, None))(stacks, X)
    for i, rngs in enumerate(js.Rngs(0).fork(3)):
        np.testing.assert_allclose(out[i], make(rngs)(X), rtol=1e-5)


def test_stacks_of_layers_without_arrays():
    assert nn.Stack([nn.ReLU(), nn.ReLU()])(-X).tolist() == [0, 0]
    rngs, twin = js.Rngs(dropout=0), js.Rngs(dropout=0)
    stack = nn.Stack([nn.Dropout(0.5, rngs=rngs) for _ in range(2)])
    row = nn.Sequential(nn.Dropout(0.5, rngs=twin), nn.Dropout(0.5, rngs=twin))
    np.testing.assert_array_equal(stack(jnp.ones(8)), row(jnp.ones(8)))
    assert len(stack) == len(list(stack)) == 2 and rngs.counts == twin.counts
    with pytest.raises(ValueError, match="length="):
        js.unstack(js.stack([nn.ReLU(), nn.ReLU()]))


def test_a_jacobian_of_nothing_is_refused():
    frozen = linear().requires_grad_(False)
    for transform in (js.jacrev, js.jacfwd, js.hessian):
        with pytest.raises(ValueError, match="nothing to differentiate"):
            transform(lambda m: m(X).sum())(frozen)


def test_lengths_of_scan():
    f = lambda c, _: (c + 1, None)
    assert int(js.scan(f, 0, length=np.int32(3))[0]) == 3
    with pytest.raises(ValueError, match="negative"):
        js.scan(f, 0, length=-1)
