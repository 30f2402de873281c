"""Submit a run: check it, take an attempt number, hand it to sbatch, and make sure that it holds the GPU."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpuq.adapters import machine
from gpuq.adapters.ledger import Claim
from gpuq.core.attempt import Record, Request, read_comment
from gpuq.core.batch import job_environment, sbatch_argv
from gpuq.core.experiment.provenance import Provenance
from gpuq.core.job import Job, gpu_count
from gpuq.core.ports import Accepted, InDoubt
from gpuq.errors import GpuqError, LedgerError, SlurmUnreachable, SubmissionRefused
from gpuq.usecases.context import Context
from gpuq.usecases.draft import Draft, Options, prepare
from gpuq.usecases.refs import can_see_end, tag_of, whose
from gpuq.usecases.settle import PATIENCE, drop, settle


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that was made, or (`repeated`) that an earlier call with the same key had made."""

    record: Record
    draft: Draft | None = None
    repeated: bool = False
    notes: tuple[str, ...] = ()


def submit(ctx: Context, draft: Draft) -> Submission:
    """Make the submission. Exactly one job comes of it, or none and nothing is left behind.

    Raises SubmissionRefused, SlurmUnreachable (also when it is not known whether Slurm took the job: the attempt
    stays reserved then, and the next command finds out), LedgerError.
    """
    while True:
        sketch = _sketch(ctx, draft)

        def make(number: int, sketch: Record = sketch) -> tuple[Record, str]:
            return _numbered(ctx, draft, sketch, number), draft.script

        record, claim = ctx.ledger.reserve(
            draft.tag, sketch.token, make, find=lambda: _by_key(ctx, draft.tag, draft.key)
        )
        if claim is None:
            found = _await_key(ctx, record)
            if found is not None:
                return Submission(record=found, draft=draft, repeated=True)
            continue  # the earlier submission with this key turned out never to have been made
        try:
            return _submit_claimed(ctx, draft, record, claim)
        finally:
            claim.close()


def preview(ctx: Context, draft: Draft, before: int = 0) -> Record:
    """The record as it would be if nothing came between but `before` attempts of the same run (--dry-run). Reserves
    nothing."""
    return _numbered(ctx, draft, _sketch(ctx, draft), ctx.ledger.next_number(draft.tag) + before)


def submit_run(ctx: Context, text: str, options: Options, *, again: Request | None = None) -> Submission:
    """Prepare and submit; with a key that was used before for this run, return what was submitted then."""
    return find_by_key(ctx, text, options) or submit(ctx, prepare(ctx, text, options, again=again))


def find_by_key(ctx: Context, text: str, options: Options, *, dry_run: bool = False) -> Submission | None:
    """What an earlier call with this key submitted for this run; None: nothing, or there is no key.

    dry_run: where Slurm may or may not have taken that, it is taken for submitted instead of finding out.
    """
    earlier = None if options.key is None else _by_key(ctx, tag_of(ctx, text), options.key)
    found = earlier if earlier is None or dry_run else _await_key(ctx, earlier)
    if found is None:
        return None
    from gpuq.core.repeat import unlike  # only where a key is used again

    other = unlike(found.request, options.flags, cpu_only=options.cpu_only, fill=options.fill, hold=options.hold)
    notes = [f"not as asked for here: {', '.join(other)}; another --key submits another attempt"] if other else []
    if found.job_id is None and found.ended is None:
        notes.append(f"whether Slurm took {found.name} is not known yet; without --dry-run that is found out first")
    return Submission(record=found, repeated=True, notes=tuple(notes))


def withdraw(ctx: Context, record: Record) -> None:
    """Take a submission back: cancel its job, and drop the attempt unless it had begun to run.

    Raises ChangeRefused, SlurmUnreachable.
    """
    claim = ctx.ledger.claim(record.token, record.tag, record.attempt, wait=True)
    assert claim is not None  # noqa: S101 - wait=True never gives up
    try:
        _take_back(ctx, record, claim)
    finally:
        claim.close()


