"""Lazy layers have PyTorch's arguments, text and states, before and after the first call."""

import inspect

import pytest

import jaxsaw as js
from jaxsaw import nn
from tests.nn.functional.cases import N
from tests.parity.oracle import assert_close, np, to_jax, to_torch, torch

SIZES = {1: (9,), 2: (7, 6), 3: (5, 4, 6)}
KERNELS = {"stride": 2, "padding": 1, "groups": 2, "bias": False}
ROWS = [("LazyLinear", (3,), {}, (2, 5)), ("LazyLinear", (3,), {"bias": False}, (5,))]
for n, size in SIZES.items():
    for name in (f"LazyConv{n}d", f"LazyConvTranspose{n}d"):
        ROWS.append((name, (4, 3), {}, (2, 6, *size)))
        if n < 3:
            ROWS.append((name, (4, 3), KERNELS, (6, *size)))
    for name in (f"LazyBatchNorm{n}d", f"LazyInstanceNorm{n}d"):
        ROWS += [
            (name, (), {}, (2, 6, *size)),
            (name, (), {"affine": False, "eps": 0.1}, (2, 6, *size)),
            (name, (), {"track_running_stats": False}, (2, 6, *size)),
        ]


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), ROWS)
def test_lazy(name, args, kwargs, shape):
    theirs = getattr(torch.nn, name)(*args, **kwargs)
    draws = {} if "Norm" in name else {"rngs": js.Rngs(0)}
    ours, loads = (getattr(nn, name)(*args, **kwargs, **draws) for _ in range(2))
    x = N(*shape).draw(np.random.RandomState(0))
    for _ in range(2):
        assert repr(ours) == repr(theirs)
        names = [name for name, _ in ours.named_parameters()]
        assert names == [name for name, _ in theirs.named_parameters()]
        assert list(ours.state_dict()) == list(theirs.state_dict())
        for key, tensor in theirs.state_dict().items():
            kinds = [type(v).__name__ for v in (ours.state_dict()[key], tensor)]
            assert kinds[0] == kinds[1] or kinds[1] == "Tensor"
        theirs(to_torch(x))
        ours(to_jax(x))
    state = theirs.state_dict()
    for layer in (ours, loads):
        assert layer.load_state_dict(state) == ([], [])
        assert_close(layer.eval()(to_jax(x)), theirs.eval()(to_torch(x)), 2e-5, "output")
        assert repr(layer) == repr(theirs)


@pytest.mark.parametrize("name", [*sorted({row[0] for row in ROWS}), "UninitializedParameter"])
def test_arguments(name):
    ours = inspect.signature(getattr(nn, name)).parameters
    theirs = inspect.signature(getattr(torch.nn, name)).parameters
    expected = [(p.name, p.kind, p.default) for p in theirs.values()]
    assert [(p.name, p.kind, p.default) for p in ours.values() if p.name != "rngs"] == expected
