"""`why_waiting` on a real Slurm: what it says of jobs that wait for different things."""

from __future__ import annotations

import os
import re

import pytest

from gpuq.adapters.clock import SystemClock
from gpuq.adapters.configfiles import find_project
from gpuq.adapters.ledger import Ledger
from gpuq.adapters.machine import caller
from gpuq.adapters.slurm.client import SlurmCommands
from gpuq.adapters.slurm.locate import locate
from gpuq.core.triage.diagnosis import Answer
from gpuq.errors import NotFound
from gpuq.usecases.context import Context
from gpuq.usecases.refs import Target, resolve
from gpuq.usecases.why.waiting import why_waiting
from tests.embedded import Embedded
from tests.gpuq_cli import Project, until


def context(project: Project) -> Context:
    found = find_project(project.root, dict(os.environ))
    location = locate(os.environ)
    return Context(
        slurm=SlurmCommands(location, dict(os.environ)),
        ledger=Ledger(found.runs),
        project=found,
        caller=caller(),
        clock=SystemClock(),
        environment=dict(os.environ),
        controller=location.identity,
        system_wide=False,
        say=lambda text: None,
    )


def why(project: Project, ref: str) -> Answer:
    ctx = context(project)
    return why_waiting(ctx, resolve(ctx, ref))


def why_when(slurm: Embedded, project: Project, job: int, reason: str) -> Answer:
    """The answer, once Slurm gives this reason: it looks at a new job after a moment."""
    until(lambda: slurm.field(job, "Reason").startswith(reason), lambda: slurm.field(job, "Reason"))
    return why(project, str(job))


def test_the_gpu_is_held_with_limit_and_history(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "sleep 1")
    project.run("b")
    project.gpuq("submit", "a", "--wait").ok()
    project.run("a", "sleep 600")
    holder = project.submit("a", "--time", "20")
    slurm_shared.wait_state(holder, "RUNNING")
    job = project.submit("b")
    answer = why_when(slurm_shared, project, job, "Resources")
    assert answer.id == "gpu-busy"
    assert re.search(rf"the GPU is held by job {holder} \(a\) until .* at the latest", answer.headline)
    assert "usual" in answer.headline  # probably until, or longer than
    assert f"gpuq wait {holder}" in answer.advice
    assert why(project, "b").headline.startswith("b waits")


def test_a_gpu_held_by_a_job_that_asked_with_gpus(slurm_shared: Embedded, project: Project) -> None:
    project.run("b")
    holder = slurm_shared.sbatch("sleep 600", "--gpus=1", "--mem=100M", "-J", "odd\n   JOB_GRES=gpu:0")
    slurm_shared.wait_state(holder, "RUNNING")
    answer = why_when(slurm_shared, project, project.submit("b"), "Resources")
    assert answer.id == "gpu-busy"
    assert f"job {holder}" in answer.headline


def test_memory_is_the_cause_and_the_gpu_is_free(slurm_shared: Embedded, project: Project) -> None:
    project.run("b")
    total = int(re.findall(r"RealMemory=(\d+)", slurm_shared.must("scontrol", "show", "node"))[0])
    holder = slurm_shared.sbatch("sleep 600", "--mem", f"{total - 300}M")
    slurm_shared.wait_state(holder, "RUNNING")
    answer = why_when(slurm_shared, project, project.submit("b", "--mem", "400M"), "Resources")
    assert answer.id == "memory-busy"
    assert f"the GPU is free; job {holder}" in answer.headline
    command = next(line for line in answer.advice if "gpuq set b --mem" in line).split(": ", 1)[1].split(" (")[0]
    project.gpuq(*command.split()[1:]).ok()
    assert project.ended("b").outcome == "SUCCEEDED"


def test_a_job_that_named_no_memory_took_all(slurm: Embedded, project: Project) -> None:
    project.run("b")
    conf = slurm.layout.conf
    conf.write_text(re.sub(r"DefMemPerCPU=\d+", "DefMemPerNode=0", conf.read_text()))
    slurm.must("scontrol", "reconfigure")
    holder = slurm.sbatch("sleep 600")
    slurm.wait_state(holder, "RUNNING")
    answer = why_when(slurm, project, project.submit("b"), "Resources")
    assert answer.id == "memory-busy"
    assert "it asked for no --mem" in answer.headline
    assert any("DefMemPerCPU=" in line for line in answer.advice)
    second = slurm.sbatch("true")
    assert why_when(slurm, project, second, "Priority").id in {"memory-busy", "behind"}


