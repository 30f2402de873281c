"""The timetable: what runs and what waits, in the order in which it will run."""

from __future__ import annotations

import datetime
import re

import msgspec

from gpuq.core.attempt import read_comment
from gpuq.core.dependency import dependency_words, parse_dependency
from gpuq.core.job import Job, Phase, gpu_count
from gpuq.core.reason import never_cures, reason_words
from gpuq.usecases.context import Context
from gpuq.usecases.settle import settle_if_possible


class Row(msgspec.Struct, frozen=True, gc=False):
    """One job of the timetable. Sizes in bytes, durations in seconds, times aware."""

    position: int
    """0: on the node now; 1: the next one, and so on."""
    job_id: int
    id: str
    """As Slurm shows it: `12`, `12_3`, `12_[1-3%1]`, `12+0`."""
    tag: str
    """The job's name; a TAG where `attempt` is set."""
    attempt: int | None
    user: str
    state: str
    reason: str
    """Slurm's word; empty when there is none."""
    reason_words: str
    stuck: bool
    """True when waiting alone will not start it."""
    dependency: str
    dependency_words: str
    elapsed: int
    time_limit: int | None
    memory: int | None
    cpus: int
    gpus: int
    partition: str
    submit: datetime.datetime | None
    start: datetime.datetime | None
    project: str
    edited: tuple[str, ...] = ()
    """Of a waiting job: the files that are not as they were when it was submitted. It takes its own copy of job.sh, and
    everything else as it then is."""
    restarts: int | None = None
    """How often Slurm has put it back into the queue. Asked of jobs that wait for their begin time only, which every job
    that is put back has at first; None: not asked."""


def board(ctx: Context, *, everybody: bool = False) -> list[Row]:
    """The jobs of the caller (or of everybody) that have not ended, running ones first.

    Also brings the records up to date, from the same answer of Slurm.
    """
    jobs = ctx.slurm.jobs(uid=None if everybody else ctx.caller.uid, ended=True)
    settle_if_possible(ctx, jobs=[job for job in jobs if job.uid == ctx.caller.uid])
    jobs = [job for job in jobs if job.phase is not Phase.ENDED]
    # `sbatch --gpus=1` shows nowhere in a row; gpuq's own jobs ask for GPUs as rows show them
    unseen = [job.number for job in jobs if not job.gres and not read_comment(job.comment)]
    more = ctx.slurm.gpus(unseen) if unseen else {}
    later = [job.number for job in jobs if job.reason == "BeginTime"]
    restarts = ctx.slurm.restarts(later) if later else {}
    rows = []
    position = 0
    for job in _in_order(jobs):
        waiting = job.phase is Phase.WAITING
        position += waiting
        rows.append(_row(job, position if waiting else 0, more.get(job.id, 0), restarts.get(job.id)))
    return _marked(ctx, rows)


def _marked(ctx: Context, rows: list[Row]) -> list[Row]:
    """The rows, with what was edited since; those that run in a snapshot are elsewhere, and are not looked at."""
    here = str(ctx.project.root)
    waiting = [
        (row.job_id, row.tag, row.attempt)
        for row in rows
        if row.attempt is not None and row.position and row.project == here
    ]
    if not waiting:
        return rows
    from gpuq.usecases.experiment.edited import edited_since

    edited = edited_since(ctx, waiting)
    if not edited:
        return rows
    return [msgspec.structs.replace(row, edited=edited.get(row.job_id, ())) for row in rows]


def _in_order(jobs: list[Job]) -> list[Job]:
    """By `_order`, but no job before one that it waits for, whatever their priorities say."""
    if not any(job.dependency for job in jobs):
        return sorted(jobs, key=_order)
    late: dict[int, _Order] = {}
    keyed = []
    for job in sorted(jobs, key=lambda job: job.number):  # what a job waits for is older than it
        terms = parse_dependency(job.dependency) if job.dependency else []
        own = _order(job)
        key = max([own, *((*late[number][:4], *own[4:]) for _, number, _ in terms if number in late)])
        late[job.number] = max(key, late.get(job.number, key))
        keyed.append((key, job))
    return [job for _, job in sorted(keyed, key=lambda pair: pair[0])]


_RANK = {Phase.ENDING: 0, Phase.RUNNING: 1, Phase.WAITING: 2, Phase.ENDED: 2}


_Order = tuple[int, bool, bool, int, int, int]


def _order(job: Job) -> _Order:
    """Running, then what can start, then what waits for other jobs, then what is held; by priority, then age, then the
    number of a task or component."""
    rank = _RANK[job.phase]
    stuck = rank == 2 and (job.priority == 0 or never_cures(job.reason))
    part = 0 if job.id.isdecimal() else _part(job.id)
    return rank, stuck, bool(job.dependency), -job.priority, job.number, part


def _part(shown: str) -> int:
    """`3` of `12_3`, `12+3` and `12_[3-9%2]`."""
    match = re.search(r"[_+]\[?(\d+)", shown)
    return int(match[1]) if match else 0


def _row(job: Job, position: int, gpus: int, restarts: int | None) -> Row:
    """position: 0 where it does not wait. gpus: those that `job` itself does not show."""
    mark = read_comment(job.comment) if job.comment else None
    waiting = position > 0
    return Row(
        position,
        job.number,
        job.id,
        job.name,
        mark[0] if mark else None,
        job.user,
        job.state,
        job.reason,
        reason_words(job.reason) if waiting else "",
        waiting and (never_cures(job.reason) or job.reason.startswith("JobHeld")),
        job.dependency,
        dependency_words(job.dependency) if job.dependency else "",
        job.elapsed,
        job.time_limit,
        job.memory,
        job.cpus,
        gpu_count(job.gres) or gpus,
        job.partition,
        job.submit,
        job.start,
        job.workdir,
        (),
        restarts if job.reason == "BeginTime" else None,
    )
