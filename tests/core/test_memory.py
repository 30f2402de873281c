"""Looks at a cgroup: what the kernel's files say, and what all looks together come to."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.memory.chart import bucket, draw
from gpuq.core.memory.files import from_v1, from_v2, number, pressure, table
from gpuq.core.memory.looks import SETTLES, Reading, Tally
from gpuq.core.memory.phase import phase
from gpuq.core.memory.values import MemorySummary, summary_path

GIB = 1024**3
START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)

V2_STAT = table(
    f"anon {GIB}\nfile {9 * GIB}\nkernel 5000000\nshmem {2 * GIB}\nfile_mapped 7\nworkingset_refault_file 12\n"
)
V2_FILES = {
    "memory.current": f"{10 * GIB}\n",
    "memory.peak": f"{11 * GIB}\n",
    "memory.swap.current": "0\n",
    "memory.events": "low 0\nhigh 0\nmax 38\noom 1\noom_kill 2\noom_group_kill 0\n",
    "memory.pressure": "some avg10=0.00 avg60=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 total=500000\n",
}


def at(seconds: float) -> datetime.datetime:
    return START + datetime.timedelta(seconds=seconds)


def test_v2_told_apart() -> None:
    look = from_v2([V2_STAT], [V2_FILES], 32 * GIB)
    assert (look.held, look.cache, look.peak, look.limit) == (3 * GIB, 7 * GIB, 11 * GIB, 32 * GIB)
    assert (look.limit_hits, look.oom, look.oom_kill, look.refaults) == (38, 1, 2, 12)
    assert (look.stalled, look.stalled_full) == (2.5, 0.5)
    assert look.untold == 0


def test_a_file_that_does_not_exist_is_not_told_and_never_0() -> None:
    look = from_v2([{"anon": 1, "shmem": 2}], [{}], None)
    assert look.held == 3
    assert (look.peak, look.current, look.oom_kill, look.stalled, look.limit, look.cache, look.refaults) == (None,) * 7
    old = from_v1([{"total_rss": 5, "total_mapped_file": 3, "total_cache": 9}], [{}], [], None)
    assert old.held == 8, "before Linux 4.14: mapped files stand for shared memory"
    assert (old.oom_kill, old.stalled, old.peak, old.limit) == (None,) * 4


def test_v1_names_mean_the_same() -> None:
    stat = table(
        f"rss 0\ntotal_rss {GIB}\ntotal_shmem {2 * GIB}\ntotal_cache {9 * GIB}\ntotal_swap 4096\n"
        f"total_workingset_refault_file 5\nhierarchical_memory_limit {4 * GIB}\n"
    )
    files = {"memory.usage_in_bytes": str(10 * GIB), "memory.max_usage_in_bytes": str(11 * GIB), "memory.failcnt": "3"}
    killed = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"
    look = from_v1([stat], [files], [killed, killed], None)
    assert (look.held, look.cache, look.peak) == (3 * GIB + 4096, 7 * GIB, 11 * GIB)
    assert look.limit == 4 * GIB
    assert look.oom_kill == 2, "each cgroup counts its own"
    assert (look.limit_hits, look.refaults) == (3, 5)
    unlimited = from_v1([{"hierarchical_memory_limit": 9223372036854771712}], [files], [], 9223372036854771712)
    assert unlimited.limit is None


def test_steps_are_added_up_where_only_they_carry_numbers() -> None:
    look = from_v2([V2_STAT, V2_STAT], [V2_FILES, V2_FILES], 32 * GIB)
    assert (look.held, look.current, look.oom_kill) == (6 * GIB, 20 * GIB, 4)
    assert look.peak is None, "their peaks need not have been at one time"
    half = from_v2([V2_STAT, {"anon": 1}], [V2_FILES, {}], None)
    assert (half.anon, half.shmem, half.held) == (GIB + 1, None, None), "a sum that lacks a part would be too low"


@pytest.mark.parametrize(
    ("text", "value"), [("max\n", None), (None, None), ("", None), ("12\n", 12), ("0", 0), ("-1", None)]
)
def test_numbers(text: str | None, value: int | None) -> None:
    assert number(text) == value


def test_pressure_without_full() -> None:
    assert pressure("some avg10=0.00 total=1000000\n") == (1.0, None)
    assert pressure("garbage") == (None, None)


@given(st.text())
def test_whatever_a_file_holds_is_read(text: str) -> None:
    from_v2([table(text)], [{"memory.events": text, "memory.pressure": text, "memory.current": text}], None)
    from_v1([table(text)], [{"memory.usage_in_bytes": text}], [text], None)


# -- the tally -----------------------------------------------------------------------------------------------------


def look(held: int, *, cache: int = 0, limit: int | None = None, untold: int = 0, **more: int) -> Reading:
    return Reading(
        version=2, anon=held, shmem=0, file=cache, kernel=0, current=held + cache + untold, limit=limit, **more
    )


def test_the_tally_keeps_the_height_and_its_parts() -> None:
    tally = Tally()
    assert tally.summary() is None
    tally.add(Reading(version=2, anon=GIB, shmem=GIB, current=2 * GIB, peak=3 * GIB, file=GIB), at(0))
    assert tally.add(look(5 * GIB, cache=GIB), at(1)), "a new height"
    assert not tally.add(look(GIB, cache=9 * GIB), at(2))
    seen = tally.summary()
    assert seen
    assert (seen.held, seen.anon, seen.shmem, seen.held_at) == (5 * GIB, 5 * GIB, 0, at(1))
    assert (seen.cache, seen.usage, seen.peak, seen.looks, seen.seconds) == (9 * GIB, 10 * GIB, 3 * GIB, 3, 2.0)


def test_time_near_the_limit_and_counters_over_several_cgroups() -> None:
    tally = Tally()
    for second, current, kills in ((0, 99, 0), (5, 99, 1), (10, 10, 1), (15, 99, 0), (20, 99, 2)):
        tally.add(Reading(version=1, anon=1, shmem=0, current=current, limit=100, oom_kill=kills), at(second))
    seen = tally.summary()
    assert seen
    assert seen.near_limit == 15.0
    assert seen.oom_kill == 3, "one in the first cgroup, two in the one after the requeue"
    assert seen.oom is None


def test_v1_forgets_the_kills_of_a_step_that_is_over() -> None:
    tally = Tally()
    for second, kills in ((0, 1), (5, 2), (10, 1), (15, 0), (20, 1)):
        tally.add(Reading(version=1, anon=1, shmem=0, oom_kill=kills), at(second))
    seen = tally.summary()
    assert seen
    assert seen.oom_kill == 3, "two steps lost a process each, are over, and the next one lost one"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (b"START total=9\nSTEP step=3 part=evaluation\nSTEP step=4", "step=3 part=evaluation"),
        (b"\rSTEP step=1\r\nSTEP step=2 note=\xff\x1b[2J\n", "step=2 note=\ufffd"),
        (b"TEP step=1\nloss 3\n", ""),
        (b"\nSTEP " + b"x" * 500 + b"\n", "x" * 120),
        (b"", ""),
    ],
)
def test_how_far_a_log_is(log: bytes, words: str) -> None:
    assert phase(log).startswith(words)
    assert bool(phase(log)) == bool(words)
    assert phase(log).isprintable()


def test_what_the_kernel_has_not_told_apart_yet() -> None:
    tally = Tally()
    tally.add(look(GIB), at(0))
    tally.add(look(GIB, untold=GIB // 2), at(1))
    tally.add(look(GIB, cache=GIB // 2), at(2))
    seen = tally.summary(over=True)
    assert seen
    assert (seen.held, seen.untold) == (GIB, 0), "it turned out to be page cache"

    tally.add(look(GIB, untold=GIB // 2), at(3))
    assert (now := tally.summary())
    assert now.held == GIB, "the next look tells"
    assert (end := tally.summary(over=True))
    assert (end.held, end.untold) == (GIB + GIB // 2, GIB // 2), "there was no next look: a peak at the end counts"

    stuck = Tally()
    stuck.add(look(GIB, untold=GIB), at(0))
    stuck.add(look(GIB, untold=GIB), at(SETTLES + 0.1))
    assert (late := stuck.summary())
    assert (late.held, late.untold) == (2 * GIB, GIB), "never told apart (hugetlb, say): taken for held"


def test_gpu_and_host() -> None:
    tally = Tally()
    tally.add(look(1), at(0))
    for memory, use, free in ((5, 50, 900), (9, 100, 100), (None, None, None), (7, 0, 500)):
        tally.add_gpu(memory, use)
        tally.add_host(free)
    seen = tally.summary("job")
    assert seen
    assert (seen.gpu_memory, seen.gpu_utilization, seen.host_available, seen.source) == (9, 50.0, 100, "job")


def test_at_the_limit() -> None:
    assert MemorySummary(held=1, peak=32 * GIB, limit=32 * GIB).at_limit
    assert MemorySummary(held=1, usage=32 * GIB, limit=32 * GIB).at_limit
    assert not MemorySummary(held=1, peak=GIB, limit=32 * GIB).at_limit
    assert not MemorySummary(held=1, peak=GIB).at_limit


def test_where_a_job_leaves_what_it_saw() -> None:
    assert summary_path("/p/runs/a/slurm/attempt3.out") == "/p/runs/a/slurm/attempt3.mem.json"


# -- the chart -----------------------------------------------------------------------------------------------------


def test_the_chart() -> None:
    assert draw([0, 1, 2, 4], width=4, height=1, ascii_only=True) == [" :=@"]
    assert draw([1, 2], width=9, height=2) == [" █", "██"]
    assert draw([], width=4, height=1) == []
    assert bucket([1, 9, 1, 1], 2) == [9, 1], "a peak is not averaged away"


@given(st.lists(st.integers(0, 2**50), min_size=1, max_size=300), st.integers(1, 80), st.integers(1, 12))
def test_every_chart_has_its_size(values: list[int], width: int, height: int) -> None:
    rows = draw(values, width=width, height=height)
    assert len(rows) == height
    assert {len(row) for row in rows} == {min(width, len(values))}
