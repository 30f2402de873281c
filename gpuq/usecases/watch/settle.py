"""Write the records of attempts that were told (their job is still COMPLETING when its end is told), and try again what was
killed for memory."""

from __future__ import annotations

from gpuq.core.attempt import Outcome, Record
from gpuq.core.event import Event, Kind, Problem
from gpuq.core.units import format_size
from gpuq.errors import ConfigError, GpuqError, SubmissionRefused, UsageError
from gpuq.usecases.context import Context
from gpuq.usecases.settle import settle
from gpuq.usecases.watch.endings import project_of
from gpuq.usecases.watch.state import Memory, Unsettled

PAUSES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0)
"""Seconds between tries. COMPLETING lasts 20 ms, or as long as the Epilog takes."""
PATIENCE = 3600.0
"""Seconds after which it is left to whichever command looks next."""


class Settler:
    """Tries again, at growing pauses, until nothing is left of `Memory.unsettled`."""

    def __init__(self, ctx: Context, controller: str) -> None:
        """controller: its name in the keys of events."""
        self._ctx, self._controller = ctx, controller
        self._tries = 0
        self._next = 0.0

    def soon(self) -> None:
        """There is one more."""
        self._tries, self._next = 0, self._ctx.clock.monotonic() + PAUSES[0]

    def next(self, memory: Memory) -> float | None:
        """When to call `work` (monotonic); None: nothing is left."""
        return self._next if memory.unsettled else None

    def work(self, memory: Memory, *, patient: bool = True) -> list[Event]:
        """Try what is left, when it is time (patient=False: now). Returns what is to be told: a retry that came to
        nothing."""
        now = self._ctx.clock.monotonic()
        if not memory.unsettled or (patient and now < self._next):
            return []
        events = []
        at = self._ctx.clock.now().timestamp()
        for key, one in list(memory.unsettled.items()):
            inside = project_of(self._ctx, one.workdir)
            done, why = True, ""
            try:
                if inside is not None:
                    settle(inside, tag=one.tag)
                    record = inside.ledger.read(one.tag, one.attempt)
                    done, why = record.ended is not None, "its end could not be written down for an hour"
                    if done:
                        why = _retry(inside, record)
            except (GpuqError, OSError) as error:
                done, why = False, error.message if isinstance(error, GpuqError) else str(error)
            if not done and at - one.since <= PATIENCE:
                continue
            del memory.unsettled[key]
            if why and one.retry:
                events.append(self._refused(key, one, why))
        self._next = self._ctx.clock.monotonic() + PAUSES[min(self._tries, len(PAUSES) - 1)]
        self._tries += 1
        return events

    def _refused(self, key: str, one: Unsettled, why: str) -> Event:
        """Its end was told with the promise of another attempt, and there is none."""
        name = f"{one.tag} attempt {one.attempt}"
        problem = Problem(
            rule="retry-refused",
            subject=name,
            text=f"{name} was killed for memory, and is not tried again after all: {why}",
            advice=f"gpuq why {one.tag}; gpuq resubmit {one.tag} --mem SIZE",
        )
        return Event(
            key=f"{self._controller}:problem:retry-refused:{key}",
            kind=Kind.PROBLEM,
            time=self._ctx.clock.now(),
            problem=problem,
            subject=name,
        )


def _retry(ctx: Context, record: Record) -> str:
    """Another attempt after a kill for memory, where the configuration wants it. Returns why it was refused for good; empty:
    it was not. Raises SlurmUnreachable: tried again."""
    if record.ended is None or record.ended.outcome is not Outcome.OUT_OF_MEMORY:
        return ""
    from gpuq.usecases.memory.retry import retry_oom

    try:
        made = retry_oom(ctx, record)
    except (SubmissionRefused, UsageError, ConfigError) as error:
        ctx.say(f"warning: {record.name} was killed for memory and is not tried again: {error.message}")
        return error.message
    if made is not None and not made.repeated:
        more = format_size(made.record.request.memory)
        ctx.say(f"note: {record.name} was killed for memory; tried again as {made.record.name} with {more}")
    return ""
