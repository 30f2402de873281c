"""The store: an event once, its notices with it or not at all, each sink in order."""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuq.adapters.store.db import open_store
from gpuq.adapters.store.events import KEEP_DELIVERED, KEEP_EVENTS, EventStore
from gpuq.core.event import Event, Kind, Problem
from gpuq.core.notice import Level, Notice
from gpuq.core.notify.config import Config
from gpuq.core.notify.telling import notice_of

NOW = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(seconds=30)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    with contextlib.closing(open_store(tmp_path / "watch.db")) as connection:
        yield EventStore(connection)


def event(key: str = "a", kind: Kind = Kind.PROGRESS, time: datetime.datetime = NOW) -> Event:
    return Event(key=key, kind=kind, time=time)


def notice(key: str = "a", *, merge: str = "") -> Notice:
    return Notice(key=key, kind=Kind.PROGRESS, level=Level.INFO, title=key, time=NOW, merge=merge)


def titles(store: EventStore, sink: str = "s", now: datetime.datetime = NOW) -> list[str]:
    return [one.notice.title for one in store.due(sink, now)]


def test_an_event_is_recorded_once_and_told_once(store: EventStore) -> None:
    assert store.record([event()], [("s", notice()), ("t", notice())], {"c": b"1"}, now=NOW) == [event()]
    assert store.record([event(), event("b")], [("s", notice()), ("s", notice("b"))], {"c": b"2"}, now=NOW) == [
        event("b")
    ]
    assert titles(store) == ["a", "b"]
    assert titles(store, "t") == ["a"]
    assert store.cursor("c") == b"2"
    assert store.has("a")
    assert store.latest_event() == event("b")
    assert store.after(store.last_id() - 1) == [event("b")]


def test_all_or_nothing(store: EventStore) -> None:
    class Odd(dict[str, bytes]):
        def items(self) -> object:  # type: ignore[override]
            yield "c", b"1"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.record([event()], [("s", notice())], Odd({"c": b"1"}), now=NOW)
    assert store.latest_event() is None
    assert titles(store) == []
    assert store.cursor("c") is None


def test_cursors_are_found_by_prefix_and_forgotten(store: EventStore) -> None:
    store.record([], [], {"job:1": b"x", "job:2": b"y", "jobs": b"z", "jo%": b"p"}, now=NOW)
    assert store.cursors("job:") == {"job:1": b"x", "job:2": b"y"}
    assert store.cursors("jo%") == {"jo%": b"p"}
    store.record([], [], {"job:1": None}, now=NOW)
    assert store.cursors("job:") == {"job:2": b"y"}


def test_equal_notices_that_wait_become_the_latest(store: EventStore) -> None:
    store.record([event("a"), event("b")], [("s", notice("a", merge="m")), ("s", notice("b"))], now=NOW)
    (first, _) = store.due("s", NOW)
    store.record([event("c")], [("s", notice("c", merge="m"))], now=NOW)
    assert titles(store) == ["b", "c"]
    store.delivered(first.id, NOW)  # it was under way, and is gone from the outbox
    assert titles(store) == ["b", "c"]


def test_what_comes_and_goes_while_nobody_listens_is_its_last_coming_and_going(store: EventStore) -> None:
    problem = Problem(rule="node-unusable", subject="node n1", text="node n1 is down")
    kinds = [Kind.JOB_STARTED, *[Kind.PROBLEM, Kind.RECOVERED] * 50]
    for number, kind in enumerate(kinds):
        of = None if kind is Kind.JOB_STARTED else problem
        one = Event(key=f"k{number}", kind=kind, time=NOW, subject="x", problem=of)
        store.record([one], [("s", notice_of(one, Config()))], now=NOW)
    waiting = store.due("s", NOW, limit=100)
    assert [(one.notice.key, one.notice.kind) for one in waiting] == [
        ("k0", Kind.JOB_STARTED),
        ("k99", Kind.PROBLEM),
        ("k100", Kind.RECOVERED),
    ]


