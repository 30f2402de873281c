"""`gpuq watch` as a process: one per user, signals, the service manager, delivery, and a clean end."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from gpuq.adapters import instance, notifyfile
from gpuq.adapters.configfiles import user_config
from gpuq.adapters.filewatch import FileWatch
from gpuq.adapters.ledger import Ledger
from gpuq.adapters.sdnotify import Notifier
from gpuq.adapters.sinks import registry
from gpuq.adapters.store.db import FILE, open_store, state_dir
from gpuq.adapters.store.events import EventStore
from gpuq.core.attempt import Record
from gpuq.core.event import Event, Kind, Problem
from gpuq.core.job import Job
from gpuq.core.notify.config import Config
from gpuq.core.notify.telling import notices
from gpuq.errors import ConfigError, GpuqError, HostError, SlurmUnreachable, StoreError
from gpuq.usecases.context import Context
from gpuq.usecases.memory.sample import Sampler
from gpuq.usecases.notify import notify
from gpuq.usecases.watch.loop import Watcher
from gpuq.usecases.watch.parts import Rules
from gpuq.usecases.watch.report import Report

DRAIN = 4.0
"""Seconds for which a stopping watcher still delivers; it has ended one second later whatever happens."""
LAST = 4.8
REPORT_EVERY = 60.0
PRUNE_EVERY = 86400.0


def rules_of(config: Config) -> Rules:
    """The part of the user's configuration that the watcher minds."""
    return Rules(
        poll=config.watch.poll,
        hold=config.watch.hold_after_failures,
        digest=config.watch.digest,
        disk_free=config.watch.disk_free,
        fast_failures=config.watch.fast_failures,
        fast_seconds=config.watch.fast_seconds,
        memory_near=config.watch.memory_near,
        silent=config.watch.silent_minutes * 60,
        progress=config.watch.progress,
        notices=lambda event: notices(event, config),
        wants=lambda kind: bool(config.routes(kind)),
    )


def run(ctx: Context, *, once: bool = False) -> list[Event]:
    """Watch until a signal ends it; with `once`, look once, tell what is new, and return it.

    Raises ConfigError, HostError (another one runs; the state directory cannot be written), StoreError.
    """
    config_seen = _seen(user_config(ctx.environment))  # before it is read
    config = notifyfile.load(ctx.environment)
    directory = state_dir(ctx.environment)
    lock = _lock(directory)
    try:
        return _Process(ctx, config, config_seen, directory).run(once=once)
    except (sqlite3.Error, msgspec.MsgspecError) as error:  # the latter: what is in it was written by nobody we know
        raise _unusable(directory, error) from error
    finally:
        lock.release()


def _unusable(directory: Path, error: Exception | str) -> StoreError:
    return StoreError(
        f"the watcher's database {directory / FILE}: {error}",
        hint=f"df -h {directory}; losing it loses no outcome: mv {directory / FILE} {directory / FILE}.old",
    )


