"""Optimizers and schedules step by step beside PyTorch's."""

import copy

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import optim
from jaxsaw.nn import Parameter
from tests.optim.cases import CASES, SCHEDULES, STEPS, gradients, some_gradients, values
from tests.parity.oracle import torch

# PyTorch wants a step of the optimizer between those of the schedule.
pytestmark = pytest.mark.filterwarnings("ignore:Detected call of")


def both(make, *, start=None, groups=None):
    """Return our Parameters and optimizer, and PyTorch's."""
    start = values() if start is None else start
    ours = [Parameter(jnp.asarray(v)) for v in start]
    theirs = [torch.nn.Parameter(torch.tensor(v)) for v in start]
    if groups is None:
        return ours, make(optim, ours), theirs, make(torch.optim, theirs)
    split = lambda ps: [{"params": [ps[i] for i in ids], **kw} for ids, kw in groups]
    return ours, make(optim, split(ours)), theirs, make(torch.optim, split(theirs))


def step(optimizer, params, grads):
    if isinstance(optimizer, optim.Optimizer):
        optimizer.step([None if g is None else jnp.asarray(g) for g in grads])
        return
    for p, g in zip(params, grads, strict=True):
        p.grad = None if g is None else torch.tensor(g)
    optimizer.step()


def assert_near(ours, theirs, tolerance=1e-5):
    for a, b in zip(ours, theirs, strict=True):
        a, b = np.asarray(a), b.detach().numpy()
        slack = tolerance * max(np.abs(b).max(), 0.1)  # some come close to zero
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=slack)


def run(pair, n=STEPS, grads=gradients, change=None):
    ours, mine, theirs, reference = pair
    for t in range(n):
        if change is not None:
            change(t, mine)
            change(t, reference)
        g = grads(t)
        step(mine, ours, g)
        step(reference, theirs, g)
    assert_near(ours, theirs)


cases = pytest.mark.parametrize("make", CASES.values(), ids=CASES)


@cases
def test_trajectory(make):
    run(both(make))


@cases
def test_trajectory_with_skipped_gradients(make):
    run(both(make), grads=some_gradients)


@cases
def test_trajectory_of_groups(make):
    groups = [([0, 1], {}), ([2], {"lr": 0.1, "weight_decay": 0.05}), ([3], {"lr": 0.001})]
    run(both(make, groups=groups))


