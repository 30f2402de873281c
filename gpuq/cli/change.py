"""`gpuq cancel`, `hold`, `release`, `top`, `nice`, `set`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from gpuq.cli.context import build
from gpuq.cli.output import say
from gpuq.cli.values import SIZE, TIME
from gpuq.errors import GpuqError

if TYPE_CHECKING:
    from gpuq.usecases.change import Changed
    from gpuq.usecases.context import Context

_REFS = click.argument("refs", nargs=-1, required=True, metavar="TAG|JOB...")


def _each(refs: tuple[str, ...], act: Callable[[Context, str], Changed]) -> None:
    """Do it for every reference, also after one was refused; then report the first refusal."""
    ctx = build()
    refused: GpuqError | None = None
    for ref in refs:
        try:
            changed = act(ctx, ref)
        except GpuqError as error:
            if refused is not None:
                say(f"gpuq: {refused.message}")
            refused = error
            continue
        name = changed.tag if changed.attempt is None else f"{changed.tag} attempt {changed.attempt}"
        click.echo(f"{name} (job {changed.job_id}): {changed.done}")
    if refused is not None:
        raise refused


@click.command()
@_REFS
def cancel(refs: tuple[str, ...]) -> None:
    """Cancel attempts or jobs.

    A TAG means its latest attempt. The record notes who cancelled it.

    \b
    Example:
      gpuq submit digits/wide --hold
      gpuq cancel digits/wide
    """
    from gpuq.usecases import change

    _each(refs, change.cancel)


@click.command()
@_REFS
def hold(refs: tuple[str, ...]) -> None:
    """Hold waiting jobs.

    They do not start until they are released, and go behind your other waiting jobs then.

    \b
    Example:
      gpuq chain digits/baseline digits/wide
      gpuq hold digits/wide
      gpuq release digits/wide
    """
    from gpuq.usecases import change

    _each(refs, change.hold)


@click.command()
@_REFS
def release(refs: tuple[str, ...]) -> None:
    """Release held jobs.

    They go behind your other waiting jobs; gpuq top moves one ahead.

    \b
    Example:
      gpuq submit digits/wide --hold
      gpuq release digits/wide
    """
    from gpuq.usecases import change

    _each(refs, change.release)


@click.command()
@click.argument("ref", metavar="TAG|JOB")
def top(ref: str) -> None:
    """Move a waiting job before your others.

    \b
    Example:
      gpuq chain digits/baseline digits/wide
      gpuq top digits/wide
    """
    from gpuq.usecases import change

    _each((ref,), change.top)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("ref", metavar="TAG|JOB")
@click.argument("value", type=int, metavar="N")
def nice(ref: str, value: int) -> None:
    """Let a waiting job go later.

    The higher N, the later; only root may go below 0.

    \b
    Example:
      gpuq submit digits/wide --hold
      gpuq nice digits/wide 100
    """
    from gpuq.usecases import change

    _each((ref,), lambda ctx, one: change.nice(ctx, one, value))


@click.command("set")
@_REFS
@click.option("--mem", "memory", type=SIZE, metavar="SIZE", help="Memory, like 28G.")
@click.option("--time", type=TIME, metavar="TIME", help="Time limit, like 8:00:00.")
def set_(refs: tuple[str, ...], memory: int | None, time: str | None) -> None:
    """Change memory or time limit of a waiting job.

    \b
    Example:
      gpuq submit digits/wide --hold
      gpuq set digits/wide --mem 1G --time 1:00:00
    """
    from gpuq.usecases import change

    _each(refs, lambda ctx, one: change.set_limits(ctx, one, memory=memory, time=time))
