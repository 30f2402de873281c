"""The comment by which an attempt is found again, and the verdict on how it ended."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.attempt import Outcome, ResultFile, judge, make_comment, read_comment
from gpuq.core.job import ENDED, JobEnd
from gpuq.errors import EXIT_OUTCOME

START = datetime.datetime(2026, 11, 29, 12, 0, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)


def found(name: str = "cv.json", after: float | None = 1) -> ResultFile:
    return ResultFile(name=name, modified=None if after is None else START + after * SECOND)


@given(st.integers(1, 10**9 - 1), st.binary(min_size=1, max_size=16))
def test_a_comment_is_read_back_whatever_blanks_slurm_adds(attempt: int, token: bytes) -> None:
    assert read_comment(f" {make_comment(attempt, token.hex())}\n") == (attempt, token.hex())


@pytest.mark.parametrize("text", ["", "(null)", "mine", "gpuq:2:1:ab", "gpuq:1:1:ab;x", "gpuq:1:1:", "gpuq:1:1:XY"])
def test_a_comment_of_somebody_else_is_nobodys_attempt(text: str) -> None:
    assert read_comment(text) is None


def test_success_needs_completed_and_exit_0_and_no_signal() -> None:
    assert judge(JobEnd(state="COMPLETED", start=START), []) == (Outcome.SUCCEEDED, ())
    for code, signal in ((1, 0), (0, 9), (3, 2)):
        assert judge(JobEnd(state="COMPLETED", exit_code=code, signal=signal), [])[0] is Outcome.FAILED


def test_every_ended_state_but_completed_is_no_success_and_has_an_exit_code() -> None:
    for state in ENDED - {"COMPLETED"}:
        outcome, _ = judge(JobEnd(state=state), [found()])
        assert outcome is not Outcome.SUCCEEDED
        assert EXIT_OUTCOME[outcome.value] >= 20


@given(st.text(), st.integers(0, 255), st.integers(0, 127))
def test_nothing_but_completed_0_0_is_ever_a_success(state: str, code: int, signal: int) -> None:
    outcome, _ = judge(JobEnd(state=state, exit_code=code, signal=signal), [])
    if outcome is Outcome.SUCCEEDED:
        assert (state.split(" ")[0], code, signal) == ("COMPLETED", 0, 0)


def test_out_of_memory_is_told_as_such_though_the_script_exited_0() -> None:
    outcome, notes = judge(JobEnd(state="OUT_OF_MEMORY", exit_code=0, signal=125), [found()])
    assert outcome is Outcome.OUT_OF_MEMORY
    assert "output may be incomplete" in notes[0]


def test_signal_53_means_that_slurm_could_not_create_the_log_and_names_the_directory() -> None:
    outcome, notes = judge(JobEnd(state="FAILED", signal=53), [], "/data/runs/a/slurm")
    assert outcome is Outcome.FAILED
    assert notes == ("Slurm could not create the log file in /data/runs/a/slurm",)


def test_a_missing_result_makes_a_completed_job_incomplete_and_is_named() -> None:
    outcome, notes = judge(JobEnd(state="COMPLETED", start=START), [found(after=None), found("model.pt")])
    assert outcome is Outcome.INCOMPLETE
    assert notes == ("promised result cv.json is missing",)


def test_a_result_older_than_the_start_makes_it_incomplete() -> None:
    outcome, notes = judge(JobEnd(state="COMPLETED", start=START), [found(after=-1)])
    assert outcome is Outcome.INCOMPLETE
    assert notes == ("promised result cv.json is older than this attempt",)


def test_a_result_written_in_the_second_of_the_start_counts() -> None:
    # Slurm's start is cut to whole seconds: a file of the same second cannot be older
    assert judge(JobEnd(state="COMPLETED", start=START), [found(after=0), found(after=0.4)])[0] is Outcome.SUCCEEDED


def test_results_do_not_save_a_failed_job() -> None:
    assert judge(JobEnd(state="FAILED", exit_code=3), [found()]) == (Outcome.FAILED, ("exit code 3",))


@pytest.mark.parametrize(
    ("end", "outcome", "note"),
    [
        (JobEnd(state="FAILED", signal=11), Outcome.FAILED, "killed by signal 11"),
        (
            JobEnd(state="FAILED", exit_code=137),
            Outcome.FAILED,
            "exit code 137: a command in it was killed by signal 9",
        ),
        (JobEnd(state="TIMEOUT", signal=15), Outcome.TIMEOUT, ""),
        (JobEnd(state="DEADLINE"), Outcome.TIMEOUT, "its deadline passed"),
        (JobEnd(state="CANCELLED by 1000", signal=15), Outcome.CANCELLED, ""),
        (JobEnd(state="CANCELLED", reason="DependencyNeverSatisfied"), Outcome.CANCELLED, "what it depended on"),
        (JobEnd(state="PREEMPTED"), Outcome.CANCELLED, "preempted"),
        (JobEnd(state="NODE_FAIL"), Outcome.NODE_FAIL, ""),
        (JobEnd(state="BOOT_FAIL"), Outcome.NODE_FAIL, ""),
        (JobEnd(state="FAILED"), Outcome.FAILED, ""),
    ],
)
def test_how_a_job_ended_is_told(end: JobEnd, outcome: Outcome, note: str) -> None:
    got, notes = judge(end, [])
    assert got is outcome
    assert note in "; ".join(notes)
    assert bool(notes) == bool(note)
