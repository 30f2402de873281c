"""Submit a run: check it, take an attempt number, hand it to sbatch, and make sure that it holds the GPU."""

from __future__ import annotations

import hashlib

import msgspec

from gpuq.adapters import git, jobscript, machine
from gpuq.adapters.configfiles import run_settings
from gpuq.adapters.ledger import Claim
from gpuq.core.attempt import Record, Request, read_comment
from gpuq.core.batch import job_environment, sbatch_argv
from gpuq.core.config import Settings, from_directives, merge
from gpuq.core.fit import choose_partition, fit
from gpuq.core.job import Job, gpu_count
from gpuq.core.ports import Accepted, InDoubt
from gpuq.core.script import with_requeue_separator
from gpuq.errors import GpuqError, LedgerError, ScriptRefused, SlurmUnreachable, SubmissionRefused
from gpuq.usecases.after import After, resolve_after
from gpuq.usecases.context import Context
from gpuq.usecases.refs import can_see_end, meant_tag, near_tag, tag_of, whose
from gpuq.usecases.settle import PATIENCE, repair, settle


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says; everything may be left out."""

    flags: Settings = Settings()
    cpu_only: bool = False
    hold: bool = False
    after: tuple[After, ...] = ()
    key: str | None = None


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that has passed every check and has not been made."""

    tag: str
    request: Request
    partition: str
    time_limit: int | None
    """Seconds that will be in force; None: unlimited."""
    dependencies: tuple[str, ...]
    script: str
    key: str | None
    commit: tuple[str | None, bool | None] = (None, None)
    """The git commit of the project, and whether a tracked file differs from it."""
    start_held: bool = False
    """Hold it until a whole chain is accepted. Not part of the request."""
    notes: tuple[str, ...] = ()


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that was made, or (`repeated`) that an earlier call with the same key had made."""

    record: Record
    draft: Draft | None = None
    repeated: bool = False
    notes: tuple[str, ...] = ()


def prepare(ctx: Context, text: str, options: Options, *, again: Request | None = None) -> Draft:
    """Check everything that can be checked before Slurm is given the job. Leaves nothing behind.

    again: the request of an earlier attempt (resubmit); flags still win over it.
    Raises UsageError, ConfigError, SubmissionRefused, NotFound, SlurmUnreachable.
    """
    tag = tag_of(ctx, text)
    _check_place(str(ctx.ledger.run_dir(tag)))
    repair(ctx)
    head = git.Head(ctx.project.root)  # its answer comes while job.sh is checked and Slurm is asked
    try:
        script, check = jobscript.read(ctx.ledger.job_script(tag), _shown(ctx, tag), tag)
    except ScriptRefused as error:
        if not ctx.ledger.run_dir(tag).exists() and (meant := meant_tag(ctx, text) or near_tag(ctx, tag)):
            raise ScriptRefused(error.faults, hint=meant) from None
        raise
    layers = [ctx.project.below, run_settings(ctx.ledger.run_dir(tag))]
    if again is None:
        layers += [from_directives(check.directives, _shown(ctx, tag)), ctx.project.environment, options.flags]
    else:
        layers += [_as_settings(again), options.flags]
    settings = merge(layers)
    partitions, nodes = ctx.slurm.offer()
    partition = choose_partition(settings.partition, partitions)
    gpu = not options.cpu_only if again is None else again.gpu and not options.cpu_only
    fitted = fit(settings, gpu=gpu, hold=options.hold, partition=partition, nodes=nodes)
    notes = [*check.warnings, *fitted.notes]
    dependencies = []
    for after in options.after:
        resolved = resolve_after(ctx, after, partition.name)
        if resolved.dependency:
            dependencies.append(resolved.dependency)
        if resolved.note:
            notes.append(resolved.note)
    if ctx.caller.root and ctx.system_wide:
        notes.append("you are root; experiments have no business being root, submit as the user who owns them")
    limit = fitted.request.time_limit
    return Draft(
        tag=tag,
        request=fitted.request,
        partition=partition.name,
        time_limit=limit if limit is not None else partition.default_time or partition.max_time,
        dependencies=tuple(dict.fromkeys(dependencies)),
        script=with_requeue_separator(script, check.interpreter),
        key=options.key,
        commit=head.answer(),
        notes=tuple(notes),
    )


def submit(ctx: Context, draft: Draft) -> Submission:
    """Make the submission. Exactly one job comes of it, or none and nothing is left behind.

    Raises SubmissionRefused, SlurmUnreachable (also when it is not known whether Slurm took the job: the attempt
    stays reserved then, and the next command finds out), LedgerError.
    """
    while True:
        sketch = _sketch(ctx, draft)

        def make(number: int, sketch: Record = sketch) -> tuple[Record, str]:
            return _numbered(ctx, draft, sketch, number), draft.script

        record, claim = ctx.ledger.reserve(draft.tag, sketch.token, make, find=lambda: _by_key(ctx, draft))
        if claim is None:
            found = _await_key(ctx, record)
            if found is not None:
                return Submission(record=found, draft=draft, repeated=True)
            continue  # the earlier submission with this key turned out never to have been made
        try:
            return _submit_claimed(ctx, draft, record, claim)
        finally:
            claim.close()


def preview(ctx: Context, draft: Draft) -> Record:
    """The record as it would be if nothing came between (--dry-run). Reserves nothing."""
    return _numbered(ctx, draft, _sketch(ctx, draft), ctx.ledger.next_number(draft.tag))


def submit_run(ctx: Context, text: str, options: Options, *, again: Request | None = None) -> Submission:
    """Prepare and submit; with a key that was used before for this run, return what was submitted then."""
    found = find_by_key(ctx, text, options.key)
    if found is not None:
        return Submission(record=found, repeated=True)
    return submit(ctx, prepare(ctx, text, options, again=again))


def find_by_key(ctx: Context, text: str, key: str | None) -> Record | None:
    """What an earlier call with this key submitted for this run; None: nothing, or there is no key."""
    if key is None:
        return None
    earlier = next((record for record in ctx.ledger.records(tag_of(ctx, text)) if record.key == key), None)
    return None if earlier is None else _await_key(ctx, earlier)


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


def _check_place(directory: str) -> None:
    try:
        directory.encode()
    except UnicodeEncodeError:
        raise SubmissionRefused(
            f"{directory} is not UTF-8; a record, which is JSON, cannot hold it", hint="rename that directory"
        ) from None
    if "\\" in directory:
        raise SubmissionRefused(
            f"{directory} has a backslash in it; Slurm from 26.05 on drops backslashes from the path of a log, "
            "which would then be written elsewhere",
            hint="rename that directory",
        )


def _sketch(ctx: Context, draft: Draft) -> Record:
    """The record of a draft but for what its number decides."""
    commit, dirty = draft.commit
    return Record(
        tag=draft.tag,
        attempt=0,
        token=machine.new_token(),
        request=draft.request,
        argv=(),
        script="",
        script_sha256=hashlib.sha256(draft.script.encode("utf-8", "surrogateescape")).hexdigest(),
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
    )


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
    try:
        accepted, job, note = _sbatch(ctx, record, claim.descriptor)
    except _Unknown as doubt:
        raise SlurmUnreachable(
            f"{doubt}; whether it took {record.name} is not known yet, and nothing is submitted twice",
            hint=f"gpuq status {record.tag} finds out once Slurm answers",
        ) from None
    except GpuqError:
        ctx.ledger.drop(record, claim)
        raise
    except KeyboardInterrupt:
        ctx.say(f"note: interrupted while Slurm was given {record.name}; gpuq status {record.tag} tells if it has it")
        raise
    record = msgspec.structs.replace(record, job_id=accepted.job_id, cluster=accepted.cluster)
    if job is not None:
        record = msgspec.structs.replace(record, submitted=job.submit)
    try:
        ctx.ledger.save(record)
    except LedgerError as error:  # the job is there all the same
        raise LedgerError(
            f"Slurm took {record.name} as job {record.job_id}, but that could not be written down: {error.message}",
            hint="make room; the next gpuq command completes the record. Do not submit it again",
        ) from None
    wanted = 1 if record.request.gpu else 0
    if job is not None and gpu_count(job.gres) != wanted:
        _take_back(ctx, record, claim)
        raise SubmissionRefused(
            f"Slurm took the job {'without its one GPU' if wanted else 'with a GPU that it must not have'} "
            f"(TresPerNode is {job.gres or 'empty'}); it was cancelled",
            hint="look for a job_submit plugin, or a wrapper of sbatch, that changes --gres: type -a sbatch",
        )
    return Submission(record=record, draft=draft, notes=(note,) if note else ())


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
    raise _Unknown(f"sbatch printed {accepted.job_id}, and that is another job ({job.name})")


class _Unknown(Exception):
    """Not known whether the job was accepted."""


def _sbatch(ctx: Context, record: Record, descriptor: int) -> tuple[Accepted, Job | None, str]:
    environment = job_environment(ctx.environment, record, str(ctx.ledger.run_dir(record.tag)))
    try:
        accepted = ctx.slurm.submit(record.argv[1:], environment, keep_open=descriptor)
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
        ctx.ledger.drop(record, claim)
    else:  # it had begun: what it wrote is not thrown away
        ctx.ledger.save(msgspec.structs.replace(record, cancelled_by="gpuq, which withdrew the submission"))


def _by_key(ctx: Context, draft: Draft) -> Record | None:
    if draft.key is None:
        return None
    return next((record for record in ctx.ledger.records(draft.tag) if record.key == draft.key), None)


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


def _as_settings(request: Request) -> Settings:
    from gpuq.core.units import slurm_time

    return Settings(
        partition=request.partition,
        memory=request.memory,
        cpus=request.cpus,
        time=None if request.time_limit is None else slurm_time(request.time_limit),
        nice=request.nice or None,
        signal_before=request.signal_before,
    )


def _shown(ctx: Context, tag: str) -> str:
    """How messages name a run's job.sh: relative to the project, as the person would type it."""
    path = ctx.ledger.job_script(tag)
    try:
        return str(path.relative_to(ctx.project.root))
    except ValueError:
        return str(path)
