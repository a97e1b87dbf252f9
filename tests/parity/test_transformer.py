"""Transformers, attention and bags give PyTorch's numbers, and refuse what it refuses."""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.nn import functional as F
from tests.nn.sequence_cases import BAGS, HEADS, TRANSFORMER, TRANSFORMERS_REFUSED
from tests.parity import oracle
from tests.parity.oracle import assert_close, torch
from tests.parity.sequences import compare, refused

pytestmark = [
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
    pytest.mark.filterwarnings("ignore:Support for mismatched"),
]

NAMES = (
    "EmbeddingBag",
    "Transformer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
)


@pytest.mark.parametrize("row", [*TRANSFORMER, *BAGS], ids=str)
def test_numbers(row):
    compare(row)


@pytest.mark.parametrize("case", HEADS, ids=str)
def test_multi_head_attention(case):
    function = "multi_head_attention_forward"
    ours, theirs = getattr(F, function), getattr(torch.nn.functional, function)
    is_float = lambda name, value: oracle.is_float(value)
    oracle.compare(ours, theirs, case.materialise(), is_float)


@pytest.mark.parametrize("case", [c for c in TRANSFORMERS_REFUSED if not c.ours], ids=str)
def test_that_pytorch_refuses_too(case):
    refused(case)


@pytest.mark.parametrize("name", NAMES)
def test_arguments_are_pytorchs(name):
    for method in ("__init__", "forward"):
        ours, theirs = (getattr(getattr(m, name), method) for m in (nn, torch.nn))
        text = lambda p: "relu" if callable(p.default) and p.name == "activation" else p.default
        wanted = [(p.name, text(p)) for p in inspect.signature(theirs).parameters.values()]
        given = [(p.name, text(p)) for p in inspect.signature(ours).parameters.values()]
        assert [p for p in given if p[0] != "rngs"] == wanted


def test_causal_mask():
    ours = nn.Transformer.generate_square_subsequent_mask(4, dtype=jnp.bfloat16)
    theirs = torch.nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.bfloat16)
    assert ours.dtype == jnp.bfloat16
    assert_close(ours, theirs, 0, "mask")


def test_what_drawing_gives_has_pytorchs_distribution():
    sizes = (40, 2, 1, 1, 60)
    ours = dict(nn.Transformer(*sizes, rngs=js.Rngs(0)).named_parameters())
    theirs = dict(torch.nn.Transformer(*sizes).named_parameters())
    assert list(ours) == list(theirs)
    for name, tensor in theirs.items():
        if tensor.ndim > 1:
            a, b = np.asarray(ours[name]), tensor.detach().numpy()
            np.testing.assert_allclose(a.std(), b.std(), rtol=0.06)
            np.testing.assert_allclose(np.abs(a).max(), np.abs(b).max(), rtol=0.06)


def test_a_bag_of_long_rows_shortens_the_same_table():
    table = np.random.RandomState(0).randn(5, 3).astype(np.float32)
    ours = nn.EmbeddingBag.from_pretrained(jnp.asarray(table), max_norm=0.5)
    theirs = torch.nn.EmbeddingBag.from_pretrained(torch.tensor(table), max_norm=0.5)
    assert_close(ours(jnp.array([[1, 2]])), theirs(torch.tensor([[1, 2]])), 1e-6, "output")
    assert_close(ours.weight, theirs.weight, 1e-6, "table")
    assert not ours.weight.requires_grad
