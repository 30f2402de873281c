"""`gpuq cancel`, `hold`, `release`, `top`, `nice` and `set` on a real Slurm."""

from __future__ import annotations

import fcntl
import getpass
import os
import shutil
from pathlib import Path

import pytest

from tests.embedded import Embedded
from tests.gpuq_cli import ROOT, Project, foreign_job
from tests.stranger import public_copy


def test_cancel_a_running_and_a_waiting_one(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "sleep 600")
    job = project.submit("a")
    slurm_shared.wait_state(job, "RUNNING")
    waiting = project.submit("a")
    ran = project.gpuq("cancel", "a").ok()
    assert f"a attempt 2 (job {waiting}): cancelled" in ran.stdout
    assert f"other attempts of it are open too: job {job}" in ran.stderr
    assert project.gpuq("cancel", str(job)).ok().stdout.startswith(f"a attempt 1 (job {job}): cancelled")
    for number in (1, 2):
        ended = project.ended("a", number)
        assert ended.outcome == "CANCELLED"
        assert f"cancelled by {getpass.getuser()}" in ended.notes
    assert "has ended already as CANCELLED" in project.gpuq("cancel", "a").exits(11).stderr
    job = project.submit("a", "--hold")
    project.submit("a", "--hold")
    project.gpuq("cancel", "a").ok()
    assert f"other attempts of it are open too: job {job}" in project.gpuq("cancel", "a").exits(11).stderr


def test_a_submission_under_way_does_not_keep_another_attempt_from_being_cancelled(
    slurm_shared: Embedded, project: Project
) -> None:
    project.run("a")
    project.submit("a", "--hold")
    entry = project.runs / ".gpuq/open/0123456789abcdef"  # numbered and locked; its record comes next
    entry.write_text("a\n2\n")
    with entry.open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        project.gpuq("cancel", "a").ok()
    assert slurm_shared.queued() == ""


