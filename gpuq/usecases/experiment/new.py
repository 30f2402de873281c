"""Make a run out of a proven one, with one variable changed."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import msgspec

from gpuq.adapters import codestate
from gpuq.adapters.files import is_there, write_atomic
from gpuq.core.attempt import Record
from gpuq.core.config import RUN_FILE
from gpuq.core.experiment.origin import Change, Origin
from gpuq.core.experiment.provenance import ORIGIN_FILE
from gpuq.core.experiment.variation import change, split_pair
from gpuq.core.script import check_script, is_shell, with_requeue_separator
from gpuq.errors import LedgerError, SlurmUnreachable, SubmissionRefused, UsageError
from gpuq.usecases.context import Context
from gpuq.usecases.experiment.origin import proven_script, read_text
from gpuq.usecases.experiment.provenance import last_success
from gpuq.usecases.refs import require_run, tag_of
from gpuq.usecases.settle import settle_if_possible


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A run that can be made; nothing is written yet."""

    tag: str
    origin: Origin
    before: str
    """The parent's script."""
    script: str
    settings: str | None
    """The parent's run.toml."""
    notes: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """What differs from the parent."""
        return self.origin.changes


def plan(ctx: Context, text: str, parent: str, pairs: list[str], *, allow: int = 1, unproven: bool = False) -> Plan:
    """Everything that `make` will write, and every check.

    pairs: `KEY=VALUE`. allow: how many of them there may be. unproven: copy job.sh as it is, though no attempt succeeded.
    Raises UsageError (also where a variable is written in several places), NotFound, SubmissionRefused, LedgerError.
    """
    tag = tag_of(ctx, text)
    runs, _, rest = tag.partition("/")
    if rest and runs == ctx.ledger.root.name and not is_there(ctx.ledger.root / runs):
        raise UsageError(f"{tag} looks like a path; a TAG begins below {runs}/", hint=f"the TAG of that path is {rest}")
    old = require_run(ctx, parent)
    if is_there(ctx.ledger.job_script(tag)):
        look = f", or look at it: gpuq diff {old} {tag}" if old != tag else ""
        raise UsageError(f"run {tag} exists already", hint=f"another TAG{look}")
    split = [split_pair(pair) for pair in pairs]
    if len(pairs) > allow:
        raise UsageError(
            f"{len(pairs)} variables at once; what comes of it could not be told apart",
            hint=f"one run for each, or --allow {len(pairs)}",
        )
    script, success, notes = _proven(ctx, old, unproven)
    shown = _shown(ctx, ctx.ledger.job_script(old))
    interpreter = check_script(script, shown).interpreter
    if not is_shell(interpreter):
        raise UsageError(
            f"{shown} is run by {interpreter or 'nobody knows what'}; gpuq new can vary shell scripts alone"
        )
    varied, changes = change(script, split, shown)
    notes += [
        f"{key} is taken from ${one.key} in job.sh; {one.key} is changed"
        for (key, _), one in zip(split, changes, strict=True)
        if key.lstrip("-").replace("_", "-") != one.key.lstrip("-").replace("_", "-")
    ]
    notes += _names_parent(varied, ctx.ledger.run_dir(old), ctx.ledger.root, tag)
    notes += _inputs(varied, ctx.ledger.run_dir(old), success)
    origin = Origin(
        parent=old,
        attempt=None if success is None else success.attempt,
        changes=changes,
        script_sha256=codestate.sha256(varied),
    )
    settings = read_text(ctx.ledger.run_dir(old) / RUN_FILE)
    return Plan(tag=tag, origin=origin, before=script, script=varied, settings=settings, notes=tuple(notes))


