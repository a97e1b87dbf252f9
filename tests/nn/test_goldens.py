"""Layers give the numbers recorded from PyTorch (see ``tests/goldens/make_layers.py``)."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from tests.nn.layer_cases import LAYERS, cotangent

PATH = Path(__file__).parent.parent / "goldens" / "layers.npz"
with np.load(PATH) as _file:
    GOLDEN = dict(
        zip(
            _file["names"].tolist(),
            np.split(_file["values"], _file["ends"][:-1]),
            strict=True,
        )
    )


def test_that_rows_and_records_are_the_same():
    assert list(GOLDEN) == [str(row) for row in LAYERS]


def outputs_of(module, arrays, kwargs):
    out = module(*arrays, **kwargs)
    return [y for y in (out if isinstance(out, tuple) else (out,)) if y is not None]


@pytest.mark.parametrize("row", LAYERS, ids=str)
def test_numbers(row):
    module = row.build()
    module.load_state_dict(row.state(module.state_dict()))
    module.train(not row.draws)

    def arguments(step=0):
        args, kwargs = row.call_arguments(step)
        cast = lambda v: jnp.asarray(v) if isinstance(v, np.ndarray) else v
        return [cast(a) for a in args], {k: cast(v) for k, v in kwargs.items()}

    arrays, kwargs = arguments()
    floats = [i for i, a in enumerate(arrays) if jnp.issubdtype(a.dtype, jnp.floating)]

    def loss(module, *values):
        full = list(arrays)
        for i, value in zip(floats, values, strict=True):
            full[i] = value
        ys = outputs_of(module, full, kwargs)
        seeds = [cotangent(y.shape) for y in ys]
        terms = [
            (y * seed).sum()
            for y, seed in zip(ys, seeds, strict=True)
            if jnp.issubdtype(y.dtype, jnp.floating)
        ]
        return sum(terms, jnp.zeros(())), ys

    if row.grad:
        call = js.value_and_grad(loss, tuple(range(len(floats) + 1)), has_aux=True)
        (_, found), (grads, *rest) = call(module, *[arrays[i] for i in floats])
        found = [*found, *grads.values(), *rest]
    else:
        found = outputs_of(module, arrays, kwargs)
    if "BatchNorm" in row.name:
        for step in (1, 2):
            outputs_of(module, *arguments(step))
        found += [box.value for box in module.buffers()]
        found += outputs_of(module.eval(), arrays, kwargs)

    expected, start = GOLDEN[str(row)], 0
    assert sum(f.size for f in found) == expected.size
    for array in found:
        part = expected[start : start + array.size].reshape(array.shape)
        start += array.size
        scale = float(np.abs(part[np.isfinite(part)]).max(initial=0))
        tolerance = 2 * row.tolerance
        np.testing.assert_allclose(array, part, rtol=tolerance, atol=tolerance * scale + 1e-30)
