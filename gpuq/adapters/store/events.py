"""Events, the outbox and the watcher's cursors: what was found out, what is still to be told, and how far was read.

An event is recorded and its notices are queued in one transaction, together with the cursors that say that the fact has
been used. So kill -9 leaves either all of it or nothing, and then the fact is read again.
"""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpuq.adapters.store.db import migrate
from gpuq.core.event import Event, Kind
from gpuq.core.notice import Notice

KEEP_DELIVERED = datetime.timedelta(days=30)
"""How long delivered and dead notices are kept, for `gpuq notify status`."""

KEEP_EVENTS = datetime.timedelta(days=400)
"""How long keys are known. A job completion file that is read anew from its beginning may be as old."""

_STEPS = (
    """
    CREATE TABLE events (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, happened REAL NOT NULL,
        recorded REAL NOT NULL, body BLOB NOT NULL
    );
    CREATE INDEX events_happened ON events (happened);
    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, sink TEXT NOT NULL, merge TEXT NOT NULL,
        state TEXT NOT NULL, attempts INTEGER NOT NULL, queued REAL NOT NULL, changed REAL NOT NULL,
        error TEXT NOT NULL, body BLOB NOT NULL, UNIQUE (sink, key)
    );
    CREATE INDEX outbox_state ON outbox (sink, state, id);
    CREATE TABLE pauses (sink TEXT PRIMARY KEY, until REAL NOT NULL);
    CREATE TABLE cursors (name TEXT PRIMARY KEY, value BLOB NOT NULL)
    """,
)

_WAITING, _DEAD, _DELIVERED = "waiting", "dead", "delivered"


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """A notice in the outbox."""

    id: int
    sink: str
    notice: Notice
    attempts: int
    """How often its delivery has failed."""
    first_queued: datetime.datetime


class Dead(msgspec.Struct, frozen=True, kw_only=True):
    """A notice that was given up."""

    queued: Queued
    error: str
    since: datetime.datetime


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """The outbox of one sink."""

    waiting: int = 0
    dead: int = 0
    delivered: int = 0
    """Within the last KEEP_DELIVERED."""
    oldest: datetime.datetime | None = None
    """When the oldest that waits was queued; None: none waits."""
    error: str = ""
    """Why the last delivery of the one that waits failed; empty: it has not been tried, or none waits."""
    paused_until: datetime.datetime | None = None
    last_delivered: datetime.datetime | None = None


