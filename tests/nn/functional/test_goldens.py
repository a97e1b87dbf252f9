"""Outputs and gradients, compiled, are those that were recorded from PyTorch."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import functional as F
from tests.nn.functional.cases import GOLDEN, call, cotangent

PATH = Path(__file__).parents[2] / "goldens" / "functional.npz"


@pytest.fixture(scope="module")
def recorded():
    with np.load(PATH, allow_pickle=False) as file:
        parts = np.split(file["values"], file["ends"][:-1])
        return dict(zip(file["names"].tolist(), parts, strict=True))


def test_that_the_table_is_the_recorded_one(recorded):
    assert list(recorded) == [str(row) for row in GOLDEN]  # so no two rows have one name


@pytest.mark.parametrize("row", GOLDEN, ids=str)
def test_golden(row, recorded):
    arguments = row.materialise()
    arrays = {k: jnp.asarray(v) for k, v in arguments.items() if isinstance(v, np.ndarray)}
    leaves = {k: arrays.pop(k) for k, v in arguments.items() if row.has_gradient(k, v)}

    def outputs_of(leaves, arrays):
        y = call(getattr(F, row.function), {**arguments, **arrays, **leaves})
        return y if isinstance(y, tuple) else (y,)

    @jax.jit
    def run(leaves, arrays):
        if not leaves:
            return outputs_of(leaves, arrays), {}
        y, vjp = jax.vjp(lambda v: outputs_of(v, arrays), leaves)
        seeds = [
            jnp.asarray(cotangent(v.shape))
            if jnp.issubdtype(v.dtype, jnp.floating)
            else np.zeros(v.shape, jax.dtypes.float0)
            for v in y
        ]
        return y, vjp(tuple(seeds))[0]

    outputs, gradients = run(leaves, arrays)
    got = [np.asarray(y, np.float32) for y in (*outputs, *(gradients[p] for p in leaves))]
    expected = recorded[str(row)]
    assert sum(y.size for y in got) == expected.size
    for y, e in zip(got, np.split(expected, np.cumsum([y.size for y in got])[:-1]), strict=True):
        finite = np.abs(e[np.isfinite(e)])
        slack = 1e-5 * float(finite.max()) if finite.size else 0.0
        np.testing.assert_allclose(y.ravel(), e, rtol=1e-5, atol=slack + 1e-30)
