"""Talking to the embedded controller: its node, its partitions, and jobs that must go back to the queue."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable

import msgspec

from gpuq.adapters import proc
from gpuq.adapters.embedded import daemons
from gpuq.adapters.embedded.host import Programs
from gpuq.adapters.embedded.layout import Layout
from gpuq.errors import HostError

READY = {"IDLE", "MIXED", "ALLOCATED", "COMPLETING"}
RUNNING = "RUNNING,SUSPENDED,CONFIGURING,STOPPED"


class Job(msgspec.Struct, frozen=True):
    """A job in the queue: Slurm's raw job id, its priority (0: held) with the nice value in it, its base state, its name."""

    id: int
    priority: int
    nice: int
    state: str
    name: str

    def __str__(self) -> str:
        return f"{self.id} ({self.name})"


def names(jobs: list[Job]) -> str:
    """Jobs for a sentence: the first twenty by id and name."""
    shown = ", ".join(str(job) for job in jobs[:20])
    return shown if len(jobs) <= 20 else f"{shown} and {len(jobs) - 20} more"


def nice_to_lead(first: list[Job], others: list[Job]) -> dict[int, int]:
    """Nice values by job id that put all of `first` before all of `others`; the order among `first` stays.

    As `scontrol top` does it; a priority set directly would be deaf to a later change of the nice value. Empty
    when they lead already. Held jobs (priority 0) are left out.
    """
    moving = sorted((job for job in first if job.priority), key=lambda job: (-job.priority, job.id))
    top = max((job.priority for job in others), default=0)
    if not moving or moving[-1].priority > top:
        return {}
    return {job.id: job.nice + job.priority - (top + len(moving) - at) for at, job in enumerate(moving)}


SLURMS_OWN_DRAIN = re.compile(r"count reported lower than configured|Low (?:RealMemory|socket|CPUs)", re.IGNORECASE)
"""Reasons with which slurmctld drains a node whose slurmd reports less than slurm.conf says."""


