"""An attempt: one submission of a run, its request, its record (`attemptN.json`) and its outcome.

The record is a published format: `version` goes up when it changes, and old files always load
(tests/data/attempts). A record holds paths relative to nothing: all absolute, so that it is readable alone.
"""

from __future__ import annotations

import datetime
import re
from enum import StrEnum

import msgspec

from gpuq.core.experiment.provenance import Provenance
from gpuq.core.job import JobEnd, Moment, is_sane
from gpuq.core.memory.values import MemorySummary

RECORD_VERSION = 1


class Outcome(StrEnum):
    """gpuq's verdict on an ended attempt, kept apart from Slurm's state."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    NODE_FAIL = "NODE_FAIL"
    INCOMPLETE = "INCOMPLETE"
    LOST = "LOST"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a submission asks for. `gpuq resubmit` asks for the same again."""

    cpus: int
    memory: int
    """Bytes per node."""
    gpu: bool = True
    """One GPU (`--gres=gpu:1`), or none (`--cpu-only`)."""
    fill: bool = False
    """It makes way for others (`--fill`)."""
    time_limit: int | None = None
    """Seconds; None: the partition's default."""
    partition: str | None = None
    hold: bool = False
    nice: int = 0
    signal_before: int | None = None
    """Seconds before the time limit at which the batch script gets SIGTERM."""
    results: tuple[str, ...] = ()
    """Files that the run promises, relative to its directory."""
    score: str | None = None
    """Where the score stands: `cv.json:mean`, a JSON file of the run and the keys in it, joined by dots."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended, written once."""

    outcome: Outcome
    state: str
    """Slurm's state."""
    reason: str = ""
    exit_code: int = 0
    signal: int = 0
    start: Moment | None = None
    end: Moment | None = None
    restarts: int = 0
    source: str = "slurmctld"
    notes: tuple[str, ...] = ()
    score: float | None = None
    """Read when the end was recorded: the next attempt overwrites the file."""
    recorded: Moment | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """`attemptN.json`."""

    version: int = RECORD_VERSION
    tag: str
    attempt: int
    token: str
    """Unique for ever; the job carries it in its comment. Job ids come back after a lost state, tokens do not."""
    request: Request
    argv: tuple[str, ...]
    script: str
    """Path of the exact script given to Slurm (`attemptN.sh`)."""
    script_sha256: str
    log: str
    project: str
    user: str
    uid: int
    host: str
    reserved: Moment
    """When gpuq took this number."""
    key: str | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    dependencies: tuple[str, ...] = ()
    """As given to Slurm: `afterany:12`."""
    controller: str = ""
    """The slurm.conf that named the controller; only that controller can say that it forgot the job."""
    job_id: int | None = None
    """None: reserved, and Slurm is not known to have accepted it."""
    cluster: str | None = None
    submitted: Moment | None = None
    """When Slurm accepted it, by Slurm's clock."""
    cancelled_by: str | None = None
    ended: Ended | None = None
    memory: MemorySummary | None = None
    """What was seen of its memory while it ran; None: nobody looked."""
    provenance: Provenance | None = None
    """What it runs from; None: an older gpuq wrote the record, or whoever submitted died."""

    @property
    def name(self) -> str:
        """How a person refers to it: `dino/lr3e-4 attempt 2`."""
        return f"{self.tag} attempt {self.attempt}"

    @property
    def is_sane(self) -> bool:
        """False where a time in it cannot be one."""
        ended, memory = self.ended, self.memory
        times = (self.reserved, self.submitted, *((ended.start, ended.end, ended.recorded) if ended else ()))
        return all(map(is_sane, times)) and (memory is None or memory.is_sane)

    @property
    def place(self) -> str:
        """Where the job starts: the project's root, or its frozen copy."""
        return (self.provenance.snapshot if self.provenance else None) or self.project

    @property
    def comment(self) -> str:
        """What the job carries in Slurm's comment field."""
        return make_comment(self.attempt, self.token)


_COMMENT = re.compile(r"gpuq:1:([1-9][0-9]{0,8}):([0-9a-f]+)")


def make_comment(attempt: int, token: str) -> str:
    """The job comment by which an attempt is found again in Slurm."""
    return f"gpuq:1:{attempt}:{token}"


def read_comment(comment: str) -> tuple[int, str] | None:
    """(attempt, token) of a job that gpuq submitted, else None."""
    match = _COMMENT.fullmatch(comment.strip())
    return (int(match[1]), match[2]) if match else None


class ResultFile(msgspec.Struct, frozen=True, kw_only=True):
    """A promised result, as found on disk."""

    name: str
    modified: datetime.datetime | None
    """None: there is no such file."""


_BY_STATE = {
    "OUT_OF_MEMORY": Outcome.OUT_OF_MEMORY,
    "TIMEOUT": Outcome.TIMEOUT,
    "DEADLINE": Outcome.TIMEOUT,
    "CANCELLED": Outcome.CANCELLED,
    "PREEMPTED": Outcome.CANCELLED,
    "REVOKED": Outcome.CANCELLED,
    "NODE_FAIL": Outcome.NODE_FAIL,
    "BOOT_FAIL": Outcome.NODE_FAIL,
}

SLURM_LOG_ERROR = 53
"""The 'signal' of ExitCode=0:53: slurmstepd could not create the output file."""


def judge(end: JobEnd, results: list[ResultFile], log_dir: str = "") -> tuple[Outcome, tuple[str, ...]]:
    """The outcome of an ended job and notes for a person.

    Success needs all of: COMPLETED, exit 0:0, and every promised result there and not older than the start.
    """
    word = end.state.split(" ", 1)[0]
    notes: list[str] = []
    if word == "COMPLETED" and end.exit_code == 0 and end.signal == 0:
        for result in results:
            if result.modified is None:
                notes.append(f"promised result {result.name} is missing")
            elif end.start is not None and result.modified < end.start:
                notes.append(f"promised result {result.name} is older than this attempt")
        return (Outcome.INCOMPLETE if notes else Outcome.SUCCEEDED), tuple(notes)
    outcome = _BY_STATE.get(word, Outcome.FAILED)
    if outcome is Outcome.FAILED:
        if end.signal == SLURM_LOG_ERROR:
            notes.append(f"Slurm could not create the log file in {log_dir or 'its directory'}")
        elif end.signal:
            notes.append(f"killed by signal {end.signal}")
        elif end.exit_code > 128:
            notes.append(f"exit code {end.exit_code}: a command in it was killed by signal {end.exit_code - 128}")
        elif end.exit_code:
            notes.append(f"exit code {end.exit_code}")
    elif outcome is Outcome.OUT_OF_MEMORY:
        notes.append("killed for memory; its output may be incomplete")
    elif outcome is Outcome.CANCELLED and "DependencyNeverSatisfied" in end.reason:
        notes.append("what it depended on did not succeed")
    elif word == "PREEMPTED":
        notes.append("preempted by another job")
    elif word == "DEADLINE":
        notes.append("its deadline passed")
    return outcome, tuple(notes)
