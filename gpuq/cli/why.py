"""`gpuq why`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuq.cli.context import build
from gpuq.cli.output import emit_json, printable, state

if TYPE_CHECKING:
    from gpuq.usecases.why.answer import Why


@click.command()
@click.argument("ref", metavar="TAG|JOB")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Attempt N. [default: the latest]")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.why/1).")
def why(ref: str, attempt: int | None, as_json: bool) -> None:
    """Say why a job waits, or why it ended as it did.

    The answer comes with what it was concluded from and the command that helps. The log is read, however large it is.

    \b
    Example:
      gpuq why digits/baseline
      gpuq why digits/baseline --json
    """
    import msgspec

    from gpuq.usecases.why.answer import why as usecase

    found = usecase(build(), ref, attempt)
    if as_json:
        emit_json("gpuq.why/1", **msgspec.structs.asdict(found))
    else:
        _tell(found)


def _tell(found: Why) -> None:
    name = found.tag if found.attempt is None else f"{found.tag} attempt {found.attempt}"
    if found.job_id is not None:
        name += f" (job {found.job_id})"
    answer = found.answer
    sure = "" if answer.confidence == "certain" else f" [{answer.confidence}]"
    click.echo(f"{printable(name)}: {state(found.outcome or found.state)}")
    click.echo(f"{printable(answer.headline)}{sure}")
    for title, lines in (("evidence", answer.evidence), ("also", answer.details), ("what helps", answer.advice)):
        if lines:
            click.echo(f"  {title}:")
        for line in lines:
            click.echo(f"    {printable(line)}")
