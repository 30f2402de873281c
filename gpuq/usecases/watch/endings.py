"""From "this job is over" to what a person wants to know: outcome, cause, score, the last lines of its log.

A job of any project: its working directory leads to the project, its name to the run, its id to the attempt. Where one
of them leads nowhere (not submitted through gpuq, deleted meanwhile), Slurm's word is what there is.
"""

from __future__ import annotations

import contextlib
import datetime
from pathlib import Path

import msgspec

from gpuq.adapters import logfile
from gpuq.adapters.configfiles import find_project, outside_snapshot
from gpuq.adapters.ledger import Ledger
from gpuq.core.attempt import Outcome, Record, judge, read_comment
from gpuq.core.event import Ending, Event, Kind, Queue
from gpuq.core.job import Job, JobEnd, Phase
from gpuq.core.tag import check_tag
from gpuq.core.watch.facts import Over
from gpuq.core.watch.log import evidence
from gpuq.errors import GpuqError
from gpuq.usecases.context import Context
from gpuq.usecases.settle import judged

TAIL_LINES, TAIL_LINE, TAIL = 60, 300, 8000
"""Lines of a log that are told of a failure, characters of each, and of all."""
_MOST_TASKS = 50
_CANCEL_LOOKS, _CANCEL_PAUSE = 20, 0.05


def project_of(ctx: Context, workdir: str) -> Context | None:
    """The context of the project in which a job was submitted; None where there is none (any more)."""
    if not workdir.startswith("/"):
        return None
    if workdir == str(ctx.project.root):
        return ctx
    try:
        place = outside_snapshot(Path(workdir))
        if not place.is_dir():
            return None
        project = find_project(place, ctx.environment)
    except (GpuqError, OSError):
        return None
    return msgspec.structs.replace(ctx, project=project, ledger=Ledger(project.runs))


def attempt_of(
    ctx: Context, workdir: str, name: str, number: int, submits: tuple[int, ...], comment: str = ""
) -> tuple[Context, Record] | None:
    """The record of a job; None: it is no attempt of a project that is still there."""
    inside = project_of(ctx, workdir)
    if inside is None:
        return None
    mark = read_comment(comment) if comment else None
    try:
        tag = check_tag(name)
        for attempt in reversed(inside.ledger.attempts(tag)):
            with contextlib.suppress(GpuqError):
                record = inside.ledger.read(tag, attempt)
                if mark is not None:
                    if record.token == mark[1]:
                        return inside, record
                # a requeue has a later submit time, never an earlier one (whole seconds)
                elif record.job_id == number and record.uid == ctx.caller.uid and record.controller == ctx.controller:
                    submitted = record.submitted or record.reserved
                    if max(submits) >= int(submitted.timestamp()) - 1:
                        return inside, record
    except (GpuqError, ValueError, OSError):
        return None
    return None


def whole_end(ctx: Context, over: Over) -> JobEnd | None:
    """How it ended, with what its first source left out asked for. Raises what Slurm raises."""
    end = over.end
    if end is None:
        return None
    lacking = end.source == "squeue" or (end.source == "jobcomp" and end.end is None)
    if not lacking and not (end.state == "CANCELLED" and not end.reason and end.start is None):
        return end
    row = ctx.slurm.job(over.number, part=over.id if "_" in over.id else "")
    if row is None or row.phase is not Phase.ENDED or not _is_of(row, over):
        return end
    return ctx.slurm.end_of(row)


def _is_of(row: Job, over: Over) -> bool:
    return row.submit is not None and int(row.submit.timestamp()) in over.submits


def ended_event(ctx: Context, over: Over, queue: Queue | None, now: datetime.datetime) -> tuple[Event, Record | None]:
    """The event that tells of one job, and the record of the attempt as it is on disk now (None: there is none)."""
    if over.tasks is not None:
        return _array_event(over, queue, now), None
    with contextlib.suppress(GpuqError):  # Slurm went away: what the first source said has to do
        over = msgspec.structs.replace(over, end=whole_end(ctx, over))
    found = attempt_of(ctx, over.workdir, over.name, over.number, over.submits, over.comment)
    ending = _plain(over.id, over, over.end)
    if found is not None:
        if over.end is not None and over.end.state.startswith("CANCELLED"):
            found = found[0], _by_whom(found[0], found[1])
        try:
            ending = _of_record(found[0], over, found[1])
        except Exception as error:  # whatever lies in a run's directory: the end is told all the same
            ctx.say(f"job {over.id}: its run could not be looked at: {type(error).__name__}: {error}")
    event = Event(key=over.key, kind=Kind.JOB_ENDED, time=min(ending.end or now, now), ending=ending, queue=queue)
    return event, None if found is None else found[1]


def _by_whom(inside: Context, record: Record) -> Record:
    """The record once `gpuq cancel` has written who cancelled it: a waiting job has ended before scancel has returned."""
    if record.ended is not None or record.cancelled_by:
        return record
    for _ in range(_CANCEL_LOOKS):
        with contextlib.suppress(GpuqError, OSError):
            claim = inside.ledger.claim(record.token, record.tag, record.attempt, wait=False)
            if claim is not None:
                try:
                    return inside.ledger.read(record.tag, record.attempt)
                finally:
                    claim.close()
        inside.clock.sleep(_CANCEL_PAUSE)
    return record


