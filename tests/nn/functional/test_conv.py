"""Convolutions, against loops."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import functional as F


def convolve(x, w, stride, padding, dilation, groups):
    """Return the definition, in float64."""
    spatial = w.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(padding, padding)] * spatial)
    sizes = [
        (n - dilation * (k - 1) - 1) // stride + 1
        for n, k in zip(x.shape[2:], w.shape[2:], strict=True)
    ]
    y = np.zeros((x.shape[0], w.shape[0], *sizes))
    per_group = w.shape[0] // groups
    for place in itertools.product(*map(range, sizes)):
        window = tuple(
            slice(o * stride, o * stride + dilation * (k - 1) + 1, dilation)
            for o, k in zip(place, w.shape[2:], strict=True)
        )
        for out in range(w.shape[0]):
            first = out // per_group * w.shape[1]
            patch = x[(slice(None), slice(first, first + w.shape[1]), *window)]
            y[(slice(None), out, *place)] = (patch * w[out]).reshape(x.shape[0], -1).sum(1)
    return y


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 2, 2)])
def test_against_loops(spatial, stride, padding, dilation, groups):
    r = np.random.RandomState(spatial)
    x = r.randn(2, 4, *(7, 6, 5)[:spatial])
    w = r.randn(6, 4 // groups, *(3, 2, 2)[:spatial])
    conv = getattr(F, f"conv{spatial}d")
    y = conv(x, w, None, stride, padding, dilation, groups)
    expected = convolve(x, w, stride, padding, dilation, groups)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_bfloat16_stays_bfloat16():
    x, w = jnp.ones((1, 2, 5), jnp.bfloat16), jnp.ones((3, 2, 3), jnp.bfloat16)
    y, vjp = jax.vjp(F.conv1d, x, w, jnp.zeros(3, jnp.bfloat16))
    assert {v.dtype for v in (y, *vjp(y))} == {jnp.dtype(jnp.bfloat16)}


def test_the_error_shows_the_shape_that_was_passed():
    with pytest.raises(ValueError, match=r"got \(2, 4\)"):
        F.conv1d(jnp.ones((2, 4)), jnp.ones((1, 3, 2)))
