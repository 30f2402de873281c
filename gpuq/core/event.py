"""Events: what changed, as the watcher found it out. Values only; what a person is told about one is a notice.

An event's `key` is its identity: the same fact found twice (by the job completion file and by a poll, before and after a
restart) has the same key, and the store takes a key once. The key of an ending names the job by id and submission, because
job ids come back after a lost state.
"""

from __future__ import annotations

import datetime
from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """What kind of thing changed. Each can be switched, worded and routed by its name."""

    JOB_ENDED = "job_ended"
    ARRAY_ENDED = "array_ended"
    """All tasks of an array have ended: one summary."""
    ONE_LEFT = "one_left"
    QUEUE_EMPTY = "queue_empty"
    JOB_STARTED = "job_started"
    PROGRESS = "progress"
    PROBLEM = "problem"
    RECOVERED = "recovered"
    """A problem that was told is over."""
    DIGEST = "digest"
    TEST = "test"
    """`gpuq notify test`."""


QUIET = frozenset(
    {Kind.JOB_ENDED, Kind.ARRAY_ENDED, Kind.ONE_LEFT, Kind.QUEUE_EMPTY, Kind.PROBLEM, Kind.RECOVERED, Kind.TEST}
)
"""Told without being asked for."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How one job ended."""

    job_id: str
    """As Slurm shows it: `12`, `12_3`."""
    name: str
    """The TAG of a run, else the job's name."""
    user: str = ""
    attempt: int | None = None
    """None: not submitted through gpuq."""
    outcome: str
    """An Outcome."""
    state: str = ""
    """Slurm's."""
    cause: str = ""
    """Why, in words: exit code, `OOM: 30.1G of 28G`, time limit, cancelled by whom."""
    exit_code: int = 0
    signal: int = 0
    start: datetime.datetime | None = None
    end: datetime.datetime | None = None
    elapsed: int | None = None
    """Seconds; None: not known, or it never ran."""
    score: float | None = None
    score_name: str = ""
    notes: tuple[str, ...] = ()
    log: str = ""
    """Path of its log."""
    log_tail: str = ""
    """The last meaningful lines of a job that failed; never raw progress frames."""
    project: str = ""
    gpu: bool = True
    retry: str = ""
    """Of a job that was killed for memory: as which attempt it is tried again, and with how much."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """The queue when the event was made."""

    running: int = 0
    waiting: int = 0
    next_name: str = ""
    """What runs now or next; empty: nothing."""
    next_id: str = ""
    drained: datetime.datetime | None = None
    """Estimated; None: cannot be told."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that keeps the GPU idle, or will."""

    rule: str
    """The id of the rule that found it, like `gpu-idle` or `dependency-never`."""
    subject: str
    """What has it: a job (`12 dino/lr3e-4`), a node, the controller, a disk."""
    text: str
    """What happened and what it means, one sentence."""
    advice: str = ""
    """The command that helps."""


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """One day."""

    since: datetime.datetime
    until: datetime.datetime
    used: float = 0.0
    """Seconds in which a job held the GPU."""
    idle: dict[str, float] = {}
    """Seconds in which none did, by the cause: `queue empty`, `node down`, `not seen`."""
    outcomes: dict[str, int] = {}
    best: tuple[tuple[str, float], ...] = ()
    """(TAG attempt N, score), best first."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One change."""

    key: str
    kind: Kind
    time: datetime.datetime
    """When it happened, as far as that is known."""
    ending: Ending | None = None
    tasks: tuple[Ending, ...] = ()
    """Of an array: those that did not succeed."""
    task_outcomes: dict[str, int] = {}
    problem: Problem | None = None
    digest: Digest | None = None
    queue: Queue | None = None
    text: str = ""
    """For kinds without a part of their own (progress, start)."""
    subject: str = ""