def _of_record(ctx: Context, over: Over, record: Record) -> Ending:
    if record.ended is None or (record.ended.outcome is Outcome.LOST and over.end is not None):
        if over.end is None:
            return msgspec.structs.replace(
                _plain(over.id, over, None), name=record.tag, attempt=record.attempt, log=record.log
            )
        record = judged(ctx, record, over.end)
    ended = record.ended
    assert ended is not None  # noqa: S101 - judged
    failed = ended.outcome not in {Outcome.SUCCEEDED, Outcome.CANCELLED}
    tail = log_tail(Path(record.log)) if failed else ""
    cause = _cause(ctx, record) if failed else "; ".join(_own(ended.notes, ended.outcome))
    said = evidence(tail) if ended.outcome is Outcome.FAILED else ""
    if said and said not in cause:
        cause = f"{cause.rstrip('.')}; {said}" if cause else said
    score = record.request.score or ""
    return Ending(
        job_id=over.id,
        name=record.tag,
        user=over.user,
        attempt=record.attempt,
        outcome=ended.outcome.value,
        state=ended.state,
        cause=cause,
        exit_code=ended.exit_code,
        signal=ended.signal,
        start=ended.start,
        end=ended.end,
        elapsed=_elapsed(ended.start, ended.end),
        score=ended.score,
        score_name=score.partition(":")[2] if ended.score is not None else "",
        notes=() if failed else tuple(n for n in ended.notes if n not in _own(ended.notes, ended.outcome)),
        log=record.log,
        log_tail=tail,
        project=record.project,
        gpu=record.request.gpu,
        retry=_retry(ctx, record),
    )


def _retry(ctx: Context, record: Record) -> str:
    """As what an attempt that was killed for memory is tried again; empty: it is not."""
    if record.ended is None or record.ended.outcome is not Outcome.OUT_OF_MEMORY:
        return ""
    from gpuq.usecases.memory.retry import planned

    with contextlib.suppress(GpuqError, OSError):
        if (plan := planned(ctx, record)) is not None:
            return plan.words
    return ""


def _own(notes: tuple[str, ...], outcome: Outcome) -> tuple[str, ...]:
    """Notes that say why: of a cancelled one who did it."""
    return notes if outcome is Outcome.CANCELLED else ()


def _cause(ctx: Context, record: Record) -> str:
    from gpuq.usecases.why.answer import why_ended  # the rules of the diagnosis: only for what failed

    assert record.ended is not None  # noqa: S101 - only such are handed in
    if record.ended.outcome is Outcome.LOST:
        return "; ".join(record.ended.notes)
    try:
        return why_ended(ctx, record).headline
    except (GpuqError, OSError, ValueError):
        return "; ".join(record.ended.notes)


def _plain(name: str, over: Over, end: JobEnd | None) -> Ending:
    """By Slurm's word alone."""
    base = Ending(
        job_id=name,
        name=over.name,
        user=over.user,
        outcome=Outcome.LOST.value,
        cause="Slurm no longer knows the job and left no record of it",
        project=over.workdir,
        gpu=over.gpu,
    )
    if end is None:
        return base
    outcome, notes = judge(end, [])
    return msgspec.structs.replace(
        base,
        outcome=outcome.value,
        state=end.state,
        cause="; ".join(notes),
        exit_code=end.exit_code,
        signal=end.signal,
        start=end.start,
        end=end.end,
        elapsed=_elapsed(end.start, end.end),
    )


def _array_event(over: Over, queue: Queue | None, now: datetime.datetime) -> Event:
    outcomes: dict[str, int] = {}
    bad: list[Ending] = []
    ends = dict.fromkeys(over.lost_tasks) | (over.tasks or {})
    for name, end in sorted(ends.items(), key=lambda one: (len(one[0]), one[0])):
        ending = _plain(name, over, end)
        outcomes[ending.outcome] = outcomes.get(ending.outcome, 0) + tasks_in(name)
        if ending.outcome != Outcome.SUCCEEDED.value:
            bad.append(ending)
    starts = [end.start for end in ends.values() if end is not None and end.start is not None]
    stops = [end.end for end in ends.values() if end is not None and end.end is not None]
    worst = "SUCCEEDED" if not bad else bad[0].outcome
    whole = Ending(
        job_id=over.id,
        name=over.name,
        user=over.user,
        outcome=worst,
        start=min(starts, default=None),
        end=max(stops, default=None),
        elapsed=_elapsed(min(starts, default=None), max(stops, default=None)),
        project=over.workdir,
        gpu=over.gpu,
    )
    return Event(
        key=over.key,
        kind=Kind.ARRAY_ENDED,
        time=min(max(stops, default=now), now),
        ending=whole,
        tasks=tuple(bad[:_MOST_TASKS]),
        task_outcomes=outcomes,
        queue=queue,
    )


def tasks_in(name: str) -> int:
    """How many tasks an id stands for: `12_[1-3,7%2]` for four."""
    inside = name.partition("_[")[2].rstrip("]").partition("%")[0]
    if not inside:
        return 1
    count = 0
    for part in inside.split(","):
        first, dash, rest = part.partition("-")
        last, _, step = rest.partition(":")
        try:
            count += len(range(int(first), int(last) + 1, int(step or 1))) if dash else len([int(part)])
        except ValueError:  # squeue cuts long lists: `12_[1-3,...]`
            continue
    return max(count, 1)


def log_tail(path: Path) -> str:
    """The last lines of a log that say something; of a progress bar the last frame."""
    try:
        lines, _ = logfile.last_lines(path, 4 * TAIL_LINES)
    except (OSError, ValueError):
        return ""
    kept = [line.rstrip()[:TAIL_LINE] for line in lines if line.strip()][-TAIL_LINES:]
    while len(kept) > 1 and sum(map(len, kept)) + len(kept) > TAIL:
        kept.pop(0)
    return "\n".join(kept)


def _elapsed(start: datetime.datetime | None, end: datetime.datetime | None) -> int | None:
    return int((end - start).total_seconds()) if start is not None and end is not None else None
