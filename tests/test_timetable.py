"""The words of `gpuq queue`, without a Slurm."""

from __future__ import annotations

import pytest

from gpuq.cli.timetable import _queue_cells
from gpuq.usecases.board import Row


@pytest.mark.parametrize(
    ("reason", "words", "position", "why"),
    [
        ("Dependency", "waits for another job", 1, "after 12"),
        ("None", "", 1, "after 12"),  # submitted or changed a moment ago: Slurm has not looked yet
        ("JobHeldUser", "held", 1, "held"),
        ("None", "", 0, ""),  # it runs
    ],
)
def test_a_dependency_is_named_before_slurm_gives_it_as_the_reason(
    reason: str, words: str, position: int, why: str
) -> None:
    row = Row(
        position=position,
        job_id=13,
        id="13",
        tag="a",
        attempt=1,
        user="u",
        state="PENDING" if position else "RUNNING",
        reason=reason,
        reason_words=words,
        stuck=False,
        dependency="afterany:12(unfulfilled)",
        dependency_words="after 12",
        elapsed=0,
        time_limit=None,
        memory=None,
        cpus=1,
        gpus=1,
        partition="gpu",
        submit=None,
        start=None,
        project="/p",
    )
    assert _queue_cells(row)[5] == why
