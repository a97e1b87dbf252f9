"""Worker processes: they make batches, in any order, of what the loader asks for.

Processes are never forked from one that runs JAX, whose threads wouldn't survive it. They don't
start a JAX backend either, unless the dataset's own code does, and then only that of the CPU.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import time
import traceback
import weakref
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

import jax

from jaxsaw.data.fetch import Fetcher, named
from jaxsaw.data.seeding import Words

_GRACE = 5.0  # seconds that a worker gets to finish its item when it isn't needed any more


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker process knows of itself.

    Attributes:
        id: The number of the worker, from 0.
        num_workers: How many there are.
        dataset: The worker's copy of the dataset.
    """

    id: int
    num_workers: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Return what the worker process that this runs in knows of itself, or None in any other.

    Example:
        >>> get_worker_info() is None
        True
    """
    return _info


@dataclass(frozen=True)
class Epoch:
    """What workers need to know about an epoch.

    Attributes:
        words: The bits of its key.
        skip: For iterable datasets: how many batches to leave out.
        size: The same: the number of items of a batch.
        drop_last: The same: whether to leave out a last batch that is smaller.
    """

    words: Words
    skip: int = 0
    size: int | None = None
    drop_last: bool = False


# The parent's side.


class WorkerPool:
    """Processes that have a copy of the dataset.

    Args:
        fetcher: How a batch is made.
        count: The number of processes.
        context: A multiprocessing context or the name of a start method; None for the best.
        init: Called in each process with its number, before its first item.

    Raises:
        TypeError: If the dataset can't be sent to another process.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        count: int,
        context: Any = None,
        init: Callable[[int], Any] | None = None,
    ) -> None:
        payload = _pickled(fetcher, init)
        context = start_method(context)
        self._run = 0
        self._connections: list[Any] = []
        self._processes: list[Any] = []
        self._wakeup, self._wake = context.Pipe(duplex=False)
        # A finalizer rather than __del__: it also runs, once, before the interpreter ends.
        self._close = weakref.finalize(
            self, _stop, self._processes, self._connections, [self._wakeup, self._wake]
        )
        for number in range(count):
            here, there = context.Pipe()
            self._connections.append(here)
            process = context.Process(
                target=_main,
                args=(there, number, count, bool(jax.config.jax_enable_x64)),  # type: ignore[attr-defined]
                name=f"jaxsaw-worker-{number}",
                daemon=True,
            )
            process.start()
            self._processes.append(process)
            there.close()
        self._idle = set(range(count))
        try:
            for here in self._connections:
                here.send_bytes(payload)
        except OSError:
            dead = self._connections.index(here)
            self._processes[dead].join(_GRACE)
            message = self._death(dead)
            self.close()
            raise RuntimeError(message) from None

    def run(self, epoch: Epoch, tasks: Iterator[Any], ahead: int) -> Generator[Any, None, None]:
        """Yield the batches of an epoch in their order.

        Args:
            epoch: What is the same for all of them.
            tasks: The indices of each batch; for iterable datasets, None again and again.
            ahead: How many batches each worker may have made before they are asked for.
        """
        self._run += 1
        while self._wakeup.poll():
            self._wakeup.recv_bytes()  # meant for the run before
        window = ahead * len(self._processes)
        done: dict[int, tuple[str, Any]] = {}
        asked = given = 0
        more = True
        while True:
            while more and self._idle and asked - given < window:
                try:
                    task = next(tasks)
                except StopIteration:
                    more = False
                    break
                self._send(self._idle.pop(), (self._run, asked, epoch, task))
                asked += 1
            if given in done:
                kind, value = done.pop(given)
                if kind == "error":
                    raise value
                if kind == "end":
                    return
                given += 1
                yield value
            elif (not more and given == asked) or not self._receive(done):
                return

    def _send(self, number: int, message: Any) -> None:
        try:
            self._connections[number].send(message)
        except OSError:
            raise RuntimeError(self._death(number)) from None

    def _receive(self, done: dict[int, tuple[str, Any]]) -> bool:
        """Wait for results; return False if it was interrupted."""
        busy: dict[Any, int] = {
            conn: number
            for number, conn in enumerate(self._connections)
            if number not in self._idle
        }
        ready = connection.wait([self._wakeup, *busy])
        if self._wakeup in ready:
            self._wakeup.recv_bytes()
            return False
        for conn in busy.keys() & set(ready):
            number = busy[conn]
            try:
                run, task, kind, value = pickle.loads(conn.recv_bytes())
            except (EOFError, OSError):
                raise RuntimeError(self._death(number)) from None
            if kind == "failed":
                raise value
            self._idle.add(number)
            if run == self._run:  # not what an epoch that was left early had asked for
                done[task] = kind, value
        return True

    def interrupt(self) -> None:
        """Let :meth:`run`, which may wait in another thread, return at once."""
        self._wake.send_bytes(b"!")

    def close(self) -> None:
        """End the processes, and wait until they have ended."""
        self._close()

    @property
    def alive(self) -> bool:
        """Whether :meth:`close` wasn't called yet and all processes run."""
        return self._close.alive and all(process.is_alive() for process in self._processes)

    def _death(self, number: int) -> str:
        process = self._processes[number]
        process.join(_GRACE)
        return (
            f"DataLoader: worker process {number} (pid {process.pid}) ended with exit code "
            f"{process.exitcode} before it had delivered its batch. If it was killed, memory may "
            "be short: use fewer workers. If this is a script, see that whatever starts an "
            "iteration is below 'if __name__ == \"__main__\":'."
        )


