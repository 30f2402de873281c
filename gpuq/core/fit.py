"""What a run asks for, held against what the partition and its nodes have, before Slurm is asked.

Slurm accepts `--time` above MaxTime and `-c` above the node's cores and leaves such jobs pending for ever.
"""

from __future__ import annotations

import msgspec

from gpuq.core.attempt import Request
from gpuq.core.config import Settings
from gpuq.core.job import Node, Partition
from gpuq.core.units import (
    GIB,
    MIB,
    duration_words,
    format_size,
    is_minutes_seconds,
    parse_time_limit,
    slurm_megabytes,
    slurm_time,
)
from gpuq.errors import SubmissionRefused

DEFAULT_CPUS = 8
DEFAULT_MEMORY = 28 * GIB
"""What a bare `gpuq submit TAG` asks for; less where the node has less."""

CPU, BACKGROUND = "cpu", "bg"
"""Partitions that gpuq's set-up of a host makes (core/host/partitions): work without a GPU, and filler."""

THREADS = 4
"""Of a core; more than that is no rounding to whole cores."""

SUSPICIOUS_MEMORY = 64 * MIB
"""Hardly an interpreter starts in so little: whoever asks for it has written 28 and meant 28G."""


class _Room(msgspec.Struct, frozen=True):
    """What one node can give to one job."""

    name: str
    cpus: int
    memory: int
    node: Node


class Fitted(msgspec.Struct, frozen=True):
    """A request that fits, and what a person should know about it."""

    request: Request
    notes: tuple[str, ...]


def choose_partition(name: str | None, partitions: list[Partition]) -> Partition:
    """The named partition, or Slurm's default one. Raises SubmissionRefused, naming those that there are."""
    known = ", ".join(partition.name for partition in partitions) or "none"
    for partition in partitions:
        if partition.name == name or (name is None and partition.default):
            return partition
    if name is None:
        raise SubmissionRefused(
            f"Slurm has no default partition (there are: {known})", hint="name one: gpuq submit TAG --partition NAME"
        )
    raise SubmissionRefused(f"there is no partition {name!r} (there are: {known})", hint="sinfo")


def for_kind(settings: Settings, partitions: list[Partition], *, cpu_only: bool, fill: bool) -> Settings:
    """`settings` with the partition that is there for such work: `cpu` for work without a GPU, where there is one, and
    `bg` for filler. Raises SubmissionRefused when there is none for filler."""
    names = {partition.name for partition in partitions}
    if fill:
        if BACKGROUND not in names:
            raise SubmissionRefused(
                f"this Slurm has no partition {BACKGROUND!r} for filler (there are: {', '.join(sorted(names)) or 'none'})",
                hint="gpuq host plan renders one; or name another: --partition NAME",
            )
        return msgspec.structs.replace(settings, partition=BACKGROUND)
    if cpu_only and CPU in names:
        return msgspec.structs.replace(settings, partition=CPU)
    return settings


def _left_by(beside: list[Partition], mine: Partition, room: _Room) -> _Room:
    """What always remains of a node for a GPU job: not what partition `cpu` may take, nor what jobs with other GPUs do."""
    gpus = max(1, room.node.gpus)
    for other in beside:
        if other.name == CPU and mine.name != CPU and other.max_memory_per_cpu:
            taken = share_of(other, room.node) or 0
            cpus = (room.cpus - taken) // gpus
            if gpus > 1 and cpus > 1:
                cpus -= cpus % 2  # two threads of one core do not go to two jobs
            memory = (room.memory - taken * other.max_memory_per_cpu) // gpus // MIB * MIB
            if cpus > 0 and memory > 0:
                return _Room(room.name, min(room.cpus, cpus), min(room.memory, memory), room.node)
    return room


