"""slurm.conf of a one-host Slurm, rendered from a `HostSpec`: text in, text out.

The embedded Slurm (`gpuq local`) and the set-up of a real host (`gpuq host plan`) share it, so that a job meets the same
rules on both. Every line that is not obvious says in the file why it is there. gres.conf and cgroup.conf are in
`gres_conf`, job_submit.lua in `job_submit_lua`, the epilog in `epilog`, what surrounds them in `units`.

Supported: Slurm 22.05, 24.11, 25.11 and 26.05. Keywords that not all of them know are written by version.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import msgspec

from gpuq.core.host.spec import KEPT, LICENSE, HostSpec, Partition, default_mem_per_cpu

NO_RESERVATION = 4294967294
"""The highest priority that a job can have: with bf_min_prio_reserve set to it, no waiting job reserves anything."""


class Block(msgspec.Struct, frozen=True):
    """Lines of a configuration, and what they are for; an empty `why` where the line says it itself."""

    lines: tuple[str, ...]
    why: str = ""


def slurm_conf(spec: HostSpec) -> str:
    """The text of slurm.conf."""
    parts = ["# Written by gpuq; the next set-up writes it again."]
    for section in _sections(spec):
        parts.append("\n".join(_text(block) for block in section))
    return "\n\n".join(parts) + "\n"


def slurm_conf_blocks(spec: HostSpec) -> list[Block]:
    """The same as values: each setting with what it is for."""
    return [block for section in _sections(spec) for block in section]


def _text(block: Block) -> str:
    return "\n".join([*comment(block.why), *block.lines])


def comment(words: str) -> list[str]:
    """`words` as comment lines of a configuration; none for no words."""
    return [f"# {line}" for line in textwrap.wrap(words, 116, break_on_hyphens=False)] if words else []


def _sections(spec: HostSpec) -> Iterator[list[Block]]:
    yield [*_identity(spec)]
    yield [*_places(spec)]
    yield [*_resources(spec), *_licenses(spec)]
    yield [*_scheduling(spec)]
    yield [*_history(spec)]
    yield [*_confinement(spec)]
    yield [*_node(spec), *(_partition(spec, one) for one in spec.partitions)]
    if spec.extra:
        yield [Block(spec.extra, "given as extra lines")]


def _identity(spec: HostSpec) -> Iterator[Block]:
    yield Block(
        (
            f"ClusterName={spec.cluster}",
            f"SlurmctldHost={spec.hostname}({spec.address})",
            f"SlurmUser={spec.slurm_user}",
            f"SlurmdUser={spec.slurmd_user}",
            f"SlurmctldPort={spec.slurmctld_port}",
            f"SlurmdPort={spec.slurmd_port}",
            "AuthType=auth/munge",
            "CredType=cred/munge",
        )
    )
    if spec.munge_socket is not None:
        yield Block(
            (f"AuthInfo=socket={spec.munge_socket}",),
            "a munged of our own, so that the system's is neither needed nor touched",
        )
    if spec.ipv6:
        yield Block(
            ("CommunicationParameters=EnableIPv6",),
            "Without a network Slurm cannot resolve even 127.0.0.1 (AF_INET with AI_ADDRCONFIG) and both daemons die; "
            "with IPv6 allowed the loopback address is enough.",
        )


def _places(spec: HostSpec) -> Iterator[Block]:
    yield Block(
        (
            f"StateSaveLocation={spec.state_dir}",
            f"SlurmdSpoolDir={spec.spool_dir}",
            f"SlurmctldPidFile={spec.run_dir}/slurmctld.pid",
            f"SlurmdPidFile={spec.run_dir}/slurmd.pid",
            f"SlurmctldLogFile={spec.log_dir}/slurmctld.log",
            f"SlurmdLogFile={spec.log_dir}/slurmd.log",
        )
    )


def _resources(spec: HostSpec) -> Iterator[Block]:
    yield Block(
        (
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            f"GresTypes=gpu,{KEPT}" if spec.kept else "GresTypes=gpu",
        ),
        "Cores and memory are both counted: a job gets what it asked for and no job can take more than is left.",
    )
    yield Block(
        (f"DefMemPerCPU={default_mem_per_cpu(spec)}",),
        "A job that names no memory would otherwise get all of it, and nothing could run beside it.",
    )
    yield Block(
        ("EnforcePartLimits=ALL",),
        "A job that can never run (a --time above MaxTime) is refused when it is submitted, instead of waiting for ever.",
    )
    if spec.gate:
        yield Block(
            ("JobSubmitPlugins=lua",),
            "job_submit.lua, beside this file: in a GPU partition a job asks for exactly one GPU, or is told what to add.",
        )


def _licenses(spec: HostSpec) -> Iterator[Block]:
    counts = [one.licenses for one in spec.partitions if one.licenses]
    if counts and spec.gate:
        yield Block(
            (f"Licenses={LICENSE}:{counts[0]}",),
            "The CPUs of partition `cpu`, all its jobs together; job_submit.lua takes one for each CPU. This release's "
            "MaxCPUsPerNode counts the jobs of other partitions, too.",
        )


def _scheduling(spec: HostSpec) -> Iterator[Block]:
    yield Block(
        (f"Epilog={spec.epilog}",),
        "Ends what a job left on the GPU. And because there is an Epilog, slurmd reports the end of a job at once and the "
        "next one starts within 0.1 s; without one the GPU idles for about 2.5 s, until slurmctld's background scheduler "
        "looks again. (An EpilogSlurmctld undoes that: the job is still COMPLETING when slurmctld is told.)",
    )
    yield Block(
        (
            f"SchedulerParameters=batch_sched_delay=0,sched_interval={spec.sched_interval},enable_user_top,"
            f"bf_min_prio_reserve={NO_RESERVATION}",
        ),
        "batch_sched_delay, sched_interval: the same for a job that is submitted to an idle GPU. Do not add `defer`: it "
        "undoes the Epilog's effect. enable_user_top: `scontrol top` is for everybody's own jobs, not for root alone. "
        "bf_min_prio_reserve: no waiting job keeps the node for itself. Else a waiting GPU job holds back CPU work "
        "beside it, and a CPU job that waits for its share holds back the GPU. The price: a job that asks for more than "
        "is always left for it can be overtaken by smaller ones, and Slurm forecasts no start times.",
    )
    yield Block(
        ("PriorityType=priority/basic",),
        "First in, first out, and each job with a number of its own: the default of newer releases, multifactor, gives 1 to "
        "every job while no weight is set, and then neither --nice nor `scontrol top` moves anything.",
    )
    if spec.preempts:
        yield Block(
            (
                "PreemptType=preempt/partition_prio",
                "PreemptMode=REQUEUE",
                "SlurmctldParameters=preempt_send_user_signal",
            ),
            "A job of a partition with PreemptMode=REQUEUE makes way for one of a partition with a higher PriorityTier. "
            "preempt_send_user_signal: it is told with the --signal that it asked for; otherwise SIGTERM goes to job steps "
            "only, and the batch script and what it started hear nothing.",
        )
    yield Block(
        (f"KillWait={spec.kill_wait}",),
        "Between SIGTERM and SIGKILL. Also, with MessageTimeout (10), how long slurmctld waits before it looks at a "
        "preempted job again: more than GraceTime together would make the grace that much longer.",
    )
    yield Block(
        ("UnkillableStepTimeout=180",),
        "A process in a system call of the GPU driver does not die at once; the default, 60 s, drains the node for it.",
    )
    # DependencyParameters=kill_invalid_depend is left out on purpose; docs/adr/0019.


def _history(spec: HostSpec) -> Iterator[Block]:
    yield Block(
        ("MinJobAge=86400", "MaxJobCount=50000"),
        "Finished jobs stay visible for a day, so that a reader that was away still finds how they ended. They count in "
        "MaxJobCount too.",
    )
    yield Block(
        ("JobCompType=jobcomp/filetxt", f"JobCompLoc={spec.jobcomp_log}"),
        "History without a database: one line per ended job, readable by everybody.",
    )
    yield Block(("ReturnToService=2",), "The node comes back by itself after a reboot, even an unexpected one.")
    yield Block(
        ("JobRequeue=1", "JobFileAppend=1"),
        "A job that the host interrupts (reboot, power cut) goes back to the queue, and its log is not emptied then.",
    )
    yield Block(("SlurmctldTimeout=120", "SlurmdTimeout=300"))
    yield Block(
        (f"MailProg={spec.mail_program}",),
        "The default, /bin/mail, is rarely there, and slurmctld complains at every start.",
    )


def _confinement(spec: HostSpec) -> Iterator[Block]:
    held = spec.confinement
    if held.tracking:
        yield Block(
            ("ProctrackType=proctrack/cgroup",),
            "A process that calls setsid() still belongs to its job and ends with it.",
        )
    else:
        yield Block(
            ("ProctrackType=proctrack/linuxproc",),
            "By process tree only: no writable cgroups. A child that calls setsid() escapes.",
        )
    plugins = []
    if held.cores and not spec.config_overrides:
        plugins.append("task/affinity")  # binds tasks; processors that do not exist cannot be bound to
    if held.cores or held.ram or held.devices:
        plugins.append("task/cgroup")
    if plugins:
        yield Block((f"TaskPlugin={','.join(plugins)}",), "Holds jobs to what cgroup.conf constrains.")
    if spec.config_overrides:
        yield Block(
            ("SlurmdParameters=config_overrides",), "The node below says more than the hardware has; take its word."
        )


def _node(spec: HostSpec) -> Iterator[Block]:
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
    gres = [f"gpu:{gpu.kind}:1" if gpu.kind else "gpu:1" for gpu in spec.gpus]
    if spec.kept:
        gres.append(f"{KEPT}:{len(spec.kept)}")  # why: gres.conf
    if gres:
        parts.append(f"Gres={','.join(gres)}")
    yield Block(
        (" ".join([*parts, "State=UNKNOWN"]),),
        "RealMemory is less than there is: a node that reports less than is written here, were it one MB after a change "
        "of kernel, is drained, and the desktop needs memory too.",
    )


def _partition(spec: HostSpec, one: Partition) -> Block:
    parts = [f"PartitionName={one.name}", f"Nodes={spec.node}"]
    if one.default:
        parts.append("Default=YES")
    parts.append(f"MaxTime={one.max_time}")
    if one.default_time is not None:
        parts.append(f"DefaultTime={one.default_time}")
    if one.priority_tier is not None:
        parts.append(f"PriorityTier={one.priority_tier}")
    if one.max_cpus_per_node is not None:
        parts.append(f"MaxCPUsPerNode={one.max_cpus_per_node}")
    if one.max_mem_per_node is not None:
        parts.append(f"MaxMemPerNode={one.max_mem_per_node}")
    if one.mem_per_cpu is not None:
        parts += [f"DefMemPerCPU={one.mem_per_cpu}", f"MaxMemPerCPU={one.mem_per_cpu}"]
    if one.preempt is not None and spec.preempts:
        parts.append(f"PreemptMode={one.preempt}")
    if one.grace is not None:
        parts.append(f"GraceTime={one.grace}")
    return Block((" ".join([*parts, f"State={'UP' if one.up else 'DOWN'}"]),), one.why)