def start_method(context: Any) -> Any:
    """Return a multiprocessing context that doesn't fork this process.

    Args:
        context: A context, the name of a start method, or None.

    Raises:
        ValueError: For ``"fork"``.
    """
    if context is None:
        methods = multiprocessing.get_all_start_methods()
        context = "forkserver" if "forkserver" in methods else "spawn"
    if isinstance(context, str):
        context = multiprocessing.get_context(context)
    if context.get_start_method() == "fork":
        raise ValueError(
            "DataLoader: multiprocessing_context 'fork' doesn't work in a process that runs JAX, "
            "which has threads. Use 'forkserver' or 'spawn'."
        )
    if context.get_start_method() == "forkserver":
        # The server imports this once, and each worker then starts in milliseconds.
        context.set_forkserver_preload([__name__])
    return context


def _pickled(fetcher: Fetcher, init: Any) -> bytes:
    try:
        return pickle.dumps((fetcher, init), protocol=5)
    except Exception as error:
        raise TypeError(
            f"DataLoader: the dataset ({type(fetcher.dataset).__name__}), collate_fn or "
            f"worker_init_fn can't be sent to a worker process ({type(error).__name__}: {error}). "
            "Use classes and functions that are defined at the top of a module, or num_workers=0."
        ) from error


def _stop(processes: list[Any], connections: list[Any], others: list[Any]) -> None:
    for conn in (*connections, *others):
        conn.close()  # a worker that waits for a task, or wants to send a result, ends by this
    deadline = time.monotonic() + _GRACE
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.terminate()
            process.join(1.0)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()


# The worker's side.


def _main(conn: Any, number: int, count: int, x64: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    # This starts no backend; it says which one to start should the dataset use JAX.
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", x64)
    try:
        payload = conn.recv_bytes()
        try:
            fetcher = _set_up(payload, number, count)
        except Exception as error:
            conn.send_bytes(_message(0, 0, "failed", _set_up_error(error, number)))
            return
        _serve(conn, fetcher, number)
    except (EOFError, OSError):
        return  # the parent has closed its end, or is gone
    finally:
        conn.close()


def _set_up(payload: bytes, number: int, count: int) -> Fetcher:
    global _info
    fetcher, init = pickle.loads(payload)
    _info = WorkerInfo(number, count, fetcher.dataset)
    if init is not None:
        init(number)
    return fetcher


def _set_up_error(error: Exception, number: int) -> Exception:
    text = f"DataLoader: worker process {number} couldn't start: {type(error).__name__}: {error}"
    if isinstance(error, AttributeError) and "__main__" in str(error):
        text += (
            " (what is defined in a notebook or in an interactive session exists there only: "
            "move it to a module, or use num_workers=0)"
        )
    wrapped = RuntimeError(text)
    wrapped.add_note(traceback.format_exc())
    return wrapped


def _serve(conn: Any, fetcher: Fetcher, number: int) -> None:
    stream: Any = None
    streaming = -1
    while True:
        run, task, epoch, indices = conn.recv()
        try:
            if indices is not None:
                kind, value = "batch", fetcher.fetch(indices, epoch.words)
            else:
                if streaming != run:
                    streaming = run
                    stream = fetcher.stream(epoch.words, epoch.skip, epoch.size, epoch.drop_last)
                value = next(stream, _end)
                kind = "end" if value is _end else "batch"
        except Exception as error:
            error.add_note(f"In worker process {number}:\n{traceback.format_exc()}")
            kind, value = "error", error
        conn.send_bytes(_message(run, task, kind, None if value is _end else value))


_end = object()


def _message(run: int, task: int, kind: str, value: Any) -> bytes:
    try:
        message = pickle.dumps((run, task, kind, value), protocol=5)
        if kind != "batch":
            pickle.loads(message)  # not every exception comes back
        return message
    except Exception as error:
        if kind == "batch":
            failure: Exception = named(error, "sending a batch to the main process")
            if type(failure) is not RuntimeError:
                failure = RuntimeError(str(failure))
            return pickle.dumps((run, task, "error", failure), protocol=5)
        failure = RuntimeError(str(value))
        for note in getattr(value, "__notes__", ()):
            failure.add_note(note)
        return pickle.dumps((run, task, kind, failure), protocol=5)