def _sketch(ctx: Context, draft: Draft) -> Record:
    """The record of a draft but for what its number decides."""
    commit, dirty = draft.commit
    token = machine.new_token()
    return Record(
        tag=draft.tag,
        attempt=0,
        token=token,
        request=draft.request,
        argv=(),
        script="",
        script_sha256=draft.script_sha256,
        log="",
        project=str(ctx.project.root),
        user=ctx.caller.user,
        uid=ctx.caller.uid,
        host=ctx.caller.host,
        reserved=ctx.clock.now(),
        key=draft.key,
        git_commit=commit,
        git_dirty=dirty,
        dependencies=draft.dependencies,
        controller=ctx.controller,
        provenance=_in_snapshot(ctx, token) if draft.snapshot else None,
    )


def _in_snapshot(ctx: Context, token: str) -> Provenance:
    from gpuq.adapters.snapshot import project_in

    return Provenance(snapshot=str(project_in(ctx.ledger.root, token, ctx.project.root)))


def _numbered(ctx: Context, draft: Draft, sketch: Record, number: int) -> Record:
    record = msgspec.structs.replace(
        sketch,
        attempt=number,
        script=str(ctx.ledger.path(draft.tag, number, "sh")),
        log=str(ctx.ledger.path(draft.tag, number, "out")),
        reserved=ctx.clock.now(),
    )
    asked = msgspec.structs.replace(draft.request, hold=True) if draft.start_held else draft.request
    argv = sbatch_argv(msgspec.structs.replace(record, request=asked))
    return msgspec.structs.replace(record, argv=("sbatch", *argv))


def _submit_claimed(ctx: Context, draft: Draft, record: Record, claim: Claim) -> Submission:
    from gpuq.usecases.experiment.provenance import Look

    look = Look(ctx, draft)
    notes = []
    try:
        if draft.snapshot:
            from gpuq.usecases.experiment.snapshot import freeze

            notes += freeze(ctx, record, look.patch())
        accepted, job, note = _sbatch(ctx, record, claim.descriptor, meanwhile=lambda: look.work(ctx, record))
    except _Unknown as doubt:
        look.drop()
        raise SlurmUnreachable(
            f"{doubt}; whether it took {record.name} is not known yet, and nothing is submitted twice",
            hint=f"gpuq status {record.tag} finds out once Slurm answers",
        ) from None
    except GpuqError:
        look.drop()
        drop(ctx, record, claim)
        raise
    except KeyboardInterrupt:
        look.drop()
        ctx.say(f"note: interrupted while Slurm was given {record.name}; gpuq status {record.tag} tells if it has it")
        raise Interrupted(record) from None
    record = msgspec.structs.replace(record, job_id=accepted.job_id, cluster=accepted.cluster)
    if job is not None:
        record = msgspec.structs.replace(record, submitted=job.submit)
    record, changed = look.noted(ctx, record)
    notes += [one for one in (note, changed) if one]
    try:
        ctx.ledger.save(record)
        claim.note_submitted()
    except LedgerError as error:  # the job is there all the same
        raise Unwritten(record, error.message) from None
    wanted = 1 if record.request.gpu else 0
    if job is not None and gpu_count(job.gres) != wanted:
        _take_back(ctx, record, claim)
        raise SubmissionRefused(
            f"Slurm took the job {'without its one GPU' if wanted else 'with a GPU that it must not have'} "
            f"(TresPerNode is {job.gres or 'empty'}); it was cancelled",
            hint="look for a job_submit plugin, or a wrapper of sbatch, that changes --gres: type -a sbatch",
        )
    return Submission(record=record, draft=draft, notes=tuple(notes))


def _checked(ctx: Context, record: Record, accepted: Accepted) -> tuple[Accepted, Job | None, str]:
    """What Slurm has under the id that sbatch printed: what sbatch was asked for is no proof, a plugin or a wrapper may
    change it. Where that is not this attempt's job, a number in a wrapper's banner was read as the id, and the job is
    looked up by its comment."""
    try:
        job = ctx.slurm.job(accepted.job_id)
    except GpuqError as error:
        return accepted, None, f"whether it holds the GPU could not be checked: {error.message}"
    if job is not None and job.comment.strip() == record.comment:
        return accepted, job, ""
    try:
        jobs = ctx.slurm.jobs(uid=ctx.caller.uid, ended=True)
    except GpuqError as error:
        raise _Unknown(f"sbatch printed {accepted.job_id}, which is not this attempt's job: {error.message}") from None
    for one in jobs:
        if one.comment.strip() == record.comment:
            return Accepted(one.number, accepted.cluster), one, ""
    if job is None:
        return accepted, None, "it was gone before it could be checked that it held the GPU"
    if (job.name, job.uid) == (record.tag, record.uid) and read_comment(job.comment) is None:
        return accepted, job, "a plugin of this Slurm changes job comments, by which gpuq finds its jobs again"
    raise _Unknown(f"sbatch printed {accepted.job_id}, and that is another job ({job.shown})")


