"""What is told about the queue and the day, and the unit of the service."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from gpuq.core.event import Ending, Event, Kind, Problem
from gpuq.core.watch.digest import BETWEEN, EMPTY, NOT_SEEN, digest
from gpuq.core.watch.queue import queue_facts
from gpuq.core.watch.unit import quoted, unit
from gpuq.usecases.watch.endings import log_tail, tasks_in
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
