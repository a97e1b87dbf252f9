"""The thread that runs ahead."""

import gc
import threading
import time

import numpy as np
import pytest

from jaxsaw.data import DataLoader, Dataset
from jaxsaw.data.prefetch import Prefetcher


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "jaxsaw-prefetch"]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    gc.collect()
    assert threads() == []


def counting(n, made, closed=None):
    try:
        for i in range(n):
            made.append(i)
            yield i
    finally:
        if closed is not None:
            closed.append(True)


def settled(made):
    """Wait until nothing more is made."""
    count = -1
    while count != len(made):
        count = len(made)
        time.sleep(0.05)
    return count


@pytest.mark.parametrize("ahead", [1, 3, 50])
def test_items_come_in_order(ahead):
    assert list(Prefetcher(counting(20, []), ahead)) == list(range(20))


@pytest.mark.parametrize("ahead", [1, 3])
def test_it_stays_so_far_ahead(ahead):
    made = []
    iterator = Prefetcher(counting(20, made), ahead)
    assert settled(made) == ahead
    next(iterator)
    assert settled(made) == ahead + 1
    iterator.close()


def test_an_error_comes_at_its_place():
    def source():
        yield 1
        yield 2
        raise ValueError("here")

    iterator = Prefetcher(source(), 5)
    assert [next(iterator), next(iterator)] == [1, 2]
    with pytest.raises(ValueError, match="here"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


@pytest.mark.parametrize("end", ["close", "drop", "exhaust"])
def test_the_thread_ends(end):
    closed = []
    iterator = Prefetcher(counting(5, [], closed), 2)
    next(iterator)
    assert len(threads()) == 1
    if end == "close":
        iterator.close()
        iterator.close()
        with pytest.raises(StopIteration):
            next(iterator)
    elif end == "drop":
        del iterator
    else:
        list(iterator)
    assert threads() == []
    assert closed == [True]


def test_a_timeout_is_an_error():
    def slow():
        time.sleep(0.3)
        yield 1

    with pytest.raises(RuntimeError, match="no batch came within 0.05 seconds"):
        next(Prefetcher(slow(), 1, timeout=0.05))


class Watched(Dataset):
    def __init__(self, made):
        self.made = made

    def __len__(self):
        return 6

    def __getitem__(self, index):
        self.made.append(threading.current_thread().name)
        return index


def test_a_loader_makes_batches_while_its_loop_runs():
    made = []
    iterator = iter(DataLoader(Watched(made), 1, prefetch_factor=2))
    next(iterator)
    assert settled(made) == 3
    next(iterator)
    assert settled(made) == 4
    assert set(made) == {"jaxsaw-prefetch"}
    iterator.close()


def test_a_loader_makes_batches_when_asked_by_default():
    made = []
    iterator = iter(DataLoader(Watched(made), 1))
    next(iterator)
    assert made == ["MainThread"]


def test_a_loop_that_is_left_ends_the_thread():
    for _ in DataLoader(range(10), 1, prefetch_factor=3):
        assert len(threads()) == 1
        break
    assert threads() == []


def test_a_loop_that_raises_ends_the_thread():
    def loop():
        for _ in DataLoader(range(10), 1, prefetch_factor=3):
            raise KeyError

    with pytest.raises(KeyError) as info:
        loop()
    del info


def test_threads_do_not_keep_batches_alive():
    import weakref

    class Row(np.ndarray):
        pass

    refs = []

    def source():
        for _ in range(3):
            row = np.zeros(3).view(Row)
            refs.append(weakref.ref(row))
            yield row
            del row

    iterator = Prefetcher(source(), 1)
    next(iterator)
    next(iterator)
    next(iterator)
    assert [ref() for ref in refs[:2]] == [None, None]
    iterator.close()
