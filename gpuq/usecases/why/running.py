"""What a job that runs is doing: whether it lives, what its log says last, and until when it may run."""

from __future__ import annotations

from gpuq.core.inside.runlines import STEP, WAITING, Line, read
from gpuq.core.job import Job, Phase
from gpuq.core.triage.diagnosis import Answer
from gpuq.core.units import format_duration
from gpuq.errors import GpuqError
from gpuq.usecases import alive, log
from gpuq.usecases.context import Context
from gpuq.usecases.refs import Target

_LINES = 40
"""Of the log's end."""


def why_running(ctx: Context, target: Target, job: Job) -> Answer:
    """Why a job that Slurm calls running does not get on, or how far it is. Raises what Slurm raises."""
    name = target.record.tag if target.record is not None else job.id
    left = None if job.time_limit is None else max(0, job.time_limit - job.elapsed)
    runs = f"{name} runs for {format_duration(job.elapsed)} now"
    limit = "without a time limit" if left is None else f"its time limit ends it in {format_duration(left)}"
    if job.phase is Phase.ENDING:
        return Answer(
            id="ending",
            headline=f"{name} is over, or is being put back into the queue: Slurm clears up after it",
            confidence="certain",
            evidence=(f"Slurm: job {job.id} is {job.state} on {job.node or '?'}",),
            advice=(f"gpuq wait {name}",),
        )
    evidence = [f"Slurm: job {job.id} is {job.state} on {job.node or '?'}; {limit}"]
    last = _last(target)
    if last is not None:
        evidence.append(f"last of its log: {last[1]}")
    dead = alive.looks_dead(ctx, job) or _stuck(ctx, job)
    if dead:
        return Answer(
            id="looks-dead",
            headline=f"{name} {dead[:1].lower()}{dead[1:]}",
            confidence="likely",
            evidence=tuple(evidence),
            advice=(
                f"gpuq cancel {name}" if job.whole else f"scancel {job.id}",  # the others of the array go on
                f"or, to have it started again: scontrol requeue {job.id}",
            ),
        )
    if last is not None and last[0].kind == WAITING and last[0].get("for") == "vram":
        held = last[0].get("held_by")
        return Answer(
            id="preflight",
            headline=f"{runs}, but its program has not been started: [preflight] wants {last[0].get('need')} of the GPU's "
            f"memory free, and {last[0].get('free')} are" + (f"; held by {held}" if held else ""),
            confidence="certain",
            evidence=tuple(evidence),
            advice=("gpuq gpu", f"it gives up within {last[0].get('at_most')} of that line"),
        )
    step = f"; at step {last[0].get('step')}" if last is not None and last[0].kind == STEP else ""
    eta = last[0].get("eta") if last is not None and last[0].kind == STEP else None
    return Answer(
        id="running",
        headline=f"{runs}{step}{f', {eta} to go' if eta else ''}; {limit}",
        confidence="certain",
        evidence=tuple(evidence),
        advice=((f"gpuq log {name} -f",) if target.record is not None else ()) + (f"gpuq wait {name}",),
    )


def _stuck(ctx: Context, job: Job) -> str:
    if not job.has_gpu or job.elapsed < alive.SILENCE:
        return ""
    from gpuq.adapters import gpu as nvml

    return alive.looks_stuck(ctx, job, nvml.read())


def _last(target: Target) -> tuple[Line, str] | None:
    """The last of the lines that `gpuq run` and runlog write."""
    if target.record is None:
        return None
    try:
        lines = list(log.read(target.record, _LINES))
    except GpuqError:  # no log yet, or it may not be read
        return None
    for text in reversed(lines):
        try:
            line = read(text)
        except ValueError:
            continue
        if line is not None:
            return line, text
    return None
