"""A run that was ended and goes on in a fresh process ends where an uninterrupted one does."""

import os
import subprocess
import sys

import pytest

# Run as a script: kind, mode, where to stop, and a folder. It goes on from what it finds there.
PROGRAM = """
import sys
import jax
import jax.numpy as jnp
import numpy as np

import jaxsaw as js
from jaxsaw import checkpoint, data, nn, optim
from jaxsaw.state.graph import named_boxes

kind, mode, stop, folder = sys.argv[1:]
jax.config.update("jax_numpy_dtype_promotion", "strict")
resuming = folder.endswith("ended") and stop == "never"
seed = 40 if resuming else 0  # what a fresh process draws must not matter
EPOCHS, BATCH, ITEMS = 3, 4, 14


class Net(nn.Module):
    def __init__(self, rngs):
        super().__init__()
        self.first = nn.Linear(3, 8, rngs=rngs)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.4, rngs=rngs if kind == "own" else None)
        self.last = nn.Linear(8, 1, rngs=rngs)
        self.register_buffer("calls", jnp.zeros((), jnp.int32), persistent=False)

    def forward(self, x):
        self.calls += 1
        return self.last(self.drop(jax.nn.relu(self.norm(self.first(x)))))


class Items(data.Dataset):
    def __len__(self):
        return ITEMS

    def __getitem__(self, i):
        x = np.random.default_rng(i).normal(size=3).astype(np.float32)
        return x + np.random.normal(size=3).astype(np.float32) / 8, x.sum(keepdims=True)


rngs = js.Rngs(params=seed, dropout=seed + 1)
model = Net(rngs)
optimizer = optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
schedule = {
    "step": lambda: optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5),
    "own": lambda: optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5),
    "cosine": lambda: optim.lr_scheduler.CosineAnnealingLR(optimizer, 20),
    "inside": lambda: optim.lr_scheduler.CosineAnnealingLR(optimizer, 20),
    "derived": lambda: optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5),
}[kind]
scheduler = schedule()
runtime = js.Rngs(seed) if kind == "derived" else js.Rngs(dropout=seed + 2, noise=seed + 3)
loader = data.DataLoader(
    Items(), BATCH, shuffle=True, rngs=js.Rngs(data=seed + 4),
    prefetch_factor=2 if kind == "cosine" else None,
)
state = dict(
    model=model, optimizer=optimizer, rngs=runtime, scheduler=scheduler, loader=loader
)


def step(model, optimizer, rngs, scheduler, x, y):
    noise = 0.1 * js.random.normal(rngs.next("noise"), x.shape)
    given = {} if kind == "own" else {"rngs": rngs}

    def loss_of(m):
        return jnp.square(m(x + noise, **given) - y).mean()

    loss, grads = js.value_and_grad(loss_of)(model)
    if kind == "step":  # one Parameter joins late, so that it lags behind
        grads = grads if late else grads.only(early)
    optimizer.step(grads)
    if kind == "inside":
        scheduler.step()
    return loss


early = [p for name, p in model.named_parameters() if not name.startswith("last")]
late = False
early_step = js.jit(step) if mode == "jit" else step
late_step = js.jit(lambda *a: step(*a)) if mode == "jit" else step

path = f"{folder}/state.npz"
updates = 0
if resuming:
    restored = checkpoint.restore(path, **state)
    updates = restored.progress["updates"]
    assert int(model.calls) == updates

losses = []
while int(loader.epoch) <= EPOCHS:
    if int(loader.epoch) == EPOCHS and int(loader.position) == 0 and updates:
        break
    for x, y in loader:
        late = updates >= 3
        losses.append(
            float((late_step if late else early_step)(model, optimizer, runtime, scheduler, x, y))
        )
        updates += 1
        if kind != "inside":
            scheduler.step()
        if stop == str(updates):
            checkpoint.save(path, **state, progress={"updates": updates})
            sys.exit()
assert updates == EPOCHS * 4, updates
for name, obj in state.items():
    for path, box in named_boxes(obj):
        array = box.value
        if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            array = jax.random.key_data(array)
        print(name, path, array.dtype, np.asarray(array).tobytes().hex())
print(losses[-3:])
"""


def run(*args):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, *map(str, args)],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


# Within an epoch of four batches, at its end, and right after a Parameter has begun to lag.
STOPS = {"step": 2, "own": 6, "cosine": 7, "inside": 8, "derived": 9}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "mode"),
    [*((kind, "jit") for kind in ("step", "own", "cosine", "inside", "derived"))]
    + [("step", "eager"), ("cosine", "eager")],
)
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, kind, mode):
    straight, ended = tmp_path / "straight", tmp_path / "ended"
    straight.mkdir(), ended.mkdir()
    expected = run(kind, mode, "never", straight)
    assert run(kind, mode, STOPS[kind], ended) == []
    came = run(kind, mode, "never", ended)
    assert len(expected) > 40
    assert [a for a, b in zip(expected, came, strict=True) if a != b] == []
