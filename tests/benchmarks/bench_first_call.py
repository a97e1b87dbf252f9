"""The first call of a training step: tracing and compiling, against raw ``jax.jit``.

JAX's caches are cleared before each call. The CPU time counts all threads of the compiler; the
wall time is what a user waits. Raw Adam is a plain formula, traced anew for each parameter.

    python tests/benchmarks/bench_first_call.py [--rounds 30] [--quick]
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

import jax
from harness import AGAIN, OURS, RAW, Table, Times, interleave, options, shown
from workloads import Step, cnn, gpt, small_adam


def first_call(make: Callable[[], Step], cpu: list[float]) -> Callable[[], float]:
    """Return a function that measures the wall time, and notes the CPU time."""

    def measure() -> float:
        step = make()
        jax.clear_caches()
        gc.collect()
        start, start_cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(step.call())
        wall = time.perf_counter() - start
        cpu.append(time.process_time() - start_cpu)
        return wall

    return measure


def main() -> None:
    given = options(__doc__, quick=1)
    table = Table("First calls", given.rounds)
    for name, workload in (
        ("Adam on 100 parameters", small_adam(10 if given.quick else 100)),
        ("AdamW on a CNN", cnn(8 if given.quick else 64)),
        ("AdamW on a GPT", gpt(1 if given.quick else 8)),
    ):
        cpu: Times = {OURS: [], RAW: [], AGAIN: []}
        makers = {OURS: workload.ours, RAW: workload.raw, AGAIN: workload.raw}
        contenders = {key: first_call(makers[key], cpu[key]) for key in makers}
        for measure in contenders.values():
            measure()  # whatever happens only once in a process
        for values in cpu.values():
            values.clear()
        wall = interleave(contenders, given.rounds)
        for kind, times in (("wall time", wall), ("CPU time", cpu)):
            takes = shown(statistics.median(times[RAW]))
            table.at_most(f"first call, {name}, {kind}", f"jax.jit ({takes})", times, 1.15)


if __name__ == "__main__":
    main()
