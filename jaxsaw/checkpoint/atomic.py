"""Replacing a file as a whole: all of the new one, or the old one untouched."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import socket
import threading
from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # not on this platform; a process is then known by its number alone
    fcntl = None  # type: ignore[assignment]

_HOST = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:64] or "-"
_LEFTOVER = re.compile(r"\..*\.(?P<host>[^.]+)\.(?P<pid>\d{1,9})\.[0-9a-f]{16}\.jaxsaw\.tmp", re.S)
_creating = threading.Lock()


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[int]:
    """Open a new file beside ``path``, which replaces it when the block ends.

    It is flushed to the disk first. If anything raises, it is removed and the old file is still
    there. What gone processes of this host left in the folder is removed before. A symbolic link
    stays one; what it points to is replaced.

    Args:
        path: Where the file goes; missing folders are made.

    Yields:
        The descriptor of the new file, open for writing.

    Raises:
        OSError: As the system reports it.
    """
    target = os.path.realpath(path)
    if os.path.isdir(target) or os.path.islink(target):
        code = errno.EISDIR if os.path.isdir(target) else errno.ELOOP
        raise OSError(code, os.strerror(code), os.fspath(path))
    folder, name = os.path.split(target)
    os.makedirs(folder, exist_ok=True)
    shown = os.fsencode(name)[:96].decode("utf-8", "ignore")
    temporary = f".{shown}.{_HOST}.{os.getpid()}.{secrets.token_hex(8)}.jaxsaw.tmp"
    temporary = os.path.join(folder, temporary)
    with _creating:
        _clear_leftovers(folder)
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        _lock(file)  # until it is closed, or the process is gone
    try:
        yield file
        os.fsync(file)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        os.close(file)
    _sync_folder(folder)


def _clear_leftovers(folder: str) -> None:
    # What can't be listed or removed is left to whoever may.
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            match = _LEFTOVER.fullmatch(name)
            path = os.path.join(folder, name)
            if match and match["host"] == _HOST and _is_abandoned(path, int(match["pid"])):
                with contextlib.suppress(OSError):
                    os.unlink(path)


def _is_abandoned(path: str, pid: int) -> bool:
    try:
        os.kill(pid, 0)
        alive = True
    except ProcessLookupError:
        alive = False
    except OSError:
        alive = True
    if alive and pid != os.getpid():
        return False
    # This number may be ours by chance, or belong to a process in another container, which this
    # one can't see. The lock tells.
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        locked = _lock(file)
        return not alive if locked is None else locked
    finally:
        os.close(file)


def _lock(file: int) -> bool | None:
    # True: ours. False: another's. None: the file system can't tell.
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError:
        return None


def _sync_folder(folder: str) -> None:
    try:
        file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:  # some file systems have no such call, some folders can't be opened
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
            raise
