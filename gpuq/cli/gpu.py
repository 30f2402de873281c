"""`gpuq gpu`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuq.cli.context import build
from gpuq.cli.output import emit_json, printable, table
from gpuq.core.units import format_duration, format_size

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence

    from gpuq.core.gpu.xid import Xid
    from gpuq.usecases.gpu import GpuRow, ProcessRow, Report

SHOWN = 5
"""Errors of the kernel log that a person is shown: the last ones."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.gpu/1).")
def gpu(as_json: bool) -> None:
    """Show who holds the GPU, and what it does.

    Each process on the GPU is named with the Slurm job it belongs to; one whose job is over is an orphan. Also: running
    jobs that look dead, and errors of the driver in the kernel log. Without a GPU it says what was found instead.

    \b
    Example:
      gpuq gpu
      gpuq gpu --json
    """
    from gpuq.usecases.gpu import report

    ctx = build()
    now = report(ctx)
    if as_json:
        emit_json("gpuq.gpu/1", **{name: getattr(now, name) for name in now.__struct_fields__})
        return
    _show(now, ctx.clock.now())


def _show(now: Report, moment: datetime.datetime) -> None:
    if now.found:
        click.echo(printable(now.found))
        click.echo("\n".join(f"  to do: {line}" for line in now.advice))
    for one in now.gpus:
        _show_gpu(one, now.driver, moment)
    for job in now.jobs or ():
        if job.looks_dead:
            click.echo(f"job {job.job_id} ({printable(job.name)}, {job.user}) {job.looks_dead}")
            click.echo(f"  to do: scancel {job.job_id}, or: scontrol requeue {job.job_id}")
    if now.leftovers:
        click.echo("Processes whose job is over (which of them uses the GPU cannot be told):")
        _processes(now.leftovers, moment)
    _errors(now.errors)
    for note in now.notes:
        click.echo(f"note: {printable(note)}")


def _show_gpu(one: GpuRow, driver: str | None, moment: datetime.datetime) -> None:
    head = f"GPU {one.index}: {one.name or 'no name'}"
    head += f" ({one.device})" if one.device else ""
    click.echo(printable(f"{head}, driver {driver}" if driver else head))
    click.echo(f"  {printable(one.words)}")
    if one.trouble is not None:
        click.echo(f"  to do: {one.advice}")
        return
    values = [
        "memory not told"
        if one.memory_total is None or one.memory_free is None
        else f"memory {'?' if one.memory_used is None else format_size(one.memory_used)} used, "
        f"{format_size(one.memory_free)} free of {format_size(one.memory_total)}",
        "utilisation not told" if one.utilization is None else f"utilisation {one.utilization} %",
        "temperature not told" if one.temperature is None else f"{one.temperature} °C",
        "power not told" if one.power is None else f"{one.power:.0f} W",
    ]
    click.echo("  " + ", ".join(values) + (", split into instances (MIG)" if one.mig else ""))
    if one.processes:
        _processes(one.processes, moment)


def _processes(rows: Sequence[ProcessRow], moment: datetime.datetime) -> None:
    table(
        ["PID", "USER", "VRAM", "SINCE", "WHAT", "COMMAND"],
        [
            [
                str(row.pid),
                row.user or "?",
                "?" if row.memory is None else format_size(row.memory),
                "?" if row.since is None else format_duration((moment - row.since).total_seconds()),
                row.what,
                _cut(row.command or "?"),
            ]
            for row in rows
        ],
    )
    for row in rows:
        if row.kind == "orphan":
            click.echo(f"  to do: kill {row.pid}   (left over from job {row.job_id})")


def _cut(text: str, longest: int = 60) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _errors(errors: Sequence[Xid] | None) -> None:
    if errors is None:
        click.echo("The kernel log may not be read by this user; for errors of the driver: sudo dmesg | grep NVRM")
        return
    if not errors:
        return
    click.echo(f"Errors of the driver in the kernel log{f' (the last {SHOWN})' if len(errors) > SHOWN else ''}:")
    for one in errors[-SHOWN:]:
        when = "" if one.at is None else one.at.astimezone().strftime("%Y-%m-%d %H:%M:%S ")
        name = "" if one.code is None else f"Xid {one.code}, "
        click.echo(f"  {when}{name}{one.meaning}")
        click.echo(f"    {printable(one.text)}")
