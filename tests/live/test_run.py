"""`gpuq run` inside real jobs: what Slurm does to a job reaches the program, and the log says how it ended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpuq.core.attempt import Outcome
from gpuq.core.inside.lintlog import lint
from gpuq.core.inside.runlines import Line, read
from tests.embedded import Embedded
from tests.gpuq_cli import Project, until

GPUQ = f"exec {sys.executable} -m gpuq run --"
TRAIN = """
import sys, time
from gpuq import runlog
with runlog.start({"lr": 3e-4}, every=0) as log:
    while not log.stopping:
        log.step(loss=1.0)
        time.sleep(0.1)
    open(sys.argv[1], "w").write("saved")
    log.result(score=0.5)
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"


def ours(text: str) -> list[Line]:
    return [line for line in map(read, text.splitlines()) if line is not None]


def faults(project: Project, tag: str) -> list[str]:
    log = (project.runs / tag / "slurm" / "attempt1.out").read_bytes()
    return [f"{one.line}: {one.text}" for one in lint(log.splitlines(keepends=True))]


def begin(slurm: Embedded, project: Project, tag: str, word: str) -> int:
    job = project.submit(tag)
    until(lambda: word in project.log(tag), lambda: project.log(tag))
    return job


def test_a_job_from_start_to_finished(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", f"{GPUQ} bash -c 'sleep 0.2; echo RESULT score=0.5'")
    project.submit("a")
    assert project.ended("a").outcome is Outcome.SUCCEEDED
    start, _, last = ours(project.log("a"))
    assert (start.fields["tag"], start.fields["attempt"], start.fields["gpus"]) == ("a", "1", "1")
    assert start.fields["job"] == str(project.record("a").job_id)
    assert start.fields["mem"] == "0.10GiB"
    if not Path("/dev/nvidia0").exists():
        assert start.fields["device"] == "simulated"
    assert (last.kind, last.fields["score"]) == ("FINISHED", "0.5")
    assert faults(project, "a") == []
    assert project.ended("a").score == 0.5  # no [results] score is set: the last line has it
    assert "score 0.5" in project.gpuq("wait", "a").ok().stdout
    assert project.gpuq("status", "a", "--json").ok().json["runs"][0]["attempts"][0]["score"] == 0.5
    assert project.gpuq("results", "--json").ok().json["runs"][0]["score"] == 0.5


@pytest.mark.one_release
def test_what_a_cpu_job_sees(slurm_shared: Embedded, project: Project) -> None:
    project.run("cpu", f"{GPUQ} true")
    project.submit("cpu", "--cpu-only")
    assert project.ended("cpu").outcome is Outcome.SUCCEEDED
    assert ours(project.log("cpu"))[0].fields["gpus"] == "0"


def test_slurms_early_signal_reaches_python(slurm_shared: Embedded, project: Project, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    project.run("train", f"{GPUQ} {sys.executable} {tmp_path}/train.py {tmp_path}/resume.pt")
    job = begin(slurm_shared, project, "train", "STEP")
    running = project.gpuq("why", "train", "--json").ok().json["answer"]
    assert running["id"] == "running"
    assert "; at step " in running["headline"]
    slurm_shared.must("scancel", "--batch", "--signal=TERM", str(job))  # what --signal=B:TERM does when its time comes
    ended = project.ended("train")
    assert (ended.outcome, ended.score) == (Outcome.INCOMPLETE, None)
    assert ended.notes[0].startswith("stopped early by SIGTERM (step ")
    assert "gpuq resubmit train" in ended.notes[0]
    assert (tmp_path / "resume.pt").read_text() == "saved"
    kinds = [line.kind for line in ours(project.log("train"))]
    assert [one for one in kinds if one != "STEP"] == ["START", "CONFIG", "STOPPING", "RESULT", "FINISHED"]
    assert ours(project.log("train"))[-1].fields["stopped"] == "true"
    assert faults(project, "train") == []


@pytest.mark.one_release
def test_why_a_job_runs_without_its_program(slurm_shared: Embedded, project: Project) -> None:
    line = "WAITING for=vram free=3.20GiB need=20.00GiB at_most=10m held_by=process 4711 (python)"
    project.run("held", f"echo 'START device=x'; echo '{line}'; exec sleep 600")
    begin(slurm_shared, project, "held", "WAITING")
    answer = project.gpuq("why", "held", "--json").ok().json["answer"]
    assert answer["id"] == "preflight"
    assert "wants 20.00GiB of the GPU's memory free, and 3.20GiB are; held by process 4711" in answer["headline"]


def test_a_program_that_is_deaf_is_told_before_slurm_kills_everything(slurm_shared: Embedded, project: Project) -> None:
    project.run("deaf", f'{GPUQ} {sys.executable} -c "{DEAF}"')
    begin(slurm_shared, project, "deaf", "deaf\n")
    project.gpuq("cancel", "deaf").ok()
    assert project.ended("deaf").outcome is Outcome.CANCELLED
    last = ours(project.log("deaf"))[-1]
    assert (last.kind, last.fields["cause"], last.fields["exit"]) == ("FAILED", "cancelled", "none")


def test_a_program_that_is_killed_for_memory(slurm_shared: Embedded, project: Project) -> None:
    if not slurm_shared.status().confinement.on:
        pytest.skip("jobs are not confined here: their memory has no limit")
    hog = "b = []\nwhile True: b.append(bytearray(b'x') * (1 << 22))"
    project.run("hog", f'{GPUQ} {sys.executable} -c "{hog}"')
    project.submit("hog")
    assert project.ended("hog").outcome is Outcome.OUT_OF_MEMORY
    last = ours(project.log("hog"))[-1]
    assert (last.kind, last.fields["cause"], last.fields["exit"]) == ("FAILED", "host_oom", "137")
    assert int(last.fields["oom_kill"]) >= 1
    assert faults(project, "hog") == []
    memory = project.record("hog").memory
    assert memory is not None
    assert memory.oom_kill
