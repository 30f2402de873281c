"""What is kept of an attempt's memory when its cgroup is gone. Sizes in bytes, durations in seconds.

What counts is what cannot be given back: anonymous memory, shared memory (/dev/shm, where DataLoader workers keep their
batches; tmpfs) and what of both was moved to swap. The rest of a cgroup's usage is page cache, which the kernel takes away
when room is needed. `memory.peak` and Slurm's MaxRSS count it all, and say nothing about what a job needs.
"""

from __future__ import annotations

import msgspec

from gpuq.core.job import Moment, is_sane


class MemorySummary(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of an attempt's memory, in attemptN.json. None: not told."""

    held: int | None
    """The most that could not be given back at any time that was looked: anon + shmem + swap."""
    anon: int | None = None
    shmem: int | None = None
    swap: int | None = None
    """Its parts at that moment."""
    held_at: Moment | None = None
    phase: str = ""
    """How far its log said it was, at about that height: `step=120 part=evaluation`; empty: not known."""
    untold: int = 0
    """What of `held` the kernel had not told apart, and may have been page cache."""
    cache: int | None = None
    """The most page cache (without shared memory)."""
    usage: int | None = None
    """The highest usage that was seen, page cache included."""
    peak: int | None = None
    """The cgroup's own peak, page cache included; None: this kernel keeps none, and `usage` is approximate."""
    limit: int | None = None
    near_limit: float = 0.0
    """Seconds in which the usage was within 5 % of the limit."""
    limit_hits: int | None = None
    refaults: int | None = None
    """Pages of cache that were taken away and read again."""
    stalled: float | None = None
    stalled_full: float | None = None
    oom: int | None = None
    oom_kill: int | None = None
    gpu_memory: int | None = None
    """The most memory of the GPU that was in use, by whomever."""
    gpu_utilization: float | None = None
    """Mean, in percent."""
    host_available: int | None = None
    """The lowest MemAvailable of the host."""
    looks: int = 0
    since: Moment | None = None
    until: Moment | None = None
    """First and last look."""
    cgroup: int | None = None
    """Version of cgroups."""
    source: str = "watcher"
    """Who looked: watcher, job (`gpuq run`), or mem (`gpuq mem -f`, which keeps nothing)."""

    @property
    def seconds(self) -> float:
        """Between the first and the last look."""
        return (self.until - self.since).total_seconds() if self.since and self.until else 0.0

    @property
    def is_sane(self) -> bool:
        """False where a time in it cannot be one."""
        return is_sane(self.held_at) and is_sane(self.since) and is_sane(self.until)

    @property
    def at_limit(self) -> bool:
        """The usage reached the limit: reclaim, which alone is no need for more."""
        return self.limit is not None and (self.peak or self.usage or 0) >= self.limit * 0.995


def summary_path(log: str) -> str:
    """Where a job that looks at its own memory leaves the summary: `attempt3.mem.json` beside `attempt3.out`."""
    return log.removesuffix(".out") + ".mem.json"
