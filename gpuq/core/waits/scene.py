"""What is known about a waiting job, the numbers that follow from it, and their words. Pure."""

from __future__ import annotations

import datetime

import msgspec

from gpuq.core.fit import share_of
from gpuq.core.job import Job, Node, Partition, Phase
from gpuq.core.units import format_duration, format_size, slurm_megabytes
from gpuq.core.usage import Allocation, Estimate, NodeUsage


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has part of a node now."""

    job: Job
    has: Allocation
    typical: int | None = None
    """Seconds: the median of how long the succeeded attempts of its run took; None: there is none."""
    own: bool = True
    """It is the caller's."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known about one waiting job."""

    job: Job
    name: str
    """What a person calls it: the TAG, or the job's id as Slurm shows it (`12_[3-9]`)."""
    asks: Allocation
    rows: tuple[Job, ...]
    """The queue, with those ended jobs that slurmctld remembers."""
    holders: tuple[Holder, ...] = ()
    partitions: tuple[Partition, ...] = ()
    nodes: tuple[Node, ...] = ()
    usage: tuple[NodeUsage, ...] = ()
    now: datetime.datetime
    default_memory: bool = True
    """Slurm gives a job that names no memory a share, and not all of it (DefMemPerNode, DefMemPerCPU)."""
    slurmd_log: str = ""
    cancels_orphans: bool = False
    """Slurm will cancel the job when its dependency can never be satisfied."""
    with_gpu: Estimate | None = None
    without_gpu: Estimate | None = None

    @property
    def ref(self) -> str:
        """What commands that change it take: the TAG, or the id of the whole job."""
        return str(self.job.number) if self.name == self.job.id else self.name

    @property
    def partition(self) -> Partition | None:
        """The partition of the job (the first of several that exists)."""
        names = self.job.partition.split(",")
        return next((partition for partition in self.partitions if partition.name in names), None)

    @property
    def places(self) -> tuple[NodeUsage, ...]:
        """The nodes of the job's partitions."""
        names = self.job.partition.split(",")
        mine = {node.name for node in self.nodes if node.partition in names}
        return tuple(node for node in self.usage if node.name in mine)


