"""gpuq as another user runs it. This checkout, and the Python that runs the tests, may lie where only root can look."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import psutil
import pytest

SOURCE = Path(__file__).resolve().parent.parent


def public_copy(place: Path, user: str) -> tuple[str, str]:
    """Copy gpuq, tests/embedded.py and what they import below `place`; (python, PYTHONPATH) for `user`.

    Skips the test when this host has no Python of this version that `user` may run.
    """
    code = place / "code"
    (code / "tests").mkdir(parents=True)
    shutil.copytree(SOURCE / "gpuq", code / "gpuq", ignore=shutil.ignore_patterns("__pycache__"))
    (code / "tests" / "__init__.py").touch()
    shutil.copy(SOURCE / "tests" / "embedded.py", code / "tests")
    for module in (click, msgspec, psutil):
        package = Path(str(module.__file__)).parent
        shutil.copytree(package, code / package.name, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    for path in (place, code, *code.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/python{version}"):
        argv = [
            shutil.which("runuser") or "runuser",
            "-u",
            user,
            "--",
            python,
            "-c",
            "import gpuq, click, msgspec, psutil",
        ]
        ran = subprocess.run(argv, env={"PYTHONPATH": str(code)}, cwd="/", capture_output=True, check=False)
        if ran.returncode == 0:
            return python, str(code)
    pytest.skip(f"no Python {version} here that {user} may run")
