"""The facts of a host, read from trees that were made to look like hosts."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from gpuq.adapters import hostfacts
from gpuq.adapters.hostfacts import from_files, logs, machine
from gpuq.adapters.hostfiles import Roots, file_fact, gpu, read_log, updates
from gpuq.core.checks.check import Verdict
from gpuq.core.checks.checkup import examine

CONF = """\
ClusterName=x
SlurmctldHost=ws
StateSaveLocation=/var/lib/slurm
SlurmdLogFile=/var/log/slurm/slurmd.%n.log
NodeName=ws CPUs=4 RealMemory=1000 Gres=gpu:1
PartitionName=gpu Nodes=ws
"""


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """A host without anything."""
    for name in ("proc", "sys", "dev"):
        (tmp_path / name).mkdir()
    return Roots(root=tmp_path, proc=tmp_path / "proc", sys=tmp_path / "sys", dev=tmp_path / "dev")


def test_a_bare_host(roots: Roots) -> None:
    facts = from_files(roots.at("/etc/slurm/slurm.conf"), roots, hostname="ws")
    assert facts.slurm_conf.text is None
    assert facts.slurm_conf.why == "cannot be read: No such file or directory"
    assert facts.cgroup_version is None
    assert examine(facts)[0].id == "slurm-conf"
    found = gpu(roots, "6.1")
    assert (found.on_bus, found.devices, found.modules, found.loaded) == (None, (), (), None)


def test_the_configuration_and_the_device_it_names(roots: Roots) -> None:
    conf = write(roots.at("/etc/slurm/slurm.conf"), CONF)
    write(roots.at("/etc/slurm/gres.conf"), "NodeName=ws Name=gpu File=/dev/nvidia0\n")
    facts = from_files(conf, roots, hostname="ws.lan")
    assert (facts.controller, facts.compute) == (True, True)
    assert facts.node_entry is not None
    assert facts.node_entry.fields["realmemory"] == "1000"
    assert [file.kind for file in facts.gres_files] == ["missing"]
    write(roots.at("/dev/nvidia0"))
    assert from_files(conf, roots, hostname="ws").gres_files[0].kind == "file"
    facts = from_files(conf, roots, hostname="laptop")
    assert (facts.controller, facts.compute) == (False, False)


@pytest.mark.parametrize(("files", "version"), [(["cgroup.controllers"], 2), (["memory/tasks", "freezer/tasks"], 1)])
def test_cgroups(roots: Roots, files: list[str], version: int) -> None:
    for name in files:
        write(roots.at(f"/sys/fs/cgroup/{name}"))
    assert from_files(roots.at("/x"), roots).cgroup_version == version


def test_the_driver(roots: Roots) -> None:
    write(roots.at("/lib/modules/6.1.0-25-amd64/updates/dkms/nvidia-current.ko.xz"))
    write(roots.at("/lib/modules/6.12.1-amd64/kernel/drivers/net/e1000.ko"))
    write(
        roots.at("/proc/driver/nvidia/version"),
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\nGCC version: 12.2.0\n",
    )
    write(roots.at("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.90.07"))
    write(roots.at("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"))
    write(roots.at("/sys/bus/pci/devices/0000:01:00.0/vendor"), "0x10de\n")
    write(roots.at("/sys/bus/pci/devices/0000:01:00.0/class"), "0x030000\n")
    write(roots.at("/dev/nvidiactl"))
    write(
        roots.at("/var/lib/dpkg/status"),
        "Package: nvidia-driver\nStatus: install ok installed\n\nPackage: nvidia-smi\nStatus: install ok installed\n",
    )
    found = gpu(roots, "6.12.1-amd64")
    assert found.on_bus is True
    assert found.modules == ("6.1.0-25-amd64",)
    assert (found.loaded, found.libraries) == ("550.54.14", ("550.90.07",))
    assert found.devices == ("/dev/nvidiactl",)
    assert found.packages == ("nvidia-driver",)


def test_an_open_driver_and_a_bus_without_a_gpu(roots: Roots) -> None:
    write(
        roots.at("/proc/driver/nvidia/version"),
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build\n",
    )
    write(roots.at("/sys/bus/pci/devices/0000:00:02.0/vendor"), "0x8086\n")
    write(roots.at("/sys/bus/pci/devices/0000:00:02.0/class"), "0x030000\n")
    found = gpu(roots, "6.1")
    assert (found.loaded, found.on_bus) == ("560.35.03", False)


def test_automatic_upgrades(roots: Roots) -> None:
    assert updates(roots).unattended is False
    write(roots.at("/etc/apt/apt.conf.d/20auto-upgrades"), 'APT::Periodic::Unattended-Upgrade "1";\n')
    write(
        roots.at("/etc/apt/apt.conf.d/50unattended-upgrades"),
        'Unattended-Upgrade::Package-Blacklist {\n//  "linux-";\n  "nvidia-";\n};\n',
    )
    write(roots.at("/var/lib/dpkg/status"), "Package: linux-image-amd64\nStatus: hold ok installed\n")
    found = updates(roots)
    assert found.unattended is True
    assert found.excluded == ("nvidia-",)
    assert found.held == ("linux-image-amd64",)


def test_only_the_last_life_of_a_daemon_is_read(roots: Roots) -> None:
    write(
        roots.at("/var/log/slurm/slurmd.ws.log"),
        "[t] fatal: old\n[t] slurmd version 22.05.8 started\n[t] error: new\n[t] debug: no\n",
    )
    conf = write(roots.at("/etc/slurm/slurm.conf"), CONF)
    found = logs(from_files(conf, roots, hostname="ws"), roots)
    assert found["slurmd"].lines == ("[t] error: new",)
    assert found["slurmctld"].lines == ()


def test_a_log_of_any_bytes_and_size(roots: Roots) -> None:
    path = write(roots.at("/log"))
    path.write_bytes(b"\xff\x00\r" * 200_000 + b"\nfatal: last \xff\n")
    assert read_log("/log", roots).lines == ("fatal: last \ufffd",)
    path.write_bytes(b"")
    assert read_log("/log", roots).lines == ()


def test_a_log_that_may_not_be_read(roots: Roots, unprivileged: Callable[[], AbstractContextManager[None]]) -> None:
    write(roots.at("/log")).chmod(0)
    with unprivileged():
        assert read_log("/log", roots).readable is False


def test_what_a_file_is(roots: Roots) -> None:
    path = write(roots.at("/etc/key"))
    path.chmod(0o640)
    found = file_fact("/etc/key", roots)
    assert (found.kind, found.mode) == ("file", 0o640)
    assert file_fact("/etc", roots).kind == "dir"
    assert file_fact("/none", roots).missing
    assert file_fact("/dev/null", Roots()).kind == "char"
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize(
    ("text", "cpus", "memory"),
    [
        (
            "Exception caught: rsmi_init.\nNodeName=ws CPUs=20 Boards=1 SocketsPerBoard=1 CoresPerSocket=12 "
            "ThreadsPerCore=1 RealMemory=63622\nUpTime=0-02:14:13\n",
            20,
            63622,
        ),
        ("NodeName=ws slurmd: Considering each NUMA node as a socket\n", None, None),
        ("", None, None),
    ],
)
def test_the_line_of_slurmd(text: str, cpus: int | None, memory: int | None) -> None:
    found = machine(text)
    assert (found.cpus if found else None, found.memory if found else None) == (cpus, memory)


def test_a_tree_of_a_host_with_a_kernel_without_the_module(roots: Roots) -> None:
    conf = write(roots.at("/etc/slurm/slurm.conf"), CONF)
    write(roots.at("/etc/slurm/gres.conf"), "NodeName=ws Name=gpu File=/dev/nvidia0\n")
    write(roots.at("/lib/modules/6.1.0-25-amd64/updates/dkms/nvidia.ko"))
    facts = from_files(conf, roots, hostname="ws")
    values = {name: getattr(facts, name) for name in type(facts).__struct_fields__}
    first = examine(type(facts)(**{**values, "gpu": gpu(roots, "6.12"), "kernel": "6.12", "munge_error": ""}))[0]
    assert (first.id, first.verdict) == ("gpu-module", Verdict.FAILURE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not look")
def test_a_project_in_which_one_may_not_look_has_no_plan(tmp_path: Path) -> None:
    place = tmp_path / "closed" / "ops"
    (place / "etc/slurm").mkdir(parents=True)
    (place / "etc/slurm/slurm.conf").write_text("ClusterName=x\n")
    assert hostfacts._planned(place) == {"slurm.conf": "ClusterName=x\n"}
    place.parent.chmod(0o700)
    child = os.fork()
    if not child:
        try:
            os.setuid(65534)
            os._exit(0 if hostfacts._planned(place) == {} else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
