"""`gpuq local`: an embedded Slurm on this host, for machines where none is set up."""

# Heavy imports are inside the functions: `gpuq --help` must not wait for psutil.
from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gpuq.usecases.local import LocalStatus


WATCHER = "watcher"
"""In the directory: the process id of the watcher that `up --watch` started."""


def _say(text: str) -> None:
    click.echo(f"gpuq local: {text}", err=True)


def _directory(command: Callable[..., Any]) -> Callable[..., Any]:
    """The --dir option that all commands share; `directory` arrives resolved to the default."""

    @click.option(
        "--dir",
        "directory",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Where it keeps everything. Default: $GPUQ_LOCAL_DIR, else ~/.local/state/gpuq/local "
        "(below $XDG_STATE_HOME when that is set).",
    )
    @functools.wraps(command)
    def wrapped(directory: Path | None, **options: Any) -> None:
        from gpuq.adapters.embedded.layout import default_dir
        from gpuq.errors import HostError

        directory = directory if directory is not None else default_dir()
        try:
            command(directory, **options)
        except OSError as error:
            if error.filename is None:
                raise
            raise HostError(
                f"{error.filename}: {error.strerror or error}",
                hint=f"{directory} must be a directory of your own; name another: --dir DIR, or GPUQ_LOCAL_DIR",
            ) from error

    return wrapped


@click.group()
def local() -> None:
    """An embedded Slurm for this host, in one private directory.

    Starts munged, slurmctld and slurmd of the installed packages on free ports, with their own key and
    slurm.conf. /etc/slurm and a Slurm that already runs here are never touched. As root, jobs are held to the
    memory, cores and GPU they asked for; as a plain user they are only counted.

    \b
    Example:
      gpuq local up
      eval "$(gpuq local env)"
      sinfo
      gpuq local down
    """


@local.command()
@_directory
@click.option("--max-time", metavar="TIME", help="Longest time limit of a job. Default: 7-00:00:00.")
@click.option("--default-time", metavar="TIME", help="Time limit of a job that names none. Default: --max-time.")
@click.option("--cpus", type=click.IntRange(min=1), metavar="N", help="CPUs to offer. Default: all.")
@click.option(
    "--memory", type=click.IntRange(min=64), metavar="MIB", help="Memory to offer, in MiB. Default: 95 % of it."
)
@click.option("--simulate-gpu/--no-simulate-gpu", default=None, help="Do not use /dev/nvidia0 even if it exists.")
@click.option(
    "--confine/--no-confine", default=None, help="Enforce limits through cgroups (root). Default: where possible."
)
@click.option("--gate/--no-gate", default=None, help="Refuse what asks for anything but one GPU. Default: on.")
@click.option(
    "--watch/--no-watch", "watched", default=None, help="Also start gpuq watch, in the background; `down` ends it."
)
@click.option("--dry-run", is_flag=True, help="Say what would be started; start nothing.")
def up(
    directory: Path,
    max_time: str | None,
    default_time: str | None,
    cpus: int | None,
    memory: int | None,
    simulate_gpu: bool | None,
    confine: bool | None,
    gate: bool | None,
    watched: bool | None,
    dry_run: bool,
) -> None:
    """Start it; return when the node takes jobs.

    Nothing happens when it is already up. After a crash or a reboot the queue is taken up where it was. Options
    are remembered for later starts.

    \b
    Example:
      gpuq local up --max-time 2-00:00:00
    """
    from gpuq.adapters.embedded.state import Options
    from gpuq.usecases import local as usecase

    if dry_run:
        click.echo(usecase.would_start(directory))
        return
    options = Options(
        max_time=max_time,
        default_time=default_time,
        cpus=cpus,
        memory=memory,
        simulate_gpu=simulate_gpu,
        confine=confine,
        gate=gate,
    )
    now = usecase.up(directory, options, _say)
    if usecase.watched(directory, watched, _say):
        from gpuq.errors import HostError
        from gpuq.usecases.watch.service import start_background

        try:
            start_background(usecase.watch_environment(directory, os.environ), directory / WATCHER, _say)
        except HostError as error:
            _show(now)
            raise HostError(f"{error.message}; Slurm itself is up", hint=error.hint) from None
    _show(now)


@local.command()
@_directory
@click.option("--cancel", is_flag=True, help="Cancel all jobs instead of keeping them for the next `up`.")
@click.option("--dry-run", is_flag=True, help="Say what would be stopped; stop nothing.")
def down(directory: Path, cancel: bool, dry_run: bool) -> None:
    """Stop it; leave no process, cgroup or socket.

    Running jobs are requeued: they, and the waiting ones, are there again at the next `gpuq local up`.
    Nothing happens when it is already down.

    \b
    Example:
      gpuq local down
      gpuq local down --cancel
    """
    from gpuq.usecases import local as usecase

    if dry_run:
        click.echo(usecase.would_stop(directory, cancel=cancel))
        return
    if (directory / WATCHER).exists():
        from gpuq.usecases.watch.service import stop_background

        stop_background(os.environ, directory / WATCHER, _say)
    usecase.down(directory, cancel=cancel, say=_say)
    _say(f"down ({directory})")


@local.command()
@_directory
@click.option("--json", "as_json", is_flag=True, help='One JSON object, {"schema": "gpuq.local/1", ...}.')
def status(directory: Path, as_json: bool) -> None:
    """Say how it is: up, down or broken, and what is confined.

    \b
    Example:
      gpuq local status
      gpuq local status --json
    """
    from gpuq.usecases import local as usecase

    now = usecase.status(directory)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(now)).decode())
    else:
        _show(now)


@local.command()
@_directory
def env(directory: Path) -> None:
    """Print the shell command that points Slurm's own commands at it.

    \b
    Example:
      eval "$(gpuq local env)"
      squeue
    """
    import shlex

    from gpuq.usecases import local as usecase

    for name, value in usecase.environment(directory).items():
        click.echo(f"export {name}={shlex.quote(value)}")


def _watcher() -> str:
    """Whether a watcher of the caller runs."""
    from gpuq.adapters.instance import holder
    from gpuq.adapters.store.db import state_dir

    pid = holder(state_dir(os.environ))
    return "does not run (gpuq local up --watch)" if pid is None else f"process {pid}" if pid else "runs"


def _show(now: LocalStatus) -> None:
    rows = [("state", now.state)]
    rows += [("problem", text) for text in now.problems]
    rows.append(("Slurm", now.slurm_version or "unknown until the first start"))
    rows.append(("node", f"{now.node} {now.node_state}".strip()))
    ports = {"slurmctld": now.ports.slurmctld, "slurmd": now.ports.slurmd}
    for name, pid in now.daemons.items():
        where = f", port {ports[name]}" if ports.get(name) else ""
        rows.append((name, "not running" if pid is None else f"process {pid}{where}"))
    if now.state != "down":
        rows.append(("watcher", _watcher()))
    rows.append(("GPU", now.gpu.text))
    rows.append(("confinement", "on" if now.confinement.on else "off"))
    rows += [("", text) for text in now.confinement.missing]
    if now.jobs.running is not None:
        rows.append(("jobs", f"{now.jobs.running} running, {now.jobs.waiting} waiting"))
    rows.append(("directory", now.dir))
    rows.append(("SLURM_CONF", now.slurm_conf if now.state != "down" else f"{now.slurm_conf} (made by `up`)"))
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        click.echo(f"{name:<{width}}  {text}")
