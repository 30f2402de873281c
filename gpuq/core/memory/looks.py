"""A look at a job's cgroup, a point of a series, and what all looks together come to. Values; sizes in bytes."""

from __future__ import annotations

import datetime

import msgspec

from gpuq.core.memory.values import MemorySummary

SETTLES = 2.5
"""Seconds after which what the kernel has not told apart is taken for held. It brings memory.stat up to date every 2 s at
the latest; usage is exact at once."""

NEAR = 0.95
"""A cgroup is near its limit from this part of it on: the kernel begins to reclaim."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a cgroup. None: this kernel or cgroup version does not tell, which is never the same as 0."""

    version: int
    """Of cgroups: 1 or 2."""
    anon: int | None = None
    shmem: int | None = None
    swap: int | None = None
    file: int | None = None
    """Page cache, shared memory included, as the kernel counts it."""
    mapped: int | None = None
    """What of `file` is mapped."""
    refaults: int | None = None
    """Pages of cache that were taken away and had to be read again."""
    kernel: int | None = None
    """What the kernel holds for it (page tables, slab)."""
    current: int | None = None
    peak: int | None = None
    """None: before Linux 5.19 on cgroup v2; then the highest `current` that was seen has to do."""
    limit: int | None = None
    """The lowest on the way to the root; None: there is none."""
    limit_hits: int | None = None
    """How often the usage was at the limit and the kernel had to reclaim."""
    oom: int | None = None
    oom_kill: int | None = None
    """Processes that were killed for memory."""
    stalled: float | None = None
    """Seconds in which some task waited for memory (PSI); None: not told on cgroup v1."""
    stalled_full: float | None = None
    """Seconds in which all of them did."""

    @property
    def held(self) -> int | None:
        """What cannot be given back: anon + shmem + swap."""
        if self.anon is None or self.shmem is None:
            return None
        return self.anon + self.shmem + (self.swap or 0)

    @property
    def untold(self) -> int:
        """What is used, and not told apart: memory.stat lags behind the usage, by up to 2 s and hundreds of megabytes
        since Linux 6.17. 0 where it is little."""
        if self.current is None or self.anon is None or self.file is None:
            return 0
        rest = self.current - self.anon - self.file - (self.kernel or 0)
        return rest if rest > max(16 * 1024**2, self.current // 128) else 0

    @property
    def cache(self) -> int | None:
        """What can be given back: the page cache without shared memory."""
        return None if self.file is None or self.shmem is None else max(0, self.file - self.shmem)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a series that is kept."""

    at: datetime.datetime
    held: int | None
    anon: int | None = None
    shmem: int | None = None
    cache: int | None = None
    current: int | None = None
    limit: int | None = None
    gpu_memory: int | None = None
    gpu_utilization: int | None = None
    """Percent."""
    host_available: int | None = None
    """MemAvailable of the host."""


class Tally(msgspec.Struct, kw_only=True):
    """What all looks at one attempt come to. It can be kept as JSON and gone on with by another process."""

    held: int | None = None
    anon: int | None = None
    shmem: int | None = None
    swap: int | None = None
    held_at: datetime.datetime | None = None
    phase: str = ""
    """How far the log said the program was, when what is held last rose."""
    untold: int = 0
    """Of `held`: what the kernel never told apart."""
    untold_since: datetime.datetime | None = None
    pending: int = 0
    """The most that may have been held while the kernel had not told yet."""
    cache: int | None = None
    usage: int | None = None
    peak: int | None = None
    limit: int | None = None
    near_limit: float = 0.0
    counts: dict[str, float] = {}
    """Counters that only rise, over all cgroups that the attempt has had (a requeue makes another)."""
    last_counts: dict[str, float] = {}
    gpu_memory: int | None = None
    gpu_sum: float = 0.0
    gpu_looks: int = 0
    host_available: int | None = None
    looks: int = 0
    since: datetime.datetime | None = None
    until: datetime.datetime | None = None
    cgroup: int | None = None

    def add(self, reading: Reading, at: datetime.datetime) -> bool:
        """Take a look in. True when what is held rose to a new height that is worth keeping (2 % or 16M more)."""
        before = self.held
        held, untold = reading.held, reading.untold
        if not untold:
            self.untold_since, self.pending = None, 0
        elif self.untold_since is None:
            self.untold_since = at
        if untold and self.untold_since is not None and (at - self.untold_since).total_seconds() < SETTLES:
            self.pending, untold = max(self.pending, (held or 0) + untold), 0
        if held is not None and (before is None or held + untold > before):
            self.held, self.held_at, self.untold = held + untold, at, untold
            self.anon, self.shmem, self.swap = reading.anon, reading.shmem, reading.swap
        self.cache = _most(self.cache, reading.cache)
        self.usage = _most(self.usage, reading.current)
        self.peak = _most(self.peak, reading.peak)
        self.limit = reading.limit if reading.limit is not None else self.limit
        if self.until is not None and reading.limit and (reading.current or 0) >= NEAR * reading.limit:
            self.near_limit += max(0.0, (at - self.until).total_seconds())
        for name in ("limit_hits", "refaults", "oom", "oom_kill", "stalled", "stalled_full"):
            value = getattr(reading, name)
            if value is not None:
                last = self.last_counts.get(name, 0)
                # a counter that fell is another cgroup's; but v1's kills lack those of a step that is over, and those that
                # are left have been counted
                left = last if value >= last else value if reading.version == 1 and name == "oom_kill" else 0
                self.counts[name] = self.counts.get(name, 0) + value - left
                self.last_counts[name] = value
        self.looks += 1
        self.since = self.since or at
        self.until = at
        self.cgroup = reading.version
        return self.held is not None and (before is None or self.held - before > max(before // 50, 16 * 1024**2))

    def add_gpu(self, memory: int | None, utilization: int | None) -> None:
        """What the GPU showed."""
        self.gpu_memory = _most(self.gpu_memory, memory)
        if utilization is not None:
            self.gpu_sum += utilization
            self.gpu_looks += 1

    def add_host(self, available: int | None) -> None:
        """MemAvailable of the host."""
        if available is not None and (self.host_available is None or available < self.host_available):
            self.host_available = available

    def summary(self, source: str = "watcher", *, over: bool = False) -> MemorySummary | None:
        """What is to be kept; None: nobody has looked. over: no look follows, and what the kernel had not told apart yet
        counts as held: a peak at the very end must not be missed."""
        if not self.looks:
            return None
        untold = self.untold
        if over and self.pending > (self.held or 0):
            untold += self.pending - (self.held or 0)
            self.held, self.held_at, self.untold, self.pending = self.pending, self.until, untold, 0

        def count(name: str) -> int | None:
            return None if name not in self.counts else int(self.counts[name])

        return MemorySummary(
            held=self.held,
            anon=self.anon,
            shmem=self.shmem,
            swap=self.swap,
            held_at=self.held_at,
            phase=self.phase,
            untold=self.untold,
            cache=self.cache,
            usage=self.usage,
            peak=self.peak,
            limit=self.limit,
            near_limit=round(self.near_limit, 3),
            limit_hits=count("limit_hits"),
            refaults=count("refaults"),
            stalled=self.counts.get("stalled"),
            stalled_full=self.counts.get("stalled_full"),
            oom=count("oom"),
            oom_kill=count("oom_kill"),
            gpu_memory=self.gpu_memory,
            gpu_utilization=round(self.gpu_sum / self.gpu_looks, 1) if self.gpu_looks else None,
            host_available=self.host_available,
            looks=self.looks,
            since=self.since,
            until=self.until,
            cgroup=self.cgroup,
            source=source,
        )


def _most(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)
