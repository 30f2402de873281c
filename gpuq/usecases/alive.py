"""Whether a job that Slurm calls running lives: by the processes on this host, by its log and its GPU."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpuq.adapters import jobproc, kernellog
from gpuq.adapters.slurm import thishost
from gpuq.adapters.slurm.locate import locate
from gpuq.core.gpu.owner import Life, Seen, life_of, with_listpids
from gpuq.core.gpu.readings import Reading
from gpuq.core.job import Job
from gpuq.core.units import format_duration
from gpuq.usecases.context import Context
from gpuq.usecases.refs import record_of

GRACE = 60
"""Seconds. Slurm calls a job running before its first process is there: prolog, launch."""

LOOKS = 5
"""At the host, until it is clear whether a job lives: a process that is being started, of this job or of another Slurm on
the host, does not say for a moment whose it is."""
PAUSE = 0.1
"""Seconds between two of them."""

SILENCE = 1800
"""Seconds without a word in the log, after which an idle GPU is worth telling."""


class Roots(msgspec.Struct, frozen=True):
    """Where the host is looked at."""

    proc: Path = jobproc.PROC
    dev: Path = Path("/dev")
    kmsg: Path = kernellog.KMSG
    dmesg: bool = True


HOST = Roots()


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The process table, and which nodes of this Slurm this host is."""

    processes: list[Seen]
    all_visible: bool
    nodes: frozenset[str] | None
    """None: Slurm does not answer."""


def look_at_host(ctx: Context, roots: Roots = HOST) -> Host:
    """The process table now."""
    location = locate(ctx.environment)
    table = jobproc.processes(roots.proc)
    if any(one.sluid and one.job is None for one in table):
        table = with_listpids(table, thishost.listpids(location, ctx.environment))
    return Host(
        processes=table,
        all_visible=jobproc.all_visible(roots.proc),
        nodes=thishost.nodes(location, ctx.environment, ctx.caller.host),
    )


def looks_dead(ctx: Context, job: Job, host: Host | None = None, *, roots: Roots = HOST) -> str | None:
    """Why a job that Slurm calls running looks dead: not one process of it is left on this host.

    Empty: it lives, has only begun, is over, or runs on another host. None: that cannot be told from here now (processes
    are hidden, slurmctld does not say which node this is). host: what was seen already. Before a job is called dead Slurm
    and the host are asked again, so that none that ended meanwhile is. Raises what Slurm raises.
    """
    if not _may_be_dead(job):
        return ""
    if host is not None and (first := _life(ctx, job, roots, host)) is not Life.DEAD:
        return None if first is Life.UNKNOWN else ""
    now = ctx.slurm.job(job.number)
    if now is None or now.start != job.start or not _may_be_dead(now):
        return ""
    if (life := _life(ctx, now, roots)) is not Life.DEAD:
        return None if life is Life.UNKNOWN else ""
    last = ctx.slurm.job(job.number)
    if last is None or last.state != "RUNNING" or last.start != job.start:
        return ""
    return (
        f"looks dead: Slurm calls job {job.id} running (for {format_duration(job.elapsed)}), but no process of it is "
        "left on this host"
    )


def _may_be_dead(job: Job) -> bool:
    # a task of an array has a number of its own, which the queue does not show
    return job.state == "RUNNING" and job.whole and job.elapsed >= GRACE


def _life(ctx: Context, job: Job, roots: Roots, host: Host | None = None) -> Life:
    """Whether it lives, by the host; also that of a job on another host does, as far as is known."""
    for again in range(LOOKS):
        if again:
            ctx.clock.sleep(PAUSE)
        if again or host is None:
            host = look_at_host(ctx, roots)
        if host.nodes is None:
            return Life.UNKNOWN
        if job.node not in host.nodes:
            return Life.LIVES
        life = life_of(job, host.processes, all_visible=host.all_visible)
        if life is not Life.UNKNOWN or not host.all_visible:
            return life
    return Life.UNKNOWN


def looks_stuck(ctx: Context, job: Job, reading: Reading, *, silence: float | None = None) -> str:
    """Why a running job may hang: nothing in its log for `silence` (SILENCE) seconds, and its GPU does nothing. Empty: it
    may not."""
    silence = SILENCE if silence is None else silence
    if job.state != "RUNNING" or not job.has_gpu or job.elapsed < silence or len(reading.gpus) != 1:
        return ""
    if reading.gpus[0].utilization != 0:
        return ""
    record = record_of(ctx, job)
    if record is None or not record.log:
        return ""
    try:
        written = Path(record.log).stat().st_mtime
    except OSError:
        return ""
    silent = ctx.clock.now().timestamp() - written
    if silent < silence:
        return ""
    return f"looks dead: job {job.id} has written nothing for {format_duration(silent)}, and the GPU is at 0 %"
