"""A GPU as NVML tells it, and what that means for the next job. Sizes in bytes; None: the value does not exist here."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from gpuq.core.gpu.owner import Kind, Owner
from gpuq.core.units import format_size


class Trouble(StrEnum):
    """Why NVML, or one GPU, does not answer."""

    NO_BINDING = "no-binding"
    """The Python package nvidia-ml-py is not installed."""
    NO_LIBRARY = "no-library"
    """libnvidia-ml.so.1, a part of the driver, is not installed (or cannot be loaded)."""
    NO_DRIVER = "no-driver"
    """The library is there; the kernel module is not loaded, or does not answer."""
    MISMATCH = "mismatch"
    """The library and the loaded kernel module are of different versions."""
    NO_DEVICE = "no-device"
    """The driver answers, and has no GPU."""
    LOST = "lost"
    """The GPU does not answer: it has fallen off the bus, or must be reset."""
    NO_PERMISSION = "no-permission"
    LACKING = "lacking"
    """This driver lacks a function without which nothing can be told."""
    OTHER = "other"


class GpuProcess(msgspec.Struct, frozen=True):
    """A process with a context on a GPU."""

    pid: int
    memory: int | None
    graphics: bool
    """True: it draws (and may compute, too)."""
    instance: int | None = None
    """The MIG instance that it is in."""


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, read once."""

    index: int
    trouble: Trouble | None = None
    detail: str = ""
    """NVML's own words for the trouble."""
    name: str | None = None
    uuid: str | None = None
    minor: int | None = None
    """The number in /dev/nvidiaN."""
    memory_total: int | None = None
    memory_used: int | None = None
    memory_free: int | None = None
    utilization: int | None = None
    """Percent of the last sampling period in which at least one kernel ran."""
    temperature: int | None = None
    """Degrees Celsius."""
    power: float | None = None
    """Watts."""
    mig: bool | None = None
    """True: split into instances (MIG). None: this GPU or driver knows nothing of it."""
    processes: tuple[GpuProcess, ...] | None = None
    """None: the driver does not tell."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What NVML said."""

    trouble: Trouble | None = None
    detail: str = ""
    driver: str | None = None
    gpus: tuple[GpuState, ...] = ()


class Verdict(StrEnum):
    """What a GPU is to the next job, the gravest first."""

    TROUBLE = "trouble"
    ORPHAN = "orphan"
    OTHER = "other"
    JOB = "job"
    DESKTOP = "desktop"
    FREE = "free"
    UNKNOWN = "unknown"
    """The driver does not tell who uses it."""


_OF = {
    Kind.ORPHAN: Verdict.ORPHAN,
    Kind.OTHER: Verdict.OTHER,
    Kind.UNSEEN: Verdict.OTHER,
    Kind.JOB: Verdict.JOB,
    Kind.DESKTOP: Verdict.DESKTOP,
    Kind.BROWSER: Verdict.DESKTOP,
}


def judge(
    gpu: GpuState, owners: Sequence[tuple[GpuProcess, Owner]], given: Sequence[str], *, alone: bool = True
) -> tuple[Verdict, str]:
    """Who holds the GPU: the verdict and a sentence.

    owners: whose its processes are. given: running jobs to which Slurm gave a GPU and that have no process on any, in
    words (`job 12`). alone: this is the only GPU, so it must be the one that they were given.
    """
    idle = f"{_and(given)}, without a process on it now" if given else ""
    if gpu.trouble is not None:
        return Verdict.TROUBLE, trouble_words(gpu.trouble, gpu.detail)
    if gpu.processes is None:
        slurm = f"; Slurm has given {'it' if alone else 'one'} to {_and(given)}" if given else ""
        return Verdict.UNKNOWN, f"this driver does not tell who uses it{slurm}"
    if not owners:
        if given and alone:
            return Verdict.JOB, f"given by Slurm to {idle}"
        if given:
            return Verdict.UNKNOWN, f"no process on it; Slurm has given one of the GPUs to {_and(given)}"
        return Verdict.FREE, "free"
    parts: dict[str, list[GpuProcess]] = {}
    for process, owner in owners:
        parts.setdefault(_short(process, owner), []).append(process)
    words = [name + _memory(processes) for name, processes in parts.items()]
    kinds = {_OF[owner.kind] for _, owner in owners}
    verdict = next(one for one in Verdict if one in kinds)
    if verdict is Verdict.DESKTOP:
        if given and alone:
            return Verdict.JOB, f"given by Slurm to {idle}; beside {_and(words)}"
        return verdict, f"free for a job, beside {_and(words)}"
    return verdict, f"held by {_and(words)}"


def _short(process: GpuProcess, owner: Owner) -> str:
    if owner.kind is Kind.JOB:
        return f"job {owner.job}"
    if owner.kind is Kind.ORPHAN:
        return f"an orphan of job {owner.job}"
    if owner.kind is Kind.DESKTOP:
        return "the desktop"
    if owner.kind is Kind.BROWSER:
        return "a browser"
    if owner.kind is Kind.UNSEEN:
        return f"process {process.pid}, not to be seen from here"
    return f"process {process.pid}, in no job" if owner.job is None else f"process {process.pid} of job {owner.job}"


def _memory(processes: Sequence[GpuProcess]) -> str:
    sizes = [one.memory for one in processes if one.memory is not None]
    return f" ({format_size(sum(sizes))})" if len(sizes) == len(processes) else ""


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


_TROUBLE = {
    Trouble.NO_BINDING: (
        "The Python package nvidia-ml-py is not installed, so the driver cannot be asked.",
        "pip install 'gpuq-slurm[nvml]'",
    ),
    Trouble.NO_LIBRARY: (
        "The driver's library libnvidia-ml.so.1 is not installed: there is no NVIDIA driver here.",
        "install the driver (Debian: apt-get install nvidia-driver; Ubuntu: ubuntu-drivers install), then reboot",
    ),
    Trouble.NO_DRIVER: (
        "The driver's library is installed, but its kernel module is not loaded.",
        "modprobe nvidia; if there is none for this kernel (uname -r): dkms status, then reinstall the driver",
    ),
    Trouble.MISMATCH: (
        "The driver was updated while it was loaded: its library and the kernel module are of different versions.",
        "reboot; nothing can start on the GPU until then",
    ),
    Trouble.NO_DEVICE: (
        "The driver answers, but has no GPU.",
        "lspci -nn | grep -i nvidia shows whether the board sees it; dmesg | grep NVRM what the driver says",
    ),
    Trouble.LOST: (
        "The GPU does not answer any more: it has fallen off the bus, or must be reset.",
        "switch the machine off and on again (a reboot may not do); if it comes back: power supply, cable, heat",
    ),
    Trouble.NO_PERMISSION: (
        "The driver may not be asked by this user.",
        "ls -l /dev/nvidia*; on a distribution that asks for it, join the group that owns them",
    ),
    Trouble.LACKING: ("This driver is too old to be asked.", "update the driver, then reboot"),
    Trouble.OTHER: ("The driver answers with an error.", "nvidia-smi; dmesg | grep NVRM"),
}


def trouble_words(trouble: Trouble, detail: str = "") -> str:
    """What was found, in a sentence; with the driver's own words where they say more."""
    words = _TROUBLE[trouble][0]
    return f"{words[:-1]} ({detail})." if detail and trouble in {Trouble.OTHER, Trouble.LOST} else words


def trouble_advice(trouble: Trouble) -> str:
    """What to do about it."""
    return _TROUBLE[trouble][1]
