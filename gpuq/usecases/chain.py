"""Submit several runs, each after the one before: all of them or none."""

from __future__ import annotations

import contextlib

import msgspec

from gpuq.core.attempt import Record
from gpuq.core.job import Phase
from gpuq.errors import ChangeRefused, GpuqError, LedgerError, ScriptRefused, SubmissionRefused
from gpuq.usecases.after import ANY, After, resolve_after
from gpuq.usecases.context import Context
from gpuq.usecases.draft import Draft, Options, prepare
from gpuq.usecases.submit import Interrupted, Submission, Unwritten, find_by_key, submit, withdraw


def chain(ctx: Context, tags: list[str], options: Options, *, kind: str = ANY) -> list[Submission]:
    """Submit `tags` in order; each waits for the one before (kind: afterany or afterok), the first for
    `options.after`.

    Everything is checked before anything is submitted. The first job is held until the last is accepted, so that
    nothing has started when one is refused; what was accepted is cancelled then, and nothing is left behind. With a
    key, a call that died half-way is completed by the next one.
    """
    links = [_link(ctx, tag, options, index) for index, tag in enumerate(tags)]
    first = links[0]
    if isinstance(first, Draft) and len(links) > 1 and not options.hold:
        links[0] = msgspec.structs.replace(first, start_held=True)
    made: list[Submission] = []
    try:
        for link in links:
            if isinstance(link, Submission):
                made.append(link)
            else:
                made.append(submit(ctx, _after(ctx, link, made[-1] if made else None, kind)))
        if len(made) > 1 and not options.hold:
            _let_go(ctx, made[0])
    except Unwritten as error:  # its job is there, and would run when the one before it is cancelled
        cause = LedgerError(error.message, hint="make room, then the same command again")
        _undo(ctx, [*made, Submission(record=error.record)], cause)
        raise cause from None
    except Interrupted as error:
        if made:
            made += _taken(ctx, error.record)
        _undo(ctx, made, error)
        raise
    except BaseException as error:
        _undo(ctx, made, error)
        raise
    return made


def preview_chain(ctx: Context, tags: list[str], options: Options) -> list[Draft | Submission]:
    """Check a chain without submitting anything (--dry-run); Submission: was submitted with the same key before."""
    return [_link(ctx, tag, options, index, dry_run=True) for index, tag in enumerate(tags)]


def _own(options: Options, index: int) -> Options:
    """The options of one link: only the first waits for `options.after` and for a release, each has a key of its own."""
    return msgspec.structs.replace(
        options,
        after=options.after if index == 0 else (),
        hold=options.hold and index == 0,
        key=None if options.key is None else f"{options.key}#{index + 1}",
    )


def _link(ctx: Context, tag: str, options: Options, index: int, *, dry_run: bool = False) -> Draft | Submission:
    """What is to be submitted, or what an earlier call with the same key has submitted."""
    own = _own(options, index)
    return find_by_key(ctx, tag, own, dry_run=dry_run) or _prepare(ctx, tag, own)


def _prepare(ctx: Context, tag: str, options: Options) -> Draft:
    """`prepare`, whose refusal says which run of the chain it is about."""
    try:
        return prepare(ctx, tag, options)
    except ScriptRefused:
        raise  # names the file
    except SubmissionRefused as error:
        raise SubmissionRefused(f"{tag}: {error.message}", hint=error.hint) from None


def _after(ctx: Context, draft: Draft, before: Submission | None, kind: str) -> Draft:
    if before is None:
        return draft
    dependency: str | None = f"{kind}:{before.record.job_id}"
    if before.repeated:  # it may have ended meanwhile
        dependency = resolve_after(ctx, After(kind, str(before.record.job_id)), draft.partition).dependency
    if dependency is None:
        return draft
    return msgspec.structs.replace(draft, dependencies=(*draft.dependencies, dependency))


def _let_go(ctx: Context, first: Submission) -> None:
    assert first.record.job_id is not None  # noqa: S101 - it was accepted
    if first.repeated and not _held(ctx, first.record.job_id):
        return
    try:
        ctx.slurm.release(first.record.job_id)
    except ChangeRefused:  # it has begun: another call with the same key has let it go
        if _held(ctx, first.record.job_id):
            raise


def _held(ctx: Context, job_id: int) -> bool:
    job = ctx.slurm.job(job_id)
    return job is not None and job.phase is Phase.WAITING and job.reason == "JobHeldUser"


def _taken(ctx: Context, record: Record) -> list[Submission]:
    """The job of an attempt that was being submitted a moment ago, where Slurm has it: it would run when the one before it
    is cancelled."""
    ctx.clock.sleep(0.5)  # slurmctld may be taking it
    with contextlib.suppress(GpuqError):  # then nothing can be cancelled either
        for job in ctx.slurm.jobs(uid=ctx.caller.uid):
            if job.comment.strip() == record.comment:
                return [Submission(record=msgspec.structs.replace(record, job_id=job.number))]
    return []


def _undo(ctx: Context, made: list[Submission], cause: BaseException) -> None:
    """Cancel in reverse order, so that no job's wait is satisfied by the cancelling of the one before it."""
    for submission in reversed(made):
        if submission.repeated:
            continue
        try:
            withdraw(ctx, submission.record)
        except GpuqError as error:
            ctx.say(
                f"warning: {submission.record.name} (job {submission.record.job_id}) is still there: {error.message}"
            )
    if any(not submission.repeated for submission in made):
        ctx.say(f"note: the chain was not submitted ({type(cause).__name__}); what Slurm had accepted was cancelled")
