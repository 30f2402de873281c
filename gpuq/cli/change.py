"""`gpuq cancel`, `hold`, `release`, `top`, `nice`, `set`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from gpuq.cli.context import build
from gpuq.cli.output import emit_json, printable, say
from gpuq.cli.values import AUTO, SIZE_OR_AUTO, TIME
from gpuq.errors import GpuqError

if TYPE_CHECKING:
    from gpuq.usecases.change import Changed
    from gpuq.usecases.context import Context

_REFS = click.argument("refs", nargs=-1, required=True, metavar="TAG|JOB...")


def _how(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that all of them have."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.change/1)."),
        click.option("--dry-run", is_flag=True, help="Check that it can be done; change nothing."),
    ):
        command = option(command)
    return command


def _each(refs: tuple[str, ...], act: Callable[[Context, str], Changed], dry_run: bool, as_json: bool) -> None:
    """Do it for every reference, also after one was refused; then report the last refusal."""
    ctx = build()
    refused: GpuqError | None = None
    done: list[Changed] = []
    failures: list[dict[str, Any]] = []
    for ref in refs:
        try:
            changed = act(ctx, ref)
        except GpuqError as error:
            if refused is not None:
                say(f"gpuq: {refused.message}")
            refused = error
            failures.append({"ref": ref, "code": error.exit_code, "message": error.message, "hint": error.hint})
            continue
        done.append(changed)
        if not as_json:
            name = changed.tag if changed.attempt is None else f"{changed.tag} attempt {changed.attempt}"
            click.echo(f"{printable(name)} (job {changed.job_id}): {'dry run: ' if dry_run else ''}{changed.done}")
    if as_json:
        emit_json("gpuq.change/1", dry_run=dry_run, changed=done, refused=failures)
    if refused is not None:
        raise refused


@click.command()
@_REFS
@_how
def cancel(refs: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Cancel attempts or jobs.

    A TAG means its latest attempt. The record notes who cancelled it. What waits for its end (gpuq chain, --after)
    starts then: to end a chain, name all of it. What waits for its success is cancelled with it.

    \b
    Example:
      gpuq submit digits/wide --hold
      gpuq cancel digits/wide
    """
    from gpuq.usecases import change

    _each(refs, lambda ctx, one: change.cancel(ctx, one, dry_run=dry_run), dry_run, as_json)


@click.command()
@_REFS
@_how
def hold(refs: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Hold waiting jobs.

    They do not start until they are released, and go behind your other waiting jobs then.

    \b
    Example:
      gpuq chain digits/baseline digits/wide
      gpuq hold digits/wide
      gpuq release digits/wide
    """
    from gpuq.usecases import change

    _each(refs, lambda ctx, one: change.hold(ctx, one, dry_run=dry_run), dry_run, as_json)


@click.command()
@_REFS
@_how
def release(refs: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Release held jobs.

    They go behind your other waiting jobs; gpuq top moves one ahead. A job that waits for its begin time (a requeued
    one does, for two minutes) may start at once then.

    \b
    Example:
      gpuq submit digits/wide --hold
      gpuq release digits/wide
    """
    from gpuq.usecases import change

    _each(refs, lambda ctx, one: change.release(ctx, one, dry_run=dry_run), dry_run, as_json)


@click.command()
@click.argument("ref", metavar="TAG|JOB")
@_how
def top(ref: str, dry_run: bool, as_json: bool) -> None:
    """Move a waiting job before your others.

    \b
    Example:
      gpuq chain digits/baseline digits/wide
      gpuq top digits/wide
    """
    from gpuq.usecases import change

    _each((ref,), lambda ctx, one: change.top(ctx, one, dry_run=dry_run), dry_run, as_json)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("ref", metavar="TAG|JOB")
@click.argument("value", type=int, metavar="N")
@_how
def nice(ref: str, value: int, dry_run: bool, as_json: bool) -> None:
    """Let a waiting job go later.

    The higher N, the later; only root may go below 0. Not for a held job: Slurm would let it go.

    \b
    Example:
      gpuq chain digits/baseline digits/wide
      gpuq nice digits/wide 100
    """
    from gpuq.usecases import change

    _each((ref,), lambda ctx, one: change.nice(ctx, one, value, dry_run=dry_run), dry_run, as_json)


@click.command("set")
@_REFS
@click.option("--mem", "memory", type=SIZE_OR_AUTO, metavar="SIZE|auto", help="Memory, like 28G; auto: as advised.")
@click.option("--time", type=TIME, metavar="TIME", help="Time limit, like 8:00:00.")
@_how
def set_(refs: tuple[str, ...], memory: Any, time: str | None, dry_run: bool, as_json: bool) -> None:
    """Change memory or time limit of a waiting job.

    \b
    Example:
      gpuq submit digits/wide --hold
      gpuq set digits/wide --mem 1G --time 1:00:00
    """
    from gpuq.usecases import change

    def limits(ctx: Context, one: str) -> Changed:
        size = memory
        if size == AUTO:
            from gpuq.usecases.memory.report import auto_memory

            size = auto_memory(ctx, one)
        return change.set_limits(ctx, one, memory=size, time=time, dry_run=dry_run)

    _each(refs, limits, dry_run, as_json)
