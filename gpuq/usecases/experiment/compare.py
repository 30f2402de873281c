"""Two attempts side by side: script, settings, code, environment, outcome, score."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import msgspec

from gpuq.core.attempt import Record
from gpuq.core.experiment.provenance import Provenance
from gpuq.core.tag import is_job_id
from gpuq.core.units import format_duration, format_size
from gpuq.errors import NotFound, SlurmUnreachable, UsageError
from gpuq.usecases.context import Context
from gpuq.usecases.experiment.origin import origin_of, proven_script
from gpuq.usecases.experiment.provenance import changed_code, last_success
from gpuq.usecases.refs import require_run, resolve, tag_of
from gpuq.usecases.settle import settle_if_possible


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two. Without an attempt, the run's job.sh as it is."""

    tag: str
    attempt: int | None
    job_id: int | None


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that both have or could have; None: not known, or there is none."""

    name: str
    a: str | None
    b: str | None
    differs: bool


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What `gpuq diff` shows."""

    a: Side
    b: Side
    facts: tuple[Fact, ...]
    """All of them, those that agree too."""
    script: tuple[str, ...]
    """The lines of a unified diff; empty: the scripts are the same."""
    code: tuple[str, ...] | None
    """Code files that differ; None: they do, and which is not known."""


class _Subject(msgspec.Struct, frozen=True):
    tag: str
    record: Record | None
    script: str


def compare(ctx: Context, first: str, second: str | None) -> Comparison:
    """Compare two runs (their latest attempts), or attempts named by job ids; with one, that with the run it was made from,
    or, where it was made by hand, with its own last attempt before that succeeded.

    Raises UsageError, NotFound, LedgerError.
    """
    b = _subject(ctx, second if second is not None else first)
    if second is None:
        origin = origin_of(ctx, b.tag)
        a = _before(ctx, b) if origin is None else _subject(ctx, origin.parent)
    else:
        a = _subject(ctx, first)
    script = difflib.unified_diff(
        a.script.splitlines(), b.script.splitlines(), f"{a.tag}/job.sh", f"{b.tag}/job.sh", lineterm=""
    )
    code: list[str] | None = []
    if a.record is not None and b.record is not None:
        code = changed_code(ctx, a.record, b.record)
    left, right = dict(_facts(ctx, a)), dict(_facts(ctx, b))
    same = {"uncommitted"} if _patch_hash(a) == _patch_hash(b) else set()  # each attempt has a file of its own
    facts = [
        Fact(
            name=name,
            a=left.get(name),
            b=right.get(name),
            differs=name not in same and left.get(name) != right.get(name),
        )
        for name in dict.fromkeys([*left, *right])
    ]
    return Comparison(
        a=_side(a), b=_side(b), facts=tuple(facts), script=tuple(script), code=None if code is None else tuple(code)
    )


def _before(ctx: Context, one: _Subject) -> _Subject:
    """The last attempt of the same run before this one that succeeded."""
    number = one.record.attempt if one.record is not None else None
    success = last_success(ctx, one.tag, before=number)
    if success is None:
        raise UsageError(
            f"run {one.tag} was not made by gpuq new, and no attempt before has succeeded; what to compare it with?",
            hint=f"gpuq diff OTHER {one.tag}; OTHER: a TAG or a job id",
        )
    return _Subject(one.tag, success, proven_script(ctx, success) or "")


def _subject(ctx: Context, ref: str) -> _Subject:
    target = None
    try:
        target = resolve(ctx, ref, live=False)
    except NotFound:
        if is_job_id(ref):
            raise
        tag = require_run(ctx, tag_of(ctx, ref))  # a run that was never submitted has a script all the same
    if target is not None:
        if target.record is None:
            raise NotFound(f"{target.name} was not submitted by gpuq from this project")
        tag = target.record.tag
        try:
            settle_if_possible(ctx, tag=tag)
        except SlurmUnreachable as error:
            ctx.say(f"warning: {error.message}; {tag} is shown as it was last known")
        record = ctx.ledger.read(tag, target.record.attempt)
        return _Subject(tag, record, proven_script(ctx, record) or "")
    try:
        text = ctx.ledger.job_script(tag).read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise NotFound(f"{ctx.ledger.job_script(tag)}: {error.strerror}", hint=f"gpuq status {tag}") from None
    return _Subject(tag, None, text)


def _patch_hash(one: _Subject) -> str | None:
    return one.record.provenance.diff_sha256 if one.record is not None and one.record.provenance is not None else None


def _side(one: _Subject) -> Side:
    record = one.record
    if record is None:
        return Side(tag=one.tag, attempt=None, job_id=None)
    return Side(tag=one.tag, attempt=record.attempt, job_id=record.job_id)


def _facts(ctx: Context, one: _Subject) -> Iterator[tuple[str, str | None]]:
    origin = origin_of(ctx, one.tag)
    yield "made from", f"{origin.parent} with {origin.words}" if origin else None
    record = one.record
    if record is None:
        return
    ended, request = record.ended, record.request
    yield "outcome", ended.outcome.value if ended else "not ended"
    yield "score", None if ended is None or ended.score is None else f"{ended.score:.10g}"
    elapsed = ended.end - ended.start if ended and ended.start and ended.end else None
    yield "elapsed", None if elapsed is None else format_duration(int(elapsed.total_seconds()))
    held = record.memory.held if record.memory else None
    yield "memory held", None if held is None else format_size(held)
    yield "memory asked", format_size(request.memory)
    yield "cpus", str(request.cpus)
    yield "gpu", "1" if request.gpu else "none"
    yield "time limit", None if request.time_limit is None else format_duration(request.time_limit)
    yield "partition", request.partition
    yield "host", record.host
    yield "commit", record.git_commit
    provenance = record.provenance or Provenance()
    yield "uncommitted", provenance.diff or provenance.diff_sha256
    yield "not in git", ", ".join(provenance.untracked) or None
    yield "snapshot", "yes" if provenance.snapshot else None
    for lock in provenance.locks:
        yield lock.name, lock.sha256
    yield "python", provenance.python
    yield "driver", provenance.driver
    yield "gpu model", provenance.gpu
    yield "slurm", provenance.slurm
    yield "gpuq", provenance.gpuq
