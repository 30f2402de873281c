"""`gpuq mem -f`: one job, looked at again and again."""

from __future__ import annotations

import math

from gpuq.core.job import Phase
from gpuq.core.memory.looks import Tally
from gpuq.errors import SlurmUnreachable
from gpuq.usecases.context import Context
from gpuq.usecases.memory.report import View, view_of
from gpuq.usecases.memory.sample import HOST, Finder, Roots
from gpuq.usecases.refs import Target, current_record, resolve
from gpuq.usecases.settle import settle_if_possible

ASK = 5.0
"""Seconds between two questions to Slurm whether a job still runs whose cgroup is there."""


class Follower:
    """Looks at what `ref` means. Slurm is asked now and then, and where the cgroup is gone: then the job is probably over.

    A Slurm that does not answer meanwhile (a restart) is no reason to look away.
    """

    def __init__(self, ctx: Context, ref: str, *, roots: Roots = HOST) -> None:
        """Raises UsageError, NotFound, and what Slurm raises."""
        settle_if_possible(ctx)
        self._ctx, self._roots = ctx, roots
        self._target = resolve(ctx, ref)
        self._finder = Finder(ctx, roots)
        self._seen = False
        self._asked = -math.inf
        self._tally = Tally()

    def look(self) -> View:
        """The view now. Raises what Slurm raises, where nothing else can be seen."""
        if self._seen and self._ctx.clock.monotonic() - self._asked < ASK:
            one = self._view()
            if one.now is not None:
                return one
            self._seen = False
        self._ask()
        if not self._seen:
            self._finder = Finder(self._ctx, self._roots)  # what it was told before may be of an earlier start
        one = self._view()
        self._seen = one.now is not None
        return one

    def _view(self) -> View:
        one = view_of(self._ctx, self._target, self._roots, self._finder, self._tally.summary("mem"))
        if one.now is not None:
            self._tally.add(one.now, self._ctx.clock.now())
        return one

    def _ask(self) -> None:
        ctx, record, job = self._ctx, self._target.record, self._target.job
        if job is not None:
            try:
                job = ctx.slurm.job(job.number, part="" if job.whole else job.id)
            except SlurmUnreachable:
                if not self._seen:
                    raise
        self._asked = ctx.clock.monotonic()
        if record is not None and (job is None or job.phase is Phase.ENDED):
            settle_if_possible(ctx, tag=record.tag)
            record = current_record(ctx, record)
        self._target = Target(self._target.text, record, job)
