"""The watcher's look for problems: what it looks at when, and holding what waits after failures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpuq.core.event import Event, Kind, Queue
from gpuq.core.job import Job, Phase
from gpuq.core.ports import Say
from gpuq.core.watch.problems import judge, next_look
from gpuq.core.watch.rules import View
from gpuq.errors import GpuqError
from gpuq.usecases.context import Context
from gpuq.usecases.watch.look import Look
from gpuq.usecases.watch.parts import Rules
from gpuq.usecases.watch.state import Memory

UNKNOWN = 15.0
"""Seconds until another look where what is pending could not be told."""
DEAD_EVERY = 240.0
DISKS_EVERY = 300.0

Near = dict[str, tuple[int, int]]


class Troubles:
    """`next` says when a problem has lasted, or been gone, for so long that it is to be told."""

    def __init__(self, ctx: Context, look: Look, places: Sequence[Path], controller: str, say: Say) -> None:
        self._ctx, self._look, self._places, self._controller, self._say = ctx, look, list(places), controller, say
        self._next_dead = self._next_disks = 0.0
        self.next: float | None = None

    def find(
        self,
        work: Memory,
        rules: Rules,
        *,
        rows: Sequence[Job] | None,
        near: Near | None,
        queue: Queue | None,
        calm: bool,
    ) -> list[Event]:
        """What is to be told. rows: the user's jobs; None: the queue was not looked at. calm: a look for its own sake, not
        one in the middle of an end."""
        now = self._ctx.clock.monotonic()
        answered = self._look.unanswered == 0
        dead = disks = None
        unsure: frozenset[str] = frozenset()
        if calm and rows is not None and now >= self._next_dead:
            dead, unsure = self._look.dead(rows, silent=rules.silent)
            self._next_dead = now + min(DEAD_EVERY, rules.silent / 2)
        if calm and now >= self._next_disks:
            disks = self._look.disks(self._places)
            self._next_disks = now + DISKS_EVERY
        view = View(
            rows=None if rows is None or not answered else tuple(rows),
            nodes=self._look.nodes() if answered and calm else None,
            unanswered=self._look.unanswered,
            unanswered_why=self._look.why,
            ended=work.ended,
            fast_failures=rules.fast_failures,
            fast_seconds=rules.fast_seconds,
            holds=rules.hold,
            near=near,
            dead=dead,
            unsure=unsure,
            disks=disks,
            disk_free=rules.disk_free,
            full=frozenset(one.problem.subject.removeprefix("disk of ") for one in work.opens.values()),
        )
        at = self._ctx.clock.now().timestamp()
        work.opens, events = judge(work.opens, view, at)
        again = next_look(work.opens)
        # one whose time has come, and of which nothing is known now, must not make us ask without end
        self.next = None if again is None else now + (max(again - at, 1.0) if again > at else UNKNOWN)
        failing = (e.problem for e in events if e.kind is Kind.PROBLEM and e.problem is not None)
        if rules.hold and any(problem.rule == "fast-failures" for problem in failing):
            self._hold(rows or ())
        return [msgspec.structs.replace(event, key=f"{self._controller}:{event.key}", queue=queue) for event in events]

    def _hold(self, rows: Sequence[Job]) -> None:
        numbers = {row.number for row in rows if row.phase is Phase.WAITING and row.priority != 0}
        # From the end: each that is held would let the next one start, and that one is to be held, too.
        for number in sorted(numbers, reverse=True):
            try:
                self._ctx.slurm.hold(number)
            except GpuqError as error:
                self._say(f"job {number} could not be held: {error.message}")
