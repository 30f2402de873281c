"""`gpuq cancel`, `hold`, `release`, `top`, `nice` and `set` on a real Slurm."""

from __future__ import annotations

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
    assert f"other attempts of it are open too: jobs {job}" in ran.stderr
    assert project.gpuq("cancel", str(job)).ok().stdout.startswith(f"a attempt 1 (job {job}): cancelled")
    for number in (1, 2):
        ended = project.ended("a", number)
        assert ended.outcome == "CANCELLED"
        assert f"cancelled by {getpass.getuser()}" in ended.notes
    assert "has ended already as CANCELLED" in project.gpuq("cancel", "a").exits(11).stderr


def test_several_at_once_and_one_refused(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.run("b")
    project.submit("b", "--hold")
    foreign = slurm_shared.sbatch("true", "--hold")
    ran = project.gpuq("cancel", "a", "b", "999999", str(foreign))
    assert ran.code == 6, ran
    assert "run a has no attempt" in ran.stderr
    assert "999999" in ran.stderr
    assert slurm_shared.must("squeue", "-h", "-o", "%A") == ""


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
    project.gpuq("nice", "b", "100").ok()
    assert slurm_shared.field(job, "Nice") == "100"
    for args in (("hold", "a"), ("release", "a"), ("nice", "a", "5"), ("top", "a")):
        assert "a attempt 1" in project.gpuq(*args).exits(11).stderr
    assert "2147483645" in project.gpuq("nice", "b", "9999999999").exits(2).stderr
    if ROOT:
        project.gpuq("nice", "b", "-5").ok()


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
    assert "10238976M" in project.gpuq("set", "a", "--mem", "9999G").exits(5).stderr
    assert "allows 7-00:00:00" in project.gpuq("set", "a", "--time", "30-0").exits(5).stderr
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
        for path in (place, *place.rglob("*")):
            shutil.chown(path, "nobody")
        prefix = ("runuser", "-u", "nobody", "--")
        job = int(project.gpuq("submit", "a", "--parsable", "--hold", prefix=prefix).ok().stdout)
        mine = slurm_shared.sbatch("true", "--hold")
        assert "root's; gpuq changes only" in project.gpuq("cancel", str(mine), prefix=prefix).exits(11).stderr
        ran = project.gpuq("top", "a", prefix=prefix)
        if ran.code:  # where slurm.conf does not let users do it
            assert "enable_user_top" in ran.exits(11).stderr
        ran = project.gpuq("nice", "a", "-5", prefix=prefix).exits(11)
        assert "only root or a Slurm operator" in ran.stderr
        project.gpuq("release", "a", prefix=prefix).ok()
        slurm_shared.wait_state(job, "RUNNING")
        # root looks at it, and does not change it
        project.gpuq("status", "a").ok()
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
