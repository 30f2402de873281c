"""The faces that use cases see. Adapters implement them; another backend is added without touching a caller."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from gpuq.core.job import Job, JobEnd, Node, Partition

if TYPE_CHECKING:
    from gpuq.core.usage import Allocation, Estimate, NodeUsage


class Accepted(msgspec.Struct, frozen=True):
    """A submission that Slurm accepted."""

    job_id: int
    cluster: str | None


class InDoubt(Exception):
    """sbatch ended without an answer: the job may have been accepted or not. Look it up before anything else."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Offer(Protocol):
    """The question what there is to ask for, which is under way."""

    def answer(self) -> tuple[list[Partition], list[Node]]:
        """Wait for it: all partitions, and a row for each node in each partition. To be called once."""

    def drop(self) -> None:
        """The answer is not wanted any more."""


class Slurm(Protocol):
    """What gpuq asks of Slurm. Every method raises SlurmUnreachable when there is no answer and SlurmAnswerError
    when the answer is not understood: never an empty list or None for a query that failed."""

    def jobs(self, *, uid: int | None = None, ended: bool = False) -> list[Job]:
        """The queue, in one call: jobs of user `uid` (None: of everybody), with `ended` also those that have
        ended and that slurmctld still remembers (MinJobAge)."""

    def job(self, job_id: int, *, part: str = "") -> Job | None:
        """One job, at a cost that does not grow with the queue. None: slurmctld does not know the id (any more).

        part: the id of one task (`12_3`) or component (`12+1`) of it. Without it, of a job that has several rows the
        one that stands for all: a running one, else one that waits, else one that ended other than well."""

    def end_of(self, job: Job) -> JobEnd:
        """How a job that is in phase ENDED ended."""

    def finished(self, job_id: int, *, uid: int, name: str, since: datetime.datetime, part: str = "") -> JobEnd | None:
        """How a job that slurmctld has forgotten ended, from what Slurm wrote down elsewhere (the jobcomp file);
        None: nothing is left. `since`: submitted then or later, because ids can come back.

        part: as for `job`. Without it, a job of several parts has ended as the worst of them."""

    def cluster(self) -> str:
        """The name of the cluster; empty when Slurm does not say."""

    def offer(self) -> tuple[list[Partition], list[Node]]:
        """What there is to ask for: all partitions, and a row for each node in each partition."""

    def ask_offer(self) -> Offer:
        """The same, asked now and answered later. Raises nothing; what is wrong is for the answer to say."""

    def usage(self) -> list[NodeUsage]:
        """Every node, with what of it is given to jobs now."""

    def allocations(self, job_ids: Sequence[int]) -> dict[int, Allocation]:
        """What jobs have or ask for, by job id; those that Slurm does not know are left out. One question for each."""

    def gpus(self, job_ids: Sequence[int]) -> dict[str, int]:
        """How many GPUs jobs ask for in a way that their row does not show (--gpus, --gpus-per-task, --gpus-per-socket), by
        the id that the row shows (`12`, `12_3`). Others are left out. One question for all."""

    def restarts(self, job_ids: Sequence[int]) -> dict[str, int]:
        """How often Slurm has put jobs back into the queue, by the id that the row shows; jobs that it has forgotten are
        left out. One question for all."""

    def config(self) -> dict[str, str]:
        """`scontrol show config`, slurmctld's own view; values that it has not set are left out."""

    def estimate(self, options: Sequence[str]) -> Estimate:
        """`sbatch --test-only` with these options. It counts the queue; it takes a job id, ignores dependencies, and
        does not know MaxTime."""

    def submit(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        keep_open: int | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Accepted:
        """Submit with sbatch. `keep_open`: a descriptor that sbatch inherits, so that a lock on it ends only
        when sbatch has. `meanwhile`: called while sbatch works.
        Raises SubmissionRefused (a definite no), InDoubt, SlurmUnreachable (a definite no too:
        nothing reached the controller)."""

    def cancel(self, job_id: int) -> None:
        """scancel. Raises ChangeRefused."""

    def update(self, job_id: int, changes: Mapping[str, str]) -> None:
        """`scontrol update JobId=…`. Raises ChangeRefused."""

    def hold(self, job_id: int) -> None:
        """`scontrol uhold`. Raises ChangeRefused."""

    def release(self, job_id: int) -> None:
        """`scontrol release`. Raises ChangeRefused."""

    def top(self, job_id: int) -> None:
        """`scontrol top`. Raises ChangeRefused."""


class Clock(Protocol):
    """Time, so that tests need not wait for it."""

    def now(self) -> datetime.datetime:
        """Aware, UTC."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


Say = Callable[[str], None]
"""Tells a person something while work goes on (stderr, never stdout)."""
