"""``nn.utils`` gives PyTorch's values, names, gradients and masks."""

import importlib
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.nn.utils import parametrizations, parametrize, prune
from tests.parity.oracle import assert_close, torch

theirs_prune = importlib.import_module("torch.nn.utils.prune")
theirs_parametrizations = torch.nn.utils.parametrizations


def linear(n, k, bias=True):
    ours, theirs = nn.Linear(k, n, bias=bias, rngs=js.Rngs(0)), torch.nn.Linear(k, n, bias=bias)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def assert_same(ours, theirs, x, tolerance=1e-5):
    """Compare text, names, states both ways, outputs and gradients."""
    assert repr(ours) == repr(theirs)
    names = [name for name, _ in theirs.named_parameters()]
    assert [name for name, _ in ours.named_parameters()] == names
    assert [n for n, _ in ours.named_buffers()] == [n for n, _ in theirs.named_buffers()]
    theirs.load_state_dict(nn.utils.to_torch(ours.state_dict()), strict=True)
    out = theirs(torch.tensor(x))
    seed = np.random.RandomState(1).randn(*out.shape).astype(np.float32)
    wanted = torch.autograd.grad(out, list(theirs.parameters()), torch.tensor(seed))
    (_, got), grads = js.value_and_grad(
        lambda m: (lambda y: ((y * seed).sum(), y))(m(x)), has_aux=True
    )(ours)
    assert_close(got, out, tolerance, "output")
    for name, w in zip(names, wanted, strict=True):
        assert_close(grads[name], w, 10 * tolerance, f"gradient of {name}")
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        assert_close(ours.state_dict()[name], value, tolerance, name)
    ours.load_state_dict(theirs.state_dict(), strict=True)


X = np.random.RandomState(0).randn(2, 4).astype(np.float32)
IMAGE = np.random.RandomState(0).randn(2, 4, 6).astype(np.float32)


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim):
    ours, theirs = linear(3, 4)
    before = ours.weight.value
    parametrizations.weight_norm(ours, dim=dim)
    theirs_parametrizations.weight_norm(theirs, dim=dim)
    assert_close(ours.weight, torch.tensor(np.asarray(before)), 1e-5, "weight")
    assert_same(ours, theirs, X)
    assert repr(nn.utils.remove_weight_norm(ours)).startswith("Linear(")


@pytest.mark.parametrize("layer", ["Conv1d", "ConvTranspose1d"])
def test_spectral_norm(layer):
    ours = getattr(nn, layer)(4, 3, 2, rngs=js.Rngs(0))
    theirs = getattr(torch.nn, layer)(4, 3, 2)
    parametrizations.spectral_norm(ours, n_power_iterations=2, rngs=js.Rngs(1))
    theirs_parametrizations.spectral_norm(theirs, n_power_iterations=2)
    assert_same(ours, theirs, IMAGE)
    assert_same(ours.eval(), theirs.eval(), IMAGE)


@pytest.mark.parametrize("trivial", [True, False])
@pytest.mark.parametrize(
    ("orthogonal_map", "shape"),
    [("matrix_exp", (4, 4)), ("cayley", (5, 4)), ("householder", (4, 4)), ("householder", (3, 4))],
)
def test_orthogonal(orthogonal_map, shape, trivial):
    ours, theirs = linear(*shape, bias=False)
    parametrizations.orthogonal(
        ours, "weight", orthogonal_map, use_trivialization=trivial, rngs=js.Rngs(1)
    )
    theirs_parametrizations.orthogonal(theirs, "weight", orthogonal_map, use_trivialization=trivial)
    assert_same(ours, theirs, X, 2e-5)
    w = np.asarray(ours.weight)
    small = w @ w.T if shape[0] <= shape[1] else w.T @ w
    np.testing.assert_allclose(small, np.eye(len(small)), atol=1e-5)
    if trivial or orthogonal_map == "householder":
        n = max(shape)
        q = np.linalg.qr(np.random.RandomState(2).randn(n, n))[0].astype(np.float32)
        q = q[: shape[0], : shape[1]]
        ours.weight = q
        theirs.weight = torch.tensor(q)
        assert_close(ours.weight, theirs.weight, 1e-5, "assigned")
        assert_close(ours.weight, torch.tensor(q), 1e-5, "assigned")


