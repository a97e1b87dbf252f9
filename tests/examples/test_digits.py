"""The example that trains on digits: killed and resumed, it ends where it would have ended."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxsaw import checkpoint

for package in ("sklearn", "matplotlib", "tqdm"):
    pytest.importorskip(package)

ROOT = Path(__file__).parents[2]
EPOCHS = 2


def start(out: Path, *options: str) -> subprocess.Popen:
    script = ROOT / "examples" / "digits.py"
    command = [sys.executable, script, "--quiet", f"--epochs={EPOCHS}", f"--out={out}", *options]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "PYTHONUNBUFFERED": "1",
    }
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def run(out: Path, *options: str) -> str:
    process = start(out, *options)
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 0, text
    return text


def content(path: Path) -> dict:
    loaded = checkpoint.load(path)
    arrays = {f"{obj}/{name}": loaded[obj][name] for obj in loaded for name in loaded[obj]}
    return {
        "progress": loaded.progress,
        **{name: bits(array) for name, array in arrays.items()},
    }


def bits(array) -> tuple:
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    array = np.asarray(array)
    return str(array.dtype), array.shape, array.tobytes()


def test_a_run_that_was_killed_at_any_step_and_resumed_ends_with_the_same_bits(tmp_path):
    run(tmp_path / "whole")
    expected = content(tmp_path / "whole" / f"epoch.{EPOCHS:03d}.npz")

    out = tmp_path / "killed"
    chance = random.Random(4)
    delays = [chance.uniform(0.0, 0.6) for _ in range(2)]
    resumed = 0
    for delay in delays:
        process = start(out, "--save-every=3", "--resume")
        deadline = time.monotonic() + 300
        before = {p: p.stat().st_mtime_ns for p in out.glob("epoch.*.npz")}
        while process.poll() is None and time.monotonic() < deadline:
            now = {p: p.stat().st_mtime_ns for p in out.glob("epoch.*.npz")}
            if now != before:  # it has begun to train, and to save
                break
            time.sleep(0.01)
        time.sleep(delay)
        process.kill()
        text, _ = process.communicate()
        resumed += "Resumed" in text
    text = run(out, "--save-every=3", "--resume")

    assert "Resumed from" in text
    assert resumed == len(delays) - 1
    assert content(out / f"epoch.{EPOCHS:03d}.npz") == expected


def test_it_reads_digits_and_draws_a_picture(tmp_path):
    script = ROOT / "examples" / "digits.py"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "PYTHONUNBUFFERED": "1",
    }
    subprocess.run(
        [sys.executable, script, "--quiet", f"--out={tmp_path}"], env=environment, check=True
    )
    progress = checkpoint.inspect(tmp_path / "epoch.012.npz")["progress"]
    assert progress["history"]["accuracy"][-1] >= 0.98
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
