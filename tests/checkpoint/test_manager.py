"""A folder of checkpoints: the background write, the rules, and what is found again."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
import threading

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import checkpoint
from jaxsaw.checkpoint import CheckpointError, Manager, manager
from jaxsaw.checkpoint import state as layer


@pytest.fixture
def box():
    return js.Variable(jnp.zeros(3))


def names(folder):
    return sorted(os.listdir(folder))


def damage(path):
    content = bytearray(path.read_bytes())
    content[165] ^= 1  # in the first array's bytes
    path.write_bytes(content)


class Gate:
    """Lets writes wait until they are allowed."""

    def __init__(self, monkeypatch):
        self.open, self.error, self.running = threading.Event(), None, 0
        real = layer.write

        def write(*args):
            self.running += 1
            assert self.running == 1
            try:
                assert self.open.wait(20)
                if self.error is not None:
                    raise self.error
                real(*args)
            finally:
                self.running -= 1

        monkeypatch.setattr(layer, "write", write)


# Saving in the background.


def test_a_save_is_of_the_instant_of_the_call(tmp_path, box, monkeypatch):
    gate = Gate(monkeypatch)
    tied = js.Variable(jnp.zeros(()))

    @js.jit
    def step(box, tied):
        box += 1
        tied += 1

    step(box, tied)
    progress = {"list": [1]}
    saver = Manager(tmp_path)
    saver.save(7, box=box, tied=tied, progress=progress)
    progress["list"].append(2)
    for _ in range(3):
        step(box, tied)
    box.value = jnp.full(3, 9.0)
    assert not os.path.exists(saver.path(7))
    gate.open.set()
    assert saver.latest() == 7
    loaded = checkpoint.load(saver.path(7))
    assert loaded["box"][""].tolist() == [1, 1, 1] and loaded["tied"][""] == 1
    assert loaded.progress == {"list": [1]}
    assert not box._place[0].exposed - {0} and not any(
        type(token) is not int for token in tied._place[0].exposed
    )  # the arrays are free again


def test_one_write_is_in_flight_and_the_queries_wait(tmp_path, box, monkeypatch):
    gate = Gate(monkeypatch)
    saver = Manager(tmp_path)
    saver.save(0, box=box)
    threading.Timer(0.05, gate.open.set).start()
    saver.save(1, box=box)  # waits
    assert saver.steps() == [0, 1]
    assert not [t for t in threading.enumerate() if t.name == "jaxsaw-save"]


@pytest.mark.parametrize(
    "call",
    [
        lambda m, box: m.save(5, box=box),
        lambda m, box: m.wait(),
        lambda m, box: m.steps(),
        lambda m, box: m.latest(),
        lambda m, box: m.best_step(),
        lambda m, box: m.metrics(0),
        lambda m, box: m.restore(0, box=box),
        lambda m, box: m.restore_latest(box=box),
        lambda m, box: m.__exit__(None, None, None),
    ],
)
def test_an_error_surfaces_once_at_the_next_call(tmp_path, box, monkeypatch, call):
    gate = Gate(monkeypatch)
    saver = Manager(tmp_path, best=("a", "min"))
    gate.open.set()
    saver.save(0, box=box, metrics={"a": 1})
    saver.wait()
    gate.error = OSError(errno.ENOSPC, "the disk is full")
    saver.save(1, box=box)
    with pytest.raises(OSError, match="the disk is full") as error:
        call(saver, box)
    assert "epoch.001.npz" in error.value.__notes__[0]
    gate.error = None
    saver.wait()
    assert saver.steps() == [0]
    saver.save(1, box=box)
    assert saver.steps() == [0, 1]


def test_an_error_of_the_block_is_not_hidden(tmp_path, box, monkeypatch):
    gate = Gate(monkeypatch)
    gate.open.set()
    gate.error = OSError("full")
    with pytest.raises(KeyError) as error:
        with Manager(tmp_path) as saver:
            saver.save(0, box=box)
            raise KeyError("the program's")
    assert "full" in error.value.__notes__[0]


def test_python_waits_for_a_write_and_prints_its_error(tmp_path):
    program = textwrap.dedent(
        """
        import sys, time
        import jaxsaw as js
        from jaxsaw import checkpoint
        from jaxsaw.checkpoint import state
        real = state.write
        def write(path, *args):
            time.sleep(0.2)
            if "002" in str(path):
                raise OSError("the disk is gone")
            real(path, *args)
        state.write = write
        good, bad = checkpoint.Manager(sys.argv[1]), checkpoint.Manager(sys.argv[1])
        good.save(1, box=js.Variable(1.0))
        bad.save(2, box=js.Variable(1.0))
        del bad
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert "the disk is gone" in done.stderr and "epoch.002.npz" in done.stderr
    assert names(tmp_path) == ["epoch.001.npz"]
    checkpoint.verify(tmp_path / "epoch.001.npz")