@cases
def test_trajectory_with_changing_settings(make):
    def change(t, optimizer):
        group = optimizer.param_groups[0]
        if t % 20 == 10:
            group["lr"] = group["lr"] * 0.5
            group["weight_decay"] = 0.01 * (t // 20)
        if t == 50 and "betas" in group:
            group["betas"] = (0.8, 0.99)
        if t == 50 and group.get("momentum", 0):
            group["momentum"] = 0.7

    run(both(make), change=change)


@cases
def test_group_that_is_added_later(make):
    def change(t, optimizer):
        if t == 30:
            optimizer.add_param_group({"params": late[type(optimizer).__module__], "lr": 0.02})

    extra = values(3, [(4,)])[0]
    ours, mine, theirs, reference = both(make)
    a, b = Parameter(jnp.asarray(extra)), torch.nn.Parameter(torch.tensor(extra))
    late = {type(mine).__module__: [a], type(reference).__module__: [b]}
    for t in range(60):
        change(t, mine)
        change(t, reference)
        g = gradients(t)
        if t < 30:
            step(mine, ours, g)
            step(reference, theirs, g)
        else:
            g = [*g, values(t, [(4,)])[0]]
            step(mine, [*ours, a], g)
            step(reference, [*theirs, b], g)
    assert_near([*ours, a], [*theirs, b])


def test_momentum_that_is_turned_on_later():
    def change(t, optimizer):
        if t == 20:
            optimizer.param_groups[0]["momentum"] = 0.9

    run(both(CASES["sgd decay"]), change=change)


@pytest.mark.parametrize("make", [CASES["adam"], CASES["sgd momentum"]])
def test_bfloat16_state_has_pytorchs_dtypes_and_stays_near(make):
    ours, mine, theirs, reference = both(make)
    ours = [Parameter(jnp.asarray(v, jnp.bfloat16)) for v in values()]
    theirs = [torch.nn.Parameter(torch.tensor(v).bfloat16()) for v in values()]
    mine, reference = make(optim, ours), make(torch.optim, theirs)
    for t in range(5):
        mine.step([jnp.asarray(g, jnp.bfloat16) for g in gradients(t)])
        for p, g in zip(theirs, gradients(t), strict=True):
            p.grad = torch.tensor(g).bfloat16()
        reference.step()
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == jnp.bfloat16
        for slot, box in mine.state[a].items():
            assert str(reference.state[b][slot].dtype) == f"torch.{box.dtype}"
        b = b.detach().float().numpy()
        np.testing.assert_allclose(np.asarray(a, np.float32), b, rtol=0.03, atol=0.03)


# State dicts.


@cases
@pytest.mark.parametrize("skip", [False, True])
def test_state_from_pytorch(make, skip):
    ours, mine, theirs, reference = both(make)
    for t in range(10):
        g = gradients(t)
        step(reference, theirs, [None if skip and i == t % 5 else x for i, x in enumerate(g)])
    if skip:  # one that never had a gradient
        theirs2 = torch.nn.Parameter(torch.ones(2))
        mine.add_param_group({"params": [Parameter(jnp.ones(2))]})
        reference.add_param_group({"params": [theirs2]})
        ours, theirs = mine._params(), [*theirs, theirs2]
    for p, q in zip(ours, theirs, strict=True):
        p.value = q.detach().numpy()
    mine.load_state_dict(copy.deepcopy(reference.state_dict()))
    for t in range(10, 30):
        g = [*gradients(t), np.ones(2, np.float32)][: len(ours)]
        step(mine, ours, g)
        step(reference, theirs, g)
    assert_near(ours, theirs)


@cases
@pytest.mark.parametrize("skip", [False, True])
def test_state_for_pytorch(make, skip):
    ours, mine, theirs, reference = both(make)
    for t in range(10):
        g = gradients(t)
        step(mine, ours, [None if skip and i in (3, t % 5) else x for i, x in enumerate(g)])
    with torch.no_grad():
        for p, q in zip(ours, theirs, strict=True):
            q.copy_(torch.tensor(np.asarray(p)))
    reference.load_state_dict(mine.torch_state_dict())
    for t in range(10, 30):
        step(mine, ours, gradients(t))
        step(reference, theirs, gradients(t))
    assert_near(ours, theirs)


def test_settings_arrive_in_pytorch_as_they_were_written():
    _, mine, _, reference = both(lambda o, p: o.Adam(p, lr=0.3, betas=(0.95, 0.999)))
    reference.param_groups[0].update(lr=1.0, betas=(0.0, 0.0))
    reference.load_state_dict(mine.torch_state_dict())
    assert reference.param_groups[0]["lr"] == 0.3
    assert reference.param_groups[0]["betas"] == (0.95, 0.999)


def test_bfloat16_moments_go_both_ways():
    ours = [Parameter(jnp.ones(3, jnp.bfloat16))]
    theirs = [torch.nn.Parameter(torch.ones(3).bfloat16())]
    mine, reference = optim.Adam(ours), torch.optim.Adam(theirs)
    mine.step([jnp.arange(3, dtype=jnp.bfloat16)])
    reference.load_state_dict(mine.torch_state_dict())
    got = reference.state[theirs[0]]["exp_avg"]
    assert got.dtype == torch.bfloat16
    other = optim.Adam(ours)
    other.load_state_dict(reference.state_dict())
    moment = other.state[ours[0]]["exp_avg"]
    assert moment.dtype == jnp.bfloat16
    assert (moment.value == mine.state[ours[0]]["exp_avg"].value).all()


def test_named_state_from_pytorch_goes_by_name():
    v = values(0, [(3,), (3,)])
    theirs = [torch.nn.Parameter(torch.tensor(x)) for x in v]
    reference = torch.optim.Adam([("b", theirs[0]), ("a", theirs[1])])
    step(reference, theirs, v)
    ours = [Parameter(jnp.asarray(x)) for x in v[::-1]]
    mine = optim.Adam([("a", ours[0]), ("b", ours[1])])
    mine.load_state_dict(reference.state_dict())
    for p, q in zip(ours, theirs[::-1], strict=True):
        want = reference.state[q]["exp_avg"].numpy()
        np.testing.assert_array_equal(np.asarray(mine.state[p]["exp_avg"]), want)


# Clipping.


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, 0.5, float("inf"), "inf"])
@pytest.mark.parametrize("max_norm", [0.1, 1e6])
def test_clip_grad_norm(norm_type, max_norm):
    grads = gradients(0)
    theirs = [torch.nn.Parameter(torch.tensor(g)) for g in grads]
    for p, g in zip(theirs, grads, strict=True):
        p.grad = torch.tensor(g)
    want = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    clipped, norm = optim.clip_grad_norm([jnp.asarray(g) for g in grads], max_norm, norm_type)
    np.testing.assert_allclose(float(norm), float(want), rtol=1e-5)
    assert_near(clipped, [p.grad for p in theirs])


def test_clip_grad_value():
    grads = gradients(0)
    theirs = [torch.nn.Parameter(torch.tensor(g)) for g in grads]
    for p, g in zip(theirs, grads, strict=True):
        p.grad = torch.tensor(g)
    torch.nn.utils.clip_grad_value_(theirs, 0.2)
    assert_near(
        optim.clip_grad_value([jnp.asarray(g) for g in grads], 0.2), [p.grad for p in theirs]
    )


# Schedules.

schedules = pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)


def two_groups():
    groups = [([0, 1], {}), ([2, 3], {"lr": 0.02})]
    _, mine, _, reference = both(lambda o, p: o.SGD(p, lr=0.3), groups=groups)
    return mine, reference


