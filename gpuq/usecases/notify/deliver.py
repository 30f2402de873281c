"""Carry notices from the outbox to their sinks: a thread for each sink, so that a slow one delays no other.

At-least-once: a notice leaves the outbox when its sink has taken it, so a kill -9 between the two tells it again, with the
same idempotency key. In order for each sink. What goes wrong here is said in the log and kept beside the notice; it never
becomes a notice itself.
"""

from __future__ import annotations

import datetime
import random
import sqlite3
import threading
from collections.abc import Callable, Mapping

import msgspec

from gpuq.adapters.store.events import EventStore, Queued
from gpuq.core.notify.delivery import (
    GIVE_UP,
    LONGEST_PAUSE,
    Answer,
    Delivered,
    Refused,
    Retry,
    Sink,
    delivery_key,
    is_given_up,
    next_wait,
)
from gpuq.core.ports import Clock, Say
from gpuq.core.units import format_duration

LOOK = 30.0
"""Seconds after which a sink looks into the outbox unasked: `gpuq notify retry` puts letters back from another process."""
STORE_WAIT = 1.0
"""Seconds before the store is tried again after it failed (disk full, locked)."""

Connect = Callable[[], sqlite3.Connection]


class Courier:
    """Delivers until it is drained. connect: called by each thread, for a connection of its own (gpuq.adapters.store.db);
    say: takes one line for the log; give_up: seconds after which a notice that cannot be delivered becomes a dead letter.
    """

    def __init__(
        self, sinks: Mapping[str, Sink], connect: Connect, *, clock: Clock, say: Say, give_up: float = GIVE_UP
    ) -> None:
        self._lock = threading.Lock()
        self._office = _Office(connect=connect, clock=clock, say=say, give_up=give_up)
        self._routes = {name: _Route(name, sink, self._office) for name, sink in sinks.items()}
        self._started = False

    def start(self) -> None:
        """Begin with what waits in the outbox."""
        with self._lock:
            self._started = True
            for route in self._routes.values():
                route.start()

    def wake(self) -> None:
        """There is something new in the outbox. Returns at once."""
        with self._lock:
            for route in self._routes.values():
                route.wake()

    def replace(self, sinks: Mapping[str, Sink], *, give_up: float = GIVE_UP) -> None:
        """Use these sinks from now on (SIGHUP). A delivery that is under way ends with the old one: a name never has two
        threads at work, so that nothing is told twice."""
        with self._lock:
            self._office.give_up = give_up
            for name, route in self._routes.items():
                if name not in sinks:
                    route.retire()
            for name, sink in sinks.items():
                before = self._routes.get(name)
                if before is None or not before.serve(sink):
                    self._routes[name] = _Route(name, sink, self._office, before=before)
                    if self._started:
                        self._routes[name].start()

    def drain(self, seconds: float) -> tuple[str, ...]:
        """Deliver what can be delivered within `seconds`, and stop. Returns the sinks that were not done by then; what
        they have still to deliver waits in the outbox."""
        deadline = self._office.clock.monotonic() + seconds
        with self._lock:
            routes = list(self._routes.values())
        for route in routes:
            route.retire(deadline)
        return tuple(route.name for route in routes if not route.join(deadline))


class _Office(msgspec.Struct):
    """What all routes share."""

    connect: Connect
    clock: Clock
    say: Say
    give_up: float


