"""A job as Slurm tells it: states, the row of a queue, the partition and the node.

States are Slurm's (`job_state_codes`, squeue(1) "JOB STATE CODES"): a base state, over which a flag such as
COMPLETING may be shown. The sets are closed; a word that is in none of them is an answer we do not understand.
"""

from __future__ import annotations

import datetime
import functools
import re
from enum import StrEnum
from typing import Annotated

import msgspec

from gpuq.core.printable import printable

WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
RUNNING = frozenset(
    {
        "RUNNING",
        "SUSPENDED",
        "CONFIGURING",
        "POWER_UP_NODE",
        "RESIZING",
        "SIGNALING",
        "STOPPED",
        "STAGE_OUT",
        "EXPEDITING",
        "UPDATE_DB",
        "LAUNCH_FAILED",
        "RECONFIG_FAIL",
    }
)
ENDING = frozenset({"COMPLETING"})
ENDED = frozenset(
    {
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "REVOKED",
    }
)
STATES = WAITING | RUNNING | ENDING | ENDED

Moment = Annotated[datetime.datetime, msgspec.Meta(tz=True)]
"""A time in a file that others may write: one without a zone cannot be subtracted from one with."""


def is_sane(moment: datetime.datetime | None) -> bool:
    """False at the ends of the calendar, where a time cannot be shown in every zone."""
    return moment is None or datetime.MINYEAR < moment.year < datetime.MAXYEAR


class Phase(StrEnum):
    """Where a job stands, whatever Slurm calls it in detail."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


_PHASES = (
    dict.fromkeys(WAITING, Phase.WAITING)
    | dict.fromkeys(RUNNING, Phase.RUNNING)
    | dict.fromkeys(ENDING, Phase.ENDING)
    | dict.fromkeys(ENDED, Phase.ENDED)
)


def phase_of(state: str) -> Phase:
    """The phase of a state word (`CANCELLED by 1000` counts as CANCELLED). Raises ValueError when unknown."""
    phase = _PHASES.get(state) or _PHASES.get(state.split(" ", 1)[0])
    if phase is None:
        raise ValueError(f"{state!r} is not a job state that gpuq knows")
    return phase


class Job(msgspec.Struct, frozen=True, gc=False):
    """One row of the queue. A parser of 10,000 rows gives the fields in this order, without their names."""

    id: str
    """As Slurm shows it: `12`, `12_3`, `12_[1-3%1]`, `12+0`."""
    number: int
    """The id that scancel and scontrol take: for a task the array's, for a component (`12+1`) the heterogeneous job's
    (Slurm cancels and holds such a job as a whole only)."""
    name: str
    state: str
    reason: str
    partition: str
    user: str
    uid: int
    submit: datetime.datetime | None
    """Slurm sets this anew at a requeue."""
    start: datetime.datetime | None
    """For a waiting job, the expected start where Slurm has one."""
    end: datetime.datetime | None
    time_limit: int | None
    """Seconds; None: unlimited."""
    elapsed: int
    """Seconds."""
    dependency: str
    """What is still to be satisfied, as in `afterok:12(unfulfilled)`; empty: nothing."""
    gres: str
    """TresPerNode, the one place that shows `--gres=gpu:1` (ReqTRES does not); empty: nothing."""
    memory: int | None
    """Bytes asked for per node (or per CPU, as Slurm prints it); None: not stated."""
    cpus: int
    nice: int
    priority: int
    node: str
    comment: str
    workdir: str

    @property
    def phase(self) -> Phase:
        """Where the job stands."""
        return _PHASES.get(self.state) or phase_of(self.state)

    @property
    def shown(self) -> str:
        """Its name for a message: in one line, whatever its owner put into it."""
        return printable(self.name)

    @property
    def whole(self) -> bool:
        """False for a task of an array and a component of a heterogeneous job."""
        return self.id == str(self.number)

    @property
    def has_gpu(self) -> bool:
        """True when Slurm says that the job asks for at least one GPU on its node."""
        return gpu_count(self.gres) > 0


class JobEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How Slurm says a job ended."""

    state: str
    reason: str = ""
    exit_code: int = 0
    signal: int = 0
    """The number after the colon of Slurm's ExitCode; values above 64 are Slurm's own (125: out of memory)."""
    start: datetime.datetime | None = None
    end: datetime.datetime | None = None
    restarts: int = 0
    node: str = ""
    source: str = "slurmctld"
    """Who said so: slurmctld or jobcomp."""


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition, as far as a submission must know it."""

    name: str
    default: bool
    max_time: int | None
    """Seconds; None: unlimited."""
    default_time: int | None
    """Seconds; None: the maximum applies."""
    max_cpus_per_node: int | None
    max_memory_per_node: int | None
    """Bytes; None: unlimited. Where memory is limited by the CPU, what all the CPUs of a node together bring."""
    state: str
    max_memory_per_cpu: int | None = None
    """Bytes: who asks for more memory is given more CPUs."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node in one partition."""

    name: str
    partition: str
    cpus: int
    memory: int
    """Bytes (RealMemory)."""
    gres: str
    state: str
    reason: str

    @property
    def gpus(self) -> int:
        """How many GPUs Slurm knows of on this node."""
        return gpu_count(self.gres)


# A type may begin with a digit (`gpu:3090:1`) when a count follows it; alone, `gpu:3090` is a count.
_GPU = re.compile(
    r"(?:^|,)\s*(?:gres[:/])?gpu(?::[^:,(=]+(?=[:=][0-9])|:[A-Za-z_][^:,(=]*)?(?:[:=](?P<count>[0-9]+))?(?=[(,]|$)"
)


@functools.lru_cache(maxsize=256)
def gpu_count(gres: str) -> int:
    """How many GPUs a GRES string names: `gres/gpu:1` (23.02 and later), `gres:gpu:1` (22.05), `gpu:a100:2`.

    A name without a number counts as one, as in Slurm (sbatch(1), --gres). Anything else is 0.
    """
    return sum(int(match["count"] or 1) for match in _GPU.finditer(gres))
