"""`gpuq notify`: test, status, retry, drop."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from gpuq.cli.output import emit_json, printable, say, table

if TYPE_CHECKING:
    import datetime

    from gpuq.usecases.notify.notify import Tried

_SLOW = 2.0
"""Seconds after which a person is told what is waited for."""
_ALL = 20
"""Dead letters that are listed one by one."""


@click.group()
def notify() -> None:
    """Try the sinks of notices, and see what was not delivered.

    Sinks are configured in ~/.config/gpuq/config.toml, [notify.sinks.NAME]; without one, notices go to the log of the
    watcher.

    \b
    Example:
      gpuq notify test
      gpuq notify status
    """


@notify.command("test")
@click.argument("sink", required=False)
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.notify-test/1).")
def test_(sink: str | None, dry_run: bool, as_json: bool) -> None:
    """Send a notice to SINK, or to every sink, and report.

    It goes past the outbox: what waits there stays where it is. Exit code 13 when a sink does not take it.

    \b
    Example:
      gpuq notify test
      gpuq notify test log --dry-run
    """
    from gpuq.adapters.clock import SystemClock
    from gpuq.adapters.machine import caller
    from gpuq.adapters.notifyfile import load
    from gpuq.errors import NotDelivered
    from gpuq.usecases.notify import notify as usecase

    environment, clock = dict(os.environ), SystemClock()
    config = load(environment)
    sinks = usecase.chosen(config, sink)
    notice = usecase.trial_notice(config, clock=clock, host=caller().host)
    if dry_run:
        if as_json:
            idle = [usecase.Tried(sink=one.name, delivered=False, seconds=0.0) for one in sinks]
            emit_json("gpuq.notify-test/1", dry_run=True, sinks=idle)
            return
        for one in sinks:
            click.echo(f"{one.name} ({one.type.value}): would be sent: {notice.title}: {notice.text}")
        return
    tried = []
    for one in sinks:
        with _patience(f"waiting for {one.name} (at most {one.timeout:g} s)"):
            tried.append(usecase.try_sink(config, one, notice, environment, clock=clock))
        if not as_json:
            click.echo(_line(tried[-1]))
    if as_json:
        emit_json("gpuq.notify-test/1", dry_run=False, sinks=tried)
    if text := usecase.example(environment):
        say(f"note: {text}")
    failed = [one.sink for one in tried if not one.delivered]
    if failed:
        hints = dict.fromkeys(one.hint for one in tried if one.hint)
        raise NotDelivered(f"not delivered to {', '.join(failed)}", hint="; ".join(hints))


@notify.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.notify/1).")
def status_(as_json: bool) -> None:
    """Show the sinks, what waits for them, and what was given up.

    What was given up is a dead letter, counted under DEAD. No URL is shown, only where it is kept.

    \b
    Example:
      gpuq notify status
      gpuq notify status --json
    """
    from gpuq.usecases.notify import notify as usecase

    found = usecase.status(dict(os.environ))
    if as_json:
        emit_json("gpuq.notify/1", sinks=found.sinks, dead=found.dead)
        return
    rows = [
        (s.name, s.type or "?", str(s.waiting), str(s.delivered), str(s.dead), s.where, s.problem or s.error)
        for s in found.sinks
    ]
    table(("SINK", "TYPE", "WAITING", "DELIVERED", "DEAD", "FROM", "TROUBLE"), rows)
    if found.dead:
        click.echo("\nGiven up (gpuq notify retry puts them back):")
        dead = [(d.sink, _when(d.since), d.title, d.error) for d in found.dead[-_ALL:]]
        table(("SINK", "SINCE", "NOTICE", "WHY"), dead)
        if len(found.dead) > _ALL:
            click.echo(f"and {len(found.dead) - _ALL} before them")


@notify.command("retry")
@click.argument("sink", required=False)
@click.option("--dry-run", is_flag=True, help="Show what would be put back, and change nothing.")
def retry_(sink: str | None, dry_run: bool) -> None:
    """Put back what was given up, for the watcher to deliver.

    For SINK, or for all sinks.

    \b
    Example:
      gpuq notify retry --dry-run
      gpuq notify retry
    """
    from gpuq.usecases.notify import notify as usecase

    counts = usecase.retry(dict(os.environ), sink, dry_run=dry_run)
    verb = "would be put back" if dry_run else "put back"
    for name, count in counts.items():
        click.echo(f"{name}: {count} {verb}")
    if not counts:
        click.echo("nothing was given up")


@notify.command("drop")
@click.argument("sink")
@click.option("--dry-run", is_flag=True, help="Show how many would be thrown away, and change nothing.")
def drop_(sink: str, dry_run: bool) -> None:
    """Throw away what was given up for SINK.

    Also what waits for it, where it is not configured any more.

    \b
    Example:
      gpuq notify drop log --dry-run
      gpuq notify drop log
    """
    from gpuq.usecases.notify import notify as usecase

    count = usecase.drop(dict(os.environ), sink, dry_run=dry_run)
    click.echo(f"{printable(sink)}: {count} {'would be thrown away' if dry_run else 'thrown away'}")


class _patience:  # noqa: N801 - used like a function
    """Says on stderr what is waited for, once it has taken _SLOW seconds."""

    def __init__(self, text: str) -> None:
        import threading

        self._timer = threading.Timer(_SLOW, lambda: say(f"gpuq: {text}"))
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def _line(tried: Tried) -> str:
    if tried.delivered:
        return f"{tried.sink}: delivered in {tried.seconds * 1e3:.0f} ms"
    later = "; the watcher would try again" if tried.retried else ""
    return f"{tried.sink}: not delivered: {printable(tried.error)}{later}"


def _when(moment: datetime.datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")
