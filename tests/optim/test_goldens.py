"""The numbers that PyTorch gave when ``tests/goldens/make_optim.py`` recorded them."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import optim
from jaxsaw.nn import Parameter
from tests.optim.cases import (
    CASES,
    EPOCHS,
    MORE,
    MORE_SCHEDULES,
    RATES,
    RECORDED,
    SCHEDULES,
    gradients,
    some_gradients,
    values,
)

GOLDENS = dict(np.load(Path(__file__).parents[1] / "goldens" / "optim.npz"))


@pytest.mark.parametrize(
    "name, skipping", [*((n, s) for n in CASES for s in (False, True)), *((n, False) for n in MORE)]
)
def test_trajectory(name, skipping):
    recorded = GOLDENS[f"{name}, skipping" if skipping else name]
    params = [Parameter(jnp.asarray(v)) for v in values()]
    optimizer = {**CASES, **MORE}[name](optim, params)
    # Each set of gradients that are there would be traced by itself.
    step = optimizer.step if skipping else js.jit(lambda grads: optimizer.step(grads))
    grads = some_gradients if skipping else gradients
    found = []
    for t in range(max(RECORDED)):
        step([None if g is None else jnp.asarray(g) for g in grads(t)])
        if t + 1 in RECORDED:
            found.append(np.concatenate([np.ravel(p) for p in params]))
    for ours, theirs in zip(found, recorded, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*SCHEDULES, *MORE_SCHEDULES])
def test_schedule(name):
    groups = [{"params": [Parameter(jnp.ones(1))], "lr": lr} for lr in RATES]
    optimizer = optim.SGD(groups, momentum=0.9)
    scheduler = (SCHEDULES | MORE_SCHEDULES)[name](optim.lr_scheduler, optimizer)
    step = js.jit(lambda: scheduler.step()) if name in MORE_SCHEDULES else scheduler.step
    for t in range(EPOCHS):
        theirs = GOLDENS[f"schedule {name}"][t]
        slack = 1e-7 * np.array(RATES)
        np.testing.assert_array_less(
            np.abs(scheduler.get_last_lr() - theirs), 2e-6 * np.abs(theirs) + slack
        )
        step()
