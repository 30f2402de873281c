"""`gpuq why` for a job that waits: collects what `gpuq.core.waits.waiting` judges."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from gpuq.core.attempt import Outcome
from gpuq.core.job import Job, Node, Phase
from gpuq.core.triage.diagnosis import Answer
from gpuq.core.units import slurm_megabytes, slurm_time
from gpuq.core.usage import Allocation, Estimate
from gpuq.core.waits import waiting
from gpuq.core.waits.scene import Holder, Scene
from gpuq.errors import LedgerError, NotFound, SlurmAnswerError, SlurmUnreachable
from gpuq.usecases.context import Context
from gpuq.usecases.refs import Target, away, record_of

MOST_HOLDERS = 20
"""Running jobs that are asked about one by one; one host has fewer."""


def why_waiting(ctx: Context, target: Target) -> Answer:
    """Why the target's job waits, and what helps. Raises NotFound when there is no such job, and what Slurm raises."""
    job, record = target.job, target.record
    if job is None:
        if record is not None and record.job_id is None:
            return Answer(
                id="submitting",
                headline=f"{record.name} is just being submitted, or its submitter died on the way",
                confidence="likely",
                evidence=("its record has no job id yet",),
                advice=(f"gpuq status {record.tag}",),
            )
        if record is not None and (down := away(ctx, record)) is not None:
            raise down
        raise NotFound(f"{target.name} is not in Slurm's queue", hint="gpuq status")
    if job.phase in {Phase.RUNNING, Phase.ENDING}:
        from gpuq.usecases.why.running import why_running

        return why_running(ctx, target, job)
    scene = _scene(ctx, target, job)
    if waiting.wants_estimate(scene):
        scene = _ask_slurm(ctx, scene)
    return waiting.explain(scene)


def _scene(ctx: Context, target: Target, job: Job) -> Scene:
    rows = ctx.slurm.jobs(ended=True)
    partitions, nodes = ctx.slurm.offer()
    config = ctx.slurm.config()
    running = _neighbours(job, rows, nodes)
    has = ctx.slurm.allocations([job.number, *(other.number for other in running)])
    holders = [
        Holder(
            job=other,
            has=has[other.number],
            typical=_typical(ctx, other),
            own=other.uid == ctx.caller.uid,
        )
        for other in running
        if other.number in has
    ]
    record = target.record
    unknown = Allocation(cpus=job.cpus, memory=job.memory, gpus=int(job.has_gpu))
    asks = has.get(job.number, unknown)
    if job.memory is None and not _default_memory(config):
        asks = msgspec.structs.replace(asks, memory=None)  # 22.05 counts what it has not got yet
    return Scene(
        job=job,
        name=record.tag if record is not None and _is_latest(ctx, target) else job.id,
        asks=asks,
        rows=tuple(rows),
        holders=tuple(holders),
        partitions=tuple(partitions),
        nodes=tuple(nodes),
        usage=tuple(ctx.slurm.usage()),
        now=ctx.clock.now(),
        default_memory=_default_memory(config),
        slurmd_log=_log(config),
        cancels_orphans=record is not None and "--kill-on-invalid-dep=yes" in record.argv,
    )


def _is_latest(ctx: Context, target: Target) -> bool:
    """A TAG means its latest attempt; commands for another one need the job id."""
    record = target.record
    if record is None:
        return False
    numbers = ctx.ledger.attempts(record.tag)
    return not numbers or numbers[-1] == record.attempt


def _neighbours(job: Job, rows: Sequence[Job], nodes: Sequence[Node]) -> list[Job]:
    """The jobs that hold something of the nodes on which `job` may run."""
    mine = {node.name for node in nodes if node.partition in job.partition.split(",")}
    partitions = {node.partition for node in nodes if node.name in mine}
    held = [row for row in rows if row.phase in {Phase.RUNNING, Phase.ENDING} and row.partition in partitions]
    return held[:MOST_HOLDERS]


def _typical(ctx: Context, job: Job) -> int | None:
    """The median of how long the succeeded attempts of the job's run took, in seconds."""
    try:
        record = record_of(ctx, job)
        if record is None:
            return None
        took = [
            (one.ended.end - one.ended.start).total_seconds()
            for one in ctx.ledger.records(record.tag)
            if one.ended is not None and one.ended.outcome is Outcome.SUCCEEDED and one.ended.start and one.ended.end
        ]
    except LedgerError:
        return None
    return round(statistics.median(took)) if took else None


def _default_memory(config: dict[str, str]) -> bool:
    return any(config.get(key, "UNLIMITED") not in {"UNLIMITED", "0"} for key in ("DefMemPerNode", "DefMemPerCPU"))


def _log(config: dict[str, str]) -> str:
    path = config.get("SlurmdLogFile", "")
    return "" if "%" in path else path


def _ask_slurm(ctx: Context, scene: Scene) -> Scene:
    """Twice where a GPU is asked for: with it and without it."""
    job, asks = scene.job, scene.asks
    options = [f"--partition={job.partition}", f"--cpus-per-task={max(1, asks.cpus)}"]
    if asks.memory is not None:
        options.append(f"--mem={slurm_megabytes(asks.memory)}M")
    if job.time_limit is not None:
        options.append(f"--time={slurm_time(max(60, job.time_limit))}")
    bare = _estimate(ctx, options)
    if not asks.gpus:
        return msgspec.structs.replace(scene, with_gpu=bare)
    return msgspec.structs.replace(
        scene, with_gpu=_estimate(ctx, [*options, f"--gres=gpu:{asks.gpus}"]), without_gpu=bare
    )


def _estimate(ctx: Context, options: Sequence[str]) -> Estimate | None:
    try:
        return ctx.slurm.estimate(options)
    except (SlurmUnreachable, SlurmAnswerError):
        return None  # the answer stands without it
