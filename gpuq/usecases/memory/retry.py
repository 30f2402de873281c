"""Another attempt by itself, with more memory, after one that was killed for it ([retry] oom in the configuration)."""

from __future__ import annotations

import re

import msgspec

from gpuq.adapters.configfiles import run_settings
from gpuq.core.attempt import Outcome, Record
from gpuq.core.config import Settings, merge
from gpuq.core.fit import choose_partition, most_memory
from gpuq.core.memory import sizing
from gpuq.core.units import format_size
from gpuq.errors import SubmissionRefused
from gpuq.usecases.context import Context
from gpuq.usecases.draft import Options
from gpuq.usecases.submit import Submission, submit_run


class Planned(msgspec.Struct, frozen=True):
    """The attempt with which another one is tried again."""

    attempt: int
    memory: int
    """Bytes."""
    made: bool
    """False: the watcher will make it."""

    @property
    def words(self) -> str:
        """For a person."""
        return f"as attempt {self.attempt} with {format_size(self.memory)}"


_KEY = re.compile(r"gpuq-retry-oom-([1-9][0-9]*)")


def retry_oom(ctx: Context, record: Record) -> Submission | None:
    """The next attempt of a run whose attempt `record` ended OUT_OF_MEMORY, where the configuration wants it.

    Always a new attempt, with half as much again, at most what a node has. None: it is not wanted, has been done as
    often as it may be, the node has no more, or somebody submitted the run again meanwhile. Doing it twice submits once.
    Raises what a submission raises.
    """
    plan = planned(ctx, record, say=True)
    if plan is None:
        return None
    options = Options(flags=Settings(memory=plan.memory), key=_key(record))
    return submit_run(ctx, record.tag, options, again=record.request)


def _key(record: Record) -> str:
    return f"gpuq-retry-oom-{record.attempt}"


def planned(ctx: Context, record: Record, *, say: bool = False) -> Planned | None:
    """What `retry_oom` does of this record, without doing it. say: tell where a node has no more.

    Raises what Slurm raises.
    """
    if record.ended is None or record.ended.outcome is not Outcome.OUT_OF_MEMORY:
        return None
    settings = merge([ctx.project.below, run_settings(ctx.ledger.run_dir(record.tag)), ctx.project.environment])
    allowed = settings.retry_oom or 0
    key = _key(record)
    later = [one for one in ctx.ledger.records(record.tag, sound=True) if one.attempt > record.attempt]
    if not allowed or _retries(ctx, record) >= allowed or any(one.key != key for one in later):
        return None
    if later:
        return Planned(later[0].attempt, later[0].request.memory, True)
    memory = _more(ctx, record, say)
    return None if memory is None else Planned(max(ctx.ledger.attempts(record.tag)) + 1, memory, False)


def _retries(ctx: Context, record: Record) -> int:
    """How many attempts in a row before this one were made by `retry_oom`."""
    known = {one.attempt: one for one in ctx.ledger.records(record.tag, sound=True)}
    count, at = 0, record
    while (match := _KEY.fullmatch(at.key or "")) and int(match[1]) in known and int(match[1]) < at.attempt:
        count, at = count + 1, known[int(match[1])]
    return count


def _more(ctx: Context, record: Record, say: bool) -> int | None:
    """Bytes: half as much again, at most what the largest fitting node has; None: it had that already."""
    partitions, nodes = ctx.slurm.offer()
    most = most_memory(choose_partition(record.request.partition, partitions), nodes, gpu=record.request.gpu)
    if not most:
        raise SubmissionRefused(f"no node for {record.name} is known", hint="sinfo")
    before = [one for one in ctx.ledger.records(record.tag, sound=True) if one.attempt <= record.attempt]
    had = max(record.request.memory, sizing.killed_at(before))
    if had >= most:
        if say:
            which = record.name if record.request.memory >= most else f"{record.tag} before {record.name}"
            ctx.say(f"note: {which} had all the memory that a node has ({format_size(most)}); it is not tried again")
        return None
    return min(most, sizing.round_up(int(had * sizing.AFTER_OOM)))
