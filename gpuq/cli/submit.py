"""`gpuq submit`, `gpuq chain`, `gpuq resubmit`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from gpuq.cli.context import build
from gpuq.cli.output import emit_json, say, stay
from gpuq.cli.values import SIZE, TIME
from gpuq.core.config import Settings
from gpuq.core.units import duration_words, format_size
from gpuq.errors import UsageError
from gpuq.usecases.after import ANY, OK, After

if TYPE_CHECKING:
    from gpuq.usecases.context import Context
    from gpuq.usecases.submit import Draft, Options, Submission
    from gpuq.usecases.wait import Waited


def _asks(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say what a job asks for."""
    for option in reversed(
        [
            click.option("--mem", "memory", type=SIZE, metavar="SIZE", help="Memory, like 28G. [default: 28G or less]"),
            click.option("--cpus", type=int, metavar="N", help="CPU cores. [default: 8 or less]"),
            click.option("--time", type=TIME, metavar="TIME", help="Time limit, like 8:00:00 (24:00 is 24 minutes)."),
            click.option("-p", "--partition", metavar="NAME", help="Partition. [default: Slurm's]"),
            click.option("--cpu-only", is_flag=True, help="Ask for no GPU; otherwise always for exactly one."),
            click.option("--nice", type=int, metavar="N", help="Go later than others by N."),
            click.option(
                "--signal-before", type=int, metavar="SECONDS", help="Send SIGTERM so long before the time limit."
            ),
        ]
    ):
        command = option(command)
    return command


def _after_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.option(
                "--after",
                multiple=True,
                metavar="X",
                help="Start when X has ended, however. X: a job id, a TAG, or `last`, the last job in the partition.",
            ),
            click.option("--after-ok", multiple=True, metavar="X", help="Start when X has succeeded."),
        ]
    ):
        command = option(command)
    return command


def _of_one_run(command: Callable[..., Any]) -> Callable[..., Any]:
    """What becomes of a single submission, and how it is reported."""
    for option in reversed(
        [
            click.option("--wait", "wait_", is_flag=True, help="Wait for its end; the exit code tells the outcome."),
            click.option(
                "--dry-run", is_flag=True, help="Check everything and show the sbatch command; submit nothing."
            ),
            click.option("--parsable", is_flag=True, help="Print the job id only, as sbatch does."),
            click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.submit/1)."),
        ]
    ):
        command = option(command)
    return command


@click.command()
@click.argument("tag")
@_after_options
@_asks
@click.option("--hold", is_flag=True, help="Submit it held; gpuq release TAG lets it go.")
@click.option("--key", metavar="K", help="The same key of this run again returns the same attempt and submits nothing.")
@_of_one_run
def submit(
    tag: str,
    after: tuple[str, ...],
    after_ok: tuple[str, ...],
    hold: bool,
    key: str | None,
    wait_: bool,
    dry_run: bool,
    parsable: bool,
    as_json: bool,
    **asks: Any,
) -> int:
    """Submit a run: one GPU, its own attempt number and log.

    The run is runs/TAG/job.sh. It starts in the project root, with GPUQ_TAG, GPUQ_ATTEMPT, GPUQ_RUN_DIR and
    GPUQ_PROJECT set, and writes to runs/TAG/slurm/attemptN.out.

    \b
    Example:
      gpuq submit digits/baseline --mem 2G --time 0:10:00
      gpuq submit digits/wide --after-ok digits/baseline
      gpuq submit digits/baseline --dry-run
    """
    from gpuq.usecases import submit as usecase

    ctx = build()
    options = _options(after, after_ok, hold, key, asks)
    if dry_run:
        return _dry_run(ctx, usecase.prepare(ctx, tag, options), parsable, as_json)
    made = usecase.submit_run(ctx, tag, options)
    return _finish(ctx, [made], wait_, parsable, as_json)


