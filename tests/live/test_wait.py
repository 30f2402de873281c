"""`gpuq wait` on a real Slurm."""

from __future__ import annotations

import signal

import pytest

from tests.embedded import Embedded
from tests.gpuq_cli import Project, foreign_job, said


def test_exit_codes_and_what_is_told(slurm_shared: Embedded, project: Project) -> None:
    project.run("good")
    project.run("bad", "exit 7")
    job = project.submit("good")
    project.submit("bad")
    ran = project.gpuq("wait", "good", "bad", "--json", "--timeout", "60").exits(20)
    assert ran.json["schema"] == "gpuq.wait/1"
    assert ran.json["exit_code"] == 20
    assert [(one["ref"], one["outcome"], one["exit_code"]) for one in ran.json["results"]] == [
        ("good", "SUCCEEDED", 0),
        ("bad", "FAILED", 20),
    ]
    assert project.gpuq("wait", "good").ok().stdout == f"good attempt 1 (job {job}): SUCCEEDED\n"
    assert "exit code 7" in project.gpuq("wait", "bad").exits(20).stdout


def test_any_returns_with_the_first(slurm_shared: Embedded, project: Project) -> None:
    project.run("long", "sleep 600")
    project.run("short")
    project.submit("long", "--hold")
    project.submit("short")
    ran = project.gpuq("wait", "long", "short", "--timeout", "2").exits(27)
    assert ran.stderr.count("has ended: SUCCEEDED") == 1
    ran = project.gpuq("wait", "long", "short", "--any", "--timeout", "60", "--json").ok()
    assert "has ended" not in ran.stderr, "the answer says it"
    assert [one["outcome"] for one in ran.json["results"]] == [None, "SUCCEEDED"]


def test_the_time_is_over(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "sleep 600")
    project.submit("a", "--hold")
    ran = project.gpuq("wait", "a", "--timeout", "0.3").exits(27)
    assert "held; it starts after: gpuq release a" in ran.stderr
    assert "not ended; PENDING; held; it starts after: gpuq release a" in ran.stdout
    ran = project.gpuq("wait", "a", "--any", "--timeout", "0").exits(27)


@pytest.mark.one_release
def test_a_job_that_stays_held_is_not_waited_for_for_ever(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.run("b")
    project.submit("a", "--hold")
    ran = project.gpuq("wait", "a").exits(27)
    assert "not ended; PENDING; held; it starts after: gpuq release a" in ran.stdout
    # another one that can end is worth waiting for
    process = project.start("wait", "a", "b", "--any", "--json")
    assert project.finish(process).code == 6  # b has no attempt yet
    project.submit("b", "--after", "a")
    process = project.start("wait", "a", "b", "--any", "--json")
    project.gpuq("cancel", "a").ok()
    assert project.finish(process).json["results"][0]["outcome"] == "CANCELLED"


@pytest.mark.one_release
def test_a_job_behind_a_held_one_is_not_waited_for_for_ever(slurm_shared: Embedded, project: Project) -> None:
    for tag in ("root", "middle", "leaf"):
        project.run(tag)
    root = project.submit("root", "--hold")
    project.submit("middle", "--after", "root")
    project.submit("leaf", "--after", "middle")
    ran = project.gpuq("wait", "leaf").exits(27)
    assert f"job {root} (root), which that comes down to, is held; gpuq why {root}" in ran.stdout


def test_the_name_of_somebody_elses_job_cannot_write_to_the_terminal(slurm_shared: Embedded, project: Project) -> None:
    job = foreign_job(slurm_shared, "--hold", "--job-name=evil\x1b[2J\nname")
    ran = project.gpuq("cancel", str(job)).exits(11)
    assert "evil�[2J�name" in ran.stderr
    waited = project.gpuq("wait", str(job), "--timeout", "0").exits(27)
    assert "evil�[2J�name" in waited.stdout
    logged = project.gpuq("log", str(job)).exits(6)
    assert "\x1b" not in ran.stderr + waited.stdout + waited.stderr + logged.stderr
    slurm_shared.must("scancel", str(job))


def test_a_job_that_can_never_start_is_not_waited_for(slurm_shared: Embedded, project: Project) -> None:
    project.run("b")
    bad = slurm_shared.sbatch("exit 1")
    slurm_shared.wait_state(bad, "FAILED")
    never = slurm_shared.sbatch("true", f"--dependency=afterok:{bad}")
    ran = project.gpuq("wait", str(never)).exits(27)
    assert "will never run" in ran.stdout
    assert f"gpuq cancel {never}" in ran.stdout


def test_jobs_that_gpuq_did_not_submit(slurm_shared: Embedded, project: Project) -> None:
    good = slurm_shared.sbatch("sleep 0.5")
    bad = slurm_shared.sbatch("exit 9")
    ran = project.gpuq("wait", str(good), str(bad), "--timeout", "60", "--json").exits(20)
    assert [(one["outcome"], one["attempt"]) for one in ran.json["results"]] == [("SUCCEEDED", None), ("FAILED", None)]
    array = slurm_shared.sbatch("exit $((SLURM_ARRAY_TASK_ID - 1))", "--array=1-2")
    assert project.gpuq("wait", str(array), "--timeout", "60").code in {0, 20}
    assert "999999" in project.gpuq("wait", "999999").exits(6).stderr


def test_somebody_elses_job(slurm_shared: Embedded, project: Project) -> None:
    foreign = foreign_job(slurm_shared, "--output=/dev/null")
    project.gpuq("wait", str(foreign), "--timeout", "60").ok()


def test_waiting_for_the_end_of_a_cancelled_one(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "sleep 600")
    job = project.submit("a")
    slurm_shared.wait_state(job, "RUNNING")
    process = project.start("wait", "a", "--timeout", "60")
    slurm_shared.must("scancel", str(job))
    ran = project.finish(process)
    assert ran.code == 23, ran


def test_ctrl_c(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.submit("a", "--hold")
    process = project.start("wait", "a")
    assert "gpuq release a" in said(process)
    process.send_signal(signal.SIGINT)
    ran = project.finish(process)
    assert ran.code == 130
    assert "gpuq: interrupted; the job goes on: gpuq wait a" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert slurm_shared.must("squeue", "-h", "-o", "%T").strip() == "PENDING"
