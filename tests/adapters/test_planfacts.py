"""What is found of a host, from recorded answers and trees of files."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from gpuq.adapters import planfacts
from gpuq.adapters.hostfacts import machine
from gpuq.adapters.hostfiles import Roots
from gpuq.core.gpu.readings import Reading
from gpuq.core.host.spec import CpuLayout

HYBRID = (
    "NodeName=ws CPUs=20 Boards=1 SocketsPerBoard=1 CoresPerSocket=12 ThreadsPerCore=1 RealMemory=63622\nUpTime=0-1\n"
)


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """An empty host with systemd."""
    for name in ("root/etc", "root/run/systemd/system", "root/bin", "proc", "sys/fs/cgroup", "dev"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.controllers").touch()
    (tmp_path / "root/bin/true").touch()
    (tmp_path / "root/etc/os-release").write_text('NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 13 (trixie)"\n')
    return Roots(root=tmp_path / "root", proc=tmp_path / "proc", sys=tmp_path / "sys", dev=tmp_path / "dev")


def programs(tmp_path: Path, **scripts: str) -> dict[str, str]:
    """An environment in which only these programs are found."""
    place = tmp_path / "bin"
    place.mkdir(exist_ok=True)
    for name, body in scripts.items():
        (place / name.replace("_", "-")).write_text(f"#!/bin/sh\n{body}\n")
        (place / name.replace("_", "-")).chmod(0o755)
    return {"PATH": str(place)}


def test_slurmd_is_asked_where_there_is_one(tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planfacts, "SYSTEM_DIRS", "")
    env = programs(tmp_path, slurmd=f"case $1 in -V) echo slurm-wlm 24.11.5;; -C) echo noise; printf '{HYBRID}';; esac")
    seen = planfacts.see(env, roots)
    assert (seen.slurm, seen.slurm_from) == ((24, 11), "installed")
    assert seen.cpus == CpuLayout(cpus=20, cores_per_socket=12, threads_per_core=1)
    assert (seen.memory, seen.hardware_from) == (63622, "slurmd -C")
    assert (seen.systemd, seen.dbus, seen.cgroup_version, seen.wsl) == (True, False, 2, False)
    assert seen.distribution == "Debian GNU/Linux 13 (trixie)"


def test_without_slurm_apt_and_the_kernel_are_asked(
    tmp_path: Path, roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planfacts, "SYSTEM_DIRS", "")
    policy = "slurm-wlm:\\n  Installed: (none)\\n  Candidate: 26.05.5-1\\n"
    seen = planfacts.see(programs(tmp_path, apt_cache=f"printf '{policy}'"), roots)
    assert (seen.slurm, seen.slurm_from) == ((26, 5), "what apt would install")
    assert seen.cpus.cpus == psutil.cpu_count()
    assert seen.memory == psutil.virtual_memory().total // 2**20
    none = planfacts.see(programs(tmp_path, apt_cache="echo 'Candidate: (none)'"), roots)
    assert none.slurm is None


@pytest.mark.parametrize(
    ("threads", "cores", "sockets", "wanted"),
    [
        (20, 10, 1, (1, 10, 2)),
        (20, 12, 1, (1, 12, 1)),  # 8 with two threads and 4 with one: never 1x12x2
        (64, 32, 2, (2, 16, 2)),
        (4, 4, 1, (1, 4, 1)),
        (6, 3, 2, (1, 3, 2)),
        (1, 1, 1, (1, 1, 1)),
    ],
)
def test_processors_counted_as_slurmd_does_it(
    threads: int, cores: int, sockets: int, wanted: tuple[int, int, int]
) -> None:
    found = planfacts.flat(threads, cores, sockets)
    assert (found.sockets_per_board, found.cores_per_socket, found.threads_per_core) == wanted
    assert found.consistent().hardware <= threads


def test_slurmds_line_is_followed_to_the_letter() -> None:
    told = machine(HYBRID)
    assert told is not None
    assert planfacts.layout(told) == CpuLayout(cpus=20, cores_per_socket=12)


def test_gpus_are_the_numbered_device_files(roots: Roots) -> None:
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "nvidia-caps"):
        (roots.dev / name).touch()
    (roots.proc / "driver/nvidia/capabilities/gpu2/mig/gi3").mkdir(parents=True)
    seen = planfacts.see({"PATH": "/nonexistent"}, roots)
    assert [(gpu.minor, gpu.file, gpu.mig) for gpu in seen.gpus] == [
        (0, "/dev/nvidia0", False),
        (2, "/dev/nvidia2", True),
        (10, "/dev/nvidia10", False),
    ]
    assert seen.driver is None


def test_the_driver_is_asked_before_the_device_files_are_listed(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a display it is the driver's library that makes them, when it is first asked."""

    def read() -> Reading:
        (roots.dev / "nvidia0").touch()
        return Reading(driver="550.163.01")

    monkeypatch.setattr(planfacts, "Roots", lambda: roots)
    monkeypatch.setattr("gpuq.adapters.gpu.read", read)
    seen = planfacts.see({"PATH": "/nonexistent"})
    assert ([gpu.file for gpu in seen.gpus], seen.driver) == (["/dev/nvidia0"], "550.163.01")


def test_wsl_is_known_by_its_gpu(roots: Roots) -> None:
    (roots.dev / "dxg").touch()
    assert planfacts.see({"PATH": "/nonexistent"}, roots).wsl


def test_what_is_installed_now(tmp_path: Path) -> None:
    place = tmp_path / "etc/slurm"
    place.mkdir(parents=True)
    (place / "slurm.conf").write_text("x\n")
    (place / "slurm.conf").chmod(0o640)
    roots = Roots(root=tmp_path)
    assert planfacts.current("/etc/slurm/slurm.conf", roots) == ("x\n", 0o640, "")
    assert planfacts.current("/etc/slurm/none", roots) == (None, None, "")
    assert planfacts.current("/etc/slurm/slurm.conf/x", roots) == (None, None, "")
    if os.geteuid() != 0:
        (place / "slurm.conf").chmod(0)
        assert planfacts.current("/etc/slurm/slurm.conf", roots)[2] == "Permission denied"
