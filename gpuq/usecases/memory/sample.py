"""Look at the memory of running jobs, again and again, and write down what it came to when they are over.

Each job gets a glance every GLANCE seconds (two files), so that a peak of two seconds is seen whenever it comes; a point of
its series every PACE seconds, and at once while its usage climbs.
"""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from gpuq.adapters.cgroup import locate, read
from gpuq.adapters.gpu import Meter
from gpuq.adapters.ledger import Ledger
from gpuq.adapters.slurm import thishost
from gpuq.adapters.slurm.locate import locate as locate_slurm
from gpuq.adapters.store.samples import About, SampleStore
from gpuq.core.attempt import Record
from gpuq.core.event import Event, Kind, Problem
from gpuq.core.job import Job, Phase
from gpuq.core.memory.looks import Reading, Sample, Tally
from gpuq.core.memory.oom import used_words
from gpuq.core.memory.values import MemorySummary
from gpuq.errors import GpuqError, LedgerError
from gpuq.usecases.context import Context
from gpuq.usecases.memory.ended import fold
from gpuq.usecases.memory.own import phase_of
from gpuq.usecases.refs import record_of

GLANCE = 0.5
"""Seconds between two looks at what a job holds."""
IDLE = 2.0
"""Seconds between two looks whether a job has begun, while nothing is looked at."""
NEAR_REST = 0.05
"""Part of its limit by which a job must have fallen to be no longer near it."""
PACE = 5.0
"""Seconds between two points of its series."""
CLIMB = 0.02
"""Part by which it has to have grown for a point at once; CLIMB_LEAST at least."""
CLIMB_LEAST = 16 * 1024**2
FLUSH = 30.0
"""Seconds after which points are written to the store; a new height is at once."""
KILLED_GRACE = 60.0
"""Seconds that a job goes on after a process of it was killed for memory, before that is told of it. Most end of it, and
their end is told then."""
_RETRY = (2.0, 300.0)
"""Seconds until a cgroup that was not found is looked for again: at first, and at most."""
_GPU_RETRY = 60.0
_NODES_RETRY = 300.0
"""Seconds until Slurm is asked again which of its nodes this host is, where it gave no answer."""


class Roots(msgspec.Struct, frozen=True):
    """Where the host is looked at."""

    cgroup: Path = locate.ROOT
    proc: Path = locate.PROC


HOST = Roots()


class Finder:
    """Finds the cgroups of running jobs. What Slurm has to be asked for that, it is asked once, where it is needed."""

    def __init__(self, ctx: Context, roots: Roots = HOST) -> None:
        self._ctx = ctx
        self._roots = roots
        self._parts: dict[str, int] | None = None
        self._pids: dict[int, int] | None = None

    def find(self, job: Job) -> locate.Place | None:
        """None: there is none on this host."""
        number = job.number
        if not job.whole:  # a task of an array: its cgroup has the id that it alone has
            if self._parts is None:
                self._parts = thishost.parts(locate_slurm(self._ctx.environment), self._ctx.environment)
            if job.id not in self._parts:
                return None
            number = self._parts[job.id]
        cgroup, proc = self._roots.cgroup, self._roots.proc
        place = locate.find(number, node=job.node, root=cgroup, proc_root=proc)
        if place is None:
            if self._pids is None:
                self._pids = thishost.listpids(locate_slurm(self._ctx.environment), self._ctx.environment)
            pids = [pid for pid, its in self._pids.items() if its == number]
            place = locate.find(number, node=job.node, pids=pids, root=cgroup, proc_root=proc)
        return place


class _Watched(msgspec.Struct, kw_only=True):
    """A job that is being looked at. Times are the clock's monotonic ones."""

    key: str
    about: About
    job: Job
    place: locate.Place | None = None
    tally: Tally
    log: str = ""
    """Of its attempt; empty: none is known."""
    points: list[Sample] = []
    next_point: float = 0.0
    next_flush: float = 0.0
    next_search: float = 0.0
    patience: float = _RETRY[0]
    last_held: int | None = None
    last: Reading | None = None
    near: bool = False
    """At the last look it was near its limit."""
    killed_since: float | None = None
    told: int = 0


def key_of(job: Job) -> str:
    """Names a job (or a task of an array) in the store: ids come back after a lost state, so the submission counts too."""
    return f"{job.id}:{int(job.submit.timestamp()) if job.submit else 0}"


