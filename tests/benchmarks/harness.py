"""What the benchmarks share: fair rounds, ratios within a round, and one table.

Contenders take turns in random order, round after round, so that whatever slows the machine
slows all of them. A figure is the median over rounds of a ratio of two times of one round. Raw
JAX runs twice, as two instances with a state and a compiled function of their own: their ratio is
what equal programs give on this machine, and bounds are multiples of it.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import jax

OURS, RAW, AGAIN = "jaxsaw", "raw", "raw again"

Times = dict[str, list[float]]


def options(doc: str | None, rounds: int = 30, quick: int = 3) -> argparse.Namespace:
    """Return the command line's ``rounds`` and ``quick``.

    Args:
        doc: The script's docstring; its first line is shown by ``--help``.
        rounds: How many rounds there are by default.
        quick: How many with ``--quick``.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, help=f"how many (default: {rounds})")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")
    given = parser.parse_args()
    given.rounds = given.rounds or (quick if given.quick else rounds)
    return given


def interleave(contenders: Mapping[str, Callable[[], float]], rounds: int) -> Times:
    """Return what each contender measured in each round.

    Args:
        contenders: By name, functions that measure once, and return seconds (or bytes).
        rounds: How often. The order is another one each time.
    """
    settle()
    shuffle = random.Random(0).shuffle
    times: Times = {name: [] for name in contenders}
    order = list(contenders)
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            times[name].append(contenders[name]())
    return times


def settle() -> None:
    """Put what there is out of the garbage collector's reach: JAX's own objects are many."""
    gc.collect()
    gc.freeze()


def seconds_per_call(call: Callable[[], Any], count: int) -> float:
    """Return how long a call takes, on average of ``count`` calls in a row."""
    start = time.perf_counter()
    for _ in repeat(None, count):
        out = call()
    jax.block_until_ready(out)
    return (time.perf_counter() - start) / count


def calls_within(call: Callable[[], Any], seconds: float) -> int:
    """Return how many calls fill a time, at least one; the call is warm afterwards."""
    for _ in range(3):
        jax.block_until_ready(call())
    return max(1, int(seconds / seconds_per_call(call, 3)))


def measures(calls: Mapping[str, Callable[[], Any]], count: int) -> dict[str, Callable[[], float]]:
    """Return a function for each call that measures it ``count`` times in a row."""
    return {name: _measure(call, count) for name, call in calls.items()}


def _measure(call: Callable[[], Any], count: int) -> Callable[[], float]:
    return lambda: seconds_per_call(call, count)


class Spread(NamedTuple):
    """A median, and the tenth and the ninetieth percentile."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        tenths = statistics.quantiles(values, n=10, method="inclusive")
        return cls(statistics.median(values), tenths[0], tenths[-1])


def ratios(times: Times, a: str, b: str) -> Spread:
    """Return ``a / b``, taken in each round."""
    return Spread.of([x / y for x, y in zip(times[a], times[b], strict=True)])


def differences(times: Times, a: str, b: str, unit: float) -> Spread:
    """Return ``a - b``, taken in each round, in a unit."""
    return Spread.of([(x - y) / unit for x, y in zip(times[a], times[b], strict=True)])


class Table:
    """Prints rows of Markdown as they come.

    Args:
        title: What the rows are about.
        rounds: Of how many rounds they are the median.
    """

    _columns = ("what", "against", "figure", "10% to 90%", "raw / raw", "bound", "met")
    _widths = (52, 38, 9, 18, 9, 8, 3)

    def __init__(self, title: str, rounds: int) -> None:
        device = jax.devices()[0]
        print(
            f"## {title}\n\nJAX {jax.__version__}, Python {platform.python_version()}, "
            f"{device.platform} ({device.device_kind}), {os.cpu_count()} cores, {rounds} rounds.\n"
        )
        self._print(self._columns)
        self._print(["-" * width for width in self._widths])

    def at_most(
        self,
        what: str,
        against: str,
        times: Times,
        bound: float | None = None,
        *,
        ours: str = OURS,
        raw: str = RAW,
        again: str = AGAIN,
    ) -> None:
        """Add the ratio of ours to raw, which must be at most ``bound`` times raw against itself.

        Args:
            what: What was measured.
            against: What raw is.
            times: What :func:`interleave` returned.
            bound: The bound, if there is one.
            ours: The name of ours.
            raw: The name of raw.
            again: The name of raw's second instance.
        """
        figure, itself = ratios(times, ours, raw), ratios(times, again, raw).median
        met = None if bound is None else figure.median <= bound * itself
        limit = "" if bound is None else f"<= {bound:.2f}"
        self._add(what, against, figure, ".3f", itself, limit, met)

    def at_least(self, what: str, against: str, times: Times, bound: float, theirs: str) -> None:
        """Add how many times as long another framework takes, which must be at least ``bound``."""
        figure = ratios(times, theirs, OURS)
        itself = ratios(times, AGAIN, RAW).median
        self._add(what, against, figure, ".2f", itself, f">= {bound:g}", figure.median >= bound)

    def more(
        self,
        what: str,
        against: str,
        times: Times,
        bound: float | None,
        unit: float,
        *,
        ours: str = OURS,
        raw: str = RAW,
        again: str = AGAIN,
    ) -> None:
        """Add how much longer ours takes than raw, in a unit: at most ``bound`` plus the noise."""
        figure = differences(times, ours, raw, unit)
        itself = differences(times, again, raw, unit).median
        met = None if bound is None else figure.median <= bound + max(0.0, itself)
        self._add(what, against, figure, ".3f", itself, "" if met is None else f"<= {bound:g}", met)

    def _add(
        self,
        what: str,
        against: str,
        figure: Spread,
        form: str,
        itself: float,
        bound: str,
        met: bool | None,
    ) -> None:
        span = f"{figure.low:{form}} to {figure.high:{form}}"
        verdict = "" if met is None else "yes" if met else "NO"
        self._print(
            (what, against, f"{figure.median:{form}}", span, f"{itself:.3f}", bound, verdict)
        )

    def _print(self, cells: Sequence[str]) -> None:
        padded = (cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True))
        print("| " + " | ".join(padded) + " |", flush=True)


def shown(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
