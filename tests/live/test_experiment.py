"""Experiments by one variable on a real Slurm: copied from what succeeded, frozen where that is wanted, told where not."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.embedded import Embedded
from tests.gpuq_cli import Project, until

pytestmark = pytest.mark.one_release

TRAIN = """
import json, os, sys
rate = float(sys.argv[sys.argv.index("--lr") + 1])
if os.environ.get("GPUQ_CHECK"):
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    raise SystemExit(0 if rate < 1 else f"--lr {rate} is no learning rate")
with open(os.path.join(os.environ["GPUQ_RUN_DIR"], "cv.json"), "w") as file:
    json.dump({"mean": rate, "version": VERSION, "cwd": os.getcwd(), "data": open("data/x").read()}, file)
"""
JOB = """set -euo pipefail
LR=1e-3
cd "$GPUQ_PROJECT"
exec python3 train.py --lr "$LR\""""
CONFIG = """
[submit]
mem = "100M"
cpus = 1
time = "10"
[results]
files = ["cv.json"]
score = "cv.json:mean"
"""


def git(project: Project, *args: str) -> str:
    run = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *args]
    return subprocess.run(run, cwd=project.root, check=True, capture_output=True, text=True).stdout.strip()


def code(project: Project, version: int) -> None:
    (project.root / "train.py").write_text(TRAIN.replace("VERSION", str(version)))


def committed(tmp_path: Path) -> Project:
    """A project in git, with what git ignores, and a run `base` that is in it."""
    project = Project(tmp_path / "project", CONFIG)
    code(project, 1)
    (project.root / "data").mkdir()
    (project.root / "data" / "x").write_text("real")
    (project.root / "uv.lock").write_text("version = 1\n")
    (project.root / ".gitignore").write_text("data/\nruns/**/slurm/\nruns/**/cv.json\n")
    project.run("base", JOB)
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "one")
    return project