def test_refused_at_the_call(tmp_path, box):
    saver = Manager(tmp_path, best=("loss", "min"))
    with pytest.raises(TypeError, match="progress"):
        saver.save(0, box=box, progress={1: 2})
    with pytest.raises(TypeError, match="model must be a Stateful"):
        saver.save(0, model=3)
    with pytest.raises(ValueError, match="metrics lack 'loss', .*they have: los"):
        saver.save(0, box=box, metrics={"los": 1})
    with pytest.raises(TypeError, match="metric 'loss' is no number"):
        saver.save(0, box=box, metrics={"loss": "low"})
    with pytest.raises(TypeError, match="a step is an int, got float"):
        saver.save(0.5, box=box)
    with pytest.raises(ValueError, match="count from 0"):
        saver.save(-1, box=box)
    with pytest.raises(RuntimeError, match="inside a traced function"):
        js.jit(lambda b: saver.save(0, box=b))(box)
    assert saver.steps() == [] and saver.latest() is None and saver.best_step() is None
    assert not tmp_path.exists() or names(tmp_path) == []


# Which files there are, and which go.


def fill(saver, box, scores, name="accuracy"):
    for step, score in enumerate(scores):
        saver.save(step, box=box, metrics=None if score is None else {name: score})
    saver.wait()


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6]),
        ({"keep_last": 2}, [5, 6]),
        ({"keep_last": 1, "keep_every": 3}, [0, 3, 6]),
        ({"keep_last": 1, "best": ("accuracy", "max")}, [1, 6]),
        ({"keep_last": 2, "best": ("accuracy", "min")}, [4, 5, 6]),
        ({"keep_last": 1, "keep_every": 5, "best": ("accuracy", "max")}, [0, 1, 5, 6]),
    ],
)
def test_what_is_kept(tmp_path, box, rules, kept):
    with Manager(tmp_path, **rules) as saver:
        fill(saver, box, [float("nan"), 0.9, 0.3, 0.9, 0.1, 0.4, None])
    assert saver.steps() == kept
    if "best" in rules:
        # Another manager, of a process that knows nothing of the first, sees the same.
        assert saver.best_step() == Manager(tmp_path, **rules).best_step()
        assert saver.best_step() == (1 if rules["best"][1] == "max" else 4)
        assert saver.metrics(saver.best_step()).keys() == {"accuracy"}


def test_metrics_of_every_kind(tmp_path, box):
    saver = Manager(tmp_path, best=("b", "max"))
    numbers = {"a": 1, "b": jnp.float32(0.5), "c": np.float64(2), "d": js.Variable(3.0)}
    saver.save(np.int64(2), box=box, metrics=numbers, metadata={"mine": 1})
    assert saver.metrics(2) == {"a": 1.0, "b": 0.5, "c": 2.0, "d": 3.0}
    assert saver.restore(2, box=box).metadata == {"mine": 1}
    assert checkpoint.inspect(saver.path(2))["manager"]["step"] == 2


def test_what_was_just_saved_stays_below_higher_steps(tmp_path, box):
    saver = Manager(tmp_path, keep_last=2)
    fill(saver, box, [None] * 6)
    saver.save(1, box=box)
    assert saver.steps() == [1, 4, 5]


def test_only_its_own_files_are_touched(tmp_path, box):
    others = ["epoch.1.npz", "epoch.001.npz.bak", "xepoch.001.npz", "epoch.-01.npz", "notes"]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / "epoch.000.npz").mkdir()
    (tmp_path / "epoch.001.npz").write_text("no checkpoint")
    with Manager(tmp_path, keep_last=1) as saver:
        for step in (2, 3, 1000):
            saver.save(step, box=box)
    assert names(tmp_path) == sorted([*others, "epoch.000.npz", "epoch.001.npz", "epoch.1000.npz"])
    assert saver.steps() == [1, 1000]


def test_paths_are_known_before(tmp_path):
    saver = Manager(tmp_path / "deep" / "er", "run-{step}.ckpt")
    assert saver.path(12) == tmp_path / "deep" / "er" / "run-12.ckpt"
    assert Manager(str(tmp_path)).path(3) == tmp_path / "epoch.003.npz"
    assert saver.steps() == []
    saver.save(12, box=js.Variable(1.0))
    assert saver.latest() == 12 and saver.path(12).is_file()