class Unwritten(LedgerError):
    """Slurm took the job, but its id could not be written down."""

    def __init__(self, record: Record, why: str) -> None:
        super().__init__(
            f"Slurm took {record.name} as job {record.job_id}, but that could not be written down: {why}",
            hint="make room; the next gpuq command completes the record. Do not submit it again",
        )
        self.record = record


class Interrupted(KeyboardInterrupt):
    """While Slurm was given the job of `record`: it may have taken it."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record


class _Unknown(Exception):
    """Not known whether the job was accepted."""


def _sbatch(
    ctx: Context, record: Record, descriptor: int, meanwhile: Callable[[], None]
) -> tuple[Accepted, Job | None, str]:
    around = machine.with_gpuq_on_path(ctx.environment)
    environment = job_environment(around, record, str(ctx.ledger.run_dir(record.tag)))
    try:
        accepted = ctx.slurm.submit(record.argv[1:], environment, keep_open=descriptor, meanwhile=meanwhile)
    except InDoubt as doubt:
        ctx.say(f"note: {doubt.message}; asking Slurm whether it has the job")
        accepted = _look_up(ctx, record, doubt.message)
    return _checked(ctx, record, accepted)


def _look_up(ctx: Context, record: Record, message: str) -> Accepted:
    """Never submit again blindly: find out first whether the job is there."""
    patience = PATIENCE.total_seconds()
    started = ctx.clock.monotonic()
    missed: float | None = None  # since when it answers and does not have the job
    while True:
        try:
            jobs = ctx.slurm.jobs(uid=ctx.caller.uid, ended=True)
        except GpuqError:
            missed = None
            if ctx.clock.monotonic() - started >= patience:
                raise _Unknown(message) from None
        else:
            for job in jobs:
                if job.comment.strip() == record.comment:
                    return Accepted(job.number, None)
            now = ctx.clock.monotonic()
            missed = now if missed is None else missed
            if now - missed >= patience:
                break
        ctx.clock.sleep(1.0)
    raise SlurmUnreachable(f"{message}; Slurm answers again and does not have the job", hint="submit it again")


def _take_back(ctx: Context, record: Record, claim: Claim) -> None:
    assert record.job_id is not None  # noqa: S101 - only submitted attempts are withdrawn
    ctx.slurm.cancel(record.job_id)
    job = ctx.slurm.job(record.job_id)
    if (job is None or not job.elapsed) and not ctx.ledger.path(record.tag, record.attempt, "out").exists():
        drop(ctx, record, claim)
    else:  # it had begun: what it wrote is not thrown away
        ctx.ledger.save(msgspec.structs.replace(record, cancelled_by="gpuq, which withdrew the submission"))


def _by_key(ctx: Context, tag: str, key: str | None) -> Record | None:
    if key is None:
        return None
    return next((record for record in ctx.ledger.records(tag) if record.key == key), None)


def _await_key(ctx: Context, record: Record) -> Record | None:
    """The record of an earlier call with the same key, once it is known to have been submitted; None: it was not."""
    told = False
    while True:
        if record.job_id is not None or record.ended is not None:
            return record
        if not can_see_end(ctx, record):
            raise SubmissionRefused(
                f"whether Slurm took {record.name}, which has the same key, cannot be told from here: "
                + whose(ctx, record)
            )
        claim = ctx.ledger.claim(record.token, record.tag, record.attempt, wait=True)
        if claim is not None:
            claim.close()  # its submitter is done with it, or dead
        settle(ctx, tag=record.tag)
        current = next((r for r in ctx.ledger.records(record.tag) if r.token == record.token), None)
        if current is None:
            return None
        if current.job_id is None:
            if not told:
                ctx.say(f"note: {record.name} with the same key is being looked for in Slurm")
                told = True
            ctx.clock.sleep(1.0)
        record = current
