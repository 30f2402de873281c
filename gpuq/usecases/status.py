"""What was tried and how it ended: the runs and their attempts, from the records."""

from __future__ import annotations

import datetime

import msgspec

from gpuq.adapters.files import is_there
from gpuq.core.attempt import Record
from gpuq.core.job import Job
from gpuq.core.reason import reason_words
from gpuq.core.tag import is_job_id
from gpuq.errors import LedgerError, NotFound, SlurmUnreachable
from gpuq.usecases.context import Context
from gpuq.usecases.refs import away as away_of
from gpuq.usecases.refs import job_of, require_run, resolve
from gpuq.usecases.settle import settle_if_possible, shown_score


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt for a reader. Sizes in bytes, durations in seconds, times aware."""

    tag: str
    attempt: int
    job_id: int | None
    outcome: str | None
    """None while it has not ended."""
    state: str
    """Slurm's state now, or its last one; SUBMITTING while Slurm is not known to have it."""
    reason: str
    reason_words: str
    exit_code: int | None
    signal: int | None
    score: float | None
    submitted: datetime.datetime | None
    start: datetime.datetime | None
    end: datetime.datetime | None
    elapsed: int | None
    restarts: int
    memory: int
    cpus: int
    gpu: bool
    time_limit: int | None
    dependencies: tuple[str, ...]
    notes: tuple[str, ...]
    log: str
    script: str
    git_commit: str | None
    git_dirty: bool | None
    key: str | None
    left: str = ""
    """Where the files are that the job wrote into its snapshot; empty: there are none."""


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its attempts, ascending (only the latest one in an overview)."""

    tag: str
    attempts: tuple[AttemptView, ...]


def overview(ctx: Context) -> tuple[list[RunView], SlurmUnreachable | None]:
    """Every run with its latest attempt; and, when Slurm does not answer, that: the records are shown all the same,
    with state UNKNOWN for what has not ended."""
    away: SlurmUnreachable | None = None
    rows: dict[str, Job] | None = None
    everybody = False
    try:
        settle_if_possible(ctx)
    except SlurmUnreachable as error:
        away, rows, everybody = error, {}, True
    runs = []
    for tag in ctx.ledger.tags():
        try:
            record = ctx.ledger.latest(tag)
        except LedgerError as error:  # of one run; the others are shown all the same
            ctx.say(f"warning: {error.message}")
            continue
        if record is not None and record.ended is None and away is None:
            away = away_of(ctx, record)
        if record is not None and record.ended is None:
            foreign = record.uid != ctx.caller.uid
            if rows is None or (foreign and not everybody):  # once, and once more where a run is somebody else's
                everybody = foreign
                rows = {job.comment.strip(): job for job in ctx.slurm.jobs(uid=None if foreign else ctx.caller.uid)}
        if record is not None and record.ended is None and away is None and record.comment not in (rows or {}):
            # its entry in the index is gone, or was empty after a power cut: the index is not written through
            settle_if_possible(ctx, tag=tag)
            record = ctx.ledger.latest(tag)
        shown = () if record is None else (_with_score(ctx, record, (rows or {}).get(record.comment)),)
        runs.append(RunView(tag=tag, attempts=shown))
    return runs, away


def status(ctx: Context, ref: str) -> tuple[RunView, SlurmUnreachable | None]:
    """One run with all its attempts, or the one attempt that a job id names; and Slurm's silence, as in `overview`.
    Its cost does not grow with the queue.

    Raises UsageError, NotFound; for a job id also SlurmUnreachable.
    """
    if is_job_id(ref):
        target = resolve(ctx, ref)
        if target.record is None:
            raise NotFound(
                f"{target.name} was not submitted by gpuq from this project", hint=f"scontrol show job {ref}"
            )
        settle_if_possible(ctx, tag=target.record.tag)
        record = ctx.ledger.read(target.record.tag, target.record.attempt)
        return RunView(tag=record.tag, attempts=(_with_score(ctx, record, target.job),)), None
    tag = require_run(ctx, ref)
    away: SlurmUnreachable | None = None
    try:
        settle_if_possible(ctx, tag=tag)
    except SlurmUnreachable as error:
        away = error
    views = []
    for record in ctx.ledger.records(tag):
        away = away or away_of(ctx, record)
        job = job_of(ctx, record) if record.ended is None and away is None else None
        views.append(_with_score(ctx, record, job))
    return RunView(tag=tag, attempts=tuple(views)), away


def _with_score(ctx: Context, record: Record, job: Job | None) -> AttemptView:
    """The score and what the snapshot left are looked up on disk, where they can be."""
    left = ""
    if record.ended is not None and record.provenance is not None and record.provenance.snapshot is not None:
        path = ctx.ledger.path(record.tag, record.attempt, "left")
        left = str(path) if is_there(path) else ""
    return msgspec.structs.replace(view(record, job), score=shown_score(ctx, record), left=left)


def view(record: Record, job: Job | None) -> AttemptView:
    """A record, with the job's row as it is now where it has not ended."""
    ended = record.ended
    if ended is not None:
        state, reason = ended.state or "UNKNOWN", ended.reason
        start, end = ended.start, ended.end
        elapsed = int((end - start).total_seconds()) if start and end else None
    elif job is not None:
        state, reason, start, end = job.state, job.reason, job.start, None
        elapsed = job.elapsed
    else:
        state = "SUBMITTING" if record.job_id is None else "UNKNOWN"
        reason, start, end, elapsed = "", None, None, None
    return AttemptView(
        tag=record.tag,
        attempt=record.attempt,
        job_id=record.job_id,
        outcome=ended.outcome.value if ended else None,
        state=state,
        reason=reason,
        reason_words=reason_words(reason) if not ended else "",
        exit_code=ended.exit_code if ended else None,
        signal=ended.signal if ended else None,
        score=ended.score if ended else None,
        submitted=record.submitted,
        start=start,
        end=end,
        elapsed=elapsed,
        restarts=ended.restarts if ended else 0,
        memory=record.request.memory,
        cpus=record.request.cpus,
        gpu=record.request.gpu,
        time_limit=record.request.time_limit,
        dependencies=record.dependencies,
        notes=ended.notes if ended else (),
        log=record.log,
        script=record.script,
        git_commit=record.git_commit,
        git_dirty=record.git_dirty,
        key=record.key,
    )