def assert_rates(mine, reference, tolerance=1e-6):
    ours = [float(group["lr"]) for group in mine.param_groups]
    theirs = [group["lr"] for group in reference.param_groups]
    bases = [group["initial_lr"] for group in reference.param_groups]
    for a, b, base in zip(ours, theirs, bases, strict=True):
        assert abs(a - b) <= tolerance * abs(b) + 1e-7 * base, (a, b)


def epochs(make, mine, reference, *, compiled, change=None, n=STEPS, tolerance=1e-6):
    ours, theirs = make(optim.lr_scheduler, mine), make(torch.optim.lr_scheduler, reference)
    assert_rates(mine, reference)
    advance = js.jit(lambda: ours.step()) if compiled else ours.step
    for t in range(n):
        if change is not None:
            change(t, mine)
            change(t, reference)
        advance()
        theirs.step()
        assert_rates(mine, reference, tolerance)
        assert ours.last_epoch == theirs.last_epoch
    return ours, theirs


@schedules
@pytest.mark.parametrize("compiled", [False, True])
def test_schedule(make, compiled, request):
    if compiled and "lambda" in request.node.callspec.id:
        pytest.skip("functions of integers, see test_schedule_of_functions_in_jit")
    # A product of many factors has no closed form to return to.
    tolerance = 1e-5 if "multiplicative" in request.node.callspec.id else 1e-6
    epochs(make, *two_groups(), compiled=compiled, tolerance=tolerance)


def test_schedule_of_functions_in_jit():
    def make(s, o):
        power = np.float32(0.95)
        if s is torch.optim.lr_scheduler:
            return s.LambdaLR(o, lambda e: 0.95**e)
        return s.LambdaLR(o, lambda e: jnp.power(power, jnp.asarray(e, jnp.float32)))

    epochs(make, *two_groups(), compiled=True, n=30)


@schedules
@pytest.mark.parametrize("compiled", [False, True])
def test_schedule_goes_on_from_rates_that_somebody_changed(make, compiled, request):
    if compiled and "lambda" in request.node.callspec.id:
        pytest.skip("functions of integers")

    def change(t, optimizer):
        if t == 12:
            optimizer.param_groups[0]["lr"] = 0.11

    epochs(make, *two_groups(), compiled=compiled, change=change, n=60, tolerance=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_two_schedules_of_one_optimizer(compiled):
    mine, reference = two_groups()
    pairs = []
    for s, o in ((optim.lr_scheduler, mine), (torch.optim.lr_scheduler, reference)):
        pairs.append((s.ConstantLR(o, 0.1, 5), s.ExponentialLR(o, 0.9), s.MultiStepLR(o, [8, 9])))

    def advance():
        for scheduler in pairs[0]:
            scheduler.step()

    advance = js.jit(advance) if compiled else advance
    for _ in range(20):
        advance()
        for scheduler in pairs[1]:
            scheduler.step()
        assert_rates(mine, reference, 3e-6)


@schedules
def test_schedule_from_and_for_pytorch(make, request):
    mine, reference = two_groups()
    ours, theirs = make(optim.lr_scheduler, mine), make(torch.optim.lr_scheduler, reference)
    for _ in range(11):
        theirs.step()
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    mine.load_state_dict(copy.deepcopy(reference.state_dict()))
    assert_rates(mine, reference)
    for _ in range(11):
        ours.step()
        theirs.step()
        assert_rates(mine, reference)
    _, reference2 = two_groups()
    theirs2 = make(torch.optim.lr_scheduler, reference2)
    theirs2.load_state_dict(ours.state_dict())
    reference2.load_state_dict(mine.torch_state_dict())
    for _ in range(11):
        theirs2.step()
        theirs.step()
    for a, b in zip(reference2.param_groups, reference.param_groups, strict=True):
        assert abs(a["lr"] - b["lr"]) <= 1e-6 * b["lr"] + 1e-7


@schedules
def test_schedule_that_goes_on_by_last_epoch(make, request):
    groups = [([0, 1], {"initial_lr": 0.3}), ([2, 3], {"lr": 0.02, "initial_lr": 0.04})]
    _, mine, _, reference = both(lambda o, p: o.SGD(p, lr=0.3), groups=groups)
    name = request.node.callspec.id
    if "lambda" in name or "multiplicative" in name:
        pytest.skip("takes no last_epoch here")
    resume = lambda s, o: _with_last_epoch(make, s, o)
    ours, theirs = resume(optim.lr_scheduler, mine), resume(torch.optim.lr_scheduler, reference)
    for _ in range(30):
        assert_rates(mine, reference, 1e-5)
        ours.step()
        theirs.step()


def _with_last_epoch(make, module, optimizer):
    class Module:
        def __getattr__(self, name):
            return lambda *a, **k: getattr(module, name)(*a, last_epoch=4, **k)

    return make(Module(), optimizer)
