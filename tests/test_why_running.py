"""What is said of a job that Slurm calls running, where it takes no Slurm to know."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from gpuq.core.job import Job
from gpuq.usecases.context import Context
from gpuq.usecases.refs import Target
from gpuq.usecases.why import running
from tests.core.test_waiting import running as job

NO_CONTEXT = cast(Context, None)


def why(row: Job) -> Any:
    return running.why_running(NO_CONTEXT, Target(row.id, None, row), row)


def test_a_job_that_is_ending_runs_no_more() -> None:
    answer = why(msgspec.structs.replace(job(12), state="COMPLETING", start=None))
    assert answer.id == "ending"
    assert "runs" not in answer.headline
    assert "time limit" not in " ".join(answer.evidence)


@pytest.mark.parametrize(("shown", "command"), [("12", "gpuq cancel 12"), ("12_3", "scancel 12_3")])
def test_a_task_that_looks_dead_is_given_up_without_the_others(
    shown: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuq.usecases.alive.looks_dead", lambda ctx, row: "Looks dead")
    answer = why(job(12, id=shown))
    assert answer.id == "looks-dead"
    assert answer.advice == (command, f"or, to have it started again: scontrol requeue {shown}")