def make(ctx: Context, made: Plan) -> Path:
    """Write the run; its directory. All of it, or nothing. Raises UsageError, LedgerError."""
    directory = ctx.ledger.run_dir(made.tag)
    begun: list[Path] = []
    try:
        for place in (*reversed(directory.parents), directory):
            if not is_there(place):
                place.mkdir(exist_ok=place != directory)
                begun.append(place)
        if made.settings is not None:
            write_atomic(directory / RUN_FILE, made.settings)
            begun.append(directory / RUN_FILE)
        raw = msgspec.json.format(msgspec.json.encode(made.origin), indent=2)
        write_atomic(directory / ORIGIN_FILE, raw + b"\n")
        begun.append(directory / ORIGIN_FILE)
        write_atomic(ctx.ledger.job_script(made.tag), made.script, mode=0o755)  # last: now it is a run
    except OSError as error:
        for place in reversed(begun):
            with contextlib.suppress(OSError):
                place.rmdir() if place.is_dir() else place.unlink()
        if isinstance(error, FileExistsError):
            raise UsageError(f"run {made.tag} is being made by somebody else at this moment") from None
        raise LedgerError(f"{error.filename or directory}: {error.strerror or error}") from None
    return directory


def _proven(ctx: Context, old: str, unproven: bool) -> tuple[str, Record | None, list[str]]:
    """The script to copy, the attempt that proved it, and notes."""
    try:
        settle_if_possible(ctx, tag=old)
    except SlurmUnreachable as error:
        ctx.say(f"warning: {error.message}; whether an attempt of {old} has succeeded since is not known")
    success = last_success(ctx, old)
    path = ctx.ledger.job_script(old)
    now = read_text(path)
    if success is not None and (script := proven_script(ctx, success)) is not None:
        if now is not None and now != script:
            return (
                script,
                success,
                [
                    f"{_shown(ctx, path)} has changed since attempt {success.attempt} succeeded; what succeeded is copied"
                ],
            )
        return script, success, []
    if now is None:
        raise SubmissionRefused(f"run {old} has no job.sh to copy", hint=f"gpuq status {old}")
    if success is not None and codestate.sha256(_as_submitted(now, fill=success.request.fill)) == success.script_sha256:
        return now, success, []
    if not unproven:
        raise SubmissionRefused(
            f"run {old} has never succeeded; a copy of it would vary something that is not known to work",
            hint=f"gpuq status {old}; --unproven copies its job.sh all the same",
        )
    return now, None, [f"run {old} has never succeeded; its job.sh is copied as it is"]


def _as_submitted(text: str, *, fill: bool) -> str:
    return with_requeue_separator(text, check_script(text, "job.sh").interpreter, fill=fill)


def _names_parent(script: str, directory: Path, runs: Path, tag: str) -> list[str]:
    """Where a script names the directory of the run that it was copied from."""
    named = re.escape(f"{runs.name}/{directory.relative_to(runs).as_posix()}")
    pattern = re.compile(rf"(?<![\w.-]){named}(?![\w.+=-])")
    lines = [
        number
        for number, line in enumerate(script.split("\n"), 1)
        if not line.lstrip().startswith("#") and pattern.search(line)
    ]
    if not lines:
        return []
    return [
        f"job.sh:{lines[0]} names {runs.name}/{directory.relative_to(runs).as_posix()}, the directory of the run that it "
        f"was copied from; if {tag} writes there, it overwrites that run's results: use $GPUQ_RUN_DIR"
    ]


def _inputs(script: str, directory: Path, success: Record | None) -> list[str]:
    """What the script has in its run directory and the attempt that succeeded did not write."""
    start = success.ended.start if success is not None and success.ended is not None else None
    if start is None:
        return []
    found = []
    for name in dict.fromkeys(re.findall(r"GPUQ_RUN_DIR[\"'}]*/([\w.+-]+)", script)):
        with contextlib.suppress(OSError):
            if (directory / name).stat().st_mtime < start.timestamp():
                found.append(name)
    return (
        [f"job.sh uses {', '.join(found)} of its run directory; only job.sh and run.toml are copied"] if found else []
    )


def _shown(ctx: Context, path: Path) -> str:
    return str(path.relative_to(ctx.project.root)) if path.is_relative_to(ctx.project.root) else str(path)
