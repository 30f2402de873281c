"""What is told about the queue and the day, and the unit of the service."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuq.adapters.store.db import open_store
from gpuq.adapters.store.events import EventStore
from gpuq.core.event import Ending, Event, Kind, Problem
from gpuq.core.watch.digest import BETWEEN, EMPTY, NOT_SEEN, digest
from gpuq.core.watch.queue import queue_facts
from gpuq.core.watch.unit import quoted, unit
from gpuq.usecases.watch.day import Day, digest_event, edge
from gpuq.usecases.watch.endings import log_tail, tasks_in
from gpuq.usecases.watch.state import Memory
from tests.core.watch_world import job

NOON = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.UTC)
HOUR = 3600.0


def at(hours: float) -> datetime.datetime:
    return NOON + datetime.timedelta(hours=hours)


def ended(name: str, start: float, end: float, *, outcome: str = "SUCCEEDED", score: float | None = None) -> Event:
    ending = Ending(
        job_id=name, name=name, outcome=outcome, start=at(start), end=at(end), score=score, attempt=2, gpu=True
    )
    return Event(key=f"end:{name}", kind=Kind.JOB_ENDED, time=at(end), ending=ending)


def problem(kind: Kind, hours: float, rule: str) -> Event:
    return Event(
        key=f"{kind}{hours}",
        kind=kind,
        time=at(hours),
        problem=Problem(rule=rule, subject="node n1", text="it is down"),
    )


def test_a_day_is_divided_into_use_and_reasons() -> None:
    events = [
        ended("a", -2, 3, score=0.5),
        ended("b", 3, 4, outcome="FAILED"),
        Event(key="e", kind=Kind.QUEUE_EMPTY, time=at(4)),
        ended("c", 6, 8, score=0.9),
        problem(Kind.PROBLEM, 9, "node-unusable"),
        problem(Kind.RECOVERED, 10, "node-unusable"),
        ended("d", 22, 30),
    ]
    day = digest(NOON, at(24), events, seen=[(NOON.timestamp() - 10, at(20).timestamp())], running=[])
    assert day.used == (3 + 1 + 2 + 2) * HOUR
    assert day.idle == {EMPTY: 2 * HOUR, "node down": HOUR, NOT_SEEN: 2 * HOUR, BETWEEN: 11 * HOUR}
    assert day.used + sum(day.idle.values()) == 24 * HOUR
    assert day.outcomes == {"SUCCEEDED": 2, "FAILED": 1}
    assert day.best == (("c attempt 2", 0.9), ("a attempt 2", 0.5))


def test_a_day_of_nothing_and_one_of_one_long_job() -> None:
    nothing = digest(NOON, at(24), [], seen=[(NOON.timestamp(), at(24).timestamp())], empty=True)
    assert (nothing.used, nothing.idle) == (0, {EMPTY: 24 * HOUR})
    span = (at(-5).timestamp(), at(30).timestamp())
    assert digest(NOON, at(24), [], running=[span], seen=[]).used == 24 * HOUR


def test_what_goes_on_from_the_day_before_and_into_the_next() -> None:
    """A queue that was empty before, a node that was down before, and a job that has not ended."""
    seen = [(at(-50).timestamp(), at(24).timestamp())]
    run = (at(21).timestamp(), at(24).timestamp())
    day = digest(NOON, at(24), [ended("a", 5, 6)], seen=seen, empty_before=True)
    assert day.idle == {EMPTY: 5 * HOUR, BETWEEN: 18 * HOUR}
    empty = Event(key="e", kind=Kind.QUEUE_EMPTY, time=at(6))
    day = digest(NOON, at(24), [ended("a", 5, 6), empty], seen=seen, running=[run], empty_before=True)
    assert day.idle == {EMPTY: (5 + 15) * HOUR}, "until the job that still runs began"
    over = problem(Kind.RECOVERED, 4, "node-unusable")
    day = digest(NOON, at(24), [over], seen=seen)
    assert day.idle == {"node down": 4 * HOUR, BETWEEN: 20 * HOUR}
    day = digest(NOON, at(24), [], seen=seen, problems=[("node-unusable", at(-30).timestamp())], empty=True)
    assert day.idle == {"node down": 24 * HOUR}
    twice = [over, problem(Kind.PROBLEM, 5, "node-unusable"), problem(Kind.RECOVERED, 6, "node-unusable"), over]
    assert digest(NOON, at(24), twice, seen=seen).idle["node down"] == 5 * HOUR


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks are set forward on the 8th of March 2026 and back on the 1st of November, each at 02:00."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_days_on_which_clocks_are_set_follow_each_other(new_york: None, tmp_path: Path) -> None:
    def due(clock: str, month: int, day: int, hour: float, last: str) -> str | None:
        """At `hour` hours UTC of that day."""
        now = datetime.datetime(2026, month, day, tzinfo=datetime.UTC) + datetime.timedelta(hours=hour)
        return days.due(clock, now, last)

    with contextlib.closing(open_store(tmp_path / "watch.db")) as connection:
        store = EventStore(connection)
        days = Day(store)
        assert due("09:00", 3, 8, 12.99, "2026-03-07") is None
        assert due("09:00", 3, 8, 13, "2026-03-07") == "2026-03-08"
        assert due("09:00", 3, 8, 13.1, "2026-03-08") is None, "once a day"
        # 02:30 is passed over, and 01:30 comes twice
        assert due("02:30", 3, 8, 6.4, "2026-03-07") is None
        assert due("02:30", 3, 8, 7.5, "2026-03-07") == "2026-03-08"
        assert due("01:30", 11, 1, 5.5, "2026-10-31") == "2026-11-01"
        assert due("01:30", 11, 1, 6.5, "2026-11-01") is None
        for clock, month, first, hours in (("09:00", 3, 8, 23), ("09:00", 11, 1, 25), ("00:00", 3, 9, 23)):
            told = []
            for day in range(3):
                date = datetime.date(2026, month, first) + datetime.timedelta(days=day)
                # a look comes some minutes late, and now and then much later
                late = edge(clock, date) + datetime.timedelta(minutes=7 + 300 * day)
                made = digest_event("c", clock, date.isoformat(), late, store, [], Memory()).digest
                assert made is not None
                told.append(made)
            assert [(one.until - one.since).total_seconds() / HOUR for one in told] == [hours, 24, 24]
            assert told[0].until == told[1].since
            assert told[1].until == told[2].since


def test_the_queue_in_a_notice() -> None:
    rows = [
        job("1", "RUNNING", name="a", elapsed=100),
        job("2", name="a", priority=5),
        job("3", name="b", priority=9),
        job("4", name="c", priority=0, reason="JobHeldUser"),
        job("5", "COMPLETING", name="d"),
    ]
    queue = queue_facts(rows, {"a": (300, 500)}, NOON)
    assert (queue.running, queue.waiting, queue.next_id) == (1, 3, "1")
    assert queue.drained == NOON + datetime.timedelta(seconds=300 + 400 + 400)
    assert queue_facts(rows[1:], {}, NOON).next_name == "b"
    assert queue_facts(rows, {}, NOON).drained is None
    assert queue_facts([], {"a": (1,)}, NOON).next_name == ""
    limited = [job("2", name="a", time_limit=60)]
    put_back = job("6", name="filler", priority=90, reason="BeginTime", start=at(2))
    filler = job("7", name="filler", priority=50, partition="bg")
    queue = queue_facts([put_back, filler, *rows[1:4]], {"a": (300,)}, NOON)
    assert queue.next_name == "b"
    assert queue.drained == at(2) + datetime.timedelta(seconds=300), "it begins in two hours"
    assert queue_facts([put_back, filler], {}, NOON).next_id == "7"
    assert queue_facts(limited, {"a": (300,)}, NOON).drained == NOON + datetime.timedelta(seconds=60)


@pytest.mark.parametrize(
    ("name", "count"), [("12_3", 1), ("12_[1-3]", 3), ("12_[1-3,7%2]", 4), ("12_[0-8:4]", 3), ("12_[1-3,...]", 3)]
)
def test_how_many_tasks_an_id_stands_for(name: str, count: int) -> None:
    assert tasks_in(name) == count


def test_the_end_of_a_log_holds_no_frames(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"begin\n" * 100 + b"10%\r50%\r100%\n\n\nValueError: 3\n")
    assert log_tail(log).splitlines()[-2:] == ["100%", "ValueError: 3"]
    log.write_text("x" * 5000 + "\n" + "y" * 5000)
    assert len(log_tail(log)) <= 1500
    assert log_tail(tmp_path / "none") == ""


def test_the_unit_that_is_in_the_repository_is_the_one_that_is_installed() -> None:
    path = Path(__file__).resolve().parents[2] / "ops" / "systemd" / "gpuq-watch.service"
    assert path.read_text() == unit("/usr/bin/env gpuq", {})


def test_the_unit_carries_what_says_which_slurm_and_no_secret() -> None:
    text = unit(
        quoted(("/home/a b/v/bin/python", "-m", "gpuq")),
        {"SLURM_CONF": "/x/100%/slurm.conf", "PATH": "/bin", "WEBHOOK": "https://secret", "GPUQ_LOCAL_DIR": ""},
    )
    assert 'ExecStart="/home/a b/v/bin/python" -m gpuq watch\n' in text
    assert 'Environment="SLURM_CONF=/x/100%%/slurm.conf"\n' in text
    assert "secret" not in text
    assert "GPUQ_LOCAL_DIR" not in text