class Sampler:
    """Looks at the jobs that it is given. Call `tick` every `pause()` seconds, and before outcomes are settled, so that what
    it saw is in the record by then."""

    def __init__(
        self,
        ctx: Context,
        connection: sqlite3.Connection | None = None,
        *,
        roots: Roots = HOST,
        record_for: Callable[[Job], tuple[Ledger, Record] | None] | None = None,
        glance: float = GLANCE,
    ) -> None:
        """connection: the watcher's store; without one nothing outlives this process but the records. record_for: the
        record of a job, where it may lie in another project than the context's. glance: seconds between two looks. Raises
        sqlite3.Error."""
        self.glance = glance
        self._ctx = ctx
        self._roots = roots
        self._record_for = record_for or self._own_record
        self._store = None if connection is None else SampleStore(connection)
        self._store_failed = False
        self._seen: frozenset[str] | None = None
        self._nodes: frozenset[str] | None = None
        self._next_nodes = 0.0
        self._watched: dict[str, _Watched] = {}
        self._meter: Meter | None = None
        self._next_meter = 0.0
        self._left = self._store.unfinished() if self._store is not None else []

    def tick(self, jobs: Sequence[Job], now: datetime.datetime) -> list[Event]:
        """Look at each of these jobs (those that do not run are passed over); those that were there before and are not any
        more (COMPLETING counts as over) are over: what was seen of them is written into their records.

        Returns what is worth telling while a job goes on. A record or a store that cannot be written is told and stops
        nothing.
        """
        running = {key_of(job): job for job in jobs if job.phase is Phase.RUNNING}
        for key in [key for key in self._watched if key not in running]:
            self._end(self._watched.pop(key), now)
        while self._left:
            key, about = self._left[0]
            if key not in running and self._store is not None:
                self._finish(key, about, self._store.tally(key) or Tally(), now)
            self._left.pop(0)
        clock = self._ctx.clock.monotonic()
        finder = Finder(self._ctx, self._roots)
        for key, job in running.items():
            one = self._watched.get(key) or self._begin(key, job)
            if one.place is None and clock >= one.next_search:
                self._search(one, finder, clock)
            if one.place is not None:
                self._look(one, now, clock)
        return [event for one in self._watched.values() if (event := self._killed(one, now, clock)) is not None]

    def pause(self) -> float | None:
        """Seconds until the next tick, and the next question whether a job `began`, are wanted; None: there is nothing to
        look at, this host is no node of the Slurm that is asked."""
        if any(one.place is not None for one in self._watched.values()):
            return self.glance
        return IDLE if self._nodes else None

    def began(self) -> bool:
        """True when a job has begun on this host since this was asked last: then the queue is worth a look. Costs two
        directory listings; no question to Slurm."""
        clock = self._ctx.clock.monotonic()
        if self._nodes is None and clock >= self._next_nodes:
            self._next_nodes = clock + _NODES_RETRY
            self._nodes = thishost.nodes(
                locate_slurm(self._ctx.environment), self._ctx.environment, self._ctx.caller.host
            )
        if not self._nodes:
            return False
        now = locate.jobs(self._nodes, self._roots.cgroup, uid=self._ctx.caller.uid)
        before, self._seen = self._seen, now
        return before is not None and bool(now - before)

    def near(self, part: float) -> dict[str, tuple[int, int]]:
        """The jobs that held `part` of their limit or more at the last look (anon + shmem: what the kernel cannot take
        back): what each holds and its limit, by job id. One that was among them needs NEAR_REST less to be no more."""
        found = {}
        for one in self._watched.values():
            look = one.last
            if look is None or not look.limit or look.anon is None or look.shmem is None:
                continue
            held = look.anon + look.shmem
            one.near = held >= look.limit * (part - NEAR_REST if one.near else part)
            if one.near:
                found[one.job.id] = (held, look.limit)
        return found

    def summary(self, job: Job) -> MemorySummary | None:
        """What was seen of a running job until now."""
        one = self._watched.get(key_of(job))
        return None if one is None else one.tally.summary()

    def close(self, now: datetime.datetime) -> None:
        """Write down what was seen of the jobs that go on; they are looked at again by whoever comes next."""
        for one in self._watched.values():
            self._flush(one, now, self._ctx.clock.monotonic())
        self._watched.clear()
        if self._meter is not None:
            self._meter.close()

    # -- one job -----------------------------------------------------------------------------------------------

    def _begin(self, key: str, job: Job) -> _Watched:
        try:
            found = self._record_for(job)
        except GpuqError:  # a record that cannot be read keeps nobody from looking
            found = None
        about = About(job_id=job.number, name=job.name)
        if found is not None:
            ledger, record = found
            about = About(
                job_id=job.number, name=job.name, runs=str(ledger.root), tag=record.tag, attempt=record.attempt
            )
        tally = self._store.tally(key) if self._store is not None else None
        log = "" if found is None else found[1].log
        one = _Watched(key=key, about=about, job=job, tally=tally or Tally(), log=log)
        one.told = int(one.tally.counts.get("oom_kill", 0))
        self._watched[key] = one
        return one

    def _search(self, one: _Watched, finder: Finder, clock: float) -> None:
        """Find the job's cgroup."""
        one.place = finder.find(one.job)
        if one.place is None:
            one.next_search = clock + one.patience
            one.patience = min(2 * one.patience, _RETRY[1])
        else:
            one.patience = _RETRY[0]

    def _look(self, one: _Watched, now: datetime.datetime, clock: float) -> None:
        assert one.place is not None  # noqa: S101 - only then is it called
        held = read.glance(one.place)
        if held is None:
            one.place, one.next_search = None, clock
            return
        climbs = one.last_held is None or held - one.last_held > max(CLIMB * one.last_held, CLIMB_LEAST)
        if not climbs and clock < one.next_point:
            return
        reading = read.read(one.place)
        if reading is None:
            return
        one.last = reading
        risen = one.tally.add(reading, now)
        if risen:
            one.tally.phase = phase_of(one.log)
        one.last_held = held if reading.untold else reading.held
        one.next_point = clock + (self.glance if climbs or reading.untold else PACE)
        one.points.append(self._point(one, reading, now, clock))
        if risen or clock >= one.next_flush:
            self._flush(one, now, clock)

    def _point(self, one: _Watched, reading: Reading, now: datetime.datetime, clock: float) -> Sample:
        memory, utilization = self._gpu(clock) if one.job.has_gpu else (None, None)
        free = read.available(self._roots.proc)
        one.tally.add_gpu(memory, utilization)
        one.tally.add_host(free)
        return Sample(
            at=now,
            held=reading.held,
            anon=reading.anon,
            shmem=reading.shmem,
            cache=reading.cache,
            current=reading.current,
            limit=reading.limit,
            gpu_memory=memory,
            gpu_utilization=utilization,
            host_available=free,
        )

    def _gpu(self, clock: float) -> tuple[int | None, int | None]:
        if self._meter is None and clock >= self._next_meter:
            self._next_meter = clock + _GPU_RETRY
            meter = Meter()
            self._meter = meter if meter.open() else None
        if self._meter is None:
            return None, None
        found = self._meter.read()
        if found == (None, None):
            self._meter.close()
            self._meter = None
        return found

    def _flush(self, one: _Watched, now: datetime.datetime, clock: float) -> None:
        one.next_flush = clock + FLUSH
        if self._store is not None and one.tally.looks:
            with self._store_may_fail():
                self._store.save(one.key, one.about, one.tally, one.points, now)
        one.points = []

    @contextlib.contextmanager
    def _store_may_fail(self) -> Iterator[None]:
        """A store that cannot be written (a full disk) stops nothing: what was seen is in memory, and goes to the record."""
        try:
            yield
        except sqlite3.Error as error:
            if not self._store_failed:
                self._ctx.say(f"warning: the series of memory samples cannot be kept: {error}")
            self._store_failed = True

    def _killed(self, one: _Watched, now: datetime.datetime, clock: float) -> Event | None:
        """A process of the job was killed for memory, and the job goes on without it."""
        count = int(one.tally.counts.get("oom_kill", 0))
        if count <= one.told:
            one.killed_since = None
            return None
        if one.killed_since is None:
            one.killed_since = clock
        if clock - one.killed_since < KILLED_GRACE:
            return None
        one.told = count
        used = used_words(one.tally.summary())
        held = f"; at most it held {used}" if used else ""
        name = one.about.tag or one.about.name
        return Event(
            key=f"oom-kill:{one.key}:{count}",
            kind=Kind.PROBLEM,
            time=now,
            problem=Problem(
                rule="oom-kill",
                subject=f"{one.job.id} {name}",
                text=f"A process in it was killed for memory, and the job goes on{held}.",
                advice=f"gpuq mem {name if one.about.tag else one.job.id}",
            ),
        )

    # -- the end -----------------------------------------------------------------------------------------------

    def _end(self, one: _Watched, now: datetime.datetime) -> None:
        self._flush(one, now, self._ctx.clock.monotonic())
        self._finish(one.key, one.about, one.tally, now)

    def _finish(self, key: str, about: About, tally: Tally, now: datetime.datetime) -> None:
        summary = tally.summary(over=True)
        if summary is not None and about.runs:
            try:
                ledger = Ledger(Path(about.runs))
                with ledger.changing(ledger.read(about.tag, about.attempt)) as record:
                    if record.job_id == about.job_id:
                        ledger.save(fold(record, summary))
            except LedgerError as error:  # of one run that was removed, say; the others are seen to all the same
                self._ctx.say(
                    f"warning: what was seen of the memory of {about.name} is not in its record: {error.message}"
                )
        if self._store is not None:
            with self._store_may_fail():
                self._store.finish(key, now)

    def _own_record(self, job: Job) -> tuple[Ledger, Record] | None:
        record = record_of(self._ctx, job)
        return None if record is None else (self._ctx.ledger, record)
