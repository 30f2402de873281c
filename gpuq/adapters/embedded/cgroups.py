"""The cgroups of one node name, on cgroup v1 and v2: may we have some, which processes are inside, removal.

Slurm names them by node: v1 `<controller>/slurm_<node>/uid_*/job_*`, v2
`system.slice/<node>_slurmstepd.scope/<job>`. The node name belongs to one private directory, so nothing
here can touch another controller's jobs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from gpuq.core.host.spec import Confinement

ROOT = Path("/sys/fs/cgroup")

V1_CONTROLLERS = ("freezer", "cpuset", "memory", "devices")
V2_CONTROLLERS = ("cpu", "cpuset", "memory")


def is_v2(root: Path = ROOT) -> bool:
    """True for the unified hierarchy."""
    return (root / "cgroup.controllers").exists()


def survey(*, swap: bool, devices: bool, root: Path = ROOT) -> tuple[Confinement, list[str]]:
    """What can be enforced here, and a sentence for each thing that cannot.

    swap: the host has swap space. devices: the GPU's file may be closed to jobs that did not ask for it.
    """
    if os.geteuid() != 0:
        return Confinement(), [
            "not root: memory, cores and the GPU are counted but not enforced, and a process that calls setsid() "
            "may outlive its job"
        ]
    found, missing = _survey_v2(root) if is_v2(root) else _survey_v1(root)
    if not devices and found.devices:
        missing.append("no device node of its own: the GPU is not closed to jobs without --gres")
    swap_held = swap and found.ram and (is_v2(root) or (root / "memory/memory.memsw.limit_in_bytes").exists())
    if swap and not swap_held:
        missing.append("the kernel does not account swap: a job may grow into it beyond its --mem")
    return (
        Confinement(
            tracking=found.tracking,
            cores=found.cores,
            ram=found.ram,
            swap=swap_held,
            devices=found.devices and devices,
            ignore_systemd=found.ignore_systemd,
        ),
        missing,
    )


def _survey_v1(root: Path) -> tuple[Confinement, list[str]]:
    usable = {name: _can_make(root / name) for name in V1_CONTROLLERS}
    words = {
        "freezer": "processes are tracked by tree only",
        "cpuset": "cores are not enforced",
        "memory": "memory is not enforced",
        "devices": "the GPU is not closed to jobs without --gres",
    }
    missing = [f"cgroup controller {name} is not usable: {words[name]}" for name in usable if not usable[name]]
    return (
        Confinement(
            tracking=usable["freezer"],
            cores=usable["cpuset"],
            ram=usable["memory"],
            devices=usable["devices"],
        ),
        missing,
    )


def _survey_v2(root: Path) -> tuple[Confinement, list[str]]:
    names = (root / "cgroup.controllers").read_text().split()
    if not _can_make(root) or not set(V2_CONTROLLERS) <= set(names):
        return Confinement(), [f"{root} is not writable or lacks {', '.join(V2_CONTROLLERS)}: nothing is enforced"]
    _enable_v2(root)
    return Confinement(tracking=True, cores=True, ram=True, devices=True, ignore_systemd=True), []


def _enable_v2(root: Path) -> None:
    """Hand the controllers down to system.slice: 22.05 does not do it itself, and nobody else may."""
    slice_dir = root / "system.slice"
    with contextlib.suppress(OSError):
        slice_dir.mkdir(exist_ok=True)
    for place in (root, slice_dir):
        for name in V2_CONTROLLERS:
            with contextlib.suppress(OSError):
                (place / "cgroup.subtree_control").write_text(f"+{name}")


def _can_make(directory: Path) -> bool:
    probe = directory / f"gpuq_probe_{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


def of_node(node: str, root: Path = ROOT) -> list[Path]:
    """The topmost cgroups that belong to `node`; the freezer's first, because what a suspended job has frozen must be
    thawed before it can be killed through any of the others."""
    patterns = (f"*/slurm_{node}", f"slurm_{node}", f"system.slice/{node}_slurmstepd.scope", f"*/system/slurm_{node}")
    found = {path for pattern in patterns for path in root.glob(pattern) if path.is_dir()}
    return sorted(found, key=lambda path: (path.parent.name != "freezer", path))


def jobs_of(node: str, root: Path = ROOT) -> list[Path]:
    """The cgroups of single jobs of `node` (below uid_* on v1; named by SLUID on v2 since 26.05)."""
    found: list[Path] = []
    for top in of_node(node, root):
        pattern = "*" if top.name.endswith(".scope") else "uid_*/job_*"
        found += [path for path in top.glob(pattern) if path.is_dir() and path.name != "system"]
    return sorted(found)


def pids_in(cgroup: Path) -> set[int]:
    """Processes anywhere below `cgroup`."""
    found: set[int] = set()
    for directory in _deepest_first(cgroup):
        with contextlib.suppress(OSError):
            found |= {int(word) for word in (directory / "cgroup.procs").read_text().split()}
    return found


def remove(cgroup: Path, *, patience: float = 10.0) -> bool:
    """Kill what is inside and remove `cgroup`. True when it is gone.

    patience: seconds. The caller must not be inside.
    """
    deadline = time.monotonic() + patience
    while True:
        for directory in [cgroup, *cgroup.glob("**/")]:
            with contextlib.suppress(OSError):  # a frozen process does not die
                state = directory / "freezer.state"
                if state.exists() and state.read_text().strip() != "THAWED":
                    state.write_text("THAWED")
        for pid in pids_in(cgroup):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for directory in _deepest_first(cgroup):
            with contextlib.suppress(OSError):
                directory.rmdir()
        if not cgroup.exists():
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def _deepest_first(cgroup: Path) -> Iterator[Path]:
    for parent, _, _ in os.walk(cgroup, topdown=False):
        yield Path(parent)