def test_older_states_can_be_loaded():
    ours, theirs = linear(3, 4)
    parametrizations.weight_norm(ours)
    with pytest.warns(FutureWarning):
        torch.nn.utils.weight_norm(theirs)
    theirs.weight_g.data.mul_(2)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert_close(ours(X), theirs(torch.tensor(X)), 1e-5, "output")
    ours, theirs = linear(3, 4)
    parametrizations.spectral_norm(ours, rngs=js.Rngs(0))
    torch.nn.utils.spectral_norm(theirs)
    theirs(torch.tensor(X))
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert_close(ours.eval()(X), theirs.eval()(torch.tensor(X)), 1e-5, "output")


def both_symmetric():
    class Ours(nn.Module):
        def forward(self, x):
            return jnp.triu(x) + jnp.triu(x, 1).T

        def right_inverse(self, x):
            return jnp.triu(x)

    class Theirs(torch.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

        def right_inverse(self, x):
            return x.triu()

    Theirs.__name__ = "Ours"
    return Ours(), Theirs()


def test_parametrizations_of_ones_own():
    ours, theirs = linear(4, 4)
    for our, their in (both_symmetric(), (nn.Tanh(), torch.nn.Tanh())):
        parametrize.register_parametrization(ours, "weight", our)
        torch.nn.utils.parametrize.register_parametrization(theirs, "weight", their)
    assert_same(ours, theirs, X)
    parametrize.remove_parametrizations(ours, "weight")
    torch.nn.utils.parametrize.remove_parametrizations(theirs, "weight")
    assert_close(ours.weight, theirs.weight, 1e-6, "weight")
    assert_same(ours, theirs, X)


PRUNED = [
    ("identity", {}),
    ("l1_unstructured", {"amount": 0.4}),
    ("l1_unstructured", {"amount": 3}),
    ("ln_structured", {"amount": 1, "n": 2, "dim": 0}),
    ("ln_structured", {"amount": 0.5, "n": 1, "dim": 1}),
    ("ln_structured", {"amount": 2, "n": float("-inf"), "dim": -1}),
    ("custom_from_mask", {"mask": np.random.RandomState(0).rand(3, 4) < 0.5}),
]


@pytest.mark.parametrize(("name", "kwargs"), PRUNED)
def test_pruning(name, kwargs):
    ours, theirs = linear(3, 4)
    for _ in range(2):  # again, on what is left
        getattr(prune, name)(ours, "weight", **kwargs)
        their = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()}
        getattr(theirs_prune, name)(theirs, "weight", **their)
        assert_close(ours.weight_mask, theirs.weight_mask, 0, "mask")
        assert_same(ours, theirs, X)
    assert prune.is_pruned(ours) and theirs_prune.is_pruned(theirs)
    prune.remove(ours, "weight")
    theirs_prune.remove(theirs, "weight")
    assert_same(ours, theirs, X)
    assert not prune.is_pruned(ours)


def test_pruning_at_random_and_by_scores():
    ours, theirs = linear(3, 4)
    prune.random_unstructured(ours, "weight", 0.5, rngs=js.Rngs(0))
    prune.random_structured(ours, "weight", 1, 1, rngs=js.Rngs(0))
    assert (ours.weight_mask.value == 0).all(0).sum() >= 1
    ours, theirs = linear(3, 4)
    scores = np.arange(12, dtype=np.float32).reshape(3, 4)[::-1].copy()
    prune.l1_unstructured(ours, "weight", 5, scores)
    theirs_prune.l1_unstructured(theirs, "weight", 5, torch.tensor(scores))
    assert_close(ours.weight_mask, theirs.weight_mask, 0, "mask")


def test_pruning_globally():
    pairs = [linear(3, 4), linear(2, 3)]
    for i in (0.3, 4):
        prune.global_unstructured(
            [(ours, "weight") for ours, _ in pairs], prune.L1Unstructured, amount=i
        )
        theirs_prune.global_unstructured(
            [(theirs, "weight") for _, theirs in pairs], theirs_prune.L1Unstructured, amount=i
        )
        for ours, theirs in pairs:
            assert_close(ours.weight_mask, theirs.weight_mask, 0, "mask")