def _seen(path: Path) -> tuple[int, ...]:
    """What tells one state of a file from another; empty: there is none."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _lock(directory: Path) -> instance.Instance:
    try:
        lock = instance.acquire(directory)
    except OSError as error:
        raise HostError(
            f"{directory}: {error.strerror or error}", hint=f"ls -ld {directory}; df -h {directory}"
        ) from None
    if isinstance(lock, int):
        who = f"process {lock}" if lock else "another process"
        raise HostError(f"a watcher of yours runs already: {who}", hint="gpuq watch status")
    return lock


class _Process:
    def __init__(self, ctx: Context, config: Config, config_seen: tuple[int, ...], directory: Path) -> None:
        self._ctx, self._config = ctx, config
        self._wake = threading.Event()
        self._stop = self._reload = False
        self._broken: Problem | None = None
        """The configuration that is in the file now, where that is not the one that counts."""
        self._config_file = user_config(ctx.environment)
        self._config_seen = config_seen
        self._systemd = Notifier(ctx.environment)
        self._courier = notify.courier(config, ctx.environment, clock=ctx.clock, say=ctx.say)
        try:
            self._db = open_store(directory / FILE)
        except OSError as error:  # it cannot be made: a full disk, say
            raise _unusable(directory, error) from None
        self._store = EventStore(self._db)
        self._files = FileWatch(self._wake.set)
        self._started = ctx.clock.now()
        self._next_report = self._next_prune = 0.0
        if self._files.note:
            ctx.say(f"note: {self._files.note}")
        self._sampler = _sampler(ctx, self._db, config.watch.sample)
        self._watcher = Watcher(
            ctx,
            self._store,
            rules_of(config),
            wake=self._wake,
            files=self._files,
            courier=self._courier,
            sampler=self._sampler,
            places=[ctx.project.root, directory],
            say=ctx.say,
        )

    def run(self, *, once: bool) -> list[Event]:
        before = self._store.last_id()
        try:
            self._courier.start()
            if once:
                self._watcher.cycle(poll=True)
                self._watcher.finish()
            else:
                self._serve()
        finally:
            self._systemd.tell("STOPPING=1")
            self._files.close()
            left = self._courier.drain(DRAIN if not once else 15.0)
            for sink in left:
                self._ctx.say(f"sink {sink}: not all could be delivered in time; the next watcher goes on")
            if not once:
                self._report(force=True)
        found = self._store.after(before)
        self._db.close()
        if once and self._watcher.failed:  # what was found out is not safe, and was not told
            raise _unusable(state_dir(self._ctx.environment), self._watcher.failed)
        if once and self._watcher.look.unanswered:
            raise SlurmUnreachable(
                f"what is new in the queue is not known: {self._watcher.look.why}",
                hint="scontrol ping; gpuq local status",
            )
        return found

    def _serve(self) -> None:
        kept = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        # Not after the first look: a controller that hangs keeps us longer than a start may take, and that is to be told.
        self._systemd.tell("READY=1")
        if self._systemd.watchdog:
            threading.Thread(target=self._beat, name="gpuq-heart", daemon=True).start()
        try:
            self._watcher.run(lambda: self._stop, self._each())
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)

    def _each(self) -> Callable[[], None]:
        def each() -> None:
            if self._config_changed() or self._reload:
                self._reload = False
                self._new_config()
            if not self._next_report:
                self._ctx.say(f"watching the jobs of {self._ctx.caller.user}; process {os.getpid()}")
            self._report()

        return each

    def _config_changed(self) -> bool:
        """Whether config.toml is another than it was; where the kernel tells of a change, this is asked at once."""
        before, self._config_seen = self._config_seen, _seen(self._config_file)
        self._files.watch(self._config_file)
        return before != self._config_seen

    def _on_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGHUP:
            self._reload = True
        elif not self._stop:
            self._stop = True
            # A question to a controller that hangs may last longer than we may; what is written is whole at any instant.
            threading.Thread(target=_end_soon, name="gpuq-end", daemon=True).start()
        self._wake.set()

    def _beat(self) -> None:
        """Tell the service manager that the loop goes round: not from the loop itself, which may wait for Slurm long."""
        cycles = -1
        silent = 0.0
        pause = max(self._systemd.watchdog / 3, 1.0)
        while not self._stop:
            # The loop rests for minutes when nothing happens; it is stuck when it neither rests nor goes round.
            alive = self._watcher.cycles != cycles or self._watcher.resting
            cycles, silent = self._watcher.cycles, 0.0 if alive else silent + pause
            if silent < 120:
                self._systemd.tell("WATCHDOG=1")
            time.sleep(pause)

    def _new_config(self) -> None:
        try:
            config = notifyfile.load(self._ctx.environment)
            sinks = registry.make_all(config, self._ctx.environment)
        except ConfigError as error:
            self._ctx.say(f"the configuration was not taken over, the old one stays: {error.message}")
            self._broken = Problem(
                rule="config-broken",
                subject="the configuration",
                text=f"the changed configuration is wrong, the old one stays: {error.message}",
                advice="mend it; it is read again then. gpuq notify status tells whether it is right",
            )
            self._tell_of_config(Kind.PROBLEM, self._broken)
            return
        self._config = config
        self._watcher.rules = rules_of(config)
        if self._sampler is not None:
            self._sampler.glance = config.watch.sample
        self._courier.replace(sinks, give_up=config.give_up)
        self._ctx.say("the configuration was read again")
        if self._broken is not None:
            self._tell_of_config(Kind.RECOVERED, self._broken)
            self._broken = None

    def _tell_of_config(self, kind: Kind, problem: Problem) -> None:
        now = self._ctx.clock.now()
        text = "the configuration is right again, and is the one that counts" if kind is Kind.RECOVERED else ""
        event = Event(key=f"config:{now.timestamp()}", kind=kind, time=now, problem=problem, text=text)
        try:
            self._store.record([event], notices(event, self._config), now=now)
        except sqlite3.Error as trouble:  # it stands in the log, and nobody stops watching for it
            self._ctx.say(f"the watcher's database: {trouble}")
        self._courier.wake()

    def _report(self, *, force: bool = False) -> None:
        now = self._ctx.clock.monotonic()
        if not force and now < self._next_report:
            return
        self._next_report = now + REPORT_EVERY
        watcher = self._watcher
        memory, look = watcher.memory, watcher.look
        report = Report(
            pid=os.getpid(),
            controller=self._ctx.controller,
            started=self._started,
            at=self._ctx.clock.now(),
            sources=watcher.sources(),
            polls=watcher.polls,
            rpcs=look.rpcs,
            jobs=len({job.number for job in memory.state.jobs.values()}) + len(memory.state.arrays),
            unanswered=look.unanswered,
            problems=[one.problem.text for one in memory.opens.values() if one.told and one.gone is None],
        )
        try:
            self._store.record([], [], {"report": msgspec.json.encode(report)}, now=report.at)
            if now >= self._next_prune:
                self._store.prune(report.at)
                self._next_prune = now + PRUNE_EVERY
        except sqlite3.Error as error:
            self._ctx.say(f"the watcher's database: {error}")
        self._systemd.tell(f"STATUS={report.jobs} jobs in the queue; {len(report.problems)} problems")


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _end_soon() -> None:
    time.sleep(LAST)
    os._exit(0)


def _sampler(ctx: Context, connection: sqlite3.Connection, glance: float) -> Sampler | None:
    """The memory sampler; without it everything else goes on."""
    from gpuq.usecases.watch.endings import attempt_of

    def record_for(job: Job) -> tuple[Ledger, Record] | None:
        if job.submit is None:
            return None
        found = attempt_of(ctx, job.workdir, job.name, job.number, (int(job.submit.timestamp()),), job.comment)
        return None if found is None else (found[0].ledger, found[1])

    try:
        return Sampler(ctx, connection, record_for=record_for, glance=glance)
    except (GpuqError, OSError) as error:
        ctx.say(f"note: memory is not sampled: {error}")
        return None
