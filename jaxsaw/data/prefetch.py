"""Running an iterator ahead of its consumer, in a thread."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Any

_ITEM, _END, _ERROR = range(3)


class Prefetcher:
    """An iterator over ``source`` that a thread keeps a number of items ahead.

    What the source raises is raised at its place. The thread ends when the source does, on
    :meth:`close`, with the last reference to this object, and before the interpreter.

    Args:
        source: What makes the items. It is closed in the thread.
        ahead: The largest number of items that wait.
        interrupt: Called when closing, to wake the source where it waits for something.
        timeout: Seconds to wait for an item; 0 means forever.
    """

    def __init__(
        self,
        source: Generator[Any, None, None],
        ahead: int,
        interrupt: Callable[[], None] | None = None,
        timeout: float = 0,
    ) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._permits = threading.Semaphore(ahead)
        self._timeout = timeout or None
        stop = threading.Event()
        thread = threading.Thread(
            target=_pump,
            args=(source, self._queue, self._permits, stop),
            name="jaxsaw-prefetch",
            daemon=True,
        )
        thread.start()
        # A finalizer rather than __del__: it also runs, once, before the interpreter ends.
        self._close = weakref.finalize(self, _end, thread, self._permits, stop, interrupt)

    def __iter__(self) -> Prefetcher:
        return self

    def __next__(self) -> Any:
        if not self._close.alive:
            raise StopIteration
        try:
            kind, value = self._queue.get(timeout=self._timeout)
        except queue.Empty:
            self.close()
            raise RuntimeError(
                f"DataLoader: no batch came within {self._timeout} seconds. Pass a longer "
                "timeout=, or 0 to wait forever."
            ) from None
        self._permits.release()
        if kind == _ITEM:
            return value
        self.close()
        if kind == _ERROR:
            raise value
        raise StopIteration

    def close(self) -> None:
        """End the thread, and wait until it has ended."""
        self._close()


def _pump(source: Any, out: Any, permits: threading.Semaphore, stop: threading.Event) -> None:
    try:
        while True:
            permits.acquire()
            if stop.is_set():
                return
            try:
                item = _ITEM, next(source)
            except StopIteration:
                item = _END, None
            except BaseException as error:
                item = _ERROR, error
            out.put(item)
            if item[0] != _ITEM:
                return
            del item  # not to hold a batch while waiting
    finally:
        source.close()


def _end(thread: Any, permits: Any, stop: Any, interrupt: Any) -> None:
    stop.set()
    permits.release()
    if interrupt is not None:
        interrupt()
    if thread is not threading.current_thread():
        thread.join()