def test_held_and_released_as_it_says(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.submit("a", "--hold")
    answer = why(project, "a")
    assert (answer.id, answer.advice) == ("held", ("gpuq release a",))
    project.gpuq(*answer.advice[0].split()[1:]).ok()
    assert project.ended("a").outcome == "SUCCEEDED"


@pytest.mark.slurm_options(max_time="30:00", extra=("EnforcePartLimits=NO",))
def test_more_time_than_the_partition_allows(slurm: Embedded, project: Project) -> None:
    project.run("first", "sleep 600")
    slurm.wait_state(project.submit("first"), "RUNNING")
    project.submit("first")
    job = slurm.sbatch("true", "--time=2:00:00", "--gres=gpu:1", "--mem=100M")
    answer = why(project, str(job))  # whatever Slurm's reason is by now
    assert answer.id == "time-limit-too-long"
    assert "asks 2:00:00, partition allows 30:00" in answer.headline


def test_a_dead_chain_to_its_root(slurm_shared: Embedded, project: Project) -> None:
    root = slurm_shared.sbatch("exit 1")
    slurm_shared.wait_state(root, "FAILED")
    child = slurm_shared.sbatch("true", f"--dependency=afterok:{root}")
    grandchild = slurm_shared.sbatch("true", f"--dependency=afterok:{child}")
    until(
        lambda: slurm_shared.field(child, "Reason") == "DependencyNeverSatisfied",
        lambda: slurm_shared.field(child, "Reason"),
    )
    assert why(project, str(child)).id == "dependency-never"
    answer = why(project, str(grandchild))
    assert answer.id == "dependency-never"
    assert f"job {child}, which can never run either, because job {root}" in answer.headline
    assert len(answer.details) == 3


def test_a_living_chain(slurm_shared: Embedded, project: Project) -> None:
    for tag in ("a", "b", "c"):
        project.run(tag, "sleep 600")
    project.gpuq("chain", "a", "b", "c", "--time", "10").ok()
    first = project.record("a").job_id
    assert first is not None
    slurm_shared.wait_state(first, "RUNNING")
    answer = why(project, "c")
    assert answer.id == "dependency"
    assert f"at the root of the chain, job {first} (a) runs" in answer.headline
    assert any("job" in line and "RUNNING" in line for line in answer.details)


def test_a_drained_node_gives_its_reason(slurm: Embedded, project: Project) -> None:
    project.run("a")
    slurm.must("scontrol", "update", f"NodeName={slurm.node}", "State=DRAIN", "Reason=new fan")
    project.submit("a")
    answer = why(project, "a")
    assert answer.id == "node-down"
    assert "new fan" in answer.headline


def test_a_partition_that_is_down(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    slurm_shared.must("scontrol", "update", "PartitionName=gpu", "State=DOWN")
    project.submit("a")
    assert why(project, "a").id == "partition-down"


def test_a_requeued_job_waits_two_minutes(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "sleep 600")
    job = project.submit("a")
    slurm_shared.wait_state(job, "RUNNING")
    slurm_shared.must("scontrol", "requeue", str(job))
    answer = why_when(slurm_shared, project, job, "BeginTime")
    assert answer.id == "begin-time"
    assert "a requeued job wait two minutes" in answer.headline
    slurm_shared.wait_state(job, "PENDING")
    advised = answer.advice[0].split(": ", 1)[1].split()
    assert advised == ["gpuq", "release", "a"]
    project.gpuq(*advised[1:]).ok()
    slurm_shared.wait_state(job, "RUNNING")


def test_others_are_first_and_slurm_is_asked_when(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "sleep 600")
    project.run("b")
    slurm_shared.wait_state(project.submit("a", "--time", "10"), "RUNNING")
    project.submit("b", "--time", "5")
    job = project.submit("b", "--time", "5")
    answer = why_when(slurm_shared, project, job, "Priority")
    assert answer.id == "gpu-busy"
    assert "1 job before it" in answer.headline
    assert any("Slurm expects it to start" in line for line in answer.evidence)
    assert "to run it before your others: gpuq top b" in answer.advice


def test_an_estimate_never_leaves_a_job(slurm_shared: Embedded, project: Project) -> None:
    slurm = context(project).slurm
    found = slurm.estimate(["--gres=gpu:1", "--mem=100M", "--time=5"])
    assert found.possible
    assert found.start is not None
    assert not slurm.estimate(["--gres=gpu:2", "--mem=100M"]).possible
    assert slurm_shared.queued().strip() == ""


def test_a_job_that_is_not_there(slurm_shared: Embedded, project: Project) -> None:
    with pytest.raises(NotFound):
        why_waiting(context(project), Target("12", None, None))
