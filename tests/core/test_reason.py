"""Why a job waits, in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.reason import NEVER, never_cures, reason_words


def test_an_empty_list_of_unavailable_nodes_is_ordinary_waiting_and_a_node_is_not() -> None:
    assert reason_words("ReqNodeNotAvail, UnavailableNodes:") == "waits for the node"
    assert reason_words("ReqNodeNotAvail, UnavailableNodes:n1") == "node n1 is not available"


def test_a_job_held_after_a_launch_failure_is_told_as_such() -> None:
    reason = "launch failed requeued held"
    assert reason_words(reason) == "held: Slurm could not start it and put it back"
    assert never_cures(reason)


@pytest.mark.parametrize("reason", sorted(NEVER))
def test_what_waiting_does_not_cure_is_said_to_never_run(reason: str) -> None:
    assert never_cures(reason)
    assert reason_words(reason).startswith("will never run")


@pytest.mark.parametrize("reason", ["", "None", "Priority", "Resources", "Dependency", "BeginTime", "JobHeldUser"])
def test_ordinary_waiting_ends_by_itself(reason: str) -> None:
    assert not never_cures(reason)
    assert not reason_words(reason).startswith("will never")


def test_there_are_no_words_for_no_reason() -> None:
    assert reason_words("None") == ""
    assert reason_words("") == ""


def test_slurms_detail_after_a_known_reason_does_not_hide_it() -> None:
    assert reason_words("RaisedSignal:9(Killed)") == "was killed by a signal"
    assert reason_words("Resources, extra") == "waits for the GPU, memory or cores"


@given(st.text(min_size=1))
def test_an_unknown_reason_is_shown_as_slurm_says_it(text: str) -> None:
    words = reason_words("X" + text)
    assert words == "X" + text
    assert not never_cures("X" + text)
