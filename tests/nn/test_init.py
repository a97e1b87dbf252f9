"""Initial values: which box is written, what is drawn, and what is refused."""

import inspect
import re

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import init
from jaxsaw.rngs import Rngs
from jaxsaw.state.variable import Variable

DRAW = {
    "uniform_": {},
    "normal_": {},
    "trunc_normal_": {},
    "xavier_uniform_": {},
    "xavier_normal_": {},
    "kaiming_uniform_": {},
    "kaiming_normal_": {},
    "orthogonal_": {},
    "sparse_": {"sparsity": 0.5},
}
FIXED = {"constant_": {"val": 2}, "ones_": {}, "zeros_": {}, "eye_": {}}


@pytest.mark.parametrize("name", DRAW)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_one_key_is_drawn_and_the_dtype_kept(name, dtype):
    box, rngs = Variable(jnp.zeros((4, 6), dtype)), Rngs(params=0)
    assert getattr(init, name)(box, **DRAW[name], rngs=rngs) is box
    assert rngs.counts == {"params": 1}
    assert box.dtype == dtype
    assert box.shape == (4, 6)
    assert box.value.any()


@pytest.mark.parametrize("name", DRAW)
def test_the_same_seed_gives_the_same_values(name):
    first, second = (
        getattr(init, name)(Variable(jnp.zeros((4, 6))), **DRAW[name], rngs=Rngs(params=0)).value
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", DRAW)
def test_rngs_is_required_and_last(name):
    parameter = list(inspect.signature(getattr(init, name)).parameters.values())[-1]
    assert parameter.name == "rngs"
    assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
    assert parameter.default is inspect.Parameter.empty


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.int32])
def test_what_is_determined_keeps_the_dtype(name, dtype):
    box = Variable(jnp.full((2, 2), 7, dtype))
    assert getattr(init, name)(box, **FIXED[name]) is box
    assert box.dtype == dtype


@pytest.mark.parametrize("name", [*DRAW, *FIXED])
def test_an_array_is_no_parameter(name):
    kwargs = {**DRAW[name], "rngs": Rngs(0)} if name in DRAW else FIXED[name]
    with pytest.raises(TypeError, match=f"{name}: expected a Parameter to write"):
        getattr(init, name)(jnp.zeros((2, 2)), **kwargs)


@pytest.mark.parametrize("name", DRAW)
def test_integers_cannot_be_drawn(name):
    rngs = Rngs(params=0)
    with pytest.raises(TypeError, match=f"{name}: expected a Parameter of a floating dtype"):
        getattr(init, name)(Variable(jnp.zeros((2, 2), int)), **DRAW[name], rngs=rngs)
    assert rngs.counts == {"params": 0}


@pytest.mark.parametrize("name", DRAW)
def test_nothing_to_fill(name):
    box = Variable(jnp.zeros((0, 3)))
    assert getattr(init, name)(box, **DRAW[name], rngs=Rngs(0)).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda p: init.eye_(p), "eye_: expected 2 dimensions, got (3,)"),
        (lambda p: init.dirac_(p), "dirac_: expected 3, 4 or 5 dimensions, got (3,)"),
        (lambda p: init.orthogonal_(p, rngs=Rngs(0)), "orthogonal_: expected at least 2"),
        (lambda p: init.sparse_(p, 0.1, rngs=Rngs(0)), "sparse_: expected 2 dimensions"),
        (lambda p: init.xavier_normal_(p, rngs=Rngs(0)), "at least 2 dimensions for a fan"),
        (lambda p: init.kaiming_normal_(p, mode="x", rngs=Rngs(0)), "mode 'fan_in' or 'fan_out'"),
        (lambda p: init.trunc_normal_(p, a=1, b=1, rngs=Rngs(0)), "expected std > 0 and a < b"),
        (lambda p: init.normal_(p, std=-1, rngs=Rngs(0)), "normal_: expected std of at least 0"),
        (lambda p: init.calculate_gain("x"), "calculate_gain: expected one of linear, conv1d"),
        (lambda p: init.calculate_gain("leaky_relu", "x"), "calculate_gain: expected a number"),
    ],
)
def test_refusals(call, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        call(Variable(jnp.zeros(3)))


def test_truncated_draws_stay_inside():
    for dtype in (jnp.float32, jnp.bfloat16):
        box = Variable(jnp.zeros(10_000, dtype))
        init.trunc_normal_(box, 0.0, 1.0, -0.5, 0.25, rngs=Rngs(params=0))
        assert box.value.min() >= -0.5 and box.value.max() <= 0.25


def test_reading_no_value_exposes_nothing():
    class Box:
        shape, dtype = (2, 2), jnp.dtype(jnp.float32)

        @property
        def value(self):
            raise AssertionError("an initialiser read the old value")

        @value.setter
        def value(self, new):
            self.new = new

    assert init.xavier_uniform_(Box(), rngs=Rngs(0)).new.shape == (2, 2)
