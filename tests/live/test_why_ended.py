"""`gpuq why` of attempts that have ended on a real Slurm."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.embedded import CAN_CONFINE, Embedded
from tests.gpuq_cli import Project

PROGRAM = """import sys
def step(n):
    if n == 2:
        raise ValueError("labels are empty")
for n in range(3):
    print("step", n, flush=True)
    step(n)
"""


def why(project: Project, ref: str, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = project.gpuq("why", ref, *args, "--json").ok().json
    assert found["schema"] == "gpuq.why/1"
    return found


def test_a_traceback_with_the_line_in_the_users_code(slurm_shared: Embedded, project: Project) -> None:
    (project.root / "train.py").write_text(PROGRAM)
    project.run("a", "python3 train.py; exit 3")
    job = project.submit("a", "--cpu-only")
    project.ended("a")
    found = why(project, "a")
    answer = found["answer"]
    assert (found["tag"], found["attempt"], found["job_id"], found["outcome"]) == ("a", 1, job, "FAILED")
    assert (answer["id"], answer["headline"]) == ("python_error", "Python ended with ValueError: labels are empty")
    assert f"in your code: {project.root}/train.py:4 in step" in answer["evidence"]
    assert "exit code 3:0" in answer["evidence"][0]
    assert why(project, str(job)) == found
    told = project.gpuq("why", "a").ok().stdout
    assert told.splitlines()[:2] == [
        f"a attempt 1 (job {job}): FAILED", "Python ended with ValueError: labels are empty [likely]"
    ]  # fmt: skip
    assert "gpuq resubmit a" in told


def test_what_tee_hides_and_an_earlier_attempt(slurm_shared: Embedded, project: Project) -> None:
    (project.root / "train.py").write_text(PROGRAM)
    project.run("a", "python3 train.py 2>&1 | tee train.log")
    project.submit("a", "--cpu-only")
    assert project.ended("a").outcome == "SUCCEEDED"
    answer = why(project, "a")["answer"]
    assert answer["id"] == "hidden_failure"
    assert "job.sh has: python3 train.py 2>&1 | tee train.log" in answer["details"]
    assert any("pipefail" in line for line in answer["advice"])
    project.run("a", "echo CUDA out of memory is what the help text says")
    project.submit("a", "--cpu-only")
    assert project.ended("a", 2).outcome == "SUCCEEDED"
    assert why(project, "a")["answer"]["id"] == "no_failure"
    assert why(project, "a", "--attempt", "1")["answer"]["id"] == "hidden_failure"
    project.gpuq("why", "a", "--attempt", "9").exits(6)


@pytest.mark.skipif(not CAN_CONFINE, reason="memory is enforced through cgroups, by root")
def test_out_of_memory(slurm_shared: Embedded, project: Project) -> None:
    if not slurm_shared.status().confinement.on:
        pytest.skip("this host lets nobody make cgroups")
    project.run("a", "python3 -c 'x = bytearray(400 * 2**20); print(len(x))'")
    project.submit("a", "--cpu-only", "--mem", "60M")
    project.ended("a")
    answer = why(project, "a")["answer"]
    assert (answer["id"], answer["confidence"]) == ("host_oom", "certain")
    assert "60M" in answer["headline"]
    assert any("kill event" in line for line in answer["evidence"]), answer
    assert answer["advice"][0] == "gpuq resubmit a --mem 128M"


def test_cancelled_by_whom(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", 'touch "$GPUQ_RUN_DIR/last.ckpt"; sleep 600')
    job = project.submit("a", "--cpu-only")
    slurm_shared.wait_state(job, "RUNNING")
    slurm_shared.wait(lambda: str((project.runs / "a/last.ckpt").exists()), ("True",))
    slurm_shared.must("scancel", str(job))
    project.ended("a")
    answer = why(project, "a")["answer"]
    assert (answer["id"], answer["headline"]) == (
        "cancelled", "It was cancelled, with scancel or by Slurm; gpuq did not do it."
    )  # fmt: skip
    assert any("CANCELLED AT" in line for line in answer["evidence"])
    assert any("last.ckpt" in line for line in answer["details"])
    project.submit("a", "--hold")
    project.gpuq("cancel", "a").ok()
    project.ended("a", 2)
    user = project.record("a", 2).cancelled_by
    assert why(project, "a")["answer"]["headline"] == f"It was cancelled by {user} before it had started."


def test_a_log_that_cannot_be_made(slurm_shared: Embedded, project: Project) -> None:
    run = project.run("a")
    project.submit("a", "--cpu-only", "--hold")
    (run / "slurm/attempt1.out").mkdir()
    project.gpuq("release", "a").ok()
    assert project.ended("a").signal == 53
    answer = why(project, "a")["answer"]
    assert answer["id"] == "log_not_creatable"
    assert "attempt1.out is a directory there" in answer["headline"]


def test_what_depended_on_a_failure_and_a_job_of_somebody_else(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "sleep 1; pyhton train.py")
    project.run("b")
    first = project.submit("a", "--cpu-only")
    project.submit("b", "--cpu-only", "--after-ok", "a")
    project.ended("b")
    answer = why(project, "b")["answer"]
    assert answer["id"] == "dependency_failed", answer
    assert answer["advice"][0] == f"gpuq why {first} says why that one failed"
    assert why(project, str(first))["answer"]["id"] == "command_not_found"
    stranger = slurm_shared.sbatch("exit 7", "--job-name=other", cwd=Path("/tmp"))
    slurm_shared.wait_state(stranger, "FAILED")
    found = why(project, str(stranger))
    assert (found["tag"], found["attempt"], found["answer"]["id"]) == ("other", None, "exit_code")
    assert found["answer"]["advice"] == [f"scontrol show job {stranger} names its log"]


def test_an_ended_attempt_is_judged_without_any_slurm(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "false")
    project.submit("a", "--cpu-only")
    project.ended("a")
    place = project.root / "bin"
    place.mkdir()
    for name in ("env", "bash"):
        (place / name).symlink_to(shutil.which(name) or name)
    found = json.loads(project.gpuq("why", "a", "--json", env={"PATH": str(place)}).ok().stdout)
    assert found["answer"]["id"] == "exit_code"
