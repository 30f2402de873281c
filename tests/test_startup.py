"""Start-up is part of the product. What a command imports is what it costs; so it is counted here, without a clock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import DATA
from tests.fake_slurm import FakeSlurm
from tests.gpuq_cli import SOURCE, Project

WATCHED = """
import json, subprocess, sys
before = set(sys.modules)
first = []
def watch(event, args):
    if event == "subprocess.Popen":
        first.append([args[0], "msgspec" in sys.modules])
sys.addaudithook(watch)
from gpuq.cli.main import _run
code = _run(sys.argv[2:])
with open(sys.argv[1], "w") as out:
    json.dump({"code": code, "modules": sorted(set(sys.modules) - before), "started": first}, out)
"""
"""Runs one command line and notes which modules came in, and which programs were started before msgspec was there."""

HEAVY = {
    "click",  # reads what is out of the ordinary, and prints help
    "inspect",
    "ast",
    "tokenize",
    "dataclasses",  # imports inspect
    "typing_extensions",  # imports inspect, and is not needed
    "hashlib",  # loads OpenSSL
    "ssl",
    "random",
    "secrets",
    "json",
    "tomllib",
    "difflib",
    "shutil",
    "tempfile",
    "logging",
    "argparse",
    "email",
    "http",
    "asyncio",
    "concurrent.futures",
    "multiprocessing",
    "sqlite3",
    "unicodedata",
    "importlib.metadata",
    "importlib.resources",
    "zoneinfo",
    "psutil",
    "pynvml",
    "pyslurm",
    "rich",
    "watchdog",
    "discord_webhook",
    "apprise",
}
"""None of these is for a submission or a look at the queue that goes well."""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    fake = FakeSlurm(tmp_path / "fake", (DATA / "slurm/25.11/scontrol-show-partition.txt").read_text())
    made = Project(tmp_path / "project", config=None)
    (made.root / "gpuq.toml").touch()
    made.env = {"PATH": fake.path, "SLURM_CONF": str(tmp_path / "slurm.conf"), "GPUQ_BACKEND": "commands"}
    (tmp_path / "slurm.conf").touch()
    made.run("a")
    return made


def watched(project: Project, *args: str) -> dict[str, Any]:
    """What one call of gpuq imported and started."""
    out = project.root / "watched.json"
    ran = subprocess.run(
        [sys.executable, "-c", WATCHED, str(out), *args],
        cwd=project.root,
        env={"PYTHONPATH": str(SOURCE), "HOME": str(project.root), **project.env},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(out.read_text())
    assert found["code"] == 0, ran.stderr
    return found


def own(modules: list[str]) -> list[str]:
    return [name for name in modules if name.split(".")[0] == "gpuq"]


@pytest.mark.parametrize(
    ("args", "most"),
    [
        (("submit", "a", "--dry-run"), 52),
        (("submit", "a", "--mem", "2G", "--time", "8:00:00"), 52),
        (("queue",), 48),
        (("queue", "--all", "--json"), 48),
        (("status", "a"), 46),
        (("status",), 46),
    ],
    ids=str,
)
def test_what_is_typed_all_day_imports_little(project: Project, args: tuple[str, ...], most: int) -> None:
    modules = watched(project, *args)["modules"]
    assert sorted(HEAVY & set(modules)) == []
    assert len(own(modules)) <= most, own(modules)
    assert len(modules) <= 150, modules


def test_help_imports_click_and_no_work(project: Project) -> None:
    modules = watched(project, "--help")["modules"]
    assert own(modules) == ["gpuq", "gpuq.cli", "gpuq.cli.group", "gpuq.cli.main", "gpuq.cli.plain", "gpuq.errors"]
    assert sorted((HEAVY - {"click", "inspect", "ast", "tokenize", "shutil", "dataclasses"}) & set(modules)) == []
    assert "msgspec" not in modules


@pytest.mark.parametrize(
    ("args", "programs"),
    [
        (("submit", "a", "--dry-run"), ["scontrol", "sinfo"]),
        (("submit", "a"), ["scontrol", "sinfo"]),
        (("queue",), ["squeue"]),
        (("queue", "--all", "--json"), ["squeue"]),
    ],
    ids=str,
)
def test_slurm_is_asked_before_anything_is_imported_that_can_wait(
    project: Project, args: tuple[str, ...], programs: list[str]
) -> None:
    started = watched(project, *args)["started"]
    assert [program for program, there in started if not there] == programs


def test_a_submission_asks_slurm_no_more_often_than_it_must(project: Project) -> None:
    started = [Path(program).name for program, _ in watched(project, "submit", "a")["started"]]
    assert started == ["scontrol", "sinfo", "bash", "git", "sbatch", "squeue"]


def test_a_queue_is_one_question(project: Project) -> None:
    watched(project, "submit", "a")
    assert [program for program, _ in watched(project, "queue")["started"]] == ["squeue"]
