"""Bring the records up to date with Slurm: find submissions whose submitter died, and write down how attempts ended.

Every command that talks to Slurm does this first, so that an outcome is written by whichever command sees the end
first, once, before Slurm forgets the job.
"""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import msgspec

from gpuq.adapters.ledger import Claim, Entry
from gpuq.core.attempt import Ended, Outcome, Record, ResultFile, judge, read_comment
from gpuq.core.job import Job, JobEnd, Phase, gpu_count
from gpuq.errors import ConfigError, GpuqError, LedgerError
from gpuq.usecases.context import Context
from gpuq.usecases.refs import belongs

PATIENCE = datetime.timedelta(seconds=10)
"""How long a submission may be unknown to a controller that answers before it counts as never made, counted from
the first such answer. A request that had reached the controller is worked on before one that came seconds later is
answered; one that came at the same moment may be answered first."""

_FEW = 8
"""Up to so many attempts are asked for one by one, which costs the same however long the queue is."""


def settle(ctx: Context, *, tag: str | None = None, jobs: list[Job] | None = None) -> list[Record]:
    """Update the open attempts (of one run, or of all) and return those that turn out to have ended.

    jobs: rows of the caller, ended ones included, when the caller has just read them; read here otherwise, and not
    at all when nothing is open. Raises SlurmUnreachable, SlurmAnswerError (nothing is changed then); LedgerError
    for a record that cannot be read or written, after all others were seen to.
    """
    entries = [entry for entry in ctx.ledger.open_entries() if tag is None or entry.tag == tag]
    if tag is not None:
        known = {entry.token for entry in entries}
        entries += [
            Entry(record.token, record.tag, record.attempt)
            # a record that cannot be read keeps no other attempt from its end; gpuq status TAG tells of it
            for record in ctx.ledger.records(tag, sound=True)
            if record.ended is None and record.token not in known
        ]
    if jobs is not None:  # the usual case: it waits or runs, and nothing is to be done for it
        live = {
            mark[1]
            for job in jobs
            if job.comment and job.phase is not Phase.ENDED and (mark := read_comment(job.comment))
        }
        entries = [entry for entry in entries if not (entry.submitted and entry.token in live)]
    before, broken = [], []
    for entry in entries:
        try:
            before.append((entry, _read(ctx, entry)))
        except LedgerError as error:
            broken.append(error)
    mine = [(e, r) for e, r in before if r is None or (r.uid == ctx.caller.uid and r.controller == ctx.controller)]
    ended = []
    if mine:
        jobs = _jobs(ctx, [record for _, record in mine], jobs)
        marks = {mark[1]: job for job in jobs if job.comment and (mark := read_comment(job.comment))}
        for entry, record in mine:
            row = marks.get(entry.token)
            if row is None and record is not None:
                row = next((job for job in jobs if belongs(record, job)), None)
            try:
                done = _settle_one(ctx, entry, record, row)
            except LedgerError as error:
                broken.append(error)
            else:
                if done is not None:
                    ended.append(done)
    if broken:
        raise broken[0]
    return ended


def settle_if_possible(ctx: Context, *, tag: str | None = None, jobs: list[Job] | None = None) -> None:
    """`settle` for commands that can do without: where a record cannot be read or written (a full disk, a read-only
    file system) they say so and go on with what there is."""
    try:
        settle(ctx, tag=tag, jobs=jobs)
    except LedgerError as error:
        ctx.say(f"warning: not every record could be brought up to date: {error.message}")


def repair(ctx: Context) -> None:
    """Look after submissions whose submitter died. Usually there are none, and Slurm is not asked."""
    for entry in ctx.ledger.open_entries():
        if entry.submitted:
            continue
        try:
            record = _read(ctx, entry)
        except LedgerError:
            continue
        if record is None or record.job_id is None:
            settle_if_possible(ctx)
            return


def _read(ctx: Context, entry: Entry) -> Record | None:
    try:
        record = ctx.ledger.read(entry.tag, entry.attempt)
    except LedgerError:
        if ctx.ledger.path(entry.tag, entry.attempt, "json").exists():
            raise
        return None
    return record if record.token == entry.token else None


def _jobs(ctx: Context, records: list[Record | None], jobs: list[Job] | None) -> list[Job]:
    """The rows of the queue among which those of `records` are."""
    if jobs is not None:
        return jobs
    numbers = [record.job_id for record in records if record is not None]
    if len(numbers) <= _FEW and None not in numbers:
        return [job for number in numbers if number is not None and (job := ctx.slurm.job(number)) is not None]
    return ctx.slurm.jobs(uid=ctx.caller.uid, ended=True)


