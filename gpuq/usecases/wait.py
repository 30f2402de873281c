"""Wait until attempts or jobs have ended. Always returns."""

from __future__ import annotations

import contextlib
import datetime

import msgspec

from gpuq.core.attempt import Outcome, Record, judge
from gpuq.core.dependency import dependency_words
from gpuq.core.job import Job, Phase
from gpuq.core.reason import never_cures, reason_words
from gpuq.core.tag import read_job_id
from gpuq.core.waits.chain import follow, roots
from gpuq.errors import EXIT_OUTCOME, EXIT_STILL_RUNNING, GpuqError, SlurmUnreachable
from gpuq.usecases.context import Context
from gpuq.usecases.refs import away, can_see_end, current_record, job_of, resolve, whose
from gpuq.usecases.settle import settle, settle_if_possible

FASTEST = 0.25
SLOWEST = 5.0
"""Seconds between two looks at the queue; the pauses grow, so that a long wait costs the controller little."""

HELD_PATIENCE = 10.0
"""Seconds. A job that stays held so long waits for a person, and a wait for it would not return. Shorter holds are
gpuq's own: the first job of a chain is held until the last is accepted."""

UNREACHABLE_PATIENCE = 120.0
"""Seconds for which a controller may be away (restarting, say) before the wait gives up."""


