"""Jobs that gpuq did not make: arrays, heterogeneous, federated, requeued, suspended and other people's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.embedded import CAN_CONFINE, Embedded
from tests.gpuq_cli import Project, foreign_job, said, until

SMALL = ("--mem=100", "--output=/dev/null")


def rows(project: Project, *args: str) -> dict[str, dict[str, Any]]:
    """`gpuq queue --json` by the id that Slurm shows; the table must show the same jobs."""
    found = {row["id"]: row for row in project.gpuq("queue", "--json", *args).ok().json["jobs"]}
    table = project.gpuq("queue", *args).ok().stdout
    for job_id, row in found.items():
        assert any(job_id in line.split() and row["state"] in line.split() for line in table.splitlines()), table
    return found


def het(slurm: Embedded, *options: str) -> int:
    """A heterogeneous job of two components. Slurm never gives both one node, so here it can only wait."""
    script = slurm.dir / "het.sh"
    script.write_text("#!/bin/bash\nsleep 600\n")
    same = (*SMALL, *options)
    return int(slurm.must("sbatch", "--parsable", *same, "-n1", ":", *same, "-n1", str(script)))


def test_an_array(slurm_shared: Embedded, project: Project) -> None:
    array = slurm_shared.sbatch("[ $SLURM_ARRAY_TASK_ID = 1 ] || sleep 600", "--array=1-9%1", "-Jsweep", *SMALL)
    waiting = f"{array}_[3-9%1]"
    until(
        lambda: (
            slurm_shared.must("squeue", "-h", "-o", "%i %T").split() == [waiting, "PENDING", f"{array}_2", "RUNNING"]
        ),
        lambda: slurm_shared.must("squeue", "-h", "-o", "%i %T"),
    )
    shown = rows(project)
    assert list(shown) == [f"{array}_2", waiting]
    assert (shown[f"{array}_2"]["position"], shown[f"{array}_2"]["state"]) == (0, "RUNNING")
    assert (shown[waiting]["position"], shown[waiting]["reason"]) == (1, "JobArrayTaskLimit")
    assert "array" in shown[waiting]["reason_words"]
    assert not shown[waiting]["stuck"]
    if CAN_CONFINE and slurm_shared.status().confinement.on:
        for ref in (str(array), f"{array}_2"):  # its cgroup has the id of the task
            seen = project.gpuq("mem", ref, "--json").ok().json["jobs"][0]
            assert (seen["job"], bool(seen["held"])) == (f"{array}_2", True), seen
        assert f"(job {array}_2): RUNNING" in project.gpuq("mem").ok().stdout
    # a task is waited for by itself, the array until its last task has ended
    ran = project.gpuq("wait", f"{array}_1", "--json").ok()
    assert (ran.json["results"][0]["outcome"], ran.json["results"][0]["job_id"]) == ("SUCCEEDED", array)
    for ref, state in (
        (str(array), "RUNNING"),
        (f"{array}_2", "RUNNING"),
        (f"{array}_7", "PENDING"),
        (waiting, "RUNNING"),
    ):
        ran = project.gpuq("wait", ref, "--timeout", "0", "--json").exits(27)
        assert ran.json["results"][0]["state"] == state, ref
    for part in (f"{array}_2", waiting):
        ran = project.gpuq("cancel", part).exits(2)
        assert "one task of an array" in ran.stderr
        assert f"hint: gpuq cancel {array};" in ran.stderr
        assert f"hint: gpuq top {array};" in project.gpuq("top", part).exits(2).stderr
        assert f"hint: give the whole job, {array};" in project.gpuq("nice", part, "5").exits(2).stderr
    ran = project.gpuq("set", str(array), "--mem", "200M").exits(11)
    assert "resubmit" not in ran.stderr  # gpuq did not submit it
    assert list(rows(project)) == [f"{array}_2", waiting]
    assert project.gpuq("cancel", str(array)).ok().stdout.startswith(f"sweep (job {array}): cancelled")
    until(lambda: rows(project) == {}, lambda: rows(project))  # a moment ago it may still have been completing
    project.gpuq("wait", str(array)).exits(23)


def test_an_array_has_ended_well_when_all_tasks_have(slurm_shared: Embedded, project: Project) -> None:
    bad = slurm_shared.sbatch("[ $SLURM_ARRAY_TASK_ID != 2 ]", "--array=1-3", *SMALL)
    good = slurm_shared.sbatch("true", "--array=1-2", *SMALL)
    ran = project.gpuq("wait", str(bad), f"{bad}_2", f"{bad}_1", f"{bad}_3", str(good), "--timeout", "90", "--json")
    assert [one["outcome"] for one in ran.exits(20).json["results"]] == [
        "FAILED", "FAILED", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED",
    ]  # fmt: skip
    assert "exit code 1" in project.gpuq("wait", str(bad)).exits(20).stdout
    # each task has an id of its own, too, but for the last, which has the array's
    ids = dict(line.split() for line in slurm_shared.must("squeue", "-h", "-t", "all", "-o", "%i %A").splitlines())
    outcomes = {task: project.gpuq("wait", ids[f"{bad}_{task}"]).code for task in (1, 2)}
    assert outcomes == {1: 0, 2: 20}


def test_gpus_are_counted_however_they_were_asked_for(slurm_shared: Embedded, project: Project) -> None:
    wanted = {
        slurm_shared.sbatch("true", "--hold", *options, *SMALL): count
        for options, count in (
            (("--gres=gpu:1",), 1),
            (("--gpus=1",), 1),
            (("--gpus-per-node=1",), 1),
            (("--gpus-per-task=1", "--ntasks=1"), 1),
            (("--gpus=1", "--array=1-2"), 1),
            ((), 0),
        )
    }
    shown = rows(project)
    assert {row["job_id"]: row["gpus"] for row in shown.values()} == wanted
    slurm_shared.must("scancel", *map(str, wanted))


def test_a_held_array_is_released_and_held_as_a_whole(slurm_shared: Embedded, project: Project) -> None:
    project.run("long", "sleep 600")
    slurm_shared.wait_state(project.submit("long"), "RUNNING")
    array = slurm_shared.sbatch("true", "--hold", "--array=0-999%4", "--gres=gpu:1", *SMALL)
    (row,) = [row for row in rows(project).values() if row["tag"] != "long"]
    assert (row["id"], row["reason_words"], row["gpus"]) == (f"{array}_[0-999%4]", "held", 1)
    project.gpuq("release", str(array)).ok()
    assert not rows(project)[f"{array}_[0-999%4]"]["reason"].startswith("JobHeld")
    project.gpuq("hold", str(array)).ok()
    assert rows(project)[f"{array}_[0-999%4]"]["reason"] == "JobHeldUser"


def test_a_heterogeneous_job(slurm_shared: Embedded, project: Project) -> None:
    job = het(slurm_shared, "--hold", "-Jpair")
    shown = rows(project)
    assert list(shown) == [f"{job}+0", f"{job}+1"]  # squeue turns them round
    assert {(one, row["reason"], row["tag"]) for one, row in shown.items()} == {
        (f"{job}+0", "JobHeldUser", "pair"),
        (f"{job}+1", "JobHeldUser", "pair"),
    }
    for ref in (str(job), f"{job}+1", str(job + 1)):
        ran = project.gpuq("wait", ref, "--timeout", "0", "--json").exits(27)
        assert ran.json["results"][0]["job_id"] == job
    assert "one component" in project.gpuq("cancel", f"{job}+1").exits(2).stderr
    project.gpuq("release", str(job)).ok()
    assert {row["reason"] for row in rows(project).values()}.isdisjoint({"JobHeldUser"})
    project.gpuq("cancel", str(job + 1)).exits(2)  # the component by an id of its own
    assert f"(job {job}): cancelled" in project.gpuq("cancel", str(job)).ok().stdout
    assert rows(project) == {}
    for ref in (str(job), f"{job}+0", f"{job}+1"):
        project.gpuq("wait", ref).exits(23)


def test_a_run_may_be_called_like_a_component(slurm_shared: Embedded, project: Project) -> None:
    job = het(slurm_shared, "--hold")
    tag = f"{job}+1"
    assert "one component" in project.gpuq("cancel", tag).exits(2).stderr
    project.run(tag)
    mine = project.submit(tag, "--hold")
    assert f"{tag} attempt 1 (job {mine}): cancelled" in project.gpuq("cancel", tag).ok().stdout
    assert slurm_shared.job_state(job) == "PENDING"


def test_an_id_with_the_name_of_a_cluster(slurm_shared: Embedded, project: Project) -> None:
    job = slurm_shared.sbatch("true", "--hold", *SMALL)
    ran = project.gpuq("cancel", f"{job};elsewhere").exits(6)
    assert f"job {job} is one of cluster elsewhere" in ran.stderr
    assert f"cluster {slurm_shared.node}" in ran.stderr
    project.gpuq("release", f"{job};{slurm_shared.node}").ok()
    project.gpuq("wait", f"{job};{slurm_shared.node.upper()}", "--timeout", "60").ok()
    project.gpuq("wait", f"{job};elsewhere").exits(6)


def test_a_requeued_job(slurm_shared: Embedded, project: Project) -> None:
    job = slurm_shared.sbatch("sleep 600", "-Jback", *SMALL)
    slurm_shared.wait_state(job, "RUNNING")
    waiter = project.start("wait", str(job), "--json", "--timeout", "120")
    assert "RUNNING" in said(waiter)
    slurm_shared.must("scontrol", "requeue", str(job))
    slurm_shared.wait_state(job, "PENDING")
    row = rows(project)[str(job)]
    assert (row["state"], row["position"], row["stuck"]) == ("PENDING", 1, False)
    until(lambda: rows(project)[str(job)]["reason"] == "BeginTime", lambda: rows(project))
    # begins as much later as a requeued one does
    later = slurm_shared.sbatch("true", "--begin=now+2minutes", "-Jlater", *SMALL)
    slurm_shared.wait(lambda: slurm_shared.field(later, "Reason"), ("BeginTime",))
    shown = rows(project)
    assert {one: row["restarts"] for one, row in shown.items()} == {str(job): 1, str(later): 0}
    why = {line.split()[2]: line for line in project.gpuq("queue").ok().stdout.splitlines()}
    assert "requeued; from " in why["back"]
    assert "not before " in why["later"]
    project.gpuq("cancel", str(job)).ok()
    ran = project.finish(waiter).exits(23)
    assert ran.json["results"][0]["outcome"] == "CANCELLED"


def test_a_suspended_job(slurm_shared: Embedded, project: Project) -> None:
    job = slurm_shared.sbatch("sleep 600", "-Jpaused", "--gres=gpu:1", *SMALL)
    slurm_shared.wait_state(job, "RUNNING")
    slurm_shared.must("scontrol", "suspend", str(job))
    row = rows(project)[str(job)]
    assert (row["state"], row["position"], row["gpus"]) == ("SUSPENDED", 0, 1)
    ran = project.gpuq("wait", str(job), "--timeout", "0", "--json").exits(27)
    assert ran.json["results"][0]["state"] == "SUSPENDED"
    ran = project.gpuq("hold", str(job)).exits(11)
    assert "is SUSPENDED" in ran.stderr
    project.gpuq("cancel", str(job)).ok()
    project.gpuq("wait", str(job), "--timeout", "60").exits(23)
    assert rows(project) == {}


def test_another_users_array_and_job(slurm_shared: Embedded, project: Project) -> None:
    array = foreign_job(slurm_shared, "--hold", "--array=1-4")
    assert rows(project) == {}
    shown = rows(project, "--all")
    assert [(one, row["user"]) for one, row in shown.items()] == [(f"{array}_[1-4]", "nobody")]
    assert "nobody's; gpuq changes only" in project.gpuq("cancel", str(array)).exits(11).stderr
    project.gpuq("cancel", f"{array}_1").exits(2)
    project.gpuq("wait", f"{array}_1", "--timeout", "0").exits(27)
    assert list(rows(project, "--all")) == [f"{array}_[1-4]"]


@pytest.mark.parametrize("alive", [True, False])
def test_going_down_with_a_suspended_job_of_any_name(slurm: Embedded, alive: bool) -> None:
    job = slurm.sbatch("sleep 600", "-Jtwo\nlines|1|2", *SMALL)
    slurm.sbatch("true", "--hold", "-J\n")
    slurm.wait_state(job, "RUNNING")
    slurm.must("scontrol", "suspend", str(job))
    if not alive:
        slurm.kill_daemons("slurmctld")
    slurm.down(cancel=True)
    assert slurm.leftovers() == []