@pytest.mark.parametrize("layer", ["Conv1d", "ConvTranspose1d"])
@pytest.mark.parametrize("bias", [True, False])
def test_fusing_a_convolution_with_a_batch_norm(layer, bias):
    theirs = getattr(torch.nn, layer)(4, 3, 2, bias=bias)
    norm = torch.nn.BatchNorm1d(3)
    for _ in range(3):
        norm(theirs(torch.tensor(IMAGE)))
    ours = getattr(nn, layer)(4, 3, 2, bias=bias, rngs=js.Rngs(0))
    ours.load_state_dict(theirs.state_dict())
    ours_norm = nn.BatchNorm1d(3)
    ours_norm.load_state_dict(norm.state_dict())
    flipped = layer == "ConvTranspose1d"
    got = nn.utils.fuse_conv_bn_eval(ours.eval(), ours_norm.eval(), flipped)
    expected = torch.nn.utils.fuse_conv_bn_eval(theirs.eval(), norm.eval(), flipped)
    for name, value in expected.state_dict().items():
        assert_close(got.state_dict()[name], value, 1e-5, name)
    assert_close(got(IMAGE), norm(theirs(torch.tensor(IMAGE))), 1e-5, "output")


def test_fusing_a_linear_layer_with_a_batch_norm():
    ours, theirs = linear(3, 4)
    norm, ours_norm = torch.nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    norm(theirs(torch.tensor(X)))
    ours_norm.load_state_dict(norm.state_dict())
    got = nn.utils.fuse_linear_bn_eval(ours.eval(), ours_norm.eval())
    expected = torch.nn.utils.fuse_linear_bn_eval(theirs.eval(), norm.eval())
    for name, value in expected.state_dict().items():
        assert_close(got.state_dict()[name], value, 1e-5, name)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
def test_total_norm(norm_type):
    arrays = [X, IMAGE[0]]
    expected = torch.nn.utils.get_total_norm([torch.tensor(a) for a in arrays], norm_type)
    assert_close(nn.utils.get_total_norm(arrays, norm_type), expected, 1e-5, "norm")


def test_functional_call():
    ours, theirs = linear(3, 4)
    w, b = np.full((3, 4), 0.5, np.float32), np.arange(3, dtype=np.float32)
    values = {"weight": w, "bias": b}
    call = lambda values: nn.utils.stateless.functional_call(ours, values, (X,))
    tensors = {k: torch.tensor(v, requires_grad=True) for k, v in values.items()}
    expected = torch.func.functional_call(theirs, tensors, (torch.tensor(X),))
    assert_close(call(values), expected, 1e-6, "output")
    grads = jax.grad(lambda v: jnp.sin(call(v)).sum())(values)
    expected.sin().sum().backward()
    for name, tensor in tensors.items():
        assert_close(grads[name], tensor.grad, 1e-5, name)


MODULES = {
    "": (nn.utils, torch.nn.utils),
    "parametrize": (parametrize, torch.nn.utils.parametrize),
    "parametrizations": (parametrizations, theirs_parametrizations),
    "prune": (prune, theirs_prune),
}
# Nothing is stored that could be clipped, and the newer functions stand in for the older ones.
OTHERS = {"clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "to_torch", "weight_norm"}
OTHERS |= {"rnn", "prune", "parametrize", "parametrizations", "stateless"}


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (where, name)
        for where, (ours, _) in MODULES.items()
        for name in ours.__all__
        if not inspect.isclass(getattr(ours, name)) and (where or name not in OTHERS)
    ],
)
def test_arguments(where, name):
    ours, theirs = (getattr(module, name, None) for module in MODULES[where])
    given = dict(inspect.signature(ours).parameters)
    given.pop("rngs", None)
    expected = inspect.signature(theirs).parameters
    assert [(p.name, p.default) for p in given.values()] == [
        (p.name, p.default) for p in expected.values()
    ]
