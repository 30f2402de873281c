"""The watcher's loop on a queue and a clock that the test sets: a promised retry, and a controller that goes away."""

from __future__ import annotations

import contextlib
import datetime
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuq.adapters.configfiles import Project
from gpuq.adapters.ledger import Ledger
from gpuq.adapters.machine import caller
from gpuq.adapters.store.db import open_store
from gpuq.adapters.store.events import EventStore
from gpuq.core.attempt import Ended, Outcome, Record, Request, make_comment
from gpuq.core.config import Settings
from gpuq.core.event import Event, Kind
from gpuq.core.job import Job
from gpuq.core.notify.config import Config, from_tables
from gpuq.errors import GpuqError, SlurmUnreachable, SubmissionRefused
from gpuq.usecases.context import Context
from gpuq.usecases.memory import retry
from gpuq.usecases.watch.loop import Watcher
from gpuq.usecases.watch.run import rules_of
from gpuq.usecases.watch.settle import PATIENCE
from tests.core.watch_world import EPOCH, job, moment

Answer = Callable[[], Any]


class Slurm:
    """What the loop asks of it, from a list of rows: no job completion file, and nothing else is wrong."""

    def __init__(self) -> None:
        self.rows: list[Job] = []
        self.asked: list[int] = []
        self.hangs = False

    def config(self) -> dict[str, str]:
        return {}

    def jobs(self, *, uid: int | None = None, ended: bool = False) -> list[Job]:
        return self.rows

    def job(self, number: int, *, part: str = "") -> Job | None:
        self.asked.append(number)
        if self.hangs:
            raise SlurmUnreachable("no answer within 30 s")
        return next((row for row in self.rows if row.number == number), None)

    def usage(self) -> list[object]:
        return []


