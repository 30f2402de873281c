"""From what a host is to the Slurm that it is to have: facts in, a `HostSpec` out, or a refusal with a way out. Pure."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from gpuq.core.host import partitions as conf_partitions
from gpuq.core.host.spec import NEWEST, OLDEST, WEEK, Confinement, CpuLayout, Gpu, HostSpec
from gpuq.core.units import parse_time_limit
from gpuq.errors import HostError

GIB = 1024
"""MiB."""

DEFAULT_TIME = "1-00:00:00"
"""Limit of a job that names none: an hour is too short to train, and no limit is a queue that a hung job stops."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")


class SeenGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU of the host: the number in /dev/nvidiaN; its model and memory (bytes) where the driver tells."""

    minor: int
    file: str
    name: str | None = None
    memory: int | None = None
    mig: bool = False


class SeenHost(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. Memory in MiB; None means not known. The `*_from` fields say where a value comes from."""

    hostname: str
    """As gethostname(2) says it; may be fully qualified."""
    distribution: str = ""
    kernel: str = ""
    systemd: bool = True
    wsl: bool = False
    dbus: bool | None = None
    cgroup_version: int | None = 2
    swap_accounted: bool = True
    """The kernel can hold a job's swap (always with cgroup v2)."""
    slurm: tuple[int, int] | None = None
    slurm_from: str = ""
    cpus: CpuLayout
    memory: int
    hardware_from: str = "slurmd -C"
    gpus: tuple[SeenGpu, ...] = ()
    gpu_on_bus: bool | None = None
    driver: str | None = None
    ipv6: bool = True
    true_program: str = "/bin/true"

    @property
    def short(self) -> str:
        """The host's name up to the first dot: what Slurm calls a node and compares SlurmctldHost with."""
        return self.hostname.split(".", 1)[0]


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What a person may decide. reserve: MiB for the desktop; None: `reserve_for`. gpus: numbers as in /dev/nvidiaN."""

    gpus: tuple[int, ...] = ()
    reserve: int | None = None
    slurm: tuple[int, int] | None = None
    max_time: str = WEEK
    default_time: str | None = None
    """None: `DEFAULT_TIME`, or `max_time` where that is less."""
    grace: int = conf_partitions.GRACE


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The decision, and what a person should know about it."""

    spec: HostSpec
    notes: tuple[str, ...] = ()