def test_several_at_once_and_one_refused(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.run("b")
    project.submit("b", "--hold")
    foreign = slurm_shared.sbatch("true", "--hold")
    ran = project.gpuq("cancel", "a", "b", "999999", str(foreign))
    assert ran.code == 6, ran
    assert "run a has no attempt" in ran.stderr
    assert "999999" in ran.stderr
    assert slurm_shared.queued() == ""


def test_an_id_beyond_slurms_32_bits_is_never_another_job(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    job = project.submit("a", "--hold")
    for number in (2**32 + job, 2**64 + job, int("1" * 4000)):
        for command in ("cancel", "status", "wait", "log"):
            assert "job" in project.gpuq(command, str(number)).exits(6).stderr
    assert "job" in project.gpuq("cancel", "1" * 5000).exits(6).stderr
    assert slurm_shared.must("squeue", "-h", "-o", "%A %T").split() == [str(job), "PENDING"]
    assert project.gpuq("status", f"000{job}").ok().stdout.startswith("a attempt 1")


def test_the_own_id_of_an_arrays_task_does_not_cancel_the_array(slurm_shared: Embedded, project: Project) -> None:
    array = slurm_shared.sbatch("sleep 600", "--array=1-2", "--mem=50M", "-c1", "--hold")
    slurm_shared.must("scontrol", "release", f"{array}_1")
    task = int(slurm_shared.must("squeue", "-h", "-j", f"{array}_1", "-o", "%A"))
    if task == array:  # the last task to be split off keeps the array's id
        task = int(slurm_shared.must("squeue", "-h", "-j", f"{array}_2", "-o", "%A"))
    assert task != array
    assert f"one task ({array}_" in project.gpuq("cancel", str(task)).exits(2).stderr
    assert len(slurm_shared.must("squeue", "-h", "-r", "-j", str(array), "-o", "%i").split()) == 2
    project.gpuq("cancel", str(array)).ok()
    assert slurm_shared.queued() == ""


def test_a_heterogeneous_job_is_cancelled_by_its_own_id(slurm_shared: Embedded, project: Project) -> None:
    options = ["--parsable", "--hold", "--mem=50M", "-c1", "--output=/dev/null", ":", "--mem=50M", "-c1"]
    first = int(slurm_shared.must("sbatch", *options, "--wrap", "true"))
    assert "one component" in project.gpuq("cancel", str(first + 1)).exits(2).stderr
    project.gpuq("cancel", str(first)).ok()
    assert slurm_shared.queued() == ""


def test_hold_release_nice(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "sleep 600")
    project.run("b")
    running = project.submit("a")
    slurm_shared.wait_state(running, "RUNNING")
    job = project.submit("b")
    project.gpuq("hold", "b").ok()
    assert slurm_shared.field(job, "Reason") == "JobHeldUser"
    project.gpuq("release", "b").ok()
    assert slurm_shared.field(job, "Priority") != "0"
    assert "is not held" in project.gpuq("release", "b").exits(11).stderr
    project.gpuq("nice", "b", "100").ok()
    assert slurm_shared.field(job, "Nice") == "100"
    for args in (("hold", "a"), ("release", "a"), ("nice", "a", "5"), ("top", "a")):
        assert "a attempt 1" in project.gpuq(*args).exits(11).stderr
    assert "2147483645" in project.gpuq("nice", "b", "9999999999").exits(2).stderr
    if ROOT:
        project.gpuq("nice", "b", "-5").ok()


@pytest.mark.one_release
def test_a_new_nice_value_does_not_let_a_held_job_go(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    job = project.submit("a", "--hold", "--nice", "7")
    for args in (("nice", "a", "100"), ("nice", "a", "100", "--dry-run"), ("top", "a")):
        ran = project.gpuq(*args).exits(11)
        assert "is held" in ran.stderr
        assert "hint: gpuq release a" in ran.stderr
    array = slurm_shared.sbatch("true", "--array=1-3", f"--dependency=afterany:{job}", "--mem=50M", "-c1")
    project.gpuq("nice", str(array), "3").ok()
    slurm_shared.must("scontrol", "uhold", f"{array}_2")
    project.gpuq("nice", str(array), "4").exits(11)
    held = slurm_shared.must("squeue", "-h", "-r", "-o", "%i %Q").splitlines()
    assert {row.split()[0] for row in held if row.split()[1] == "0"} == {str(job), f"{array}_2"}
    assert (slurm_shared.field(job, "Reason"), slurm_shared.field(job, "Nice")) == ("JobHeldUser", "7")


@pytest.mark.skipif(not ROOT, reason="slurm.conf does not let users do it")
def test_top(slurm_shared: Embedded, project: Project) -> None:
    project.run("long", "sleep 600")
    project.run("a")
    project.run("b")
    slurm_shared.wait_state(project.submit("long"), "RUNNING")
    project.submit("a")
    project.submit("b")
    project.gpuq("top", "b").ok()
    tags = [row["tag"] for row in project.gpuq("queue", "--json").ok().json["jobs"]]
    assert tags == ["long", "b", "a"]


def test_set_takes_sizes_as_people_write_them(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "sleep 600")
    job = project.submit("a", "--hold")
    ran = project.gpuq("set", "a", "--mem", "0.2G", "--time", "1:00:00").ok()
    assert "memory is 204.8M now, time limit is 01:00:00 now" in ran.stdout
    assert slurm_shared.field(job, "MinMemoryNode") == "205M"
    assert slurm_shared.field(job, "TimeLimit") == "01:00:00"
    request = project.record("a").request
    assert request.time_limit == 3600
    assert request.memory >= 204 * 2**20
    assert "10238976M" in project.gpuq("set", "a", "--mem", "9999G").exits(11).stderr
    assert "allows 7-00:00:00" in project.gpuq("set", "a", "--time", "30-0").exits(11).stderr
    project.gpuq("set", "a").exits(2)
    assert "24 minutes" in project.gpuq("set", "a", "--time", "24:00").ok().stderr
    project.gpuq("release", "a").ok()
    slurm_shared.wait_state(job, "RUNNING")
    ran = project.gpuq("set", "a", "--mem", "100M").exits(11)
    assert "only while a job waits" in ran.stderr
    # resubmit asks for what was set
    project.gpuq("resubmit", "a", "--hold").ok()
    assert project.record("a", 2).request.time_limit == 1440


def test_another_users_job_is_not_touched(slurm_shared: Embedded, project: Project) -> None:
    foreign = foreign_job(slurm_shared, "--hold")
    for args in (("cancel",), ("hold",), ("release",), ("top",), ("set", "--mem", "50M")):
        ran = project.gpuq(args[0], str(foreign), *args[1:]).exits(11)
        assert "nobody's; gpuq changes only your own jobs" in ran.stderr
    project.gpuq("nice", str(foreign), "3").exits(11)
    assert slurm_shared.field(foreign, "Reason") == "JobHeldUser"


@pytest.mark.skipif(not ROOT, reason="becomes another user")
def test_as_an_ordinary_user(slurm_shared: Embedded) -> None:
    if shutil.which("runuser") is None:
        pytest.skip("no runuser")
    place = Path("/tmp") / f"gqu{os.getpid()}"
    project = Project(place / "project")
    try:
        project.python, code = public_copy(place, "nobody")
        project.env = {"HOME": str(place), "XDG_CONFIG_HOME": "", "XDG_STATE_HOME": "", "PYTHONPATH": code}
        project.run("a", "sleep 600")
        project.run("b")
        for path in (place, *place.rglob("*")):
            shutil.chown(path, "nobody")
        prefix = ("runuser", "-u", "nobody", "--")
        job = int(project.gpuq("submit", "a", "--parsable", "--hold", prefix=prefix).ok().stdout)
        mine = slurm_shared.sbatch("true", "--hold")
        assert "root's; gpuq changes only" in project.gpuq("cancel", str(mine), prefix=prefix).exits(11).stderr
        project.gpuq("submit", "b", "--after", "a", prefix=prefix).ok()
        ran = project.gpuq("top", "b", prefix=prefix)
        if ran.code:  # where slurm.conf does not let users do it
            assert "enable_user_top" in ran.exits(11).stderr
        ran = project.gpuq("nice", "b", "-5", prefix=prefix).exits(11)
        assert "only root or a Slurm operator" in ran.stderr
        project.gpuq("release", "a", prefix=prefix).ok()
        slurm_shared.wait_state(job, "RUNNING")
        # root looks at it, and does not change it
        project.gpuq("status", "a").ok()
        runs = project.gpuq("status", "--json").ok().json["runs"]
        assert [(run["tag"], run["attempts"][0]["state"]) for run in runs] == [("a", "RUNNING"), ("b", "PENDING")]
        project.gpuq("wait", "a", "--timeout", "0").exits(27)
        assert "nobody's" in project.gpuq("cancel", "a").exits(11).stderr
        ran = project.gpuq("cancel", "a", prefix=prefix).ok()
        project.gpuq("wait", "a", "--timeout", "30", prefix=prefix).exits(23)
        ended = project.record("a").ended
        assert ended
        assert "cancelled by nobody" in ended.notes
        project.gpuq("wait", "a").exits(23)
    finally:
        shutil.rmtree(place)


def test_a_dry_run_checks_and_changes_nothing(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "true")
    project.run("b", "true")
    jobs = {"a": project.submit("a", "--hold", "--mem", "100M")}
    jobs["b"] = project.submit("b", "--after", "a")

    def shown() -> list[str]:
        # but for what the scheduler writes into a job that it has looked at
        fields = "JobName,JobState,Priority,Nice,MinMemoryNode,TimeLimit,Dependency".split(",")
        return [",".join(f"{name}={slurm_shared.field(job, name)}" for name in fields) for job in jobs.values()]

    before = shown()
    for args in (
        ("cancel", "a"),
        ("hold", "a"),
        ("release", "a"),
        ("top", "b"),
        ("nice", "b", "50"),
        ("set", "a", "--mem", "120M"),
    ):
        ran = project.gpuq(*args, "--dry-run", "--json").ok().json
        assert ran["dry_run"] is True
        assert [one["job_id"] for one in ran["changed"]] == [str(jobs[args[1]])]
        assert "dry run" in project.gpuq(*args, "--dry-run").ok().stdout
    assert shown() == before
    assert project.record("a").cancelled_by is None
    assert project.gpuq("set", "a", "--mem", "999G", "--dry-run").code == 11


def test_changes_in_json(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "true")
    job = project.submit("a", "--hold")
    ran = project.gpuq("cancel", "a", "999999", "--json")
    assert ran.code == 6
    assert [one["job_id"] for one in ran.json["changed"]] == [str(job)]
    assert [(one["ref"], one["code"]) for one in ran.json["refused"]] == [("999999", 6)]
