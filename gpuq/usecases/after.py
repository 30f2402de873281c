"""`--after X` and `--after-ok X`: X becomes a dependency, nothing (it has been satisfied), or a refusal."""

from __future__ import annotations

import msgspec

from gpuq.core.attempt import Outcome, Record
from gpuq.core.job import Job, Phase
from gpuq.core.tag import is_job_id
from gpuq.errors import NotFound, SubmissionRefused
from gpuq.usecases.context import Context
from gpuq.usecases.refs import Target, resolve, tag_of
from gpuq.usecases.settle import settle

ANY = "afterany"
OK = "afterok"


class After(msgspec.Struct, frozen=True):
    """One `--after` (kind afterany) or `--after-ok` (afterok) as given."""

    kind: str
    ref: str


class Resolved(msgspec.Struct, frozen=True):
    """A dependency for sbatch (None: none is needed) and what to tell a person."""

    dependency: str | None
    note: str = ""


def resolve_after(ctx: Context, after: After, partition: str) -> Resolved:
    """What `after` comes to now. Raises SubmissionRefused, NotFound, UsageError."""
    option = "--after-ok" if after.kind == OK else "--after"
    if after.ref == "last":
        return _last(ctx, after.kind, partition)
    try:
        if not is_job_id(after.ref):
            settle(ctx, tag=tag_of(ctx, after.ref))
        target = resolve(ctx, after.ref)
    except NotFound as error:
        if after.kind == ANY or not is_job_id(after.ref):
            raise
        raise SubmissionRefused(
            f"{option} {after.ref}: nobody knows any more how that job ended: {error.message}",
            hint="use --after (whatever its outcome) if that is what you mean",
        ) from None
    job = target.job
    if job is not None and job.phase is not Phase.ENDED:
        return Resolved(f"{after.kind}:{_id(after.ref, job)}")
    if target.record is not None and target.record.job_id is None and target.record.ended is None:
        raise SubmissionRefused(
            f"{option} {after.ref}: {target.record.name} is still being submitted",
            hint=f"gpuq status {target.record.tag}",
        )
    record = _ended_record(ctx, target)
    if record is not None and record.ended is None and job is None:
        raise SubmissionRefused(
            f"{option} {after.ref}: whether {target.name} has ended cannot be told from here"
            + (f"; it was submitted to another controller ({record.controller})" if _elsewhere(ctx, record) else ""),
            hint=f"gpuq status {record.tag}",
        )
    if after.kind == ANY:
        return Resolved(None, f"{target.name} has ended already; nothing to wait for")
    if record is not None and record.ended is not None:
        if record.ended.outcome is Outcome.SUCCEEDED:
            return Resolved(None, f"{target.name} has succeeded already; nothing to wait for")
        notes = "; ".join(record.ended.notes)
        raise SubmissionRefused(
            f"{option} {after.ref}: {target.name} ended as {record.ended.outcome.value}"
            + (f" ({notes})" if notes else ""),
            hint=f"gpuq resubmit {record.tag}, then: gpuq submit … --after-ok {record.tag}",
        )
    if job is not None:
        end = ctx.slurm.end_of(job)
        if job.state == "COMPLETED" and end.exit_code == 0 and end.signal == 0:
            return Resolved(None, f"{target.name} has succeeded already; nothing to wait for")
        raise SubmissionRefused(
            f"{option} {after.ref}: {target.name} ended as {job.state} ({end.exit_code}:{end.signal})",
            hint="use --after (whatever its outcome) if that is what you mean",
        )
    raise SubmissionRefused(f"{option} {after.ref}: nobody knows any more how {target.name} ended")


def _ended_record(ctx: Context, target: Target) -> Record | None:
    """The record of a target whose job has ended, brought up to date."""
    record = target.record
    if record is None or record.ended is not None:
        return record
    settle(ctx, tag=record.tag)
    return ctx.ledger.read(record.tag, record.attempt)


def _elsewhere(ctx: Context, record: Record) -> bool:
    return record.controller != ctx.controller


def _last(ctx: Context, kind: str, partition: str) -> Resolved:
    """The job that was submitted last of all that are in the partition now, whoever's it is."""
    waiting = [
        job for job in ctx.slurm.jobs() if job.phase is not Phase.ENDED and partition in job.partition.split(",")
    ]
    if not waiting:
        return Resolved(None, f"partition {partition} is empty; nothing to wait for")
    last = max(waiting, key=lambda job: job.number)
    return Resolved(f"{kind}:{last.number}", f"last is job {last.number} ({last.shown})")


def _id(ref: str, job: Job) -> str:
    return ref if "_" in ref else str(job.number)
