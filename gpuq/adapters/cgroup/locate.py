"""Where a job's memory cgroup is, on cgroup v1 and v2, with systemd and without.

v2: `system.slice/<node>_slurmstepd.scope/job_<id>` (Debian, Ubuntu), `slurmstepd.scope/…`; since 26.05 the SLUID stands
in place of `job_<id>`, and a process of the job tells the directory: /proc/PID/cgroup, cut at `/step_`. That works
everywhere, so it is also the way where the known places hold nothing (containers, other slices).
v1: `memory/slurm[_<node>]/uid_<uid>/job_<id>`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")


class Place(msgspec.Struct, frozen=True):
    """A job's directory in the hierarchy that accounts memory."""

    version: int
    path: str
    root: str
    """Where the hierarchy begins; limits are looked for up to here."""


def version_of(root: Path = ROOT) -> int:
    """2 for the unified hierarchy, else 1 (also where both are mounted: memory is v1's then)."""
    return 2 if os.path.exists(root / "cgroup.controllers") else 1  # noqa: PTH110 - light


def find(
    job_id: int, *, node: str, pids: Iterable[int] = (), root: Path = ROOT, proc_root: Path = PROC
) -> Place | None:
    """The job's memory cgroup on this host; None: there is none.

    node: Slurm's name of it, for several Slurms may run here. pids: processes of the job, where they are known
    (`scontrol listpids`).
    """
    version = version_of(root)
    top = root if version == 2 else root / "memory"
    for path in _v2(top, node, job_id) if version == 2 else _v1(top, node, job_id):
        if path.is_dir():
            return Place(version, str(path), str(top))
    for pid in pids:
        place = of_process(pid, root=root, proc_root=proc_root)
        if place is not None:
            return place
    return None


def _v2(top: Path, node: str, job_id: int) -> Iterable[Path]:
    for scope in (f"{node}_slurmstepd.scope", "slurmstepd.scope"):
        yield top / "system.slice" / scope / f"job_{job_id}"
        yield top / scope / f"job_{job_id}"


def _v1(top: Path, node: str, job_id: int) -> Iterable[Path]:
    for base in (f"slurm_{node}", "slurm", f"system/slurm_{node}", "system/slurm"):
        yield from sorted((top / base).glob(f"uid_*/job_{job_id}"))


def jobs(nodes: Iterable[str], root: Path = ROOT, *, uid: int | None = None) -> frozenset[str]:
    """The directories of all jobs on this host, whatever they are named by: a new one is a job that has begun.

    nodes: Slurm's names of this host, for several Slurms may run here. uid: only this user's, where the paths tell (v1).
    A few directory listings: it may be asked every few seconds.
    """
    if version_of(root) == 2:
        scopes = ["slurmstepd.scope", *(f"{node}_slurmstepd.scope" for node in nodes)]
        places = [base / scope for base in (root / "system.slice", root) for scope in scopes]
        return frozenset(path for top in places for path in _inside(top) if not path.endswith("/system"))
    tops = ["slurm", *(f"slurm_{node}" for node in nodes)]
    places = [base / top for base in (root / "memory", root / "memory/system") for top in tops]
    if uid is not None:
        return frozenset(path for top in places for path in _inside(top / f"uid_{uid}", "job_"))
    users = [path for top in places for path in _inside(top, "uid_")]
    return frozenset(path for user in users for path in _inside(user, "job_"))


def _inside(directory: Path | str, start: str = "") -> list[str]:
    """Directories in `directory` whose names begin so."""
    try:
        with os.scandir(directory) as entries:
            return [one.path for one in entries if one.name.startswith(start) and one.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def of_process(pid: int | str, *, root: Path = ROOT, proc_root: Path = PROC) -> Place | None:
    """The memory cgroup of the job that a process (`self`: this one) is in; None: it is in no step of a job, or its
    cgroup cannot be seen from here."""
    try:
        text = (proc_root / str(pid) / "cgroup").read_text()
    except OSError:
        return None
    version = version_of(root)
    top = root if version == 2 else root / "memory"
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (version == 2 and number == "0") or (version == 1 and "memory" in controllers.split(",")):
            job, step, _ = path.partition("/step_")
            place = top / job.lstrip("/")
            if step and ".." not in job.split("/") and place.is_dir():
                return Place(version, str(place), str(top))
    return None
