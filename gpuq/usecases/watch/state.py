"""What the watcher remembers from one moment to the next, kept in the store in the same transaction as its events.

Each job has a row of its own, so that one that ends in a queue of thousands costs one row.
"""

from __future__ import annotations

import hashlib

import msgspec

from gpuq.adapters.slurm.jobcomp_follow import Place
from gpuq.adapters.store.events import EventStore
from gpuq.core.watch.facts import Array, Completion, State, Watched
from gpuq.core.watch.log import Followed
from gpuq.core.watch.problems import Open
from gpuq.core.watch.rules import Ended

_SEEN_GAP = 600.0
"""Seconds without a look after which the watcher counts as having been away. Longer than its longest pause."""
_SEEN_KEPT = 3 * 86400.0


class Unsettled(msgspec.Struct, frozen=True):
    """An attempt that was told, and whose record may not be written yet."""

    workdir: str
    tag: str
    attempt: int
    since: float
    retry: bool = False
    """It was killed for memory, and is tried again: the queue is not empty."""


class Memory(msgspec.Struct, kw_only=True):
    """All of it. Times are seconds since 1970."""

    state: State = msgspec.field(default_factory=State)
    place: Place | None = None
    """How far the job completion file was read; None: never."""
    opens: dict[str, Open] = {}
    ended: tuple[Ended, ...] = ()
    """The last endings, for the rule about failures."""
    seen: list[tuple[float, float]] = []
    """When the watcher was there."""
    digest: str = ""
    """The day of the last digest."""
    unsettled: dict[str, Unsettled] = {}
    """By the key of the event."""
    logs: dict[str, Followed] = {}
    """The logs that are read, by job and start."""
    held_back: int | None = None
    """So few jobs were left (one, none), and it has not been told because one was to be tried again; None: all is told."""

    def be_seen(self, at: float) -> None:
        """The watcher is there."""
        if self.seen and 0 <= at - self.seen[-1][1] <= _SEEN_GAP:
            self.seen[-1] = (self.seen[-1][0], at)
        else:
            self.seen.append((at, at))
        while self.seen and self.seen[0][1] < at - _SEEN_KEPT:
            self.seen.pop(0)


class _Small(msgspec.Struct, kw_only=True):
    serial: int = 0
    told: dict[str, tuple[int, ...]] = {}
    left: int = 0
    passed: int = 0
    emptied: int = 0
    place: Place | None = None
    opens: dict[str, Open] = {}
    ended: tuple[Ended, ...] = ()
    seen: list[tuple[float, float]] = []
    digest: str = ""
    unsettled: dict[str, Unsettled] = {}
    doubts: dict[str, Completion] = {}
    logs: dict[str, Followed] = {}
    held_back: int | None = None


class Keeper:
    """Loads and saves the memory of one controller: a user may have several, and ids are unique for each only."""

    def __init__(self, controller: str) -> None:
        self.name = hashlib.sha256(controller.encode()).hexdigest()[:8]
        self._small = f"watch:{self.name}"
        self._job = f"job:{self.name}:"
        self._array = f"array:{self.name}:"
        self._jobs: dict[str, Watched] = {}
        self._arrays: dict[int, Array] = {}
        self._logs: dict[str, Followed] = {}
        self._bytes = b""

    def load(self, store: EventStore) -> Memory:
        """What was saved last; empty at first. Raises sqlite3.Error, msgspec.MsgspecError."""
        raw = store.cursor(self._small)
        small = msgspec.json.decode(raw, type=_Small) if raw else _Small()
        jobs = {
            name.removeprefix(self._job): msgspec.json.decode(value, type=Watched)
            for name, value in store.cursors(self._job).items()
        }
        try:
            arrays = {
                int(name.removeprefix(self._array)): msgspec.json.decode(value, type=Array)
                for name, value in store.cursors(self._array).items()
            }
        except ValueError as error:  # msgspec's are ValueErrors, too
            raise msgspec.DecodeError(f"an array of jobs is not understood: {error}") from None
        self._jobs, self._arrays, self._logs, self._bytes = jobs, arrays, small.logs, raw or b""
        state = State(
            serial=small.serial,
            jobs=dict(jobs),
            arrays=dict(arrays),
            told=small.told,
            doubts=small.doubts,
            left=small.left,
            passed=small.passed,
            emptied=small.emptied,
        )
        return Memory(
            state=state,
            place=small.place,
            opens=small.opens,
            ended=small.ended,
            seen=small.seen,
            digest=small.digest,
            unsettled=small.unsettled,
            logs=small.logs,
            held_back=small.held_back,
        )

    def changes(self, memory: Memory) -> dict[str, bytes | None]:
        """The cursors to save so that `memory` is what `load` finds. What has not changed is left out."""
        state = memory.state
        found: dict[str, bytes | None] = {}
        for key, job in state.jobs.items() if state.jobs is not self._jobs else ():
            if self._jobs.get(key) is not job:
                found[self._job + key] = msgspec.json.encode(job)
        for key in self._jobs.keys() - state.jobs.keys() if state.jobs is not self._jobs else ():
            found[self._job + key] = None
        for number, array in state.arrays.items():
            if self._arrays.get(number) is not array:
                found[f"{self._array}{number}"] = msgspec.json.encode(array)
        for number in self._arrays.keys() - state.arrays.keys():
            found[f"{self._array}{number}"] = None
        small = msgspec.json.encode(
            _Small(
                serial=state.serial,
                told=state.told,
                left=state.left,
                passed=state.passed,
                emptied=state.emptied,
                place=memory.place,
                opens=memory.opens,
                ended=memory.ended,
                seen=memory.seen,
                digest=memory.digest,
                unsettled=memory.unsettled,
                doubts=state.doubts,
                held_back=memory.held_back,
                # how far a log was read is no reason to write: that is kept with the next event
                logs=memory.logs if _told(memory.logs) != _told(self._logs) else self._logs,
            )
        )
        if small != self._bytes:
            found[self._small] = small
        return found

    def saved(self, memory: Memory, changes: dict[str, bytes | None]) -> None:
        """They are safe."""
        self._jobs, self._arrays = memory.state.jobs, memory.state.arrays
        if _told(memory.logs) != _told(self._logs):
            self._logs = memory.logs
        self._bytes = changes.get(self._small) or self._bytes


def _told(logs: dict[str, Followed]) -> dict[str, tuple[bool, float, bool]]:
    return {key: (one.started, one.progressed, one.over) for key, one in logs.items()}
