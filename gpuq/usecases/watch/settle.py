"""Write the records of attempts that were told: their job is still COMPLETING when its end is told."""

from __future__ import annotations

from gpuq.core.attempt import Outcome, Record
from gpuq.core.units import format_size
from gpuq.errors import ConfigError, GpuqError, SubmissionRefused, UsageError
from gpuq.usecases.context import Context
from gpuq.usecases.settle import settle
from gpuq.usecases.watch.endings import project_of
from gpuq.usecases.watch.state import Memory

PAUSES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0)
"""Seconds between tries. COMPLETING lasts 20 ms, or as long as the Epilog takes."""
PATIENCE = 3600.0
"""Seconds after which it is left to whichever command looks next."""


class Settler:
    """Tries again, at growing pauses, until nothing is left of `Memory.unsettled`."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._tries = 0
        self._next = 0.0

    def soon(self) -> None:
        """There is one more."""
        self._tries, self._next = 0, self._ctx.clock.monotonic() + PAUSES[0]

    def next(self, memory: Memory) -> float | None:
        """When to call `work` (monotonic); None: nothing is left."""
        return self._next if memory.unsettled else None

    def work(self, memory: Memory, *, patient: bool = True) -> None:
        """Try what is left, when it is time (patient=False: now)."""
        now = self._ctx.clock.monotonic()
        if not memory.unsettled or (patient and now < self._next):
            return
        at = self._ctx.clock.now().timestamp()
        for key, one in list(memory.unsettled.items()):
            inside = project_of(self._ctx, one.workdir)
            try:
                if inside is None:
                    del memory.unsettled[key]
                    continue
                settle(inside, tag=one.tag)
                record = inside.ledger.read(one.tag, one.attempt)
                if record.ended is not None:
                    _retry(inside, record)
                if record.ended is not None or at - one.since > PATIENCE:
                    del memory.unsettled[key]
            except (GpuqError, OSError):
                if at - one.since > PATIENCE:
                    del memory.unsettled[key]
        self._next = self._ctx.clock.monotonic() + PAUSES[min(self._tries, len(PAUSES) - 1)]
        self._tries += 1


def _retry(ctx: Context, record: Record) -> None:
    """Another attempt after a kill for memory, where the configuration wants it. Raises SlurmUnreachable: tried again."""
    if record.ended is None or record.ended.outcome is not Outcome.OUT_OF_MEMORY:
        return
    from gpuq.usecases.memory.retry import retry_oom

    try:
        made = retry_oom(ctx, record)
    except (SubmissionRefused, UsageError, ConfigError) as error:
        ctx.say(f"warning: {record.name} was killed for memory and is not tried again: {error.message}")
        return
    if made is not None and not made.repeated:
        more = format_size(made.record.request.memory)
        ctx.say(f"note: {record.name} was killed for memory; tried again as {made.record.name} with {more}")
