"""Whole training steps of a CNN and of a small GPT, against the same steps in raw JAX.

python tests/benchmarks/bench_step.py [--rounds 30] [--quick]
"""

from __future__ import annotations

import statistics

from harness import AGAIN, OURS, RAW, Table, calls_within, interleave, measures, options, shown
from workloads import check_equal, cnn, gpt


def main() -> None:
    given = options(__doc__, rounds=40)
    table = Table("Training steps", given.rounds)
    seconds = 0.05 if given.quick else 0.5
    images, texts = (8, 1) if given.quick else (64, 8)
    for name, workload in (
        (f"CNN, {images} images of 32 x 32, AdamW", cnn(images)),
        (f"GPT, 3 layers of 128, {texts} x 128 tokens", gpt(texts)),
    ):
        steps = {OURS: workload.ours(), RAW: workload.raw(), AGAIN: workload.raw()}
        check_equal(steps[OURS], steps[RAW])
        calls = {contender: step.call for contender, step in steps.items()}
        count = [calls_within(call, seconds) for call in calls.values()][-1]
        times = interleave(measures(calls, count), given.rounds)
        takes = shown(statistics.median(times[RAW]))
        table.at_most(f"step of a {name}", f"raw JAX ({takes})", times, 1.02)


if __name__ == "__main__":
    main()
