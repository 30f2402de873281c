"""`gpuq notify`: try a sink, look at the outbox, put back what was given up; and make the watcher's courier."""

from __future__ import annotations

import datetime
import re
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from gpuq.adapters import notifyfile
from gpuq.adapters.configfiles import user_config
from gpuq.adapters.sinks import registry
from gpuq.adapters.store.db import FILE, open_store, state_dir
from gpuq.adapters.store.events import Count, Dead, EventStore
from gpuq.core.event import Event, Kind
from gpuq.core.notice import Notice
from gpuq.core.notify.config import LOG_ONLY, Config, SinkConfig
from gpuq.core.notify.delivery import Delivered, Retry, delivery_key
from gpuq.core.notify.telling import notice_of
from gpuq.core.ports import Clock, Say
from gpuq.errors import ConfigError, StoreError, UsageError
from gpuq.usecases.notify.deliver import Courier


class SinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One sink: what it is, and what waits for it. No secret is in it."""

    name: str
    type: str
    """Empty: it is no longer configured."""
    where: str = ""
    """Where its URL is kept, its program or its file."""
    problem: str = ""
    """Why it cannot be used now; empty: nothing is known to be wrong."""
    waiting: int = 0
    delivered: int = 0
    """Within the last 30 days."""
    dead: int = 0
    oldest: datetime.datetime | None = None
    """When the oldest that waits was queued; None: none waits."""
    error: str = ""
    """Why the last try of the one that is to be delivered next failed."""
    paused_until: datetime.datetime | None = None
    last_delivered: datetime.datetime | None = None


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A notice that was given up."""

    sink: str
    key: str
    kind: Kind
    title: str
    text: str
    time: datetime.datetime
    """Of what happened."""
    queued: datetime.datetime
    since: datetime.datetime
    """Given up since."""
    attempts: int
    error: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """All sinks, and the notices that were given up."""

    sinks: tuple[SinkStatus, ...]
    dead: tuple[DeadLetter, ...]


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One test."""

    sink: str
    delivered: bool
    seconds: float
    error: str = ""
    """Why not."""
    retried: bool = False
    """Whether the watcher would try again."""
    hint: str = ""
    """What helps, where that is known."""


def courier(config: Config, environment: Mapping[str, str], *, clock: Clock, say: Say) -> Courier:
    """The courier for what is configured, not started. Raises ConfigError: a secret or a package is missing."""
    return Courier(
        registry.make_all(config, environment),
        connect(environment),
        clock=clock,
        say=say,
        give_up=config.give_up,
    )


def connect(environment: Mapping[str, str]) -> Callable[[], sqlite3.Connection]:
    """Opens the watcher's database, for the thread that calls it."""
    path = database(environment)
    return lambda: open_store(path)


def database(environment: Mapping[str, str]) -> Path:
    """Where the outbox is."""
    return state_dir(environment) / FILE


def chosen(config: Config, sink: str | None) -> list[SinkConfig]:
    """The named sink, or all. Raises UsageError with the nearest known name."""
    if sink is None:
        return list(config.sinks.values())
    if sink not in config.sinks:
        import difflib

        close = difflib.get_close_matches(sink[:40], config.sinks, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(config.sinks)}"
        shown = (
            repr(sink) if re.fullmatch(r"[\w-]{1,40}", sink) else "of that name"
        )  # it may be a URL, put here by mistake
        raise UsageError(f"there is no sink {shown}; {hint}", hint="sinks are configured in [notify.sinks.NAME]")
    return [config.sinks[sink]]


def trial_notice(config: Config, *, clock: Clock, host: str) -> Notice:
    """What `gpuq notify test` sends."""
    event = Event(
        key=f"test {secrets.token_hex(8)}",
        kind=Kind.TEST,
        time=clock.now(),
        subject="gpuq can reach you",
        text=f"A test, sent on {host}. Nothing has happened.",
    )
    return notice_of(event, config)


def try_sink(
    config: Config, sink: SinkConfig, notice: Notice, environment: Mapping[str, str], *, clock: Clock
) -> Tried:
    """Send one notice to one sink, now and once, past the outbox. A sink that cannot be made has refused."""
    began = clock.monotonic()
    try:
        made = registry.make(sink, config, environment)
    except ConfigError as error:
        return Tried(sink=sink.name, delivered=False, seconds=0.0, error=error.message, hint=error.hint)
    try:
        answer = made.send(notice, delivery_key(sink.name, notice))
    finally:
        made.close()
    return Tried(
        sink=sink.name,
        delivered=isinstance(answer, Delivered),
        seconds=round(clock.monotonic() - began, 3),
        error="" if isinstance(answer, Delivered) else answer.why,
        retried=isinstance(answer, Retry),
    )


