"""Why a job waits, or why an attempt ended as it did."""

from __future__ import annotations

import datetime
import os
import re
import stat
from pathlib import Path

import msgspec

from gpuq.adapters import logscan
from gpuq.core.attempt import Ended, Record, Request, judge
from gpuq.core.job import Job, Phase
from gpuq.core.script import without_requeue_separator
from gpuq.core.tag import is_job_id
from gpuq.core.triage import rules as triage_rules
from gpuq.core.triage.diagnosis import Answer, diagnose
from gpuq.core.triage.evidence import Evidence, Log
from gpuq.core.units import format_duration
from gpuq.usecases import log
from gpuq.usecases.context import Context
from gpuq.usecases.refs import Target, current_record, job_of, require_run, resolve
from gpuq.usecases.settle import settle_if_possible

_SCRIPT_LIMIT = 4 * 1024 * 1024
_MOST_FILES = 20_000
"""Files of a run that are looked at for a checkpoint."""
_CHECKPOINTS = (".pt", ".pth", ".ckpt", ".safetensors", ".h5", ".keras", ".msgpack", ".orbax")


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, and what it is about."""

    tag: str
    attempt: int | None
    job_id: int | None
    outcome: str | None
    """None: it has not ended."""
    state: str
    answer: Answer
    log: str | None = None


def why(ctx: Context, ref: str, attempt: int | None = None) -> Why:
    """Why the attempt that `ref` means (the latest of a TAG, or number `attempt`) waits, or why it ended so.

    Raises UsageError, NotFound, and what Slurm raises.
    """
    found = _why(ctx, ref, attempt)
    if ctx.system_wide or ctx.environment.get("SLURM_CONF"):
        return found
    advice = tuple(_SLURMS.sub(rf"\1{_EMBEDDED}\2", line) for line in found.answer.advice)
    return msgspec.structs.replace(found, answer=msgspec.structs.replace(found.answer, advice=advice))


_SLURMS = re.compile(r"(^|: )((?:scontrol|squeue|sinfo|scancel) )")
_EMBEDDED = 'eval "$(gpuq local env)" && '
"""Slurm's own commands do not find the embedded Slurm by themselves."""


def _why(ctx: Context, ref: str, attempt: int | None) -> Why:
    target = _target(ctx, ref, attempt)
    record, job = target.record, target.job
    if record is not None and record.ended is not None:
        return Why(
            tag=record.tag,
            attempt=record.attempt,
            job_id=record.job_id,
            outcome=record.ended.outcome.value,
            state=record.ended.state,
            answer=why_ended(ctx, record),
            log=record.log,
        )
    if record is None and job is not None and job.phase is Phase.ENDED:
        return _without_record(ctx, job)
    from gpuq.usecases.why.waiting import why_waiting

    return Why(
        tag=record.tag if record else job.name if job else ref,
        attempt=record.attempt if record else None,
        job_id=record.job_id if record else job.number if job else None,
        outcome=None,
        state=job.state if job else "UNKNOWN",
        answer=why_waiting(ctx, target),
        log=record.log if record else None,
    )


def why_ended(ctx: Context, record: Record) -> Answer:
    """Why an attempt that has ended did so."""
    ended = record.ended
    assert ended is not None  # noqa: S101 - only such are handed in
    read, fault = _read_log(Path(record.log))
    elapsed = int((ended.end - ended.start).total_seconds()) if ended.start and ended.end else None
    run_dir = ctx.ledger.run_dir(record.tag)
    return diagnose(
        Evidence(
            tag=record.tag,
            attempt=record.attempt,
            outcome=ended.outcome.value,
            state=ended.state,
            request=record.request,
            reason=ended.reason,
            exit_code=ended.exit_code,
            signal=ended.signal,
            started=ended.start is not None and (read is not None or elapsed != 0),
            elapsed=elapsed,
            restarts=ended.restarts,
            notes=ended.notes,
            cancelled_by=record.cancelled_by,
            dependencies=record.dependencies,
            project=record.project,
            run_dir=str(run_dir),
            log_path=record.log,
            log=read,
            log_fault=fault,
            script=_script(Path(record.script)),
            script_path=record.script,
            memory=record.memory,
            killed_at=_killed_at(ctx, record),
            checkpoint=_checkpoint(run_dir, ended),
        )
    )


