"""What training loops need around an optimizer: accumulation, scaling, averages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import checkpoint, nn, optim
from jaxsaw.nn import Parameter
from jaxsaw.nn import functional as F
from jaxsaw.optim import swa_utils
from tests.optim.cases import values

near = lambda a, b, tolerance=1e-6: np.testing.assert_allclose(a, b, rtol=tolerance, atol=1e-7)


def net(seed=0):
    return nn.Sequential(nn.Linear(3, 4, rngs=js.Rngs(seed)), nn.BatchNorm1d(4), nn.Tanh())


def loss_of(model, x):
    return (model(x) ** 2).mean() + (model[0].weight.value ** 2).mean()


# Accumulation.


def test_accumulated_gradients_are_those_of_the_parts():
    model, twin = net(), net()
    x = jnp.asarray(values(0, [(12, 3)])[0])
    grad = js.value_and_grad(loss_of)
    loss, grads = js.jit(lambda m, x: optim.accumulate(grad, 3)(m, x))(model, x)
    parts = [grad(twin, part) for part in jnp.split(x, 3)]
    near(loss, sum(part[0] for part in parts) / 3)
    for name in grads:
        near(grads[name], sum(part[1][name] for part in parts) / 3)
    assert grads.boxes == tuple(model.parameters())
    near(model[1].running_mean, twin[1].running_mean)
    assert int(model[1].num_batches_tracked) == 3


def test_accumulating_refuses_what_it_cannot_split():
    with pytest.raises(ValueError, match="can't split 10 items into 3 equal parts"):
        optim.accumulate(js.value_and_grad(loss_of), 3)(net(), jnp.ones((10, 3)))
    with pytest.raises(ValueError, match="steps must be a positive integer, got 0"):
        optim.accumulate(loss_of, 0)


# Scaling.


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_without_finite_gradients_is_skipped_and_says_so(compiled):
    p = Parameter(jnp.ones(2))
    optimizer = optim.Adam([p], lr=0.5)
    scaler = optim.GradScaler(8.0, growth_interval=2)

    def step(x):
        grads = jax.grad(lambda p: scaler.scale((p * x).sum()))(p.value)
        return scaler.step(optimizer, [grads])

    step = js.jit(step) if compiled else step
    seen = []
    for x in (1.0, np.inf, 1.0, 1.0, np.nan, 1.0):
        before = np.asarray(p)
        done = bool(step(jnp.full(2, x, jnp.float32)))
        assert done == bool(np.isfinite(x)) == (not np.array_equal(before, p))
        seen.append(float(scaler.get_scale()))
    assert seen == [8, 4, 4, 8, 4, 4]
    assert int(optimizer.step_count) == 4
    near(optimizer.state[p]["exp_avg"], 1 - 0.9**4)
    other = optim.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert float(other.get_scale()) == 4 and other.growth_interval == 2


def test_a_scaler_that_is_off_and_what_it_refuses():
    p = Parameter(jnp.ones(1))
    scaler = optim.GradScaler(enabled=False)
    assert scaler.scale(jnp.float32(3)) == 3 and scaler.state_dict() == {}
    assert bool(scaler.step(optim.SGD([p], lr=0.5), [jnp.ones(1)])) and float(p[0]) == 0.5
    with pytest.raises(ValueError, match="growth_factor must be above 1, got 1"):
        optim.GradScaler(growth_factor=1.0)
    with pytest.raises(ValueError, match="backoff_factor must be between 0 and 1"):
        optim.GradScaler(backoff_factor=1.0)
    with pytest.raises(RuntimeError, match="lacks \\['_growth_tracker'\\]"):
        optim.GradScaler().load_state_dict({"scale": 1.0})


# Groups: frozen ones, and weights in float32.


def test_a_frozen_group_stays():
    a, b = Parameter(jnp.ones(1)), Parameter(jnp.ones(1))
    groups = [{"params": [a]}, {"params": [b], "frozen": True}]
    optimizer = optim.AdamW(groups, lr=0.5, weight_decay=0.5)
    step = js.jit(lambda: optimizer.step([jnp.ones(1), jnp.ones(1)]))
    step()
    assert float(a[0]) != 1 and float(b[0]) == 1
    optimizer.param_groups[1]["frozen"] = False
    step()
    near(b, 1 - 0.25 - 0.5)
    assert optimizer._own_steps().tolist() == [2, 1]


def test_master_weights_add_up_what_bfloat16_would_lose(tmp_path):
    start, lr = jnp.full(3, 1.0, jnp.bfloat16), 1e-3
    p, low = Parameter(start), Parameter(start)
    optimizer = optim.SGD([{"params": [p], "master_weights": True}], lr=lr, momentum=0.5)
    plain = optim.SGD([low], lr=lr, momentum=0.5)
    step = js.jit(lambda o: o.step([jnp.ones(3, jnp.bfloat16)]))
    exact, buffer = 1.0, 0.0
    for _ in range(20):
        step(optimizer)
        step(plain)
        buffer = 0.5 * buffer + 1
        exact -= lr * buffer
    slots = optimizer.state[p]
    near(slots["master"], exact, 1e-5)
    assert slots["master"].dtype == slots["momentum_buffer"].dtype == jnp.float32
    assert p.dtype == jnp.bfloat16 and float(p[0]) == float(jnp.bfloat16(exact))
    assert abs(float(low[0]) - exact) > 0.01

    checkpoint.save(tmp_path / "x.npz", optimizer=optimizer)
    twin = Parameter(p.value)
    other = optim.SGD([{"params": [twin], "master_weights": True}], lr=lr, momentum=0.5)
    checkpoint.restore(tmp_path / "x.npz", optimizer=other)
    step(optimizer)
    step(other)
    np.testing.assert_array_equal(other.state[twin]["master"], slots["master"])
    p.value = jnp.full(3, 5.0, jnp.bfloat16)  # somebody loads other weights
    step(optimizer)
    near(slots["master"], 5.0, 1e-2)


# Averages.


def test_averages_follow_their_formulas():
    model = net()
    kinds = {
        "mean": swa_utils.AveragedModel(model),
        "decaying": swa_utils.AveragedModel(model, avg_fn=swa_utils.get_ema_avg_fn(0.75)),
        "both": swa_utils.AveragedModel(
            model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.75), use_buffers=True
        ),
    }
    update = js.jit(lambda m: [average.update_parameters(m) for average in kinds.values()] and None)
    seen = []
    for t in range(4):
        model[0].bias.value = jnp.full(4, float(t))
        model[1].running_mean.value = jnp.full(4, float(t))
        update(model)
        seen.append(float(t))
    ema = 0.0
    for t in seen[1:]:
        ema = 0.75 * ema + 0.25 * t
    near(kinds["mean"].module[0].bias, np.mean(seen))
    near(kinds["decaying"].module[0].bias, ema)
    near(kinds["both"].module[0].bias, ema)
    assert float(kinds["mean"].module[1].running_mean[0]) == 3.0
    near(kinds["both"].module[1].running_mean, ema)
    assert all(int(average.n_averaged) == 4 for average in kinds.values())
    x = jnp.ones((2, 3))
    near(kinds["mean"](x), kinds["mean"].module(x))
    assert next(iter(kinds["mean"].state_dict())) == "n_averaged"


def test_averages_refuse():
    with pytest.raises(ValueError, match="give avg_fn or multi_avg_fn, not both"):
        swa_utils.AveragedModel(net(), avg_fn=len, multi_avg_fn=len)
    with pytest.raises(ValueError, match="decay must be between 0 and 1, got 1.5"):
        swa_utils.get_ema_avg_fn(1.5)
    with pytest.raises(ValueError, match="has another structure"):
        swa_utils.AveragedModel(nn.Linear(2, 3, rngs=js.Rngs(0))).update_parameters(
            nn.Linear(3, 2, rngs=js.Rngs(0))
        )
    with pytest.raises(ValueError, match="anneal_epochs must be at least 0"):
        swa_utils.SWALR(optim.SGD([Parameter(jnp.ones(1))]), 0.1, anneal_epochs=-1)


def test_batch_statistics_anew():
    model = net().eval()
    batches = [(jnp.asarray(x), 0) for x in values(1, [(8, 3), (8, 3)])]
    swa_utils.update_bn(batches, model)
    outputs = [np.asarray(model[0](x)) for x, _ in batches]
    near(model[1].running_mean, np.mean([y.mean(0) for y in outputs], axis=0), 1e-5)
    assert not model.training and not model[1].training and model[1].momentum == 0.1


# L-BFGS.


def test_lbfgs_refuses_and_fits():
    model = nn.Linear(2, 1, rngs=js.Rngs(0))
    x = jnp.asarray(values(0, [(16, 2)])[0])
    y = x @ jnp.array([[1.0], [-2.0]]) + 0.5
    with pytest.raises(ValueError, match="line_search_fn must be 'strong_wolfe'"):
        optim.LBFGS(model.parameters(), line_search_fn="x")
    with pytest.raises(ValueError, match="can't have several"):
        optim.LBFGS([{"params": [p]} for p in model.parameters()])
    optimizer = optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")
    with pytest.raises(TypeError, match="expected a function that returns .loss, grads."):
        optimizer.step(None)
    with pytest.raises(TypeError, match="the closure must return .loss, grads."):
        optimizer.step(lambda: jnp.ones(()))
    assert int(optimizer.step_count) == 0

    @js.jit
    def step(model, optimizer):
        closure = lambda: js.value_and_grad(lambda m: F.mse_loss(m(x), y))(model)
        return optimizer.step(closure)

    step(model, optimizer)
    assert float(step(model, optimizer)) < 1e-6 and step.trace_count == 1
    near(model.weight, [[1.0, -2.0]], 1e-3)
