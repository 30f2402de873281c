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
    signs = oom.Signs(memory=memory, said=_said(Path(record.log)), asked=record.request.memory)
    outcome, notes = oom.weigh(end, outcome, notes, signs)
    return record, outcome, notes


def load(path: Path) -> MemorySummary | None:
    """A summary that was written from inside a job; None: there is none, or it cannot be understood."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=MemorySummary)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None
    return found if found.is_sane else None


_MOST = (
    "cache", "usage", "peak", "near_limit", "limit_hits", "refaults", "stalled", "stalled_full", "oom", "oom_kill",
    "gpu_memory",
)  # fmt: skip
"""What only rises: where two have looked, the higher counts."""
_ELSE = ("phase", "limit", "gpu_utilization", "cgroup")
"""Taken from the other where the one that saw more does not tell."""


def better(one: MemorySummary | None, other: MemorySummary | None) -> MemorySummary | None:
    """What two that looked at one attempt (the watcher, `gpuq run` in the job) have seen together: what it held from the one
    that saw more (a process that counted as killed first, then the higher peak), the rest from both."""
    if one is None or other is None:
        return one or other
    best = max((one, other), key=lambda seen: (seen.oom_kill or 0, seen.held or 0, seen.seconds))
    rest = other if best is one else one
    found: dict[str, object] = {name: getattr(rest, name) for name in _ELSE if not getattr(best, name)}
    for name in _MOST:
        told = [value for seen in (one, other) if (value := getattr(seen, name)) is not None]
        found[name] = max(told, default=None)
    free = [seen.host_available for seen in (one, other) if seen.host_available is not None]
    since = [seen.since for seen in (one, other) if seen.since is not None]
    until = [seen.until for seen in (one, other) if seen.until is not None]
    return msgspec.structs.replace(
        best,
        host_available=min(free, default=None),
        since=min(since, default=None),
        until=max(until, default=None),
        **found,
    )


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
    outcome, notes = oom.weigh(
        end, ended.outcome, ended.notes, oom.Signs(memory=record.memory, asked=record.request.memory)
    )
    return msgspec.structs.replace(record, ended=msgspec.structs.replace(ended, outcome=outcome, notes=notes))
