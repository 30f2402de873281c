"""The run that another was made from, and whether what made that one work is still there."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import msgspec

from gpuq.core.attempt import Record
from gpuq.core.experiment.origin import ORIGIN_VERSION, Origin
from gpuq.core.experiment.provenance import ORIGIN_FILE
from gpuq.core.experiment.shellwords import read_script
from gpuq.core.script import without_requeue_separator
from gpuq.errors import LedgerError
from gpuq.usecases.context import Context


def origin_of(ctx: Context, tag: str) -> Origin | None:
    """Where a run comes from; None: it was not made by `gpuq new`. Raises LedgerError for a file that is no such thing."""
    path = ctx.ledger.run_dir(tag) / ORIGIN_FILE
    raw = read_text(path)
    if raw is None:
        return None
    try:
        origin = msgspec.json.decode(raw.encode("utf-8", "surrogateescape"), type=Origin)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise LedgerError(f"{path} is not what gpuq new wrote: {error}", hint=f"look at it: cat {path}") from None
    if origin.version > ORIGIN_VERSION:
        raise LedgerError(f"{path} was written by a newer gpuq (format {origin.version})", hint="upgrade gpuq")
    return origin


def proven_script(ctx: Context, record: Record) -> str | None:
    """The job.sh of an attempt, from the copy that Slurm was given; None: there is none any more."""
    raw = read_text(
        ctx.ledger.path(record.tag, record.attempt, "sh")
    )  # not record.script: a project may have been moved
    return None if raw is None else without_requeue_separator(raw)


def vanished(ctx: Context, tag: str, script: str) -> str:
    """A sentence where the run was copied from one whose script hands over with `exec`, and this one no longer does:
    it would end well and have done nothing. Empty: it is all there, or there is nothing to compare it with."""
    try:
        origin = origin_of(ctx, tag)
        if origin is None:
            return ""
        if origin.attempt is not None:
            parent = proven_script(ctx, ctx.ledger.read(origin.parent, origin.attempt)) or ""
        else:
            parent = ctx.ledger.job_script(origin.parent).read_bytes().decode("utf-8", "surrogateescape")
    except (LedgerError, OSError):
        return ""
    had, has = _handovers(parent), _handovers(script)
    if had and not has:
        line, words = had[-1]
        return (
            f"the line `{words}` of {origin.parent} (job.sh:{line}) is gone from {tag}'s job.sh; "
            "it would end without having run anything"
        )
    return ""


def unheard(script: str) -> list[str]:
    """A note where `gpuq run` is called and never handed over to: Slurm's SIGTERM ends the shell that waits for it, and
    SIGKILL the rest at once, so that nothing is saved and the log has no last line."""
    words = read_script(script).words
    lines = []
    for number, (word, following) in enumerate(itertools.pairwise(words)):
        if (word.raw, following.raw) == ("gpuq", "run") and word.command == following.command:
            before = words[number - 1] if number else None
            if before is not None and before.command == word.command and before.raw == "exec":
                return []
            if before is None or before.command != word.command:
                lines.append(word.line)
    if not lines or re.search(r"(?:^|[\s;&])trap\s", script):
        return []
    return [
        f"job.sh:{lines[-1]} calls gpuq run without exec: when Slurm ends the job, the program hears nothing of it and the "
        "log gets no last line; write exec gpuq run -- CMD"
    ]


def _handovers(script: str) -> list[tuple[int, str]]:
    """The `exec PROGRAM …` commands of a script: line, and the first words as written."""
    words = read_script(script).words
    found = []
    for number, word in enumerate(words):
        first = number == 0 or words[number - 1].command != word.command
        if first and word.raw == "exec":
            command = [one.raw for one in words[number : number + 6] if one.command == word.command]
            if len(command) > 1:
                found.append((word.line, " ".join(command)))
    return found


def read_text(path: Path) -> str | None:
    """The text of a file, any bytes; None: there is none. Raises LedgerError."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LedgerError(f"{path}: {error.strerror}") from None
