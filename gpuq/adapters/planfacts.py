"""What `gpuq host plan` must know of this host. Reads only, needs no root; roots are parameters, as in `hostfiles`."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

import psutil

from gpuq.adapters import gpu as nvml
from gpuq.adapters import proc
from gpuq.adapters.embedded.host import SYSTEM_DIRS, has_ipv6
from gpuq.adapters.hostfacts import machine
from gpuq.adapters.hostfiles import Roots, cgroup_version, gpu, text
from gpuq.core.checks.hostfacts import Machine
from gpuq.core.host.plan import SeenGpu, SeenHost
from gpuq.core.host.spec import CpuLayout

PATIENCE = 20.0
"""Seconds for a program that looks at the hardware."""

MIB = 2**20


def see(environment: Mapping[str, str], roots: Roots | None = None) -> SeenHost:
    """Look at this host. Nothing here raises for something that is not there: the plan says what that means."""
    roots = roots or Roots()
    env = {**environment, "LC_ALL": "C", "PATH": f"{environment.get('PATH', os.defpath)}:{SYSTEM_DIRS}"}
    hardware = _ask(["slurmd", "-C"], env)
    seen = machine(hardware)
    slurm, slurm_from = _slurm(env)
    found = gpu(roots, os.uname().release)
    gpus, driver = _gpus(roots, loaded=found.loaded)
    version = cgroup_version(roots)
    return SeenHost(
        hostname=socket.gethostname(),
        distribution=_distribution(roots),
        kernel=os.uname().release,
        systemd=roots.at("/run/systemd/system").is_dir(),
        wsl="microsoft" in os.uname().release.lower() or roots.at("/dev/dxg").exists(),
        dbus=roots.at("/run/dbus/system_bus_socket").exists(),
        cgroup_version=version,
        swap_accounted=version == 2 or roots.at("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists(),
        slurm=slurm,
        slurm_from=slurm_from,
        cpus=layout(seen) if seen else counted(roots),
        memory=seen.memory if seen else psutil.virtual_memory().total // MIB,
        hardware_from="slurmd -C" if seen else "the kernel (slurmd is not installed)",
        gpus=gpus,
        gpu_on_bus=found.on_bus,
        driver=driver,
        ipv6=has_ipv6(),
        true_program=next((path for path in ("/bin/true", "/usr/bin/true") if roots.at(path).exists()), "/bin/true"),
    )


def layout(seen: Machine) -> CpuLayout:
    """What slurmd counts, as it counts it: only its own numbers are sure to be the ones that it registers with."""
    return CpuLayout(
        cpus=seen.cpus,
        boards=seen.boards,
        sockets_per_board=seen.sockets,
        cores_per_socket=seen.cores,
        threads_per_core=seen.threads,
    )


def counted(roots: Roots) -> CpuLayout:
    """The processors by the kernel, where there is no slurmd to ask. Counted as slurmd does it: whole threads per core, so
    that cores of two kinds (12 cores with 20 threads) have one thread each, and never more than there are."""
    threads = psutil.cpu_count(logical=True) or 1
    cores = psutil.cpu_count(logical=False) or threads
    packages = {
        path.read_text().strip()
        for path in roots.at("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/physical_package_id")
    }
    return flat(threads, cores, len(packages) or 1)


def flat(threads: int, cores: int, sockets: int) -> CpuLayout:
    """A layout of one board from three counts of the whole host."""
    if cores % sockets:
        sockets = 1
    return CpuLayout(
        cpus=threads,
        sockets_per_board=sockets,
        cores_per_socket=cores // sockets,
        threads_per_core=max(1, threads // cores),
    )


def _slurm(env: Mapping[str, str]) -> tuple[tuple[int, int] | None, str]:
    """The release that is installed, else the one that apt would install."""
    for argv, source in (
        (["slurmd", "-V"], "installed"),
        (["apt-cache", "policy", "slurm-wlm"], "what apt would install"),
    ):
        said = _ask(argv, env)
        pattern = r"slurm\D* (\d+)\.(\d+)" if argv[0] == "slurmd" else r"Candidate:\s*(?:\d+:)?(\d+)\.(\d+)"
        match = re.search(pattern, said)
        if match:
            return (int(match[1]), int(match[2])), source
    return None, ""


def _gpus(roots: Roots, *, loaded: str | None) -> tuple[tuple[SeenGpu, ...], str | None]:
    """The device files, and what the driver says of the GPUs behind them; and the driver's version."""
    # First: on a host without a display it is the driver's library that makes the device files.
    reading = nvml.read() if roots == Roots() else None
    minors = {
        int(match[1]): f"/dev/{path.name}"
        for path in roots.at("/dev/").glob("nvidia*")
        if (match := re.fullmatch(r"nvidia(\d+)", path.name))
    }
    told = {state.minor: state for state in reading.gpus} if reading else {}
    found = []
    for minor, file in sorted(minors.items()):
        state = told.get(minor)
        divided = any(roots.at(f"/proc/driver/nvidia/capabilities/gpu{minor}/mig").glob("gi*"))
        found.append(
            SeenGpu(
                minor=minor,
                file=file,
                name=state.name if state else None,
                memory=state.memory_total if state else None,
                mig=divided or bool(state and state.mig),
            )
        )
    return tuple(found), (reading.driver if reading else None) or loaded


def _distribution(roots: Roots) -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', text(roots.at("/etc/os-release")).text or "", re.MULTILINE)
    return match[1] if match else ""


def _ask(argv: list[str], env: Mapping[str, str]) -> str:
    """Standard output; empty when the program is missing, fails or does not answer."""
    try:
        result = proc.run(argv, timeout=PATIENCE, env=env)
    except (proc.ProgramMissing, proc.ProgramTimeout):
        return ""
    return result.stdout if result.ok else ""


def current(path: str, roots: Roots | None = None) -> tuple[str | None, int | None, str]:
    """Text and mode of a file that is installed now. (None, None, "") where there is none; the third says why it cannot
    be read."""
    place = (roots or Roots()).at(path)
    try:
        mode = place.stat().st_mode & 0o7777
        return place.read_bytes().decode("utf-8", "replace"), mode, ""
    except (FileNotFoundError, NotADirectoryError):
        return None, None, ""
    except OSError as error:
        return None, None, error.strerror or str(error)


def default_directory(project: Path, host: str) -> Path:
    """Where a host's files are kept: in the project, under version control."""
    return project / "ops" / "slurm" / host