class _Route:
    """One sink, its thread and its way through the outbox."""

    def __init__(self, name: str, sink: Sink, office: _Office, before: _Route | None = None) -> None:
        self.name = name
        self._sink = sink
        self._office = office
        self._before = before
        """The retired route of the same name; its thread must have ended before this one delivers."""
        self._changed = threading.Condition()
        self._woken = False
        self._retired = False
        self._deadline: float | None = None
        """Retired: until when it may still deliver; None: not at all."""
        self._not_before = 0.0
        """Monotonic: the service has asked to be left alone until then."""
        self._limited: int | None = None
        """The notice whose last try was told to wait."""
        self._unmarked: int | None = None
        """A notice that was delivered and could not be marked so: nothing else is sent before it is, or it would be told
        again and again."""
        self._complaint = ""
        self._thread = threading.Thread(target=self._run, name=f"gpuq-sink-{name}", daemon=True)

    # -- called by the courier ---------------------------------------------------------------------------------

    def start(self) -> None:
        if not self._thread.is_alive() and not self._retired:
            self._thread.start()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def serve(self, sink: Sink) -> bool:
        """Go on with another sink; False: too late, it is retired."""
        with self._changed:
            if self._retired:
                return False
            self._sink, self._not_before, self._woken = sink, 0.0, True
            self._changed.notify_all()
        return True

    def retire(self, deadline: float | None = None) -> None:
        with self._changed:
            if not self._retired:  # a sink that was taken away is not served again while all is drained
                self._retired, self._deadline = True, deadline
            self._changed.notify_all()

    def join(self, deadline: float) -> bool:
        """Whether its thread has ended by then (monotonic)."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, deadline - self._office.clock.monotonic()))
        return not self._thread.is_alive()

    # -- in its thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        if self._before is not None and self._before._thread.ident is not None:
            self._before._thread.join()
        self._before = None
        connection: sqlite3.Connection | None = None
        store: EventStore | None = None
        try:
            while True:
                try:
                    if store is None:
                        connection = self._office.connect()
                        store = EventStore(connection)
                    wait = self._step(store)
                except Exception as error:  # a sink that stops telling is the one thing that must not happen
                    self._complain(f"the outbox: {type(error).__name__}: {error}")
                    wait = STORE_WAIT
                    if connection is not None:
                        connection.close()
                    connection = store = None
                if not self._rest(wait):
                    return
        finally:
            if connection is not None:
                connection.close()
            self._sink.close()

    def _rest(self, wait: float | None) -> bool:
        """Sleep until there may be something to do; wait: seconds, None: nothing is due. False: it is over."""
        with self._changed:
            if self._retired:
                now = self._office.clock.monotonic()
                if wait is None or self._deadline is None or now + wait > self._deadline:
                    return False
                if wait > 0:
                    self._changed.wait(wait)
                return True
            if wait != 0:
                self._changed.wait_for(lambda: self._woken or self._retired, LOOK if wait is None else min(wait, LOOK))
            self._woken = False
            return True

    def _step(self, store: EventStore) -> float | None:
        """Deliver the next notice. Returns the seconds until the next step; None: nothing is due. Raises sqlite3.Error."""
        clock = self._office.clock
        if self._unmarked is not None:
            store.delivered(self._unmarked, clock.now())
            self._unmarked = None
        if (pause := self._not_before - clock.monotonic()) > 0:
            return pause
        now = clock.now()
        due = store.due(self.name, now, limit=1)
        if not due:
            again = store.next_retry(self.name)
            if again is None or again <= now:
                return None  # not paused: the outbox is empty
            pause = (again - now).total_seconds()
            if pause > LONGEST_PAUSE + 60:  # nobody asked for that: the clock was wrong then, and has been set since
                store.resume(self.name)
                return 0.0
            return pause
        with self._changed:
            if self._retired and self._deadline is None:
                return None  # taken away while the outbox was read
            sink = self._sink
        letter = due[0]
        answer = self._send(sink, letter)
        if isinstance(answer, Delivered):
            self._unmarked = letter.id
            self._not_before = clock.monotonic() + answer.pause
            store.delivered(letter.id, clock.now())
            self._unmarked = self._limited = None
            self._recover()
            return 0.0
        return self._failed(store, letter, answer)

    def _send(self, sink: Sink, letter: Queued) -> Answer:
        try:
            return sink.send(letter.notice, delivery_key(self.name, letter.notice))
        except Exception as error:  # its text may hold anything
            return Retry(f"the sink failed ({type(error).__name__})")

    def _failed(self, store: EventStore, letter: Queued, answer: Retry | Refused) -> float:
        """Write down when it is tried again, or that it is given up. Returns the seconds until the next step."""
        now = self._office.clock.now()
        tries = letter.attempts + 1
        if isinstance(answer, Retry):
            age = (now - letter.first_queued).total_seconds()
            if not is_given_up(tries=tries, age=age, limit=self._office.give_up):
                wait = next_wait(
                    answer,
                    tries=tries,
                    limited_before=self._limited == letter.id,
                    chance=random.random(),  # noqa: S311 - jitter
                )
                self._limited = letter.id if answer.wait is not None else None
                store.failed(letter.id, answer.why, now + datetime.timedelta(seconds=wait), now=now)
                self._complain(f"{answer.why}; again in {format_duration(wait) if wait >= 1 else f'{wait:.2g}s'}")
                return wait
        store.failed(letter.id, answer.why, now, dead=True, now=now)
        self._office.say(
            f"sink {self.name}: gave up on {letter.notice.title!r}: {answer.why}; gpuq notify status shows what is left"
        )
        return 0.0

    def _complain(self, text: str) -> None:
        """Once for a series of failures."""
        if not self._complaint:
            self._office.say(f"sink {self.name}: {text}")
        self._complaint = text

    def _recover(self) -> None:
        if self._complaint:
            self._office.say(f"sink {self.name}: delivers again")
        self._complaint = ""
