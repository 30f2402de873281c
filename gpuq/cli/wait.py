"""`gpuq wait`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from gpuq.cli.context import build
from gpuq.cli.output import emit_json, printable, state, stay

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuq.usecases.wait import Waited


@click.command()
@click.argument("refs", nargs=-1, required=True, metavar="TAG|JOB...")
@click.option("--any", "any_", is_flag=True, help="Return when the first of them has ended.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Return after so long at the latest.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.wait/1).")
def wait(refs: tuple[str, ...], any_: bool, timeout: float | None, as_json: bool) -> int:
    """Wait until attempts have ended; the exit code tells how.

    A TAG means its latest attempt. The exit code is that of the first that did not succeed:

    \b
      0  all succeeded      23  CANCELLED
     20  FAILED             24  NODE_FAIL
     21  OUT_OF_MEMORY      25  INCOMPLETE: a promised result is missing, or stopped half-way
     22  TIMEOUT            26  LOST: nobody knows how it ended
     27  not ended: the time is over, it can never start, or it has been held for ten seconds

    \b
    Example:
      gpuq wait digits/baseline digits/wide --timeout 600
    """
    from gpuq.usecases.wait import combined_exit_code
    from gpuq.usecases.wait import wait as usecase

    stay()
    with going_on(refs):
        results = usecase(build(), list(refs), any_=any_, timeout=timeout)
    code = combined_exit_code(results, any_=any_)
    if as_json:
        emit_json("gpuq.wait/1", exit_code=code, results=results)
    else:
        report(results)
    return code


@contextlib.contextmanager
def going_on(refs: Sequence[str]) -> Iterator[None]:
    """Around a wait: who ends it with Ctrl-C is told that nothing else ends with it."""
    try:
        yield
    except KeyboardInterrupt:
        what = "the job goes on" if len(refs) == 1 else "the jobs go on"
        raise KeyboardInterrupt(f"{what}: gpuq wait {' '.join(refs)}") from None


def report(results: list[Waited]) -> None:
    """A line for each awaited attempt."""
    for one in results:
        name = one.tag if one.attempt is None else f"{one.tag} attempt {one.attempt}"
        words = [f"{printable(name)} (job {one.job_id}): {state(one.outcome or 'not ended')}"]
        if one.outcome is None and one.state != "UNKNOWN":
            words.append(one.state)
        if one.score is not None:
            words.append(f"score {one.score:g}")
        words += map(printable, one.notes)
        click.echo("; ".join(words))
