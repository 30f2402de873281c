"""Who holds the GPU: real jobs on a real Slurm, under a library that reports their processes as a GPU would."""

from __future__ import annotations

import datetime
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from gpuq.adapters.embedded import daemons
from gpuq.cli.context import build as build_context
from gpuq.cli.group import cli
from gpuq.core.gpu.readings import GpuState, Reading
from gpuq.usecases import alive, gpu
from gpuq.usecases.context import Context
from tests.embedded import Embedded
from tests.gpuq_cli import Project, until
from tests.nvml import CARD, Stage, build


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pynvml", reason="not installed: nvidia-ml-py (pip install gpuq-slurm[dev])")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def stage(library: Path, tmp_path: Path) -> Stage:
    return Stage(library, tmp_path / "scenario")


@pytest.fixture
def ctx(slurm: Embedded, project: Project, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.chdir(project.root)
    return build_context()


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().endswith("\n"), lambda: f"no {path}")
    return int(path.read_text())


def shown(project: Project, stage: Stage, scenario: str) -> dict[str, Any]:
    found: dict[str, Any] = project.gpuq("gpu", "--json", env=stage.play(scenario)).ok().json
    assert found["schema"] == "gpuq.gpu/1"
    assert found["trouble"] is None
    return found


def test_the_processes_of_a_job_carry_its_number(slurm_shared: Embedded, project: Project, stage: Stage) -> None:
    directory = project.run("train", "echo $$ >$GPUQ_RUN_DIR/pid\nsleep 600")
    project.run("train/child")
    job = project.submit("train")
    pid = pid_in(directory / "pid")
    other = subprocess.Popen(["sleep", "600"])
    try:
        found = shown(project, stage, CARD + f"compute {pid} 1000 -\ncompute {other.pid} - -\ncompute 4194303 5 -\n")
        text = project.gpuq("gpu", env=stage.play(CARD + f"compute {pid} 8589934592 -\n")).ok().stdout
    finally:
        other.kill()
        other.wait()
    (card,) = found["gpus"]
    rows = {row["pid"]: row for row in card["processes"]}
    mine = rows[pid]
    assert (mine["kind"], mine["job_id"], mine["what"]) == ("job", job, f"job {job} (train)")
    assert "slurm_script" in mine["command"]
    assert datetime.datetime.fromisoformat(mine["since"]).tzinfo is not None
    assert (rows[other.pid]["kind"], rows[other.pid]["job_id"], rows[other.pid]["memory"]) == ("other", None, None)
    assert (rows[4194303]["kind"], rows[4194303]["command"]) == ("unseen", None)
    assert card["verdict"] == "other"
    (row,) = [one for one in found["jobs"] if one["job_id"] == str(job)]
    assert (row["on_gpu"], row["looks_dead"]) == (True, "")
    assert found["simulated"] == (not Path("/dev/nvidia0").exists())
    assert f"held by job {job} (8G)" in text
    assert "utilisation 97 %" in text
    assert "61 °C" in text


def test_a_gpu_that_was_given_and_is_not_used_yet(slurm_shared: Embedded, project: Project, stage: Stage) -> None:
    project.run("idle", "sleep 600")
    job = project.submit("idle")
    slurm_shared.wait_state(job, "RUNNING")
    (card,) = shown(project, stage, CARD)["gpus"]
    assert (card["verdict"], card["words"]) == ("job", f"given by Slurm to job {job}, without a process on it now")
    slurm_shared.must("scancel", str(job))
    slurm_shared.wait_state(job, "CANCELLED")
    (card,) = shown(project, stage, CARD)["gpus"]
    assert (card["verdict"], card["processes"]) == ("free", [])


@pytest.mark.one_release
def test_too_little_memory_for_what_waits(slurm_shared: Embedded, project: Project, stage: Stage) -> None:
    project.run("big")
    for _ in range(2):
        job = project.submit("big", "--hold")
    (project.runs / "big/slurm/attempt1.out").write_text("START device=x\nSTEP step=1 vram=18.00GiB\n")
    (note,) = shown(project, stage, CARD)["notes"]
    assert note == (
        f"job {job} (big) waits, and attempt 1 of it used 18G of the GPU's memory; 15.6G are there for jobs"
    )
    assert shown(project, stage, CARD.replace("free 16715939840", "free 24715939840"))["notes"] == []


def test_a_mismatch_while_a_job_runs(slurm_shared: Embedded, project: Project, stage: Stage) -> None:
    project.run("old", "sleep 600")
    job = project.submit("old")
    slurm_shared.wait_state(job, "RUNNING")
    found = project.gpuq("gpu", "--json", env=stage.play("init 18\n")).ok().json
    assert found["trouble"] == "mismatch"
    assert f"job {job} (old)" in found["found"]
    assert found["advice"] == ["reboot after it has ended; nothing new can start until then"]


