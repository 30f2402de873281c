"""`gpuq gpu` on hosts without Slurm, without a GPU, and with a GPU that does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuq.core.gpu.readings import Trouble
from tests.gpuq_cli import Project
from tests.nvml import CARD, Stage, build

KEYS = {
    "schema", "trouble", "found", "advice", "driver", "devices", "simulated", "gpus", "jobs", "leftovers", "errors",
    "notes",
}  # fmt: skip
GPU = {
    "index", "name", "uuid", "device", "verdict", "words", "trouble", "advice", "memory_total", "memory_used",
    "memory_free", "utilization", "temperature", "power", "mig", "processes",
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """On a host without Slurm."""
    made = Project(tmp_path / "project", config="")
    place = tmp_path / "bin"
    place.mkdir()
    (place / "env").symlink_to("/usr/bin/env")
    made.env = {"PATH": str(place)}
    return made


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pynvml", reason="not installed: nvidia-ml-py (pip install gpuq-slurm[dev])")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def stage(library: Path, tmp_path: Path) -> Stage:
    return Stage(library, tmp_path / "scenario")


def test_without_slurm_the_gpu_is_shown_all_the_same(project: Project, stage: Stage) -> None:
    ran = project.gpuq("gpu", "--json", env=stage.play(CARD)).ok()
    assert ran.stderr == ""
    found = ran.json
    assert set(found) == KEYS
    (card,) = found["gpus"]
    assert set(card) == GPU
    assert card["device"] == "/dev/nvidia0"
    assert (card["memory_used"], card["power"], card["mig"]) == (8 * 1024**3, 320.456, None)
    assert found["jobs"] is None
    assert "not installed" in found["notes"][0]


def test_what_is_not_told_is_said_to_be_so(project: Project, stage: Stage) -> None:
    out = project.gpuq("gpu", env=stage.play("device NVIDIA GB10\nmig 1\n")).ok().stdout
    assert "GPU 0: NVIDIA GB10, driver 550.54.14" in out
    assert "memory not told, utilisation not told, temperature not told, power not told" in out
    assert "MIG" in out


@pytest.mark.parametrize(
    ("scenario", "trouble", "says"),
    [
        ("init 18\n", Trouble.MISMATCH, "reboot"),
        ("init 9\n", Trouble.NO_DRIVER, "modprobe nvidia"),
        ("", Trouble.NO_DEVICE, "lspci"),
        ("init 4\n", Trouble.NO_PERMISSION, "ls -l /dev/nvidia*"),
        ("init 999\n", Trouble.OTHER, "nvidia-smi"),
    ],
)
def test_a_driver_that_does_not_answer(
    project: Project, stage: Stage, scenario: str, trouble: Trouble, says: str
) -> None:
    env = stage.play(scenario)
    out = project.gpuq("gpu", env=env).ok().stdout
    assert says in out.split("to do: ")[1]
    assert project.gpuq("gpu", "--json", env=env).ok().json["trouble"] == trouble


def test_a_gpu_that_has_fallen_off_the_bus(project: Project, stage: Stage) -> None:
    out = project.gpuq("gpu", env=stage.play("device x\nhandle 15\n")).ok().stdout
    assert "fallen off the bus" in out
    assert "to do: switch the machine off" in out


def test_without_the_binding(project: Project, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/pynvml.py").write_text("raise ImportError('not installed')")
    env = {"PYTHONPATH": f"{tmp_path / 'broken'}:{Path(__file__).parent.parent}"}
    assert "pip install 'gpuq-slurm[nvml]'" in project.gpuq("gpu", env=env).ok().stdout
