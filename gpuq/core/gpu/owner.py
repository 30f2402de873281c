"""Whose a process is: a Slurm job's, a job's that is over, the desktop's, or nobody's that Slurm knows.

Three witnesses tell the job of a process. Its cgroup (cannot be left by setsid(2)), `scontrol listpids` (for cgroups
that are named by SLUID, since 26.05), and the environment that slurmstepd gave it (all that is left of a process that
got away under proctrack/linuxproc). More than one Slurm may run on a host, so the node's name counts too.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from gpuq.core.job import Job, Phase


class Witness(StrEnum):
    """What told the job of a process."""

    CGROUP = "cgroup"
    LISTPIDS = "listpids"
    ENVIRON = "environ"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A process as /proc shows it. Zombies are not processes."""

    pid: int
    uid: int
    user: str
    name: str
    """The kernel's: 15 bytes at most."""
    command: str
    """Its arguments, joined by blanks; the name in brackets where it has none."""
    started: datetime.datetime | None
    job: int | None = None
    witness: Witness | None = None
    node: str = ""
    """Slurm's name of the node whose job it is; empty: not told."""
    sluid: str = ""
    """The job's SLUID, where the cgroup is named by it."""
    step_daemon: bool = False
    """True for slurmstepd, which looks after a job and is none of its processes."""
    environ_read: bool = False
    """False where the environment belongs to somebody else and may not be read."""


class CgroupPlace(msgspec.Struct, frozen=True):
    """What a path below /sys/fs/cgroup says."""

    job: int | None
    sluid: str
    node: str


# v1: /slurm/uid_0/job_12/step_batch, with the node's name where slurmd has one of its own (slurm_n1).
_V1 = re.compile(r"/slurm(?:_(?P<node>[^/\s]+))?/uid_[0-9]+/job_(?P<job>[0-9]+)(?=/|$)", re.MULTILINE)
# v2: /system.slice/n1_slurmstepd.scope/job_12/step_batch/user/task_0; since 26.05 the SLUID in place of job_12.
_V2 = re.compile(
    r"/(?:(?P<node>[^/\s]+)_)?slurmstepd\.scope/(?:job_(?P<job>[0-9]+)|(?P<sluid>s[0-9A-Z]{8,}))(?=/|$)", re.MULTILINE
)


def read_cgroup(text: str) -> CgroupPlace | None:
    """The job in the content of /proc/PID/cgroup; None: it is in no job's cgroup.

    >>> read_cgroup("0::/system.slice/n1_slurmstepd.scope/job_12/step_batch/user/task_0")
    CgroupPlace(job=12, sluid='', node='n1')
    """
    match = _V2.search(text) or _V1.search(text)
    if match is None:
        return None
    found = match.groupdict()
    return CgroupPlace(int(found["job"]) if found["job"] else None, found.get("sluid") or "", found["node"] or "")


class EnvironPlace(msgspec.Struct, frozen=True):
    """What the environment of a process says."""

    job: int
    node: str


def read_environ(raw: bytes) -> EnvironPlace | None:
    """The job in the content of /proc/PID/environ; None: no slurmstepd started it.

    SLURM_TASK_PID tells a job's processes from a person's shell in an allocation (salloc), which is no task.
    """
    values = {}
    for entry in raw.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name in {b"SLURM_JOB_ID", b"SLURM_TASK_PID", b"SLURMD_NODENAME"}:
            values[name] = value.decode("utf-8", "surrogateescape")
    job = values.get(b"SLURM_JOB_ID", "")
    if b"SLURM_TASK_PID" not in values or not re.fullmatch("[0-9]{1,10}", job):
        return None
    return EnvironPlace(int(job), values.get(b"SLURMD_NODENAME", ""))


def read_listpids(text: str) -> dict[int, int]:
    """What `scontrol listpids` printed: the job of each process."""
    return {int(pid): int(job) for pid, job in re.findall(r"^\s*([0-9]+)\s+([0-9]+)\s", text, re.MULTILINE)}


def read_node_hosts(text: str) -> dict[str, str]:
    """What `scontrol show node` printed: the host of each node."""
    found = {}
    for block in re.split(r"(?m)^(?=NodeName=)", text):
        node = re.match(r"NodeName=(\S+)", block)
        host = re.search(r"\bNodeHostName=(\S+)", block)
        if node and host:
            found[node[1]] = host[1]
    return found


def with_listpids(processes: Collection[Seen], listed: Mapping[int, int]) -> list[Seen]:
    """The processes, those in cgroups that are named by SLUID with the job's number from `scontrol listpids`.

    A process that is not listed itself shares its job's SLUID with one that is.
    """
    of_sluid = {one.sluid: listed[one.pid] for one in processes if one.sluid and one.pid in listed}
    found = []
    for one in processes:
        job = of_sluid.get(one.sluid) if one.sluid else None
        if one.witness is None and job is None:
            job = listed.get(one.pid)
        if job is not None and one.witness is not Witness.CGROUP:
            one = msgspec.structs.replace(one, job=job, witness=Witness.LISTPIDS)
        found.append(one)
    return found


