"""Schedules: their formulas, in compiled functions and out of them, and their state."""

import copy
import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import checkpoint, optim
from jaxsaw.nn import Parameter
from jaxsaw.optim import lr_scheduler as schedules
from jaxsaw.state.graph import named_boxes


def optimizer(*rates):
    rates = rates or (0.5,)
    groups = [{"params": [Parameter(jnp.ones(2))], "lr": rate} for rate in rates]
    return optim.SGD(groups)


FORMULAS = {
    "step": (lambda o: schedules.StepLR(o, 3, 0.3), lambda t: 0.3 ** (t // 3)),
    "multistep": (
        lambda o: schedules.MultiStepLR(o, [2, 7, 7]),
        lambda t: 0.1 ** ((t >= 2) + 2 * (t >= 7)),
    ),
    "constant": (lambda o: schedules.ConstantLR(o, 0.5, 4), lambda t: 0.5 if t < 4 else 1.0),
    "linear": (
        lambda o: schedules.LinearLR(o, 0.25, 0.75, 8),
        lambda t: 0.25 + 0.5 * min(t, 8) / 8,
    ),
    "exponential": (lambda o: schedules.ExponentialLR(o, 0.99), lambda t: 0.99**t),
    "cosine": (
        lambda o: schedules.CosineAnnealingLR(o, 100),
        lambda t: (1 + math.cos(math.pi * t / 100)) / 2,
    ),
    "lambda": (
        lambda o: schedules.LambdaLR(o, lambda e: 1 / (1 + jnp.asarray(e, jnp.float32))),
        lambda t: 1 / (1 + t),
    ),
}
formulas = pytest.mark.parametrize("make, formula", FORMULAS.values(), ids=FORMULAS)
LONG = 250


@formulas
@pytest.mark.parametrize("compiled", [False, True])
def test_formula(make, formula, compiled):
    o = optimizer(0.5, 0.02)
    scheduler = make(o)
    step = js.jit(lambda: scheduler.step()) if compiled else scheduler.step
    for t in range(LONG):
        want = [0.5 * formula(t), 0.02 * formula(t)]
        np.testing.assert_allclose(scheduler.get_last_lr(), want, rtol=2e-6, atol=1e-8)
        assert scheduler.last_epoch == t
        step()
    if compiled:
        assert step.trace_count == 1
    assert o.param_groups[0]["lr"].dtype == jnp.float32


def test_the_end_of_a_cosine_is_precise_in_a_compiled_function():
    scheduler = schedules.CosineAnnealingLR(optimizer(1.0), 10_000)
    scheduler.last_epoch.value = 9_998
    js.jit(lambda: scheduler.step(9_999))()
    want = math.sin(math.pi / 20_000) ** 2
    np.testing.assert_allclose(scheduler.get_last_lr(), [want], rtol=1e-6)
    scheduler.step(10_000)
    assert scheduler.get_last_lr() == [0.0]
    scheduler.step()
    np.testing.assert_allclose(scheduler.get_last_lr(), [want], rtol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_long_schedule_has_no_error_that_grows(compiled):
    scheduler = schedules.ExponentialLR(optimizer(1.0), 0.999)
    step = js.jit(lambda: scheduler.step()) if compiled else scheduler.step
    for _ in range(2000):
        step()
    np.testing.assert_allclose(scheduler.get_last_lr(), [0.999**2000], rtol=5e-7)


def test_a_rate_that_was_set_by_hand_is_gone_on_from():
    o = optimizer(0.5)
    scheduler = schedules.StepLR(o, 2, 0.5)
    scheduler.step()
    o.param_groups[0]["lr"] = 0.125
    scheduler.step()
    assert scheduler.get_last_lr() == [0.0625]
    scheduler.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [0.03125]


@pytest.mark.parametrize("compiled", [False, True])
def test_two_schedules_multiply(compiled):
    o = optimizer(1.0)
    a, b = schedules.ExponentialLR(o, 0.9), schedules.LinearLR(o, 0.5, 1.0, 4)

    def advance():
        a.step()
        b.step()

    advance = js.jit(advance) if compiled else advance
    for t in range(10):
        want = 0.9**t * (0.5 + 0.5 * min(t, 4) / 4)
        np.testing.assert_allclose(float(o.param_groups[0]["lr"]), want, rtol=1e-6)
        advance()
    assert float(a.base_lrs[0]) == float(b.base_lrs[0]) == 1.0


def test_a_schedule_of_ones_own():
    class Warmup(schedules.LRScheduler):
        def __init__(self, optimizer, n):
            self.n = n
            super().__init__(optimizer)

        def get_lr(self):
            part = jnp.minimum(self.last_epoch + 1, self.n).astype(jnp.float32) / self.n
            return [base * part for base in self.base_lrs]

    o = optimizer(0.5, 1.0)
    scheduler = Warmup(o, 4)
    step = js.jit(lambda: scheduler.step())
    assert scheduler.get_last_lr() == [0.125, 0.25]
    step()
    scheduler.step()
    step()
    step()
    assert scheduler.get_last_lr() == [0.5, 1.0] and step.trace_count == 1
    assert float(scheduler.base_lrs[1]) == 1.0
    with pytest.raises(NotImplementedError, match="LRScheduler has no get_lr"):
        schedules.LRScheduler(optimizer())


def test_functions_get_python_integers():
    seen = []
    table = {0: 1.0, 1: 0.5, 2: 0.25}
    scheduler = schedules.LambdaLR(optimizer(0.5), lambda e: (seen.append(type(e)), table[e])[1])
    scheduler.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [0.125] and set(seen) == {int}


def test_a_step_that_raises_changes_nothing():
    o = optimizer(0.5, 0.25)
    scheduler = schedules.LambdaLR(o, [lambda e: 2.0, lambda e: [2.0][e]])
    before = {name: np.asarray(box) for name, box in named_boxes(scheduler)}
    for step in (scheduler.step, js.jit(lambda: scheduler.step())):
        with pytest.raises((IndexError, TypeError)):
            step()
        for name, box in named_boxes(scheduler):
            np.testing.assert_array_equal(box, before[name])


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda o: schedules.StepLR(o.param_groups, 3), TypeError, "StepLR: expected an optimizer"),
        (lambda o: schedules.StepLR(o, 3, last_epoch=4), KeyError, "param_groups.0. has no 'init"),
        (lambda o: schedules.LambdaLR(o, []), ValueError, "expected 1 functions, .* got 0"),
        (lambda o: schedules.ConstantLR(o, 2.0), ValueError, "factor must be between 0 and 1"),
        (lambda o: schedules.LinearLR(o, 0.0), ValueError, "start_factor must be above 0"),
        (lambda o: schedules.LinearLR(o, 1.0, -1.0), ValueError, "end_factor must be between"),
    ],
)
def test_refused_arguments(make, error, text):
    with pytest.raises(error, match=text):
        make(optimizer())