class Clock:
    """It goes on when the test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime.datetime:
        return moment(EPOCH) + datetime.timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Stage:
    """A project whose run `a` was killed for memory as job 12, and a watcher that saw it run."""

    def __init__(self, root: Path) -> None:
        self.slurm, self.clock = Slurm(), Clock()
        self.me = caller()
        runs = root / "runs"
        (runs / "a/slurm").mkdir(parents=True)
        self.ctx = Context(
            slurm=self.slurm,  # type: ignore[arg-type]  # as much of one as is asked
            ledger=Ledger(runs),
            project=Project(root, runs, Settings(), Settings()),
            caller=self.me,
            clock=self.clock,
            environment={"PATH": os.environ["PATH"]},
            controller="c",
            system_wide=True,
            say=lambda text: None,
        )
        self.store = EventStore(open_store(root / "watch.db"))
        self.root = root
        self.row(12, "ab", attempt=1)
        self.restart()
        self.watcher.cycle()

    def row(self, number: int, token: str, *, attempt: int) -> None:
        one = job(
            str(number),
            "RUNNING",
            uid=self.me.uid,
            workdir=str(self.root),
            comment=make_comment(attempt, token) if token else "",
            start=moment(EPOCH),
        )
        self.slurm.rows.append(one)

    def restart(self) -> None:
        self.watcher = Watcher(self.ctx, self.store, rules_of(Config()), wake=threading.Event(), say=lambda text: None)

    def kill(self) -> None:
        """Job 12 ends; its record is written by somebody else."""
        self.slurm.rows.clear()
        ended = Ended(outcome=Outcome.OUT_OF_MEMORY, state="OUT_OF_MEMORY", source="slurm", recorded=self.clock.now())
        self.ctx.ledger.save(
            Record(
                tag="a",
                attempt=1,
                token="ab",
                request=Request(cpus=1, memory=2**26),
                argv=(),
                script="",
                script_sha256="",
                log=str(self.root / "runs/a/slurm/attempt1.out"),
                project=str(self.root),
                user=self.me.user,
                uid=self.me.uid,
                host="h",
                reserved=self.clock.now(),
                submitted=moment(EPOCH),
                job_id=12,
                controller="c",
                ended=ended,
            )
        )

    def go_on(self, seconds: float, *, again: bool = False) -> None:
        """The loop for so long, without a wait; again: with a new watcher before each turn."""
        until = self.clock.seconds + seconds
        while self.clock.seconds < until:
            self.clock.seconds += max(self.watcher.pause(), 0.01)
            if again:
                self.restart()
            self.watcher.cycle()

    def told(self, *kinds: Kind) -> list[Event]:
        return [one for one in self.store.after(0) if one.kind in kinds]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(retry, "planned", lambda ctx, record: retry.Planned(2, 2**27, False))
    made = Stage(tmp_path)
    with contextlib.closing(made.store._db):
        yield made


def answers(monkeypatch: pytest.MonkeyPatch, *ones: GpuqError) -> list[float]:
    """What trying again comes to, the last for ever. Returns how often it was tried."""
    tries: list[float] = []

    def retry_oom(ctx: Context, record: Record) -> None:
        tries.append(ctx.clock.monotonic())
        raise ones[min(len(tries), len(ones)) - 1]

    monkeypatch.setattr(retry, "retry_oom", retry_oom)
    return tries


REFUSED = SubmissionRefused("the partition is down")
AWAY = SlurmUnreachable("no answer")


@pytest.mark.parametrize("again", [False, True], ids=["one watcher", "a new one each time"])
@pytest.mark.parametrize("first", [(), (AWAY, AWAY, AWAY, AWAY, AWAY, AWAY, AWAY)], ids=["at once", "later"])
def test_a_retry_that_is_refused_and_the_empty_queue_are_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, first: Sequence[GpuqError], again: bool
) -> None:
    tries = answers(monkeypatch, *first, REFUSED)
    stage.kill()
    stage.go_on(600, again=again)
    assert len(tries) == len(first) + 1
    (ended,) = stage.told(Kind.JOB_ENDED)
    assert ended.ending is not None
    assert ended.ending.retry == "as attempt 2 with 128M"
    (problem,) = stage.told(Kind.PROBLEM)
    assert problem.problem is not None
    assert (problem.problem.rule, problem.subject) == ("retry-refused", "a attempt 1")
    assert problem.problem.text.endswith("is not tried again after all: the partition is down")
    (empty,) = stage.told(Kind.QUEUE_EMPTY)
    assert empty.time >= problem.time


def test_a_retry_that_nobody_answers_is_given_up_and_the_empty_queue_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, AWAY)
    stage.kill()
    stage.go_on(PATIENCE - 60)
    assert stage.told(Kind.QUEUE_EMPTY, Kind.PROBLEM) == []
    stage.go_on(300)
    assert [one.kind for one in stage.told(Kind.QUEUE_EMPTY, Kind.PROBLEM)] == [Kind.PROBLEM, Kind.QUEUE_EMPTY]


def test_a_retry_that_is_made_leaves_no_empty_queue(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def retry_oom(ctx: Context, record: Record) -> None:
        stage.row(13, "cd", attempt=2)

    monkeypatch.setattr(retry, "retry_oom", retry_oom)
    stage.kill()
    stage.go_on(600)
    assert stage.told(Kind.QUEUE_EMPTY, Kind.ONE_LEFT, Kind.PROBLEM) == []
    stage.slurm.rows[0] = msgspec.structs.replace(stage.slurm.rows[0], state="COMPLETED")
    monkeypatch.setattr(stage.slurm, "end_of", lambda row: None, raising=False)
    stage.go_on(300)
    assert len(stage.told(Kind.QUEUE_EMPTY)) == 1


def test_a_start_is_told_after_the_end_that_made_room_for_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.watcher.rules = rules_of(from_tables({"kinds": {"job_started": {}}}, None, "config.toml"))
    answers(monkeypatch, REFUSED)
    stage.kill()
    stage.row(13, "", attempt=1)  # nobody's attempt, so no log of it is waited for
    stage.go_on(300)
    assert [one.kind for one in stage.told(Kind.JOB_ENDED, Kind.JOB_STARTED)] == [Kind.JOB_ENDED, Kind.JOB_STARTED]


def test_a_controller_that_hangs_is_asked_for_one_missing_job_and_not_for_each(stage: Stage) -> None:
    for number in range(20, 30):
        stage.row(number, f"{number}", attempt=1)
    stage.go_on(60)
    stage.slurm.rows.clear()
    stage.slurm.hangs = True
    turns = stage.watcher.polls
    stage.go_on(200)
    assert 0 < len(stage.slurm.asked) <= stage.watcher.polls - turns
    assert stage.told(Kind.JOB_ENDED) == []
    stage.slurm.hangs = False
    stage.go_on(200)
    assert len(stage.told(Kind.JOB_ENDED)) == 11
