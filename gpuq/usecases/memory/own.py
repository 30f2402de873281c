"""The memory of the job that this process is in, looked at from inside: for clusters, where nobody else can.

Light on purpose: it runs beside the program for as long as that does.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
from pathlib import Path

import msgspec

from gpuq.adapters.cgroup import locate, read
from gpuq.adapters.files import write_atomic
from gpuq.core.memory.looks import Tally
from gpuq.core.memory.phase import TAIL, phase
from gpuq.core.memory.values import MemorySummary

PACE = 0.5
"""Seconds between two looks: a peak of two seconds is seen whenever it comes."""


class OwnSampler:
    """A thread that looks every PACE seconds. Start it, run the program, stop it, write the summary.

    Without a cgroup of its own (no confinement, a container that hides it) it looks at nothing, and there is no summary.
    """

    def __init__(
        self, *, pace: float = PACE, root: Path = locate.ROOT, proc_root: Path = locate.PROC, keep: Path | None = None
    ) -> None:
        """keep: a file (attemptN.mem.json) in which the summary so far is renewed every minute, for a job that is killed."""
        self._place = locate.of_process("self", root=root, proc_root=proc_root)
        self._proc_root = proc_root
        self._pace = pace
        self._keep = keep
        self._log = "" if keep is None else str(keep).removesuffix(".mem.json") + ".out"
        self._tally = Tally()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look."""
        if self._place is not None and self._thread is None:
            self._look()
            self._thread = threading.Thread(target=self._run, name="gpuq-memory", daemon=True)
            self._thread.start()

    def stop(self) -> MemorySummary | None:
        """Look once more and end; the summary. None: there was nothing to look at."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
            self._thread = None
        if self._place is not None:
            self._look()
        return self._tally.summary("job", over=True)

    def _run(self) -> None:
        kept = 0.0
        while not self._stop.wait(self._pace):
            risen = self._look()
            kept += self._pace
            if self._keep is not None and (kept >= 60 or risen):
                kept = 0.0
                with contextlib.suppress(OSError):  # a full disk must not end the job
                    write(self._keep, self._tally.summary("job"))

    def _look(self) -> bool:
        assert self._place is not None  # noqa: S101 - only then is it called
        reading = read.read(self._place)
        if reading is None:
            return False
        self._tally.add_host(read.available(self._proc_root))
        risen = self._tally.add(reading, datetime.datetime.now(datetime.UTC))
        if risen:
            self._tally.phase = phase_of(self._log)
        return risen


def phase_of(log: str) -> str:
    """How far the log of a running attempt says it is; empty: not known."""
    if not log:
        return ""
    try:
        with open(log, "rb") as handle:  # noqa: PTH123 - light
            handle.seek(max(0, handle.seek(0, 2) - TAIL))
            return phase(handle.read(TAIL))
    except OSError:
        return ""


def write(path: Path, summary: MemorySummary | None) -> None:
    """Write the summary for the command that records the attempt's end. Raises OSError."""
    if summary is not None:
        write_atomic(path, msgspec.json.encode(summary), durable=False)
