"""`gpuq queue` and `gpuq status` on a real Slurm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.embedded import Embedded
from tests.gpuq_cli import Project, foreign_job, until

ROW = {
    "position", "job_id", "id", "tag", "attempt", "user", "state", "reason", "reason_words", "stuck", "dependency",
    "dependency_words", "elapsed", "time_limit", "memory", "cpus", "gpus", "partition", "submit", "start", "project",
    "edited", "restarts",
}  # fmt: skip


def rows(project: Project, *args: str) -> list[dict[str, Any]]:
    shown = project.gpuq("queue", "--json", *args).ok().json
    assert shown["schema"] == "gpuq.queue/1"
    found: list[dict[str, Any]] = shown["jobs"]
    for row in found:
        assert set(row) == ROW
    return found


@pytest.mark.parametrize("number", ["9" * 20, "9" * 300])
def test_a_comment_that_looks_like_ours_with_a_number_beyond_reason(
    slurm_shared: Embedded, project: Project, number: str
) -> None:
    project.run("a")
    job = slurm_shared.sbatch("true", "--hold", "--job-name=a", f"--comment=gpuq:1:{number}:ab")
    project.gpuq("queue").ok()
    project.gpuq("queue", "--json").ok()
    assert "not submitted by gpuq" in project.gpuq("status", str(job)).exits(6).stderr
    project.gpuq("cancel", str(job)).ok()


def test_an_empty_queue(slurm_shared: Embedded, project: Project) -> None:
    slurm_shared.wait_state(slurm_shared.sbatch("true"), "COMPLETED")
    assert rows(project) == []
    assert "None of your jobs" in project.gpuq("queue").ok().stdout
    assert "The queue is empty" in project.gpuq("queue", "--all").ok().stdout


def test_the_order_and_the_reasons(slurm_shared: Embedded, project: Project) -> None:
    project.run("runs", "sleep 600")
    for tag in ("held", "next", "dependent", "done"):
        project.run(tag)
    project.gpuq("submit", "done", "--wait").ok()
    project.submit("held", "--hold")
    running = project.submit("runs")
    slurm_shared.wait_state(running, "RUNNING")
    project.submit("dependent", "--after-ok", "runs")
    project.submit("next", "--time", "7")
    found: list[dict[str, Any]] = []

    def all_looked_at() -> bool:  # the reason of a job that has not been looked at yet is None
        found[:] = rows(project)
        return all(row["reason"] for row in found[1:])

    until(all_looked_at, lambda: found)
    assert [(row["tag"], row["position"]) for row in found] == [("runs", 0), ("next", 1), ("dependent", 2), ("held", 3)]
    run, next_, dependent, held = found
    assert run["state"] == "RUNNING"
    assert run["job_id"] == running
    assert run["gpus"] == 1
    assert run["memory"] == 100 * 2**20
    assert next_["reason_words"] in {"behind other jobs", "waits for the GPU, memory or cores"}
    assert next_["time_limit"] == 420
    assert dependent["dependency"].startswith(f"afterok:{running}")
    assert dependent["dependency_words"] == f"after {running} succeeds"
    assert (held["reason_words"], held["stuck"]) == ("held", True)
    assert {row["attempt"] for row in found} == {1}
    assert {row["project"] for row in found} == {str(project.root)}
    text = project.gpuq("queue").ok().stdout
    assert "PART" not in text  # all are in one
    assert [line.split()[2] for line in text.splitlines()[1:]] == ["runs", "next", "dependent", "held"]
    assert f"after {running} succeeds" in text


def test_a_chain_is_shown_in_its_order(slurm_shared: Embedded, project: Project) -> None:
    project.run("runs", "sleep 600")
    for tag in ("a", "b", "c"):
        project.run(tag)
    running = project.submit("runs")
    slurm_shared.wait_state(running, "RUNNING")
    # The first of a chain is held until the last is accepted, and a released job goes behind the others in Slurm.
    project.gpuq("chain", "a", "b", "c", "--after", "runs").ok()
    assert [row["tag"] for row in rows(project)] == ["runs", "a", "b", "c"]
    project.gpuq("top", "c").ok()
    assert [row["tag"] for row in rows(project)] == ["runs", "a", "b", "c"]
    project.gpuq("hold", "a").ok()
    assert [row["tag"] for row in rows(project)] == ["runs", "a", "b", "c"]


NAMES = [
    "with blank",
    "pi|pe",
    "quo'te\"",
    "new\nline",
    "tab\tbed",
    "a=b State=RUNNING",
    "\udcff\udcfe raw",
    "\x1e\x1f",
    "",
]


def test_jobs_of_any_name(slurm_shared: Embedded, project: Project, tmp_path: Path) -> None:
    place = tmp_path / "dir with\nnewline|and pipe"
    place.mkdir()
    for name in NAMES:
        slurm_shared.sbatch("true", "--hold", "-J", name, "--comment", f"gpuq:1:1:{name}", cwd=place)
    found = rows(project)
    shown = [row["tag"] for row in found]
    for name in NAMES[:6]:
        assert name in shown
    assert "\ufffd\ufffd raw" in shown
    assert len(found) == len(NAMES)
    assert {row["attempt"] for row in found} == {None}
    text = project.gpuq("queue").ok().stdout
    assert len(text.splitlines()) == 1 + len(NAMES)


def test_arrays_and_other_peoples_jobs(slurm_shared: Embedded, project: Project) -> None:
    array = slurm_shared.sbatch("true", "--hold", "--array=1-3%1")
    foreign = foreign_job(slurm_shared, "--hold")
    assert [row["id"] for row in rows(project)] == [f"{array}_[1-3%1]"]
    everybody = rows(project, "--all")
    assert {(row["job_id"], row["user"]) for row in everybody[1:]} == {(foreign, "nobody")}
    assert "nobody" in project.gpuq("queue", "-a").ok().stdout


def test_a_closed_pipe_is_no_error(slurm_shared: Embedded, project: Project) -> None:
    slurm_shared.sbatch("true", "--hold")
    process = project.start("queue", "--json")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(30) in {0, 141}
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


def test_status_of_runs_and_attempts(slurm_shared: Embedded, project: Project) -> None:
    project.run("never")
    project.run("dino/a", 'echo \'{"mean": 0.5}\' > "$GPUQ_RUN_DIR/cv.json"',
                config='[results]\nfiles = ["cv.json"]\nscore = "cv.json:mean"\n')  # fmt: skip
    subprocess.run(["git", "init", "-q", project.root], check=True)
    git = ["git", "-C", str(project.root), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    project.gpuq("submit", "dino/a", "--wait").ok()
    job = project.submit("dino/a", "--hold")
    shown = project.gpuq("status", "--json").ok().json
    assert shown["schema"] == "gpuq.status/1"
    assert [(run["tag"], len(run["attempts"])) for run in shown["runs"]] == [("dino/a", 1), ("never", 0)]
    attempts = project.gpuq("status", "dino/a", "--json").ok().json["runs"][0]["attempts"]
    assert [(one["attempt"], one["outcome"], one["score"]) for one in attempts] == [
        (1, "SUCCEEDED", 0.5),
        (2, None, None),
    ]
    assert (attempts[1]["state"], attempts[1]["reason_words"]) == ("PENDING", "held")
    assert len(attempts[0]["git_commit"]) == 40
    assert attempts[0]["git_dirty"] is False
    by_job = project.gpuq("status", str(job), "--json").ok().json["runs"][0]["attempts"]
    assert [one["attempt"] for one in by_job] == [2]
    text = project.gpuq("status").ok().stdout
    assert "never submitted" in text
    assert "score    0.5" in project.gpuq("status", "dino/a").ok().stdout
    # nothing of gpuq's own shows up in git
    out = subprocess.run([*git, "status", "--porcelain"], check=True, capture_output=True, text=True).stdout
    assert ".gpuq" not in out


def test_what_is_not_there(slurm_shared: Embedded, project: Project) -> None:
    project.run("dino/a")
    assert "did you mean dino/a" in project.gpuq("status", "dino/b").exits(6).stderr
    project.gpuq("status", "999999").exits(6)
    project.gpuq("status", "99999999999999999999").exits(6)
    project.gpuq("log", "dino/a").exits(6)
    project.gpuq("cancel", "dino/a").exits(6)
    project.gpuq("wait", "dino/a").exits(6)
    project.gpuq("status", "../x").exits(2)
    foreign = slurm_shared.sbatch("true", "--hold")
    assert "was not submitted by gpuq" in project.gpuq("status", str(foreign)).exits(6).stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_read_only_runs_root_can_be_looked_at(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "echo hello")
    project.run("b")
    project.gpuq("submit", "a", "--wait").ok()
    job = project.submit("b")
    slurm_shared.wait_state(job, "COMPLETED")
    bound = subprocess.run(["mount", "--bind", project.runs, project.runs], check=False).returncode == 0
    if not bound:
        pytest.skip("may not mount here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", project.runs], check=True)
        for args in (("queue",), ("status",), ("status", "a"), ("status", "b"), ("log", "a"), ("queue", "--json")):
            project.gpuq(*args).ok()
        assert "not every record could be brought up to date" in project.gpuq("status", "b").stderr
        assert "Read-only" in project.gpuq("submit", "a").exits(8).stderr
        assert "Read-only" in project.gpuq("wait", "b").exits(8).stderr
    finally:
        subprocess.run(["umount", project.runs], check=True)
    project.gpuq("wait", "b").ok()
