"""The series of memory samples, and the tallies that go on after a restart. Tables of the watcher's database.

A job's series is thinned when it grows: of MOST points every second one is dropped, so that a week takes no more room
than an hour. Its tally keeps the peaks.
"""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Sequence

import msgspec

from gpuq.adapters.store.db import migrate
from gpuq.core.memory.looks import Sample, Tally

MOST = 2000
"""Points of one job."""
KEPT = datetime.timedelta(days=60)
"""After which a job's series is dropped; its summary is in its record."""

_STEPS = (
    """
    CREATE TABLE sampled (
        key TEXT PRIMARY KEY, about TEXT NOT NULL, open INTEGER NOT NULL, tally TEXT NOT NULL, updated REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE samples (
        key TEXT NOT NULL REFERENCES sampled (key) ON DELETE CASCADE, at REAL NOT NULL,
        held INTEGER, anon INTEGER, shmem INTEGER, cache INTEGER, current INTEGER, mem_limit INTEGER,
        gpu_memory INTEGER, gpu_utilization INTEGER, host_available INTEGER, PRIMARY KEY (key, at)
    ) WITHOUT ROWID
    """,
)

_FIELDS = ("held", "anon", "shmem", "cache", "current", "limit", "gpu_memory", "gpu_utilization", "host_available")


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a series is of."""

    job_id: int
    name: str
    runs: str = ""
    """The runs root of its record; empty: gpuq did not submit it."""
    tag: str = ""
    attempt: int = 0


class SampleStore:
    """What is kept of running jobs' memory. A job is named by its key: an attempt's token, or id and submit time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Brings the tables up to date. Raises sqlite3.Error."""
        self._connection = connection
        migrate(connection, "samples", _STEPS)

    def save(self, key: str, about: About, tally: Tally, samples: Sequence[Sample], now: datetime.datetime) -> None:
        """Keep a tally and the points since the last time, in one transaction. Raises sqlite3.Error."""
        db = self._connection
        db.execute("BEGIN IMMEDIATE")
        try:
            db.execute(
                "INSERT INTO sampled VALUES (?, ?, 1, ?, ?) ON CONFLICT (key) DO UPDATE SET tally = excluded.tally, "
                "updated = excluded.updated, about = excluded.about, open = 1",
                (key, _text(about), _text(tally), now.timestamp()),
            )
            db.executemany(
                "INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(key, one.at.timestamp(), *[getattr(one, name) for name in _FIELDS]) for one in samples],
            )
            self._thin(key)
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise

    def tally(self, key: str) -> Tally | None:
        """What was kept of a job; None: nothing. Raises sqlite3.Error."""
        row = self._connection.execute("SELECT tally FROM sampled WHERE key = ?", (key,)).fetchone()
        try:
            return None if row is None else msgspec.json.decode(row[0], type=Tally)
        except msgspec.MsgspecError:  # of another version
            return None

    def series(self, key: str) -> list[Sample]:
        """A job's points, oldest first. Raises sqlite3.Error."""
        rows = self._connection.execute("SELECT * FROM samples WHERE key = ? ORDER BY at", (key,))
        return [
            Sample(at=datetime.datetime.fromtimestamp(row[1], datetime.UTC), **dict(zip(_FIELDS, row[2:], strict=True)))
            for row in rows
        ]

    def keys(self, job_id: int, runs: str = "", tag: str = "", attempt: int = 0) -> list[str]:
        """Keys of an attempt (a requeue makes another), or of a job that gpuq did not submit; the newest last.

        Raises sqlite3.Error."""
        wanted = (job_id, runs, tag, attempt)
        found = []
        for key, text in self._connection.execute("SELECT key, about FROM sampled ORDER BY updated"):
            about = msgspec.json.decode(text, type=About)
            if (about.job_id, about.runs, about.tag, about.attempt) == wanted:
                found.append(key)
        return found

    def unfinished(self) -> list[tuple[str, About]]:
        """The jobs that were being looked at when somebody last did. Raises sqlite3.Error."""
        rows = self._connection.execute("SELECT key, about FROM sampled WHERE open = 1 ORDER BY updated")
        return [(row[0], msgspec.json.decode(row[1], type=About)) for row in rows]

    def finish(self, key: str, now: datetime.datetime) -> None:
        """The job is over and its summary written; drops series that are old. Raises sqlite3.Error."""
        self._connection.execute("UPDATE sampled SET open = 0, updated = ? WHERE key = ?", (now.timestamp(), key))
        self._connection.execute("DELETE FROM sampled WHERE updated < ?", ((now - KEPT).timestamp(),))

    def _thin(self, key: str) -> None:
        count = self._connection.execute("SELECT count(*) FROM samples WHERE key = ?", (key,)).fetchone()[0]
        if count > MOST:
            self._connection.execute(
                "DELETE FROM samples WHERE key = ? AND at IN (SELECT at FROM (SELECT at, row_number() OVER (ORDER BY at) "
                "AS n FROM samples WHERE key = ?) WHERE n % 2 = 0)",
                (key, key),
            )


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
