"""A folder of checkpoints: written in the background, found by step, cleared away by rules."""

from __future__ import annotations

import atexit
import contextlib
import math
import operator
import os
import re
import signal
import string
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from jaxsaw.checkpoint.errors import CheckpointError
from jaxsaw.checkpoint.npz import read_manifest
from jaxsaw.checkpoint.state import Restored, Snapshot, restore
from jaxsaw.state.node import Node


class Manager:
    """Save the steps of a run as files of one folder, in the background.

    A call of :meth:`save` takes the state as it is at that instant and returns; the file is
    written while training goes on. One write is in flight at a time, and the next save waits for
    it. If it fails, the next call raises its error; in a ``with`` block the end of the block does.
    Otherwise it is printed when Python exits.

    After each save, files that no rule keeps are removed. Only files whose names match
    ``pattern`` are ever looked at, and those that are no readable checkpoint are left alone.

    Args:
        directory: The folder; it is made by the first save.
        pattern: The files' names, with one field ``{step}``, which may be padded with zeros.
        keep_last: How many of the highest steps to keep; None keeps every file.
        keep_every: Besides, keep the steps that this number divides.
        best: Besides, keep the best step: the name of a metric, and ``"min"`` or ``"max"``.

    Attributes:
        preempted: The signal that came inside of :meth:`on_preemption`, or None.

    Raises:
        ValueError: For a pattern or a rule that can't be.

    Example:
        >>> model = nn.Linear(2, 1, rngs=js.Rngs(0))
        >>> with checkpoint.Manager("runs", keep_last=2, best=("loss", "min")) as manager:
        ...     for epoch, loss in enumerate([0.3, 0.1, 0.4, 0.2, 0.5]):
        ...         manager.save(epoch, metrics={"loss": loss}, model=model)
        >>> manager.steps(), manager.best_step()
        ([1, 3, 4], 1)
        >>> manager.path(1).name
        'epoch.001.npz'
        >>> manager.restore_latest(model=model).step
        4
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        pattern: str = "epoch.{step:03d}.npz",
        *,
        keep_last: int | None = None,
        keep_every: int | None = None,
        best: tuple[str, str] | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.pattern = pattern
        self.keep_last = keep_last
        self.keep_every = keep_every
        self.best = best
        self.preempted: int | None = None
        self._name = _as_regex(pattern)
        self._check_rules()
        self._lock = threading.RLock()
        self._pending: _Write | None = None
        self._metrics: dict[Path, tuple[tuple[int, ...], dict[str, float] | None]] = {}

    def save(
        self,
        step: int,
        *,
        metrics: Mapping[str, Any] | None = None,
        model: Node | None = None,
        optimizer: Node | None = None,
        rngs: Node | None = None,
        progress: Any = None,
        metadata: Any = None,
        **others: Node,
    ) -> None:
        """Begin to write the state as it is now; an older file of this step is replaced.

        Args:
            step: The number of the step or epoch, from 0.
            metrics: Numbers by name, which are stored in the file.
            model: As in :func:`save`, as are all that follow.
            optimizer: The optimizer.
            rngs: Random streams.
            progress: Where the program is.
            metadata: What describes the run.
            **others: More objects.

        Raises:
            TypeError: If something of it can't be saved.
            ValueError: If ``metrics`` lacks the one that ``best`` names.
            RuntimeError: Inside a traced function.
            Exception: What went wrong with the write before, with a note that says so. This step
                isn't saved then.
        """
        number = _as_step(step)
        numbers = self._as_numbers(metrics)
        objects = {"model": model, "optimizer": optimizer, "rngs": rngs, **others}
        with self._lock:
            self.wait()
            entry = {"step": number, "metrics": numbers}
            snapshot = Snapshot(objects, progress, metadata, manager=entry)
            path = self.path(number)

            def work() -> None:
                snapshot.write(path)
                self._clear(number)

            try:
                self._pending = _Write(work, f"saving {path}")
            except BaseException:
                snapshot.drop()
                raise

    def wait(self) -> None:
        """Wait until the pending write is done.

        Raises:
            Exception: What went wrong with it.
        """
        with self._lock:
            write = self._pending
            if write is not None:
                write.join()
                self._pending = None
                write.check()

    def steps(self) -> list[int]:
        """Return the steps that there are files of, ascending, after the pending write is done."""
        self.wait()
        return self._steps()

    def latest(self) -> int | None:
        """Return the highest step that there is a file of, or None."""
        return max(self.steps(), default=None)

    def best_step(self) -> int | None:
        """Return the step with the best metric (the first of equals), or None if no file has it.

        Raises:
            ValueError: If this manager has no rule ``best``.
        """
        if self.best is None:
            raise ValueError('Manager: pass best=("name of a metric", "min" or "max").')
        with self._lock:
            self.wait()
            return self._best(self._readable(self._steps()))

    def metrics(self, step: int) -> dict[str, float]:
        """Return the metrics that a step was saved with.

        Args:
            step: The step.

        Raises:
            CheckpointError: If its file is damaged.
            FileNotFoundError: If there is none.
        """
        self.wait()
        return _stored_metrics(self.path(step))

    def path(self, step: int) -> Path:
        """Return the path of a step's file, whether or not there is one yet.

        Args:
            step: The step.
        """
        return self.directory / self.pattern.format(step=_as_step(step))

    def restore(self, step: int, *, strict: bool = True, **objects: Node | None) -> Restored:
        """Restore the state of one step.

        Args:
            step: The step.
            strict: As in :func:`restore`.
            **objects: The objects to restore, each under the name that it was saved by.

        Returns:
            What :func:`restore` returns, with ``step``.

        Raises:
            CheckpointError: If the file is damaged or doesn't fit. Nothing has changed then.
            FileNotFoundError: If there is no file of this step.
        """
        self.wait()
        found = restore(self.path(step), strict=strict, **objects)  # type: ignore[arg-type]
        return replace(found, step=_as_step(step))

    def restore_latest(self, *, strict: bool = True, **objects: Node | None) -> Restored:
        """Restore the newest intact file; a warning names each damaged one that is newer.

        Args:
            strict: As in :func:`restore`.
            **objects: The objects to restore, each under the name that it was saved by.

        Returns:
            What :func:`restore` returns, with ``step``.

        Raises:
            CheckpointError: If every file is damaged, or the newest intact one doesn't fit.
            FileNotFoundError: If there is no file at all.
        """
        damaged = []
        for step in reversed(self.steps()):
            try:
                return self.restore(step, strict=strict, **objects)
            except FileNotFoundError:
                continue  # another manager has cleared it away
            except CheckpointError as error:
                if error.missing or error.unexpected or error.mismatched:
                    raise
                damaged.append(str(error))
                warnings.warn(f"Step {step} is skipped: {error}", stacklevel=2)
        if damaged:
            raise CheckpointError(f"{self.directory}: no file is intact. {' '.join(damaged)}")
        raise FileNotFoundError(
            f"{self.directory} has no file like {self.pattern!r}; see whether latest() is None."
        )

    @contextlib.contextmanager
    def on_preemption(self, signum: int = signal.SIGTERM) -> Iterator[Manager]:
        """Let a signal wait, inside a ``with`` block, for :meth:`exit_if_preempted`.

        The state is saved where the program says so, between two steps, so that ``progress``
        belongs to it. A signal that nothing has answered at the end of the block has its usual
        effect there.

        Args:
            signum: The signal that announces the end, which schedulers of jobs send.

        Raises:
            ValueError: Outside of the main thread.

        Example:
            >>> count, manager = js.Variable(0), checkpoint.Manager("preempted")
            >>> with manager, manager.on_preemption():
            ...     for step in range(1000):
            ...         count += 1
            ...         if step == 3:
            ...             signal.raise_signal(signal.SIGTERM)
            ...         manager.exit_if_preempted(step, count=count)
            Traceback (most recent call last):
            ...
            SystemExit: 143
            >>> manager.restore_latest(count=count).step
            3
        """

        def note(number: int, _: object) -> None:
            self.preempted = number

        self.preempted = None
        before = signal.signal(signum, note)
        try:
            yield self
        finally:
            signal.signal(signum, signal.SIG_DFL if before is None else before)
        if self.preempted is not None:
            self.wait()
            signal.raise_signal(signum)

    def exit_if_preempted(self, step: int, **state: Any) -> None:
        """Save, wait and leave the program, if the signal of :meth:`on_preemption` has come.

        Args:
            step: The step to save.
            **state: As in :meth:`save`.

        Raises:
            SystemExit: With 128 plus the signal's number, as a shell has it.
        """
        signum = self.preempted
        if signum is not None:
            self.save(step, **state)
            self.wait()
            self.preempted = None
            raise SystemExit(128 + signum)

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        try:
            self.wait()
        except Exception as other:
            if error is None:
                raise
            error.add_note(f"Besides, a write in the background failed: {other!r}")

    def _check_rules(self) -> None:
        for name in ("keep_last", "keep_every"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"Manager: {name} must be a positive int or None, got {value!r}.")
        if self.keep_last is None and self.keep_every is not None:
            raise ValueError("Manager: keep_every needs keep_last; without it every file is kept.")
        if self.best is not None:
            match self.best:
                case [str(), "min" | "max"]:
                    pass
                case _:
                    raise ValueError(
                        'Manager: best must be ("name of a metric", "min" or "max"), got '
                        f"{self.best!r}."
                    )

    def _as_numbers(self, metrics: Mapping[str, Any] | None) -> dict[str, float]:
        numbers = {}
        for name, value in (metrics or {}).items():
            try:
                numbers[str(name)] = float(value)
            except (TypeError, ValueError) as error:
                raise TypeError(f"Manager.save: metric {name!r} is no number: {error}.") from None
        if metrics is not None and self.best is not None and self.best[0] not in numbers:
            raise ValueError(
                f"Manager.save: metrics lack {self.best[0]!r}, which best= names (they have: "
                f"{', '.join(numbers) or 'none'})."
            )
        return numbers

    def _steps(self) -> list[int]:
        try:
            with os.scandir(self.directory) as entries:
                names = [entry.name for entry in entries if entry.is_file()]
        except FileNotFoundError:
            return []
        matches = [match for name in names if (match := self._name.fullmatch(name))]
        # A number that is padded otherwise belongs to another pattern.
        return sorted(
            step for match in matches if self.path(step := int(match["step"])).name == match[0]
        )

    def _readable(self, steps: list[int]) -> dict[int, dict[str, float]]:
        # The metrics of each step whose file can be read, which is looked at once.
        found = {}
        for step in steps:
            path = self.path(step)
            with contextlib.suppress(FileNotFoundError):  # another manager has cleared it away
                status = os.stat(path)
                stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
                if self._metrics.get(path, (None,))[0] != stamp:
                    try:
                        self._metrics[path] = (stamp, _stored_metrics(path))
                    except CheckpointError:
                        self._metrics[path] = (stamp, None)
                metrics = self._metrics[path][1]
                if metrics is not None:
                    found[step] = metrics
        return found

    def _best(self, metrics: dict[int, dict[str, float]]) -> int | None:
        name, mode = self.best or ("", "min")
        sign = 1 if mode == "min" else -1
        scores = {step: sign * found.get(name, math.nan) for step, found in metrics.items()}
        valid = [step for step, score in scores.items() if not math.isnan(score)]
        return min(valid, key=lambda step: (scores[step], step), default=None)

    def _clear(self, saved: int) -> None:
        if self.keep_last is None:
            return
        metrics = self._readable(self._steps())
        keep = {saved, *sorted(metrics)[-self.keep_last :]}
        if self.keep_every is not None:
            keep.update(step for step in metrics if step % self.keep_every == 0)
        if self.best is not None:
            keep.add(self._best(metrics))  # type: ignore[arg-type]
        for step in metrics.keys() - keep:
            self._metrics.pop(self.path(step), None)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(step))


class _Write:
    # A plain thread, which Python waits for when it exits.

    running: ClassVar[set[_Write]] = set()

    def __init__(self, work: Callable[[], None], what: str) -> None:
        self._what = what
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), name="jaxsaw-save")
        self._thread.start()
        self.running.add(self)

    def join(self) -> None:
        self._thread.join()
        self.running.discard(self)

    def check(self) -> None:
        """Raise what the work has raised."""
        error, self._error = self._error, None
        if error is not None:
            error.add_note(f"This happened earlier, in the background, while {self._what}.")
            raise error

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = error


@atexit.register
def _print_errors() -> None:
    for write in [*_Write.running]:
        try:
            write.join()
            write.check()
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)


def _as_step(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        raise TypeError(f"Manager: a step is an int, got {type(step).__name__}.") from None
    if number < 0:
        raise ValueError(f"Manager: steps count from 0, got {number}.")
    return number


def _as_regex(pattern: str) -> re.Pattern[str]:
    expected = (
        'Manager: pattern must be a file name with one field {step}, such as "{step}.npz" or '
        f'"epoch.{{step:03d}}.npz", got {pattern!r}.'
    )
    try:
        parts = [*string.Formatter().parse(pattern)]
    except ValueError:
        raise ValueError(expected) from None
    regex, fields = "", 0
    for text, name, spec, conversion in parts:
        regex += re.escape(text)
        if name is not None:
            if name != "step" or conversion or not re.fullmatch(r"(0[1-9]\d?)?d?", spec or ""):
                raise ValueError(expected)
            regex += r"(?P<step>[0-9]{1,18})" if not fields else ""
            fields += 1
    if fields != 1 or os.path.basename(pattern) != pattern:
        raise ValueError(expected)
    return re.compile(regex, re.S)


def _stored_metrics(path: Path) -> dict[str, float]:
    entry = read_manifest(path).get("manager")
    metrics = entry.get("metrics") if isinstance(entry, dict) else None
    if not isinstance(metrics, dict):
        return {}  # a file that no manager has written
    return {name: float(value) for name, value in metrics.items() if type(value) is float}