@pytest.mark.slurm_options(confine=False)
def test_a_child_that_got_away_from_its_job(slurm: Embedded, project: Project, stage: Stage) -> None:
    directory = project.run("away", "(setsid sleep 600 & echo $! >$GPUQ_RUN_DIR/pid)\nsleep 600")
    job = project.submit("away")
    pid = pid_in(directory / "pid")
    (card,) = shown(project, stage, CARD + f"compute {pid} 1000 -\n")["gpus"]
    assert (card["processes"][0]["kind"], card["processes"][0]["job_id"]) == ("job", job)
    project.gpuq("cancel", "away").ok()
    slurm.wait_state(job, "CANCELLED")
    until(lambda: not daemons.find(slurm.layout).steps, lambda: "slurmstepd lives")
    os.kill(pid, 0)  # the child lives, and keeps the GPU
    (card,) = shown(project, stage, CARD + f"compute {pid} 1000 -\n")["gpus"]
    row = card["processes"][0]
    assert (card["verdict"], row["kind"], row["job_id"]) == ("orphan", "orphan", job)
    assert "CANCELLED" in row["what"]
    ran = project.gpuq("gpu", env=stage.play(CARD + f"compute {pid} 1000 -\n")).ok()
    assert f"held by an orphan of job {job}" in ran.stdout
    assert f"kill {pid}" in ran.stdout
    # where the driver does not tell, what is left over is told all the same
    told = project.gpuq("gpu", "--json", env=stage.play("init 9\n")).ok().json
    assert [one["pid"] for one in told["leftovers"]] == [pid]


def kill_away(slurm: Embedded, job: int) -> None:
    """What the kernel does when it is out of memory: the job and its slurmstepd are gone, and nobody is told."""
    until(lambda: bool(daemons.find(slurm.layout).steps), lambda: "no slurmstepd")
    slurm.kill_daemons("steps")
    daemons.kill(daemons.job_processes(slurm.layout))
    assert slurm.job_state(job) == "RUNNING"


def test_a_job_whose_processes_were_killed_away_looks_dead(
    slurm: Embedded, project: Project, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alive, "GRACE", 0)
    directory = project.run("dead", "echo $$ >$GPUQ_RUN_DIR/pid\nsleep 600")
    number = project.submit("dead")
    pid_in(directory / "pid")
    job = ctx.slurm.job(number)
    assert job is not None
    assert alive.looks_dead(ctx, job) == ""
    kill_away(slurm, number)
    words = alive.looks_dead(ctx, job) or "not known"
    assert words.startswith("looks dead")
    assert f"job {number} " in words
    (row,) = gpu.report(ctx).jobs or []
    assert (row.job_id, row.looks_dead != "") == (str(number), True)
    ran = CliRunner().invoke(cli, ["gpu"])
    assert ran.exit_code == 0
    assert "looks dead" in ran.output
    assert f"scancel {number}" in ran.output
    told = CliRunner().invoke(cli, ["why", "dead"])
    assert f"dead looks dead: Slurm calls job {number} running" in told.output
    # one that runs on another host, one that has only begun, and a task of an array cannot be told from here
    assert alive.looks_dead(ctx, msgspec.structs.replace(job, node="elsewhere"), alive.look_at_host(ctx)) == ""
    assert alive.looks_dead(ctx, msgspec.structs.replace(job, id=f"{number}_1")) == ""
    monkeypatch.setattr(alive, "GRACE", 86400)
    assert alive.looks_dead(ctx, job) == ""


def test_a_job_that_ends_while_it_is_looked_at_is_not_called_dead(
    slurm: Embedded, project: Project, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alive, "GRACE", 0)
    project.run("ends", "sleep 600")
    number = project.submit("ends")
    slurm.wait_state(number, "RUNNING")
    then = ctx.slurm.job(number)
    assert then is not None
    project.gpuq("cancel", "ends").ok()
    slurm.wait_state(number, "CANCELLED")
    assert alive.looks_dead(ctx, then) == ""


def test_a_silent_job_with_an_idle_gpu_looks_dead(
    slurm: Embedded, project: Project, ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alive, "SILENCE", 0)
    project.run("silent", "echo begun\nsleep 600")
    number = project.submit("silent")
    until(lambda: "begun" in project.log("silent"), lambda: project.log("silent"))
    job = ctx.slurm.job(number)
    assert job is not None
    idle = Reading(gpus=(GpuState(index=0, utilization=0),))
    assert f"job {number} has written nothing for" in alive.looks_stuck(ctx, job, idle)
    for other in (Reading(), Reading(gpus=(GpuState(index=0),)), Reading(gpus=(GpuState(index=0, utilization=1),))):
        assert alive.looks_stuck(ctx, job, other) == ""
    monkeypatch.setattr(alive, "SILENCE", 3600)
    assert alive.looks_stuck(ctx, job, idle) == ""


@pytest.mark.one_release
def test_a_dead_controller_is_told_and_nothing_is_concluded(slurm: Embedded, project: Project, stage: Stage) -> None:
    directory = project.run("train", "echo $$ >$GPUQ_RUN_DIR/pid\nsleep 600")
    job = project.submit("train")
    pid = pid_in(directory / "pid")
    slurm.kill_daemons("slurmctld")
    found = project.gpuq("gpu", "--json", env=stage.play(CARD + f"compute {pid} 1000 -\n")).ok().json
    assert found["jobs"] is None
    assert found["notes"]
    (row,) = found["gpus"][0]["processes"]
    assert (row["kind"], row["job_id"]) == ("job", job)
    assert "without Slurm's answer" in row["what"]
