"""The real binding to NVML, over a library of our own that plays what a GPU may answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpuq.adapters import gpu
from gpuq.core.gpu.readings import GpuProcess, Reading, Trouble
from tests.gpuq_cli import SOURCE
from tests.nvml import CARD, Stage, build

_ASK = "import sys, msgspec; from gpuq.adapters import gpu; sys.stdout.buffer.write(msgspec.json.encode(gpu.read()))"

GIB = 1024**3


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pynvml", reason="not installed: nvidia-ml-py (pip install gpuq-slurm[dev])")
    return tmp_path_factory.mktemp("nvml")


def read(libraries: Path, tmp_path: Path, scenario: str, *defines: str) -> Reading:
    """What gpuq reads, in a process of its own: a library is loaded once in a process."""
    played = Stage(build(libraries, *defines), tmp_path / "scenario").play(scenario)
    return ask(dict(played))


def ask(env: dict[str, str], *flags: str) -> Reading:
    run = subprocess.run(
        [sys.executable, *flags, "-c", _ASK],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **env},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr.decode()
    return msgspec.json.decode(run.stdout, type=Reading)


def test_a_gpu_at_work(libraries: Path, tmp_path: Path) -> None:
    reading = read(libraries, tmp_path, CARD + f"compute 4711 {8 * GIB} -\ngraphics 900 100 -\ngraphics 4711 - -\n")
    assert reading.trouble is None
    assert reading.driver == "550.54.14"
    (one,) = reading.gpus
    assert one.name == "NVIDIA GeForce RTX 4090"
    assert one.uuid == "GPU-5e1f9a70-8a3c-4b2d-9c1e-0f6d2b7a9c31"
    assert (one.memory_total, one.memory_used, one.memory_free) == (25757220864, 8 * GIB, 16715939840)
    assert (one.utilization, one.temperature, one.power, one.minor, one.mig) == (97, 61, 320.456, 0, None)
    # one that computes and draws is one process
    assert one.processes == (GpuProcess(900, 100, True), GpuProcess(4711, 8 * GIB, True))


def test_what_a_gpu_does_not_have_is_none_and_never_0(libraries: Path, tmp_path: Path) -> None:
    (one,) = read(libraries, tmp_path, "device NVIDIA GB10\n").gpus
    assert one.name == "NVIDIA GB10"
    for value in (one.memory_total, one.memory_used, one.memory_free, one.utilization, one.temperature, one.power):
        assert value is None
    assert one.uuid is None
    assert one.minor is None
    assert one.mig is None
    assert one.processes == ()  # that is an answer: none


def test_a_value_of_0_is_a_value(libraries: Path, tmp_path: Path) -> None:
    (one,) = read(libraries, tmp_path, CARD.replace("gpu 97", "gpu 0").replace("temp 61", "temp 0")).gpus
    assert (one.utilization, one.temperature) == (0, 0)


def test_memory_of_a_process_that_is_not_told(libraries: Path, tmp_path: Path) -> None:
    (one,) = read(libraries, tmp_path, CARD + "compute 7 - -\n").gpus
    assert one.processes == (GpuProcess(7, None, False, None),)


def test_two_gpus_of_which_one_is_lost(libraries: Path, tmp_path: Path) -> None:
    for lost in ("handle 15\n", "all 15\n", "all 16\n"):
        reading = read(libraries, tmp_path, CARD + "device second\n" + lost)
        assert reading.trouble is None
        assert reading.gpus[0].trouble is None
        assert reading.gpus[1].trouble is Trouble.LOST
        assert reading.gpus[1].name is None
        assert reading.gpus[1].processes is None
    assert read(libraries, tmp_path, "device x\nhandle 15\n").gpus[0].detail == "GPU is lost"


@pytest.mark.parametrize(
    ("scenario", "trouble"),
    [
        ("", Trouble.NO_DEVICE),
        ("init 18\n", Trouble.MISMATCH),
        ("init 9\n", Trouble.NO_DRIVER),
        ("init 4\n", Trouble.NO_PERMISSION),
        ("init 999\n", Trouble.OTHER),
        ("count 15\n", Trouble.LOST),
    ],
)
def test_a_driver_that_does_not_answer(libraries: Path, tmp_path: Path, scenario: str, trouble: Trouble) -> None:
    reading = read(libraries, tmp_path, scenario)
    assert reading.trouble is trouble
    assert reading.gpus == ()


def test_the_drivers_own_words_are_kept(libraries: Path, tmp_path: Path) -> None:
    assert read(libraries, tmp_path, "init 999\n").detail == "Unknown Error"
    assert "version mismatch" in read(libraries, tmp_path, "init 18\n").detail


def test_an_old_driver_tells_no_processes(libraries: Path, tmp_path: Path) -> None:
    (one,) = read(libraries, tmp_path, CARD + "mig 1\ncompute 7 100 -\n", "OLD").gpus
    assert one.processes is None
    assert one.mig is None
    assert one.memory_total == 25757220864
    assert one.memory_used == 25757220864 - 16715939840  # its only version counts what the driver keeps
    assert one.utilization == 97


def test_a_driver_with_the_second_version_of_the_list_only(libraries: Path, tmp_path: Path) -> None:
    (one,) = read(libraries, tmp_path, CARD + "compute 7 100 -\n", "V2").gpus
    assert one.processes == (GpuProcess(7, 100, False),)


def test_a_gpu_split_into_instances(libraries: Path, tmp_path: Path) -> None:
    scenario = CARD.replace("gpu 97\n", "") + "mig 1\ncompute 7 100 1\ncompute 8 200 2\n"
    (one,) = read(libraries, tmp_path, scenario).gpus
    assert one.mig is True
    assert one.utilization is None
    assert one.processes == (GpuProcess(7, 100, False, 1), GpuProcess(8, 200, False, 2))
    assert read(libraries, tmp_path, CARD + "mig 0\n").gpus[0].mig is False


def test_a_list_that_grows_while_it_is_asked_for(libraries: Path, tmp_path: Path) -> None:
    (one,) = read(libraries, tmp_path, "device x\ngrow 1\ncompute 7 100 -\n").gpus
    assert one.processes == (GpuProcess(7, 100, False),)
    (one,) = read(libraries, tmp_path, "device x\ngrow 99\ncompute 7 100 -\n").gpus
    assert one.processes is None


def test_a_list_that_may_not_be_read(libraries: Path, tmp_path: Path) -> None:
    for code in (3, 4, 999):
        (one,) = read(libraries, tmp_path, f"device x\nnolist {code}\n").gpus
        assert one.processes is None
        assert one.trouble is None


def test_a_library_that_is_none(libraries: Path, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    assert ask({"LD_LIBRARY_PATH": str(tmp_path)}).trouble is Trouble.NO_LIBRARY


def test_without_the_binding(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('not installed')")
    assert ask({"PYTHONPATH": f"{tmp_path}:{SOURCE}"}).trouble is Trouble.NO_BINDING


def test_the_binding_is_loaded_only_when_it_is_asked() -> None:
    code = "import sys, gpuq.adapters.gpu, gpuq.usecases.gpu; print('pynvml' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=SOURCE)
    assert run.stdout.strip() == "False"


def test_device_files(tmp_path: Path) -> None:
    assert gpu.device_files(tmp_path / "none") == []
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert gpu.device_files(tmp_path) == [f"{tmp_path}/nvidia0", f"{tmp_path}/nvidia1"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.171.04  Tue Mar 19 20:30:00 UTC 2024\n", "535.171.04"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build  (x)\n", "550.54.14"),
        ("something else\n", None),
    ],
)
def test_the_version_of_the_kernel_module(tmp_path: Path, text: str, version: str | None) -> None:
    assert gpu.module_version(tmp_path) is None
    (tmp_path / "driver/nvidia").mkdir(parents=True)
    (tmp_path / "driver/nvidia/version").write_text(text)
    assert gpu.module_version(tmp_path) == version
