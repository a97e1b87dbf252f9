"""The program that every part of jaxsaw serves (DESIGN.md, section 1), as it is written there."""

import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import checkpoint, nn, optim
from jaxsaw.nn import functional as F

LOSSES = (6.502008438110352, 2.25146222114563)
OUTPUT = -0.7157132

PROGRAM = """
import jax
import jaxsaw as js
from jaxsaw import nn, optim, data, checkpoint, inspection
from jaxsaw.nn import functional as F

model = nn.Linear(2, 1, rngs=js.Rngs(params=15))
optimizer = optim.Adam(model.parameters(), lr=0.01)
runtime = js.Rngs(sample=16)

@js.jit
def step(model, optimizer, rngs):
    x = js.random.normal(rngs.next("sample"), (8, 2))
    y = x.sum(-1, keepdims=True)
    loss, grads = js.value_and_grad(lambda m: F.mse_loss(m(x), y))(model)
    optimizer.step(grads)
    return loss

print(step(model, optimizer, runtime))
checkpoint.save("runs/state.npz", model=model, optimizer=optimizer, rngs=runtime,
                progress={"next_update": int(optimizer.step_count)}, metadata={"seed": 15})
print(step(model, optimizer, runtime))
restored = checkpoint.restore("runs/state.npz", model=model, optimizer=optimizer, rngs=runtime)
print(step(model, optimizer, runtime))
assert restored.progress == {"next_update": 1}
print(*model(jax.numpy.ones((2, 2)))[:, 0])
"""


def build():
    model = nn.Linear(2, 1, rngs=js.Rngs(params=15))
    return model, optim.Adam(model.parameters(), lr=0.01), js.Rngs(sample=16)


def update(model, optimizer, rngs):
    x = js.random.normal(rngs.next("sample"), (8, 2))
    y = x.sum(-1, keepdims=True)
    loss, grads = js.value_and_grad(lambda m: F.mse_loss(m(x), y))(model)
    optimizer.step(grads)
    return loss


def test_the_program_prints_its_numbers(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(PROGRAM)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first, second, again, outputs = done.stdout.splitlines()
    assert float(first) == pytest.approx(LOSSES[0], abs=1e-6)
    assert float(second) == pytest.approx(LOSSES[1], abs=1e-6)
    assert again == second
    assert [float(x) for x in outputs.split()] == pytest.approx([OUTPUT] * 2, abs=1e-6)
    assert (tmp_path / "runs" / "state.npz").is_file()


@pytest.mark.parametrize("how", ["jit", "eager"])
def test_its_losses_repeat_exactly(tmp_path, how):
    step = js.jit(update) if how == "jit" else update
    path = tmp_path / "runs" / "state.npz"
    runs = []
    for _ in range(2):
        model, optimizer, rngs = objects = build()
        losses = [float(step(*objects))]
        checkpoint.save(path, model=model, optimizer=optimizer, rngs=rngs)
        losses += [float(step(*objects)) for _ in range(3)]
        checkpoint.restore(path, model=model, optimizer=optimizer, rngs=rngs)
        assert [float(step(*objects)) for _ in range(3)] == losses[1:]
        runs.append(losses)
    assert runs[0] == runs[1]
    assert runs[0][:2] == pytest.approx(LOSSES, abs=1e-6)


def test_a_resumed_program_goes_on_in_fresh_objects(tmp_path):
    step = js.jit(update)
    model, optimizer, rngs = build()
    step(model, optimizer, rngs)
    checkpoint.save(tmp_path / "a.npz", model=model, optimizer=optimizer, rngs=rngs)
    expected = float(step(model, optimizer, rngs))
    fresh = nn.Linear(2, 1, rngs=js.Rngs(params=3))
    others = optim.Adam(fresh.parameters(), lr=0.5), js.Rngs(sample=4)
    checkpoint.restore(tmp_path / "a.npz", model=fresh, optimizer=others[0], rngs=others[1])
    assert float(step(fresh, *others)) == expected
    assert step.trace_count == 1


def test_the_streams_are_what_they_are_said_to_be():
    rngs = js.Rngs(sample=16)
    for n in range(3):
        expected = jax.random.fold_in(jax.random.key(16, impl="threefry2x32"), n)
        np.testing.assert_array_equal(
            jax.random.key_data(rngs.next("sample")), jax.random.key_data(expected)
        )
    key = jax.random.fold_in(jax.random.key(15, impl="threefry2x32"), 0)
    bound = 1 / np.sqrt(2)
    weight = jax.random.uniform(key, (1, 2), jnp.float32, -bound, bound)
    model, _, _ = build()
    np.testing.assert_allclose(model.weight, weight, rtol=1e-6)
    np.testing.assert_array_equal(model.bias, [0])
