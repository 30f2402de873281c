"""The log sink: one line for each notice, on stderr (the journal, when the watcher is a service) or in a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gpuq.core.notice import Notice
from gpuq.core.notify.delivery import Answer, Delivered, Retry


class LogSink:
    """file: None for stderr. It is opened for each notice, so it may be rotated at any time."""

    def __init__(self, name: str, file: Path | None) -> None:
        self._name = name
        self._file = file

    def send(self, notice: Notice, key: str) -> Answer:  # noqa: ARG002 - a person reads it
        """See gpuq.core.notify.delivery.Sink."""
        raw = (line_of(notice) + "\n").encode()
        try:
            if self._file is None:
                sys.stderr.buffer.write(raw)
                sys.stderr.flush()
                return Delivered()
            self._file.parent.mkdir(parents=True, exist_ok=True)
            # one write(2) with O_APPEND: lines of two writers do not mix, and a full disk leaves half a line at worst
            # O_NONBLOCK: a FIFO that nobody reads must not keep the watcher waiting
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
            descriptor = os.open(self._file, flags, 0o600)
            try:
                done = os.write(descriptor, raw)
            finally:
                os.close(descriptor)
        except OSError as error:
            return Retry(f"{self._file or 'stderr'}: {error.strerror}")
        except ValueError:
            return Retry("stderr is closed")
        return Delivered() if done == len(raw) else Retry(f"{self._file}: only part of a line could be written")

    def close(self) -> None:
        """Nothing is held between deliveries."""


def line_of(notice: Notice) -> str:
    """`2026-03-01T12:00:00+00:00 bad job_ended dino/lr3e-4 attempt 3 FAILED after 1h12m; Exit code 1. Next: ...`"""
    text = " ".join(notice.text.split())
    when = notice.time.isoformat(timespec="seconds")
    return f"{when} {notice.level} {notice.kind} {notice.title}" + (f"; {text}" if text else "")
