"""One instance per user: a lock that the kernel lets go of when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

LOCK = "watch.lock"
_TRIES, _PAUSE = 5, 0.05


class Instance:
    """The lock, held by this process until `release` or its end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Let another one begin."""
        os.close(self._descriptor)


def acquire(directory: Path) -> Instance | int:
    """Take the lock; where another process has it, its id (0: not told). Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_PAUSE)  # `holder` of another process looks whether it is free, and has it for that moment
        else:
            pid = _pid(descriptor)
            os.close(descriptor)
            return pid
    except BaseException:
        os.close(descriptor)
        raise
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return Instance(descriptor)


def holder(directory: Path) -> int | None:
    """The process id of the one that runs (0: not told); None: none does."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def _pid(descriptor: int) -> int:
    try:
        return int(os.pread(descriptor, 20, 0).split()[0])
    except (ValueError, IndexError, OSError):
        return 0
