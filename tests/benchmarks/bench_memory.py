"""The memory that a training step takes, against raw JAX that donates its state.

    python tests/benchmarks/bench_memory.py [--rounds 30] [--quick]

Three views: what XLA plans for the compiled step; the bytes of live arrays, and of those that the
first step didn't write in place; and (where Linux lets a process reset its own peak) how far
the resident memory rises above where it was while a step runs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from harness import AGAIN, OURS, RAW, Table, Times, interleave, options
from workloads import Hyper, Step, Workload, arrays_of, cnn, gpt, raw_linear, raw_step

import jaxsaw as js
from jaxsaw import nn, optim

MB = 1 << 20


def perceptron(width: int, depth: int = 3) -> Workload:
    """Return a step of Adam on wide linear layers: nearly all of its memory is state."""
    x = jnp.ones((8, width))

    def model_of() -> nn.Sequential:
        rngs = js.Rngs(params=0)
        return nn.Sequential(*(nn.Linear(width, width, rngs=rngs) for _ in range(depth)))

    def ours() -> Step:
        model = model_of()
        optimizer = optim.Adam(model.parameters(), lr=1e-3)

        @js.jit
        def step(model: nn.Module, optimizer: optim.Adam, x: jax.Array) -> jax.Array:
            loss, grads = js.value_and_grad(lambda m: jnp.square(m(x)).mean())(model)
            optimizer.step(grads)
            return loss

        state = (model, optimizer)
        return Step(lambda: step(*state, x), lambda: step.lower(*state, x), state)

    def raw() -> Step:
        def loss(params: Any, others: Any, x: Any) -> Any:
            for i in range(depth):
                x = raw_linear(params, str(i), x)
            return jnp.square(x).mean(), others

        return raw_step(loss, arrays_of(model_of()), (), (x,), Hyper.of(1e-3))

    return Workload(ours, raw)


def planned(step: Step) -> float:
    """Return the peak that XLA plans, in bytes."""
    plan = step.lower().compile().memory_analysis()
    return float(
        plan.argument_size_in_bytes
        + plan.output_size_in_bytes
        + plan.temp_size_in_bytes
        - plan.alias_size_in_bytes
    )


def live() -> dict[int, int]:
    """Return the sizes of all live arrays, by the address of their memory."""
    gc.collect()
    return {
        array.unsafe_buffer_pointer(): array.nbytes
        for array in jax.live_arrays()
        if not jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    }


class LiveBytes:
    """Bytes of the live arrays that a step accounts for.

    Attributes:
        first: After the first step, and those of them that it didn't write in place once more.
        many: After more steps.
    """

    def __init__(self, make: Callable[[], Step], steps: int) -> None:
        there = sum(live().values())
        step = make()
        built = live()
        jax.block_until_ready(step.call())
        first = live()
        for _ in range(steps):
            jax.block_until_ready(step.call())
        moved = sum(size for place, size in first.items() if place not in built)
        self.first = float(sum(first.values()) - there + moved)
        self.many = float(sum(live().values()) - there)


class Resident:
    """The resident memory of this process, from Linux."""

    def __init__(self) -> None:
        try:
            self.reset()
            self.available = self.read("VmHWM") > 0
        except OSError:
            self.available = False

    def reset(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")

    def read(self, field: str) -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) << 10
        return 0

    def rise(self, step: Step) -> float:
        """Return how far above what was there the memory rises in a step."""
        gc.collect()
        self.reset()
        before = self.read("VmRSS")
        jax.block_until_ready(step.call())
        return float(self.read("VmHWM") - before)


def views(table: Table, name: str, workload: Workload) -> None:
    """Add what is the same in each round: XLA's plan and the live arrays."""

    def add(what: str, unit: str, values: dict[str, float], bound: float | None) -> None:
        times: Times = {contender: [value] for contender, value in values.items()}
        table.at_most(f"{what}, {name}", f"jax.jit ({unit})", times, bound)

    makers = {OURS: workload.ours, RAW: workload.raw, AGAIN: workload.raw}
    plans = {contender: planned(make()) for contender, make in makers.items()}
    add("planned peak of a step", f"{plans[RAW] / MB:.1f} MB", plans, 1.02)
    found = {contender: LiveBytes(make, 20) for contender, make in makers.items()}
    first = {contender: bytes_.first for contender, bytes_ in found.items()}
    many = {contender: bytes_.many for contender, bytes_ in found.items()}
    add("live and copied, first step", f"{first[RAW] / MB:.1f} MB", first, 1.02)
    add("live after 21 steps", f"{many[RAW] / MB:.1f} MB", many, 1.02)


def rises(table: Table, width: int, rounds: int) -> None:
    """Measure the resident memory during first and later steps."""
    resident = Resident()
    if not resident.available:
        print("The resident peak can't be reset here.")
        return
    workload = perceptron(width)
    makers = {OURS: workload.ours, RAW: workload.raw, AGAIN: workload.raw}
    steps = {contender: make() for contender, make in makers.items()}
    for step in steps.values():
        jax.block_until_ready(step.call())
    state = 3 * 3 * (width * width + width) * 4

    def peak(step: Step) -> Callable[[], float]:
        return lambda: state + resident.rise(step)

    later = interleave({name: peak(step) for name, step in steps.items()}, rounds)
    against = f"jax.jit ({state / MB:.0f} MB of state)"
    table.at_most("state and resident rise, a later step", against, later, 1.02)
    steps.clear()

    def first_peak(make: Callable[[], Step]) -> Callable[[], float]:
        return lambda: peak(make())()

    first = interleave({name: first_peak(make) for name, make in makers.items()}, rounds)
    table.at_most("state and resident rise, the first step", against, first, 1.02)


def main() -> None:
    given = options(__doc__, quick=2)
    table = Table("Memory of a step", given.rounds)
    views(table, "CNN", cnn(8 if given.quick else 64))
    views(table, "GPT", gpt(1 if given.quick else 8))
    views(table, "perceptron", perceptron(256 if given.quick else 1024))
    rises(table, 512 if given.quick else 2048, given.rounds)


if __name__ == "__main__":
    main()
