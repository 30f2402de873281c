"""Whether the GPU's memory is enough for what waits, from what its runs have used before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuq.adapters import injob
from gpuq.core.gpu.owner import Kind, Owner
from gpuq.core.gpu.readings import GpuProcess, GpuState
from gpuq.core.job import Job, Phase
from gpuq.core.units import format_size
from gpuq.usecases.context import Context
from gpuq.usecases.refs import record_of

MOST = 50
"""Waiting jobs that are looked at, in the order of the queue."""


def shortages(
    ctx: Context, jobs: Iterable[Job], gpu: GpuState, owners: Sequence[tuple[GpuProcess, Owner]]
) -> list[str]:
    """A sentence for each waiting job whose run has used more than will be free when no other job runs."""
    if gpu.memory_free is None:
        return []
    by_jobs = [process.memory for process, owner in owners if owner.kind is Kind.JOB]
    if None in by_jobs:
        return []
    free = gpu.memory_free + sum(size for size in by_jobs if size is not None)
    found = []
    waiting = [job for job in jobs if job.phase is Phase.WAITING and job.has_gpu]
    for job in waiting[:MOST]:
        record = record_of(ctx, job)
        before = None if record is None else injob.vram_before(str(ctx.project.runs / record.tag), record.attempt)
        if before is not None and before[0] > free:
            found.append(
                f"job {job.id} ({job.shown}) waits, and attempt {before[1]} of it used {format_size(before[0])} of the "
                f"GPU's memory; {format_size(free)} are there for jobs"
            )
    return found
