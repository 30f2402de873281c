"""The watcher: looks, judges, writes down, wakes the courier; again and again.

One cycle is: read what is new in the completion file, look at the queue where it is time, put both through
`core/watch/step.step` and `core/watch/problems.judge`, and save events, notices and memory in one transaction. Killed at any
instant, the next one finds the memory of the last whole cycle and reads the same facts again.
"""

from __future__ import annotations

import datetime
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gpuq.adapters.filewatch import FileWatch
from gpuq.adapters.slurm.jobcomp_follow import Follower, Place
from gpuq.adapters.store.events import EventStore
from gpuq.core.event import Event, Kind, Queue
from gpuq.core.job import Job, Phase
from gpuq.core.notify.config import MOST_FAILURES
from gpuq.core.ports import Say
from gpuq.core.watch.facts import Completion, Completions, Fact, Snapshot, Watched
from gpuq.core.watch.queue import queue_facts
from gpuq.core.watch.rows import plain_id, running_of
from gpuq.core.watch.rules import Ended
from gpuq.core.watch.step import Found, step
from gpuq.errors import GpuqError
from gpuq.usecases.context import Context
from gpuq.usecases.watch.begun import Begun
from gpuq.usecases.watch.day import Day, digest_event
from gpuq.usecases.watch.endings import ended_event
from gpuq.usecases.watch.left import is_retry_due, left_to_tell
from gpuq.usecases.watch.logs import Logs
from gpuq.usecases.watch.look import Look
from gpuq.usecases.watch.parts import CourierLike, Rules, SamplerLike
from gpuq.usecases.watch.report import sources
from gpuq.usecases.watch.settle import Settler
from gpuq.usecases.watch.state import Keeper, Memory, Unsettled
from gpuq.usecases.watch.trouble import UNKNOWN, Near, Troubles

SLOWEST = 4
"""The pause between polls grows to so many times the configured one while nothing changes."""
SOON = 2.0
"""Seconds after an end at which the queue is looked at again: what starts next has started by then."""
BURST = 0.3
"""Seconds that the look at the queue after an end may wait for more ends, where the queue is so long that it costs."""
LOOK_AT_FILES = 0.5
"""Seconds between two looks at the completion file where the kernel does not tell."""
BEGUN_EVERY = 1.9
"""Seconds between two looks whether a job has begun on this host: several directory listings."""
SHARE = 0.0005
"""Of one core: what looking at a queue that does not change may cost. A look at 5,000 jobs takes 0.1 s."""
LONGEST = 480.0
"""Seconds between two looks at the queue, at most: below what counts as having been away (`state`)."""
AT_LEAST = 30.0
"""Seconds between two turns of the loop, at most: whoever calls it looks whether the configuration has changed."""
STORE_RETRY, STORE_SLOWEST = 2.0, 60.0
AGAIN = 10.0
"""Seconds until Slurm is asked again after it gave no answer."""