class Kind(StrEnum):
    """What a process on the GPU is."""

    JOB = "job"
    ORPHAN = "orphan"
    DESKTOP = "desktop"
    BROWSER = "browser"
    OTHER = "other"
    """In no job that this Slurm knows."""
    UNSEEN = "unseen"
    """Not in this process table: of another container, or it has just ended."""


class Owner(msgspec.Struct, frozen=True):
    """Whose a process is. job: also the number of the job that is over."""

    kind: Kind
    job: int | None
    words: str


class Knowledge(msgspec.Struct, frozen=True):
    """What Slurm said. jobs None: it gave no answer, and nothing may be concluded from that."""

    jobs: Mapping[int, Job] | None
    """By number; a number that is missing is unknown to Slurm."""
    nodes: Collection[str] | None
    """Names of the nodes that are this host; None: not told."""
    uid: int
    """Who asked. PrivateData=jobs (slurm.conf) hides the jobs of others from all but root and operators."""


SLACK = datetime.timedelta(seconds=10)
"""Boot time and start times are whole seconds, and the clock may have been set meanwhile."""

_DESKTOP = frozenset(
    "xorg x xwayland gnome-shell gnome-session kwin_wayland kwin_x11 kwin plasmashell mutter cinnamon muffin marco "
    "xfwm4 xfce4-session budgie-wm sway hyprland weston labwc wayfire river niri cosmic-comp gdm-x-session sddm "
    "sddm-greeter lightdm slick-greeter picom compton nautilus nvidia-settings xdg-desktop-por steam steamwebhelper "
    "code cursor slack discord spotify obs zoom teams telegram-deskto signal-desktop obsidian".split()
)
_BROWSER = frozenset(
    "firefox firefox-bin firefox-esr chrome google-chrome chromium chromium-browse brave brave-browser msedge "
    "microsoft-edge opera vivaldi vivaldi-bin librewolf epiphany".split()
)


def owner_of(one: Seen | None, know: Knowledge) -> Owner:
    """Whose a process is; `one` None: it is not in the process table."""
    if one is None:
        return Owner(Kind.UNSEEN, None, "not to be seen from here (in another container, or just ended)")
    if one.job is None:
        if one.sluid:
            return Owner(Kind.OTHER, None, f"of a Slurm job that cannot be told from its SLUID {one.sluid}")
        return _no_job(one)
    if know.jobs is None or know.nodes is None:
        return Owner(Kind.JOB, one.job, f"job {one.job}, as far as can be told without Slurm's answer")
    if one.node and one.node not in know.nodes:
        return Owner(Kind.OTHER, None, f"job {one.job} of another Slurm (its node {one.node})")
    job = know.jobs.get(one.job)
    if job is None and know.uid not in {0, one.uid}:
        return Owner(Kind.OTHER, one.job, f"of job {one.job}, which Slurm does not show (over, or hidden from you)")
    if job is None:
        return _orphan(one.job, "Slurm does not know it any more")
    if job.phase is Phase.ENDED:
        return _orphan(one.job, f"it is {job.state}")
    if job.phase is Phase.WAITING:
        return _orphan(one.job, "it was requeued and waits again")
    if one.witness is Witness.ENVIRON and _before(one, job):
        return _orphan(one.job, "of an earlier start; the job that now has this number began later")
    ending = ", which is ending" if job.phase is Phase.ENDING else ""
    return Owner(Kind.JOB, one.job, f"job {one.job} ({job.shown}){ending}")


def _before(one: Seen, job: Job) -> bool:
    return one.started is not None and job.start is not None and one.started < job.start - SLACK


def _orphan(job: int, why: str) -> Owner:
    return Owner(Kind.ORPHAN, job, f"orphan of job {job}: its job is over ({why}), but the process lives")


def _no_job(one: Seen) -> Owner:
    program = one.command.split(" ", 1)[0].rpartition("/")[2]
    words = {one.name.lower(), program.lower()}
    if words & _BROWSER:
        return Owner(Kind.BROWSER, None, "a browser, not in a job")
    if words & _DESKTOP:
        return Owner(Kind.DESKTOP, None, "the desktop, not in a job")
    return Owner(Kind.OTHER, None, "not in a job")


class Life(StrEnum):
    """Whether a job that Slurm calls running lives, as far as the process table tells."""

    LIVES = "lives"
    DEAD = "dead"
    UNKNOWN = "unknown"


def life_of(job: Job, processes: Collection[Seen], *, all_visible: bool) -> Life:
    """Whether any process of `job`, a running one on this host, is left.

    all_visible: the process table shows other users' processes. A slurmstepd that is there still ends its job itself.
    """
    hidden = not all_visible
    for one in processes:
        same_node = not one.node or one.node == job.node
        if one.job == job.number and same_node:
            return Life.LIVES
        if one.step_daemon and one.job is None and not one.sluid:
            hidden = True  # of which job it does not say
        if one.sluid and one.job is None:
            hidden = True
        if one.uid == job.uid and not one.environ_read and one.job is None and not _before(one, job):
            hidden = True  # may be one that left its cgroup, or of a Slurm that uses none
    return Life.UNKNOWN if hidden else Life.DEAD
