"""What a person means by TAG or JOB."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpuq.adapters.files import is_there
from gpuq.core.attempt import Record, read_comment
from gpuq.core.config import PROJECT_FILE
from gpuq.core.job import Job
from gpuq.core.tag import LARGEST_ID, JobId, check_tag, is_job_id, read_job_id
from gpuq.errors import LedgerError, NotFound, SlurmUnreachable, UsageError
from gpuq.usecases.context import Context


class Target(msgspec.Struct, frozen=True):
    """What a reference was resolved to: an attempt, a job, or (usually) both."""

    text: str
    record: Record | None
    job: Job | None

    @property
    def name(self) -> str:
        """For messages."""
        if self.record is not None:
            suffix = "" if self.record.job_id is None else f" (job {self.record.job_id})"
            return self.record.name + suffix
        return f"job {self.job.id} ({self.job.shown})" if self.job else self.text


def tag_of(ctx: Context, text: str) -> str:
    """`text` as the TAG of a run. Raises UsageError, with the TAG meant where a path was given."""
    try:
        return check_tag(text)
    except ValueError as error:
        raise UsageError(str(error), hint=meant_tag(ctx, text)) from None


def require_run(ctx: Context, text: str) -> str:
    """`text` as the TAG of a run that exists. Raises UsageError or NotFound."""
    tag = tag_of(ctx, text)
    try:
        there = ctx.ledger.run_dir(tag).is_dir()
    except OSError as error:
        raise LedgerError(f"{ctx.ledger.run_dir(tag)}: {error.strerror}") from None
    if not there:
        near = _nearest(tag, ctx.ledger.tags())
        raise NotFound(
            f"there is no run {tag}: {ctx.ledger.run_dir(tag)} is not a directory",
            hint=meant_tag(ctx, text) or (f"did you mean {near}?" if near else _where(ctx)),
        )
    return tag


def resolve(ctx: Context, text: str, *, live: bool = True) -> Target:
    """A job id, or a TAG (its latest attempt). live: also ask Slurm for the job's row now.

    Raises UsageError, NotFound, and what Slurm raises.
    """
    job_id = read_job_id(text)
    # `12+1` is also a fine TAG
    if job_id is not None and (is_job_id(text) or "+" not in text or not ctx.ledger.run_dir(text).is_dir()):
        return _by_job(ctx, text, job_id)
    tag = require_run(ctx, text)
    record = ctx.ledger.latest(tag)
    if record is None:
        raise NotFound(f"run {tag} has no attempt yet", hint=f"gpuq submit {tag}")
    return Target(text, record, job_of(ctx, record) if live and record.ended is None else None)


def job_of(ctx: Context, record: Record) -> Job | None:
    """The row of an attempt's job now; None where this controller does not have it."""
    if record.job_id is None or record.controller != ctx.controller:
        return None
    job = ctx.slurm.job(record.job_id)
    return job if job is not None and belongs(record, job) else None


def belongs(record: Record, job: Job) -> bool:
    """True when `job` is the attempt's own, and not another that was given the same id after a lost state."""
    mark = read_comment(job.comment)
    if mark is not None:
        return mark == (record.attempt, record.token)
    # Somebody (a plugin of the site, `scontrol update`) took our comment away.
    same = (job.number, job.uid, job.name) == (record.job_id, record.uid, record.tag)
    return same and job.submit is not None and record.submitted is not None and job.submit >= record.submitted


def current_record(ctx: Context, record: Record) -> Record:
    """The record as it is on disk now. Raises NotFound when the attempt was never accepted and is gone."""
    found = next((r for r in ctx.ledger.records(record.tag, sound=True) if r.token == record.token), None)
    if found is None:
        raise NotFound(f"{record.name} was never accepted by Slurm", hint=f"gpuq submit {record.tag}")
    return found


def can_see_end(ctx: Context, record: Record) -> bool:
    """True where commands of this caller, with this controller, will learn how an open attempt ends."""
    return record.controller == ctx.controller and record.uid == ctx.caller.uid


def whose(ctx: Context, record: Record) -> str:
    """Why `can_see_end` is false, for a person."""
    if record.controller != ctx.controller:
        return f"it was submitted to another controller (SLURM_CONF={record.controller})"
    return f"it is {record.user}'s"


def away(ctx: Context, record: Record) -> SlurmUnreachable | None:
    """Why nothing can be learned of an open attempt now: its controller is an embedded Slurm that is down."""
    if record.ended is not None or record.controller == ctx.controller or not record.controller:
        return None
    from gpuq.adapters.slurm.locate import stopped  # only for another controller

    down = stopped(Path(record.controller))
    return None if down is None else SlurmUnreachable(down[0], hint=down[1])


def _by_job(ctx: Context, text: str, job_id: JobId) -> Target:
    number = job_id.number
    if not 0 < number <= LARGEST_ID:
        raise NotFound(f"{text[:12]} is no job id: Slurm keeps them in 32 bits", hint="gpuq queue --all")
    if job_id.cluster and job_id.cluster.lower() != (own := ctx.slurm.cluster()).lower():
        raise NotFound(
            f"job {number} is one of cluster {job_id.cluster}, and gpuq talks to cluster {own or '(unnamed)'} here",
            hint="SLURM_CONF=…/slurm.conf names another cluster's controller",
        )
    job = ctx.slurm.job(number, part=job_id.part)
    if job is not None:
        return Target(text, record_of(ctx, job), job)
    record = ctx.ledger.by_job(number)
    if record is None:
        raise NotFound(
            f"job {text} is known neither to Slurm nor to any record below {ctx.ledger.root}", hint="gpuq queue --all"
        )
    return Target(text, record, None)


def record_of(ctx: Context, job: Job) -> Record | None:
    """The record of a job, when gpuq submitted it from this project."""
    mark = read_comment(job.comment)
    if mark is None:
        found = ctx.ledger.by_job(job.number)
        return found if found is not None and belongs(found, job) else None
    try:
        tag = check_tag(job.name)
    except ValueError:
        return None
    if mark[0] not in ctx.ledger.attempts(tag):  # also where somebody's comment has a number that no file can have
        return None
    record = ctx.ledger.read(tag, mark[0])
    return record if record.token == mark[1] else None


def meant_tag(ctx: Context, text: str) -> str:
    """Shells complete paths; tell the TAG of a path that lies in the runs root."""
    try:
        inside = Path(text).absolute().relative_to(ctx.ledger.root)
    except ValueError:
        return ""
    parts = inside.parent if inside.name == "job.sh" else inside
    return f"the TAG of that path is {parts.as_posix()}" if parts.parts and ".." not in parts.parts else ""


def _where(ctx: Context) -> str:
    """Where to look for runs. Without any, the project itself is probably another one than the person thinks."""
    if ctx.ledger.root.is_dir():
        return "gpuq status lists the runs; a new one is a directory with a job.sh"
    root = ctx.project.root
    if not is_there(root / PROJECT_FILE) and not is_there(root / ".git"):
        why = ", because there is no gpuq.toml or git root above it"
    else:
        why = ""
    return f"{root} is taken for the project{why}; cd to yours, and mark its root: touch gpuq.toml"


def _nearest(tag: str, known: list[str]) -> str:
    import difflib  # only for somebody who mistyped

    close = difflib.get_close_matches(tag, known, n=1)
    return close[0] if close else ""
