"""Read the log of an attempt, now or while it grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from gpuq.adapters import logfile
from gpuq.core.attempt import Record
from gpuq.core.job import Phase
from gpuq.core.reason import reason_words
from gpuq.errors import LedgerError, NotFound, SlurmUnreachable
from gpuq.usecases.context import Context
from gpuq.usecases.refs import can_see_end, current_record, job_of, require_run, resolve, whose
from gpuq.usecases.settle import settle

LOOK = 0.2
"""Seconds between two looks at a growing file."""
ASK = 2.0
"""Seconds between two questions to Slurm while nothing is written."""


def find(ctx: Context, ref: str, attempt: int | None) -> Record:
    """The attempt that is meant: of a TAG the latest, or number `attempt`; or a job id's. Raises NotFound."""
    if attempt is not None:
        tag = require_run(ctx, ref)
        if attempt not in ctx.ledger.attempts(tag):
            known = ", ".join(map(str, ctx.ledger.attempts(tag))) or "none"
            raise NotFound(f"run {tag} has no attempt {attempt} (there are: {known})", hint=f"gpuq status {tag}")
        return ctx.ledger.read(tag, attempt)
    target = resolve(ctx, ref, live=False)
    if target.record is None:
        raise NotFound(
            f"{target.name} was not submitted by gpuq from this project",
            hint=f"scontrol show job {ref} names its log",
        )
    return target.record


def read(record: Record, tail: int | None) -> Iterator[str]:
    """The lines that there are now (the last `tail` of them). Raises NotFound while there is no log."""
    path = Path(record.log)
    try:
        if tail is not None:
            yield from logfile.last_lines(path, tail)[0]
        else:
            yield from logfile.whole(path)
    except FileNotFoundError:
        raise _no_log(record) from None
    except OSError as error:
        raise _unreadable(record, error) from None


def follow(
    ctx: Context, record: Record, tail: int | None, *, show: Callable[[str], None] | None = None
) -> Iterator[str]:
    """The lines as they come, until the attempt has ended; across requeues, and from before it starts.

    show: told what stands of the line that is not complete yet, whenever that changes.
    """
    path = Path(record.log)
    if record.ended is None and not can_see_end(ctx, record):
        yield from read(record, tail)
        ctx.say(f"warning: {record.name} cannot be followed from here: {whose(ctx, record)}")
        return
    growing = logfile.Growing(path)
    if tail is not None and path.is_file():
        lines, offset = logfile.last_lines(path, tail)
        yield from lines
        growing = logfile.Growing(path, offset)
    told = shown = ""
    asked = -ASK
    while True:
        wrote = False
        # Asked before the file is read: what is read then is all that an ended attempt ever wrote.
        ended = record.ended is not None
        try:
            for line in growing.more():
                wrote = True
                yield line
        except FileNotFoundError:
            if ended:
                raise _no_log(record) from None
        except OSError as error:
            raise _unreadable(record, error) from None
        if ended:
            break
        if wrote:
            shown = ""
        if show is not None and (frame := growing.pending()) != shown:
            shown = frame
            show(frame)
        if not wrote:
            ctx.clock.sleep(LOOK)
        if ctx.clock.monotonic() - asked >= ASK:
            asked = ctx.clock.monotonic()
            record, told = _ask(ctx, record, told)
    if pending := growing.pending():
        yield pending
    assert record.ended is not None  # noqa: S101 - the loop ends with it
    ctx.say(f"note: {record.name} ended: {record.ended.outcome.value}" + "".join(f"; {n}" for n in record.ended.notes))


def _ask(ctx: Context, record: Record, told: str) -> tuple[Record, str]:
    """Bring the record up to date; say once each what it waits for."""
    try:
        settle(ctx, tag=record.tag)
        record = current_record(ctx, record)
        job = job_of(ctx, record) if record.ended is None else None
    except SlurmUnreachable as error:
        if error.message != told:
            ctx.say(f"warning: {error.message}; still following the file")
        return record, error.message
    words = ""
    if job is not None and job.phase is Phase.WAITING:
        words = f"waiting: {reason_words(job.reason) or job.state.lower()}"
    if words and words != told:
        ctx.say(f"note: {record.name} is {words}")
    return record, words or told


def _unreadable(record: Record, error: OSError) -> LedgerError:
    return LedgerError(f"{record.log}: {error.strerror or error}", hint=f"gpuq status {record.tag}")


def _no_log(record: Record) -> NotFound:
    if record.ended is None:
        return NotFound(
            f"{record.name} has no log yet; it has not started", hint=f"gpuq log {record.tag} -f waits for it"
        )
    return NotFound(f"{record.name} left no log at {record.log}", hint=f"gpuq status {record.tag}")
