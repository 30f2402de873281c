"""slurm.conf, gres.conf and cgroup.conf of a one-host Slurm, rendered from a description of the host.

Pure: a `HostSpec` in, text out. The embedded Slurm (`gpuq local`) and the set-up of a real host share it, so
that a job meets the same rules on both. Every line that is not obvious says in the file why it is there.

Supported: Slurm 22.05, 24.11, 25.11 and 26.05. Keywords that not all of them know are written by version.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

CGROUP_KEYWORDS = (23, 2)
"""First release whose cgroup.conf knows EnableControllers and CgroupPlugin=disabled (22.05's library does not)."""

_WEEK = "7-00:00:00"


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


class Partition(msgspec.Struct, frozen=True):
    """One partition on the node. Times are Slurm time strings ("7-00:00:00"); None leaves Slurm's default."""

    name: str
    default: bool = False
    max_time: str = _WEEK
    default_time: str | None = None
    priority_tier: int | None = None
    max_cpus_per_node: int | None = None
    max_mem_per_node: int | None = None
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
    """One host with one GPU, as Slurm is to see it. Memory is in MiB, as in slurm.conf; times are seconds.

    `config_overrides` makes slurmd believe `cpus` and `real_memory` even where the hardware has less (tests).
    `extra` lines go to the end of slurm.conf unchanged.
    """

    version: tuple[int, int]
    cluster: str
    node: str
    hostname: str
    address: str
    cpus: CpuLayout
    real_memory: int
    gpu_file: Path | None
    gpu_type: str | None = None
    partitions: tuple[Partition, ...] = (Partition("gpu", default=True),)
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
    epilog: Path = Path("/bin/true")
    mail_program: Path = Path("/bin/true")
    ipv6: bool = True
    kill_wait: int = 30
    sched_interval: int = 5
    config_overrides: bool = False
    extra: tuple[str, ...] = ()


def memory_with_margin(seen_mib: int) -> int:
    """RealMemory (MiB) for a host whose slurmd sees `seen_mib`: 5 % less.

    The kernel does not offer the same amount at every boot. A node that reports less than slurm.conf says is
    set to INVAL and later stays drained ("Low RealMemory"), and nothing starts any more.
    """
    return max(1, seen_mib * 95 // 100)


def default_mem_per_cpu(spec: HostSpec) -> int:
    """DefMemPerCPU (MiB): each CPU brings its equal share, so that n CPUs never ask for more than the node has."""
    return max(1, spec.real_memory // max(1, spec.cpus.cpus))


def slurm_conf(spec: HostSpec) -> str:
    """The text of slurm.conf."""
    lines = [
        "# Written by gpuq; the next set-up writes it again.",
        f"ClusterName={spec.cluster}",
        f"SlurmctldHost={spec.hostname}({spec.address})",
        f"SlurmUser={spec.slurm_user}",
        f"SlurmdUser={spec.slurmd_user}",
        f"SlurmctldPort={spec.slurmctld_port}",
        f"SlurmdPort={spec.slurmd_port}",
        "AuthType=auth/munge",
        "CredType=cred/munge",
    ]
    if spec.munge_socket is not None:
        lines += ["# a munged of our own, so that the system's is neither needed nor touched",
                  f"AuthInfo=socket={spec.munge_socket}"]  # fmt: skip
    if spec.ipv6:
        lines += [
            "# Without a network Slurm cannot resolve even 127.0.0.1 (AF_INET with AI_ADDRCONFIG) and both daemons",
            "# die; with IPv6 allowed the loopback address is enough.",
            "CommunicationParameters=EnableIPv6",
        ]
    lines += [
        "",
        f"StateSaveLocation={spec.state_dir}",
        f"SlurmdSpoolDir={spec.spool_dir}",
        f"SlurmctldPidFile={spec.run_dir}/slurmctld.pid",
        f"SlurmdPidFile={spec.run_dir}/slurmd.pid",
        f"SlurmctldLogFile={spec.log_dir}/slurmctld.log",
        f"SlurmdLogFile={spec.log_dir}/slurmd.log",
        "",
        "# Cores and memory are both counted: a job gets what it asked for and no job can take more than is left.",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "GresTypes=gpu",
        "# A job that names no memory would otherwise get all of it, and nothing could run beside it.",
        f"DefMemPerCPU={default_mem_per_cpu(spec)}",
        "# A job that can never run is refused when it is submitted, instead of waiting for ever.",
        "EnforcePartLimits=ALL",
        "",
        "# With an Epilog slurmd reports the end of a job at once and the next one starts within 0.1 s;",
        "# without one the GPU idles for about 2.5 s, until slurmctld's background scheduler looks again.",
        f"Epilog={spec.epilog}",
        "# The same for a job that is submitted to an idle GPU. Do not add `defer`: it undoes the Epilog's effect.",
        "# enable_user_top: `scontrol top` is for everybody's own jobs, not for root alone.",
        f"SchedulerParameters=batch_sched_delay=0,sched_interval={spec.sched_interval},enable_user_top",
        "# First in, first out, and each job with a number of its own: the default of newer releases, multifactor,",
        "# gives 1 to every job while no weight is set, and then neither --nice nor `scontrol top` moves anything.",
        "PriorityType=priority/basic",
        f"KillWait={spec.kill_wait}",
        "",
        "# Finished jobs stay visible for a day, so that a reader that was away still finds how they ended.",
        "MinJobAge=86400",
        "# They count here too.",
        "MaxJobCount=50000",
        "# History without a database: one line per ended job.",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={spec.jobcomp_log}",
        "# The node comes back by itself after a reboot, even an unexpected one.",
        "ReturnToService=2",
        "# A job that the host interrupts (reboot, power cut) goes back to the queue.",
        "JobRequeue=1",
        "SlurmctldTimeout=120",
        "SlurmdTimeout=300",
        "# The default, /bin/mail, is rarely there, and slurmctld complains at every start.",
        f"MailProg={spec.mail_program}",
        "",
    ]
    lines += _confinement_lines(spec)
    if spec.config_overrides:
        lines += ["# The node below says more than the hardware has; take its word.",
                  "SlurmdParameters=config_overrides"]  # fmt: skip
    lines += ["", _node_line(spec)]
    lines += [_partition_line(spec, partition) for partition in spec.partitions]
    if spec.extra:
        lines += ["", "# given as extra lines", *spec.extra]
    return "\n".join(lines) + "\n"


def gres_conf(spec: HostSpec) -> str:
    """The text of gres.conf."""
    if spec.gpu_file is None:
        return "# This host has no GPU.\n"
    kind = f" Type={spec.gpu_type}" if spec.gpu_type else ""
    return (
        "# Written by gpuq. The device cgroup opens this file to a job with --gres=gpu:1 and closes it to others.\n"
        f"NodeName={spec.node} Name=gpu{kind} File={spec.gpu_file}\n"
    )


def cgroup_conf(spec: HostSpec) -> str:
    """The text of cgroup.conf. Only keywords that `spec.version` knows: an unknown one is fatal to slurmd."""
    held = spec.confinement
    lines = ["# Written by gpuq."]
    if not held.any:
        lines.append("# No confinement: without root (or without writable cgroups) Slurm counts but does not enforce.")
        # slurmd loads the plugin even when nothing is constrained, and v2's wants to make a scope. Where the plugin
        # cannot be switched off, v1's does nothing until it is used.
        lines.append(f"CgroupPlugin={'disabled' if spec.version >= CGROUP_KEYWORDS else 'cgroup/v1'}")
        return "\n".join(lines) + "\n"
    lines.append("CgroupPlugin=autodetect")
    if held.ignore_systemd:
        lines += ["# slurmd is not a systemd unit here: make the scope directly, without asking dbus.",
                  "IgnoreSystemd=yes"]  # fmt: skip
        if spec.version >= CGROUP_KEYWORDS:
            lines += ["# Nobody else enables the controllers for us then.", "EnableControllers=yes"]
    lines += [
        f"ConstrainCores={_yes(held.cores)}",
        f"ConstrainRAMSpace={_yes(held.ram)}",
        f"ConstrainDevices={_yes(held.devices)}",
    ]
    if held.swap:
        lines += [
            "# Without these a job grows into swap beyond its --mem and is never stopped.",
            "ConstrainSwapSpace=yes",
            "AllowedSwapSpace=0",
        ]
    return "\n".join(lines) + "\n"


def _confinement_lines(spec: HostSpec) -> list[str]:
    held = spec.confinement
    lines: list[str] = []
    if held.tracking:
        lines += ["# A process that calls setsid() still belongs to its job and ends with it.",
                  "ProctrackType=proctrack/cgroup"]  # fmt: skip
    else:
        lines += ["# By process tree only: no writable cgroups. A child that calls setsid() escapes.",
                  "ProctrackType=proctrack/linuxproc"]  # fmt: skip
    plugins = []
    if held.cores and not spec.config_overrides:
        plugins.append("task/affinity")  # binds tasks; processors that do not exist cannot be bound to
    if held.cores or held.ram or held.devices:
        plugins.append("task/cgroup")
    if plugins:
        lines.append(f"TaskPlugin={','.join(plugins)}")
    return lines


def _node_line(spec: HostSpec) -> str:
    cpus = spec.cpus
    parts = [
        f"NodeName={spec.node}",
        f"NodeHostname={spec.hostname}",
        f"NodeAddr={spec.address}",
        f"Port={spec.slurmd_port}",
        f"CPUs={cpus.cpus}",
        f"Boards={cpus.boards}",
        f"SocketsPerBoard={cpus.sockets_per_board}",
        f"CoresPerSocket={cpus.cores_per_socket}",
        f"ThreadsPerCore={cpus.threads_per_core}",
        f"RealMemory={spec.real_memory}",
    ]
    if spec.gpu_file is not None:
        parts.append(f"Gres=gpu:{spec.gpu_type}:1" if spec.gpu_type else "Gres=gpu:1")
    return " ".join([*parts, "State=UNKNOWN"])


def _partition_line(spec: HostSpec, partition: Partition) -> str:
    parts = [f"PartitionName={partition.name}", f"Nodes={spec.node}"]
    if partition.default:
        parts.append("Default=YES")
    parts.append(f"MaxTime={partition.max_time}")
    if partition.default_time is not None:
        parts.append(f"DefaultTime={partition.default_time}")
    if partition.priority_tier is not None:
        parts.append(f"PriorityTier={partition.priority_tier}")
    if partition.max_cpus_per_node is not None:
        parts.append(f"MaxCPUsPerNode={partition.max_cpus_per_node}")
    if partition.max_mem_per_node is not None:
        parts.append(f"MaxMemPerNode={partition.max_mem_per_node}")
    return " ".join([*parts, f"State={'UP' if partition.up else 'DOWN'}"])


def _yes(value: bool) -> str:
    return "yes" if value else "no"
