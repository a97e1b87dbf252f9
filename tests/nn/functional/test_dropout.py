"""Dropout: what is drawn, what is kept, and where the randomness comes from."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw import rngs as streams
from jaxsaw.nn import functional as F
from jaxsaw.rngs import Rngs

SHAPES = {
    "dropout": (2, 3),
    "dropout1d": (2, 3, 4),
    "dropout2d": (2, 3, 4, 5),
    "dropout3d": (2, 3, 4, 5, 6),
    "alpha_dropout": (2, 3),
    "feature_alpha_dropout": (2, 3, 4),
}


class Fixed:
    """Streams that give one key, which may be a tracer."""

    def __init__(self, key):
        self.key = key

    def next(self, name):
        assert name == "dropout"
        return self.key


every = pytest.mark.parametrize("name", SHAPES)


@every
def test_one_key_is_drawn(name):
    rngs = Rngs(dropout=0)
    getattr(F, name)(jnp.ones(SHAPES[name]), 0.5, True, rngs=rngs)
    assert rngs.counts == {"dropout": 1}


@every
@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.5, False), (1.0, False), (1.0, True)])
def test_nothing_is_drawn_without_chance(name, p, training):
    x = jnp.ones(SHAPES[name])
    rngs = Rngs(dropout=0)
    y = getattr(F, name)(x, p, training, rngs=rngs)
    assert rngs.counts == {"dropout": 0}
    np.testing.assert_array_equal(y, 0 * x if p == 1 and training else x)


@every
@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_probability_is_checked_also_in_evaluation(name, p):
    with pytest.raises(ValueError, match=rf"{name}: expected p in \[0, 1\], got"):
        getattr(F, name)(jnp.ones(SHAPES[name]), p, training=False)


@every
def test_integers_are_refused(name):
    with pytest.raises(TypeError, match=f"{name}: expected input of a floating dtype, got int32"):
        getattr(F, name)(jnp.ones(SHAPES[name], int), training=True, rngs=Rngs(0))


@every
def test_without_streams_it_says_what_to_pass(name):
    with pytest.raises(RuntimeError, match="rngs=js.Rngs"):
        getattr(F, name)(jnp.ones(SHAPES[name]), training=True)


@every
def test_ambient_streams_serve(name):
    x = jnp.asarray(np.random.RandomState(0).randn(*SHAPES[name]), jnp.float32)
    with streams.using(Rngs(dropout=3)):
        y = getattr(F, name)(x, training=True)
    np.testing.assert_array_equal(y, getattr(F, name)(x, training=True, rngs=Rngs(dropout=3)))


@every
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_dtype_and_jit(name, dtype):
    x = jnp.ones(SHAPES[name], dtype)
    key = jax.random.fold_in(jax.random.key(1), 0)

    function = getattr(F, name)
    y = jax.jit(lambda x, key: function(x, 0.5, True, rngs=Fixed(key)))(x, key)
    eager = function(x, 0.5, True, rngs=Rngs(dropout=1))
    assert y.dtype == eager.dtype == dtype
    np.testing.assert_allclose(y.astype(jnp.float32), eager.astype(jnp.float32), rtol=1e-2)


def test_the_mask_is_a_documented_draw():
    key = jax.random.fold_in(jax.random.key(5), 0)
    keep = jax.random.bernoulli(key, jnp.float32(0.75), (100,))
    y = F.dropout(jnp.ones(100), 0.25, rngs=Rngs(dropout=5))
    np.testing.assert_allclose(y, np.where(keep, 1 / 0.75, 0), rtol=1e-6)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_share_and_mean(p):
    y = F.dropout(jnp.ones(100_000), p, rngs=Rngs(dropout=0))
    assert abs((y == 0).mean() - p) < 0.01
    assert abs(y.mean() - 1) < 0.02
    np.testing.assert_allclose(jnp.unique(y), [0, 1 / (1 - p)], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape", "mask"),
    [
        ("dropout1d", (50, 7), (50, 1)),
        ("dropout1d", (50, 3, 7), (50, 3, 1)),
        ("dropout2d", (50, 3, 7), (50, 3, 1)),
        ("dropout2d", (50, 3, 7, 2), (50, 3, 1, 1)),
        ("dropout3d", (50, 3, 7, 2), (50, 1, 1, 1)),
        ("dropout3d", (50, 3, 2, 7, 2), (50, 3, 1, 1, 1)),
        ("feature_alpha_dropout", (50, 3), (50, 3)),
        ("feature_alpha_dropout", (50, 3, 2, 7), (50, 3, 1, 1)),
    ],
)
def test_whole_channels_are_dropped(name, shape, mask):
    y = np.asarray(getattr(F, name)(jnp.ones(shape), 0.5, True, rngs=Rngs(dropout=0)))
    first = y[tuple(slice(0, n) for n in mask)]
    np.testing.assert_array_equal(y, np.broadcast_to(first, shape))
    assert len(np.unique(first)) == 2


@pytest.mark.parametrize(
    ("name", "shape", "text"),
    [
        ("dropout1d", (2,), "(N, C, L) or (C, L)"),
        ("dropout2d", (2, 3), "(N, C, H, W) or (N, C, L)"),
        ("dropout3d", (2, 3, 4), "(N, C, D, H, W) or (C, D, H, W)"),
        ("feature_alpha_dropout", (2,), "(N, C, *)"),
    ],
)
def test_shapes_are_checked(name, shape, text):
    with pytest.raises(ValueError) as raised:
        getattr(F, name)(jnp.ones(shape), rngs=Rngs(0))
    assert text in str(raised.value)


@pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout"])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_alpha_dropout_keeps_mean_and_variance(name, p):
    x = jnp.asarray(np.random.RandomState(0).randn(200_000, 1), jnp.float32)
    y = getattr(F, name)(x, p, True, rngs=Rngs(dropout=0))
    assert abs(y.mean()) < 0.02
    assert abs(y.var() - 1) < 0.03


def test_the_gradient_is_the_mask():
    x = jnp.ones(20)
    rngs = Fixed(jax.random.key(0))
    y, vjp = jax.vjp(lambda x: F.dropout(x, rngs=rngs), x)
    np.testing.assert_array_equal(vjp(x)[0], y)