def test_two_managers_of_one_folder(tmp_path, box):
    first, second = Manager(tmp_path, keep_last=2), Manager(tmp_path, keep_last=2)
    for step in range(10):
        (first, second)[step % 2].save(step, box=box)
    assert {*first.steps(), *second.steps()} >= {8, 9}
    assert all(checkpoint.verify(first.path(step)) is None for step in first.steps())
    second.save(10, box=box)
    assert second.steps() == [9, 10]


@pytest.mark.parametrize(
    "pattern",
    ["a.npz", "{step}{step}", "{}", "{0}", "{step:x}", "{step:>3}", "{step!r}", "{step", "a/{step}",
     "{epoch}", "{step.real}", "{step:.3f}"],
)  # fmt: skip
def test_patterns_that_cant_be(tmp_path, pattern):
    with pytest.raises(ValueError, match="one field {step}"):
        Manager(tmp_path, pattern)


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"keep_last": 0}, "keep_last must be a positive int"),
        ({"keep_last": 1, "keep_every": -1}, "keep_every must be"),
        ({"keep_every": 2}, "keep_every needs keep_last"),
        ({"best": "accuracy"}, "best must be"),
        ({"best": ("accuracy", "largest")}, "best must be"),
    ],
)
def test_rules_that_cant_be(tmp_path, rules, text):
    with pytest.raises(ValueError, match=text):
        Manager(tmp_path, **rules)
    with pytest.raises(ValueError, match="pass best="):
        Manager(tmp_path).best_step()


# Restoring.


def test_restore(tmp_path, box):
    saver = Manager(tmp_path)
    for step in range(3):
        box.value = jnp.full(3, float(step))
        saver.save(step, box=box, progress={"next": step + 1})
    restored = saver.restore(1, box=box)
    assert (restored.step, restored.progress) == (1, {"next": 2})
    assert box.tolist() == [1, 1, 1]
    assert saver.restore_latest(box=box).step == 2 and box.tolist() == [2, 2, 2]
    with pytest.raises(FileNotFoundError, match="epoch.005.npz"):
        saver.restore(5, box=box)


def test_restore_latest_falls_back(tmp_path, box):
    saver = Manager(tmp_path)
    fill(saver, box, [None] * 3)
    damage(saver.path(2))
    saver.path(1).write_bytes(b"")
    with pytest.warns(UserWarning) as caught:
        assert saver.restore_latest(box=box).step == 0
    assert ["epoch.002" in str(caught[0].message), "epoch.001" in str(caught[1].message)] == [1, 1]
    assert caught[0].filename == __file__
    damage(saver.path(0))
    with pytest.warns(UserWarning), pytest.raises(CheckpointError, match="no file is intact"):
        saver.restore_latest(box=box)
    with pytest.raises(FileNotFoundError, match="has no file like"):
        Manager(tmp_path, "other.{step}.npz").restore_latest(box=box)


def test_a_file_that_does_not_fit_is_no_damage(tmp_path, box):
    saver = Manager(tmp_path)
    fill(saver, box, [None] * 2)
    with pytest.raises(CheckpointError, match="doesn't fit"):
        saver.restore_latest(box=js.Variable(jnp.zeros(4)))
    with pytest.raises(CheckpointError, match="holds no 'model'"):
        saver.restore_latest(model=box)
    assert saver.restore_latest(strict=False, box=js.Variable(jnp.zeros(4))).mismatched


# The end of the machine.


def test_a_signal_waits_for_the_end_of_the_step(tmp_path, box):
    before = signal.getsignal(signal.SIGTERM)
    saver = Manager(tmp_path)
    with pytest.raises(SystemExit) as leaving, saver.on_preemption():
        for step in range(10):
            box += 1
            if step == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            box += 1
            saver.exit_if_preempted(step, box=box, progress={"next": step + 1})
    assert leaving.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    assert saver.restore_latest(box=box).progress == {"next": 3}
    assert box.tolist() == [6, 6, 6]


def test_a_signal_that_nothing_answers_is_not_lost(tmp_path):
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        with Manager(tmp_path).on_preemption(signal.SIGUSR1) as saver:
            signal.raise_signal(signal.SIGUSR1)
            assert saver.preempted and heard == []
        assert heard == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_thread_that_cant_start_holds_nothing(tmp_path, box, monkeypatch):
    def fail(self):
        raise RuntimeError("can't start new thread")

    saver = Manager(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(manager.threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="can't start"):
            saver.save(0, box=box)
    assert all(type(token) is int for token in box._place[0].exposed)
    assert saver.steps() == []
