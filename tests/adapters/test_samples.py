"""The series of memory samples in the watcher's store."""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuq.adapters.store import samples
from gpuq.adapters.store.db import open_store
from gpuq.adapters.store.samples import KEPT, About, SampleStore
from gpuq.core.memory.looks import Reading, Sample, Tally

START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
ABOUT = About(job_id=12, name="a", runs="/p/runs", tag="a", attempt=1)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_store(tmp_path / "watch.db")
    yield connection
    connection.close()


def points(count: int, first: int = 0) -> list[Sample]:
    return [
        Sample(at=START + datetime.timedelta(seconds=n), held=n, gpu_utilization=None, limit=5)
        for n in range(first, first + count)
    ]


def test_what_was_kept_is_there_again(database: sqlite3.Connection, tmp_path: Path) -> None:
    tally = Tally()
    tally.add(Reading(version=2, anon=3, shmem=4, oom_kill=1), START)
    SampleStore(database).save("12:1", ABOUT, tally, points(3), START)
    other = open_store(tmp_path / "watch.db")
    again = SampleStore(other)
    assert again.tally("12:1") == tally
    assert again.series("12:1") == points(3)
    assert again.unfinished() == [("12:1", ABOUT)]
    assert again.keys(12, "/p/runs", "a", 1) == ["12:1"]
    assert again.keys(12) == []
    assert (again.tally("13:1"), again.series("13:1")) == (None, [])
    again.finish("12:1", START)
    assert again.unfinished() == []
    assert again.series("12:1") == points(3)
    other.close()


def test_a_long_series_is_thinned_and_keeps_its_span(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "MOST", 50)
    store = SampleStore(database)
    for first in range(0, 400, 10):
        store.save("12:1", ABOUT, Tally(), points(10, first), START)
    series = store.series("12:1")
    assert 25 <= len(series) <= 50
    assert (series[0].held, series[-1].held) == (0, 399) or series[-1].held == 398
    assert series == sorted(series, key=lambda one: one.at)


def test_old_series_go_with_their_points(database: sqlite3.Connection) -> None:
    store = SampleStore(database)
    store.save("1:1", ABOUT, Tally(), points(3), START)
    store.finish("1:1", START)
    store.save("2:1", ABOUT, Tally(), points(1), START + KEPT)
    store.finish("2:1", START + 2 * KEPT)
    assert store.tally("1:1") is None
    assert database.execute("SELECT count(*) FROM samples WHERE key = '1:1'").fetchone() == (0,)
    assert store.tally("2:1") == Tally()


def test_a_tally_that_is_not_understood_is_begun_anew(database: sqlite3.Connection) -> None:
    store = SampleStore(database)
    store.save("1:1", ABOUT, Tally(), [], START)
    database.execute('UPDATE sampled SET tally = \'{"looks": "many"}\'')
    assert store.tally("1:1") is None