def reserve_for(memory: int) -> int:
    """MiB of `memory` that are kept from Slurm for the desktop and the kernel: 4G or 12 %, whichever is more, but never
    more than half."""
    return min(max(4 * GIB, -(-memory * 12 // 100)), memory // 2)


def registered(memory: int, reserve: int) -> int:
    """RealMemory (MiB): what is left, rounded down. However little is kept, 1 % and 64 MB less than there is: a kernel that
    sees 40 MB less must change nothing."""
    left = memory - max(reserve, memory // 100, 64)
    step = 1000 if left >= 16000 else 100 if left >= 1000 else 10
    return left // step * step


def plan(seen: SeenHost, wishes: Wishes) -> Planned:
    """Decide. Raises HostError."""
    notes: list[str] = []
    _check_host(seen)
    version = wishes.slurm or seen.slurm
    if version is None:
        raise HostError(
            "Slurm is not installed, and apt knows no package slurm-wlm; which release will it be?",
            hint="gpuq host plan --slurm 24.11 (apt-cache policy slurm-wlm tells)",
        )
    if version < OLDEST:
        raise HostError(
            f"Slurm {_release(version)} is too old: gpuq renders for {_release(OLDEST)} and later",
            hint="install a newer release of the distribution, or of Slurm",
        )
    if version > NEWEST:
        notes.append(f"Slurm {_release(version)} is newer than what gpuq was tried with ({_release(NEWEST)})")
    default_time = _default_time(wishes)
    chosen = _choose(seen, wishes, notes)
    cpus = seen.cpus.consistent()
    if cpus != seen.cpus:
        notes.append(
            f"cores of two kinds: {seen.hardware_from} counts {seen.cpus.cpus} threads on {cpus.hardware} cores, which no "
            f"layout of Slurm expresses; each of the {cpus.cpus} cores counts as one CPU"
        )
    reserve = reserve_for(seen.memory) if wishes.reserve is None else wishes.reserve
    memory = registered(seen.memory, reserve)
    if memory < 256:
        raise HostError(
            f"of {seen.memory} MB nothing is left for jobs when {reserve} MB are kept for the host",
            hint="keep less: gpuq host plan --reserve SIZE",
        )
    if seen.dbus is False and seen.cgroup_version == 2:
        notes.append("no dbus runs here, and slurmd makes its control group through it: apt-get install dbus")
    if seen.cgroup_version is None:
        notes.append("no control groups are mounted: slurmd will not start before they are")
    several = len(chosen) > 1
    gpus = tuple(Gpu(Path(gpu.file), f"gpu{gpu.minor}" if several else None) for gpu in chosen)
    logs = Path("/var/log/slurm")
    spec = HostSpec(
        version=version,
        cluster=seen.short.lower(),
        node=seen.short,
        hostname=seen.short,
        address="127.0.0.1",
        cpus=cpus,
        real_memory=memory,
        gpus=gpus,
        kept=tuple(Path(gpu.file) for gpu in seen.gpus if gpu not in chosen),
        partitions=conf_partitions.partitions(
            cpus,
            memory,
            kinds=tuple(gpu.kind for gpu in gpus),
            numbers=tuple(gpu.minor for gpu in chosen),
            max_time=wishes.max_time,
            default_time=default_time,
            grace=wishes.grace,
            version=version,
        ),
        state_dir=Path("/var/lib/slurm/slurmctld"),
        spool_dir=Path("/var/lib/slurm/slurmd"),
        log_dir=logs,
        run_dir=Path("/run"),
        jobcomp_log=logs / "jobcomp.log",
        confinement=Confinement(tracking=True, cores=True, ram=True, swap=seen.swap_accounted, devices=True),
        epilog=Path("/etc/slurm/epilog.sh"),
        mail_program=Path(seen.true_program),
        ipv6=seen.ipv6,
    )
    return Planned(spec=spec, notes=tuple(notes))


def _default_time(wishes: Wishes) -> str:
    """The default time limit: never more than the longest, to which Slurm would not hold it."""
    longest, default = parse_time_limit(wishes.max_time), parse_time_limit(wishes.default_time or DEFAULT_TIME)
    if longest is None or (default is not None and default <= longest):
        return wishes.default_time or DEFAULT_TIME
    if wishes.default_time is not None:
        raise HostError(
            f"the default time limit, {wishes.default_time}, is more than the longest, {wishes.max_time}",
            hint="gpuq host plan --max-time TIME --default-time TIME",
        )
    return wishes.max_time


def _check_host(seen: SeenHost) -> None:
    if not _NAME.fullmatch(seen.short) or seen.short.lower() == "localhost":
        raise HostError(
            f"the host's name is {seen.hostname!r}, which cannot name a node of Slurm",
            hint="give it a name of letters, digits and dashes: hostnamectl set-hostname NAME",
        )
    if seen.wsl and not seen.systemd:
        raise HostError(
            "this is WSL2 without systemd, which the set-up of a host needs",
            hint="[boot] systemd=true in /etc/wsl.conf, then wsl --shutdown; or, without a set-up: gpuq local up",
        )
    if not seen.systemd:
        raise HostError(
            "systemd does not run here (a container?), and the set-up of a host needs it to start Slurm at boot",
            hint="a Slurm of your own, without a set-up: gpuq local up",
        )


def _choose(seen: SeenHost, wishes: Wishes, notes: list[str]) -> list[SeenGpu]:
    """The GPUs that Slurm is to have, the first one first."""
    there = ", ".join(_named(gpu) for gpu in seen.gpus)
    if not seen.gpus:
        raise _no_gpu(seen)
    if not wishes.gpus and len(seen.gpus) > 1:
        first, second = seen.gpus[0].minor, seen.gpus[1].minor
        raise HostError(
            f"there are {len(seen.gpus)} GPUs ({there}); which one is the queue for?",
            hint=f"gpuq host plan --gpu {first}, or, with a partition for each: --gpu {first} --gpu {second}",
        )
    numbers = wishes.gpus or (seen.gpus[0].minor,)
    if len(set(numbers)) < len(numbers):
        raise HostError("the same GPU is named twice", hint="gpuq host plan --gpu 0 --gpu 1")
    by_minor = {gpu.minor: gpu for gpu in seen.gpus}
    missing = [number for number in numbers if number not in by_minor]
    if missing:
        raise HostError(f"there is no GPU {missing[0]} (there are: {there})", hint="ls /dev/nvidia*")
    chosen = [by_minor[number] for number in numbers]
    for gpu in chosen:
        if gpu.mig:
            raise HostError(
                f"GPU {gpu.minor} is divided by MIG, and gpuq queues for whole GPUs",
                hint=f"as root, when nothing uses it: nvidia-smi -i {gpu.minor} -mig 0",
            )
    left = [gpu for gpu in seen.gpus if gpu not in chosen]
    if left:
        notes.append(
            f"{', '.join(_named(gpu) for gpu in left)}: not for jobs, and closed to them (what gres.conf calls nic); "
            f"who works outside of Slurm may use {'it' if len(left) == 1 else 'them'}"
        )
    if seen.driver is None:
        notes.append(f"{chosen[0].file} is there and the driver does not answer; gpuq doctor looks closer")
    return chosen


def _no_gpu(seen: SeenHost) -> HostError:
    local = "a queue without a GPU, to try things: gpuq local up --simulate-gpu"
    if seen.wsl:
        return HostError(
            "WSL2 shows the GPU as /dev/dxg, and there is no /dev/nvidia0 that Slurm could count and keep to one job",
            hint=f"use Linux on the metal; {local}",
        )
    if seen.driver is not None:
        return HostError(
            f"the driver ({seen.driver}) is loaded, and there is no /dev/nvidia0",
            hint="as root: nvidia-modprobe -c 0 (nvidia-smi does it, too), and once more",
        )
    if seen.gpu_on_bus:
        return HostError(
            "an NVIDIA GPU is on the bus, and there is no /dev/nvidia0: its driver is not loaded",
            hint="install the driver (Debian: nvidia-driver, and a reboot); gpuq doctor says what is missing",
        )
    return HostError("there is no NVIDIA GPU here (no /dev/nvidia0)", hint=local)


def _named(gpu: SeenGpu) -> str:
    return f"GPU {gpu.minor} {gpu.name}" if gpu.name else f"GPU {gpu.minor}"


def _release(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]:02d}"
