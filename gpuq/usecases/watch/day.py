"""What the watcher knows of days that are past: how long jobs took, and the digest."""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Sequence

from gpuq.adapters.store.events import EventStore
from gpuq.core.event import Event, Kind
from gpuq.core.job import Job, Phase
from gpuq.core.watch.digest import digest
from gpuq.usecases.watch.state import Memory

_NAMES, _EACH = 200, 5
"""How many names are remembered, and how many durations of each."""


class Day:
    """Durations of past jobs, for estimates; and when the next digest is due."""

    def __init__(self, store: EventStore) -> None:
        self.durations: dict[str, deque[int]] = {}
        for event in store.latest_events(_NAMES, (Kind.JOB_ENDED,)):
            self.add(event)

    def add(self, event: Event) -> None:
        """A job ended."""
        ending = event.ending
        if ending is None or ending.elapsed is None or not ending.gpu:
            return
        self.durations[ending.name] = ones = self.durations.pop(ending.name, None) or deque(maxlen=_EACH)
        ones.append(ending.elapsed)
        while len(self.durations) > _NAMES:
            del self.durations[next(iter(self.durations))]

    def due(self, clock: str, now: datetime.datetime, last: str) -> str | None:
        """The local day whose digest is to be told now; None: it has been, or its time has not come."""
        day = now.astimezone().date()
        return day.isoformat() if last != day.isoformat() and now >= edge(clock, day) else None


def edge(clock: str, day: datetime.date) -> datetime.datetime:
    """When it was `clock` on a local day: 23 to 25 hours after it was on the day before. Of an hour that comes twice it is
    the first one; a time that clocks pass over is an hour off."""
    at = datetime.datetime.combine(day, datetime.time.fromisoformat(clock))
    return at.astimezone(datetime.UTC)  # without a zone it is a local time


def digest_event(
    name: str,
    clock: str,
    day: str,
    now: datetime.datetime,
    store: EventStore,
    rows: Sequence[Job],
    memory: Memory,
) -> Event:
    """The day up to `clock` of `day`: no minute is in two digests, or in none. name: the controller's, in the key."""
    last = datetime.date.fromisoformat(day)
    since, until = edge(clock, last - datetime.timedelta(days=1)), edge(clock, last)
    running = [
        (row.start.timestamp(), now.timestamp())
        for row in rows
        if row.has_gpu and row.start is not None and row.phase in {Phase.RUNNING, Phase.ENDING}
    ]
    before = store.latest_before(since, (Kind.QUEUE_EMPTY, Kind.ONE_LEFT, Kind.JOB_ENDED, Kind.ARRAY_ENDED))
    value = digest(
        since,
        until,
        store.events(since, now + datetime.timedelta(seconds=1)),
        running=running,
        seen=memory.seen,
        problems=[(one.problem.rule, one.since) for one in memory.opens.values() if one.told],
        empty_before=before is not None and before.kind is Kind.QUEUE_EMPTY,
        empty=not memory.state.left,
    )
    return Event(key=f"{name}:digest:{day}", kind=Kind.DIGEST, time=now, digest=value)
