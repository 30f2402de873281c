"""Change what waits or runs: cancel, hold, release, top, nice, set."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec

from gpuq.core.attempt import Record
from gpuq.core.config import Settings
from gpuq.core.fit import choose_partition, fit
from gpuq.core.job import Job, Phase
from gpuq.core.units import check_number, format_size, slurm_megabytes, slurm_time
from gpuq.errors import ChangeRefused, LedgerError, SubmissionRefused, UsageError
from gpuq.usecases.context import Context
from gpuq.usecases.refs import Target, away, resolve
from gpuq.usecases.settle import settle, settle_if_possible

_SETTLE_STEPS = 12
_SETTLE_PAUSE = 0.25
"""A cancelled job is usually gone within three seconds; longer than that is told, not waited for."""


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to one job."""

    ref: str
    tag: str
    attempt: int | None
    job_id: str
    done: str
    """In words, for a person; of a dry run: what would have been done."""


def cancel(ctx: Context, ref: str, *, dry_run: bool = False) -> Changed:
    """Cancel the latest attempt of a run, or a job. dry_run (here and below): check everything and change nothing.

    Raises NotFound, ChangeRefused, SlurmUnreachable.
    """
    target, job = _changeable(ctx, ref, "cancel")
    if dry_run:
        return _changed(ref, target, job, "cancelled")
    record = target.record
    if record is None:
        ctx.slurm.cancel(job.number)
    else:
        # Under the attempt's lock, so that whoever records its end also finds who cancelled it.
        with ctx.ledger.changing(record) as current:
            ctx.slurm.cancel(job.number)
            record = msgspec.structs.replace(current, cancelled_by=ctx.caller.user)
            ctx.ledger.save(record)
    ended = False
    for _ in range(_SETTLE_STEPS):
        now = ctx.slurm.job(job.number)
        ended = now is None or now.phase is Phase.ENDED
        if ended:
            break
        ctx.clock.sleep(_SETTLE_PAUSE)
    if record is not None:
        settle(ctx, tag=record.tag)
    words = "cancelled" if ended else "cancelled; its processes are being ended (SIGTERM now, SIGKILL after KillWait)"
    return _changed(ref, target, job, words)


def hold(ctx: Context, ref: str, *, dry_run: bool = False) -> Changed:
    """Hold a waiting job. Raises NotFound, ChangeRefused, SlurmUnreachable."""
    return _on_waiting(ctx, ref, "hold", lambda job: ctx.slurm.hold(job.number), "held", dry_run)


def release(ctx: Context, ref: str, *, dry_run: bool = False) -> Changed:
    """Release a held job, or let one start now that has a begin time (requeued ones have).

    Raises NotFound, ChangeRefused (also for one that is neither), SlurmUnreachable.
    """

    def let_go(job: Job) -> None:
        if job.reason == "BeginTime" and not _is_held(job):
            ctx.slurm.update(job.number, {"StartTime": "now"})
        else:
            ctx.slurm.release(job.number)

    return _on_waiting(ctx, ref, "release", let_go, "released", dry_run, check=_releasable)


def _is_held(job: Job) -> bool:
    """A job without a priority is held, whatever reason is shown for it."""
    return job.priority == 0 or "held" in job.reason.lower() or job.state in {"REQUEUE_HOLD", "SPECIAL_EXIT"}


def _releasable(ref: str, target: Target, job: Job) -> None:
    """Raises ChangeRefused."""
    if not _is_held(job) and job.reason != "BeginTime":
        raise ChangeRefused(f"{target.name} is not held", hint=f"gpuq why {ref}")


