"""`gpuq host`: a machine with one GPU and its Slurm."""

# Heavy imports are inside the functions: `gpuq --help` must not wait for psutil.
from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuq.cli.output import colour_wanted, emit_json, printable, say
from gpuq.cli.values import SIZE, TIME
from gpuq.errors import UsageError

if TYPE_CHECKING:
    from gpuq.usecases.hostsetup import HostPlan

_COLOUR = {"new": "green", "changed": "yellow", "same": None, "unreadable": "magenta"}


@click.group()
def host() -> None:
    """Plan the set-up of this machine as a queue for its GPU.

    \b
    Example:
      gpuq host plan
    """


@host.command()
@click.option(
    "--gpu", "gpus", type=click.IntRange(min=0), multiple=True, metavar="N",
    help="The GPU, as in /dev/nvidiaN. Given again: a partition for each. [default: the only one]",
)  # fmt: skip
@click.option("--reserve", type=SIZE, metavar="SIZE", help="Memory to keep for the desktop. [default: 4G or 12 %]")
@click.option(
    "--max-time", type=TIME, default="7-00:00:00", metavar="TIME", help="Longest time limit. [default: 7 days]"
)
@click.option(
    "--default-time",
    type=TIME,
    metavar="TIME",
    help="Limit of a job that names none. [default: 1 day, or --max-time]",
)
@click.option("--slurm", "release", metavar="X.Y", help="The release to render for. [default: what is installed]")
@click.option(
    "--dir", "directory", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Where to write. [default: ops/slurm/HOSTNAME in the project]",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show it; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.host-plan/1).")
def plan(
    gpus: tuple[int, ...],
    reserve: int | None,
    max_time: str,
    default_time: str | None,
    release: str | None,
    directory: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Render the configuration for this host, and show what would change.

    Needs no root and changes nothing outside DIR. Read what is in it, keep it under version control, and let root
    install exactly that: sudo scripts/setup_slurm.sh DIR.

    \b
    Example:
      gpuq host plan --reserve 8G
      gpuq host plan --gpu 0 --dry-run
    """
    from gpuq.core.host.plan import Wishes
    from gpuq.usecases.hostsetup import host_plan

    wishes = Wishes(
        gpus=gpus,
        reserve=None if reserve is None else -(-reserve // 2**20),
        slurm=_release(release),
        max_time=max_time,
        default_time=default_time,
    )
    planned = host_plan(dict(os.environ), wishes, project=_project(), directory=directory, dry_run=dry_run)
    if as_json:
        import msgspec

        emit_json("gpuq.host-plan/1", **msgspec.structs.asdict(planned))
    else:
        _show(planned)


def _release(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d\d)\.(\d\d?)(?:\.\S+)?", text)
    if match is None:
        raise UsageError(f"--slurm {text}: a release is written like 24.11")
    return int(match[1]), int(match[2])


def _project() -> Path:
    from gpuq.adapters.configfiles import find_project
    from gpuq.cli.context import working_directory
    from gpuq.errors import GpuqError

    here = working_directory()
    try:
        return find_project(here, dict(os.environ)).root
    except (GpuqError, OSError):
        return here  # a configuration that is wrong is no fault of the host


def _show(planned: HostPlan) -> None:
    facts = planned.facts
    gpus = ", ".join(f"{one.file}{f' ({one.name})' if one.name else ''}" for one in facts.gpus)
    rows = [
        ("host", f"{planned.host}, {facts.distribution or facts.kernel}"),
        ("Slurm", f"{planned.slurm} ({_release_from(planned)})"),
        ("hardware", f"{_cpus(facts.cpus.cpus)}, {facts.memory} MB, by {facts.hardware_from}; {gpus}"),
        ("for jobs", f"{planned.memory} MB; {planned.reserved} MB stay with the host"),
    ]
    for one in planned.partitions:
        share = "" if one.cpus is None else f", at most {_cpus(one.cpus)}"
        share += "" if one.memory is None else f" and {one.memory} MB"
        rows.append((f"  {one.name}", f"{'one GPU' if one.gpu else 'no GPU'}{share}"))
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        click.echo(f"{name:<{width}}  {printable(text)}")
    for note in planned.notes:
        say(f"note: {note}")
    click.echo()
    for file in planned.files:
        click.echo(f"{_word(file.state):<10}  {file.path}: {file.purpose}")
    for file in planned.files:
        if file.diff:
            click.echo()
            for line in file.diff.splitlines():
                click.echo(_coloured(line))
    click.echo()
    for name in planned.rewritten:
        say(
            f"note: {planned.directory}/{name} {'was' if planned.written else 'would be'} replaced; it held something else"
        )
    if planned.written:
        click.echo(f"written: {planned.directory}")
        click.echo(f"read it, commit it, then: sudo scripts/setup_slurm.sh {planned.directory}")
    else:
        click.echo(f"would write: {planned.directory}")


def _release_from(planned: HostPlan) -> str:
    facts = planned.facts
    there = None if facts.slurm is None else f"{facts.slurm[0]}.{facts.slurm[1]:02d}"
    if there == planned.slurm:
        return facts.slurm_from
    return f"as asked for; {facts.slurm_from}: {there or 'none'}" if facts.slurm_from else "as asked for"


def _cpus(number: int) -> str:
    return "1 CPU" if number == 1 else f"{number} CPUs"


def _word(state: str) -> str:
    colour = _COLOUR.get(state)
    return click.style(f"{state:<10}", fg=colour) if colour and colour_wanted() else state


def _coloured(line: str) -> str:
    colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
    return click.style(line, fg=colour) if colour and colour_wanted() else line
