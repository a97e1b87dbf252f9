"""Attention: against its definition, with dropout, in narrow floats."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import functional as F
from jaxsaw.nn.functional import attention
from jaxsaw.rngs import Rngs

attend = F.scaled_dot_product_attention


def draw(*shape, dtype=jnp.float32, seed=0):
    return jnp.asarray(np.random.RandomState(seed).randn(*shape), dtype)


def test_is_its_definition():
    q, k, v = draw(2, 3, 4), draw(2, 5, 4, seed=1), draw(2, 5, 6, seed=2)
    scores = np.exp(np.asarray(q) @ np.swapaxes(k, 1, 2) / 2)
    expected = scores / scores.sum(-1, keepdims=True) @ np.asarray(v)
    np.testing.assert_allclose(attend(q, k, v), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("heads", [4, 2, 1])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("mask", [None, bool, float])
def test_both_ways_to_compute_agree(monkeypatch, heads, is_causal, mask):
    q, k, v = draw(2, 4, 3, 8), draw(2, heads, 5, 8, seed=1), draw(2, heads, 5, 8, seed=2)
    if mask is not None:
        numbers = draw(2, 1, 3, 5, seed=3)
        mask = numbers > 0 if mask is bool else numbers
    run = lambda q, k, v: attend(q, k, v, mask, 0.0, is_causal, enable_gqa=True)
    y, vjp = jax.vjp(run, q, k, v)
    called = []

    def own(q, k, v, mask, is_causal, scale):
        called.append(True)
        k, v = (jnp.repeat(x, 4 // heads, 1) for x in (k, v))
        return attention._attention(q, k, v, mask, 0.0, is_causal, scale, None)

    monkeypatch.setattr(attention, "_jax_attention", own)
    z, vjp_own = jax.vjp(run, q, k, v)
    assert called
    for a, b in zip((y, *vjp(y)), (z, *vjp_own(y)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_floats(dtype):
    q, k, v = (draw(1, 2, 6, 8, dtype=dtype, seed=i) for i in range(3))
    wide = [x.astype(jnp.float32) for x in (q, k, v)]
    y, vjp = jax.vjp(attend, q, k, v)
    z, vjp_wide = jax.vjp(attend, *wide)
    for a, b in zip((y, *vjp(jnp.ones_like(y))), (z, *vjp_wide(jnp.ones_like(z))), strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a.astype(jnp.float32), b, rtol=0.03, atol=0.03)


def test_scores_of_narrow_floats_are_kept_in_float32():
    # These scores, 256 and 257, are one number in bfloat16.
    q = jnp.ones((1, 257), jnp.bfloat16)
    k = jnp.ones((2, 257), jnp.bfloat16).at[0, 0].set(0)
    v = jnp.array([[0.0], [1.0]], jnp.bfloat16)
    np.testing.assert_allclose(
        attend(q, k, v, scale=1.0).astype(jnp.float32), [[jax.nn.sigmoid(1.0)]], rtol=5e-3
    )


def test_forward_mode():
    q, k, v = (draw(2, 3, 4, dtype=jnp.bfloat16, seed=i) for i in range(3))
    y, dy = jax.jvp(attend, (q, k, v), (q, k, v))
    assert y.dtype == dy.dtype == jnp.bfloat16


def test_a_query_without_keys_has_zeros_and_finite_gradients():
    x = draw(2, 3, 4)
    for mask in (jnp.eye(3, dtype=bool).at[1].set(False), jnp.zeros((3, 3)).at[1].set(-jnp.inf)):
        for dtype in (jnp.float32, jnp.bfloat16):
            y, vjp = jax.vjp(lambda q, mask=mask: attend(q, q, q, mask), x.astype(dtype))
            assert not y[:, 1].any()
            assert jnp.isfinite(vjp(jnp.ones_like(y))[0]).all()


def test_dropout_drops_weights():
    n = 64
    v = jnp.eye(n)
    y = attend(jnp.zeros((n, 4)), jnp.zeros((n, 4)), v, dropout_p=0.5, rngs=Rngs(dropout=0))
    np.testing.assert_allclose(jnp.unique(y), [0, 2 / n], rtol=1e-6)
    assert abs((y == 0).mean() - 0.5) < 0.05


@pytest.mark.parametrize(("p", "drawn"), [(0.0, 0), (0.5, 1), (1.0, 0)])
def test_what_is_drawn(p, drawn):
    rngs = Rngs(dropout=0)
    y = attend(draw(2, 3, 4), draw(2, 3, 4), draw(2, 3, 4), dropout_p=p, rngs=rngs)
    assert rngs.counts == {"dropout": drawn}
    assert y.any() == (p < 1)


def test_dropout_without_streams_says_what_to_pass():
    with pytest.raises(RuntimeError, match="rngs=js.Rngs"):
        attend(draw(3, 4), draw(3, 4), draw(3, 4), dropout_p=0.5)


def test_mask_and_causal_are_combined():
    x = draw(2, 3, 4)
    mask = jnp.array([True, False, True])
    both = jnp.tril(jnp.ones((3, 3), bool)) & mask
    np.testing.assert_allclose(attend(x, x, x, mask, is_causal=True), attend(x, x, x, both))
