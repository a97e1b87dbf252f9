"""nn.Stack: the numbers, names and state of the same layers in a ModuleList."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn, optim

X = jax.random.normal(jax.random.key(0), (4, 3))


class Block(nn.Module):
    """Something of everything: weights, statistics, and draws."""

    def __init__(self, rngs):
        super().__init__()
        self.linear = nn.Linear(3, 3, rngs=rngs)
        self.norm = nn.BatchNorm1d(3)
        self.rngs = rngs
        self.dropout = nn.Dropout(0.5)

    def forward(self, x, scale=1.0):
        return x + self.dropout(jnp.tanh(self.norm(self.linear(x))), rngs=self.rngs) * scale


class Row(nn.ModuleList):
    def forward(self, x, *args, **kwargs):
        for layer in self:
            x = layer(x, *args, **kwargs)
        return x


def pair(**options):
    rngs = js.Rngs(0)
    row = Row([Block(rngs) for _ in range(3)])
    twin, streams = copy.deepcopy((row, rngs))
    return nn.Stack(list(row), **options), rngs, twin, streams


def close(stack, row):
    ours, theirs = stack.state_dict(), row.state_dict()
    assert list(ours) == list(theirs)
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"remat": True},
        {"remat": True, "policy": jax.checkpoint_policies.dots_saveable},
        {"unroll": 3},
    ],
)
def test_training_steps_are_those_of_a_module_list(options):
    stack, rngs, row, streams = pair(**options)

    def step(model, optimizer):
        loss, grads = js.value_and_grad(lambda m: (m(X, scale=0.5) ** 2).mean())(model)
        optimizer.step(grads)
        return loss

    ours, theirs = optim.SGD(stack.parameters(), lr=0.1), optim.SGD(row.parameters(), lr=0.1)
    compiled = js.jit(step)
    for _ in range(3):
        np.testing.assert_allclose(compiled(stack, ours), step(row, theirs), rtol=1e-4)
    assert compiled.trace_count == 1 and rngs.counts == streams.counts
    close(stack, row)


def test_evaluation_and_layers_one_by_one():
    stack, _, row, _ = pair()
    stack.eval(), row.eval()
    np.testing.assert_allclose(stack(X), row(X), rtol=1e-5)
    assert len(stack) == 3 and not stack[1].training
    np.testing.assert_array_equal(stack[1].linear.weight, row[1].linear.weight)
    assert stack[-1].rngs is stack.layers.rngs  # streams stay shared


def test_state_goes_both_ways():
    stack, _, row, _ = pair()
    row(X)
    stack.load_state_dict(row.state_dict())
    close(stack, row)
    row.load_state_dict(js.jit(lambda m: m.state_dict())(stack))
    model = nn.Sequential(nn.Identity(), stack)
    before = model.state_dict()
    assert "1.2.linear.weight" in before
    bad = {**before, "1.1.linear.weight": jnp.ones(2)}
    del bad["1.0.linear.bias"]
    with pytest.raises(RuntimeError, match=r"(?s)1\.0\.linear\.bias.*1\.1\.linear\.weight"):
        model.load_state_dict(bad)
    result = model.load_state_dict(
        {"1.1.linear.bias": jnp.full(3, 7.0), "else": jnp.ones(1)}, strict=False
    )
    assert result.unexpected_keys == ["else"] and "1.0.linear.bias" in result.missing_keys
    after = model.state_dict()
    for name, value in before.items():
        new = np.full(3, 7.0) if name == "1.1.linear.bias" else value
        np.testing.assert_array_equal(after[name], new)


def test_a_vmapped_constructor_gives_the_layers():
    stack = nn.Stack(js.vmap(lambda r: nn.Linear(3, 3, rngs=r))(js.stack(js.Rngs(0).fork(5))))
    assert len(stack) == 5 and stack(X).shape == X.shape
    assert [name for name, _ in stack.named_parameters()] == ["layers.weight", "layers.bias"]


def test_a_stack_is_copied_and_restored(tmp_path):
    from jaxsaw import checkpoint

    stack, _, _, _ = pair()
    other = copy.deepcopy(stack)
    stack(X)
    checkpoint.save(tmp_path / "stack.npz", model=stack)
    checkpoint.restore(tmp_path / "stack.npz", model=other)
    close(other, stack)


def test_layers_that_differ_or_share_are_refused():
    rngs = js.Rngs(0)
    with pytest.raises(ValueError, match="object 1"):
        nn.Stack([nn.Linear(3, 3, rngs=rngs), nn.Linear(3, 3, bias=False, rngs=rngs)])
    with pytest.raises(ValueError, match="at least one"):
        nn.Stack([])
    with pytest.raises(TypeError, match="got one Linear"):
        nn.Stack(nn.Linear(3, 3, rngs=rngs))
    a, b = nn.Linear(3, 3, rngs=rngs), nn.Linear(3, 3, rngs=rngs)
    b.weight = a.weight
    with pytest.raises(ValueError, match="share weight.*ModuleList"):
        nn.Stack([a, b])


def test_an_ensemble_of_models_with_stacks():
    def make(seed):
        rngs = js.Rngs(seed)
        return nn.Sequential(nn.Stack([Block(rngs) for _ in range(3)]), nn.Linear(3, 1, rngs=rngs))

    models, alone = js.stack([make(0), make(1)]), [make(0), make(1)]
    out = js.jit(js.vmap(lambda m, x: m(x), in_axes=(0, None)))(models, X)
    for i, (one, model) in enumerate(zip(js.unstack(models), alone, strict=True)):
        np.testing.assert_allclose(out[i], model(X), rtol=1e-4, atol=1e-5)
        close(one, model)
        assert one[0].layers.rngs.counts == model[0].layers.rngs.counts
