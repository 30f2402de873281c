"""What is known of an ended attempt's memory, folded into its record and its outcome."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpuq.core.attempt import Outcome, Record
from gpuq.core.job import JobEnd
from gpuq.core.memory import oom
from gpuq.core.memory.values import MemorySummary, summary_path


def with_memory(
    record: Record, end: JobEnd, outcome: Outcome, notes: tuple[str, ...]
) -> tuple[Record, Outcome, tuple[str, ...]]:
    """The record with the best that is known of its memory, and the outcome and notes with what that and the log say of
    processes that were killed for memory."""
    memory = better(record.memory, load(Path(summary_path(record.log))))
    record = msgspec.structs.replace(record, memory=memory)
    outcome, notes = oom.weigh(end, outcome, notes, oom.Signs(memory=memory, said=_said(Path(record.log))))
    return record, outcome, notes


def load(path: Path) -> MemorySummary | None:
    """A summary that was written from inside a job; None: there is none, or it cannot be understood."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=MemorySummary)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def better(one: MemorySummary | None, other: MemorySummary | None) -> MemorySummary | None:
    """The one that saw more: a process that counted as killed first, then the higher peak of what is held."""
    if one is None or other is None:
        return one or other
    return max((one, other), key=lambda seen: (seen.oom_kill or 0, seen.held or 0, seen.seconds))


def _said(log: Path) -> str:
    """Slurm's line about it in the log, of the attempt's last start; empty: there is none."""
    from gpuq.adapters import logscan  # only where something has ended
    from gpuq.core.triage.events import last_start

    try:
        if not log.is_file():
            return ""
        found = logscan.scan(log, oom.TEXTS, (*oom.TEXTS, "=== gpuq: started again after"))
    except OSError:
        return ""
    return oom.find(last_start(found))


def fold(record: Record, summary: MemorySummary) -> Record:
    """The record with this summary, if it is better than what is there; and with what it changes of an outcome that was
    recorded before."""
    record = msgspec.structs.replace(record, memory=better(record.memory, summary))
    ended = record.ended
    if ended is None:
        return record
    end = JobEnd(state=ended.state, exit_code=ended.exit_code, signal=ended.signal)
    outcome, notes = oom.weigh(end, ended.outcome, ended.notes, oom.Signs(memory=record.memory))
    return msgspec.structs.replace(record, ended=msgspec.structs.replace(ended, outcome=outcome, notes=notes))