def test_going_on_from_an_epoch():
    groups = [{"params": [Parameter(jnp.ones(2))], "lr": 0.25, "initial_lr": 0.5}]
    scheduler = schedules.StepLR(optim.SGD(groups), 3, 0.5, last_epoch=3)
    assert scheduler.last_epoch == 4 and scheduler.get_last_lr() == [0.25]
    scheduler.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [0.125]


# State.


@formulas
@pytest.mark.parametrize("order", ["optimizer first", "scheduler first", "made late"])
def test_restored_rates_are_right_in_any_order(make, formula, order):
    o = optimizer(0.5, 0.02)
    scheduler = make(o)
    for _ in range(5):
        scheduler.step()
    states = pickle.loads(pickle.dumps((o.state_dict(), scheduler.state_dict())))
    fresh = optimizer(0.9, 0.9)
    if order == "made late":
        fresh.load_state_dict(states[0])
        other = make(fresh)
        other.load_state_dict(states[1])
    else:
        other = make(fresh)
        loads = [(fresh, states[0]), (other, states[1])]
        for target, state in loads if order == "optimizer first" else loads[::-1]:
            target.load_state_dict(state)
    assert other.get_last_lr() == scheduler.get_last_lr() and other.last_epoch == 5
    for _ in range(8):
        scheduler.step()
        other.step()
        assert other.get_last_lr() == scheduler.get_last_lr()


def test_state_dict_is_plain():
    scheduler = schedules.CosineAnnealingLR(optimizer(0.5, 0.1), 10, eta_min=0.01)
    scheduler.step()
    assert scheduler.state_dict() | {"_last_lr": None} == {
        "T_max": 10,
        "eta_min": 0.01,
        "base_lrs": [0.5, 0.1],
        "last_epoch": 1,
        "_step_count": 2,
        "_last_lr": None,
    }


def test_refused_states_change_nothing():
    scheduler = schedules.StepLR(optimizer(0.5), 3)
    state = scheduler.state_dict()
    with pytest.raises(RuntimeError, match="lacks 'last_epoch'"):
        scheduler.load_state_dict({"gamma": 0.5})
    with pytest.raises(RuntimeError, match="base_lrs has 2 rates, expected one for each of the 1"):
        scheduler.load_state_dict({**state, "gamma": 0.5, "base_lrs": [1.0, 2.0]})
    assert scheduler.gamma == 0.1 and scheduler.state_dict() == state


