"""The process table, with the Slurm job of each process: /proc/PID/{stat,status,cmdline,cgroup,environ}.

Not psutil: it stops at the empty entries that slurmstepd leaves at the head of an environment, and knows no cgroups.
"""

from __future__ import annotations

import datetime
import os
import pwd
import re
from pathlib import Path

from gpuq.core.gpu.owner import Seen, Witness, read_cgroup, read_environ

PROC = Path("/proc")


_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD among the flags of proc_pid_stat(5) (include/linux/sched.h)."""

_EXITING = 0x00000004
"""PF_EXITING, from the same place: its memory, and with it its environment, is being given back."""


def processes(proc_root: Path = PROC) -> list[Seen]:
    """Every process that can be seen."""
    boot = boot_time(proc_root)
    pids = [int(name) for name in os.listdir(proc_root) if name.isdigit()]
    return [one for pid in sorted(pids) if (one := _look(proc_root, pid, boot)) is not None]


def all_visible(proc_root: Path = PROC) -> bool:
    """True where other users' processes are shown, too (no hidepid, proc(5)): process 1 is root's."""
    return _read(proc_root / "1" / "cgroup") is not None


def boot_time(proc_root: Path = PROC) -> datetime.datetime | None:
    """When the kernel started, to the second; None where that is not told."""
    match = re.search(rb"^btime (\d+)$", _read(proc_root / "stat") or b"", re.MULTILINE)
    return datetime.datetime.fromtimestamp(int(match[1]), datetime.UTC) if match else None


def _look(proc_root: Path, pid: int, boot: datetime.datetime | None) -> Seen | None:
    place = proc_root / str(pid)
    stat = _read(place / "stat")
    if stat is None:
        return None
    # the name may hold blanks and brackets: the fields begin behind the last one
    name = stat[stat.find(b"(") + 1 : stat.rfind(b")")]
    fields = stat[stat.rfind(b")") + 1 :].split()
    if len(fields) < 20 or fields[0] in {b"Z", b"X"}:
        return None
    if int(fields[6]) & _KERNEL_THREAD:
        return None  # root's by its uid, and its environment cannot be read: it must not pass for a hidden one of a job
    uid = re.search(rb"^Uid:\s+(\d+)", _read(place / "status") or b"", re.MULTILINE)
    if uid is None:
        return None
    words = (_read(place / "cmdline") or b"").rstrip(b"\0")
    title = os.fsdecode(words.replace(b"\0", b" ")).strip()
    raw = _read(place / "environ")
    left = _flags(place) if raw is None else 0
    if left is None:
        return None  # it ended while it was looked at
    cgroup = read_cgroup(os.fsdecode(_read(place / "cgroup") or b""))
    environ = None if raw is None else read_environ(raw)
    step = name.startswith(b"slurmstepd")
    job, witness, node = None, None, ""
    if environ is not None and not step:
        job, witness, node = environ.job, Witness.ENVIRON, environ.node
    if cgroup is not None:
        node = cgroup.node or node
        if cgroup.job is not None:
            job, witness = cgroup.job, Witness.CGROUP
    if step and job is None and (told := re.match(r"slurmstepd: \[(\d+)\.", title)):
        job = int(told[1])
    owner = int(uid[1])
    return Seen(
        pid=pid,
        uid=owner,
        user=_user(owner),
        name=os.fsdecode(name),
        command=title or f"[{os.fsdecode(name)}]",
        started=_started(boot, fields[19]),
        job=job,
        witness=witness,
        node=node,
        sluid=cgroup.sluid if cgroup is not None else "",
        # `slurmstepd infinity` keeps the cgroup of the node alive and looks after no job
        step_daemon=step and "infinity" not in title.split(),
        # one that is exiting hides nothing: what can be known of it is its cgroup
        environ_read=raw is not None or bool(left & _EXITING),
    )


def _flags(place: Path) -> int | None:
    """The flags of a process now; None: it has ended."""
    stat = _read(place / "stat")
    fields = [] if stat is None else stat[stat.rfind(b")") + 1 :].split()
    return int(fields[6]) if len(fields) > 6 and fields[0] not in {b"Z", b"X"} else None


def _started(boot: datetime.datetime | None, ticks: bytes) -> datetime.datetime | None:
    if boot is None:
        return None
    return boot + datetime.timedelta(seconds=int(ticks) / os.sysconf("SC_CLK_TCK"))


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _read(path: Path) -> bytes | None:
    """None where it is gone or may not be read (ESRCH, EACCES, ENOENT)."""
    try:
        return path.read_bytes()
    except OSError:
        return None
