"""The queue in a notice: how much is left, what runs next, and when all of it is done."""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Iterable, Mapping, Sequence

from gpuq.core.event import Queue
from gpuq.core.host.partitions import BACKGROUND
from gpuq.core.job import Job, Phase
from gpuq.core.reason import never_cures

Durations = Mapping[str, Sequence[int]]
"""Seconds that past jobs took, by name, the latest last."""

_LONGEST = 366 * 86400
"""Seconds ahead that an estimate may lie."""


def queue_facts(rows: Iterable[Job], durations: Durations, now: datetime.datetime) -> Queue:
    """rows: the user's jobs that have not ended, without those that are ending."""
    left = [row for row in rows if row.phase in {Phase.RUNNING, Phase.WAITING}]
    running = [row for row in left if row.phase is Phase.RUNNING]
    waiting = [row for row in left if row.phase is Phase.WAITING]
    able = [row for row in waiting if row.priority != 0 and not never_cures(row.reason)]
    able.sort(
        key=lambda row: (
            _begins(row, now),
            bool(row.dependency),
            row.partition == BACKGROUND,
            -row.priority,
            row.number,
        )
    )
    running.sort(key=lambda row: (not row.has_gpu, row.number))
    nearest = running[0] if running else able[0] if able else None
    return Queue(
        running=len(running),
        waiting=len(waiting),
        next_name=nearest.name if nearest else "",
        next_id=nearest.id if nearest else "",
        drained=_drained([*running, *able], durations, now),
    )


def _begins(row: Job, now: datetime.datetime) -> datetime.datetime:
    """`now`, or later where it may not start before: Slurm lets a requeued job wait two minutes."""
    return max(row.start, now) if row.reason == "BeginTime" and row.start is not None else now


def _drained(rows: Sequence[Job], durations: Durations, now: datetime.datetime) -> datetime.datetime | None:
    """When the GPU jobs among `rows` have run one after the other, each as long as its like did before; None: none has."""
    everything = [seconds for ones in durations.values() for seconds in ones]
    usual = statistics.median(everything) if everything else None
    end = now
    mine = [row for row in rows if row.has_gpu]
    for row in mine:
        before = durations.get(row.name)
        expected = statistics.median(before) if before else usual
        if expected is None:
            return None
        if row.time_limit is not None:
            expected = min(expected, row.time_limit)
        left = max(expected - row.elapsed, 0.0) if row.phase is Phase.RUNNING else expected
        end = max(end, _begins(row, now))
        if left + (end - now).total_seconds() > _LONGEST:
            return None
        end += datetime.timedelta(seconds=left)
    return end if mine else None