class Waited(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one awaited reference."""

    ref: str
    tag: str
    attempt: int | None
    job_id: int | None
    outcome: str | None
    """None: it has not ended (the time is over, or it never will without help)."""
    state: str
    notes: tuple[str, ...] = ()
    score: float | None = None
    log: str | None = None
    exit_code: int
    """Of `gpuq wait` for this one."""


class _Awaited:
    """One reference on its way to an end."""

    def __init__(self, ref: str, record: Record | None, job: Job | None, now: datetime.datetime) -> None:
        self.ref = ref
        self.record = record
        self.job = job
        job_id = read_job_id(ref)
        self.part = job_id.part if job_id else ""
        """The task or component that is awaited; empty: the whole job."""
        if record is None and job and job_id and job_id.number != job.number:
            self.part = job.id  # by an id of its own, which each part has, too
        self.since = job.submit if job and job.submit else now
        self.told = ""
        self.why = ""
        self.held_since: float | None = None
        self.done: Waited | None = None
        self.end_told = False


def wait(ctx: Context, refs: list[str], *, any_: bool = False, timeout: float | None = None) -> list[Waited]:
    """Wait for all references (any_: for the first that ends) or `timeout` seconds; results in the order given.

    A job that can never start without help (its dependency failed, it asks for more than there is) is not waited
    for: it is returned as not ended, with the reason. Raises UsageError, NotFound, and SlurmUnreachable when the
    controller stays away for two minutes.
    """
    settle_if_possible(ctx)
    awaited = []
    for ref in refs:
        target = resolve(ctx, ref)
        record = target.record
        if record is not None and record.uid != ctx.caller.uid and target.job is not None:
            record = None  # only its owner's commands write the record
        if record is not None and (down := away(ctx, record)) is not None:
            raise down
        awaited.append(_Awaited(ref, record, target.job, ctx.clock.now()))
    return _wait(ctx, awaited, any_, timeout)


def wait_for(ctx: Context, records: list[Record]) -> list[Waited]:
    """Wait for the end of these attempts."""
    now = ctx.clock.now()
    return _wait(ctx, [_Awaited(r.tag, r, None, now) for r in records], any_=False, timeout=None)


def _wait(ctx: Context, awaited: list[_Awaited], any_: bool, timeout: float | None) -> list[Waited]:
    started = ctx.clock.monotonic()
    pause = FASTEST
    away_since: float | None = None
    while True:
        try:
            _look(ctx, [one for one in awaited if one.done is None])
            away_since = None
        except SlurmUnreachable as error:
            now = ctx.clock.monotonic()
            if away_since is None:
                away_since = now
                ctx.say(f"warning: {error.message}; waiting for it to come back")
            if now - away_since > UNREACHABLE_PATIENCE:
                raise
        open_ = [one for one in awaited if one.done is None]
        ended = any(one.done is not None and one.done.outcome is not None for one in awaited)
        if open_ and not (any_ and ended):  # else the results tell at once
            _tell_ended(ctx, awaited)
        if not open_ or (any_ and ended):
            break
        if timeout is not None:
            left = started + timeout - ctx.clock.monotonic()
            if left <= 0:
                break
            pause = min(pause, left)
        ctx.clock.sleep(pause)
        pause = min(pause * 1.3, SLOWEST)
    return [one.done or _not_ended(one, one.why) for one in awaited]


def _tell_ended(ctx: Context, awaited: list[_Awaited]) -> None:
    """Say of each that has ended that it has, once: the others may take hours."""
    for one in awaited:
        if one.done is not None and not one.end_told:
            one.end_told = True
            name = one.record.name if one.record is not None else one.ref
            ctx.say(
                f"note: {name} (job {one.done.job_id}) has ended: {one.done.outcome}"
                if one.done.outcome
                else f"note: {name} (job {one.done.job_id}) is not waited for: {'; '.join(one.done.notes)}"
            )


def combined_exit_code(results: list[Waited], *, any_: bool) -> int:
    """0 when everything awaited succeeded; else the code of the first, in the order given, that did not.

    any_: the code of the first that ended.
    """
    if any_:
        ended = [one for one in results if one.outcome is not None]
        return ended[0].exit_code if ended else EXIT_STILL_RUNNING
    return next((one.exit_code for one in results if one.exit_code), 0)


def _look(ctx: Context, awaited: list[_Awaited]) -> None:
    if any(one.record is not None and one.record.ended is None for one in awaited):
        for tag in {one.record.tag for one in awaited if one.record is not None}:
            settle(ctx, tag=tag)
    for one in awaited:
        if one.record is not None:
            one.record = current_record(ctx, one.record)
            if one.record.ended is not None:
                one.done = _ended(one.ref, one.record, _again(ctx, one.record))
            elif not can_see_end(ctx, one.record):
                one.done = _not_ended(one, "its end cannot be seen from here: " + whose(ctx, one.record))
            elif one.record.job_id is not None:
                one.job = job_of(ctx, one.record)
        elif one.job is not None:
            _without_record(ctx, one, ctx.slurm.job(one.job.number, part=one.part))
        if one.done is None and one.job is not None:
            _tell(ctx, one, one.job)


def _without_record(ctx: Context, one: _Awaited, job: Job | None) -> None:
    """A job that gpuq did not submit from this project: only Slurm's word counts."""
    before = one.job
    assert before is not None  # noqa: S101 - a reference without a record has a job
    if job is not None and job.phase is not Phase.ENDED:
        one.job = job
        return
    end = None
    if job is not None:
        end = ctx.slurm.end_of(job)
    else:
        end = ctx.slurm.finished(before.number, uid=before.uid, name=before.name, since=one.since, part=one.part)
    outcome, notes = (Outcome.LOST, ()) if end is None else judge(end, [])
    one.done = Waited(
        ref=one.ref,
        tag=before.name,
        attempt=None,
        job_id=before.number,
        outcome=outcome.value,
        state=end.state if end else "UNKNOWN",
        notes=notes,
        exit_code=0 if outcome is Outcome.SUCCEEDED else EXIT_OUTCOME[outcome.value],
    )


def _tell(ctx: Context, one: _Awaited, job: Job) -> None:
    """Say where a job stands, once each; give up on one that can never start by itself."""
    words = reason_words(job.reason) if job.phase is Phase.WAITING else ""
    if words and never_cures(job.reason):
        one.done = _not_ended(one, f"{words}; gpuq cancel {one.ref}, or change it with gpuq set")
        return
    held = job.reason.startswith("JobHeld")
    if held:
        words += f"; it starts after: gpuq release {one.ref}"
    elif job.reason == "Dependency":
        words = dependency_words(job.dependency)
        root = _stuck_root(ctx, job)
        if root is not None:
            held = True
            words += f"; job {root.id} ({root.shown}), which that comes down to, is {reason_words(root.reason)}"
            words += f"; gpuq why {root.id}"
    if held:
        one.held_since = ctx.clock.monotonic() if one.held_since is None else one.held_since
        if ctx.clock.monotonic() - one.held_since >= HELD_PATIENCE:
            one.done = _not_ended(one, words)
            return
    else:
        one.held_since = None
    one.why = words
    stands = f"{job.state}{': ' if words else ''}{words}"
    if one.told != stands:
        one.told = stands
        ctx.say(f"note: {one.record.name if one.record else one.ref} (job {job.id}) is {stands}")


def _stuck_root(ctx: Context, job: Job) -> Job | None:
    """The job at the end of its chain of dependencies that will not start by itself: held, or asking for too much."""
    if "?" in job.dependency:  # one of several will do
        return None
    for link in roots(follow(job, ctx.slurm.jobs(ended=True))):
        above = link.job
        if above is None or above.phase is not Phase.WAITING:
            continue
        if above.reason.startswith("JobHeld") or never_cures(above.reason):
            return above
    return None


def _again(ctx: Context, record: Record) -> tuple[str, ...]:
    """As what an attempt that was killed for memory is tried again ([retry] oom)."""
    if record.ended is None or record.ended.outcome is not Outcome.OUT_OF_MEMORY:
        return ()
    from gpuq.usecases.memory.retry import planned

    with contextlib.suppress(GpuqError, OSError):
        if (plan := planned(ctx, record)) is not None:
            return (f"{'tried again' if plan.made else 'gpuq watch, where it runs, tries it again'} {plan.words}",)
    return ()


def _ended(ref: str, record: Record, again: tuple[str, ...]) -> Waited:
    assert record.ended is not None  # noqa: S101 - asked before
    outcome = record.ended.outcome
    return Waited(
        ref=ref,
        tag=record.tag,
        attempt=record.attempt,
        job_id=record.job_id,
        outcome=outcome.value,
        state=record.ended.state,
        notes=(*record.ended.notes, *again),
        score=record.ended.score,
        log=record.log,
        exit_code=0 if outcome is Outcome.SUCCEEDED else EXIT_OUTCOME[outcome.value],
    )


def _not_ended(one: _Awaited, note: str) -> Waited:
    record, job = one.record, one.job
    return Waited(
        ref=one.ref,
        tag=record.tag if record else job.name if job else one.ref,
        attempt=record.attempt if record else None,
        job_id=record.job_id if record else job.number if job else None,
        outcome=None,
        state=job.state if job else "UNKNOWN",
        notes=(note,) if note else (),
        log=record.log if record else None,
        exit_code=EXIT_STILL_RUNNING,
    )