def top(ctx: Context, ref: str, *, dry_run: bool = False) -> Changed:
    """Move a waiting job before the caller's other waiting jobs (scontrol(1), top).

    Raises NotFound, ChangeRefused (also where the host does not allow it to users), SlurmUnreachable.
    """

    def move(job: Job) -> None:
        try:
            ctx.slurm.top(job.number)
        except ChangeRefused as error:
            raise ChangeRefused(
                error.message,
                hint="users may do this where slurm.conf has SlurmctldParameters=enable_user_top; "
                "or put the others back: gpuq nice OTHER 100",
            ) from None

    def check(ref: str, target: Target, job: Job) -> None:
        if _is_held(job):
            raise ChangeRefused(f"{target.name} is held, and so it is in nobody's order", hint=f"gpuq release {ref}")

    return _on_waiting(ctx, ref, "move", move, "moved to the top of your waiting jobs", dry_run, check=check)


def nice(ctx: Context, ref: str, value: int, *, dry_run: bool = False) -> Changed:
    """Set the nice value of a waiting job: higher means later.

    Raises UsageError, NotFound, ChangeRefused (also for a held job).
    """
    try:
        check_number("nice", value)
    except ValueError as error:
        raise UsageError(f"nice {value}: {error}") from None

    def check(ref: str, target: Target, job: Job) -> None:
        # slurmctld works out a new priority, which is never 0 (seen in 22.05), and 0 is all that holds a job. A part of an
        # array may be held alone.
        parts = [job] if job.whole else [one for one in ctx.slurm.jobs(uid=job.uid) if one.number == job.number]
        if any(_is_held(one) for one in parts if one.phase is Phase.WAITING):
            raise ChangeRefused(
                f"{target.name} is held, and with a new nice value Slurm would let it go",
                hint=f"gpuq release {ref}, then: gpuq nice {ref} {value}",
            )

    return _on_waiting(
        ctx,
        ref,
        "change",
        lambda job: ctx.slurm.update(job.number, {"Nice": str(value)}),
        f"nice is {value} now",
        dry_run,
        check=check,
    )


def set_limits(ctx: Context, ref: str, *, memory: int | None, time: str | None, dry_run: bool = False) -> Changed:
    """Change what a waiting job asks for. memory: bytes; time: a Slurm time limit.

    Raises UsageError, NotFound, ChangeRefused (also when it would not fit), SlurmUnreachable.
    """
    if memory is None and time is None:
        raise UsageError("nothing to set", hint="gpuq set TAG --mem 28G, or --time 8:00:00")
    target, job = _changeable(ctx, ref, "change")
    if job.phase is not Phase.WAITING:
        raise ChangeRefused(
            f"{target.name} is {job.state}; memory and time limit can be changed only while a job waits",
            hint=f"gpuq cancel {ref}" + (f", then: gpuq resubmit {target.record.tag} --mem …" if target.record else ""),
        )
    partitions, nodes = ctx.slurm.offer()
    partition = choose_partition(job.partition.split(",")[0], partitions)
    known = Settings(memory=memory or job.memory, cpus=job.cpus, time=time)
    try:
        fitted = fit(known, gpu=job.has_gpu, hold=False, partition=partition, nodes=nodes)
    except SubmissionRefused as error:
        raise ChangeRefused(error.message, hint=error.hint) from None
    changes, words = {}, []
    if memory is not None:
        # scontrol takes plain megabytes here: `28G` is "Invalid MinMemoryNode value"
        changes["MinMemoryNode"] = str(slurm_megabytes(memory))
        words.append(f"memory is {format_size(memory)} now")
    limit = fitted.request.time_limit
    if limit is not None:
        changes["TimeLimit"] = slurm_time(limit)
        words.append(f"time limit is {slurm_time(limit)} now")
    for note in fitted.notes:
        ctx.say(f"note: {note}")
    if dry_run:
        return _changed(ref, target, job, ", ".join(words))
    ctx.slurm.update(job.number, changes)
    if target.record is not None:
        with ctx.ledger.changing(target.record) as current:
            request = msgspec.structs.replace(
                current.request,
                memory=memory if memory is not None else current.request.memory,
                time_limit=limit if limit is not None else current.request.time_limit,
            )
            ctx.ledger.save(msgspec.structs.replace(current, request=request))
    return _changed(ref, target, job, ", ".join(words))