def _settle_one(ctx: Context, entry: Entry, seen: Record | None, row: Job | None) -> Record | None:
    if seen is not None and seen.job_id is not None and row is not None and row.phase is not Phase.ENDED:
        return None  # the usual case: it waits or runs
    claim = ctx.ledger.claim(entry.token, entry.tag, entry.attempt, wait=False)
    if claim is None:
        return None  # its submission is under way, or another command is at it
    try:
        now = _read(ctx, entry)
        if now is None:
            claim.forget()  # died before the record was written: nothing was submitted
            return None
        if now.ended is not None:
            claim.forget()
            return now
        if seen is None or now.job_id != seen.job_id:
            return None  # changed since Slurm was asked; the next command looks again
        if now.job_id is None:
            return _repair(ctx, now, claim, row)
        return record_end(ctx, now, claim, row)
    finally:
        claim.close()


def _repair(ctx: Context, record: Record, claim: Claim, row: Job | None) -> Record | None:
    """Whoever submitted this attempt died before writing the job id down."""
    if row is None:
        # One answer is no proof: a controller that hung may give it before it takes the job that waits behind.
        now = ctx.clock.now()
        if now - claim.missed_since(now) <= PATIENCE:
            return None
        if ctx.ledger.path(record.tag, record.attempt, "out").exists():
            return _lost(ctx, record, claim, "it left a log, but its submitter died and Slurm no longer knows the job")
        drop(ctx, record, claim)
        ctx.say(f"note: {record.name} was never accepted by Slurm; its number is free again")
        return None
    adopted = msgspec.structs.replace(record, job_id=row.number, submitted=row.submit)
    ctx.ledger.save(adopted)
    ctx.say(f"note: {record.name} had been accepted as job {row.number}; its record is complete now")
    if row.phase is not Phase.ENDED and gpu_count(row.gres) != int(record.request.gpu):
        # what its submitter would have found
        ctx.slurm.cancel(row.number)
        ctx.ledger.save(msgspec.structs.replace(adopted, cancelled_by="gpuq: Slurm did not give it what it asked for"))
        ctx.say(f"warning: job {row.number} had not got its one GPU (or one too many); it was cancelled")
    return record_end(ctx, adopted, claim, row) if row.phase is Phase.ENDED else None


def record_end(ctx: Context, record: Record, claim: Claim, row: Job | None) -> Record | None:
    """Write down how an attempt ended; None when it has not. The caller holds the claim."""
    assert record.job_id is not None  # noqa: S101 - only such are handed in
    if row is not None:
        if row.phase is not Phase.ENDED:
            return None
        end: JobEnd | None = ctx.slurm.end_of(row)
    else:
        end = ctx.slurm.finished(
            record.job_id, uid=record.uid, name=record.tag, since=record.submitted or record.reserved
        )
        if end is not None and _is_later(ctx, record, end):
            end = None
    if end is None:
        return _lost(ctx, record, claim, "Slurm no longer knows the job and left no record of it")
    return _close(ctx, judged(ctx, record, end), claim)


def judged(ctx: Context, record: Record, end: JobEnd) -> Record:
    """The record with its outcome, judged by `end` and by what lies in the run's directory now; nothing is written."""
    from gpuq.usecases.inside.last_line import tail  # only where something has ended
    from gpuq.usecases.memory.ended import with_memory

    outcome, notes = judge(end, find_results(ctx, record), str(Path(record.log).parent))
    record, outcome, notes = with_memory(record, end, outcome, notes)
    if outcome is Outcome.CANCELLED and record.cancelled_by:
        notes = (*notes, f"cancelled by {record.cancelled_by}")
    end_of_log = tail(Path(record.log)) if outcome in {Outcome.SUCCEEDED, Outcome.INCOMPLETE} else b""
    text = end_of_log if outcome is Outcome.SUCCEEDED else b""
    if early := _stopped_early(record, end_of_log):
        outcome, notes = Outcome.INCOMPLETE, (early, *notes)
    score = _score(ctx, record, text) if outcome is Outcome.SUCCEEDED else None
    if outcome is Outcome.SUCCEEDED and score is None and (why := _no_score(ctx, record)):
        notes = (*notes, why)
    ended = Ended(
        outcome=outcome,
        state=end.state,
        reason=end.reason,
        exit_code=end.exit_code,
        signal=end.signal,
        start=end.start,
        end=end.end,
        restarts=end.restarts,
        source=end.source,
        notes=notes,
        score=score,
        recorded=ctx.clock.now(),
    )
    record = msgspec.structs.replace(record, ended=ended)
    if _TROUBLE.search(text) and (hidden := _hidden(ctx, record)):
        record = msgspec.structs.replace(record, ended=msgspec.structs.replace(ended, notes=(*notes, hidden)))
    return record


_TROUBLE = re.compile(rb"(?i)error|exception|traceback|failed|\*\*\* STEP|slurm_script: (?:line )?\d+: ")
"""In the end of a log: it is worth being read as `gpuq why` reads it."""


