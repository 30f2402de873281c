"""What is in use: by node, by job; and when Slurm itself expects a job to start."""

from __future__ import annotations

import datetime

import msgspec

_UNUSABLE = frozenset(
    {
        "DOWN",
        "DRAIN",
        "DRAINED",
        "DRAINING",
        "ERROR",
        "FAIL",
        "FAILING",
        "FUTURE",
        "INVAL",
        "INVALID_REG",
        "NOT_RESPONDING",
        "UNKNOWN",
        "MAINT",
        "POWERED_DOWN",
        "REBOOT_ISSUED",
    }
)


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A node: what it has and what of it is given to jobs. Memory in bytes."""

    name: str
    cpus: int
    cpus_used: int
    memory: int
    memory_used: int
    gpus: int
    gpus_used: int
    state: str
    """As scontrol prints it: `IDLE+DRAIN`, `DOWN*`."""
    reason: str
    """Who set the node down or drained, and why; with Slurm's bracket of name and time taken off."""

    @property
    def flags(self) -> frozenset[str]:
        """The words of the state. A trailing `*` means NOT_RESPONDING."""
        words = {word.rstrip("~#!%$@^-+*") for word in self.state.split("+")}
        return frozenset(words | ({"NOT_RESPONDING"} if "*" in self.state else set()))

    @property
    def silent(self) -> bool:
        """Nothing is wrong with it but that its slurmd has not been heard. A reason may be left from an earlier time."""
        return self.flags & _UNUSABLE == {"NOT_RESPONDING"}

    @property
    def usable(self) -> bool:
        """False when Slurm starts nothing there, however long one waits."""
        return not self.flags & _UNUSABLE


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has, or, while it waits, asks for, on all of its nodes together. Memory in bytes."""

    cpus: int
    memory: int | None
    """None: it named no memory."""
    gpus: int
    restarts: int = 0


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `sbatch --test-only`: it counts the queue, and knows neither dependencies nor MaxTime."""

    possible: bool
    start: datetime.datetime | None = None
    words: str = ""
    """Why it is not possible."""
