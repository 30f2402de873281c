"""The timetable: what runs and what waits, in the order in which it will run."""

from __future__ import annotations

import datetime

import msgspec

from gpuq.core.attempt import read_comment
from gpuq.core.dependency import dependency_words, parse_dependency
from gpuq.core.job import Job, Phase, gpu_count
from gpuq.core.reason import never_cures, reason_words
from gpuq.usecases.context import Context
from gpuq.usecases.settle import settle_if_possible


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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


def board(ctx: Context, *, everybody: bool = False) -> list[Row]:
    """The jobs of the caller (or of everybody) that have not ended, running ones first.

    Also brings the records up to date, from the same answer of Slurm.
    """
    jobs = ctx.slurm.jobs(uid=None if everybody else ctx.caller.uid, ended=True)
    settle_if_possible(ctx, jobs=[job for job in jobs if job.uid == ctx.caller.uid])
    rows = []
    position = 0
    for job in _in_order([job for job in jobs if job.phase is not Phase.ENDED]):
        if job.phase is Phase.WAITING:
            position += 1
        rows.append(_row(job, position if job.phase is Phase.WAITING else 0))
    return rows


def _in_order(jobs: list[Job]) -> list[Job]:
    """By `_order`, but no job before one that it waits for, whatever their priorities say."""
    late: dict[int, tuple[int, bool, bool, int, int]] = {}
    keyed = []
    for job in sorted(jobs, key=lambda job: job.number):  # what a job waits for is older than it
        terms = parse_dependency(job.dependency) if job.dependency else []
        key = max([_order(job), *((*late[number][:4], job.number) for _, number, _ in terms if number in late)])
        late[job.number] = max(key, late.get(job.number, key))
        keyed.append((key, job))
    return [job for _, job in sorted(keyed, key=lambda pair: pair[0])]


def _order(job: Job) -> tuple[int, bool, bool, int, int]:
    """Running, then what can start, then what waits for other jobs, then what is held; by priority, then age."""
    rank = {Phase.ENDING: 0, Phase.RUNNING: 1}.get(job.phase, 2)
    stuck = rank == 2 and (job.priority == 0 or never_cures(job.reason))
    return rank, stuck, bool(job.dependency), -job.priority, job.number


def _row(job: Job, position: int) -> Row:
    mark = read_comment(job.comment) if job.comment else None
    waiting = job.phase is Phase.WAITING
    return Row(
        position=position,
        job_id=job.number,
        id=job.id,
        tag=job.name,
        attempt=mark[0] if mark else None,
        user=job.user,
        state=job.state,
        reason=job.reason,
        reason_words=reason_words(job.reason) if waiting else "",
        stuck=waiting and (never_cures(job.reason) or job.reason.startswith("JobHeld")),
        dependency=job.dependency,
        dependency_words=dependency_words(job.dependency) if job.dependency else "",
        elapsed=job.elapsed,
        time_limit=job.time_limit,
        memory=job.memory,
        cpus=job.cpus,
        gpus=gpu_count(job.gres),
        partition=job.partition,
        submit=job.submit,
        start=job.start,
        project=job.workdir,
    )