def _hidden(ctx: Context, record: Record) -> str:
    """What a success hides: an error at the end of its log, or a step that was cancelled; empty: nothing."""
    from gpuq.usecases.why.answer import why_ended

    try:
        answer = why_ended(ctx, record)
    except (GpuqError, OSError, ValueError):
        return ""
    if answer.id not in {"hidden_failure", "hidden_cancel"}:
        return ""
    return answer.headline[:1].lower() + answer.headline[1:].rstrip(".") + f" (gpuq why {record.tag})"


def _stopped_early(record: Record, text: bytes) -> str:
    """That the program ended well because it was told to, half-way; empty: it did not, or its log does not tell.
    text: the end of the log."""
    from gpuq.core.inside import runlines

    at = runlines.stopped_early(text)
    if at is None:
        return ""
    return f"stopped early by SIGTERM{f' (step {at})' if at else ''}; gpuq resubmit {record.tag} goes on"


def _is_later(ctx: Context, record: Record, end: JobEnd) -> bool:
    """True when this is the end of a later attempt, which was given the same job id after Slurm's state was lost."""
    later = [r for r in ctx.ledger.records(record.tag) if r.attempt > record.attempt and r.job_id == record.job_id]
    return any(end.end is not None and r.submitted is not None and end.end >= r.submitted for r in later)


def _lost(ctx: Context, record: Record, claim: Claim, note: str) -> Record:
    ended = Ended(outcome=Outcome.LOST, state="", source="none", notes=(note,), recorded=ctx.clock.now())
    return _close(ctx, msgspec.structs.replace(record, ended=ended), claim)


def _close(ctx: Context, done: Record, claim: Claim) -> Record:
    if done.provenance is not None:
        from gpuq.usecases.experiment.provenance import with_slurm

        done = with_slurm(ctx, done)
    ctx.ledger.save(done)
    _melt(ctx, done)
    claim.forget()
    return done


def drop(ctx: Context, record: Record, claim: Claim) -> None:
    """Remove an attempt that Slurm never had, and what was made for it. The caller holds the claim."""
    _melt(ctx, record)
    ctx.ledger.drop(record, claim)


def _melt(ctx: Context, record: Record) -> None:
    if record.provenance is not None and record.provenance.snapshot is not None:
        from gpuq.usecases.experiment.snapshot import melt

        melt(ctx, record)


def find_results(ctx: Context, record: Record) -> list[ResultFile]:
    """The promised results of an attempt, as they are on disk now."""
    found = []
    for name in record.request.results:
        try:
            seconds = (ctx.ledger.run_dir(record.tag) / name).stat().st_mtime
        except (OSError, ValueError):  # ValueError: a NUL in the name
            found.append(ResultFile(name=name, modified=None))
        else:
            seconds = min(seconds, _LATEST)
            found.append(ResultFile(name=name, modified=datetime.datetime.fromtimestamp(seconds, datetime.UTC)))
    return found


_LATEST = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC).timestamp()
"""A job may set any time on its files."""


def _score(ctx: Context, record: Record, text: bytes) -> float | None:
    """The number that the request's `score` points at, or, where it names none, `score=` of the last FINISHED line; None
    where there is none. text: the end of the log."""
    if record.request.score is not None:
        return score_of(ctx.ledger.run_dir(record.tag), record.request.score)
    from gpuq.usecases.inside.last_line import score_in

    return score_in(text)


def shown_score(ctx: Context, record: Record) -> float | None:
    """The score of an attempt for a reader: as it was recorded at the end. Where none was asked for then, and no later
    attempt can have written the file, as it stands in the result file that the project names now."""
    if record.ended is None or record.ended.outcome is not Outcome.SUCCEEDED:
        return None
    if record.ended.score is not None or record.request.score is not None:
        return record.ended.score
    if record.attempt != max(ctx.ledger.attempts(record.tag)):
        return None
    from gpuq.adapters.configfiles import run_settings
    from gpuq.core.config import merge

    try:
        where = merge([ctx.project.below, run_settings(ctx.ledger.run_dir(record.tag))]).score
    except ConfigError:  # the next submission tells
        return None
    return None if where is None else score_of(ctx.ledger.run_dir(record.tag), where)


def _no_score(ctx: Context, record: Record) -> str:
    """Why a run that succeeded has no score, where its file is there; empty: none is asked for, or there is no file."""
    name, _, keys = (record.request.score or "").partition(":")
    there = bool(name) and (ctx.ledger.run_dir(record.tag) / name).is_file()
    return f"no score: {name} has no number at {keys}" if there else ""


def score_of(run_dir: Path, where: str) -> float | None:
    """The number at `cv.json:mean`: a JSON file of the run, and the keys in it; None where there is none."""
    name, _, keys = where.partition(":")
    path = run_dir / name
    try:
        if not path.is_file():  # a FIFO would never be read to its end
            return None
        value = msgspec.json.decode(path.read_bytes())
        for key in keys.split("."):
            value = value[int(key)] if isinstance(value, list) else value[key]
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    except (OSError, msgspec.MsgspecError, LookupError, TypeError, ValueError, OverflowError, RecursionError):
        return None
