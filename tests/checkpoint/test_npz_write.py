"""Whatever happens while a file is written, it is the complete old one or the complete new one."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxsaw.checkpoint import atomic, npz, writer

# Small ones are gathered, the third is written from where it is, with its checksum patched in.
OLD = [np.arange(5), np.ones((3, 4))]
NEW = [np.arange(7), np.zeros(()), np.arange(100_000.0), np.ones(3)]


def assert_holds(path: Path, arrays: list[Any]) -> None:
    found = npz.read_arrays(path)
    assert len(found) == len(arrays)
    for array, expected in zip(found.values(), arrays, strict=True):
        np.testing.assert_array_equal(array, expected)


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str, action: Callable[[], object]) -> int:
    real, calls = getattr(os, name), [0]

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, counted)
        action()
    return calls[0]


def fails_at(
    index: int, real: Callable[..., Any], failure: OSError, after: bool
) -> Callable[..., Any]:
    calls = iter(range(10**9))

    def failing(*args: Any, **kwargs: Any) -> Any:
        if next(calls) != index:
            return real(*args, **kwargs)
        if after:
            real(*args, **kwargs)
        raise failure

    return failing


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", ["open", "write", "pwrite", "fsync", "replace"])
def test_failure_at_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    """Each call in turn fails, before or after it had its effect."""
    path = tmp_path / "a.npz"
    real = getattr(os, name)
    total = count_calls(monkeypatch, name, lambda: npz.write(path, NEW, {}))
    assert total >= {"open": 2, "write": 3, "pwrite": 1, "fsync": 2, "replace": 1}[name]
    for fail_at in range(total):
        npz.write(path, OLD, {})
        failure = OSError(errno.ENOSPC, "no space left, says the test")
        failing = fails_at(fail_at, real, failure, after and name != "open")
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            with pytest.raises(OSError) as error:
                npz.write(path, NEW, {})
        assert error.value is failure
        assert list(tmp_path.iterdir()) == [path]
        # The folder is opened and flushed after the new file took its place.
        is_late = name in ("open", "fsync") and fail_at == total - 1
        placed = is_late or (name == "replace" and after)
        assert_holds(path, NEW if placed else OLD)


def test_folders_that_cant_be_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def for_files_only(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "some file systems say this")
        real(file)

    monkeypatch.setattr(os, "fsync", for_files_only)
    npz.write(tmp_path / "a.npz", NEW, {})
    assert_holds(tmp_path / "a.npz", NEW)


def test_other_exceptions_clean_up_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    npz.write(path, OLD, {})

    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", interrupted)
        with pytest.raises(KeyboardInterrupt):
            npz.write(path, NEW, {})
    assert list(tmp_path.iterdir()) == [path]
    assert_holds(path, OLD)
    assert not [t for t in threading.enumerate() if t.name == "jaxsaw-crc32"]


def test_where_no_thread_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while Python exits, from 3.12 on."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        npz.write(tmp_path / "a.npz", NEW, {})
    assert_holds(tmp_path / "a.npz", NEW)


def test_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    npz.write(path, NEW, {"a": 1})
    expected = path.read_bytes()
    real_write, real_pwrite = os.write, os.pwrite
    rng = np.random.default_rng(0)

    def short_write(file: int, data: Any) -> int:
        return real_write(file, data[: int(rng.integers(1, 5000))])

    monkeypatch.setattr(os, "write", short_write)
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: real_pwrite(file, data[:1], at))
    npz.write(path, NEW, {"a": 1})
    assert path.read_bytes() == expected


def test_order_of_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    for name in ("write", "fsync", "replace"):
        real = getattr(os, name)

        def noted(*args: Any, real: Any = real, name: str = name) -> Any:
            is_folder = name == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode)
            steps.append("fsync folder" if is_folder else name)
            return real(*args)

        monkeypatch.setattr(os, name, noted)
    npz.write(tmp_path / "a.npz", OLD, {})
    assert steps == ["write", "fsync", "replace", "fsync folder"]


def test_parents_are_made_and_umask_is_respected(tmp_path: Path) -> None:
    path = tmp_path / "x" / "y" / ("ü" * 120 + ".npz")
    for mask in (0o022, 0o077, 0o002):
        before = os.umask(mask)
        try:
            npz.write(path, OLD, {})
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    assert_holds(path, OLD)


def test_symbolic_link_stays(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link, target = tmp_path / "link.npz", tmp_path / "far" / "target.npz"
    link.symlink_to(Path("far") / "target.npz")
    for arrays in (OLD, NEW):  # at first it points to nothing
        npz.write(link, arrays, {})
        assert link.is_symlink() and not target.is_symlink()
        assert_holds(target, arrays)
    assert list((tmp_path / "far").iterdir()) == [target]
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError) as error:
        npz.write(loop, OLD, {})
    assert error.value.errno == errno.ELOOP and loop.is_symlink()


def test_directory_as_path(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        npz.write(tmp_path, OLD, {})
    assert list(tmp_path.iterdir()) == []


def finished_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_leftovers(tmp_path: Path) -> None:
    gone, host = finished_pid(), atomic._HOST

    def name(host: str = host, pid: int = gone, suffix: str = "jaxsaw.tmp") -> str:
        return f".other.v2.npz.{host}.{pid}.{'0f' * 8}.{suffix}"

    cleared = [name(), name(pid=os.getpid())]  # a number that came back isn't a living writer
    kept = [name(host="elsewhere"), name(pid=os.getppid()), name(suffix="tmp"), name()[1:]]
    for file in cleared + kept:
        (tmp_path / file).write_bytes(b"x")
    npz.write(tmp_path / "a.npz", OLD, {})
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*kept, "a.npz"])


def test_leftover_that_is_locked_is_being_written(tmp_path: Path) -> None:
    # By a process that can't be seen from here, as in another container with this host's name.
    fcntl = pytest.importorskip("fcntl")
    leftover = tmp_path / f".a.npz.{atomic._HOST}.{finished_pid()}.{'0' * 16}.jaxsaw.tmp"
    with open(leftover, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        npz.write(tmp_path / "a.npz", OLD, {})
        assert leftover.exists()
    npz.write(tmp_path / "a.npz", OLD, {})
    assert not leftover.exists()


def test_leftovers_that_cant_be_removed_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leftover = tmp_path / f".a.npz.{atomic._HOST}.{finished_pid()}.{'0' * 16}.jaxsaw.tmp"
    leftover.write_bytes(b"x")

    def refused(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "not yours")

    for name in ("unlink", "listdir"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refused)
            npz.write(tmp_path / "a.npz", OLD, {})
        assert leftover.exists()


def test_concurrent_writers(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    versions = [[np.full(50_000, i), np.arange(i)] for i in range(4)]
    errors: list[BaseException] = []

    def work(arrays: list[Any]) -> None:
        try:
            for _ in range(10):
                npz.write(path, arrays, {})
        except BaseException as error:
            errors.append(error)

    npz.write(path, versions[0], {})
    threads = [threading.Thread(target=work, args=[arrays]) for arrays in versions]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        first = npz.read_arrays(path)
        assert (first["a0"] == len(first["a1"])).all()
    for thread in threads:
        thread.join()
    assert errors == []
    assert list(tmp_path.iterdir()) == [path]


def spawn(script: str, *args: str, **options: Any) -> subprocess.Popen[bytes]:
    root = Path(npz.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", textwrap.dedent(script), *args]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, **options)


def test_killed_at_any_instant(tmp_path: Path) -> None:
    # One process forks the writers, as starting Python anew takes longer than all the rest.
    path = tmp_path / "a.npz"
    script = """
        import os, sys
        import numpy as np
        from jaxsaw.checkpoint import npz
        for line in sys.stdin:
            pid = os.fork()
            if pid == 0:
                i = int(line)
                while True:
                    i += 1
                    npz.write(sys.argv[1], [np.full(300_000, i), np.array(i)], {"i": i})
            print(pid, flush=True)
            os.waitpid(pid, 0)
            print("gone", flush=True)
    """
    npz.write(path, [np.full(300_000, 0), np.array(0)], {"i": 0})
    rng = np.random.default_rng(0)
    leftovers = 0
    with spawn(script, str(path), stdin=subprocess.PIPE) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        for turn in range(20):
            parent.stdin.write(b"%d\n" % (turn * 1000))
            parent.stdin.flush()
            pid = int(parent.stdout.readline())
            time.sleep(rng.uniform(0.002, 0.04))
            os.kill(pid, signal.SIGKILL)
            assert parent.stdout.readline() == b"gone\n"
            i = npz.read_manifest(path)["i"]
            assert_holds(path, [np.full(300_000, i), np.array(i)])
            found = [p for p in tmp_path.iterdir() if p != path]
            assert len(found) <= 1  # each writer cleared what the one before it left
            leftovers += len(found)
        parent.stdin.close()
        parent.wait(timeout=30)
    assert leftovers > 0  # some were killed in the middle
    npz.write(path, OLD, {})
    assert list(tmp_path.iterdir()) == [path]


def test_writing_while_python_exits(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    script = """
        import sys, threading, time
        import numpy as np
        from jaxsaw.checkpoint import npz

        def work():
            time.sleep(0.3)  # the main thread is done by now
            npz.write(sys.argv[1], [np.arange(100_000.0)], {})

        threading.Thread(target=work).start()
    """
    with spawn(script, str(path)) as process:
        assert process.wait(timeout=60) == 0
    assert_holds(path, [np.arange(100_000.0)])


def test_host_copies_are_dropped_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[int] = []
    most = [0]
    real = writer.dtypes.host_bytes

    class Copy(np.ndarray[Any, Any]):
        def __del__(self) -> None:
            alive.pop()

    def counted(array: Any) -> memoryview:
        copy = np.array(real(array)).view(Copy)
        alive.append(1)
        most[0] = max(most[0], len(alive))
        return copy.data

    monkeypatch.setattr(writer.dtypes, "host_bytes", counted)
    arrays = [np.ones(100_000), np.ones(3), np.ones(200_000), np.ones(5)]
    npz.write(tmp_path / "a.npz", arrays, {})
    assert most == [1] and alive == []
    assert_holds(tmp_path / "a.npz", arrays)
