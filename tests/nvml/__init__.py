"""A C library in the place of NVIDIA's, for tests: built once a session, told by a file what to play."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")

CARD = """\
device NVIDIA GeForce RTX 4090
uuid GPU-5e1f9a70-8a3c-4b2d-9c1e-0f6d2b7a9c31
total 25757220864
used 8589934592
free 16715939840
gpu 97
temp 61
power 320456
minor 0
"""
"""A GPU at work. What is missing here does not exist on it: MIG."""


def build(place: Path, *defines: str) -> Path:
    """The directory with libnvidia-ml.so.1, for LD_LIBRARY_PATH. defines: OLD, V2 (see the source)."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (apt-get install gcc libc6-dev)")
    directory = place / "-".join(["nvml", *defines])
    library = directory / "libnvidia-ml.so.1"
    if not library.exists():
        directory.mkdir(parents=True, exist_ok=True)
        options = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", *[f"-D{one}" for one in defines]]
        subprocess.run([compiler, *options, "-o", library, SOURCE], check=True, timeout=60)
    return directory


class Stage:
    """A scenario, and the environment in which a program sees it."""

    def __init__(self, library: Path, scenario: Path) -> None:
        self._library = library
        self._scenario = scenario

    def play(self, text: str) -> Mapping[str, str]:
        """From now on this; what is to be added to the environment of a program."""
        self._scenario.write_text(text)
        return {"LD_LIBRARY_PATH": os.fspath(self._library), "FAKE_NVML": os.fspath(self._scenario)}