@click.command()
@click.argument("tag")
@_asks
@click.option("--hold", is_flag=True, help="Submit it held; gpuq release TAG lets it go.")
@_of_one_run
def resubmit(tag: str, hold: bool, wait_: bool, dry_run: bool, parsable: bool, as_json: bool, **asks: Any) -> int:
    """Submit a run again as it was asked for last.

    The next attempt gets the memory, cores, time limit and partition of the one before, unless an option says
    otherwise; job.sh is taken as it is now. Dependencies are not repeated.

    \b
    Example:
      gpuq resubmit digits/baseline --mem 3G
    """
    from gpuq.errors import NotFound
    from gpuq.usecases import submit as usecase
    from gpuq.usecases.refs import require_run
    from gpuq.usecases.settle import settle

    ctx = build()
    tag = require_run(ctx, tag)
    settle(ctx, tag=tag)
    last = ctx.ledger.latest(tag)
    if last is None:
        raise NotFound(f"run {tag} has no attempt to repeat", hint=f"gpuq submit {tag}")
    if last.ended is None:
        say(f"note: {last.name} has not ended yet (job {last.job_id}); this is one more")
    options = _options((), (), hold, None, asks)
    draft = usecase.prepare(ctx, tag, options, again=last.request)
    if dry_run:
        return _dry_run(ctx, draft, parsable, as_json)
    return _finish(ctx, [usecase.submit(ctx, draft)], wait_, parsable, as_json)


@click.command()
@click.argument("tags", nargs=-1, required=True, metavar="TAG...")
@click.option("--ok", is_flag=True, help="Each only when the one before has succeeded (afterok, not afterany).")
@_after_options
@_asks
@click.option("--hold", is_flag=True, help="Leave the first held; gpuq release TAG lets the chain go.")
@click.option("--key", metavar="K", help="The same key again returns the same attempts and submits nothing.")
@click.option("--wait", "wait_", is_flag=True, help="Wait for the end of all; the exit code tells the outcome.")
@click.option("--dry-run", is_flag=True, help="Check everything and show the sbatch commands; submit nothing.")
@click.option("--parsable", is_flag=True, help="Print the job ids only, one a line.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.chain/1).")
def chain(
    tags: tuple[str, ...],
    ok: bool,
    after: tuple[str, ...],
    after_ok: tuple[str, ...],
    hold: bool,
    key: str | None,
    wait_: bool,
    dry_run: bool,
    parsable: bool,
    as_json: bool,
    **asks: Any,
) -> int:
    """Submit several runs, each after the one before, all or none.

    A run starts when the one before has ended, however it ended (afterany); with --ok only if it succeeded. When
    one of them is refused, what was accepted is cancelled before it could start.

    \b
    Example:
      gpuq chain digits/baseline digits/wide
      gpuq chain --ok digits/baseline digits/wide --after last
    """
    ctx = build()
    options = _options(after, after_ok, hold, key, asks)
    if dry_run:
        from gpuq.usecases.chain import preview_chain

        drafts = preview_chain(ctx, list(tags), options)
        if as_json:
            emit_json("gpuq.chain/1", dry_run=True, attempts=[_as_planned(ctx, draft) for draft in drafts])
            return 0
        for draft in drafts:
            _dry_run(ctx, draft, parsable, as_json)
        return 0
    from gpuq.usecases.chain import chain as usecase

    made = usecase(ctx, list(tags), options, kind=OK if ok else ANY)
    return _finish(ctx, made, wait_, parsable, as_json, whole=True)


def _options(
    after: tuple[str, ...], after_ok: tuple[str, ...], hold: bool, key: str | None, asks: dict[str, Any]
) -> Options:
    from gpuq.core.config import check_number
    from gpuq.usecases.submit import Options

    if key is not None and not key.strip():
        raise UsageError("--key is empty; an empty key would repeat whatever was submitted with one before")
    if key is not None and not key.isprintable():
        raise UsageError("--key must be printable text")
    cpu_only = asks.pop("cpu_only")
    for field in ("cpus", "nice", "signal_before"):
        if asks[field] is not None:
            try:
                check_number(field, asks[field])
            except ValueError as error:
                raise UsageError(f"--{field.replace('_', '-')} {asks[field]}: {error}") from None
    wishes = [After(ANY, ref) for ref in after] + [After(OK, ref) for ref in after_ok]
    return Options(flags=Settings(**asks), cpu_only=cpu_only, hold=hold, after=tuple(wishes), key=key)


