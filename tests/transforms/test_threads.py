"""Many threads on one model: whole arrays, one step at a time, and no update lost."""

import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import checkpoint, nn, optim
from jaxsaw.state import pack

THREADS = 8


class Boxes(js.Stateful):
    """Boxes that always hold the same number, except in the middle of a step."""

    def __init__(self, n=6):
        self.boxes = [js.Variable(jnp.zeros(16)) for _ in range(n)]


@js.jit
def step(m):
    for box in m.boxes:
        box += 1.0


@js.jit
def look(m):
    return jnp.stack([box.value[0] for box in m.boxes])


def together(*workers):
    """Run workers at the same time, and raise what one of them raised."""
    start = threading.Barrier(len(workers))
    errors = []

    def run(worker):
        try:
            start.wait()
            worker()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Let threads take turns often, so that a race shows."""
    import sys

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_many_threads_run_one_compiled_reader():
    m = Boxes()
    step(m)
    results = []

    def worker():
        results.append({tuple(np.asarray(look(m))) for _ in range(300)})

    together(*[worker] * THREADS)
    assert results == [{(1.0,) * 6}] * THREADS


def test_threads_that_train_one_model_lose_no_update():
    m = Boxes()

    def worker():
        for _ in range(250):
            step(m)

    together(*[worker] * THREADS)
    assert {float(box[0]) for box in m.boxes} == {250 * THREADS}


def test_readers_of_values_get_whole_arrays_while_another_trains():
    m = Boxes()
    done = threading.Event()
    reads = []

    def trainer():
        for _ in range(1500):
            step(m)
        done.set()

    def reader():
        n = 0
        while not done.is_set():
            for box in m.boxes:
                array = box.value
                values = np.asarray(array)
                assert not array.is_deleted()
                assert (values == values[0]).all()
            n += 1
        reads.append(n)

    together(trainer, *[reader] * 3)
    assert {float(box[0]) for box in m.boxes} == {1500}
    assert all(reads)


def test_a_compiled_call_sees_all_boxes_of_one_step_while_another_trains():
    m = Boxes()
    look(m)
    done = threading.Event()

    def trainer():
        for _ in range(1000):
            step(m)
        done.set()

    def reader():
        last = 0.0
        while not done.is_set():
            values = set(np.asarray(look(m)).tolist())
            assert len(values) == 1
            now = values.pop()
            assert now >= last
            last = now

    together(trainer, *[reader] * 4)


def test_hold_sees_all_boxes_of_one_step_and_keeps_them():
    m = Boxes()
    done = threading.Event()

    def trainer():
        for _ in range(600):
            step(m)
        done.set()

    def saver():
        while not done.is_set():
            arrays, tokens = pack.hold(m.boxes)
            time.sleep(1e-4)
            assert len({float(array[0]) for array in arrays}) == 1
            pack.release(tokens)

    together(trainer, saver, saver)
    assert {float(box[0]) for box in m.boxes} == {600}


def test_eager_writers_and_compiled_ones_do_not_overwrite_each_other():
    m = Boxes()
    flag = js.Variable(jnp.zeros(()))

    @js.jit
    def both():
        for box in m.boxes:
            box += 1.0
        return flag.value

    def trainer():
        for _ in range(300):
            both()

    def writer():
        for n in range(300):
            flag.value = jnp.full((), float(n))

    together(trainer, trainer, writer)
    assert {float(box[0]) for box in m.boxes} == {600}
    assert float(flag) == 299


def test_functions_with_overlapping_state_do_not_lock_each_other_out():
    boxes = [js.Variable(jnp.zeros(4)) for _ in range(4)]

    def adder(*mine):
        @js.jit
        def add():
            for i in mine:
                boxes[i].value = boxes[i] + 1.0

        return add

    functions = [adder(0, 1), adder(1, 2), adder(3, 2, 1), adder(0, 3)]

    def worker(f):
        return lambda: [f() for _ in range(100)]

    together(*[worker(f) for f in functions for _ in range(2)])
    assert [float(box[0]) for box in boxes] == [400, 600, 400, 400]


def test_many_threads_make_the_first_call_together():
    @js.jit
    def first(m, x):
        for box in m.boxes:
            box += x

    m = Boxes()
    together(*[lambda: first(m, jnp.ones(16))] * THREADS)
    assert {float(box[0]) for box in m.boxes} == {THREADS}
    first(m, jnp.ones(16))
    assert {float(box[0]) for box in m.boxes} == {THREADS + 1}


def test_threads_with_other_shapes_and_models_share_one_function():
    @js.jit
    def f(m, x):
        m.boxes[0] += x.sum()
        if x.shape == (2,):
            m.boxes[1] += 1.0
        return m.boxes[0].value[0]

    models = [Boxes(2) for _ in range(4)]

    def worker(m, n):
        def run():
            for i in range(60):
                f(m, jnp.ones(1 + (i + n) % 3))

        return run

    together(*[worker(m, n) for n, m in enumerate(models * 2)])
    for m in models:
        assert float(m.boxes[0][0]) == 240
        assert float(m.boxes[1][0]) == 40


def test_scopes_and_streams_belong_to_their_thread():
    rngs = js.Rngs(0)
    inside, outside = threading.Event(), threading.Event()
    v = js.Variable(jnp.zeros(()))
    seen = []

    def tracer():
        @js.jit
        def f():
            v.value = v + 1.0
            inside.set()
            outside.wait(10)

        f()

    def other():
        inside.wait(10)
        seen.append(v.value)
        outside.set()

    together(tracer, other)
    assert float(seen[0]) == 0 and not isinstance(seen[0], jax.core.Tracer)
    assert float(v) == 1 and rngs.counts == {}


class Counted(nn.Module):
    """A model that counts its steps, beside the optimizer."""

    def __init__(self, seed):
        super().__init__()
        self.linear = nn.Linear(4, 4, rngs=js.Rngs(seed))
        self.seen = js.Variable(jnp.zeros((), jnp.int32))


@js.jit
def train(model, optimizer, x):
    loss, grads = js.value_and_grad(lambda m: (m.linear(x) ** 2).mean())(model)
    optimizer.step(grads)
    model.seen += 1
    return loss


def make(seed):
    model = Counted(seed)
    return model, optim.Adam(model.parameters(), lr=1e-3)


def test_eight_threads_train_read_and_save_two_models_for_thousands_of_steps(tmp_path):
    first, second = make(0), make(1)
    x, steps = jnp.ones((2, 4)), 700
    done = threading.Event()

    def trainer(state):
        def work():
            for _ in range(steps):
                train(*state, x)

        return work

    def reader():
        while not done.is_set():
            for model, _ in (first, second):
                assert np.isfinite(np.asarray(model.linear.weight)).all()
                model.state_dict()

    def saver(state, path):
        def work():
            model, optimizer = state
            while not done.is_set():
                checkpoint.save(path, model=model, optimizer=optimizer)
                arrays = checkpoint.load(path)
                assert arrays["model"]["seen"] == arrays["optimizer"]["step_count"]

        return work

    def last():
        # Waits for the trainers only: they are the first four workers.
        while int(first[0].seen) < 2 * steps or int(second[0].seen) < 2 * steps:
            time.sleep(0.01)
        done.set()

    together(
        *[trainer(first), trainer(first), trainer(second), trainer(second), reader, last],
        *[saver(first, tmp_path / "1.npz"), saver(second, tmp_path / "2.npz")],
    )
    for model, optimizer in (first, second):
        assert int(model.seen) == int(optimizer.step_count) == 2 * steps
    alone = make(0)
    for _ in range(2 * steps):
        train(*alone, x)
    np.testing.assert_array_equal(first[0].linear.weight, alone[0].linear.weight)
