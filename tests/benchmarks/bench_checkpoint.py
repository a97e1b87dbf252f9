"""How fast checkpoints are written and read, against numpy.savez, safetensors and Orbax.

Every writer is followed by fsync, every file is read from a warm page cache. Rounds are
interleaved; a ratio is the median over rounds of (jaxsaw / contender), printed with its range and
with jaxsaw against itself, which is the noise.

The rows of ``checkpoint.save`` and ``checkpoint.restore`` are those of a module; the others are of
the file layer alone.

    python tests/benchmarks/bench_checkpoint.py [--quick] [--mb 1024] [--arrays 200] [--rounds 30]
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxsaw as js
from jaxsaw import checkpoint
from jaxsaw.checkpoint import npz

Arrays = dict[str, np.ndarray[Any, Any]]
Action = Callable[[Path], Any]


def make_state(megabytes: int, count: int) -> Arrays:
    size = (megabytes << 20) // 4 // count
    rng = np.random.default_rng(0)
    return {f"layer{i}.weight": rng.standard_normal(size, np.float32) for i in range(count)}


def fsync(path: Path) -> None:
    for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def writers(state: Arrays) -> dict[str, Action]:
    on_device = [jax.device_put(array) for array in state.values()]
    names = {name: f"a{i}" for i, name in enumerate(state)}

    def jaxsaw(path: Path) -> None:
        npz.write(path, on_device, {"names": names})

    def savez(path: Path) -> None:
        with open(path, "wb") as file:
            np.savez(file, allow_pickle=False, **state)
            file.flush()
            os.fsync(file.fileno())

    contenders: dict[str, Action] = {"jaxsaw": jaxsaw, "jaxsaw again": jaxsaw, "numpy.savez": savez}
    try:
        from safetensors.numpy import save_file

        def safetensors(path: Path) -> None:
            save_file(state, path)
            fsync(path)

        contenders["safetensors"] = safetensors
    except ImportError:
        pass
    try:
        import orbax.checkpoint as ocp

        checkpointer = ocp.PyTreeCheckpointer()
        tree = dict(zip(state, on_device, strict=True))

        def orbax(path: Path) -> None:
            checkpointer.save(path, tree)
            fsync(path)

        contenders["orbax"] = orbax
    except ImportError:
        pass
    return contenders


def readers(state: Arrays, to_device: bool) -> dict[str, Action]:
    def ready(arrays: Any) -> Any:
        return jax.block_until_ready(arrays)

    def jaxsaw(path: Path) -> Any:
        with npz.Reader(path) as reader:
            if to_device:
                return ready({key: jax.device_put(array) for key, array in reader.arrays()})
            return dict(reader.arrays())

    def load(path: Path) -> Any:
        with np.load(path, allow_pickle=False) as file:
            if to_device:
                return ready({name: jax.device_put(file[name]) for name in file.files})
            return {name: file[name] for name in file.files}

    contenders: dict[str, Action] = {"jaxsaw": jaxsaw, "jaxsaw again": jaxsaw, "numpy.savez": load}
    try:
        from safetensors.numpy import load_file

        def safetensors(path: Path) -> Any:
            arrays = load_file(path)
            return ready(jax.device_put(arrays)) if to_device else arrays

        contenders["safetensors"] = safetensors
    except ImportError:
        pass
    if to_device:
        try:
            import orbax.checkpoint as ocp

            checkpointer = ocp.PyTreeCheckpointer()
            contenders["orbax"] = lambda path: ready(checkpointer.restore(path))
        except ImportError:
            pass
    return contenders


class Model(js.Stateful):
    def __init__(self, state: Arrays) -> None:
        self.layers = {
            name: js.Variable.own(jax.device_put(array).copy()) for name, array in state.items()
        }

    def ready(self) -> Any:
        return jax.block_until_ready([box._peek() for box in self.layers.values()])


def save_and_restore(state: Arrays) -> tuple[dict[str, Action], dict[str, Action]]:
    """Return the contenders with a module in the place of a list of arrays."""
    model = Model(state)
    model.ready()

    def save(path: Path) -> None:
        checkpoint.save(path, model=model)

    def restore(path: Path) -> Any:
        checkpoint.restore(path, model=model)
        return model.ready()

    ours = ("jaxsaw", "jaxsaw again")
    saving = writers(state) | dict.fromkeys(ours, save)
    return saving, readers(state, to_device=True) | dict.fromkeys(ours, restore)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def measure(
    title: str, contenders: dict[str, Action], paths: dict[str, Path], rounds: int, fresh: bool
) -> None:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):  # the first one warms up
        order = list(contenders)
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            if fresh:
                remove(paths[name])
            gc.collect()
            start = time.perf_counter()
            result = contenders[name](paths[name])
            elapsed = time.perf_counter() - start
            del result
            if turn:
                times[name].append(elapsed)
    print(f"{title} ({rounds} rounds)")
    for name, values in times.items():
        ratios = sorted(a / b for a, b in zip(times["jaxsaw"], values, strict=True))
        print(
            f"  {name:12s} {statistics.median(values) * 1e3:7.0f} ms "
            f"[{min(values) * 1e3:.0f} to {max(values) * 1e3:.0f}]   jaxsaw / it: "
            f"{statistics.median(ratios):.2f} [{ratios[0]:.2f} to {ratios[-1]:.2f}]",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mb", type=int, nargs="+", help="default: 1024")
    parser.add_argument("--arrays", type=int, default=200)
    parser.add_argument("--rounds", type=int, help="default: 30")
    parser.add_argument("--quick", action="store_true", help="256 MB, 5 rounds")
    parser.add_argument("--all", action="store_true", help="the file layer alone, too")
    parser.add_argument("--folder", help="where to write (default: the temporary folder)")
    options = parser.parse_args()
    options.mb = options.mb or [256 if options.quick else 1024]
    options.rounds = options.rounds or (5 if options.quick else 30)
    logging.getLogger("absl").setLevel(logging.ERROR)
    for megabytes in options.mb:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            state = make_state(megabytes, options.arrays)
            label = f"{megabytes} MB in {options.arrays} arrays"
            names = ("jaxsaw", "jaxsaw again", "numpy.savez", "safetensors", "orbax")
            paths = {name: Path(folder) / name.replace(" ", "-") for name in names}
            rows = []
            if options.all:
                rows = [
                    (f"write {label}", writers(state), True),
                    (f"read {label} to NumPy", readers(state, to_device=False), False),
                    (f"read {label} to JAX", readers(state, to_device=True), False),
                ]
            saving, restoring = save_and_restore(state)
            rows += [
                (f"checkpoint.save, {label}", saving, True),
                (f"checkpoint.restore, {label}, warm, until ready", restoring, False),
            ]
            for title, contenders, fresh in rows:
                measure(title, contenders, paths, options.rounds, fresh)


if __name__ == "__main__":
    main()