def _killed_at(ctx: Context, record: Record) -> int:
    """Bytes: what the run was killed at up to this attempt; 0 where this one was not killed."""
    from gpuq.core.memory.sizing import killed_at

    if not killed_at([record]):
        return 0
    return killed_at([one for one in ctx.ledger.records(record.tag, sound=True) if one.attempt <= record.attempt])


def _target(ctx: Context, ref: str, attempt: int | None) -> Target:
    if attempt is not None:
        record = log.find(ctx, ref, attempt)
    elif is_job_id(ref):
        target = resolve(ctx, ref)
        if target.record is None:
            return target
        record = target.record
    else:
        require_run(ctx, ref)
        settle_if_possible(ctx, tag=ref)
        return resolve(ctx, ref)
    if record.ended is None:
        settle_if_possible(ctx, tag=record.tag)
        record = current_record(ctx, record)
    return Target(ref, record, job_of(ctx, record) if record.ended is None else None)


def _without_record(ctx: Context, job: Job) -> Why:
    """A job that gpuq did not submit from this project: Slurm's word is all there is."""
    end = ctx.slurm.end_of(job)
    outcome, notes = judge(end, [])
    evidence = Evidence(
        tag=job.name,
        attempt=None,
        outcome=outcome.value,
        state=end.state,
        request=Request(cpus=job.cpus, memory=job.memory or 0, gpu=job.has_gpu, time_limit=job.time_limit),
        reason=end.reason,
        exit_code=end.exit_code,
        signal=end.signal,
        started=end.start is not None,
        elapsed=int((end.end - end.start).total_seconds()) if end.start and end.end else None,
        restarts=end.restarts,
        notes=notes,
    )
    answer = diagnose(evidence)
    if answer.id != "no_failure":
        answer = msgspec.structs.replace(answer, advice=(f"scontrol show job {job.number} names its log",))
    return Why(tag=job.name, attempt=None, job_id=job.number, outcome=outcome.value, state=end.state, answer=answer)


def _read_log(path: Path) -> tuple[Log | None, str]:
    """What matters of the log (None: there is none), and what stands in its way."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None, "" if path.parent.is_dir() else "that directory does not exist"
    except OSError as error:
        return None, error.strerror or str(error)
    if not stat.S_ISREG(mode):
        return None, f"{path.name} is a directory there" if stat.S_ISDIR(mode) else f"{path.name} is no file there"
    try:
        return logscan.scan(path, triage_rules.anchors(), triage_rules.ANYWHERE), ""
    except OSError as error:
        return None, error.strerror or str(error)


def _script(path: Path) -> str:
    """The script as its author wrote it."""
    try:
        with path.open("rb") as handle:
            text = handle.read(_SCRIPT_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""
    return without_requeue_separator(text)


def _checkpoint(run_dir: Path, ended: Ended) -> str | None:
    """The newest file below the run that looks like a checkpoint and was written by this attempt, in words."""
    if ended.start is None:
        return None
    start, seen = ended.start.timestamp(), 0
    newest: tuple[float, str] | None = None
    for directory, _, files in os.walk(run_dir):
        for name in files:
            seen += 1
            if name.endswith(_CHECKPOINTS) or "checkpoint" in directory[len(str(run_dir)) :]:
                path = Path(directory, name)
                try:
                    written = path.stat().st_mtime
                except OSError:
                    continue
                if written >= start and (newest is None or written > newest[0]):
                    newest = (written, str(path))
        if seen > _MOST_FILES:
            break
    if newest is None:
        return ""
    when = datetime.datetime.fromtimestamp(newest[0], datetime.UTC)
    before = f", {format_duration((ended.end - when).total_seconds())} before the end" if ended.end else ""
    return f"the newest checkpoint is {newest[1]}{before}"
