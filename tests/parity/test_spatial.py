"""Functions and layers of space give PyTorch's numbers, and refuse what it refuses."""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn
from tests.goldens import make_functional, make_layers
from tests.nn.functional.cases import call
from tests.nn.functional.spatial_cases import CASES, REFUSALS
from tests.nn.spatial_cases import CALLS_REFUSED, NAMES, REFUSED, TOPICS
from tests.nn.together import check, numbers_of_layers, outputs_and_gradients
from tests.parity.oracle import assert_close, to_torch, torch

# What PyTorch says of its own defaults and older names.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize("topic", CASES)
def test_functions(topic):
    rows = CASES[topic]
    for row, found in zip(rows, outputs_and_gradients(rows), strict=True):
        check(found, make_functional.record(row), 1e-5, str(row))


def test_bfloat16():
    # Without indices, places and gradients that jump from pixel to pixel where inputs are rounded.
    jumps = ("indices", "fractional", "grid_sample")
    every = [row for rows in CASES.values() for row in rows]
    every = [row for row in every if not any(word in str(row) for word in jumps)]
    rows = list({row.function: row for row in reversed(every)}.values())
    for row, found in zip(rows, outputs_and_gradients(rows, jnp.bfloat16), strict=True):
        if not row.function.startswith("max_unpool"):
            assert {array.dtype for array in found} == {jnp.dtype("bfloat16")}, str(row)
        check(found, make_functional.record(row), 5e-2, str(row))


@pytest.mark.parametrize("row", [row for row in REFUSALS if not row.ours], ids=str)
def test_that_pytorch_refuses_too(row):
    arguments = {k: to_torch(v) for k, v in row.materialise().items()}
    with pytest.raises((RuntimeError, ValueError, IndexError, TypeError, ZeroDivisionError)):
        call(getattr(torch.nn.functional, row.function), arguments)


@pytest.mark.parametrize("topic", TOPICS)
def test_layers(topic):
    rows = TOPICS[topic]
    layers, numbers = numbers_of_layers(rows)
    for row, ours, found in zip(rows, layers, numbers, strict=True):
        check(found, make_layers.record(row), 2e-5, str(row))
        args, kwargs = row.arguments()
        theirs = getattr(torch.nn, row.name)(*args, **kwargs)
        assert repr(ours) == repr(theirs)
        for method in ("named_parameters", "named_buffers"):
            names = [name for name, _ in getattr(theirs, method)()]
            assert [name for name, _ in getattr(ours, method)()] == names
        theirs.load_state_dict(nn.utils.to_torch(ours.state_dict()), strict=True)
        for name, tensor in theirs.state_dict().items():
            assert_close(ours.state_dict()[name], tensor, 0, name)
        assert ours.load_state_dict(theirs.state_dict()) == ([], [])


@pytest.mark.parametrize("name", NAMES)
def test_arguments_are_pytorchs(name):
    ours, theirs = getattr(nn, name), getattr(torch.nn, name)
    for a, b in ((ours, theirs), (ours.forward, theirs.forward)):
        given = inspect.signature(a).parameters.values()
        wanted = inspect.signature(b).parameters.values()
        kinds = [(p.name, p.kind, p.default) for p in wanted]
        assert [
            (p.name, p.kind, p.default) for p in given if p.name not in ("rngs", "axis_name")
        ] == kinds
        assert all(p.kind is p.KEYWORD_ONLY for p in given if p.name in ("rngs", "axis_name"))


@pytest.mark.parametrize("row", [row for row in REFUSED if not row.ours], ids=str)
def test_that_pytorch_refuses_to_build_too(row):
    with pytest.raises((ValueError, TypeError, AssertionError)):
        getattr(torch.nn, row.name)(*row.args, **row.kwargs)


@pytest.mark.parametrize(("row", "text"), CALLS_REFUSED, ids=[str(r) for r, _ in CALLS_REFUSED])
def test_that_pytorch_refuses_the_call_too(row, text):
    args, kwargs = row.arguments()
    theirs = getattr(torch.nn, row.name)(
        *map(to_torch, args), **{k: to_torch(v) for k, v in kwargs.items()}
    )
    inputs, call = row.call_arguments()
    with pytest.raises((ValueError, RuntimeError, NotImplementedError)):
        theirs(*map(to_torch, inputs), **call)


@pytest.mark.parametrize("n", [2, 3])
def test_fractional_pooling(n):
    name = f"FractionalMaxPool{n}d"
    x = np.random.RandomState(0).randn(2, 3, 7, 6, 8)[..., 0 if n == 2 else slice(None)]
    u = np.random.RandomState(1).uniform(size=(2, 3, n)).astype(np.float32)
    x = x.astype(np.float32)
    ours = getattr(nn, name)(2, output_ratio=0.5, return_indices=True, _random_samples=u)
    theirs = getattr(torch.nn, name)(
        2, output_ratio=0.5, return_indices=True, _random_samples=torch.tensor(u)
    )
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for y, e in zip(js.jit(ours)(x), theirs(torch.tensor(x)), strict=True):
        assert_close(y, e, 0, "output")


def test_sync_batch_norm_is_a_batch_norm_of_all():
    x = np.random.RandomState(0).randn(4, 3, 2, 5).astype(np.float32)
    ours, theirs = nn.SyncBatchNorm(2, axis_name="i"), torch.nn.BatchNorm1d(2)
    y = js.vmap(lambda m, x: m(x), in_axes=(None, 0), axis_name="i")(ours, jnp.asarray(x))
    e = theirs(torch.tensor(x.reshape(12, 2, 5)))
    assert_close(y.reshape(12, 2, 5), e, 1e-5, "output")
    for name, tensor in theirs.state_dict().items():
        assert_close(ours.state_dict()[name], tensor, 1e-5, name)
    assert repr(ours) == repr(torch.nn.SyncBatchNorm(2))
    theirs = torch.nn.SyncBatchNorm(2).eval()
    theirs.load_state_dict(nn.utils.to_torch(ours.state_dict()))
    assert_close(ours.eval()(x[0]), theirs(torch.tensor(x[0])), 1e-5, "evaluation")
