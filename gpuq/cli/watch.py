"""`gpuq watch`: the background notifier."""

# Heavy imports are inside the functions: `gpuq --help` must not wait for them.
from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from gpuq.cli.output import emit_json, printable, say, stay

if TYPE_CHECKING:
    from gpuq.usecases.watch.service import Installed, Status


@click.group(invoke_without_command=True)
@click.option("--once", is_flag=True, help="Look once, tell what is new since the last look, and end.")
@click.option("--json", "as_json", is_flag=True, help="With --once: print the new events (schema gpuq.watch/1).")
@click.pass_context
def watch(ctx: click.Context, once: bool, as_json: bool) -> None:
    """Tell a person when jobs end, one is left, or the GPU idles.

    Stays in the foreground until it is told to end (SIGTERM, Ctrl-C); SIGHUP reads the configuration again. Whom it
    tells stands in [notify] of ~/.config/gpuq/config.toml (see gpuq notify --help); without it, its own output. One runs
    per user, for all projects. `gpuq watch install` makes it a service.

    \b
    Example:
      gpuq watch --once
      gpuq watch status
    """
    if ctx.invoked_subcommand is not None:
        if once or as_json:
            raise click.UsageError("--once and --json belong to `gpuq watch` itself")
        return
    if as_json and not once:
        raise click.UsageError("--json goes with --once; a watcher that stays has notices (gpuq notify --help)")
    from gpuq.cli.context import build
    from gpuq.usecases.watch.run import run

    stay()
    events = run(build(), once=once)
    if as_json:
        emit_json("gpuq.watch/1", events=events)
    elif once and not events:
        say("nothing new")


@watch.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.watch-status/1).")
def status(as_json: bool) -> None:
    """Say how the watcher is: last event, lag, outbox, memory.

    \b
    Example:
      gpuq watch status
      gpuq watch status --json
    """
    from gpuq.usecases.watch.service import status as usecase

    now = usecase(os.environ)
    if as_json:
        emit_json(
            "gpuq.watch-status/1",
            running=now.running,
            pid=now.pid,
            rss=now.rss,
            report=now.report,
            last_event=now.last_event,
            lag=now.lag,
            outbox=now.outbox,
            database=now.database,
        )
    else:
        _show(now)


def _show(now: Status) -> None:
    from gpuq.core.units import format_size

    rows = [("watcher", f"process {now.pid}" if now.running else "does not run (gpuq watch install, or gpuq watch)")]
    if now.rss is not None:
        rows.append(("memory", format_size(now.rss)))
    if (report := now.report) is not None:
        rows.append(("since" if now.running else "last ran", f"{report.started.astimezone():%Y-%m-%d %H:%M:%S}"))
        rows.append(("heard of at", f"{report.at.astimezone():%Y-%m-%d %H:%M:%S}"))
        rows += list(report.sources.items())
        rows.append(("jobs", str(report.jobs)))
        rows.append(("asked Slurm", f"{report.rpcs} times, {report.polls} of them for the queue"))
        if report.unanswered:
            rows.append(("Slurm", f"has not answered {report.unanswered} times on end"))
        rows += [("problem", text) for text in report.problems]
    if now.last_event is not None:
        event = now.last_event
        what = event.ending.name + " " + event.ending.outcome if event.ending else event.subject
        rows.append(("last event", f"{event.time.astimezone():%Y-%m-%d %H:%M:%S} {event.kind.value} {what}".rstrip()))
    if now.lag is not None:
        rows.append(("lag", f"{max(now.lag, 0.0):.1f}s after it happened (Slurm's times are whole seconds)"))
    for sink, count in now.outbox.items():
        words = f"{count.waiting} waiting, {count.delivered} delivered, {count.dead} given up"
        rows.append((f"sink {sink}", words + (f"; {count.error}" if count.error else "")))
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        click.echo(f"{name:<{width}}  {printable(text)}")


@watch.command()
@click.option("--dry-run", is_flag=True, help="Print the unit and the commands, and change nothing.")
def install(dry_run: bool) -> None:
    """Set it up as a systemd service of yours, and start it.

    \b
    Example:
      gpuq watch install --dry-run
      gpuq watch install
    """
    from gpuq.adapters.machine import caller
    from gpuq.usecases.watch.service import install as usecase

    done = usecase(os.environ, caller().user, dry_run=dry_run)
    if dry_run:
        _plan(done)
        return
    click.echo(f"{done.path}: enabled and started")
    if done.lingers:
        click.echo("It runs from boot on, also while you are not logged in (lingering is on).")
    else:
        click.echo("It ends when your last session does, and starts with your first one. For it to run from boot on:")
        click.echo(f"  loginctl enable-linger {done.user}")


@watch.command()
@click.option("--dry-run", is_flag=True, help="Print the commands, and change nothing.")
def uninstall(dry_run: bool) -> None:
    """Stop the service and remove it; what it knows stays.

    \b
    Example:
      gpuq watch uninstall
    """
    from gpuq.usecases.watch.service import uninstall as usecase

    done = usecase(os.environ, dry_run=dry_run)
    if dry_run:
        _plan(done)
    else:
        click.echo(f"{done.path}: stopped and removed" if done.done else f"{done.path}: not installed")


def _plan(plan: Installed) -> None:
    if plan.text:
        click.echo(f"# {plan.path}")
        click.echo(plan.text)
    for command in plan.commands:
        click.echo(f"$ {command}")
    if not plan.text and not plan.commands:
        click.echo(f"{plan.path}: not installed")
