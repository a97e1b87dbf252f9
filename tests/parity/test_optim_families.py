"""The optimizers beside SGD and Adam, step by step beside PyTorch's, and their states."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import optim
from jaxsaw.nn import Parameter
from tests.optim.cases import MORE, STEPS, gradients, values
from tests.parity.oracle import torch

GROUPS = [([0, 1], {}), ([2, 3], {"lr": 0.03})]


def split(params, groups):
    return [{"params": [params[i] for i in ids], **more} for ids, more in groups]


def both(make, start, groups=GROUPS):
    ours = [Parameter(jnp.asarray(v)) for v in start]
    theirs = [torch.nn.Parameter(torch.tensor(v)) for v in start]
    return (
        *(ours, make(optim, split(ours, groups))),
        *(theirs, make(torch.optim, split(theirs, groups))),
    )


def torch_step(optimizer, params, grads):
    for p, g in zip(params, grads, strict=True):
        p.grad = None if g is None else torch.tensor(g)
    optimizer.step()


def assert_near(ours, theirs, tolerance=1e-5):
    for a, b in zip(ours, theirs, strict=True):
        b = b.detach().numpy()
        slack = tolerance * max(np.abs(b).max(), 0.1)  # some come close to zero
        np.testing.assert_allclose(np.asarray(a), b, rtol=tolerance, atol=slack)


@pytest.mark.parametrize("make", MORE.values(), ids=MORE)
def test_trajectory_of_groups_with_changes_and_states(make):
    ours, mine, theirs, reference = both(make, values())
    step = js.jit(lambda grads: mine.step(grads))
    for t in range(STEPS):
        g = gradients(t)
        if t in (20, 60):
            for optimizer in (mine, reference):
                group = optimizer.param_groups[0]
                group["lr"] = group["lr"] * 0.5
                if "weight_decay" in group:
                    group["weight_decay"] = 0.01
        step([jnp.asarray(x) for x in g])
        torch_step(reference, theirs, g)
    assert_near(ours, theirs)
    assert step.trace_count == 1

    some = [None if i == 1 else x for i, x in enumerate(gradients(STEPS))]
    mine.step([None if x is None else jnp.asarray(x) for x in some])
    torch_step(reference, theirs, some)
    assert_near(ours, theirs)

    # From PyTorch, and back.
    for p, q in zip(ours, theirs, strict=True):
        p.value = q.detach().numpy()
    mine.load_state_dict(copy.deepcopy(reference.state_dict()))
    twins = [torch.nn.Parameter(q.detach().clone()) for q in theirs]
    other = make(torch.optim, split(twins, GROUPS))
    other.load_state_dict(mine.torch_state_dict())
    for t in range(STEPS + 1, STEPS + 4):
        step([jnp.asarray(x) for x in gradients(t)])
        torch_step(reference, theirs, gradients(t))
        torch_step(other, twins, gradients(t))
    assert_near(ours, theirs)
    assert_near(ours, twins)


@pytest.mark.parametrize("name", ["adadelta", "nadam", "asgd", "rprop", "rmsprop both"])
def test_complex_parameters(name):
    r = np.random.RandomState(0)
    draw = lambda: (r.standard_normal(3) + 1j * r.standard_normal(3)).astype(np.complex64)
    ours, mine, theirs, reference = both(MORE[name], [draw()], [([0], {})])
    for _ in range(5):
        g = draw()
        mine.step([jnp.conj(jnp.asarray(g))])  # JAX's gradient is the conjugate
        torch_step(reference, theirs, [g])
    assert_near(ours, theirs)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "momentum": 0.8},
        {"ns_steps": 3, "weight_decay": 0.0, "ns_coefficients": (2.0, -1.5, 0.5)},
    ],
)
def test_muon(options):
    """In bfloat16, a last digit that is rounded otherwise is some 0.4 percent of a step."""
    make = lambda o, p: o.Muon(p, lr=0.02, **options)
    ours, mine, theirs, reference = both(make, values(0, [(6, 4), (3, 8)]), [([0, 1], {})])
    step = js.jit(lambda grads: mine.step(grads))
    for t in range(20):
        g = gradients(t, [(6, 4), (3, 8)])
        step([jnp.asarray(x) for x in g])
        torch_step(reference, theirs, g)
    assert_near(ours, theirs, 2e-3)
    for p, q in zip(ours, theirs, strict=True):
        want = reference.state[q]["momentum_buffer"].numpy()
        np.testing.assert_allclose(mine.state[p]["momentum_buffer"], want, rtol=1e-5, atol=1e-7)
    other = make(optim, ours)
    other.load_state_dict(reference.state_dict())
    reference.load_state_dict(other.torch_state_dict())


@pytest.mark.parametrize("maximize", [False, True])
def test_sparse_adam_is_pytorchs_for_rows_without_gradient(maximize):
    make = lambda o, p: o.SparseAdam(p, 0.05, (0.8, 0.99), maximize=maximize)
    ours, mine, theirs, reference = both(make, values(0, [(6, 3), (8,)]), [([0, 1], {})])
    step = js.jit(lambda grads: mine.step(grads))
    for t in range(40):
        g = gradients(t, [(6, 3), (8,)])
        used = np.random.RandomState(t).rand(8) < 0.4
        g = [g[0] * used[:6, None], g[1] * used]
        step([jnp.asarray(x) for x in g])
        for p, x in zip(theirs, g, strict=True):
            p.grad = torch.tensor(x).to_sparse(1)
        reference.step()
    assert_near(ours, theirs)
    for p, q in zip(ours, theirs, strict=True):
        for slot in ("exp_avg", "exp_avg_sq"):
            want = reference.state[q][slot].numpy()
            np.testing.assert_allclose(mine.state[p][slot], want, rtol=1e-5, atol=1e-8)


LBFGS = {
    "fixed": {"lr": 0.05, "max_iter": 10},
    "short memory": {"lr": 0.05, "history_size": 2, "max_iter": 6},
    "search": {"line_search_fn": "strong_wolfe"},
    "bounded search": {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 7},
    "many looks": {"lr": 30.0, "line_search_fn": "strong_wolfe", "max_eval": 60},
    "few looks": {"line_search_fn": "strong_wolfe", "max_eval": 3},
    "loose": {"line_search_fn": "strong_wolfe", "tolerance_grad": 1.0, "tolerance_change": 1e-2},
}


def curved(a, b):
    return ((1 - a) ** 2).sum() + 20 * ((b - a[:2] ** 2) ** 2).sum() + 0.1 * (a**4).sum()


@pytest.mark.parametrize("name", LBFGS)
def test_lbfgs(name):
    """In double: the way on is sensitive to the last digit."""
    options, compiled = LBFGS[name], name not in ("fixed", "bounded search", "loose")
    with jax.enable_x64(True):
        start = [np.array([-1.2, 0.5, 2.0]), np.array([1.0, -1.0])]
        ours = [Parameter(jnp.asarray(v)) for v in start]
        theirs = [torch.nn.Parameter(torch.tensor(v)) for v in start]
        mine, reference = optim.LBFGS(ours, **options), torch.optim.LBFGS(theirs, **options)

        def closure():
            loss, grads = jax.value_and_grad(curved, (0, 1))(*(p.value for p in ours))
            return loss, list(grads)

        def their_closure():
            reference.zero_grad()
            loss = curved(*theirs)
            loss.backward()
            return loss

        step = js.jit(lambda: mine.step(closure)) if compiled else lambda: mine.step(closure)
        for t in range(4):
            loss, want = step(), reference.step(their_closure)
            np.testing.assert_allclose(float(loss), float(want.detach()), rtol=1e-9)
            memory, state = mine.state[ours[0]], reference.state[theirs[0]]
            for key in ("func_evals", "n_iter"):
                assert int(memory[key]) == state[key]
            assert_near(ours, theirs, 1e-7)
            if t == 1:  # to PyTorch and back
                reference.load_state_dict(mine.torch_state_dict())
                mine.load_state_dict(copy.deepcopy(reference.state_dict()))


REFUSED = [
    *((name, {"lr": -1.0}) for name in "Adadelta Adagrad Adamax ASGD NAdam RAdam".split()),
    *((name, {"lr": -1.0}) for name in "RMSprop Rprop Adafactor Muon LBFGS".split()),
    *((name, {"weight_decay": -1.0}) for name in "Adadelta Adagrad Adamax ASGD NAdam".split()),
    *((name, {"weight_decay": -1.0}) for name in "RAdam RMSprop Adafactor Muon".split()),
    *((name, {"eps": -1.0}) for name in "Adadelta Adagrad Adamax NAdam RAdam RMSprop".split()),
    *((name, {"betas": (1.0, 0.9)}) for name in "Adamax NAdam RAdam SparseAdam".split()),
    *((name, {"betas": (0.9, -0.1)}) for name in "Adamax NAdam RAdam SparseAdam".split()),
    *(("SparseAdam", {key: 0.0}) for key in ("lr", "eps")),
    *(("Adadelta", {"rho": rho}) for rho in (-0.1, 1.1)),
    *(("Adagrad", {key: -1.0}) for key in ("lr_decay", "initial_accumulator_value")),
    *(("RMSprop", {key: -1.0}) for key in ("momentum", "alpha")),
    *(("Rprop", {"etas": etas}) for etas in ((0.0, 1.2), (0.5, 1.0), (1.1, 1.2))),
    *(("Adafactor", {"eps": eps}) for eps in ((-1.0, 1e-3), (None, -1.0))),
    *(("Adafactor", more) for more in ({"beta2_decay": 0.1}, {"d": 0.5})),
    *(("Muon", more) for more in ({"momentum": -1.0}, {"adjust_lr_fn": "x"})),
    ("NAdam", {"momentum_decay": -1.0}),
]


@pytest.mark.parametrize("name, options", REFUSED, ids=lambda x: str(x))
def test_both_refuse(name, options):
    value = np.ones((2, 2), np.float32)
    with pytest.raises(ValueError):
        getattr(torch.optim, name)([torch.nn.Parameter(torch.tensor(value))], **options)
    key = next(iter(options))
    with pytest.raises(ValueError, match=f"{name}: {key}"):
        getattr(optim, name)([Parameter(jnp.asarray(value))], **options)
