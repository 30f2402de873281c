"""`gpuq new`, `diff`, `results` and `submit --check` where no Slurm is needed: records as they lie on disk."""

from __future__ import annotations

import csv
import datetime
import io
import os
import sys
from pathlib import Path

import msgspec
import pytest

from gpuq.core.attempt import Ended, Outcome, Record, Request
from gpuq.core.batch import job_environment
from gpuq.core.experiment.provenance import LockFile, Provenance
from gpuq.core.memory.values import MemorySummary
from gpuq.core.script import with_requeue_separator, without_requeue_separator
from tests import DATA
from tests.fake_slurm import FakeSlurm
from tests.gpuq_cli import Project, until

START = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.UTC)
GIB = 1 << 30


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project")
    made.env["PATH"] = FakeSlurm(tmp_path / "fake", (DATA / "slurm/25.11/scontrol-show-partition.txt").read_text()).path
    return made


def attempt(
    project: Project,
    tag: str,
    number: int = 1,
    *,
    outcome: Outcome = Outcome.SUCCEEDED,
    score: float | None = None,
    seconds: int = 60,
    held: int | None = None,
    provenance: Provenance | None = None,
    asked_score: str | None = None,
) -> None:
    """An ended attempt of a run, with the script as it is now."""
    place = project.runs / tag / "slurm"
    place.mkdir(exist_ok=True)
    script = with_requeue_separator((project.runs / tag / "job.sh").read_text(), "/bin/bash")
    (place / f"attempt{number}.sh").write_text(script)
    record = Record(
        tag=tag,
        attempt=number,
        token=f"{number:016x}",
        request=Request(cpus=1, memory=GIB, score=asked_score),
        argv=(),
        script=str(place / f"attempt{number}.sh"),
        script_sha256="",
        log=str(place / f"attempt{number}.out"),
        project=str(project.root),
        user="u",
        uid=os.geteuid(),
        host="h",
        reserved=START,
        job_id=100 + number,
        memory=None if held is None else MemorySummary(held=held),
        provenance=provenance,
        ended=Ended(
            outcome=outcome,
            state="COMPLETED",
            start=START,
            end=START + datetime.timedelta(seconds=seconds),
            score=score,
        ),
    )
    (place / f"attempt{number}.json").write_bytes(msgspec.json.encode(record))


def test_a_script_comes_out_of_its_copy_as_it_went_in() -> None:
    for text in (
        "#!/bin/bash\n\n# c\nset -e\ntrue\n",
        "#!/bin/bash\n# nothing\n",
        "",
        "#!/bin/bash\n  if x; then y; fi",
    ):
        assert without_requeue_separator(with_requeue_separator(text, "bash")) == text
        assert without_requeue_separator(text) == text


def test_what_was_not_asked_for_is_refused_and_nothing_is_made(project: Project) -> None:
    project.run(
        "base", 'LR=1\nLR=2\nWD=3\nexec python train.py --lr "$LR" runs/base/in.txt "$GPUQ_RUN_DIR/config.yaml"'
    )
    project.run("py", "lr=3", shebang="#!/usr/bin/env python3")
    attempt(project, "base", outcome=Outcome.FAILED)
    before = project.listing()
    for args, code, says in (
        (("new", "x", "--from", "nope", "WD=4"), 6, "there is no run nope"),
        (("new", "../x", "--from", "base", "WD=4"), 2, "leaves the runs root"),
        (("new", "runs/x", "--from", "base", "WD=4"), 2, "the TAG of that path is x"),
        (("new", "x", "--from", "base", "WD=4"), 5, "has never succeeded"),
        (
            ("new", "x", "--from", "base", "LR=4", "--unproven"),
            2,
            "in 2 places (runs/base/job.sh:2, runs/base/job.sh:3)",
        ),
        (("new", "x", "--from", "base", "WD=4", "LR=5", "--unproven"), 2, "--allow 2"),
        (("new", "x", "--from", "base", "--alow", "2", "WD=4"), 2, "write KEY=VALUE"),
        (("new", "x", "--from", "py", "lr=4", "--unproven"), 2, "shell scripts alone"),
        (("new", "base", "--from", "base", "WD=4", "--unproven"), 2, "exists already"),
    ):
        assert says in project.gpuq(*args).exits(code).stderr
        assert project.listing() == before
    config = project.runs / "base" / "config.yaml"
    config.touch()
    os.utime(config, (0, 0))
    attempt(project, "base", 2)
    ran = project.gpuq("new", "x/y", "--from", "base", "WD=4", "--dry-run").ok()
    assert "job.sh:5 names runs/base" in ran.stderr
    assert "uses config.yaml of its run directory" in ran.stderr
    assert not (project.runs / "x").exists()
    (project.runs / "x").write_text("in the way")
    assert "Not a directory" in project.gpuq("new", "x/y", "--from", "base", "WD=4").exits(8).stderr
    (project.runs / "x").unlink()
    made = project.gpuq("new", "x/y", "--from", "base", "WD=a b", "--train=1", "--json", "--allow", "2").exits(2)
    assert "has no variable or option --train" in made.stderr
    made = project.gpuq("new", "x/y", "--from", "base", "WD=a b", "--json").ok()
    assert made.json["attempt"] == 2
    assert made.json["changes"] == [{"key": "WD", "old": "3", "new": "a b", "line": 4}]
    assert "WD='a b'\n" in (project.runs / "x" / "y" / "job.sh").read_text()
    assert os.access(project.runs / "x" / "y" / "job.sh", os.X_OK)


