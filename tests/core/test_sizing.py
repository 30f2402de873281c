"""What to ask for: from what attempts held, never from their page cache."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.attempt import Ended, Outcome, Record, Request
from gpuq.core.memory.sizing import (
    LEAST_MARGIN,
    MARGIN,
    Share,
    advise,
    fits_beside,
    killed_at,
    option,
    round_up,
    slowed,
    too_little,
)
from gpuq.core.memory.values import MemorySummary
from gpuq.core.units import parse_size

GIB = 1024**3
END = datetime.datetime(2026, 3, 1, 20, tzinfo=datetime.UTC)
START = END - datetime.timedelta(hours=8)


def memory(anon: float, shmem: float = 0, **more: Any) -> MemorySummary:
    values: dict[str, Any] = {"peak": int(anon * GIB), "looks": 100, "since": START, "until": END, "cgroup": 2} | more
    held = int(anon * GIB) + int(shmem * GIB)
    return MemorySummary(held=held, anon=int(anon * GIB), shmem=int(shmem * GIB), **values)


def attempt(
    number: int, seen: MemorySummary | None, outcome: Outcome = Outcome.SUCCEEDED, *, asked: float = 32, end: Any = END
) -> Record:
    return Record(
        tag="a",
        attempt=number,
        token=str(number),
        request=Request(cpus=8, memory=int(asked * GIB)),
        argv=(),
        script="",
        script_sha256="",
        log="",
        project="",
        user="",
        uid=1,
        host="",
        reserved=START,
        job_id=number,
        ended=Ended(outcome=outcome, state="COMPLETED", start=START, end=end),
        memory=seen,
    )


def three(seen: MemorySummary) -> list[Record]:
    return [attempt(number, seen) for number in (1, 2, 3)]


def gib(records: list[Record]) -> float:
    advice = advise(records)
    assert advice.memory is not None
    return advice.memory / GIB


def test_page_cache_is_not_asked_for() -> None:
    seen = memory(2.5, 0.3, cache=14 * GIB, peak=int(16.8 * GIB), limit=32 * GIB)
    assert 3 <= gib(three(seen)) <= 4
    assert advise(three(seen)).enough


def test_shared_memory_stays_in() -> None:
    assert 21 < gib(three(memory(1, 20))) <= 25


def test_a_peak_at_the_limit_without_a_kill_is_cache_under_reclaim() -> None:
    seen = memory(2, peak=4 * GIB, limit=4 * GIB, near_limit=7000.0, oom_kill=0)
    advice = advise(three(seen))
    assert advice.memory is not None
    assert advice.memory < 4 * GIB
    assert any("page cache under reclaim, which needs no more" in reason for reason in advice.reasons)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"stalled": 8 * 3600 * 0.08}, "waited for memory 8% of the time"),
        ({"refaults": 8 * 3600 * 6000}, "read again"),
    ],
)
def test_never_below_a_level_at_which_reclaim_slowed_it(more: dict[str, Any], words: str) -> None:
    slow = memory(2, peak=6 * GIB, limit=6 * GIB, near_limit=7000.0, **more)
    assert gib(three(slow)) == 6
    assert any(words in reason for reason in advise(three(slow)).reasons)
    roomy = memory(2, peak=6 * GIB, limit=32 * GIB, **more)
    assert gib(three(roomy)) < 6, "a limit that was not reached slows nobody"


def test_slowed_needs_a_duration() -> None:
    assert slowed(memory(1, peak=GIB, limit=GIB, stalled=5.0, since=END)) == ""


def test_the_highest_of_recent_attempts_counts_also_of_one_that_failed() -> None:
    records = [attempt(number, memory(held)) for number, held in ((1, 9), (2, 2), (3, 2), (4, 2), (5, 2), (6, 2))]
    assert gib(records) == 2.5, "attempt 1 is long ago"
    records.append(attempt(7, memory(4), Outcome.FAILED))
    assert gib(records) == 5


def test_too_little_evidence() -> None:
    assert advise([]).memory is None
    assert advise([attempt(1, None)]).measured == 0
    two = advise([attempt(1, memory(2)), attempt(2, memory(2)), attempt(3, memory(2), Outcome.FAILED)])
    assert (two.enough, two.measured, two.whole) == (False, 3, 2)
    said = "too little evidence: 2 of 3 attempts that it takes were seen to a successful end (3 were looked at)"
    assert too_little(two) == said
    missed = memory(2, until=END - datetime.timedelta(minutes=10))
    assert not advise(three(missed)).enough, "the evaluation at the end was not seen"
    assert "not to its end" in advise(three(missed)).points[0].words


def test_after_a_kill_more_than_the_limit() -> None:
    killed = attempt(4, memory(3.9, limit=4 * GIB, oom_kill=1), Outcome.OUT_OF_MEMORY, asked=4)
    assert gib([*three(memory(2)), killed]) == 6
    assert gib([*three(memory(2)), killed, attempt(5, memory(4.5))]) == 5.5, "the next one succeeded: then that counts"
    hidden = attempt(4, memory(3.9, limit=4 * GIB, oom_kill=1), Outcome.SUCCEEDED, asked=4)
    assert gib([*three(memory(2)), hidden]) == 6, "a success that lost a process is none"


def test_attempts_that_crash_at_once_do_not_push_the_evidence_out() -> None:
    crashed = [attempt(number, memory(0.1), Outcome.FAILED) for number in range(4, 12)]
    advice = advise([*three(memory(2)), *crashed])
    assert (advice.enough, advice.whole, advice.memory) == (True, 3, int(2.5 * GIB))
    old = [attempt(1, memory(20), Outcome.FAILED), *(attempt(number, memory(2)) for number in range(2, 7))]
    assert gib(old) == 2.5, "five have succeeded since"


def test_a_kill_that_nobody_saw_counts_too() -> None:
    killed = attempt(4, None, Outcome.OUT_OF_MEMORY, asked=4)
    advice = advise([*three(memory(2)), killed])
    assert advice.memory == advice.least == 6 * GIB
    assert (
        advice.because
        == advice.kill
        == ("attempt 4 was killed at 4G, and how much it would have taken is not known: 1.5 times that")
    )
    assert gib([*three(memory(2)), killed, attempt(5, None)]) == 6, "what answered it was not seen either"
    alone = advise([killed])
    assert (alone.memory, alone.enough, alone.measured, alone.reasons) == (6 * GIB, False, 0, (alone.kill,))


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.CANCELLED])
def test_only_attempts_without_an_end_of_their_own(outcome: Outcome) -> None:
    assert advise([attempt(number, None, outcome) for number in (1, 2, 3)]).memory is None
    advice = advise([attempt(number, memory(2), outcome) for number in (1, 2, 3)])
    assert (advice.enough, advice.whole, advice.measured, advice.least) == (False, 0, 3, 0)


def test_another_job_sh_is_told() -> None:
    records = three(memory(2))
    assert not any("job.sh" in reason for reason in advise(records).reasons)
    records[1] = msgspec.structs.replace(records[1], script_sha256="b")
    assert any("job.sh was another one in attempt 2: what it held" in reason for reason in advise(records).reasons)
    records[2] = msgspec.structs.replace(records[2], script_sha256="c")
    assert any("another one in attempts 1, 2: what they held" in reason for reason in advise(records).reasons)


def test_after_several_kills_the_highest_limit_was_too_little() -> None:
    def killed(number: int, limit: float) -> Record:
        return attempt(number, memory(limit, limit=int(limit * GIB)), Outcome.OUT_OF_MEMORY, asked=limit)

    records = [killed(1, 8), killed(2, 2)]
    assert gib(records) == 12, "8G was too little already"
    assert killed_at(records) == 8 * GIB
    assert killed_at([*records, attempt(3, None)]) == 0, "it succeeded"
    assert killed_at([*records, attempt(3, None), killed(4, 3)]) == 3 * GIB
    assert killed_at([*records, attempt(3, None, Outcome.FAILED)]) == 8 * GIB


def test_a_kernel_without_peak_is_approximate() -> None:
    advice = advise(three(memory(2, peak=None)))
    assert any("approximate" in reason for reason in advice.reasons)


def test_the_evidence_is_stated() -> None:
    advice = advise(three(memory(2.5, 0.3, cache=14 * GIB)))
    assert advice.points[0].words == (
        "attempt 1: held 2.8G (2.5G anon + 307.2M shmem), page cache 14G, asked for 32G; SUCCEEDED, 100 looks"
    )
    assert "plus 15% but at least 128M" in advice.reasons[0]


@given(st.floats(0.001, 500), st.floats(0, 100))
def test_the_advice_covers_what_was_held_and_its_margin_and_not_much_more(anon: float, shmem: float) -> None:
    advice = advise(three(memory(anon, shmem)))
    assert advice.memory is not None
    assert advice.held is not None
    least = advice.held + max(int(MARGIN * advice.held), LEAST_MARGIN)
    assert least <= advice.memory <= least + max(64 * 1024**2, least // 4)
    assert parse_size(option(advice.memory)) == advice.memory


@given(st.integers(1, 2**45))
def test_rounding_up_goes_up_and_is_stable(size: int) -> None:
    assert round_up(size) >= size
    assert round_up(round_up(size)) == round_up(size)


@pytest.mark.parametrize(("size", "text"), [(3.5, "3.5G"), (28, "28G"), (0.625, "640M"), (1.125, "1152M")])
def test_sizes_are_written_exactly(size: float, text: str) -> None:
    assert option(int(size * GIB)) == text


def test_what_fits_beside() -> None:
    rows = {row.memory // GIB: row.count for row in fits_beside(62 * GIB, 20, 30 * GIB, 8)}
    assert rows == {1: 12, 2: 12, 4: 8, 8: 4, 16: 2, 32: 1}
    assert all(row.count == 0 for row in fits_beside(8 * GIB, 8, 8 * GIB, 4))
    assert all(row.count == 0 for row in fits_beside(8 * GIB, 4, GIB, 8)), "no core is left"


def test_what_fits_beside_in_the_share_of_a_partition() -> None:
    share = Share(cpus=12, memory_per_cpu=2 * GIB)
    rows = {row.memory // GIB: row.count for row in fits_beside(62 * GIB, 20, 30 * GIB, 8, share)}
    assert rows == {1: 12, 2: 12, 4: 6, 8: 3, 16: 1, 32: 0}, "memory costs CPUs, and there are 12"
    rows = {row.memory // GIB: row.count for row in fits_beside(62 * GIB, 20, 30 * GIB, 8, Share(cpus=3))}
    assert rows == {1: 3, 2: 3, 4: 3, 8: 3, 16: 2, 32: 1}


def test_a_record_keeps_it() -> None:
    record = attempt(1, memory(1, 2))
    again = msgspec.json.decode(msgspec.json.encode(record), type=Record)
    assert again == record
