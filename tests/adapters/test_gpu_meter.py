"""The meter that the memory sampler reads the GPU with, over the library that plays a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpuq_cli import SOURCE
from tests.nvml import CARD, Stage, build

_ASK = """
import json
from gpuq.adapters.gpu import Meter
meter = Meter()
print(json.dumps([meter.open(), meter.read(), meter.read()]))
meter.close()
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pynvml", reason="not installed: nvidia-ml-py (pip install gpuq-slurm[dev])")
    return build(tmp_path_factory.mktemp("nvml"))


def meter(library: Path, tmp_path: Path, scenario: str) -> Any:
    played = Stage(library, tmp_path / "scenario").play(scenario)
    env = {**os.environ, "PYTHONPATH": str(SOURCE), **played}
    ran = subprocess.run([sys.executable, "-c", _ASK], env=env, capture_output=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    return json.loads(ran.stdout)


def test_the_one_gpu_of_a_host(library: Path, tmp_path: Path) -> None:
    assert meter(library, tmp_path, CARD) == [True, [8589934592, 97], [8589934592, 97]]


def test_of_two_nothing_can_be_said(library: Path, tmp_path: Path) -> None:
    assert meter(library, tmp_path, CARD + CARD) == [False, [None, None], [None, None]]


def test_a_gpu_that_tells_little(library: Path, tmp_path: Path) -> None:
    assert meter(library, tmp_path, "device NVIDIA GB10\n") == [True, [None, None], [None, None]]