class Watcher:
    """The loop. `wake` is set by whoever has news: the kernel about a file, a signal."""

    def __init__(
        self,
        ctx: Context,
        store: EventStore,
        rules: Rules,
        *,
        wake: threading.Event,
        files: FileWatch | None = None,
        courier: CourierLike | None = None,
        sampler: SamplerLike | None = None,
        places: Sequence[Path] = (),
        say: Say,
    ) -> None:
        """places: directories whose disks must not become full. Raises sqlite3.Error, msgspec.MsgspecError."""
        self._ctx, self._store, self._say = ctx, store, say
        self.rules = rules
        self._wake, self._files, self._courier, self._sampler = wake, files, courier, sampler
        self.keeper = Keeper(ctx.controller)
        self.memory = self.keeper.load(store)
        self.look = Look(ctx)
        self._logs = Logs(ctx, self.keeper.name)
        self._troubles = Troubles(ctx, self.look, places, self.keeper.name, say)
        self._day = Day(store)
        self._rows: tuple[Job, ...] = ()
        """The user's jobs at the last snapshot that have not been told; after the cycle only those that run."""
        self._active: tuple[Job, ...] = ()
        """These, and those that are still COMPLETING."""
        self._seen = 0
        """What the last snapshot showed, as a hash."""
        self._pause = rules.poll
        self._next_poll = 0.0
        self._not_before = 0.0
        self._settler = Settler(ctx, self.keeper.name)
        self._next_sample = 0.0
        self._sampled: list[Event] = []
        self._retry = STORE_RETRY
        self.failed = ""
        """What is wrong with the database: the last cycle could not be saved; empty: nothing."""
        self._near: Near | None = None
        self._near_changed = False
        self._begun = Begun(rules.poll)
        self._next_light = self._next_begun = self._turned = 0.0
        self._queue: Queue | None = None
        self._told = False
        """The kernel tells when the completion file changes."""
        self.polls = 0
        self.resting = False
        self.cycles = 0

    # -- the loop ----------------------------------------------------------------------------------------------

    def run(self, stopping: Callable[[], bool], each: Callable[[], None] = lambda: None) -> None:
        """Until `stopping()`. each: called after every cycle, at least every few minutes."""
        while not stopping():
            self.cycle()
            each()
            if not stopping():
                self.resting = True
                woken = self._wake.wait(self.pause())
                self._wake.clear()
                self.resting = False
                while not woken and not stopping() and self._only_memory():
                    woken = self._wake.wait(self.pause())
                    self._wake.clear()

    def pause(self) -> float:
        """Seconds until there is something to do unasked."""
        at = self._next_full()
        if self._sampler is not None and self._sampler.pause() is not None:
            at = min(at, self._next_sample)
        return max(at - self._ctx.clock.monotonic(), 0.0)

    def _next_full(self) -> float:
        """When the next whole cycle is due, if nothing happens (monotonic)."""
        at = [self._next_poll, self._next_light, self._turned + AT_LEAST]
        for one in (self._settler.next(self.memory), self._troubles.next, self._logs.next(self.memory)):
            if one is not None:
                at.append(one)
        if self.look.jobcomp is not None and not self._told:
            at.append(self._ctx.clock.monotonic() + LOOK_AT_FILES)
        return min(at)

    def _only_memory(self) -> bool:
        """Sample, where that is all that is due: it is, twice a second. False: a whole cycle is due."""
        if self._ctx.clock.monotonic() >= self._next_full() or self._sampler is None:
            return False
        self.cycles += 1
        self._look_for_begun()
        if events := self._sample():
            try:
                self._save(self.memory, events)
            except sqlite3.Error:
                self._sampled = events  # the next cycle tells what is wrong, and tries again
                return False
        return True

    def cycle(self, *, poll: bool = False) -> None:
        """Look at what is new, and save what it came to. poll: look at the queue in any case."""
        self.cycles += 1
        self._turned = self._ctx.clock.monotonic()
        before = self.memory
        work = msgspec.structs.replace(before, seen=list(before.seen), unsettled=dict(before.unsettled))
        try:
            events = self._cycle(work, poll)
            self._save(work, events)
        except sqlite3.Error as error:
            # Nothing is lost: the facts are read again. A full disk or a lock may last.
            self.memory = before
            if self.failed != str(error):
                self._say(f"the watcher's database: {error}; trying again")
            self.failed = str(error)
            self._next_poll = self._not_before = self._ctx.clock.monotonic() + self._retry
            self._retry = min(2 * self._retry, STORE_SLOWEST)
        else:
            self.failed, self._retry = "", STORE_RETRY

    def _cycle(self, work: Memory, poll: bool) -> list[Event]:
        clock = self._ctx.clock
        now = clock.monotonic()
        due = poll or now >= min(self._next_poll, self._troubles.next or self._next_poll)
        if due:
            self.look.find_jobcomp()
        lines, place = self._lines(work)
        self._look_for_begun()
        snapshot = None
        if lines or due:
            # Many ends at once share one look at a long queue; without a look nothing can be said of what runs next.
            clock.sleep(max(min(self._not_before - now, BURST), 0.0))
            first = work.place is None
            snapshot = self.look.snapshot(
                work.state, ended=first or self.look.jobcomp is None or not self.look.readable()
            )
            self._after_snapshot(snapshot, bool(lines))
            more, place = self._lines(work)  # what ended while Slurm answered has its line by now
            lines = [*more] if len(more) > len(lines) else lines
        at = clock.now().timestamp()
        work.place = place
        facts: list[Fact] = [Completions(at=at, lines=tuple(lines))] if lines else []
        facts += [snapshot] if snapshot is not None else []
        events = self._step(work, facts)
        events += self._sample()
        said, over = self._logs.look(work, self.rules)
        events += [msgspec.structs.replace(event, queue=self._queue) for event in said]
        if over:  # Slurm decides whether that was its end
            self._next_poll = min(self._next_poll, clock.monotonic() + SOON)
        if snapshot is not None or due:
            answered = snapshot is not None
            events += self._find_problems(work, self._active if answered else None, answered and not lines)
        elif now >= self._next_light:
            events += self._find_problems(work, None, True)
        retry_was_due = is_retry_due(work)
        events += self._settler.work(work)
        if retry_was_due and not is_retry_due(work):
            self._next_poll = min(self._next_poll, now)  # then it is known whether the queue is short
        if snapshot is not None:
            work.be_seen(at)
            events += self._digest(work)
        # Between two looks only what runs is looked at: of a long queue nothing more is kept than its memory has.
        self._rows, self._active = running_of(self._rows), ()
        return events

    def _lines(self, work: Memory) -> tuple[list[Completion], Place | None]:
        path = self.look.jobcomp
        if path is None:
            return [], work.place
        follower = Follower(path, work.place)
        if work.place is None:
            if not self.look.readable() and path.exists():
                return [], None
            follower.skip()  # the first time: what ended before is no news
        self._told = self._files is not None and all([self._files.watch(one) for one in follower.files()])
        try:
            return follower.read(uid=self._ctx.caller.uid)
        except OSError:
            return [], work.place

    def _after_snapshot(self, snapshot: Snapshot | None, news: bool) -> None:
        """When to look again: soon after something ended, later and later while nothing changes."""
        now = self._ctx.clock.monotonic()
        self._not_before = now + min(5 * self.look.cost, BURST)
        self.polls += 1
        if snapshot is None:
            self._pause = self.rules.poll
            self._next_poll = now + min(self._pause, AGAIN)
            return
        shown = hash(frozenset((row.id, row.state, row.reason) for row in snapshot.jobs))
        changed, self._seen = shown != self._seen, shown
        self._begun.looked(changed)
        # What ends is pushed and what begins is seen on this host: a long queue need not be read often.
        patient = self._told and self._sampler is not None and self._sampler.pause() is not None
        slowest = max(SLOWEST * self.rules.poll, min(self.look.cost / SHARE, LONGEST) if patient else 0.0)
        self._pause = self.rules.poll if changed else min((4 if patient else 2) * self._pause, slowest)
        self._next_poll = now + (SOON if news else self._pause)

    def finish(self) -> None:
        """The records of what was told, as far as that is possible within a second (`--once`)."""
        for _ in range(20):
            if not self.memory.unsettled:
                break
            self._ctx.clock.sleep(0.05)
            work = msgspec.structs.replace(self.memory, unsettled=dict(self.memory.unsettled))
            self._save(work, self._settler.work(work, patient=False))
        if self.memory.held_back is not None and not is_retry_due(self.memory):
            self.cycle(poll=True)

    def sources(self) -> dict[str, str]:
        """Where the news come from, for a person."""
        return sources(self.look, self._told, self._pause, self._sampler is not None)

    # -- judging -----------------------------------------------------------------------------------------------

    def _step(self, work: Memory, facts: Sequence[Fact]) -> list[Event]:
        found: list[Found] = []
        asked: dict[str, Watched] = {}
        started: list[Event] = []
        for fact in facts:
            before = work.state
            work.state, one = step(work.state, fact)
            found.append(one)
            asked |= one.ask
            if isinstance(fact, Snapshot):
                self._rows = tuple(
                    row for row in fact.jobs if row.phase is not Phase.ENDED and self._is_open(work, row)
                )
                self._active = tuple(row for row in fact.jobs if row.phase is not Phase.ENDED)
                pushed = self.look.jobcomp is not None and self.look.readable()
                started = self._logs.follow(work, before.jobs, self.rules, first=before.serial == 0, pushed=pushed)
        if asked:
            work.state, one = step(work.state, self.look.answers(asked))
            found.append(one)
        over = [one for each in found for one in each.over]
        now = self._ctx.clock.now()
        if over:
            ended = {one.id for one in over}
            self._rows = tuple(row for row in self._rows if plain_id(row) not in ended)
        if over and self._sampler is not None:
            self._sampled = self._look_at_memory(now)  # it writes down what it saw of those that ended
        looked = any(isinstance(fact, Snapshot) for fact in facts)
        self._queue = queue_facts(self._rows, self._day.durations, now) if looked else None
        events: list[Event] = []
        for gone in over:
            key = f"{self.keeper.name}:{gone.key}"
            if self._store.has(key):
                continue
            event, record = ended_event(self._ctx, gone, self._queue, now)
            event = msgspec.structs.replace(event, key=key)
            events.append(event)
            self._day.add(event)
            # one that was killed for memory may be tried again, also when another command has settled it
            if record is not None and (record.ended is None or record.ended.outcome == "OUT_OF_MEMORY"):
                again = event.ending is not None and bool(event.ending.retry)
                work.unsettled[key] = Unsettled(gone.workdir, record.tag, record.attempt, now.timestamp(), again)
                self._settler.soon()
            if event.ending is not None and event.kind is Kind.JOB_ENDED:
                last = Ended(event.ending.job_id, event.ending.name, event.ending.outcome, event.ending.elapsed)
                work.ended = (*work.ended, last)[-MOST_FAILURES:]
        events += started  # what runs now has begun after what ended made room for it
        few = next((one.left for one in reversed(found) if one.left is not None), None)
        if (kind := left_to_tell(work, few, looked=looked)) is not None:
            key = f"{self.keeper.name}:left:{work.state.left}:{work.state.emptied}:{int(now.timestamp())}"
            events.append(Event(key=key, kind=kind, time=now, queue=self._queue))
        return events

    def _is_open(self, work: Memory, row: Job) -> bool:
        """False for a job that is ending and has been told."""
        told = work.state.told.get(plain_id(row))
        return told is None or row.submit is None or int(row.submit.timestamp()) > max(told)

    def _look_for_begun(self) -> None:
        now = self._ctx.clock.monotonic()
        if now < self._next_begun:
            return
        self._next_begun = now + BEGUN_EVERY
        if self._sampler is not None and self._sampler.began():
            self._next_poll = min(self._next_poll, self._begun.look_at(now))

    def _find_problems(self, work: Memory, rows: tuple[Job, ...] | None, calm: bool) -> list[Event]:
        events = self._troubles.find(work, self.rules, rows=rows, near=self._near, queue=self._queue, calm=calm)
        now = self._ctx.clock.monotonic()
        self._next_light = now + SLOWEST * self.rules.poll
        if rows is not None:
            self._near_changed = False
        elif self._near_changed:
            self._troubles.next = now + UNKNOWN
        if self.look.unanswered:
            self._next_poll = min(self._next_poll, now + AGAIN)
        return events

    def _sample(self) -> list[Event]:
        events, self._sampled = self._sampled, []
        if self._sampler is None:
            return events
        now = self._ctx.clock.monotonic()
        if now >= self._next_sample:
            events += self._look_at_memory(self._ctx.clock.now())
            self._next_sample = now + (self._sampler.pause() or self.rules.poll)
        return events

    def _look_at_memory(self, now: datetime.datetime) -> list[Event]:
        assert self._sampler is not None  # noqa: S101 - the callers looked
        try:
            events = self._sampler.tick(running_of(self._rows), now)
            near = self._sampler.near(self.rules.memory_near)
            if near.keys() != (self._near or {}).keys():
                self._near_changed = True
                self._troubles.next = self._ctx.clock.monotonic()
            self._near = near
            return events
        except (GpuqError, OSError) as error:  # a record that cannot be written keeps nobody from being told
            self._say(f"memory of a job could not be written down: {error}")
            return []

    def _digest(self, work: Memory) -> list[Event]:
        now = self._ctx.clock.now()
        day = self._day.due(self.rules.digest, now, work.digest)
        if day is None:
            return []
        first, work.digest = not work.digest, day
        if first or not self.rules.wants(Kind.DIGEST):
            return []  # there is no day to look back on yet
        return [digest_event(self.keeper.name, self.rules.digest, day, now, self._store, self._rows, work)]

    # -- saving ------------------------------------------------------------------------------------------------

    def _save(self, work: Memory, events: Sequence[Event]) -> None:
        changes = self.keeper.changes(work)
        notices = [pair for event in events for pair in self.rules.notices(event)]
        if events or changes:
            self._store.record(events, notices, changes, now=self._ctx.clock.now())
            self.keeper.saved(work, changes)
        self.memory = work
        if notices and self._courier is not None:
            self._courier.wake()
