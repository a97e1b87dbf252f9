"""Recurrent layers, cells and packing give PyTorch's numbers, and refuse what it refuses."""

import inspect
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn
from tests.nn.sequence_cases import CELLS_REFUSED, PACKING_REFUSED, RECURRENT
from tests.parity.oracle import assert_close, torch
from tests.parity.sequences import both, compare, refused

# What PyTorch says once a process.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

RNN, TORCH = nn.utils.rnn, torch.nn.utils.rnn
LAYERS = ("RNN", "LSTM", "GRU")


@pytest.mark.parametrize("row", RECURRENT, ids=str)
def test_numbers(row):
    compare(row, by_step=True)


@pytest.mark.parametrize("row", [r for r in RECURRENT if "both ways" in r.text], ids=str)
def test_bfloat16(row):
    ours, theirs = both(row)
    args, kwargs = row.arrays()
    narrow = jax.tree.map(lambda v: jnp.asarray(v, jnp.bfloat16), args)
    wide = jax.tree.map(lambda v: torch.tensor(np.asarray(v.astype(jnp.float32))), narrow)
    with jax.disable_jit():
        got = row.outputs(ours.bfloat16(), RNN, narrow, kwargs)
    for y, e in zip(got, row.outputs(theirs, TORCH, wide, kwargs), strict=True):
        assert y.dtype == jnp.bfloat16
        assert_close(y, e, 4e-2, "output")


@pytest.mark.parametrize("name", [*LAYERS, "RNNBase", "RNNCell", "LSTMCell", "GRUCell"])
def test_arguments_are_pytorchs(name):
    ours, theirs = getattr(nn, name), getattr(torch.nn, name)
    overloads = typing.get_overloads(theirs.__init__)
    wanted = dict(inspect.signature(overloads[0] if overloads else theirs).parameters)
    wanted.pop("self", None)
    given = dict(inspect.signature(ours).parameters)
    assert given.pop("rngs").kind is inspect.Parameter.KEYWORD_ONLY
    assert [(p.name, p.default) for p in given.values()] == [
        (p.name, p.default) for p in wanted.values()
    ]
    if name != "RNNBase":
        wanted = inspect.signature(theirs.forward).parameters
        given = inspect.signature(ours.forward).parameters
        assert [p for p in given if p != "rngs"] == list(wanted)


@pytest.mark.parametrize("name", RNN.__all__)
def test_arguments_of_packing_are_pytorchs(name):
    ours, theirs = (inspect.signature(getattr(m, name)).parameters for m in (RNN, TORCH))
    assert [(p.name, p.default) for p in ours.values()] == [
        (p.name, p.default) for p in theirs.values() if p.name != "self"
    ]


@pytest.mark.parametrize("case", [c for c in CELLS_REFUSED if not c.ours], ids=str)
def test_that_pytorch_refuses_too(case):
    refused(case)


@pytest.mark.parametrize("case", [c for c in PACKING_REFUSED if not c.ours], ids=str)
def test_that_pytorch_refuses_to_pack_too(case):
    refused(case)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("lengths", [(4, 2, 1), (2, 4, 1), (3, 3, 3), (1, 2, 3)])
def test_packing(first, lengths):
    x = np.random.RandomState(0).randn(3, 4, 2).astype(np.float32)
    x = x if first else x.swapaxes(0, 1)
    ours = RNN.pack_padded_sequence(jnp.asarray(x), lengths, first, False)
    theirs = TORCH.pack_padded_sequence(torch.tensor(x), torch.tensor(lengths), first, False)
    for name in ("data", "batch_sizes", "sorted_indices", "unsorted_indices"):
        assert_close(getattr(ours, name), getattr(theirs, name), 0, name)
    for options in ((), (True, -1.5), (False, 0.0, 6)):
        a, b = RNN.pad_packed_sequence(ours, *options), TORCH.pad_packed_sequence(theirs, *options)
        assert_close(a[0], b[0], 0, "padded")
        assert_close(a[1], b[1], 0, "lengths")
    for a, b in zip(RNN.unpack_sequence(ours), TORCH.unpack_sequence(theirs), strict=True):
        assert_close(a, b, 0, "sequence")


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(first, side):
    r = np.random.RandomState(0)
    items = [r.randn(n, 2).astype(np.float32) for n in (2, 4, 1)]
    ours = RNN.pad_sequence(map(jnp.asarray, items), first, 7.0, side)
    theirs = TORCH.pad_sequence([torch.tensor(v) for v in items], first, 7.0, side)
    assert_close(ours, theirs, 0, "padded")
    lengths = [2, 4, 1]
    a = RNN.unpad_sequence(ours, lengths, first)
    b = TORCH.unpad_sequence(theirs, torch.tensor(lengths), first)
    for x, y in zip(a, b, strict=True):
        assert_close(x, y, 0, "sequence")
    ours = RNN.pack_sequence([jnp.asarray(v) for v in items], False)
    theirs = TORCH.pack_sequence([torch.tensor(v) for v in items], False)
    assert_close(ours.data, theirs.data, 0, "data")


def test_what_drawing_gives_has_pytorchs_distribution():
    ours = dict(nn.LSTM(20, 25, proj_size=10, rngs=js.Rngs(0)).named_parameters())
    for name, tensor in torch.nn.LSTM(20, 25, proj_size=10).named_parameters():
        if "bias" in name:
            assert not ours[name].any()
            continue
        a, b = np.asarray(ours[name]), tensor.detach().numpy()
        np.testing.assert_allclose(a.std(), b.std(), rtol=0.1)
        np.testing.assert_allclose(np.abs(a).max(), 0.2, rtol=0.1)


def test_all_weights_are_pytorchs():
    make = lambda nn, **k: nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2, **k)
    ours, theirs = make(nn, rngs=js.Rngs(0)).all_weights, make(torch.nn).all_weights
    assert [[w.shape for w in group] for group in ours] == [
        [tuple(w.shape) for w in group] for group in theirs
    ]
