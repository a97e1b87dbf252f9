"""``import jaxsaw`` less ``import jax``, each in a fresh process.

python tests/benchmarks/bench_import.py [--rounds 30] [--quick]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable

from harness import AGAIN, OURS, RAW, Table, interleave, options, shown

ALL = "jaxsaw, jaxsaw.nn, jaxsaw.optim, jaxsaw.data"
SCRIPT = "import time; a = time.perf_counter(); import {}; print(time.perf_counter() - a)"


def fresh(modules: str) -> Callable[[], float]:
    """Return a function that measures an import in another process."""
    command = [sys.executable, "-c", SCRIPT.format(modules)]

    def measure() -> float:
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    return measure


def main() -> None:
    given = options(__doc__)
    table = Table("Importing (seconds more)", given.rounds)
    contenders = {OURS: fresh("jaxsaw"), ALL: fresh(ALL), RAW: fresh("jax"), AGAIN: fresh("jax")}
    for measure in contenders.values():
        measure()  # into the page cache, and .pyc files
    times = interleave(contenders, given.rounds)
    takes = shown(statistics.median(times[RAW]))
    table.more("import jaxsaw", f"import jax ({takes})", times, 0.15, 1.0)
    table.more("import with nn, optim, data", f"import jax ({takes})", times, None, 1.0, ours=ALL)


if __name__ == "__main__":
    main()
