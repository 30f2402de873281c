"""What a growing log tells: a start once, progress now and then, and never an end."""

from __future__ import annotations

import pytest

from gpuq.core.event import Event, Kind
from gpuq.core.watch.log import START_PATIENCE, Followed, evidence, take, tell

NEW = Followed(path="/l", name="a", job_id="7", start=100, since=100.0)


def told(
    followed: Followed, at: float, *, start: bool = True, every: float | None = 60.0
) -> tuple[Followed, list[Event]]:
    return tell(followed, at, "c", start=start, progress=every)


def test_the_start_is_told_with_what_its_line_says() -> None:
    assert told(NEW, 101)[1] == []
    after, (event,) = told(take(NEW, b"hello\nSTART device=RTX 3090 lr=0.1\n", 40), 101)
    assert (event.kind, event.key, event.subject, event.text) == (
        Kind.JOB_STARTED, "c:start:7:100", "a (job 7)", "device=RTX 3090 lr=0.1",
    )  # fmt: skip
    assert told(after, 200)[1] == []


def test_a_script_without_a_start_line_is_told_when_it_has_had_its_time() -> None:
    (event,) = told(NEW, 100 + START_PATIENCE)[1]
    assert (event.kind, event.text) == (Kind.JOB_STARTED, "")
    after, events = told(NEW, 101, start=False)
    assert (after.started, events) == (True, [])


def test_of_progress_the_latest_is_told_and_not_more_often_than_wanted() -> None:
    one = take(NEW, b"START a=1\nSTEP step=1\nEpoch: 3%\rEpoch: 9%\rSTEP step=2 loss=0.5\n", 60)
    one, events = told(one, 1000)
    assert [e.text for e in events if e.kind is Kind.PROGRESS] == ["step=2 loss=0.5"]
    one = take(one, b"STEP step=3\n", 72)
    one, events = told(one, 1059)
    assert events == []
    one, events = told(one, 1060)
    assert [(e.kind, e.text, e.key) for e in events] == [(Kind.PROGRESS, "step=3", "c:progress:7:100:72")]
    assert told(one, 2000)[1] == []
    assert told(take(one, b"STEP step=4\n", 84), 3000, every=None)[1] == []


@pytest.mark.parametrize(
    ("line", "over"),
    [
        (b"FINISHED exit=0 elapsed=3s\n", True),
        (b"FAILED cause=error exit=1\n", True),
        (b"FAILED cause=time exit=none\n", False),
        (b"x FINISHED exit=0\n", False),
        (b"FINISHED\n", False),
    ],
)
def test_the_last_line_ends_no_job(line: bytes, over: bool) -> None:
    after = take(NEW, line, len(line))
    assert after.over is over
    assert all(e.kind in {Kind.JOB_STARTED, Kind.PROGRESS} for e in told(after, 200)[1])


@pytest.mark.parametrize(
    ("tail", "says"),
    [
        ('x\nFAILED cause=error exit=1 error="ValueError: 3 of 4" elapsed=3s\nslurmstepd: done', "ValueError: 3 of 4"),
        ("3%\rFAILED cause=error exit=1 error=lost", "lost"),
        ("FAILED cause=signal exit=143", ""),
        ("FAILED cause=a error=first\nFINISHED exit=0", "its log says FINISHED: what failed came after the program"),
        ("FAILED broken", ""),
        ("", ""),
    ],
)
def test_what_the_last_line_says_is_evidence_for_the_cause(tail: str, says: str) -> None:
    assert evidence(tail) == says