def status(environment: Mapping[str, str]) -> Status:
    """What is configured and what waits. Raises ConfigError, StoreError."""
    config = notifyfile.load(environment)
    with _store(environment) as store:
        counts = store.counts() if store else {}
        dead = tuple(map(_dead, store.dead_letters())) if store else ()
    sinks = [
        SinkStatus(
            name=sink.name,
            type=sink.type.value,
            where=_where(sink),
            problem=_problem(sink, config, environment),
            **_counted(counts.get(sink.name)),
        )
        for sink in config.sinks.values()
    ]
    for name, count in counts.items():
        if name not in config.sinks and (count.waiting or count.dead):
            sinks.append(SinkStatus(name=name, type="", problem="it is not configured any more", **_counted(count)))
    return Status(sinks=tuple(sinks), dead=dead)


def retry(environment: Mapping[str, str], sink: str | None, *, dry_run: bool) -> dict[str, int]:
    """Put the dead letters (of one sink) back into the outbox, each in its old place; how many, by sink.

    A running watcher delivers them within half a minute. Raises ConfigError, UsageError, StoreError.
    """
    config = notifyfile.load(environment)
    with _store(environment) as store:
        dead = store.dead_letters() if store else []
        if sink is not None and not any(one.queued.sink == sink for one in dead):
            chosen(config, sink)
        counts: dict[str, int] = {}
        for one in dead:
            if sink in {None, one.queued.sink}:
                counts[one.queued.sink] = counts.get(one.queued.sink, 0) + 1
        if store and counts and not dry_run:
            store.retry_dead(sink)
    return counts


def drop(environment: Mapping[str, str], sink: str, *, dry_run: bool) -> int:
    """Throw away the dead letters of a sink, and what waits for one that is not configured any more; how many.

    Raises ConfigError, UsageError, StoreError.
    """
    config = notifyfile.load(environment)
    with _store(environment) as store:
        count = store.counts().get(sink) if store else None
        if count is None:
            chosen(config, sink)
        if store is None or count is None:
            return 0
        waiting = sink not in config.sinks
        if not dry_run:
            store.drop(sink, waiting=waiting)
        return count.dead + (count.waiting if waiting else 0)


def example(environment: Mapping[str, str]) -> str:
    """What to write, and where, for a first sink; empty: there is one that is more than the log."""
    config = notifyfile.load(environment)
    if config.sinks != LOG_ONLY:
        return ""
    return (
        f"no sink is configured, so notices go to the log of the watcher alone. In {user_config(environment)}:\n"
        '[notify.sinks.phone]\ntype = "discord"\nurl_file = "discord.url"   # beside it, chmod 600\n'
        "(or apprise, for ntfy, Telegram, mail and more; or command); pip install 'gpuq-slurm[watch]'"
    )


@contextmanager
def _store(environment: Mapping[str, str]) -> Iterator[EventStore | None]:
    """The store; None where there has never been a watcher. A question makes no database."""
    path = database(environment)
    if not path.is_file():
        yield None
        return
    connection = None
    try:
        connection = open_store(path)
        yield EventStore(connection)
    except (sqlite3.Error, msgspec.MsgspecError, OSError) as error:
        raise StoreError(
            f"the watcher's database {path}: {error}",
            hint=f"losing it loses no outcome, only what was not yet told: mv {path} {path}.old",
        ) from None
    finally:
        if connection is not None:
            connection.close()


def _counted(count: Count | None) -> dict[str, Any]:
    return {} if count is None else {field: getattr(count, field) for field in Count.__struct_fields__}


def _dead(one: Dead) -> DeadLetter:
    letter = one.queued
    return DeadLetter(
        sink=letter.sink,
        key=letter.notice.key,
        kind=letter.notice.kind,
        title=letter.notice.title,
        text=letter.notice.text,
        time=letter.notice.time,
        queued=letter.first_queued,
        since=one.since,
        attempts=letter.attempts,
        error=one.error,
    )


def _where(sink: SinkConfig) -> str:
    if sink.address is not None:
        return sink.address.words
    return sink.argv[0] if sink.argv else sink.file or "stderr"


def _problem(sink: SinkConfig, config: Config, environment: Mapping[str, str]) -> str:
    try:
        registry.make(sink, config, environment).close()
    except ConfigError as error:
        return error.message
    return ""