class Controller:
    """Commands against the slurmctld of one directory. Every method raises HostError when it does not answer."""

    def __init__(self, layout: Layout, programs: Programs, node: str) -> None:
        self.layout = layout
        self.programs = programs
        self.node = node

    def _ask(self, argv: list[str], *, timeout: float = 10.0) -> proc.Result:
        try:
            return daemons.ask(argv, self.layout, timeout=timeout)
        except proc.ProgramTimeout as error:
            raise self._silent(str(error)) from None

    def _must(self, argv: list[str]) -> str:
        result = self._ask(argv)
        if not result.ok:
            raise self._silent(result.stderr.strip())
        return result.stdout

    def _silent(self, text: str) -> HostError:
        return HostError(
            f"the embedded Slurm in {self.layout.dir} does not do as asked: {text}",
            hint=f"gpuq local status --dir {self.layout.dir}",
        )

    def pings(self, *, timeout: float = 4.0) -> bool:
        """True when slurmctld answers within `timeout` seconds."""
        try:
            return daemons.ask([self.programs.scontrol, "ping"], self.layout, timeout=timeout).ok
        except proc.ProgramTimeout:
            return False

    def node_fields(self) -> dict[str, str]:
        """`scontrol show node` of our node; empty when slurmctld gives no answer."""
        try:
            result = self._ask([self.programs.scontrol, "show", "node", self.node], timeout=4)
        except HostError:
            return {}
        pairs = re.findall(r"^\s*(\S+?)=(.*)$|\s(\S+?)=(\S+)", result.stdout, re.MULTILINE)
        fields = {a or c: (b if a else d) for a, b, c, d in pairs}
        fields["State"] = next(iter(re.findall(r"\bState=(\S+)", result.stdout)), "")
        fields["SlurmdStartTime"] = next(iter(re.findall(r"\bSlurmdStartTime=(\S+)", result.stdout)), "")
        reason = re.search(r"^\s*Reason=(.*)$", result.stdout, re.MULTILINE)
        fields["Reason"] = reason[1].strip() if reason else ""
        return fields

    def jobs(self, states: str = RUNNING) -> list[Job]:
        """Jobs in `states` (comma separated, or "all")."""
        mark = os.urandom(8).hex()  # a name may hold newlines
        argv = [self.programs.squeue, "-h", "-r", "-a", "-t", states, "-o", f"{mark}%A|%Q|%y|%T|%j"]
        found = []
        for row in self._must(argv).split(mark)[1:]:
            number, priority, nice, state, name = row.removesuffix("\n").split("|", 4)
            found.append(Job(int(number), int(priority), int(nice), state, name))
        return found

    def partitions(self, state: str) -> None:
        """Set every partition to UP or DOWN."""
        text = self._must([self.programs.scontrol, "-a", "-o", "show", "partition"])
        for name in re.findall(r"^PartitionName=(\S+)", text, re.MULTILINE):
            self._must([self.programs.scontrol, "update", f"PartitionName={name}", f"State={state}"])

    def requeue(self, job: Job) -> str:
        """Send a running job back to the queue. Returns "" or Slurm's reason for not doing so."""
        result = self._ask([self.programs.scontrol, "requeue", str(job.id)])
        return "" if result.ok else result.stderr.strip()

    def start_first(self, jobs: Iterable[Job]) -> None:
        """Let requeued jobs start at once, before all that wait; call it after `settle`. Takes up to a second.

        Two things of Slurm would let others overtake. It sets the begin time of a requeued job two minutes ahead
        (the life of a job credential). And 24.11 and later number it as if it were new, behind all that wait
        (22.05 leaves its priority alone).

        A launch within the second in which slurmd was told to end the old one is taken for that one ("Job 1
        already killed, do not launch batch job") and the job becomes FAILED: so the next second is waited for.
        A job that has since ended, or started, is left alone.
        """
        wanted = {job.id for job in jobs}
        if not wanted:
            return
        time.sleep(1.05 - time.time() % 1)
        waiting = self.jobs("PENDING")
        first = [job for job in waiting if job.id in wanted]
        nice = nice_to_lead(first, [job for job in waiting if job.id not in wanted])
        for job in first:
            change = [f"Nice={nice[job.id]}"] if job.id in nice else []
            self._ask([self.programs.scontrol, "update", f"JobId={job.id}", "StartTime=now", *change])

    def cancel(self, jobs: Iterable[Job]) -> None:
        """Cancel jobs; those already over are no error."""
        ids = [str(job.id) for job in jobs]
        for at in range(0, len(ids), 500):  # well below the limit of an argument list
            self._ask([self.programs.scancel, *ids[at : at + 500]], timeout=60)

    def settle(self, *, patience: float) -> bool:
        """Wait up to `patience` seconds until no job is COMPLETING. True when that came true."""
        return daemons.wait_for(lambda: not self.jobs("COMPLETING"), patience, pause=0.05)

    def gpu_leaked(self) -> bool:
        """True when slurmctld counts the GPU as taken although no job runs or completes.

        Seen with 22.05 when a job that was requeued once is requeued again right after a restart of slurmctld
        ("gres/gpu: job 12 dealloc of node ... bad node_offset 0 count is 0"); nothing gets the GPU any more then.
        """
        # A job that starts or ends between the two questions looks the same: ask again before believing it.
        if not self._gpu_taken_by_nobody():
            return False
        time.sleep(0.3)
        return self._gpu_taken_by_nobody()

    def _gpu_taken_by_nobody(self) -> bool:
        text = self._must([self.programs.scontrol, "-d", "show", "node", self.node])
        used = re.search(r"\bGresUsed=\S*gpu:(?:[^:\s(]+:)?([1-9]\d*)", text)
        return used is not None and not self.jobs(f"{RUNNING},COMPLETING")

    def take_back(self, fields: dict[str, str]) -> None:
        """End a drain that Slurm itself made for an earlier registration that did not fit; it outlives its cause. One
        that a person made stays."""
        if "DRAIN" in fields.get("State", "") and SLURMS_OWN_DRAIN.search(fields.get("Reason", "")):
            self._ask([self.programs.scontrol, "update", f"NodeName={self.node}", "State=RESUME"])

    def fail_node(self) -> None:
        """Declare the node's jobs lost and take the node back: those that may are requeued, the others NODE_FAIL."""
        where = f"NodeName={self.node}"
        self._must([self.programs.scontrol, "update", where, "State=DOWN", "Reason=gpuq: no process left"])
        # ReturnToService=2 usually brings it back at once, and then RESUME is refused: not an error.
        self._ask([self.programs.scontrol, "update", where, "State=RESUME"])
