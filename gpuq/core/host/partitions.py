"""The partitions of a one-host Slurm: `gpu` for jobs with the GPU, `cpu` for work beside them, `bg` for filler. Pure."""

from __future__ import annotations

import msgspec

from gpuq.core.host.spec import GPU_CPUS, GPU_MEMORY, MAX_CPUS_MISCOUNTED, OLDEST, WEEK, CpuLayout, Partition

GPU, CPU, BACKGROUND = "gpu", "cpu", "bg"

GRACE = 30
"""Seconds between SIGTERM and the end of a filler job."""

_TIERS = {CPU: 30, GPU: 20, BACKGROUND: 10}


class Share(msgspec.Struct, frozen=True):
    """What work without a GPU may have of the node, all jobs together: hardware threads, and MiB."""

    cpus: int
    memory: int


def cpu_share(layout: CpuLayout, memory: int, gpus: int = 1) -> Share | None:
    """The share of partition `cpu` on a node of `layout` with `memory` MiB; None: one core cannot be shared.

    What the default jobs with `gpus` GPUs do not need; but where the node is so small that nothing would be left, a quarter
    (that job's defaults are smaller there, see core/fit). Whole cores, because Slurm hands out whole cores.
    """
    threads = layout.threads_per_core if layout.hardware == layout.cpus else 1
    cores = layout.cpus // threads
    if cores < 2:
        return None
    wanted = -(-GPU_CPUS * gpus // threads)
    mine = max(cores - wanted, cores // 4, 1)
    return Share(mine * threads, max(memory - GPU_MEMORY * gpus, memory // 4, 1))


def miscounts(version: tuple[int, int]) -> bool:
    """MaxCPUsPerNode is not relied on in this release."""
    first, sound = MAX_CPUS_MISCOUNTED
    return first <= version < sound


def partitions(
    layout: CpuLayout,
    memory: int,
    *,
    kinds: tuple[str | None, ...] = (None,),
    numbers: tuple[int, ...] = (0,),
    max_time: str = WEEK,
    default_time: str | None = None,
    grace: int = GRACE,
    version: tuple[int, int] = OLDEST,
) -> tuple[Partition, ...]:
    """The partitions of a node with a GPU of each of `kinds` (its GRES type) and `numbers` (as in /dev/nvidia0).

    The first GPU's partition is `gpu`, and the default; each further one has its own, `gpu1`. `cpu` is left out on a
    node with one core. grace: seconds.
    """
    share = cpu_share(layout, memory, len(kinds))
    found: list[Partition] = []
    for at, (kind, number) in enumerate(zip(kinds, numbers, strict=True)):
        found.append(
            Partition(
                name=GPU if at == 0 else f"{GPU}{number}",
                gpu="gpu" if kind is None else f"gpu:{kind}",
                why="Jobs with the GPU, one after the other." if at == 0 else f"The same for GPU {number}.",
                default=at == 0,
                max_time=max_time,
                default_time=default_time,
                priority_tier=_TIERS[GPU],
                preempt="OFF",
            )
        )
    if share is not None:
        found.append(
            Partition(
                name=CPU,
                gpu=None,
                why="Work without a GPU, beside the GPU jobs. Its share is capped, for all its jobs together, so that the "
                f"default GPU job ({GPU_CPUS} CPUs, {GPU_MEMORY // 1024}G, or what the node has) always fits: CPUs by "
                "MaxCPUsPerNode (or licenses), memory by MaxMemPerCPU, because more memory costs more CPUs (MaxMemPerNode "
                "would hold for each job alone, and two of them would fill the node). The higher PriorityTier: at once.",
                max_time=max_time,
                default_time=default_time,
                priority_tier=_TIERS[CPU],
                max_cpus_per_node=None if miscounts(version) else share.cpus,
                licenses=share.cpus if miscounts(version) else None,
                mem_per_cpu=max(1, share.memory // share.cpus),
                preempt="OFF",
            )
        )
    found.append(
        Partition(
            name=BACKGROUND,
            gpu=found[0].gpu,
            why="Filler: runs while no job of `gpu` waits. When one comes, it is told by SIGTERM, has GraceTime seconds to "
            "save, and goes back to the queue.",
            max_time=max_time,
            default_time=default_time,
            priority_tier=_TIERS[BACKGROUND],
            preempt="REQUEUE",
            grace=grace,
        )
    )
    return tuple(found)
