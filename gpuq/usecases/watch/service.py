"""The watcher as a service: how it is, systemd's user unit, and one in the background where there is no systemd."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpuq.adapters import files, instance, proc, usersystemd
from gpuq.adapters.store.db import FILE, open_store, state_dir
from gpuq.adapters.store.events import Count, EventStore
from gpuq.core.event import Event
from gpuq.core.ports import Say
from gpuq.core.printable import printable
from gpuq.core.watch.unit import NAME, quoted, unit
from gpuq.errors import HostError, StoreError
from gpuq.usecases.watch.report import Report

LOG = "watch.log"
_STOP = 10.0


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `gpuq watch status`."""

    running: bool
    pid: int | None
    rss: int | None
    """Bytes; None: it does not run."""
    report: Report | None
    """What the watcher told of itself last; None: none ever ran."""
    last_event: Event | None
    lag: float | None
    """Seconds between the last event and its being written down."""
    outbox: dict[str, Count]
    database: str


def status(environment: Mapping[str, str]) -> Status:
    """How the watcher is. Writes nothing. Raises StoreError for a database that cannot be read."""
    directory = state_dir(environment)
    pid = instance.holder(directory)
    database = directory / FILE
    report = event = lag = None
    outbox: dict[str, Count] = {}
    if database.exists():
        try:
            with contextlib.closing(open_store(database)) as connection:
                store = EventStore(connection)
                raw = store.cursor("report")
                report = msgspec.json.decode(raw, type=Report) if raw else None
                event, lag, outbox = store.latest_event(), store.latest_lag(), store.counts()
        except (sqlite3.Error, msgspec.MsgspecError, OSError) as error:
            raise StoreError(
                f"the watcher's database {database}: {error}",
                hint=f"ls -l {directory}; losing it loses no outcome: mv {database} {database}.old",
            ) from error
    return Status(
        running=pid is not None,
        pid=pid or None,
        rss=_rss(pid) if pid else None,
        report=report,
        last_event=event,
        lag=lag,
        outbox=outbox,
        database=str(database),
    )


def _rss(pid: int) -> int | None:
    """proc(5), statm: pages in memory."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """What `install` or `uninstall` did, or would do."""

    path: str
    text: str
    commands: tuple[str, ...]
    done: bool
    lingers: bool | None = None
    user: str = ""


def install(environment: Mapping[str, str], user: str, *, dry_run: bool) -> Installed:
    """Write the user unit, enable it and start it. Raises HostError where systemd cannot, and says what else there is."""
    path = usersystemd.unit_path(environment, NAME)
    # -P: it starts in $HOME, and what lies there (a `click.py`, say) is not imported in place of a library
    text = unit(quoted((sys.executable, "-P", "-m", "gpuq")), environment)
    steps = (("daemon-reload",), ("enable", NAME), ("restart", NAME))
    plan = Installed(
        path=str(path), text=text, commands=tuple(f"systemctl --user {' '.join(s)}" for s in steps), done=False
    )
    if dry_run:
        return plan
    _require(environment)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(path, text)
    except OSError as error:
        raise HostError(f"{path}: {error.strerror or error}") from None
    for step in steps:
        if trouble := usersystemd.systemctl(environment, *step):
            raise HostError(
                f"systemctl --user {' '.join(step)}: {trouble}",
                hint="journalctl --user -u gpuq-watch -n 20; gpuq watch status",
            )
    return msgspec.structs.replace(plan, done=True, lingers=usersystemd.lingers(environment, user), user=user)


def uninstall(environment: Mapping[str, str], *, dry_run: bool) -> Installed:
    """Stop it, disable it and remove the unit. The database stays. A no-op when it is not installed."""
    path = usersystemd.unit_path(environment, NAME)
    commands = (f"systemctl --user disable --now {NAME}", f"rm {path}", "systemctl --user daemon-reload")
    there = files.is_there(path)
    plan = Installed(path=str(path), text="", commands=commands if there else (), done=False)
    if dry_run or not there:
        return plan
    _require(environment)
    if trouble := usersystemd.systemctl(environment, "disable", "--now", NAME):
        raise HostError(f"systemctl --user disable: {trouble}", hint="systemctl --user status gpuq-watch")
    path.unlink(missing_ok=True)
    usersystemd.systemctl(environment, "daemon-reload")
    return msgspec.structs.replace(plan, done=True)


def _require(environment: Mapping[str, str]) -> None:
    if trouble := usersystemd.problem(environment):
        raise HostError(
            f"no user service can be set up: {trouble}",
            hint="without systemd: gpuq watch (in a terminal or under any supervisor), or gpuq local up --watch",
        )


# -- in the background, without systemd ------------------------------------------------------------------------


def start_background(environment: Mapping[str, str], note: Path, say: Say) -> None:
    """Start a watcher that goes on when this command ends; `note` remembers which. A no-op when one runs."""
    directory = state_dir(environment)
    running = instance.holder(directory)
    if running is not None:
        say(f"a watcher of yours runs already (process {running})")
        return
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = directory / LOG
    before = log.stat().st_size if log.exists() else 0
    pid = proc.spawn_daemon([sys.executable, "-m", "gpuq", "watch"], log=log, env=environment, cwd=note.parent)
    deadline = time.monotonic() + _STOP
    while instance.holder(directory) != pid:
        proc.reap()
        if time.monotonic() > deadline or not _alive(pid):
            raise HostError(f"the watcher did not start{_last_words(log, before)}", hint=f"tail {log}")
        time.sleep(0.05)
    files.write_atomic(note, f"{pid}\n", durable=False)
    say(f"watching: process {pid}, log {log}")


def _last_words(log: Path, before: int) -> str:
    """The last line that came to the log, which had `before` bytes."""
    try:
        with log.open("rb") as handle:
            handle.seek(before)
            lines = handle.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip() and not line.startswith("gpuq: hint: ")]
    return f": {printable(said[-1][:300])}" if said else ""


def stop_background(environment: Mapping[str, str], note: Path, say: Say) -> None:
    """Stop the watcher that `start_background` started, if it still runs."""
    try:
        pid = int(note.read_text())
    except (OSError, ValueError):
        return
    note.unlink(missing_ok=True)
    if instance.holder(state_dir(environment)) != pid:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP
    while instance.holder(state_dir(environment)) == pid and time.monotonic() < deadline:
        proc.reap()
        time.sleep(0.05)
    say(f"the watcher (process {pid}) has ended")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
