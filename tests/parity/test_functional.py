"""``nn.functional`` gives PyTorch's outputs and gradients, and refuses what it refuses."""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import functional as F
from jaxsaw.rngs import Rngs
from jaxsaw.state.variable import Variable
from tests.nn.functional.cases import CASES, GOLDEN, REFUSALS, call
from tests.parity.oracle import assert_close, compare, to_torch, torch

TF = torch.nn.functional

# What PyTorch says of its own padding="same", once a process.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


@pytest.mark.parametrize("row", CASES, ids=str)
def test_float32(row):
    ours, theirs = getattr(F, row.function), getattr(TF, row.function)
    compare(ours, theirs, row.materialise(), row.has_gradient)


@pytest.mark.parametrize("row", GOLDEN, ids=str)
def test_bfloat16(row):
    ours, theirs = getattr(F, row.function), getattr(TF, row.function)
    compare(ours, theirs, row.materialise(), row.has_gradient, jnp.bfloat16, 3e-2)


@pytest.mark.parametrize("row", [row for row in REFUSALS if not row.ours], ids=str)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_that_pytorch_refuses_too(row):
    arguments = {k: to_torch(v) for k, v in row.materialise().items()}
    with pytest.raises((RuntimeError, ValueError, IndexError, TypeError, AssertionError)):
        call(getattr(TF, row.function), arguments)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 2, 2)])
@pytest.mark.parametrize("momentum", [0.1, 1.0, 0.0])
def test_running_statistics(shape, momentum):
    x = np.random.RandomState(0).randn(*shape).astype(np.float32)
    mean, var = Variable(jnp.full(3, 0.5)), Variable(jnp.full(3, 2.0))
    their_mean, their_var = torch.full((3,), 0.5), torch.full((3,), 2.0)
    y = F.batch_norm(x, mean, var, training=True, momentum=momentum)
    z = TF.batch_norm(torch.tensor(x), their_mean, their_var, training=True, momentum=momentum)
    assert_close(y, z, 1e-5, "output")
    assert_close(mean.value, their_mean, 1e-5, "mean")
    assert_close(var.value, their_var, 1e-5, "variance")


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
def test_max_norm_writes_the_same_table(norm_type):
    table = np.random.RandomState(0).randn(5, 4).astype(np.float32)
    weight, theirs = Variable(jnp.asarray(table)), torch.tensor(table)
    F.embedding(jnp.array([3, 1, 3]), weight, None, 1.0, norm_type)
    TF.embedding(torch.tensor([3, 1, 3]), theirs, None, 1.0, norm_type)
    assert_close(weight.value, theirs, 1e-6, "table")


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d"])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_dropout_has_the_same_two_values(name, p):
    x = np.full((1000, 1, 1), 0.7, np.float32)
    torch.manual_seed(0)
    ours = getattr(F, name)(x, p, True, rngs=Rngs(dropout=0))
    theirs = getattr(TF, name)(torch.tensor(x), p, True)
    assert_close(jnp.unique(ours), torch.unique(theirs), 1e-5, "values")
    share = float((theirs == theirs.min()).float().mean())
    assert abs((ours == ours.min()).mean() - share) < 0.06


# What dispatches on a flag, or is built in, has no signature of its own.
SIGNATURES = {
    "max_pool1d": "max_pool1d_with_indices",
    "max_pool2d": "max_pool2d_with_indices",
    "adaptive_max_pool1d": "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d": "adaptive_max_pool2d_with_indices",
    "max_pool3d": "max_pool3d_with_indices",
    "adaptive_max_pool3d": "adaptive_max_pool3d_with_indices",
    "fractional_max_pool2d": "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d": "fractional_max_pool3d_with_indices",
}


@pytest.mark.parametrize("name", F.__all__)
def test_arguments_are_pytorchs(name):
    theirs = getattr(TF, SIGNATURES.get(name, name))
    try:
        expected = dict(inspect.signature(theirs).parameters)
    except ValueError:
        pytest.skip("built in")
    given = dict(inspect.signature(getattr(F, name)).parameters)
    given.pop("rngs", None)
    expected.pop("_stacklevel", None)  # an internal of softmax
    expected.pop("out", None)  # nothing is written in place
    assert list(given) == list(expected)
    for key, parameter in expected.items():
        assert given[key].default == parameter.default, key