def _asked_words(draft: Draft) -> str:
    request = draft.request
    limit = "no time limit" if draft.time_limit is None else f"time limit {duration_words(draft.time_limit)}"
    gpu = "1 GPU" if request.gpu else "no GPU"
    return f"{gpu}, {request.cpus} CPU{'s' if request.cpus != 1 else ''}, {format_size(request.memory)}, {limit}"


def _dry_run(ctx: Context, draft: Draft, parsable: bool, as_json: bool) -> int:
    from gpuq.usecases.submit import preview

    if as_json:
        emit_json("gpuq.submit/1", dry_run=True, **_as_planned(ctx, draft))
        return 0
    record = preview(ctx, draft)
    for note in draft.notes:
        say(f"note: {note}")
    if not parsable:
        say(f"would submit {record.name}: {_asked_words(draft)}")
    click.echo(shlex.join(record.argv))
    return 0


def _as_planned(ctx: Context, draft: Draft) -> dict[str, Any]:
    from gpuq.usecases.submit import preview

    record = preview(ctx, draft)
    return {
        "tag": record.tag,
        "attempt": record.attempt,
        "argv": record.argv,
        "request": record.request,
        "dependencies": record.dependencies,
        "notes": draft.notes,
    }


def _finish(
    ctx: Context, made: list[Submission], wait_: bool, parsable: bool, as_json: bool, *, whole: bool = False
) -> int:
    """Report what was submitted, and wait for it where that is wanted. whole: it is a chain."""
    if not as_json:
        for one in made:
            _tell(one, parsable, prefix=f"{one.record.tag}: " if len(made) > 1 else "")
        sys.stdout.flush()
    results: list[Waited] = []
    if wait_:
        from gpuq.usecases.wait import wait_for

        stay()
        results = wait_for(ctx, [one.record for one in made])
    if as_json:
        objects = [_as_json(one) for one in made]
        for shown, result in zip(objects, results, strict=False):
            shown["outcome"] = result.outcome
            shown["score"] = result.score
            shown["outcome_notes"] = result.notes
        if whole:
            emit_json("gpuq.chain/1", dry_run=False, attempts=objects)
        else:
            emit_json("gpuq.submit/1", dry_run=False, **objects[0])
    elif results:
        from gpuq.cli.wait import report

        report(results)
    if not results:
        return 0
    from gpuq.usecases.wait import combined_exit_code

    return combined_exit_code(results, any_=False)


def _tell(one: Submission, parsable: bool, prefix: str) -> None:
    record = one.record
    for note in (*(one.draft.notes if one.draft else ()), *one.notes):
        say(f"note: {prefix}{note}")
    if parsable:
        click.echo("" if record.job_id is None else record.job_id)
    elif one.repeated:
        known = "" if record.job_id is None else f", as job {record.job_id}"
        click.echo(f"{record.name} was submitted with this key before{known}; nothing is submitted")
    else:
        waits = f", {' and '.join(record.dependencies)}" if record.dependencies else ""
        asked = _asked_words(one.draft) if one.draft else ""
        click.echo(f"Submitted {record.name} as job {record.job_id} ({asked}{waits})")


def _as_json(one: Submission) -> dict[str, Any]:
    record = one.record
    return {
        "tag": record.tag,
        "attempt": record.attempt,
        "job_id": record.job_id,
        "repeated": one.repeated,
        "log": record.log,
        "script": record.script,
        "dependencies": record.dependencies,
        "request": record.request,
        "notes": [*(one.draft.notes if one.draft else ()), *one.notes],
    }