class EventStore:
    """The tables of events, outbox and cursors. One for each thread and connection. Methods raise sqlite3.Error."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        migrate(connection, "events", _STEPS)

    # -- written by the watcher --------------------------------------------------------------------------------

    def record(
        self,
        events: Sequence[Event],
        notices: Sequence[tuple[str, Notice]] = (),
        cursors: Mapping[str, bytes | None] | None = None,
        *,
        now: datetime.datetime,
    ) -> list[Event]:
        """Write down events, queue their notices (sink, notice) and save the cursors, all or nothing.

        An event whose key is known is dropped together with its notices. A notice with a `merge` takes the place of
        the one of its sink with the same `merge` that still waits. A cursor that is None is forgotten. Returns the
        events that were new.
        """
        at = now.timestamp()
        new = []
        with self._transaction():
            for event in events:
                done = self._db.execute(
                    "INSERT INTO events (key, kind, happened, recorded, body) VALUES (?, ?, ?, ?, ?) "
                    "ON CONFLICT (key) DO NOTHING",
                    (event.key, event.kind, event.time.timestamp(), at, msgspec.json.encode(event)),
                )
                if done.rowcount == 1:
                    new.append(event)
            known = {event.key for event in events} - {event.key for event in new}
            for sink, notice in notices:
                if notice.key in known:
                    continue
                if notice.merge:
                    # A row of its own for the later one: whoever delivers the earlier at this moment marks only that.
                    self._db.execute(
                        "DELETE FROM outbox WHERE sink = ? AND merge = ? AND state = ?", (sink, notice.merge, _WAITING)
                    )
                self._db.execute(
                    "INSERT INTO outbox (key, sink, merge, state, attempts, queued, changed, error, body) "
                    "VALUES (?, ?, ?, ?, 0, ?, ?, '', ?) ON CONFLICT (sink, key) DO NOTHING",
                    (notice.key, sink, notice.merge, _WAITING, at, at, msgspec.json.encode(notice)),
                )
            for name, value in (cursors or {}).items():
                if value is None:
                    self._db.execute("DELETE FROM cursors WHERE name = ?", (name,))
                    continue
                self._db.execute(
                    "INSERT INTO cursors VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    (name, value),
                )
        return new

    def cursor(self, name: str) -> bytes | None:
        """What was last saved under this name; None: nothing."""
        row = self._db.execute("SELECT CAST(value AS BLOB) FROM cursors WHERE name = ?", (name,)).fetchone()
        return bytes(row[0]) if row else None

    def cursors(self, prefix: str) -> dict[str, bytes]:
        """All that were saved under names that begin so."""
        rows = self._db.execute(
            "SELECT name, CAST(value AS BLOB) FROM cursors WHERE substr(name, 1, ?) = ?", (len(prefix), prefix)
        )
        return {name: bytes(value) for name, value in rows}

    def has(self, key: str) -> bool:
        """Whether an event with this key was recorded."""
        return self._db.execute("SELECT 1 FROM events WHERE key = ?", (key,)).fetchone() is not None

    def prune(self, now: datetime.datetime) -> None:
        """Forget what is older than the KEEP_ times. What still waits is kept whatever its age."""
        with self._transaction():
            self._db.execute(
                "DELETE FROM outbox WHERE state != ? AND changed < ?", (_WAITING, (now - KEEP_DELIVERED).timestamp())
            )
            self._db.execute("DELETE FROM events WHERE recorded < ?", ((now - KEEP_EVENTS).timestamp(),))

    # -- delivery ----------------------------------------------------------------------------------------------

    def due(self, sink: str, now: datetime.datetime, limit: int = 20) -> list[Queued]:
        """The notices to deliver to `sink` now, in order. None while its first waits for its retry: what was
        queued later is not told earlier."""
        pause = self._db.execute("SELECT until FROM pauses WHERE sink = ?", (sink,)).fetchone()
        if pause and pause[0] > now.timestamp():
            return []
        rows = self._db.execute(
            f"SELECT {_QUEUED} FROM outbox WHERE sink = ? AND state = ? ORDER BY id LIMIT ?",  # noqa: S608 - a constant
            (sink, _WAITING, limit),
        )
        return [_queued(row) for row in rows]

    def next_retry(self, sink: str) -> datetime.datetime | None:
        """Until when the sink is paused after a failed delivery; None: it is not."""
        row = self._db.execute("SELECT until FROM pauses WHERE sink = ?", (sink,)).fetchone()
        return _moment(row[0]) if row else None

    def resume(self, sink: str) -> None:
        """Forget the pause of a sink: the clock was set back, and it would last for years."""
        with self._transaction():
            self._db.execute("DELETE FROM pauses WHERE sink = ?", (sink,))

    def delivered(self, notice_id: int, now: datetime.datetime) -> None:
        """The sink took it. One that was replaced meanwhile (merge) is no error."""
        with self._transaction():
            self._move(notice_id, _DELIVERED, "", now)
            self._unpause(notice_id)

    def failed(
        self,
        notice_id: int,
        error: str,
        retry_at: datetime.datetime,
        dead: bool = False,
        *,
        now: datetime.datetime,
    ) -> None:
        """The sink did not take it. Its next try, and that of all behind it, is at `retry_at`; with `dead` it is given
        up and the next one is due at once."""
        with self._transaction():
            self._db.execute("UPDATE outbox SET attempts = attempts + 1 WHERE id = ?", (notice_id,))
            if dead:
                self._move(notice_id, _DEAD, error, now)
                self._unpause(notice_id)
                return
            self._db.execute(
                "UPDATE outbox SET error = ?, changed = ? WHERE id = ?", (error, now.timestamp(), notice_id)
            )
            self._db.execute(
                "INSERT INTO pauses SELECT sink, ? FROM outbox WHERE id = ? "
                "ON CONFLICT (sink) DO UPDATE SET until = excluded.until",
                (retry_at.timestamp(), notice_id),
            )

    def _move(self, notice_id: int, state: str, error: str, now: datetime.datetime) -> None:
        self._db.execute(
            "UPDATE outbox SET state = ?, error = ?, changed = ? WHERE id = ?",
            (state, error, now.timestamp(), notice_id),
        )

    def _unpause(self, notice_id: int) -> None:
        self._db.execute("DELETE FROM pauses WHERE sink = (SELECT sink FROM outbox WHERE id = ?)", (notice_id,))

    # -- looked at ---------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, Count]:
        """The outbox, by sink."""
        found: dict[str, Count] = {}
        rows = self._db.execute(
            "SELECT sink, SUM(state = 'waiting'), SUM(state = 'dead'), SUM(state = 'delivered'), "
            "MIN(CASE WHEN state = 'waiting' THEN queued END), MAX(CASE WHEN state = 'delivered' THEN changed END) "
            "FROM outbox GROUP BY sink ORDER BY sink"
        ).fetchall()
        for sink, waiting, dead, delivered, oldest, last in rows:
            head = self._db.execute(
                "SELECT error FROM outbox WHERE sink = ? AND state = ? ORDER BY id LIMIT 1", (sink, _WAITING)
            ).fetchone()
            found[sink] = Count(
                waiting=waiting,
                dead=dead,
                delivered=delivered,
                oldest=_moment(oldest),
                error=head[0] if head else "",
                paused_until=self.next_retry(sink),
                last_delivered=_moment(last),
            )
        return found

    def dead_letters(self, sink: str | None = None) -> list[Dead]:
        """The notices that were given up, oldest first."""
        rows = self._db.execute(
            f"SELECT {_QUEUED}, error, changed FROM outbox WHERE state = ? AND (? IS NULL OR sink = ?) ORDER BY id",  # noqa: S608
            (_DEAD, sink, sink),
        )
        return [Dead(queued=_queued(row[:6]), error=row[6], since=_at(row[7])) for row in rows]

    def retry_dead(self, sink: str | None = None) -> int:
        """Queue again what was given up (of one sink, or of all), in its old place. Returns how many."""
        with self._transaction():
            return self._db.execute(
                "UPDATE outbox SET state = ?, attempts = 0, error = '' WHERE state = ? AND (? IS NULL OR sink = ?)",
                (_WAITING, _DEAD, sink, sink),
            ).rowcount

    def drop(self, sink: str, *, waiting: bool) -> None:
        """Forget what was given up of one sink; waiting: and what waits for it."""
        with self._transaction():
            self._db.execute(
                "DELETE FROM outbox WHERE sink = ? AND (state = ? OR (? AND state = ?))",
                (sink, _DEAD, waiting, _WAITING),
            )

    def latest_event(self) -> Event | None:
        """The event that was recorded last; None: none ever."""
        row = self._db.execute("SELECT body FROM events ORDER BY id DESC LIMIT 1").fetchone()
        return msgspec.json.decode(row[0], type=Event) if row else None

    def last_id(self) -> int:
        """A mark for `after`."""
        return int(self._db.execute("SELECT COALESCE(MAX(id), 0) FROM events").fetchone()[0])

    def after(self, mark: int) -> list[Event]:
        """What was recorded since `last_id` was asked, in order."""
        rows = self._db.execute("SELECT body FROM events WHERE id > ? ORDER BY id", (mark,))
        return [msgspec.json.decode(row[0], type=Event) for row in rows]

    def latest_lag(self) -> float | None:
        """Seconds between the last event and its being recorded; None: there is none."""
        row = self._db.execute("SELECT recorded - happened FROM events ORDER BY id DESC LIMIT 1").fetchone()
        return float(row[0]) if row else None

    def events(
        self, since: datetime.datetime, until: datetime.datetime, kinds: Sequence[Kind] = tuple(Kind)
    ) -> list[Event]:
        """What happened in [since, until), of these kinds, in order of time."""
        marks = ", ".join("?" * len(kinds))
        rows = self._db.execute(
            f"SELECT body FROM events WHERE happened >= ? AND happened < ? AND kind IN ({marks}) ORDER BY happened, id",  # noqa: S608
            (since.timestamp(), until.timestamp(), *kinds),
        )
        return [msgspec.json.decode(row[0], type=Event) for row in rows]

    def latest_before(self, until: datetime.datetime, kinds: Sequence[Kind]) -> Event | None:
        """What happened last before `until`, of these kinds; None: nothing did."""
        marks = ", ".join("?" * len(kinds))
        row = self._db.execute(
            f"SELECT body FROM events WHERE happened < ? AND kind IN ({marks}) ORDER BY happened DESC, id DESC LIMIT 1",  # noqa: S608
            (until.timestamp(), *kinds),
        ).fetchone()
        return msgspec.json.decode(row[0], type=Event) if row else None

    def latest_events(self, limit: int, kinds: Sequence[Kind] = tuple(Kind)) -> list[Event]:
        """The last `limit` that were recorded, oldest first."""
        marks = ", ".join("?" * len(kinds))
        rows = self._db.execute(
            f"SELECT body FROM events WHERE kind IN ({marks}) ORDER BY id DESC LIMIT ?",  # noqa: S608
            (*kinds, limit),
        ).fetchall()
        return [msgspec.json.decode(row[0], type=Event) for row in reversed(rows)]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise


_QUEUED = "id, sink, body, attempts, queued, key"


def _queued(row: Sequence[object]) -> Queued:
    number, sink, body, attempts, queued, _ = row
    assert isinstance(number, int)  # noqa: S101 - sqlite3 has no static types
    assert isinstance(attempts, int)  # noqa: S101
    assert isinstance(body, bytes)  # noqa: S101
    assert isinstance(queued, float)  # noqa: S101
    return Queued(
        id=number,
        sink=str(sink),
        notice=msgspec.json.decode(body, type=Notice),
        attempts=attempts,
        first_queued=_at(queued),
    )


def _at(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _moment(seconds: float | None) -> datetime.datetime | None:
    return None if seconds is None else _at(seconds)
