"""Worker processes: real ones."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw.data import DataLoader, Dataset, IterableDataset, get_worker_info

WORKERS = [1, 2]


class Noise(Dataset):
    def __len__(self):
        return 11

    def __getitem__(self, index):
        return np.float64(index), np.random.rand(), {"name": f"item {index}"}


class NoiseStream(IterableDataset):
    def __iter__(self):
        assert get_worker_info() is None or get_worker_info().num_workers == 1
        for i in range(11):
            yield np.float64(i), np.random.rand()


class Uneven(Dataset):
    """Later items are ready earlier."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        time.sleep(0.03 if index % 3 == 0 else 0)
        return index


class OneWay(Exception):
    """Can be pickled, and not unpickled."""

    def __reduce__(self):
        return int, ("not a number",)


class Failing(Dataset):
    def __init__(self, how):
        self.how = how

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            if self.how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "sleeps":
                time.sleep(60)
            if self.how == "sends nonsense":
                return lambda: index
            if self.how == "one way":
                raise OneWay("bad")
            if self.how == "local":
                raise type("Local", (ValueError,), {})("hidden")
            raise {"value": ValueError, "key": KeyError, "stop": StopIteration}[self.how]("bad")
        return index


def as_they_are(items):
    return items


class WhereAmI(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        from jax._src import xla_bridge

        info = get_worker_info()
        return os.getpid(), info.id, info.num_workers, len(xla_bridge._backends)


class UsesJax(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return jax.numpy.full(3, index), jax.devices()[0].platform


class Unpicklable(Dataset):
    def __init__(self):
        self.f = lambda: 0

    def __len__(self):
        return 1


class RefusesToArrive(Dataset):
    def __init__(self):
        self.size = 1

    def __len__(self):
        return 1

    def __setstate__(self, state):
        raise RuntimeError("not here")


def note_worker(number):
    os.environ["JAXSAW_TEST_WORKER"] = str(number)


def raise_in_worker(number):
    raise OSError(f"no disk in {number}")


class Environment(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return os.environ["JAXSAW_TEST_WORKER"] == str(get_worker_info().id)


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert [p.name for p in multiprocessing.active_children()] == []
    assert [t.name for t in threading.enumerate() if "jaxsaw" in t.name] == []


def plain(batch):
    return [x.tolist() if hasattr(x, "tolist") else x for x in jax.tree.leaves(batch)]


def epoch(loader):
    return [plain(batch) for batch in loader]


def shuffled(dataset=None, size=2, **kwargs):
    dataset = Noise() if dataset is None else dataset
    return DataLoader(dataset, size, shuffle=True, rngs=js.Rngs(data=3), **kwargs)


@pytest.mark.parametrize("workers", WORKERS)
def test_batches_are_those_of_this_process(workers):
    here, there = shuffled(), shuffled(num_workers=workers)
    for _ in range(2):
        assert epoch(there) == epoch(here)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("size", [2, None])
def test_a_stream_is_read_once_and_in_order(workers, size):
    here = DataLoader(NoiseStream(), size)
    there = DataLoader(NoiseStream(), size, num_workers=workers)
    for _ in range(2):
        assert epoch(there) == epoch(here)


def test_the_order_is_kept():
    loader = DataLoader(Uneven(), 1, num_workers=2, prefetch_factor=4)
    assert epoch(loader) == [[[i]] for i in range(12)]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_restored_loader_goes_on_at_the_very_next_batch(persistent):
    expected = [epoch(loader) for loader in [shuffled()] for _ in range(2)]
    loader = shuffled(num_workers=2, prefetch_factor=3, persistent_workers=persistent)
    for i, batch in enumerate(loader):
        assert plain(batch) == expected[0][i]
        assert int(loader.position) == i + 1
        if i == 2:
            break
    twin = shuffled(num_workers=1)
    twin.load_state_dict(loader.state_dict())
    assert epoch(twin) == expected[0][3:]
    assert epoch(twin) == expected[1]
    assert epoch(loader) == expected[1]


def test_a_stream_is_resumed():
    expected = epoch(DataLoader(NoiseStream(), 2))
    loader = DataLoader(NoiseStream(), 2, num_workers=2)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert epoch(loader) == expected[2:]
    iterator.close()


def test_persistent_workers_stay():
    loader = DataLoader(
        WhereAmI(), 1, num_workers=2, persistent_workers=True, collate_fn=as_they_are
    )
    first = {batch[0][0] for batch in loader}
    for _ in loader:
        break
    assert {batch[0][0] for batch in loader} <= first | {p.pid for p in loader._pool._processes}
    assert os.getpid() not in first
    pool = loader._pool
    assert len(multiprocessing.active_children()) == 2
    del loader
    assert not pool.alive or pool.close() is None


def test_workers_know_themselves_and_start_no_backend():
    loader = DataLoader(WhereAmI(), 1, num_workers=2, collate_fn=as_they_are)
    for (pid, number, count, backends), *_ in loader:
        assert pid != os.getpid()
        assert number in (0, 1)
        assert count == 2
        assert backends == 0
    assert get_worker_info() is None


def test_a_dataset_may_use_jax_on_the_cpu():
    (array, platforms), *_ = DataLoader(UsesJax(), 2, num_workers=1)
    assert isinstance(array, jax.Array)
    np.testing.assert_array_equal(array, [[0, 0, 0], [1, 1, 1]])
    assert platforms == ["cpu", "cpu"]


def test_init_function_runs_in_each_worker():
    loader = DataLoader(Environment(), 1, num_workers=2, worker_init_fn=note_worker)
    assert all(bool(batch[0]) for batch in loader)
    assert "JAXSAW_TEST_WORKER" not in os.environ


def test_start_method_spawn():
    loader = DataLoader(range(2), 1, num_workers=1, multiprocessing_context="spawn")
    assert epoch(loader) == [[[0]], [[1]]]


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        ("value", ValueError, "item 5 of Failing raised ValueError: bad"),
        ("key", KeyError, "item 5 of Failing raised KeyError: 'bad'"),
        ("stop", RuntimeError, "item 5 of Failing raised StopIteration: bad"),
        ("local", RuntimeError, "item 5 of Failing raised Local: hidden"),
        ("one way", RuntimeError, "item 5 of Failing raised OneWay: bad"),
    ],
)
def test_what_an_item_raises_comes_at_its_batch_and_names_it(how, error, text):
    loader = DataLoader(Failing(how), 1, num_workers=2, prefetch_factor=4)
    iterator = iter(loader)
    assert [int(next(iterator)[0]) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(error, match=text) as info:
        next(iterator)
    assert "In worker process" in "".join(info.value.__notes__)
    assert "__getitem__" in "".join(info.value.__notes__)
    assert int(loader.position) == 5
    with pytest.raises(StopIteration):
        next(iterator)


def test_what_cannot_be_sent_back_is_an_error():
    loader = DataLoader(
        Failing("sends nonsense"), 1, num_workers=1, collate_fn=as_they_are, sampler=[0, 5]
    )
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(RuntimeError, match="sending a batch to the main process raised"):
        next(iterator)


def test_a_worker_that_dies_is_an_error():
    loader = DataLoader(Failing("dies"), 1, num_workers=2)
    with pytest.raises(RuntimeError, match=r"worker process \d \(pid \d+\) .* exit code -9"):
        list(loader)
    assert epoch(DataLoader(range(2), 1, num_workers=1)) == [[[0]], [[1]]]


def test_persistent_workers_are_replaced_after_a_death():
    loader = DataLoader(Failing("dies"), 1, num_workers=1, persistent_workers=True, sampler=[1, 2])
    assert epoch(loader) == [[[1]], [[2]]]
    os.kill(loader._pool._processes[0].pid, signal.SIGKILL)
    loader._pool._processes[0].join()
    assert epoch(loader) == [[[1]], [[2]]]
    loader._pool.close()


def test_persistent_workers_survive_an_error():
    loader = DataLoader(Failing("value"), 1, num_workers=2, persistent_workers=True)
    for _ in range(2):
        with pytest.raises(ValueError, match="item 5"):
            list(loader)
    loader._pool.close()


def test_a_timeout_is_an_error(monkeypatch):
    monkeypatch.setattr("jaxsaw.data.worker._GRACE", 0.1)
    loader = DataLoader(Failing("sleeps"), 1, num_workers=1, sampler=[5], timeout=0.2)
    with pytest.raises(RuntimeError, match="no batch came within 0.2 seconds. Pass a longer"):
        next(iter(loader))


@pytest.mark.parametrize(
    ("kwargs", "error", "text"),
    [
        ({"dataset": Unpicklable()}, TypeError, r"dataset \(Unpicklable\), .* num_workers=0"),
        ({"collate_fn": lambda x: x}, TypeError, "can't be sent to a worker process"),
        ({"dataset": RefusesToArrive()}, RuntimeError, "couldn't start: RuntimeError: not here"),
        ({"worker_init_fn": raise_in_worker}, RuntimeError, "couldn't start: OSError: no disk"),
    ],
)
def test_what_cannot_reach_a_worker_is_an_error(kwargs, error, text):
    with pytest.raises(error, match=text):
        next(iter(DataLoader(**{"dataset": [1], "num_workers": 1, **kwargs})))


def test_a_loop_that_is_left_ends_its_workers():
    for _ in DataLoader(Noise(), 1, num_workers=2, prefetch_factor=4):
        break
    assert multiprocessing.active_children() == []
    iterator = iter(DataLoader(Noise(), 1, num_workers=2))
    next(iterator)
    assert len(multiprocessing.active_children()) == 2
    del iterator


def test_large_batches():
    data = np.random.default_rng(0).random((40, 1 << 16), np.float32)
    loader = DataLoader(list(data), 8, num_workers=2, prefetch_factor=2)
    np.testing.assert_array_equal(np.concatenate(list(loader)), data)


SCRIPT = """
import numpy as np
from jaxsaw.data import DataLoader

class Squares:
    def __len__(self):
        return 3
    def __getitem__(self, i):
        return i * i

{guard}
    loader = DataLoader(Squares(), 1, num_workers=1)
    iterator = iter(loader)
    print(int(next(iterator)[0]), int(next(iterator)[0]))
"""


@pytest.mark.parametrize(
    ("guard", "text"),
    [('if __name__ == "__main__":', "0 1"), ("if True:", "below 'if __name__ == \"__main__\":'")],
)
def test_a_script_ends_with_an_iterator_open(tmp_path, guard, text):
    (tmp_path / "script.py").write_text(SCRIPT.format(guard=guard))
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert text in done.stdout + done.stderr
    if guard != "if True:":
        assert done.stderr == ""
        assert done.returncode == 0


def test_a_class_of_an_interactive_session_is_explained():
    program = SCRIPT.format(guard="if True:")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "exists there only: move it to a module" in done.stderr