def test_a_file_that_is_no_origin_stops_only_what_needs_it(project: Project) -> None:
    project.run("a")
    attempt(project, "a", score=1.0)
    project.run("b")
    for text in ("{", '{"version": 99, "parent": "a", "attempt": 1, "changes": [], "script_sha256": ""}'):
        (project.runs / "b" / "origin.json").write_text(text)
        assert "origin.json" in project.gpuq("diff", "b").exits(8).stderr
        ran = project.gpuq("results").ok()
        assert "origin.json" in ran.stderr
        assert [line.split()[0] for line in ran.stdout.splitlines()] == ["TAG", "a"]
        project.gpuq("submit", "b", "--dry-run").ok()


def test_results_are_sorted_and_what_is_not_known_comes_last(project: Project) -> None:
    (project.root / "gpuq.toml").write_text('[results]\nscore = "cv.json:mean"\n')
    for tag, score, seconds, held in (("a", 0.5, 10, 2 * GIB), ("b/c", 0.75, 7200, None), ("b/d", None, 3, GIB)):
        project.run(tag)
        attempt(project, tag, score=score, seconds=seconds, held=held, asked_score="cv.json:mean")
        attempt(project, tag, 2, outcome=Outcome.TIMEOUT)
    project.run("late")  # its score was asked for when it had ended
    attempt(project, "late")
    (project.runs / "late" / "cv.json").write_text('{"mean": 0.6}')
    project.run("new")

    def order(*args: str) -> list[str]:
        return [run["tag"] for run in project.gpuq("results", "--json", *args).ok().json["runs"]]

    assert order() == ["a", "b/c", "b/d", "late", "new"]
    assert order("--sort", "score") == ["b/c", "late", "a", "b/d", "new"]
    assert order("--sort", "score", "--reverse") == ["a", "late", "b/c", "b/d", "new"]
    assert order("--sort", "time") == ["b/c", "late", "a", "b/d", "new"]
    assert order("--sort", "memory")[:2] == ["a", "b/d"]
    assert order("b") == ["b/c", "b/d"]
    assert "there is no run at or below bb" in project.gpuq("results", "bb").exits(6).stderr
    table = project.gpuq("results").ok().stdout.splitlines()
    assert table[2].split() == ["b/c", "1", "(2:", "TIMEOUT)", "0.75", "SUCCEEDED", "2h"]
    assert project.gpuq("results", "b/c", "--json").ok().json["runs"][0]["latest_outcome"] == "TIMEOUT"
    (shown,) = (
        run["attempts"][0] for run in project.gpuq("status", "--json").ok().json["runs"] if run["tag"] == "late"
    )
    assert shown["score"] == 0.6  # as results has it
    assert table[5].split() == ["new", "never", "submitted"]
    rows = list(csv.DictReader(io.StringIO(project.gpuq("results", "--csv").ok().stdout)))
    assert (rows[0]["elapsed"], rows[0]["memory_held"], rows[0]["end"]) == (
        "10",
        str(2 * GIB),
        "2026-11-29T12:00:10+00:00",
    )
    assert rows[4]["attempt"] == ""
    project.gpuq("results", "--csv", "--json").exits(2)


def test_two_runs_side_by_side(project: Project) -> None:
    project.run("a", "LR=1\ntrue")
    attempt(
        project, "a", score=0.5, provenance=Provenance(locks=(LockFile("uv.lock", "a" * 64),), gpu="X", slurm="22.05.8")
    )
    project.run("b", "LR=2\ntrue")
    attempt(project, "b", score=0.75, provenance=Provenance(locks=(LockFile("uv.lock", "b" * 64),), gpu="X"))
    attempt(project, "b", 2, outcome=Outcome.FAILED)
    out = project.gpuq("diff", "a", "b").ok().stdout
    lines = [line.split() for line in out.splitlines()]
    assert ["a", "attempt", "1", "b", "attempt", "2"] in lines
    assert ["outcome", "SUCCEEDED", "FAILED"] in lines
    assert ["uv.lock", "a" * 12, "-"] in lines
    assert ["-LR=1"] in lines
    assert "cpus" not in out
    assert "cpus" in project.gpuq("diff", "a", "b", "--all").ok().stdout
    assert "the scripts are the same" in project.gpuq("diff", "b", "b").ok().stdout
    assert "was not made by gpuq new" in project.gpuq("diff", "a").exits(2).stderr
    assert "job 99999 is known neither" in project.gpuq("diff", "99999", "a").exits(6).stderr
    own = project.gpuq("diff", "b").ok().stdout  # its latest attempt, with the last before that succeeded
    assert ["b", "attempt", "1", "b", "attempt", "2"] in [line.split() for line in own.splitlines()]
    for tag, number, sha in (("a", 2, "1"), ("b", 3, "1"), ("b", 4, "2")):  # each attempt has a file of its own
        diff = str(project.runs / tag / "slurm" / f"attempt{number}.diff")
        attempt(project, tag, number, provenance=Provenance(diff=diff, diff_sha256=sha * 64))
    facts = {fact["name"]: fact for fact in project.gpuq("diff", "a", "b", "--json").ok().json["facts"]}
    assert facts["uncommitted"]["differs"]
    (project.runs / "b" / "slurm" / "attempt4.json").unlink()
    facts = {fact["name"]: fact for fact in project.gpuq("diff", "a", "b", "--json").ok().json["facts"]}
    assert not facts["uncommitted"]["differs"]
    project.run("never", "LR=3\ntrue")
    assert "+LR=3" in project.gpuq("diff", "a", "never").ok().stdout
    (project.runs / "empty").mkdir()
    project.gpuq("diff", "a", "empty").exits(6)


