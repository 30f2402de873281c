"""What the watcher is told (facts), and what it remembers between two of them (state). Values only; see `watching`.

Times are seconds since 1970. Slurm's submit times are whole seconds in every source, and together with the id they are
what a submission is recognised by.
"""

from __future__ import annotations

import msgspec

from gpuq.core.job import Job, JobEnd


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the job completion file: a job ended."""

    id: str
    """`12`, or `12_3` for a task of an array."""
    number: int
    """The array's for a task."""
    uid: int
    user: str
    name: str
    state: str
    submits: tuple[int, ...]
    """The file has local times without a zone: every reading of the submit time, the likeliest first."""
    end: JobEnd
    workdir: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer of the controller. A query that failed is no snapshot: nothing is concluded from it."""

    serial: int
    """Counts the questions; one that was asked earlier than the last that was used says nothing new."""
    at: float
    jobs: tuple[Job, ...]
    """The user's."""
    ended: bool
    """True: the ended jobs that slurmctld still knows are among them."""
    restarted: frozenset[int] = frozenset()
    """Jobs of which Slurm says that they have been requeued (Restarts > 0), as far as it was asked."""


class Completions(msgspec.Struct, frozen=True, kw_only=True):
    """New lines of the job completion file."""

    at: float
    lines: tuple[Completion, ...]


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What became of jobs that were asked for, by their key in `State.jobs`. None: nobody knows (any more)."""

    at: float
    ends: dict[str, JobEnd | None]


Fact = Snapshot | Completions | Answers


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has not ended, as far as is known."""

    id: str
    number: int
    uid: int
    name: str
    user: str
    submit: int
    """Of the latest submission seen: Slurm sets it anew at a requeue."""
    comment: str = ""
    workdir: str = ""
    gpu: bool = True
    running: bool = False
    start: int | None = None
    missing: int = 0
    """In how many snapshots on end it was not."""


class Array(msgspec.Struct, frozen=True, kw_only=True):
    """A job array that has not been told."""

    number: int
    uid: int
    name: str
    user: str
    submit: int
    workdir: str = ""
    gpu: bool = True
    open: tuple[str, ...] = ()
    """Tasks that were seen and of whose end nothing is known."""
    ends: dict[str, JobEnd] = {}
    """By task; a row that stands for several (`12_[3-5]`) is one entry."""
    missing: int = 0


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All that the next fact is held against."""

    serial: int = 0
    jobs: dict[str, Watched] = {}
    """By id; one whose id has been given to another job meanwhile has a key of its own (`12@1732880000`)."""
    arrays: dict[int, Array] = {}
    told: dict[str, tuple[int, ...]] = {}
    """Readings of the submit time of those told last, by id."""
    doubts: dict[str, Completion] = {}
    """Ends that may be those of one try only (NODE_FAIL: Slurm may put the job back), by id."""
    left: int = 0
    """Jobs in the queue at the last snapshot."""
    passed: int = 0
    """Jobs that have come and ended since, so that no snapshot has shown them."""
    emptied: int = 0
    """How often one was left, or none: makes the key of the event."""


class Over(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has ended, told by the event with this key."""

    key: str
    id: str
    number: int
    uid: int
    name: str
    user: str
    submits: tuple[int, ...]
    workdir: str
    gpu: bool
    comment: str = ""
    end: JobEnd | None
    """None: it is lost."""
    tasks: dict[str, JobEnd] | None = None
    """Of an array; those of which nothing is known are not among them."""
    lost_tasks: tuple[str, ...] = ()