def result(project: Project, tag: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((project.runs / tag / "cv.json").read_text())
    return found


def test_one_variable_from_the_proven_run_to_the_table_of_results(slurm_shared: Embedded, tmp_path: Path) -> None:
    project = committed(tmp_path)
    assert "has never succeeded" in project.gpuq("new", "next", "--from", "base", "LR=3e-4").exits(5).stderr
    assert project.listing() == ["base", "base/job.sh"]
    project.submit("base")
    assert project.ended("base").outcome == "SUCCEEDED"
    record = project.record("base")
    assert record.provenance is not None
    assert (record.git_dirty, record.provenance.diff, record.provenance.untracked) == (False, None, ())
    assert [lock.name for lock in record.provenance.locks] == ["uv.lock"]
    assert record.provenance.slurm is not None
    assert record.provenance.slurm[:2].isdigit()

    # what succeeded is copied, not what job.sh has become
    project.run("base", JOB.replace("exec", "false; exec"), config="[submit]\nnice = 5\n")
    ran = project.gpuq("new", "dino/lr", "--from", "base", "LR=3e-4").ok()
    assert "has changed since attempt 1 succeeded" in ran.stderr
    made = project.runs / "dino" / "lr"
    assert (made / "job.sh").read_text() == f"#!/bin/bash\n{JOB}\n".replace("LR=1e-3", "LR=3e-4")
    assert (made / "run.toml").read_text() == "[submit]\nnice = 5\n"
    assert sorted(path.name for path in made.iterdir()) == ["job.sh", "origin.json", "run.toml"]
    assert "exists already" in project.gpuq("new", "dino/lr", "--from", "base", "LR=1").exits(2).stderr

    # the check: arguments only, no GPU; and a script that lost its last line
    project.gpuq("new", "bad", "--from", "base", "LR=7").ok()
    ran = project.gpuq("submit", "bad", "--check").exits(5)
    assert "failed (exit code 1)" in ran.stderr
    assert "--lr 7.0 is no learning rate" in ran.stderr
    (project.runs / "bad" / "job.sh").write_text("#!/bin/bash\nLR=7\n")
    assert "would end without having run anything" in project.gpuq("submit", "bad", "--check").exits(5).stderr
    assert "would end without having run anything" in project.gpuq("submit", "bad", "--dry-run").ok().stderr
    assert project.numbers("bad") == []

    # the code is edited in between: kept, told, shown
    code(project, 2)
    (project.root / "helper.py").write_text("")
    assert "checked in " in project.gpuq("submit", "dino/lr", "--check", "--wait").ok().stderr
    dirty = project.record("dino/lr").provenance
    assert dirty is not None
    assert dirty.diff == str(made / "slurm" / "attempt1.diff")
    assert '+    json.dump({"mean": rate, "version": 2' in Path(dirty.diff).read_text()
    assert dirty.untracked == ("helper.py",)
    found = project.gpuq("diff", "dino/lr", "--json").ok().json
    assert found["code"] == ["train.py"]
    assert [line for line in found["script"] if line[0] in "+-" and line[:3] not in {"+++", "---"}] == [
        "-LR=1e-3",
        "+LR=3e-4",
    ]
    facts = {fact["name"]: fact for fact in found["facts"]}
    assert (facts["score"]["a"], facts["score"]["b"], facts["uv.lock"]["differs"]) == ("0.001", "0.0003", False)
    shown = project.gpuq("diff", "base", "dino/lr").ok().stdout
    assert "code differs: train.py" in shown
    assert "uv.lock" not in shown
    project.run("base", JOB)
    (project.root / "gpuq.toml").write_text((project.root / "gpuq.toml").read_text() + "# edited, and no code\n")
    (project.root / "ops").mkdir(exist_ok=True)
    (project.root / "ops" / "decisions.md").write_text("decided before every submission: no code\n")
    told = project.gpuq("submit", "base").ok().stderr
    first, second = (project.record("base", number).job_id for number in (1, 2))
    how = f"gpuq diff {first} {second}"
    assert f"the code has changed since attempt 1 succeeded (train.py); {how} shows how" in told
    assert "code differs: train.py\n" in project.gpuq(*how.split()[1:]).ok().stdout
    project.ended("base", 2)

    table = project.gpuq("results", "--sort", "score").ok().stdout.splitlines()
    assert [line.split()[0] for line in table] == ["TAG", "base", "dino/lr", "bad"]
    assert "LR=3e-4" in table[2]
    assert "LR=7 (edited)" in table[3]
    rows = list(csv.DictReader(io.StringIO(project.gpuq("results", "dino", "--csv").ok().stdout)))
    assert [(row["tag"], row["parent"], row["change"], row["score"]) for row in rows] == [
        ("dino/lr", "base", "LR=3e-4", "0.0003")
    ]
    assert project.gpuq("results", "--json", "--sort", "score").ok().json["runs"][0]["attempt"] == 2


def test_what_waits_is_frozen_in_a_snapshot_and_marked_without(slurm_shared: Embedded, tmp_path: Path) -> None:
    project = committed(tmp_path)
    for tag in ("plain", "frozen"):
        project.run(tag, JOB)
    code(project, 2)  # not committed, and in the snapshot all the same
    (project.root / "new.py").write_text("")
    project.gpuq("submit", "plain", "--hold").ok()
    ran = project.gpuq("submit", "frozen", "--hold", "--snapshot").ok()
    assert ran.stderr == ""
    provenance = project.record("frozen").provenance
    assert provenance is not None
    assert provenance.snapshot is not None
    copy = Path(provenance.snapshot)
    assert copy.is_dir()
    assert (copy / "new.py").exists()
    assert (copy / "runs" / "frozen").resolve() == project.runs / "frozen"

    def marks() -> dict[str, list[str]]:
        return {job["tag"]: job["edited"] for job in project.gpuq("queue", "--json").ok().json["jobs"]}

    assert marks() == {"plain": [], "frozen": []}
    code(project, 3)
    (project.root / "new.py").write_text("# edited")
    project.run("plain", "echo another")
    assert marks() == {"plain": ["new.py", "train.py", "job.sh"], "frozen": []}
    assert "edited since: new.py, train.py and 1 more" in project.gpuq("queue").ok().stdout
    git(project, "commit", "-q", "-am", "two")  # the work tree is clean again, and still another one
    assert marks()["plain"] == ["new.py", "train.py", "job.sh"]
    code(project, 2)  # as it was submitted, whatever was committed meanwhile
    assert marks()["plain"] == ["new.py", "job.sh"]
    code(project, 3)

    project.gpuq("release", "plain", "frozen").ok()
    project.gpuq("wait", "plain", "frozen").ok()
    assert (result(project, "plain")["version"], result(project, "frozen")["version"]) == (3, 2)
    frozen = result(project, "frozen")
    assert (frozen["cwd"], frozen["data"]) == (str(copy), "real")
    assert project.record("frozen").ended is not None
    assert not copy.exists()
    assert git(project, "worktree", "list").count("\n") == 0
    assert (project.root / "data" / "x").read_text() == "real"

    # what a job writes into the copy is kept
    project.run("writes", f"echo 7 > weights.bin; echo 8 >> train.py\n{JOB}")
    ran = project.gpuq("submit", "writes", "--snapshot", "--wait").ok()
    left = project.runs / "writes" / "slurm" / "attempt1.left"
    assert f"wrote train.py, weights.bin into its snapshot: 2 files moved to {left}" in ran.stderr
    assert (left / "weights.bin").read_text() == "7\n"
    assert f"left     {left}" in project.gpuq("status", "writes").ok().stdout

    # code that was committed between two submissions is the same code
    code(project, 9)
    jobs = [project.submit("plain", "--hold")]
    git(project, "commit", "-q", "-am", "nine")
    jobs.append(project.submit("plain", "--hold"))
    code(project, 10)
    jobs.append(project.submit("plain", "--hold"))
    names = [project.gpuq("diff", str(a), str(b), "--json").ok().json["code"] for a, b in pairwise(jobs)]
    assert names == [[], ["train.py"]]
    project.gpuq("cancel", *map(str, jobs)).ok()

    # cancelled before it began, and refused: nothing stays
    project.gpuq("submit", "frozen", "--hold", "--snapshot").ok()
    project.gpuq("cancel", "frozen").ok()
    until(lambda: project.gpuq("wait", "frozen", "--timeout", "5").code == 23, lambda: project.record("frozen", 2))
    project.wrap("sbatch", "echo 'sbatch: error: no' >&2; exit 1")
    project.gpuq("submit", "frozen", "--snapshot").exits(5)
    project.unwrap()
    assert not (project.runs / ".gpuq" / "snapshots").exists()
    assert git(project, "worktree", "list").count("\n") == 0
    assert project.numbers("frozen") == [1, 2]


def test_without_git_the_files_that_job_sh_names_are_watched(slurm_shared: Embedded, project: Project) -> None:
    (project.root / "train.py").write_text("")
    project.run("a", "python train.py")
    project.gpuq("submit", "a", "--hold").ok()
    provenance = project.record("a").provenance
    assert provenance is not None
    assert provenance.untracked == ("train.py",)
    assert project.gpuq("queue", "--json").ok().json["jobs"][0]["edited"] == []
    later = project.record("a").reserved.timestamp() + 5
    os.utime(project.root / "train.py", (later, later))
    assert project.gpuq("queue", "--json").ok().json["jobs"][0]["edited"] == ["train.py"]
