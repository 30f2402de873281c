"""The kernel log, where this user may read it: /dev/kmsg, else dmesg(1)."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from gpuq.adapters import proc
from gpuq.core.gpu.xid import KernelLine, read_dmesg, read_kmsg

KMSG = Path("/dev/kmsg")

_RECORD = 16384
"""Bytes. A record of /dev/kmsg is read whole or not at all (EINVAL)."""


def lines(kmsg: Path = KMSG, *, boot: datetime.datetime | None, dmesg: bool = True) -> list[KernelLine] | None:
    """What the kernel still remembers, the oldest first; None: it may not be read. boot: when the kernel started."""
    raw = _records(kmsg)
    if raw is not None:
        text = raw.decode("utf-8", "replace")
        return [line for record in text.split("\n") if (line := read_kmsg(record, boot)) is not None]
    if not dmesg:
        return None
    try:
        result = proc.run(["dmesg"], timeout=10, env={**os.environ, "LC_ALL": "C"})
    except (proc.ProgramMissing, proc.ProgramTimeout, OSError):
        return None
    return [read_dmesg(line, boot) for line in result.stdout.splitlines()] if result.ok else None


def _records(kmsg: Path) -> bytes | None:
    try:
        descriptor = os.open(kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    found: list[bytes] = []
    try:
        while True:
            try:
                record = os.read(descriptor, _RECORD)
            except BlockingIOError:
                break  # the end, for now
            except BrokenPipeError:
                continue  # records were overwritten before they were read: it goes on with the oldest there is
            except OSError:
                return None
            if not record:
                break
            found.append(record)
    finally:
        os.close(descriptor)
    return b"".join(found)
