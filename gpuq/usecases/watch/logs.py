"""The logs of running attempts, read from a kept place on while somebody wants to know what they tell.

They are looked at and not watched by the kernel: a progress bar writes many times a second, each write would wake us, and a
log on a network's file system wakes nobody. A look is one stat(2).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from gpuq.core.event import Event, Kind
from gpuq.core.watch.facts import Watched
from gpuq.core.watch.log import Followed, started, take, tell
from gpuq.usecases.context import Context
from gpuq.usecases.watch.endings import attempt_of
from gpuq.usecases.watch.parts import Rules
from gpuq.usecases.watch.state import Memory

EVERY = 2.0
"""Seconds between two looks."""
_BLOCK = 1024 * 1024
"""Bytes that are read at most at one look; of what lies before them nothing is told."""


class Logs:
    """`follow` after each snapshot, `look` in each cycle that is late enough for it (`next`)."""

    def __init__(self, ctx: Context, controller: str) -> None:
        self._ctx, self._controller = ctx, controller
        self._without: set[str] = set()
        """Running jobs that have no log that is known."""
        self._next = 0.0

    def next(self, memory: Memory) -> float | None:
        """When to look (monotonic); None: there is no log to look at."""
        return self._next if memory.logs else None

    def follow(
        self, work: Memory, before: Mapping[str, Watched], rules: Rules, *, first: bool, pushed: bool
    ) -> list[Event]:
        """Begin with the logs of jobs that began, and leave those of jobs that are over. before: the jobs of the snapshot
        before. first: there was none. pushed: endings are pushed, so that no log is needed to know of them soon."""
        wanted = rules.wants(Kind.JOB_STARTED), rules.wants(Kind.PROGRESS)
        running = {
            f"{job.id}:{job.start}": (key, job) for key, job in work.state.jobs.items() if job.running and job.start
        }
        self._without &= running.keys()
        kept = {key: one for key, one in work.logs.items() if key in running}
        events = []
        for name, (key, job) in running.items():
            assert job.start is not None  # noqa: S101 - only such were chosen
            was = before.get(key)
            new = not first and (was is None or was.start != job.start)
            log = "" if name in kept or name in self._without else self._log(job, name, any(wanted) or not pushed)
            if log:
                kept[name] = self._begin(job, log, new)
            elif new and wanted[0] and name not in kept:
                events.append(started(self._controller, job.id, job.start, job.name))
        work.logs = kept
        return events

    def _log(self, job: Watched, name: str, wanted: bool) -> str:
        if not wanted:
            return ""
        found = attempt_of(self._ctx, job.workdir, job.name, job.number, (job.submit,), job.comment)
        if found is None or not found[1].log:
            self._without.add(name)
            return ""
        return found[1].log

    def _begin(self, job: Watched, log: str, new: bool) -> Followed:
        offset = 0
        if not new:  # what it wrote before anybody looked is no news
            try:
                offset = os.stat(log).st_size  # noqa: PTH116 - may be any text
            except (OSError, ValueError):
                offset = 0
        self._next = 0.0
        return Followed(
            path=log,
            name=job.name,
            job_id=job.id,
            start=job.start or 0,
            since=self._ctx.clock.now().timestamp(),
            offset=offset,
            started=not new,
        )

    def look(self, work: Memory, rules: Rules) -> tuple[list[Event], bool]:
        """What is to be told, and whether a program has written its last line since: then its job is about to end."""
        now = self._ctx.clock.monotonic()
        if not work.logs or now < self._next:
            return [], False
        self._next = now + EVERY
        at = self._ctx.clock.now().timestamp()
        events: list[Event] = []
        over = False
        logs = dict(work.logs)
        every = rules.progress if rules.wants(Kind.PROGRESS) else None
        for key, one in logs.items():
            after = _read(one)
            over = over or (after.over and not one.over)
            after, told = tell(after, at, self._controller, start=rules.wants(Kind.JOB_STARTED), progress=every)
            events += told
            if after != one:
                logs[key] = after
        work.logs = logs
        return events, over


def _read(followed: Followed) -> Followed:
    try:
        size = os.stat(followed.path).st_size  # noqa: PTH116 - may be any text
        if size == followed.offset:
            return followed
        offset = followed.offset if size > followed.offset else 0  # somebody has cut it
        with open(followed.path, "rb") as handle:  # noqa: PTH123
            offset = max(offset, size - _BLOCK)
            handle.seek(offset)
            data = handle.read(_BLOCK)
    except (OSError, ValueError):  # not there yet; ValueError: a NUL in its name
        return followed
    whole = data.rfind(b"\n") + 1
    if not whole and len(data) < _BLOCK:
        return followed if offset == followed.offset else msgspec.structs.replace(followed, offset=offset)
    return take(followed, data[:whole], offset + (whole or len(data)))
