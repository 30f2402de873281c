"""What a one-host Slurm is to be: the values from which the modules beside this one render its files. Pure.

Memory is in MiB, as in slurm.conf; times are seconds, or Slurm time strings where a field says so.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

CGROUP_KEYWORDS = (23, 2)
"""First release whose cgroup.conf knows EnableControllers and CgroupPlugin=disabled (22.05's library does not)."""

MAX_CPUS_MISCOUNTED = ((22, 6), (26, 5))
"""Releases, from the first up to before the second, whose MaxCPUsPerNode is not relied on. 24.11 holds what other partitions
have on the node against it: with 8 CPUs of a GPU job and MaxCPUsPerNode=8 no job of `cpu` starts. 22.05 and 26.05 count the
partition's own jobs, as slurm.conf(5) says; what lies between was not tried."""

LICENSE = "cpushare"
"""Slurm's licenses, one for each CPU that partition `cpu` may have, do there what MaxCPUsPerNode does elsewhere."""

OLDEST = (22, 5)
"""The oldest release that is rendered for."""

NEWEST = (26, 5)
"""The newest release that was tried."""

WEEK = "7-00:00:00"

KEPT = "nic"
"""The GRES that stands for GPUs which no job gets. Slurm closes the files of a GRES to which there is a plugin: that is gpu,
which gpuq and sinfo would count, or nic, which does nothing else but set variables of MPI for a job that asks for it."""

GPU_CPUS = 8
GPU_MEMORY = 28 * 1024
"""MiB. What `gpuq submit` asks for by itself; other work on the host may never take so much that this does not fit."""


class CpuLayout(msgspec.Struct, frozen=True):
    """The processors of the node as `slurmd -C` counts them; `cpus` are hardware threads."""

    cpus: int
    boards: int = 1
    sockets_per_board: int = 1
    cores_per_socket: int = 1
    threads_per_core: int = 1

    @property
    def hardware(self) -> int:
        """Hardware threads of the whole layout."""
        return self.boards * self.sockets_per_board * self.cores_per_socket * self.threads_per_core

    def limited(self, cpus: int) -> CpuLayout:
        """A flat layout of `cpus` processors: what a node that offers fewer (or pretends more) is given."""
        return CpuLayout(cpus=cpus, cores_per_socket=cpus)

    def consistent(self) -> CpuLayout:
        """The same with a number of CPUs that Slurm accepts: one that is not the cores, or the threads, of the layout
        (12 cores of two kinds with 20 threads: `slurmd -C` says CPUs=20 and 1x12x1) is reset by slurmctld to the product."""
        cores = self.hardware // max(1, self.threads_per_core)
        return self if self.cpus in (self.hardware, cores) else msgspec.structs.replace(self, cpus=self.hardware)


class Gpu(msgspec.Struct, frozen=True):
    """A GPU that Slurm hands out. kind: its GRES type, which tells GPUs of different partitions apart."""

    file: Path
    kind: str | None = None


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition on the node. Times are Slurm time strings ("7-00:00:00"); None leaves Slurm's default.

    gpu: the GRES (without the count) that a job in it asks for: "gpu", or "gpu:gpu1" where each GPU has a partition of its
    own; None: it is for work without a GPU. why: a comment for the file. licenses: CPUs that all its jobs together may have,
    counted as licenses by job_submit.lua.
    """

    name: str
    gpu: str | None = "gpu"
    why: str = ""
    default: bool = False
    max_time: str = WEEK
    default_time: str | None = None
    priority_tier: int | None = None
    max_cpus_per_node: int | None = None
    licenses: int | None = None
    max_mem_per_node: int | None = None
    mem_per_cpu: int | None = None
    preempt: str | None = None
    grace: int | None = None
    """Seconds."""
    up: bool = True


class Confinement(msgspec.Struct, frozen=True):
    """What the kernel holds jobs to. All False: a plain user's Slurm, which only counts and never enforces."""

    tracking: bool = False
    cores: bool = False
    ram: bool = False
    swap: bool = False
    devices: bool = False
    ignore_systemd: bool = False

    @property
    def any(self) -> bool:
        """True when at least one cgroup controller is in use."""
        return self.tracking or self.cores or self.ram or self.swap or self.devices


class HostSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One host, as Slurm is to see it.

    `config_overrides` makes slurmd believe `cpus` and `real_memory` even where the hardware has less (tests).
    gate: job_submit.lua is rendered and used. `extra` lines go to the end of slurm.conf unchanged.
    """

    version: tuple[int, int]
    cluster: str
    node: str
    hostname: str
    address: str
    cpus: CpuLayout
    real_memory: int
    gpus: tuple[Gpu, ...]
    kept: tuple[Path, ...] = ()
    """Device files of further GPUs: closed to all jobs."""
    partitions: tuple[Partition, ...] = (Partition(name="gpu", default=True),)
    slurm_user: str = "slurm"
    slurmd_user: str = "root"
    slurmctld_port: int = 6817
    slurmd_port: int = 6818
    munge_socket: Path | None = None
    state_dir: Path
    spool_dir: Path
    log_dir: Path
    run_dir: Path
    jobcomp_log: Path
    confinement: Confinement = Confinement()
    epilog: Path
    gate: bool = True
    mail_program: Path = Path("/bin/true")
    ipv6: bool = True
    kill_wait: int = 20
    sched_interval: int = 5
    config_overrides: bool = False
    extra: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[Path, ...]:
        """All files that gres.conf names: slurmd does not start without them."""
        return (*(gpu.file for gpu in self.gpus), *self.kept)

    @property
    def preempts(self) -> bool:
        """True when jobs of some partition make way for others."""
        return any(one.preempt not in (None, "OFF") for one in self.partitions)


def memory_with_margin(seen_mib: int) -> int:
    """RealMemory (MiB) for a host whose slurmd sees `seen_mib`: 5 % less.

    The kernel does not offer the same amount at every boot. A node that reports less than slurm.conf says is
    set to INVAL and later stays drained ("Low RealMemory"), and nothing starts any more.
    """
    return max(1, seen_mib * 95 // 100)


def default_mem_per_cpu(spec: HostSpec) -> int:
    """DefMemPerCPU (MiB): each CPU brings its equal share, so that n CPUs never ask for more than the node has."""
    return max(1, spec.real_memory // max(1, spec.cpus.cpus))