_DONE = {"hold": "held", "release": "released", "move": "moved", "change": "changed"}


def _on_waiting(
    ctx: Context,
    ref: str,
    verb: str,
    act: Callable[[Job], None],
    done: str,
    dry_run: bool,
    *,
    check: Callable[[str, Target, Job], None] | None = None,
) -> Changed:
    target, job = _changeable(ctx, ref, verb)
    if job.phase is not Phase.WAITING:
        more = (
            "" if job.whole else f"; for those of its tasks that wait: scontrol, scancel --state=PENDING {job.number}"
        )
        words = f"{target.name} is {job.state}; only a waiting job can be {_DONE[verb]}"
        raise ChangeRefused(words, hint=f"gpuq queue{more}")
    if check is not None:
        check(ref, target, job)
    if not dry_run:
        act(job)
    return _changed(ref, target, job, done)


_WHOLE = {"cancel": "gpuq cancel", "hold": "gpuq hold", "release": "gpuq release", "move": "gpuq top"}


def _changeable(ctx: Context, ref: str, verb: str) -> tuple[Target, Job]:
    """The target and its job, when there is one that has not ended and it is the caller's own."""
    settle_if_possible(ctx)
    target = resolve(ctx, ref)
    if target.record is None and target.job is not None and not ref.split(";", 1)[0].isdecimal():
        part = "component of a heterogeneous job" if "+" in ref else "task of an array"
        raise UsageError(
            f"{ref} is one {part}, and gpuq changes whole jobs",
            hint=f"{_WHOLE.get(verb, 'give the whole job,')} {target.job.number}; for the part alone scancel, scontrol",
        )
    record, job = target.record, target.job
    if job is not None and ref.isdecimal() and job.number != int(ref):
        # each task of an array has an id of its own too, and scancel of the array's would end all of them
        raise UsageError(
            f"{ref} is one {'component' if '+' in job.id else 'task'} ({job.id}) of job {job.number}, "
            "and gpuq changes whole jobs",
            hint="scancel, scontrol",
        )
    if job is None or job.phase is Phase.ENDED:
        ended = record.ended if record is not None else None
        if record is not None and record.ended is None and record.job_id is None:
            raise ChangeRefused(f"{record.name} is still being submitted", hint=f"gpuq status {record.tag}")
        if record is not None and job is None and (down := away(ctx, record)) is not None:
            raise down
        how = f" as {ended.outcome.value}" if ended else f" as {job.state}" if job else ""
        _others(ctx, record)
        raise ChangeRefused(f"{target.name} has ended already{how}; there is nothing to {verb}")
    if job.uid != ctx.caller.uid:
        raise ChangeRefused(
            f"job {job.id} ({job.shown}) is {job.user}'s; gpuq changes only your own jobs",
            hint="with the right to do so, use Slurm's own scancel or scontrol",
        )
    _others(ctx, record)
    return target, job


def _others(ctx: Context, record: Record | None) -> None:
    """A TAG means its latest attempt; say so when earlier ones are open too."""
    if record is None:
        return
    others = [e for e in ctx.ledger.open_entries() if e.tag == record.tag and e.attempt != record.attempt]
    if others:
        jobs = []
        for entry in others:
            with contextlib.suppress(LedgerError):  # being submitted at this moment, it may have no record yet
                jobs.append(str(ctx.ledger.read(entry.tag, entry.attempt).job_id))
        named = f"job{'s' if len(jobs) != 1 else ''} {', '.join(jobs) or '?'}"
        ctx.say(f"note: this is about {record.name}; other attempts of it are open too: {named}")


def _changed(ref: str, target: Target, job: Job, done: str) -> Changed:
    return Changed(
        ref=ref,
        tag=target.record.tag if target.record else job.name,
        attempt=target.record.attempt if target.record else None,
        job_id=str(job.number),
        done=done,
    )
