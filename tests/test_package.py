"""The package as it is installed: a wheel under its own name, with the command and the type marker."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from gpuq import __version__
from tests.gpuq_cli import SOURCE


def run(*argv: str, cwd: Path, **env: str) -> str:
    """Standard output of a program that must succeed."""
    done = subprocess.run(argv, cwd=cwd, env=env or None, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_wheel_can_be_built_and_run(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), cwd=SOURCE)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"gpuq_slurm-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    assert {"gpuq/py.typed", "gpuq/templates/agents.md", "gpuq/templates/job/uv.sh"} <= names
    assert {name.split("/")[0] for name in names} == {"gpuq", f"gpuq_slurm-{__version__}.dist-info"}
    entry = (tmp_path / "site" / f"gpuq_slurm-{__version__}.dist-info" / "entry_points.txt").read_text()
    assert "gpuq = gpuq.__main__:run" in entry
    shown = run(sys.executable, "-P", "-m", "gpuq", "--version", cwd=tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert shown == f"gpuq, version {__version__}\n"
