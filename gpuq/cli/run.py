"""`gpuq run`, as click reads it: for --help and for what is wrong. `gpuq.cli.inside` does it."""

from __future__ import annotations

import click

from gpuq.cli.inside import go


@click.command(context_settings={"ignore_unknown_options": False})
@click.option("--pty", is_flag=True, help="Give CMD a terminal, for a program that wants one.")
@click.option(
    "--frames",
    type=click.IntRange(min=0),
    default=30,
    metavar="SECONDS",
    help="One line in so many seconds of a progress bar that rewrites itself.  [default: 30]",
)
@click.argument("command", metavar="-- CMD [ARG]...", nargs=-1, type=click.UNPROCESSED, required=True)
def run(pty: bool, frames: int, command: tuple[str, ...]) -> int:
    """Run a program inside job.sh, with a first and a last line in the log.

    START has the settings, the GPU and what is free of its memory; a job that was promised a GPU and sees none is
    refused. The last line is FINISHED or FAILED with the cause, also when the program is killed. Signals go to CMD, and
    its exit code comes back (128 + N: ended by signal N). In job.sh: exec gpuq run -- CMD, so that Slurm's signals come
    here and not to a shell that waits.

    \b
    Example:
      exec gpuq run -- python train.py --lr 3e-4
    """
    if not command[0]:
        raise click.UsageError("the command is empty")
    return go(command, pty=pty, every=float(frames))
