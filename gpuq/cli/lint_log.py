"""`gpuq lint-log`."""

from __future__ import annotations

from pathlib import Path

import click

from gpuq.cli.output import emit_json, printable


@click.command("lint-log")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.lint-log/1).")
def lint_log(files: tuple[Path, ...], as_json: bool) -> None:
    """Check that logs keep the format of START, STEP, FINISHED and FAILED.

    Every fault is a line FILE:LINE: TEXT. The exit code is 16 when there is one. `gpuq run` and `gpuq.runlog` write
    the format.

    \b
    Example:
      gpuq lint-log runs/digits/baseline/slurm/attempt1.out
    """
    from gpuq.errors import LogFault
    from gpuq.usecases.inside.lint_log import check

    found = {path: check(path) for path in files}
    faults = [fault for checked in found.values() for fault in checked]
    if as_json:
        emit_json("gpuq.lint-log/1", files=[str(path) for path in files], faults=faults)
    else:
        for path, checked in found.items():
            name = printable(str(path))
            click.echo("\n".join(f"{name}:{one.line}: {printable(one.text)}" for one in checked) or f"{name}: no fault")
    if faults:
        more = f"{len(faults)} faults" if len(faults) > 1 else "1 fault"
        raise LogFault(f"the log does not keep the format ({more})", hint="exec gpuq run -- CMD in job.sh writes it")