def _licensed(node: Node, each: int) -> int:
    """CPUs of partition `cpu` where Slurm counts them as licenses and tells no limit; 0: it is none of gpuq's.

    each: MaxMemPerCPU, in bytes. core/host/partitions made it from the share of the memory, which tells the share of the
    CPUs: whole cores, which the node's line does not tell."""
    if node.cpus < 2:
        return 0
    memory, each = node.memory // MIB, max(1, each // MIB)
    share = max(memory - DEFAULT_MEMORY // MIB * max(1, node.gpus), memory // 4, 1)
    guess = max(node.cpus - DEFAULT_CPUS * max(1, node.gpus), node.cpus // 4, 1)
    fewest, most = share // (each + 1) + 1, max(1, share // each)  # those of which each has just so much
    found = min(max(guess, fewest), most)
    return found if abs(found - guess) < THREADS else guess


def share_of(partition: Partition, node: Node) -> int | None:
    """CPUs of `node` that all jobs of `partition` may have together; None: there is no such limit."""
    if partition.max_cpus_per_node is not None:
        return partition.max_cpus_per_node
    if partition.name == CPU and partition.max_memory_per_cpu:
        return _licensed(node, partition.max_memory_per_cpu) or node.cpus
    return None


def _rooms(partition: Partition, nodes: list[Node]) -> list[_Room]:
    """What each of `nodes` gives to one job of `partition`."""
    rooms = []
    for node in nodes:
        cpus, memory = (
            _capped(node.cpus, partition.max_cpus_per_node),
            _capped(node.memory, partition.max_memory_per_node),
        )
        if partition.name == CPU and partition.max_memory_per_cpu and partition.max_cpus_per_node is None:
            cpus = share_of(partition, node) or cpus
            memory = min(memory, cpus * partition.max_memory_per_cpu)
        rooms.append(_Room(node.name, cpus, memory, node))
    return rooms


def most_memory(partition: Partition, nodes: list[Node], *, gpu: bool) -> int:
    """The most memory that a job of `partition` can have on one node, in bytes; 0: there is no such node."""
    mine = [node for node in nodes if node.partition == partition.name and (node.gpus or not gpu)]
    return max((room.memory for room in _rooms(partition, mine)), default=0)


def fit(
    settings: Settings,
    *,
    gpu: bool,
    hold: bool,
    partition: Partition,
    nodes: list[Node],
    beside: list[Partition] | None = None,
) -> Fitted:
    """Complete `settings` to a request that at least one node of `partition` can run.

    beside: all partitions. What is left open is filled in so that work in partition `cpu` never keeps a GPU job waiting.
    Raises SubmissionRefused with the numbers that do not fit.
    """
    where = f"partition {partition.name}"
    mine = [node for node in nodes if node.partition == partition.name]
    if not mine:
        raise SubmissionRefused(f"{where} has no nodes", hint="sinfo")
    candidates = [node for node in mine if node.gpus] if gpu else mine
    if not candidates:
        names = ", ".join(node.name for node in mine[:3])
        raise SubmissionRefused(
            f"this node offers no gres/gpu: no node of {where} ({names}) has a GPU that Slurm knows",
            hint="add Gres=gpu:1 to the node's line in slurm.conf, or submit with --cpu-only",
        )
    rooms = _rooms(partition, candidates)
    notes: list[str] = []
    most = max(rooms, key=lambda room: room.cpus)
    if settings.cpus is not None and settings.cpus > most.cpus:
        raise SubmissionRefused(
            f"{settings.cpus} CPUs are asked for, and {most.name} has {most.cpus} in {where}; "
            "Slurm would leave the job pending for ever",
            hint=f"ask for at most --cpus {most.cpus}",
        )
    most = max(rooms, key=lambda room: room.memory)
    if settings.memory is not None and settings.memory > most.memory:
        limit_mb = slurm_megabytes(most.memory)
        raise SubmissionRefused(
            f"{slurm_megabytes(settings.memory)}M ({format_size(settings.memory)}) of memory are asked for, and "
            f"{most.name} has {limit_mb}M ({format_size(most.memory)}) in {where}",
            hint=f"ask for at most --mem {limit_mb}M",
        )
    fitting = [room for room in rooms if room.cpus >= (settings.cpus or 1) and room.memory >= (settings.memory or 0)]
    if not fitting:
        raise SubmissionRefused(
            f"no single node of {where} has {settings.cpus} CPUs and {format_size(settings.memory or 0)} together",
            hint="sinfo -N -l",
        )
    # What is left open is filled in for one node, the one where most of the defaults can be had.
    room = max(fitting, key=lambda room: (min(DEFAULT_MEMORY, room.memory), min(DEFAULT_CPUS, room.cpus)))
    sure = _left_by(beside or [], partition, room) if gpu else room
    cpus = settings.cpus if settings.cpus is not None else min(DEFAULT_CPUS, sure.cpus)
    memory = settings.memory if settings.memory is not None else min(DEFAULT_MEMORY, sure.memory)
    share = partition.max_memory_per_cpu
    if share and settings.memory is None:
        memory = min(memory, cpus * share)
    if cpus > sure.cpus or memory > sure.memory:
        notes.append(
            f"only {sure.cpus} CPUs and {format_size(sure.memory)} are always left beside partition {CPU}"
            f"{' and other GPUs' if room.node.gpus > 1 else ''}; with more, it may have to wait for the jobs there, and "
            "smaller jobs may pass it"
        )
    if share and settings.memory is not None and memory > cpus * share:
        notes.append(
            f"{format_size(memory)} of memory cost {-(-memory // share)} CPUs in {where} ({format_size(share)} each)"
        )

    if memory <= SUSPICIOUS_MEMORY:
        notes.append(
            f"{format_size(memory)} of memory is little for a job; a bare number is megabytes to Slurm, gigabytes are "
            "written like 28G"
        )
    limit: int | None = None
    if settings.time is not None:
        try:
            limit = parse_time_limit(settings.time)
        except ValueError as error:
            raise SubmissionRefused(f"--time: {error}") from None
        if partition.max_time is not None and (limit is None or limit > partition.max_time):
            asked = "no time limit" if limit is None else slurm_time(limit)
            raise SubmissionRefused(
                f"{asked} is asked for, and {where} allows {slurm_time(partition.max_time)}; "
                "Slurm would leave the job pending for ever",
                hint=f"ask for at most --time {slurm_time(partition.max_time)}",
            )
        if limit is not None and is_minutes_seconds(settings.time):
            notes.append(
                f"--time {settings.time.strip()} is {duration_words(limit)} to Slurm (minutes:seconds); "
                "hours are written like 24:00:00"
            )
    effective = limit if settings.time is not None else (partition.default_time or partition.max_time)
    if settings.signal_before is not None and effective is not None and settings.signal_before >= effective:
        raise SubmissionRefused(
            f"--signal-before {settings.signal_before} is not before the time limit of {effective} seconds",
            hint="give fewer seconds, or a longer --time; signal_before may be set in gpuq.toml, too",
        )
    return Fitted(
        Request(
            cpus=cpus,
            memory=memory,
            gpu=gpu,
            time_limit=limit,
            partition=settings.partition,
            hold=hold,
            nice=settings.nice or 0,
            signal_before=settings.signal_before,
            results=settings.results or (),
            score=settings.score,
        ),
        tuple(notes),
    )


def _capped(value: int, cap: int | None) -> int:
    return value if cap is None else min(value, cap)
