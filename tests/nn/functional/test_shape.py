"""Padding and pixels, against NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import functional as F


@pytest.mark.parametrize(
    ("mode", "theirs"), [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")]
)
def test_pad_is_numpys(mode, theirs):
    x = np.arange(24.0, dtype=np.float32).reshape(1, 2, 3, 4)
    expected = np.pad(x, [(0, 0), (0, 0), (2, 1), (1, 3)], mode=theirs)
    np.testing.assert_array_equal(F.pad(x, (1, 3, 2, 1), mode), expected)


def test_pad_of_integers_keeps_them():
    y = F.pad(jnp.arange(2), (1, 0), value=7)
    assert y.tolist() == [7, 0, 1]
    assert y.dtype == jnp.int32


def test_shuffle_and_unshuffle_are_inverse():
    x = jnp.arange(144.0).reshape(2, 18, 2, 2)
    np.testing.assert_array_equal(F.pixel_unshuffle(F.pixel_shuffle(x, 3), 3), x)


def test_fold_counts_how_often_a_pixel_is_in_a_window():
    ones = jnp.ones((1, 1, 3, 3))
    y = F.fold(F.unfold(ones, 2), (3, 3), 2)
    assert y[0, 0].tolist() == [[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]
