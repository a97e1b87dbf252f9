"""Layers agree with PyTorch's: text, names, states, outputs, gradients, buffers, refusals."""

import inspect
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn
from tests.nn.layer_cases import LAYERS, REFUSED, cotangent
from tests.parity.oracle import assert_close, is_float, to_jax, to_torch, torch, tuple_of

every_layer = pytest.mark.parametrize("row", LAYERS, ids=str)


def pair(row) -> tuple[nn.Module, Any]:
    """Build both layers, with the same values of all that is persistent."""
    args, kwargs = row.arguments()
    theirs = getattr(torch.nn, row.name)(
        *map(to_torch, args), **{k: to_torch(v) for k, v in kwargs.items()}
    )
    ours = row.build()
    state = row.state(theirs.state_dict())
    theirs.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    assert ours.load_state_dict(theirs.state_dict()) == ([], [])
    return ours, theirs


def modes(row) -> list[bool]:
    return [False] if row.draws else [False, True]


@every_layer
def test_text_and_states(row):
    ours, theirs = pair(row)
    assert repr(ours) == repr(theirs)
    state = ours.state_dict()
    assert list(state) == list(theirs.state_dict())
    for name, tensor in theirs.state_dict().items():
        assert_close(state[name], tensor, 0, name)
    other = row.state({name: value[None] for name, value in state.items()})
    for name, value in state.items():
        box = dict([*ours.named_parameters(), *ours.named_buffers()])[name]
        box.value = other[name].reshape(value.shape)
    theirs.load_state_dict(nn.utils.to_torch(ours.state_dict()), strict=True)
    for name, tensor in theirs.state_dict().items():
        assert_close(ours.state_dict()[name], tensor, 0, name)
    names = [name for name, _ in ours.named_parameters()]
    assert names == [name for name, _ in theirs.named_parameters()]
    assert [b for b, _ in ours.named_buffers()] == [b for b, _ in theirs.named_buffers()]


@every_layer
def test_numbers(row):
    ours, theirs = pair(row)
    for mode in modes(row):
        compare_call(row, ours.train(mode), theirs.train(mode))


@pytest.mark.parametrize("row", [row for row in LAYERS if "BatchNorm" in row.name], ids=str)
def test_buffers_after_some_steps(row):
    ours, theirs = pair(row)
    for step in range(3):
        args, kwargs = row.call_arguments(step)
        ours(*map(to_jax, args), **kwargs)
        theirs(*map(to_torch, args), **kwargs)
    for name, tensor in theirs.named_buffers():
        assert_close(ours.get_buffer(name), tensor, row.tolerance, name)
    compare_call(row, ours.eval(), theirs.eval())


