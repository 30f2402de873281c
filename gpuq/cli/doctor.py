"""`gpuq doctor`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuq.cli.output import colour_wanted, emit_json, printable, say

if TYPE_CHECKING:
    from gpuq.core.checks.check import Check
    from gpuq.usecases.doctor import Report

_COLOUR = {"failure": "red", "warning": "yellow", "unknown": "magenta", "ok": "green"}


@click.command()
@click.option("--fix", is_flag=True, help="Mend what needs no root and destroys nothing: start a dead embedded Slurm.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.doctor/1).")
def doctor(fix: bool, as_json: bool) -> None:
    """Check this host and its Slurm, and say how to mend what is wrong.

    Failures come first, and of these the cause before what it causes. Exit code 10 when there is one. As root it can
    read the daemons' logs, and sees more.

    \b
    Example:
      gpuq doctor
      gpuq doctor --json
    """
    from gpuq.errors import DoctorFailure
    from gpuq.usecases.doctor import doctor as usecase

    report = usecase(dict(os.environ), project=_project(), fix=fix, say=say)
    if as_json:
        emit_json(
            "gpuq.doctor/1",
            host=report.host,
            slurm_conf=report.slurm_conf,
            slurm_version=report.slurm_version,
            embedded=report.embedded,
            done=report.done,
            checks=report.checks,
        )
    else:
        _show(report)
    if report.failures:
        first = report.checks[0]
        more = f" (and {report.failures - 1} more)" if report.failures > 1 else ""
        raise DoctorFailure(f"{first.text}{more}", hint=first.repair[0] if first.repair else "")


def _project() -> Path | None:
    """The project's root; None where there is none, or where its configuration is wrong (that is no fault of the host)."""
    from gpuq.adapters.configfiles import find_project
    from gpuq.errors import GpuqError

    try:
        return find_project(Path.cwd(), dict(os.environ)).root
    except (GpuqError, OSError):
        return None


def _show(report: Report) -> None:
    for text in report.done:
        click.echo(f"fixed: {text}")
    well = []
    for check in report.checks:
        if check.verdict.value == "ok":
            well.append(check.id)
            continue
        _tell(check)
    if well:
        click.echo(f"{_word('ok')}  {', '.join(well)}")
    slurm = f"Slurm {report.slurm_version}" if report.slurm_version else "no Slurm"
    verdict = "; nothing is wrong" if len(well) == len(report.checks) else ""
    click.echo(f"{report.host}: {slurm}, {report.slurm_conf}{verdict}")


def _tell(check: Check) -> None:
    click.echo(f"{_word(check.verdict.value)}  {check.id}: {printable(check.text)}")
    for line in check.evidence:
        click.echo(f"         found   {printable(line)}")
    for line in check.repair:
        click.echo(f"         repair  {printable(line)}")


def _word(verdict: str) -> str:
    text = f"{verdict:<7}"
    return click.style(text, fg=_COLOUR[verdict]) if colour_wanted() else text
