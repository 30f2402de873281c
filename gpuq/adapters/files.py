"""The one place that writes files which outlive a command: aside, fsynced, renamed."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path


def is_there(path: Path) -> bool:
    """True where there is something at `path`; False also where this user may not look (Path.exists raises then)."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def write_atomic(path: Path, data: bytes | str, *, mode: int = 0o644, durable: bool = True) -> None:
    """Replace `path` by `data` so that a reader, or a crash at any instant, finds the old or the new content.

    A temporary sibling is written, fsynced, given `mode`, renamed over `path`, and the directory fsynced
    (rename(2) is atomic within one file system; without the fsyncs a power cut may leave an empty file, which
    is what `durable=False` accepts).
    Raises OSError; the temporary file is removed then.
    """
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as handle:
            handle.write(raw)
            handle.flush()
            os.fchmod(handle.fileno(), mode)  # the umask does not decide here
            if durable:
                os.fsync(handle.fileno())
        aside.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()
        raise
    if durable:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make a rename or unlink in `directory` durable (fsync(2) on the directory)."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(source: Path, target: Path) -> None:
    """Give a file or a tree another name: a rename, or a copy where `target` is on another file system. Raises OSError."""
    import shutil  # only here

    shutil.move(source, target)
