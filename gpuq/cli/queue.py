"""`gpuq queue` and `gpuq status`: their options and their help. What they print is in gpuq.cli.timetable."""

from __future__ import annotations

import click


@click.command()
@click.option("-a", "--all", "everybody", is_flag=True, help="Everybody's jobs, not only yours.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.queue/1).")
def queue(everybody: bool, as_json: bool) -> None:
    """Show what runs and what waits, in order, and why.

    \b
    Example:
      gpuq queue
      gpuq queue --all --json
    """
    from gpuq.cli import timetable

    timetable.queue(everybody=everybody, as_json=as_json)


@click.command()
@click.argument("ref", required=False, metavar="[TAG|JOB]")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.status/1).")
def status(ref: str | None, as_json: bool) -> None:
    """Show runs, their attempts and how they ended.

    Without an argument every run with its latest attempt; with a TAG all attempts of that run.

    \b
    Example:
      gpuq status
      gpuq status digits/baseline --json
    """
    from gpuq.cli import timetable

    timetable.status(ref, as_json=as_json)
