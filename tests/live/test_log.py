"""`gpuq log` on a real Slurm."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.embedded import Embedded
from tests.gpuq_cli import Project, said, until


def test_frames_tail_attempts_and_path(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "printf 'Epoch 1: 10%%\\rEpoch 1: 100%%\\nloss 1\\nloss 2\\n'")
    project.gpuq("submit", "a", "--wait").ok()
    project.run("a", "echo second; printf '\\377raw'")
    job = project.submit("a")
    project.gpuq("wait", "a").ok()
    assert project.gpuq("log", "a", "--attempt", "1").ok().stdout == "Epoch 1: 100%\nloss 1\nloss 2\n"
    assert project.gpuq("log", "a", "--attempt", "1", "--tail", "2").ok().stdout == "loss 1\nloss 2\n"
    assert project.gpuq("log", "a", "--attempt", "1", "--tail", "0").ok().stdout == ""
    assert project.gpuq("log", "a").ok().stdout == "second\n\ufffdraw\n"
    assert project.gpuq("log", str(job)).ok().stdout == "second\n\ufffdraw\n"
    assert project.gpuq("log", "a", "-f").ok().stdout == "second\n\ufffdraw\n"
    assert project.gpuq("log", "a", "-f", "--tail", "1").ok().stdout == "\ufffdraw\n"
    path = project.gpuq("log", "a", "--path").ok().stdout.strip()
    assert Path(path) == project.runs / "a/slurm/attempt2.out"
    assert "there are: 1, 2" in project.gpuq("log", "a", "--attempt", "9").exits(6).stderr


def test_no_log_yet(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.submit("a", "--hold")
    ran = project.gpuq("log", "a").exits(6)
    assert "has not started" in ran.stderr
    project.gpuq("cancel", "a").ok()
    assert "left no log" in project.gpuq("log", "a").exits(6).stderr
    assert "left no log" in project.gpuq("log", "a", "-f").exits(6).stderr
    foreign = slurm_shared.sbatch("true", "--hold")
    assert "was not submitted by gpuq" in project.gpuq("log", str(foreign)).exits(6).stderr


def test_following_from_before_the_start_to_the_end(slurm_shared: Embedded, project: Project, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    project.run(
        "a", f"echo START; read -r line < {fifo}; printf '50%%\\r100%%\\n'; echo \"$line\"; printf 'no newline'"
    )
    project.submit("a", "--hold")
    process = project.start("log", "a", "-f")
    assert "is waiting: held" in said(process)
    project.gpuq("release", "a").ok()
    assert process.stdout is not None
    assert process.stdout.readline() == "START\n"
    fifo.write_text("FINISHED\n")
    ran = project.finish(process).ok()
    assert ran.stdout == "100%\nFINISHED\nno newline\n"
    assert "ended: SUCCEEDED" in ran.stderr


def test_a_requeue_keeps_the_attempt_and_its_log(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", 'echo "run ${SLURM_RESTART_COUNT:-0}"; [ -n "${SLURM_RESTART_COUNT:-}" ] || sleep 600')
    job = project.submit("a")
    until(lambda: "run 0" in project.log("a"), lambda: project.log("a"))
    process = project.start("log", "a", "-f")
    assert process.stdout is not None
    assert process.stdout.readline() == "run 0\n"
    slurm_shared.must("scontrol", "requeue", str(job))
    # a requeued job may not start before two minutes are over, unless somebody says so
    slurm_shared.wait_state(job, "PENDING")
    assert rows_of(project) == [(job, 1)]
    time.sleep(1.1)  # Slurm lets a launch in the very second of the requeue fail: "already killed"
    slurm_shared.must("scontrol", "update", f"JobId={job}", "StartTime=now")
    ran = project.finish(process).ok()
    assert "=== gpuq: started again after a requeue (restart 1," in ran.stdout
    assert ran.stdout.rstrip().endswith("run 1")
    log = project.log("a")
    assert log.startswith("run 0\n")
    assert log.endswith("run 1\n")
    ended = project.record("a").ended
    assert ended
    assert (ended.outcome, ended.restarts) == ("SUCCEEDED", 1)
    assert project.numbers("a") == [1]


def test_a_log_that_is_a_directory(slurm_shared: Embedded, project: Project) -> None:
    run = project.run("a")
    project.submit("a", "--hold")
    (run / "slurm/attempt1.out").mkdir()
    for args in ((), ("-f",), ("--tail", "3"), ("-f", "--tail", "3")):
        assert "Is a directory" in project.gpuq("log", "a", *args).exits(8).stderr


def rows_of(project: Project) -> list[tuple[int, int]]:
    return [(row["job_id"], row["attempt"]) for row in project.gpuq("queue", "--json").ok().json["jobs"]]


@pytest.mark.parametrize("args", [(), ("-f",)])
def test_a_reader_that_goes_away(slurm_shared: Embedded, project: Project, args: tuple[str, ...]) -> None:
    project.run("a", "for i in {1..20000}; do echo line $i; done")
    project.gpuq("submit", "a", "--wait").ok()
    process = project.start("log", "a", *args)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == 141
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


def test_json_holds_the_lines_and_where_they_are(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "printf 'one\\n 10%%\\r100%%\\ntwo\\n'")
    project.gpuq("submit", "a", "--wait").ok()
    shown = project.gpuq("log", "a", "--json").ok().json
    assert (shown["schema"], shown["tag"], shown["attempt"]) == ("gpuq.log/1", "a", 1)
    assert shown["lines"] == ["one", "100%", "two"]
    assert shown["path"] == str(project.runs / "a" / "slurm" / "attempt1.out")
    assert project.gpuq("log", "a", "--json", "--tail", "1").ok().json["lines"] == ["two"]
    assert "--json" in project.gpuq("log", "a", "--json", "-f").exits(2).stderr
