"""The database file itself: its mode, and that several connections of several processes do not take it from each other."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

from gpuq.adapters import proc
from gpuq.adapters.store.db import migrate, open_store

LOOK = """
import contextlib, sqlite3, sys
with contextlib.closing(sqlite3.connect(sys.argv[1])) as connection:
    print(connection.execute("SELECT x FROM t ORDER BY x").fetchall())
"""


def seen_by_another(path: Path) -> str:
    """The rows of t, as a process that opens and closes the database finds them."""
    return proc.run([sys.executable, "-c", LOOK, str(path)], timeout=30).stdout.strip()


def test_what_is_written_after_somebody_else_looked_is_not_lost(tmp_path: Path) -> None:
    """A second connection must not cost the first its locks: the looker would remove the log that is written to."""
    path = tmp_path / "new" / "watch.db"
    with contextlib.closing(open_store(path)) as first, contextlib.closing(open_store(path)) as second:
        first.execute("CREATE TABLE t (x)")
        first.execute("INSERT INTO t VALUES (1)")
        assert seen_by_another(path) == "[(1,)]"
        first.execute("INSERT INTO t VALUES (2)")
        second.execute("INSERT INTO t VALUES (3)")
        assert seen_by_another(path) == "[(1,), (2,), (3,)]"
        assert (path.parent / "watch.db-wal").exists()
    assert seen_by_another(path) == "[(1,), (2,), (3,)]"


def test_many_threads_open_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "watch.db"
    failed = []

    def work(number: int) -> None:
        try:
            with contextlib.closing(open_store(path)) as connection:
                migrate(connection, "t", ["CREATE TABLE t (x)"])
                connection.execute("INSERT INTO t VALUES (?)", (number,))
        except sqlite3.Error as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert seen_by_another(path) == str([(number,) for number in range(8)])


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "watch.db"
    with contextlib.closing(open_store(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
        assert {one.stat().st_mode & 0o777 for one in path.parent.iterdir()} == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_migration_is_whole_or_not_at_all(tmp_path: Path) -> None:
    with contextlib.closing(open_store(tmp_path / "watch.db")) as connection:
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, "t", ["CREATE TABLE t (x); CREATE TABLE t (x)"])
        migrate(connection, "t", ["CREATE TABLE t (x)"])
        migrate(connection, "t", ["CREATE TABLE t (x)", "ALTER TABLE t ADD COLUMN y"])
        assert connection.execute("SELECT version FROM parts WHERE name = 't'").fetchone() == (2,)
        with pytest.raises(sqlite3.DatabaseError, match="later gpuq"):
            migrate(connection, "t", ["CREATE TABLE t (x)"])


def test_what_is_no_database_is_said_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "watch.db"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(sqlite3.DatabaseError):
        open_store(path)
    assert path.read_bytes() == b"no database" * 1000


def test_who_only_looks_does_not_wait_for_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "watch.db"
    with contextlib.closing(open_store(path)) as writer:
        migrate(writer, "t", ["CREATE TABLE t (x)"])
        writer.execute("BEGIN IMMEDIATE")
        with contextlib.closing(open_store(path, timeout=0)) as looker:
            migrate(looker, "t", ["CREATE TABLE t (x)"])
            assert looker.execute("SELECT x FROM t").fetchall() == []
        writer.execute("COMMIT")


@pytest.mark.parametrize("version", [b"\xff", "one", 9, 1e400])
def test_a_version_that_is_none_or_of_a_later_gpuq_is_an_error_of_the_database(tmp_path: Path, version: object) -> None:
    with contextlib.closing(open_store(tmp_path / "watch.db")) as connection:
        migrate(connection, "x", ["CREATE TABLE x (a)"])
        connection.execute("UPDATE parts SET version = ?", (version,))
        with pytest.raises(sqlite3.DatabaseError, match="x: "):
            migrate(connection, "x", ["CREATE TABLE x (a)"])


def test_damage_that_sqlite_quotes_is_an_error_of_the_database(tmp_path: Path) -> None:
    """The name of a table, in what SQLite says of a schema that it does not understand."""
    path = tmp_path / "watch.db"
    with contextlib.closing(open_store(path)) as connection:
        connection.execute("CREATE TABLE abcdefgh (x)")
    raw = path.read_bytes()
    assert raw.count(b"CREATE TABLE abcdefgh") == 1
    path.write_bytes(raw.replace(b"CREATE TABLE abcdefgh", b"CREATE TABXX abcd\x83fgh"))
    with pytest.raises(sqlite3.DatabaseError):
        open_store(path)