# -- numbers -------------------------------------------------------------------------------------------------------


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What all jobs of a partition may have of a node together, where the job that waits finds too little left of it."""

    partition: Partition
    node: str
    cpus: int
    taken: int
    asked: int
    """CPUs that it named."""
    wants: int
    """CPUs, those that its memory costs included."""

    @property
    def for_memory(self) -> bool:
        """It is its memory that asks for so many."""
        return self.wants > self.asked


def full_share(scene: Scene) -> Share | None:
    """The share that the job waits for; None: on some node enough of it is left, or there is no such limit.

    Slurm counts MaxCPUsPerNode over all jobs of the partition, and gives CPUs for memory above MaxMemPerCPU (slurm.conf(5)).
    """
    found: Share | None = None
    names = scene.job.partition.split(",")
    usable = {node.name for node in scene.usage if node.usable}
    for partition in (one for one in scene.partitions if one.name in names):
        for node in (one for one in scene.nodes if one.partition == partition.name and one.name in usable):
            cap, each = share_of(partition, node), partition.max_memory_per_cpu
            if cap is None:
                return None
            wants = max(scene.asks.cpus, -(-(scene.asks.memory or 0) // each) if each else 0)
            taken = sum(row.cpus for row in scene.rows if _holds_there(row, partition, node))
            if wants <= cap - taken or wants > cap:  # more than there is at all is no waiting
                return None
            if found is None or cap - taken > found.cpus - found.taken:
                found = Share(
                    partition=partition, node=node.name, cpus=cap, taken=taken, wants=wants, asked=scene.asks.cpus
                )
    return found


def _holds_there(row: Job, partition: Partition, node: Node) -> bool:
    return row.phase in {Phase.RUNNING, Phase.ENDING} and row.partition == partition.name and row.node == node.name


def share_holders(share: Share, scene: Scene) -> list[Holder]:
    """Who has the share now, whoever has most of it first."""
    held = [h for h in scene.holders if h.job.partition == share.partition.name and h.job.node == share.node]
    return sorted(held, key=lambda h: -h.has.cpus)


def share_words(share: Share, scene: Scene) -> str:
    """Who has how much of it, and how much the job that waits takes."""
    held = ", ".join(f"{holder_name(h)} holds {h.has.cpus}" for h in share_holders(share, scene)[:3])
    takes = f"takes {share.wants}"
    if share.for_memory:
        each = format_size(share.partition.max_memory_per_cpu or 0)
        takes += f" ({format_size(scene.asks.memory or 0)} of memory, {each} each)"
    return (
        f"all jobs of partition {share.partition.name} together may have {count_words(share.cpus, 'CPU')} of {share.node}, "
        f"{held or f'{share.taken} are taken'}, this one {takes}"
    )


def share_advice(share: Share, scene: Scene) -> tuple[str, ...]:
    """What helps: less memory, where that alone would do; else to wait for whoever has most."""
    advice = []
    left, each = share.cpus - share.taken, share.partition.max_memory_per_cpu
    if share.for_memory and each and left >= share.asked:
        advice.append(f"if it can do with less: gpuq set {scene.ref} --mem {left * each // 2**20}M (free now)")
    return (*advice, *(f"gpuq wait {holder.job.number}" for holder in share_holders(share, scene)[:1]))


def shortages(scene: Scene) -> tuple[str, ...]:
    """Of `gpu`, `memory` and `cores` what no node has enough of now, the weightiest first; empty: it fits somewhere."""
    asks = scene.asks
    nodes = [node for node in scene.places if node.usable]
    wanted = asks.gpus
    with_gpu = [node for node in nodes if node.gpus - node.gpus_used >= wanted]
    if not nodes:
        return ()
    candidates = with_gpu or [node for node in nodes if node.gpus >= wanted] or nodes
    short = [] if with_gpu else ["gpu"]

    def memory_fits(node: NodeUsage) -> bool:
        return node.memory - node.memory_used >= memory_wanted(scene, node)

    def cores_fit(node: NodeUsage) -> bool:
        return node.cpus - node.cpus_used >= asks.cpus

    if any(memory_fits(node) and cores_fit(node) for node in candidates):
        return tuple(short)
    if not any(memory_fits(node) for node in candidates):
        short.append("memory")
    if not any(cores_fit(node) for node in candidates) or not short:
        short.append("cores")
    return tuple(short)


def memory_wanted(scene: Scene, node: NodeUsage) -> int:
    if scene.asks.memory is not None:
        return scene.asks.memory
    return 0 if scene.default_memory else node.memory


def holders_of(what: str, scene: Scene) -> list[Holder]:
    if what == "memory":
        return sorted((h for h in scene.holders if h.has.memory), key=lambda h: -(h.has.memory or 0))
    return sorted(scene.holders, key=lambda h: -h.has.cpus)


def short_words(what: str, scene: Scene) -> str:
    asks = scene.asks
    node = max((n for n in scene.places if n.usable), key=lambda n: n.memory - n.memory_used)
    if what == "gpu":
        return "all GPUs are taken"
    if what == "cores":
        held = ", ".join(f"{holder_name(h)} holds {h.has.cpus}" for h in holders_of(what, scene)[:3])
        return f"{held or f'{node.cpus_used} are taken'} of {node.cpus} cores, this one asks for {asks.cpus}"
    parts = []
    for holder in holders_of(what, scene)[:3]:
        text = f"{holder_name(holder)} holds {format_size(holder.has.memory or 0)}"
        if named_no_memory(holder, node, scene):
            text += " (it asked for no --mem)"
        parts.append(text)
    held = ", ".join(parts) or f"{format_size(node.memory_used)} are taken"
    wants = f"this one asks for {format_size(asks.memory)}" if asks.memory else "this one names no --mem and gets all"
    return f"{held} of {format_size(node.memory)}, {wants}"


def named_no_memory(holder: Holder, node: NodeUsage, scene: Scene) -> bool:
    if holder.job.memory is None:
        return True  # Slurm says 0 for a job that named none
    everything = holder.has.memory is not None and holder.has.memory >= node.memory
    return everything and not scene.default_memory and not holder.job.comment.startswith("gpuq:")


def room_advice(what: str, scene: Scene, holders: list[Holder]) -> tuple[str, ...]:
    node = max((n for n in scene.places if n.usable), key=lambda n: n.memory - n.memory_used)
    advice = []
    free = (node.memory - node.memory_used) // 2**20
    if what == "memory" and free >= 64 and scene.asks.memory is not None:
        advice.append(f"if it can do with less: gpuq set {scene.ref} --mem {free}M (free now)")
    elif what == "memory" and scene.asks.memory is None:
        advice.append(f"say how much it needs: scontrol update JobId={scene.job.id} MinMemoryNode=MEGABYTES")
    if holders:
        advice.append(f"gpuq wait {holders[0].job.number}")
    if what == "memory" and not scene.default_memory:
        share = max(1, slurm_megabytes(node.memory) // max(1, node.cpus))
        advice.append(f"so that no job takes all memory, in slurm.conf: DefMemPerCPU={share}")
    return tuple(advice)


def jobs_ahead(scene: Scene) -> tuple[Job, ...]:
    """Waiting jobs of the same partition that Slurm considers first and that could start, the next one first."""
    job = scene.job
    mine = set(job.partition.split(","))
    partition = scene.partition
    longest = partition.max_time if partition is not None else None
    rows = [
        other
        for other in scene.rows
        if other.phase is Phase.WAITING
        and other.number != job.number
        and other.priority > 0
        and (-other.priority, other.number) < (-job.priority, job.number)
        and not other.dependency
        and mine & set(other.partition.split(","))
        and not (longest is not None and (other.time_limit is None or other.time_limit > longest))
        and other.reason.split(",")[0] not in {"BeginTime", "PartitionConfig", "BadConstraints", "PartitionTimeLimit"}
    ]
    return tuple(sorted(rows, key=lambda other: (-other.priority, other.number)))


# -- words ---------------------------------------------------------------------------------------------------------

FAR = datetime.datetime.max.replace(tzinfo=datetime.UTC)


def reason_line(job: Job) -> str:
    return f"job {job.id} is {job.state}, Reason={job.reason or 'None'}"


def count_words(number: int, what: str = "job") -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"


def holder_name(holder: Holder) -> str:
    whose = "" if holder.own else f", {holder.job.user}"
    return f"job {holder.job.id} ({holder.job.shown}{whose})"


def holder_end(holder: Holder) -> datetime.datetime | None:
    return holder.job.end


def until_words(holder: Holder, now: datetime.datetime) -> str:
    """Until when: at the latest by its limit, probably by what its run took before."""
    end = holder.job.end
    text = "without a time limit"
    if holder.job.phase is Phase.ENDING:
        return "and is just ending"
    if end is not None and holder.job.time_limit is not None:
        text = f"until {clock(end, now)} at the latest (its limit, in {format_duration((end - now).total_seconds())})"
    if holder.typical is not None and holder.job.start is not None:
        probable = holder.job.start + datetime.timedelta(seconds=holder.typical)
        if probable > now:
            text += f", probably until {clock(probable, now)} (its run usually takes {format_duration(holder.typical)})"
        else:
            text += f"; it already runs longer than its usual {format_duration(holder.typical)}"
    return text


def clock(moment: datetime.datetime, now: datetime.datetime) -> str:
    """Local time of day, with the date when it is not today's."""
    local = moment.astimezone()
    return local.strftime("%H:%M" if local.date() == now.astimezone().date() else "%Y-%m-%d %H:%M")


def clock_time(seconds: int) -> str:
    """A time limit as squeue prints it: `30:00`, `2:00:00`, `1-00:00:00`."""
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{left:02d}"
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def node_words(node: NodeUsage) -> str:
    gpus = f"GPU {node.gpus_used} of {node.gpus}, " if node.gpus else ""
    return (
        f"node {node.name}: {gpus}memory {format_size(node.memory_used)} of {format_size(node.memory)}, "
        f"cores {node.cpus_used} of {node.cpus} taken"
    )


def estimate_words(scene: Scene) -> tuple[str, ...]:
    found = []
    expected, bare = scene.with_gpu, scene.without_gpu
    start = scene.job.start or (expected.start if expected is not None else None)
    if start is not None:
        found.append(f"Slurm expects it to start at {clock(start, scene.now)}, if all run to their limits")
    elif expected is not None and not expected.possible:
        found.append(f"Slurm would not take such a job now: {expected.words}")
    minute = datetime.timedelta(minutes=1)
    if bare is not None and bare.start is not None and start is not None and start - bare.start > minute:
        found.append(f"without the GPU it could start at {clock(bare.start, scene.now)}: the GPU is what it waits for")
    return tuple(found)
