"""Rows of ``tests/nn/sequence_cases.py`` in both frameworks."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn
from tests.nn.sequence_cases import Row, cotangent
from tests.parity.oracle import assert_close, is_float, to_jax, to_torch, torch


def both(row: Row) -> tuple[Any, Any]:
    """Build both layers with the same values, and check that names, states and texts agree."""
    ours, theirs = row.build(), row.make(torch.nn)
    state = row.state(theirs.state_dict())
    theirs.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert ours.load_state_dict(theirs.state_dict()) == ([], [])
    names = [name for name, _ in theirs.named_parameters()]
    assert [name for name, _ in ours.named_parameters()] == names
    assert repr(ours) == repr(theirs)
    theirs.load_state_dict(nn.utils.to_torch(ours.state_dict()), strict=True)
    for name, value in theirs.state_dict().items():
        assert_close(value, torch.tensor(state[name]), 0, name)
    return ours, theirs


def compare(row: Row, tolerance: float = 2e-5, *, by_step: bool = False) -> None:
    """Compare outputs, and gradients with respect to parameters and inputs.

    With ``by_step``, loops are Python's: then all rows share the few operations to compile.
    """
    ours, theirs = both(row)
    args, kwargs = row.arrays()
    tensors = jax.tree.map(lambda v: to_torch(v, grad=row.grad), (args, kwargs))
    expected = row.outputs(theirs, torch.nn.utils.rnn, *tensors)

    leaves, tree = jax.tree.flatten((args, kwargs))
    arrays = [to_jax(v) for v in leaves]
    places = [i for i, v in enumerate(leaves) if is_float(v)]

    def outputs_of(layer: Any, floats: list[Any]) -> Any:
        full = list(arrays)
        for i, value in zip(places, floats, strict=True):
            full[i] = value
        outputs = row.outputs(layer, nn.utils.rnn, *jax.tree.unflatten(tree, full))
        return sum((y * cotangent(y.shape)).sum() for y in outputs), outputs

    floats = [arrays[i] for i in places]
    if not row.grad:
        got = outputs_of(ours, floats)[1]
    else:
        run = js.value_and_grad(outputs_of, (0, 1), has_aux=True)
        with jax.disable_jit(by_step):
            (_, got), (grads, input_grads) = run(ours, floats)
    assert len(got) == len(expected)
    for y, e in zip(got, expected, strict=True):
        assert y.dtype == jnp.float32
        assert_close(y, e, tolerance, "output")
    for (name, box), theirs_box in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_close(box, theirs_box, tolerance, f"{name} afterwards")
    if not row.grad:
        return

    named = dict(theirs.named_parameters())
    flat = jax.tree.leaves(tensors)
    wanted = torch.autograd.grad(
        expected,
        [*named.values(), *(flat[i] for i in places)],
        [torch.tensor(np.asarray(cotangent(tuple(e.shape)))) for e in expected],
        allow_unused=True,
        materialize_grads=True,
    )
    found = [*(grads[name] for name in named), *input_grads]
    for name, g, w in zip([*named, *map(str, places)], found, wanted, strict=True):
        assert_close(g, w, 2 * tolerance, f"gradient of {name}")


def refused(case: Any) -> None:
    """Check that PyTorch raises too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception):  # noqa: B017
            case.run(torch.nn, torch.ones, torch.tensor)
