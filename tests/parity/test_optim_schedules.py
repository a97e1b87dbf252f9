"""Schedules made of phases, cycles and other schedules, and those of a metric, by epoch."""

import copy

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import optim
from jaxsaw.nn import Parameter
from tests.optim.cases import EPOCHS, MORE_SCHEDULES, RATES
from tests.parity.oracle import torch

# PyTorch wants a step of the optimizer between those of the schedule.
pytestmark = pytest.mark.filterwarnings("ignore:Detected call of", "ignore:To get the last")

theirs_of, ours_of = torch.optim.lr_scheduler, optim.lr_scheduler


def pair(make=lambda o, p: o.SGD(p, momentum=0.9)):
    ours = [{"params": [Parameter(jnp.ones(1))], "lr": lr} for lr in RATES]
    theirs = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in RATES]
    return make(optim, ours), make(torch.optim, theirs)


def assert_same(mine, reference, tolerance=2e-6):
    for a, b in zip(mine.param_groups, reference.param_groups, strict=True):
        slack = 1e-7 * b["initial_lr"] if "initial_lr" in b else 0.0
        assert abs(float(a["lr"]) - b["lr"]) <= tolerance * abs(b["lr"]) + slack
        momentum = lambda g: g["momentum"] if "momentum" in g else g["betas"][0]
        assert abs(float(momentum(a)) - momentum(b)) <= tolerance


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("make", MORE_SCHEDULES.values(), ids=MORE_SCHEDULES)
def test_schedule(make, compiled):
    mine, reference = pair()
    ours, theirs = make(ours_of, mine), make(theirs_of, reference)
    step = js.jit(lambda: ours.step()) if compiled else ours.step
    assert_same(mine, reference)
    for t in range(EPOCHS):
        step()
        theirs.step()
        assert_same(mine, reference)
        if t == 17:  # to PyTorch and back
            _, again_reference = pair()
            other = make(theirs_of, again_reference)
            other.load_state_dict(ours.state_dict())
            again_reference.load_state_dict(mine.torch_state_dict())
            mine.load_state_dict(copy.deepcopy(again_reference.state_dict()))
            ours.load_state_dict(copy.deepcopy(other.state_dict()))
    if compiled:
        assert step.trace_count == 1


@pytest.mark.parametrize("name", ["cyclic", "one cycle"])
def test_momentum_of_adam(name):
    mine, reference = pair(lambda o, p: o.Adam(p))
    ours = MORE_SCHEDULES[name](ours_of, mine)
    theirs = MORE_SCHEDULES[name](theirs_of, reference)
    for _ in range(30):
        ours.step()
        theirs.step()
        assert_same(mine, reference)


def test_warm_restarts_between_epochs():
    mine, reference = pair()
    make = lambda s, o: s.CosineAnnealingWarmRestarts(o, 4, 2)
    ours, theirs = make(ours_of, mine), make(theirs_of, reference)
    for epoch in (0.5, 1.25, 3.75, 4.0, 4.5, 11.5, 30, 2, None, None, None):
        ours.step(epoch)
        theirs.step(epoch)
        assert_same(mine, reference)


PLATEAUS = {
    "min": {"patience": 2},
    "max": {"mode": "max", "patience": 1, "factor": 0.5, "cooldown": 2},
    "abs": {"threshold_mode": "abs", "threshold": 0.05, "patience": 3, "min_lr": [0.01, 0.005]},
    "max abs": {"mode": "max", "threshold_mode": "abs", "threshold": 0.1, "patience": 0},
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("options", PLATEAUS.values(), ids=PLATEAUS)
def test_plateau(options, compiled):
    mine, reference = pair()
    ours = ours_of.ReduceLROnPlateau(mine, **options)
    theirs = theirs_of.ReduceLROnPlateau(reference, **options)
    step = js.jit(lambda metric: ours.step(metric)) if compiled else ours.step
    metrics = np.float32(1 + 0.3 * np.random.RandomState(0).standard_normal(40))
    for t, metric in enumerate(metrics):
        step(jnp.asarray(metric) if compiled else float(metric))
        theirs.step(float(metric))
        assert_same(mine, reference)
        assert int(ours.num_bad_epochs) == theirs.num_bad_epochs
        assert int(ours.cooldown_counter) == theirs.cooldown_counter
        if t == 15:
            other = theirs_of.ReduceLROnPlateau(reference, **options)
            other.load_state_dict(ours.state_dict())
            ours.load_state_dict(other.state_dict())
            theirs = other
    if compiled:
        assert step.trace_count == 1


REFUSED = [
    lambda s, o: s.CyclicLR(o, [0.1], 1.0),
    lambda s, o: s.CyclicLR(o, 0.1, 1.0, mode="x"),
    lambda s, o: s.OneCycleLR(o, 0.1),
    lambda s, o: s.OneCycleLR(o, 0.1, total_steps=0),
    lambda s, o: s.OneCycleLR(o, 0.1, epochs=0, steps_per_epoch=3),
    lambda s, o: s.OneCycleLR(o, 0.1, 10, pct_start=1),
    lambda s, o: s.OneCycleLR(o, 0.1, 10, anneal_strategy="x"),
    lambda s, o: s.OneCycleLR(o, [0.1], 10),
    lambda s, o: s.CosineAnnealingWarmRestarts(o, 0),
    lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 0),
    lambda s, o: s.SequentialLR(o, [], []),
    lambda s, o: s.SequentialLR(o, [s.StepLR(o, 3)], [1]),
    lambda s, o: s.SequentialLR(o, [s.StepLR(o, 3), s.ReduceLROnPlateau(o)], [1]),
    lambda s, o: s.ChainedScheduler([]),
    lambda s, o: s.ChainedScheduler([s.ReduceLROnPlateau(o)]),
    lambda s, o: s.ReduceLROnPlateau(o, factor=1.0),
    lambda s, o: s.ReduceLROnPlateau(o, mode="x"),
    lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="x"),
    lambda s, o: s.ReduceLROnPlateau(o, min_lr=[0.1]),
]


@pytest.mark.parametrize("make", REFUSED)
def test_both_refuse(make):
    mine, reference = pair()
    with pytest.raises(ValueError):
        make(theirs_of, reference)
    with pytest.raises(ValueError, match="LR|Scheduler|CosineAnnealingWarmRestarts"):
        make(ours_of, mine)