CHECKED = '[[ -z ${GPUQ_CHECK:-} ]] || { echo "gpu=<$CUDA_VISIBLE_DEVICES> $GPUQ_TAG" >&2; exit 3; }\ntrue'


def test_a_run_is_tried_before_it_is_submitted(project: Project) -> None:
    project.run("a", CHECKED)
    project.run("blind")
    project.run("slow", "sleep 60 # GPUQ_CHECK is not heeded")
    before = project.listing()
    ran = project.gpuq("submit", "a", "--check").exits(5)
    assert "failed (exit code 3)" in ran.stderr
    assert "  gpu=<> a" in ran.stderr
    assert "there is nothing to check blind with" in project.gpuq("submit", "blind", "--check").exits(5).stderr
    config = project.root / "gpuq.toml"
    config.write_text("[check]\nalways = true\nseconds = 1\n")
    assert "was not done after 1 s" in project.gpuq("submit", "slow").exits(5).stderr
    config.write_text('[check]\ncommand = "test $GPUQ_TAG = a || exit 4"\n')
    assert "(exit code 4)" in project.gpuq("chain", "a", "blind", "--check").exits(5).stderr
    assert project.listing() == before
    assert "checked in" in project.gpuq("submit", "a", "--check", "--dry-run").ok().stderr
    project.gpuq("submit", "a").ok()
    config.write_text('[check]\nalways = "yes"\n')
    assert "must be true or false" in project.gpuq("submit", "a").exits(3).stderr


def test_a_check_leaves_no_file_behind(project: Project) -> None:
    project.run("a", f'[[ -n ${{GPUQ_CHECK:-}} ]] || exit 1\n{sys.executable} -c "import module"')
    (project.root / "module.py").touch()
    before = sorted(project.root.rglob("*"))
    assert "checked in" in project.gpuq("submit", "a", "--check", "--dry-run").ok().stderr
    assert sorted(project.root.rglob("*")) == before


def test_a_check_leaves_no_process_behind(project: Project) -> None:
    project.run(
        "a", 'if [[ -n ${GPUQ_CHECK:-} ]]; then sleep 300 &> /dev/null & echo $! > "$GPUQ_PROJECT/pid"; exit; fi'
    )
    project.gpuq("submit", "a", "--check", "--dry-run").ok()
    left = Path(f"/proc/{(project.root / 'pid').read_text().strip()}/cmdline")

    def gone() -> bool:
        try:
            return not left.read_bytes()  # a zombie has none
        except OSError:
            return True

    until(gone, lambda: left)


def test_a_job_is_no_check_whatever_the_shell_has_set(project: Project) -> None:
    project.run("a")
    attempt(project, "a")
    environment = job_environment({"GPUQ_CHECK": "1", "X": "y"}, project.record("a"), "/runs/a")
    assert "GPUQ_CHECK" not in environment
    assert environment["X"] == "y"
    project.gpuq("status", env={"GPUQ_CHECK": "1"}).ok()


def test_a_snapshot_needs_a_commit(project: Project) -> None:
    project.run("a")
    before = project.listing()
    assert "freezes a git commit" in project.gpuq("submit", "a", "--snapshot").exits(5).stderr
    assert project.listing() == before


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("gpuq run -- python train.py", "job.sh:2 calls gpuq run without exec"),
        ("gpuq run -- python train.py 2>&1 | tee log", "job.sh:2 calls gpuq run without exec"),
        ("exec gpuq run -- python train.py", ""),
        ("gpuq run -- python prepare.py\nexec gpuq run -- python train.py", ""),
        ("trap 'kill $!' TERM\ngpuq run -- python train.py &\nwait", ""),
        ("echo 'gpuq run -- x' # gpuq run", ""),
    ],
)
def test_a_program_that_would_hear_no_signal_is_told_of(project: Project, script: str, told: str) -> None:
    project.run("a", script)
    found = project.gpuq("submit", "a", "--dry-run").ok().stderr
    assert told in found
    assert ("without exec" in found) == bool(told)
