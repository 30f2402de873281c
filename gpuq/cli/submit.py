"""`gpuq submit`, `gpuq chain`, `gpuq resubmit`: their options and their help. What they do is in gpuq.cli.submission."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from gpuq.cli.values import SIZE_OR_AUTO, TIME


def _asks(command: Callable[..., Any], *, again: bool = False) -> Callable[..., Any]:
    """The options that say what a job asks for. again: what is not given is as it was in the last attempt."""

    def default(words: str) -> str:
        return f" [default: {'as before' if again else words}]"

    for option in reversed(
        [
            click.option(
                "--mem",
                "memory",
                type=SIZE_OR_AUTO,
                metavar="SIZE|auto",
                help="Memory, like 28G; auto: what gpuq mem --advise says." + default("28G or less"),
            ),
            click.option("--cpus", type=int, metavar="N", help="CPU cores." + default("8 or less")),
            click.option(
                "--time",
                type=TIME,
                metavar="TIME",
                help="Time limit, like 8:00:00 (24:00 is 24 minutes)." + default("the partition's"),
            ),
            click.option("-p", "--partition", metavar="NAME", help="Partition." + default("Slurm's")),
            click.option("--cpu-only", is_flag=True, help="Ask for no GPU; otherwise always for exactly one."),
            click.option(
                "--fill", is_flag=True, help="Make way for others: SIGTERM, time to save, and back to the queue."
            ),
            click.option("--nice", type=int, metavar="N", help="Go later than others by N."),
            click.option(
                "--signal-before", type=int, metavar="SECONDS", help="Send SIGTERM so long before the time limit."
            ),
            click.option(
                "--check", is_flag=True, help="Try it first, without the GPU: GPUQ_CHECK=1 job.sh, or [check] command."
            ),
            click.option("--snapshot", is_flag=True, help="Run it in a copy of the tree as it is now."),
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
def submit(**given: Any) -> int:
    """Submit a run: one GPU, its own attempt number and log.

    The run is runs/TAG/job.sh. It starts in the project root, with GPUQ_TAG, GPUQ_ATTEMPT, GPUQ_RUN_DIR and
    GPUQ_PROJECT set, and writes to runs/TAG/slurm/attemptN.out.

    \b
    Example:
      gpuq submit digits/baseline --mem 2G --time 0:10:00
      gpuq submit digits/wide --after-ok digits/baseline
      gpuq submit digits/baseline --dry-run
    """
    from gpuq.cli import submission

    return submission.submit(**given)


@click.command()
@click.argument("tag")
@partial(_asks, again=True)
@click.option("--hold", is_flag=True, help="Submit it held; gpuq release TAG lets it go.")
@_of_one_run
def resubmit(**given: Any) -> int:
    """Submit a run again as it was asked for last.

    The next attempt gets the memory, cores, time limit and partition of the one before, unless an option says
    otherwise; job.sh is taken as it is now. Dependencies are not repeated (gpuq submit TAG --after X).

    \b
    Example:
      gpuq resubmit digits/baseline --mem 3G
    """
    from gpuq.cli import submission

    return submission.resubmit(**given)


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
def chain(**given: Any) -> int:
    """Submit several runs, each after the one before, all or none.

    A run starts when the one before has ended, however it ended (afterany); with --ok only if it succeeded. When
    one of them is refused, what was accepted is cancelled before it could start.

    \b
    Example:
      gpuq chain digits/baseline digits/wide
      gpuq chain --ok digits/baseline digits/wide --after last
    """
    from gpuq.cli import submission

    return submission.chain(**given)
