"""`gpuq log`."""

from __future__ import annotations

import os
import sys

import click

from gpuq.cli.context import build
from gpuq.cli.output import emit_json, rewrite, stay
from gpuq.errors import UsageError


@click.command()
@click.argument("ref", metavar="TAG|JOB")
@click.option("-f", "--follow", is_flag=True, help="Print what is written until the attempt ends; wait for its start.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Attempt N. [default: the latest]")
@click.option("--tail", type=click.IntRange(0, 2**31 - 1), metavar="N", help="Only the last N lines.")
@click.option("--path", is_flag=True, help="Print only where the log is.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.log/1); not with -f.")
def log(ref: str, follow: bool, attempt: int | None, tail: int | None, path: bool, as_json: bool) -> None:
    """Print or follow the log of an attempt.

    Of a progress bar that rewrites its line only the last frame is shown; with -f on a terminal it moves.

    \b
    Example:
      gpuq log digits/baseline --tail 5
      gpuq log digits/baseline -f
    """
    from gpuq.usecases import log as usecase

    if follow and as_json:
        raise UsageError(
            "--json gives one object and -f never ends", hint="gpuq wait TAG --json, then gpuq log TAG --json"
        )
    ctx = build()
    record = usecase.find(ctx, ref, attempt)
    if path:
        click.echo(record.log)
        return
    if as_json:
        lines = list(usecase.read(record, tail))
        emit_json("gpuq.log/1", tag=record.tag, attempt=record.attempt, path=record.log, lines=lines)
        return
    if not follow:
        for line in usecase.read(record, tail):
            click.echo(line)
        return
    stay()
    live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    for line in usecase.follow(ctx, record, tail, show=rewrite if live else None):
        if live:
            rewrite("")
        click.echo(line)
        sys.stdout.flush()
