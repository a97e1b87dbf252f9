"""Averages of weights, their schedule, and the scaling of losses, beside PyTorch's."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn, optim
from jaxsaw.nn import Parameter
from tests.optim.cases import values
from tests.parity.oracle import torch

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of", "ignore:To get the last")


def networks():
    ours = nn.Sequential(nn.Linear(3, 4, rngs=js.Rngs(0)), nn.BatchNorm1d(4))
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    theirs.load_state_dict(nn.utils.to_torch(ours.state_dict()))
    return ours, theirs


def assert_near(ours, theirs):
    theirs = theirs.state_dict()
    assert list(ours.state_dict()) == list(theirs)
    for name, value in ours.state_dict().items():
        np.testing.assert_allclose(np.asarray(value), theirs[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda u, m: u.AveragedModel(m),
        lambda u, m: u.AveragedModel(m, avg_fn=u.get_ema_avg_fn(0.9), use_buffers=True),
        lambda u, m: u.AveragedModel(m, multi_avg_fn=u.get_ema_multi_avg_fn(0.8)),
        lambda u, m: u.AveragedModel(m, multi_avg_fn=u.get_swa_multi_avg_fn()),
    ],
)
def test_averaged_model(make):
    ours, theirs = networks()
    mine, reference = make(optim.swa_utils, ours), make(torch.optim.swa_utils, theirs)
    for t in range(5):
        for p, q, v in zip(
            ours.parameters(), theirs.parameters(), values(t, [(4, 3), (4,), (4,), (4,)])
        ):
            p.value = jnp.asarray(v)
            q.data = torch.tensor(v)
        mine.update_parameters(ours)
        reference.update_parameters(theirs)
        assert_near(mine, reference)
    batches = values(9, [(8, 3), (8, 3), (8, 3)])
    optim.swa_utils.update_bn([jnp.asarray(x) for x in batches], mine)
    torch.optim.swa_utils.update_bn([torch.tensor(x) for x in batches], reference)
    assert_near(mine, reference)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("epochs, strategy", [(5, "cos"), (7, "linear"), (0, "cos")])
def test_swalr(epochs, strategy, compiled):
    mine = optim.SGD([Parameter(jnp.ones(1))], lr=0.5)
    reference = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.5)
    ours = optim.swa_utils.SWALR(mine, 0.05, epochs, strategy)
    theirs = torch.optim.swa_utils.SWALR(reference, 0.05, epochs, strategy)
    step = js.jit(lambda: ours.step()) if compiled else ours.step
    for _ in range(12):
        np.testing.assert_allclose(ours.get_last_lr(), theirs.get_last_lr(), rtol=2e-6)
        step()
        theirs.step()


def test_grad_scaler():
    p, q = Parameter(jnp.ones(2)), torch.nn.Parameter(torch.ones(2))
    mine, reference = optim.SGD([p], lr=0.1), torch.optim.SGD([q], lr=0.1)
    ours = optim.GradScaler(64.0, growth_interval=2)
    theirs = torch.amp.GradScaler("cpu", 64.0, growth_interval=2)
    for x in (1.0, 2.0, np.inf, 1.0, np.nan, 3.0, 1.0):
        g = np.full(2, x, np.float32)
        ours.step(mine, [ours.scale(jnp.asarray(g))])
        q.grad = theirs.scale(torch.tensor(g)).detach()
        theirs.step(reference)
        theirs.update()
        np.testing.assert_allclose(p, q.detach().numpy(), rtol=1e-6)
        assert float(ours.get_scale()) == theirs.get_scale()
    theirs.load_state_dict({k: np.asarray(v).item() for k, v in ours.state_dict().items()})
