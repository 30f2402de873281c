"""Who runs gpuq, and where."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpuq.adapters.machine import with_gpuq_on_path


def program(directory: Path, name: str) -> Path:
    directory.mkdir(exist_ok=True)
    made = directory / name
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    return made


def test_a_job_finds_gpuq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = program(tmp_path / "venv", "python")
    monkeypatch.setattr(sys, "executable", str(python))
    empty = {"PATH": f"{tmp_path}/none:/nowhere", "A": "1"}
    assert with_gpuq_on_path(empty) == empty  # this Python has none either
    program(tmp_path / "venv", "gpuq")
    assert with_gpuq_on_path(empty) == {"PATH": f"{tmp_path}/none:/nowhere:{tmp_path}/venv", "A": "1"}
    program(tmp_path / "none", "gpuq")
    assert with_gpuq_on_path(empty) is empty