def test_nothing_is_delivered_before_one_that_waits_for_its_retry(store: EventStore) -> None:
    store.record([event("a"), event("b")], [("s", notice("a")), ("s", notice("b")), ("t", notice("b"))], now=NOW)
    head = store.due("s", NOW)[0]
    store.failed(head.id, "429", LATER, now=NOW)
    assert titles(store) == []
    assert titles(store, "t") == ["b"]
    assert store.next_retry("s") == LATER
    assert titles(store, now=LATER) == ["a", "b"]
    assert store.due("s", LATER)[0].attempts == 1
    count = store.counts()["s"]
    assert (count.waiting, count.error, count.oldest, count.paused_until) == (2, "429", NOW, LATER)
    store.delivered(head.id, LATER)
    assert titles(store) == ["b"]
    assert store.counts()["s"].last_delivered == LATER


def test_dead_letters_free_the_way_and_come_back_in_their_place(store: EventStore) -> None:
    store.record([event("a"), event("b")], [("s", notice("a")), ("s", notice("b"))], now=NOW)
    store.failed(store.due("s", NOW)[0].id, "404", NOW, dead=True, now=NOW)
    assert titles(store) == ["b"]
    (dead,) = store.dead_letters()
    assert (dead.queued.notice.title, dead.error, dead.since) == ("a", "404", NOW)
    assert store.dead_letters("t") == []
    assert store.retry_dead("s") == 1
    assert titles(store) == ["a", "b"]


def test_old_things_are_forgotten_and_what_waits_is_not(store: EventStore) -> None:
    store.record([event("a"), event("b")], [("s", notice("a")), ("s", notice("b"))], now=NOW)
    store.delivered(store.due("s", NOW)[0].id, NOW)
    store.prune(NOW + KEEP_DELIVERED + datetime.timedelta(days=1))
    assert (store.counts()["s"].delivered, store.counts()["s"].waiting) == (0, 1)
    assert store.has("a")
    store.prune(NOW + KEEP_EVENTS + datetime.timedelta(days=1))
    assert not store.has("a")
    assert titles(store) == ["b"]


def test_events_of_a_time(store: EventStore) -> None:
    store.record([event("b", time=LATER), event("a"), event("d", Kind.DIGEST)], now=LATER)
    assert [one.key for one in store.events(NOW, LATER)] == ["a", "d"]
    assert [one.key for one in store.events(NOW, LATER, (Kind.DIGEST,))] == ["d"]
    assert [one.key for one in store.latest_events(2)] == ["a", "d"]
    assert store.latest_lag() == 30


def test_a_store_of_a_later_gpuq_is_refused(tmp_path: Path, store: EventStore) -> None:
    with contextlib.closing(open_store(tmp_path / "watch.db")) as connection:
        connection.execute("UPDATE parts SET version = 99")
        with pytest.raises(sqlite3.DatabaseError, match="later gpuq"):
            EventStore(connection)


def test_another_thread_and_another_process_do_not_delete_the_log_under_the_writer(tmp_path: Path) -> None:
    """A second connection of this process must not let go of the first one's locks (fcntl(2)); or the next process that
    closes the database removes the write-ahead log, and nobody ever sees what is written from then on."""
    path = tmp_path / "watch.db"
    with contextlib.closing(open_store(path)) as connection:
        writer = EventStore(connection)
        kept: list[sqlite3.Connection] = []
        thread = threading.Thread(target=lambda: kept.append(open_store(path)))
        thread.start()
        thread.join()
        writer.record([event("a")], now=NOW)
        wal = path.with_name("watch.db-wal").stat().st_ino
        code = (
            "import sys; from pathlib import Path; from gpuq.adapters.store.db import open_store; "
            "from gpuq.adapters.store.events import EventStore; c = open_store(Path(sys.argv[1])); "
            "print(EventStore(c).latest_event().key); c.close()"
        )
        import sys

        from gpuq.adapters import proc

        for _ in range(2):
            done = proc.run([sys.executable, "-c", code, str(path)], timeout=60)
            assert done.stdout == "a\n", done.stderr
            assert path.with_name("watch.db-wal").stat().st_ino == wal
        assert oct(path.stat().st_mode & 0o777) == "0o600"
        del kept[:]
