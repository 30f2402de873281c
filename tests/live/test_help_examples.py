"""The example in every command's --help does what it says when it is pasted as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpuq.cli.group import cli
from gpuq.cli.main import COMMANDS
from tests.embedded import Embedded
from tests.gpuq_cli import SOURCE, Project

RESULT = '[results]\nfiles = ["cv.json"]\nscore = "cv.json:mean"\n'
JOB = """HIDDEN=64
echo START
sleep 0.5
echo '{"mean": 0.97}' > "$GPUQ_RUN_DIR"/cv.json"""


def example(text: str | None) -> str:
    """The lines under `Example:` of a help text."""
    match = re.search(r"Example:\n(.*)", text or "", re.DOTALL)
    assert match, f"no example in {text!r}"
    return "\n".join(line.strip() for line in match[1].strip().splitlines())


WITHOUT_SLURM = {"init", "guard", "schema", "host", "lint-log", "notify"}
"""Commands that ask nothing of Slurm, or need what only the host of the tests has installed."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.one_release if name in WITHOUT_SLURM else ())
        for name in ("", *COMMANDS)
        if name != "local"
    ],
)
def test_the_example_works_as_it_stands(name: str, slurm_shared: Embedded, tmp_path: Path) -> None:
    project = Project(tmp_path / "project", RESULT)
    project.run("digits/baseline", JOB)
    project.run("digits/wide", JOB)
    if name in {"log", "status", "wait", "why", "resubmit", "new", "diff", "results"}:
        project.gpuq("chain", "digits/baseline", "digits/wide", "--wait").ok()
    if name == "lint-log":
        log = project.runs / "digits/baseline/slurm/attempt1.out"
        log.parent.mkdir()
        log.write_text("START device=none\nFINISHED exit=0\n")
    (project.root / "train.py").write_text("print('trained')")
    command = cli.get_command(None, name) if name else cli  # type: ignore[arg-type]
    assert command is not None
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    (bin_dir / "gpuq").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gpuq "$@"\n')
    (bin_dir / "gpuq").chmod(0o755)
    (bin_dir / "python").symlink_to(sys.executable)
    env = os.environ | {"PATH": f"{bin_dir}:{os.environ['PATH']}", "PYTHONPATH": str(SOURCE)}
    script = example(command.help)
    ran = subprocess.run(
        ["bash", "-ec", script], cwd=project.root, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    if name == "host" and not Path("/run/systemd/system").is_dir():
        assert ran.returncode == 9, ran
        assert "systemd does not run here" in ran.stderr
        return
    assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
    assert ran.stdout
