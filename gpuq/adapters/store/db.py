"""The database file: opened, brought up to date, and nothing else. Each part of the store has tables of its own.

SQLite in WAL mode: a reader never waits for the writer, and kill -9 at any instant leaves the last whole transaction
(sqlite.org/wal.html). synchronous=FULL, so that this also holds for a power cut.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

FILE = "watch.db"

_opening = threading.Lock()


def state_dir(environment: Mapping[str, str]) -> Path:
    """$XDG_STATE_HOME/gpuq, by default below ~/.local/state."""
    base = environment.get("XDG_STATE_HOME", "")
    directory = Path(base) if base.startswith("/") else Path(environment.get("HOME", "/")) / ".local" / "state"
    return directory / "gpuq"


def open_store(path: Path, *, timeout: float = 10.0) -> sqlite3.Connection:
    """Open the database, made with mode 0600 when it is not there. `timeout`: seconds to wait for another writer.

    The connection is in autocommit mode: transactions are begun by hand (`BEGIN IMMEDIATE`). It may be used by the
    thread that opened it only. Raises sqlite3.Error, OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _opening:
        # Only where there is none: closing any descriptor of a file drops all POSIX locks that the process has on it, those
        # of its other connections too (sqlite.org/howtocorrupt.html, 2.2). The next process to close the database would
        # then take itself for the last one, and remove the log that the others still write to.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(path, timeout=timeout, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("CREATE TABLE IF NOT EXISTS parts (name TEXT PRIMARY KEY, version INTEGER NOT NULL)")
        except UnicodeDecodeError:  # SQLite quotes what it found
            connection.close()
            raise sqlite3.DatabaseError("it is damaged") from None
        except BaseException:
            connection.close()
            raise
    return connection


def migrate(connection: sqlite3.Connection, part: str, steps: Sequence[str]) -> None:
    """Bring the tables of `part` up to date: step N (SQL, may hold several statements) makes version N of version N-1.

    Steps are only ever added. A database of a later gpuq raises sqlite3.DatabaseError. One that is up to date is not written
    to: whoever only looks neither waits for the writer nor needs the right to write.
    """
    if _version(connection, part) == len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        have = _version(connection, part)
        if have > len(steps):
            raise sqlite3.DatabaseError(f"{part}: version {have} was written by a later gpuq, which knows more")
        for step in steps[have:]:
            for statement in filter(str.strip, step.split(";")):
                connection.execute(statement)
        connection.execute(
            "INSERT INTO parts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET version = excluded.version",
            (part, len(steps)),
        )
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, part: str) -> int:
    row = connection.execute("SELECT version FROM parts WHERE name = ?", (part,)).fetchone()
    try:
        return int(row[0]) if row else 0
    except (TypeError, ValueError, OverflowError):
        raise sqlite3.DatabaseError(f"{part}: its version is no number") from None