def test_names_of_boxes_and_configuration():
    o = optimizer(0.5, 0.25)
    scheduler = schedules.StepLR(o, 3)
    boxes = scheduler._owned_boxes()
    assert list(boxes) == [
        *("last_epoch", "own.0", "own.1", "base_lrs.0", "base_lrs.1", "lr.0", "lr.1")
    ]
    assert boxes["lr.1"] is o.param_groups[1]["lr"]
    assert scheduler._configuration() == {"class": "StepLR"}


def test_copies_keep_to_their_own_optimizer():
    o = optimizer(0.5)
    scheduler = schedules.StepLR(o, 1, 0.5)
    o2, scheduler2 = copy.deepcopy((o, scheduler))
    scheduler2.step()
    assert float(o2.param_groups[0]["lr"]) == 0.25 and float(o.param_groups[0]["lr"]) == 0.5
    assert scheduler2.optimizer is o2 and scheduler.last_epoch == 0


def test_a_training_step_with_a_schedule_is_traced_once():
    p = Parameter(jnp.ones(2))
    o = optim.AdamW([p], lr=0.1)
    scheduler = schedules.CosineAnnealingLR(o, 5)

    @js.jit
    def step(o, scheduler):
        o.step([jnp.ones(2)])
        scheduler.step()

    for _ in range(5):
        step(o, scheduler)
    assert step.trace_count == 1 and scheduler.get_last_lr() == [0.0]
    before = np.asarray(p)
    step(o, scheduler)
    np.testing.assert_array_equal(p, before)  # the rate was zero
    assert not isinstance(scheduler.last_epoch.value, jax.core.Tracer)


def test_a_step_size_below_one_is_refused():
    optimizer = optim.SGD([("w", Parameter(jnp.ones(3)))], lr=0.1)
    with pytest.raises(ValueError, match="step_size must be at least 1, got 0"):
        optim.lr_scheduler.StepLR(optimizer, step_size=0)


# Combined schedules, and those of a metric.


def test_a_sequence_is_restored_in_the_middle(tmp_path):
    def make(o):
        parts = [schedules.LinearLR(o, 0.5, total_iters=2), schedules.OneCycleLR(o, 1.0, 10)]
        return schedules.SequentialLR(o, parts, [3])

    build = lambda: optim.AdamW([("w", Parameter(jnp.ones(1)))], lr=0.5)
    o, other = build(), build()
    scheduler, twin = make(o), make(other)
    step, twin_step = js.jit(lambda: scheduler.step()), js.jit(lambda: twin.step())
    for _ in range(5):
        step()
    checkpoint.save(tmp_path / "x.npz", optimizer=o, scheduler=scheduler)
    twin_step()
    checkpoint.restore(tmp_path / "x.npz", optimizer=other, scheduler=twin)
    for _ in range(5):
        step()
        twin_step()
        for key in ("lr", "betas"):
            numbers = (group.numbers()[key] for group in (*o.param_groups, *other.param_groups))
            assert len(set(map(str, numbers))) == 1
    assert step.trace_count == twin_step.trace_count == 1


def test_a_plateau_is_seen_in_a_compiled_step():
    o = optimizer(0.5)
    scheduler = schedules.ReduceLROnPlateau(o, factor=0.5, patience=1, cooldown=1, min_lr=0.2)
    step = js.jit(lambda metric: scheduler.step(metric))
    rates = []
    for metric in (1.0, 0.5, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6):
        step(jnp.float32(metric))
        rates += scheduler.get_last_lr()
    assert rates == [0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.2, 0.2, 0.2]
    assert step.trace_count == 1 and float(scheduler.best) == 0.5
    with pytest.raises(TypeError, match="expected one number, got shape"):
        scheduler.step(jnp.ones(2))


def test_steps_beyond_the_last_are_refused():
    scheduler = schedules.OneCycleLR(optim.SGD([Parameter(jnp.ones(1))], momentum=0.5), 1.0, 2)
    scheduler.step()
    scheduler.step()
    with pytest.raises(ValueError, match="this is step 3 of 2. Make a longer schedule"):
        scheduler.step()
    assert int(scheduler.last_epoch) == 2
    with pytest.raises(ValueError, match="has neither momentum nor betas. Pass cycle_momentum"):
        schedules.OneCycleLR(optim.Adagrad([Parameter(jnp.ones(1))]), 1.0, 2)
    with pytest.raises(ValueError, match="can't jump to an epoch"):
        schedules.ChainedScheduler([schedules.StepLR(optimizer(), 3)]).step(3)