def compare_call(row, ours: nn.Module, theirs: Any) -> None:
    """Compare outputs, and gradients with respect to parameters and inputs."""
    args, kwargs = row.call_arguments()
    tensors = [to_torch(a, grad=row.grad) for a in args]
    copies = [t.clone() if isinstance(t, torch.Tensor) else t for t in tensors]
    named = dict(theirs.named_parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of KLDivLoss's mean, and even kernels
        expected = tuple_of(theirs(*copies, **{k: to_torch(v) for k, v in kwargs.items()}))
    arrays = [to_jax(a) for a in args]
    kwargs = {k: to_jax(v) for k, v in kwargs.items()}
    floats = [i for i, a in enumerate(args) if is_float(a)]

    if not row.grad:
        got = tuple_of(ours(*arrays, **kwargs))
        for y, e in zip(got, expected, strict=True):
            assert_close(y, e, row.tolerance, "output")
        for name, tensor in theirs.named_parameters():
            assert_close(ours.get_parameter(name), tensor, row.tolerance, name)
        return

    def loss(model, *values):
        full = list(arrays)
        for i, value in zip(floats, values, strict=True):
            full[i] = value
        outputs = tuple_of(model(*full, **kwargs))
        return weighted(outputs), outputs

    value_and_grad = js.value_and_grad(loss, tuple(range(len(floats) + 1)), has_aux=True)
    (_, got), (grads, *input_grads) = value_and_grad(ours, *[arrays[i] for i in floats])
    assert len(got) == len(expected)
    for y, e in zip(got, expected, strict=True):
        if e is None:
            assert y is None
            continue
        assert y.dtype == (jnp.float32 if e.is_floating_point() else jnp.int32)
        assert_close(y, e, row.tolerance, "output")

    leaves = [tensors[i] for i in floats]
    pairs = [(e, torch.tensor(cotangent(tuple(e.shape)))) for e in expected if is_differentiable(e)]
    wanted = (
        torch.autograd.grad(
            [e for e, _ in pairs],
            [*named.values(), *leaves],
            [c for _, c in pairs],
            allow_unused=True,
        )
        if pairs
        else [None] * (len(named) + len(leaves))
    )
    for (name, parameter), w in zip(named.items(), wanted, strict=False):
        w = torch.zeros_like(parameter) if w is None else w
        assert_close(grads[name], w, 2 * row.tolerance, f"gradient of {name}")
    for g, leaf, w in zip(input_grads, leaves, wanted[len(named) :], strict=True):
        w = torch.zeros_like(leaf) if w is None else w
        assert_close(g, w, 2 * row.tolerance, "gradient of an input")


def is_differentiable(value: Any) -> bool:
    return value is not None and value.requires_grad


def weighted(outputs: tuple[Any, ...]) -> jax.Array:
    """Return one number from all outputs that are floats."""
    terms = [
        (y * cotangent(y.shape)).sum()
        for y in outputs
        if y is not None and jnp.issubdtype(y.dtype, jnp.floating)
    ]
    return sum(terms, jnp.zeros(()))


@pytest.mark.parametrize("row", [row for row in REFUSED if not row.ours], ids=str)
def test_that_pytorch_refuses_too(row):
    with pytest.raises((ValueError, TypeError, AssertionError, RuntimeError)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(torch.nn, row.name)(*row.args, **row.kwargs)


@pytest.mark.parametrize("name", sorted({row.name for row in LAYERS}))
def test_arguments_of_the_constructor(name):
    """PyTorch's, in its order and with its defaults; then ours, by keyword."""
    ours = inspect.signature(getattr(nn, name)).parameters
    theirs = inspect.signature(getattr(torch.nn, name)).parameters
    gone = {"min_value", "max_value"} if name == "Hardtanh" else set()
    expected = [(p.name, p.kind, p.default) for p in theirs.values() if p.name not in gone]
    found = [(p.name, p.kind, p.default) for p in ours.values()]
    assert [p for p in found if p[0] != "rngs"] == expected
    if "rngs" in ours:
        assert found[-1][1] is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("name", sorted({row.name for row in LAYERS}))
def test_arguments_of_forward(name):
    ours = inspect.signature(getattr(nn, name).forward).parameters
    theirs = inspect.signature(getattr(torch.nn, name).forward).parameters
    expected = [(p.name, p.default) for p in theirs.values()]
    assert [(p.name, p.default) for p in ours.values() if p.name != "rngs"] == expected


def test_attributes_that_pytorch_documents():
    ours = nn.Conv2d(4, 6, 3, padding=1, groups=2, rngs=js.Rngs(0))
    theirs = torch.nn.Conv2d(4, 6, 3, padding=1, groups=2)
    names = "in_channels out_channels kernel_size stride padding dilation groups padding_mode"
    for name in [*names.split(), "transposed", "output_padding", "training"]:
        assert getattr(ours, name) == getattr(theirs, name)


def test_bfloat16_states_go_both_ways():
    theirs = torch.nn.Linear(3, 2, dtype=torch.bfloat16)
    ours = nn.Linear(3, 2, dtype=jnp.bfloat16, rngs=js.Rngs(0))
    ours.load_state_dict(theirs.state_dict())
    assert ours.weight.dtype == jnp.bfloat16
    assert_close(ours.weight, theirs.weight, 0, "weight")
    ours.weight.value = ours.weight * 2
    theirs.load_state_dict(nn.utils.to_torch(ours.state_dict()))
    assert theirs.weight.dtype == torch.bfloat16
    assert_close(ours.weight, theirs.weight, 0, "weight")
    wide = nn.Linear(3, 2, rngs=js.Rngs(0))
    wide.load_state_dict(theirs.state_dict())
    assert wide.weight.dtype == jnp.float32


def test_modules_containers_and_ties():
    """A model of several parts has PyTorch's names, state and text."""

    def build(nn, **kwargs):
        inner = nn.Linear(3, 3, **kwargs)
        return nn.ModuleDict(
            {
                "list": nn.ModuleList([inner, nn.ReLU(), nn.ReLU(), inner]),
                "seq": nn.Sequential(nn.Conv1d(2, 3, 1, **kwargs), nn.BatchNorm1d(3)),
                "norm": nn.LayerNorm(3),
            }
        )

    ours, theirs = build(nn, rngs=js.Rngs(0)), build(torch.nn)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for method in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        names = [name for name, _ in getattr(theirs, method)()]
        assert [name for name, _ in getattr(ours, method)()] == names
    for method in ("named_parameters", "named_buffers", "named_modules"):
        names = [name for name, _ in getattr(theirs, method)(remove_duplicate=False)]
        assert [name for name, _ in getattr(ours, method)(remove_duplicate=False)] == names
    assert ours.load_state_dict(theirs.state_dict()) == ([], [])


def test_what_drawing_gives_has_pytorch_s_distribution():
    rngs = js.Rngs(0)
    for name, args in (
        ("Linear", (50, 60)),
        ("Conv2d", (6, 50, 5)),
        ("Bilinear", (10, 12, 30)),
        ("Embedding", (60, 50)),
        ("MultiheadAttention", (50, 2)),
    ):
        ours = dict(getattr(nn, name)(*args, rngs=rngs).named_parameters())
        theirs = dict(getattr(torch.nn, name)(*args).named_parameters())
        for key, tensor in theirs.items():
            if "bias" in key:
                assert not ours[key].any()
                continue
            a, b = np.asarray(ours[key]), tensor.detach().numpy()
            np.testing.assert_allclose(a.std(), b.std(), rtol=0.06)
            np.testing.assert_allclose(np.abs(a).max(), np.abs(b).max(), rtol=0.4)
    table = nn.Embedding(5, 3, padding_idx=1, rngs=rngs).weight
    assert not table[1].any() and table[0].all()
