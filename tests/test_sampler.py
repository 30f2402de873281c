"""The sampler over restarts, requeues and ends, on a cgroup tree that the test writes and a clock that it sets."""

from __future__ import annotations

import contextlib
import datetime
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpuq.adapters.cgroup import locate
from gpuq.adapters.configfiles import Project
from gpuq.adapters.ledger import Ledger
from gpuq.adapters.machine import caller
from gpuq.adapters.slurm import thishost
from gpuq.adapters.slurm.client import SlurmCommands
from gpuq.adapters.slurm.locate import Location, Source
from gpuq.adapters.store.db import open_store
from gpuq.adapters.store.samples import SampleStore
from gpuq.core.attempt import Ended, Outcome, Record, Request, make_comment
from gpuq.core.config import Settings
from gpuq.core.job import Job
from gpuq.core.memory.values import MemorySummary
from gpuq.usecases.context import Context
from gpuq.usecases.memory import report
from gpuq.usecases.memory.ended import better, load
from gpuq.usecases.memory.sample import GLANCE, IDLE, KILLED_GRACE, PACE, Roots, Sampler, key_of

START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
MIB = 1024**2


class Hands:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime.datetime:
        return START + datetime.timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Stage:
    """One host: a cgroup tree, a project with one run, a store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Hands()
        self.said: list[str] = []
        (root / "cgroup").mkdir()
        (root / "cgroup/cgroup.controllers").write_text("memory\n")
        (root / "meminfo").write_text("MemAvailable:    1000 kB\n")
        runs = root / "runs"
        (runs / "a/slurm").mkdir(parents=True)
        self.ctx = Context(
            slurm=SlurmCommands(Location(Source.NONE, None), {}),
            ledger=Ledger(runs),
            project=Project(root, runs, Settings(), Settings()),
            caller=caller(),
            clock=self.clock,
            environment={"PATH": "/nonexistent"},
            controller="c",
            system_wide=True,
            say=self.said.append,
        )
        self.record = Record(
            tag="a",
            attempt=1,
            token="ab",
            request=Request(cpus=1, memory=100 * MIB),
            argv=(),
            script="",
            script_sha256="",
            log=str(runs / "a/slurm/attempt1.out"),
            project=str(root),
            user="me",
            uid=1,
            host="h",
            reserved=START,
            job_id=12,
        )
        self.ctx.ledger.save(self.record)

    def sampler(self, connection: sqlite3.Connection | None = None) -> Sampler:
        return Sampler(self.ctx, connection, roots=Roots(cgroup=self.root / "cgroup", proc=self.root))

    @property
    def job(self) -> Job:
        return Job(
            id="12",
            number=12,
            name="a",
            state="RUNNING",
            reason="",
            partition="gpu",
            user="me",
            uid=1,
            submit=START,
            start=START,
            end=None,
            time_limit=None,
            elapsed=1,
            dependency="",
            gres="",
            memory=None,
            cpus=1,
            nice=0,
            priority=1,
            node="n1",
            comment=make_comment(1, "ab"),
            workdir="/",
        )

    @property
    def place(self) -> Path:
        return self.root / "cgroup/system.slice/n1_slurmstepd.scope/job_12"

    def holds(self, size: int, *, cache: int = 0, kills: int = 0, untold: int = 0) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        (self.place / "memory.stat").write_text(f"anon {size}\nfile {cache}\nshmem 0\nkernel 0\n")
        (self.place / "memory.current").write_text(f"{size + cache + untold}\n")
        (self.place / "memory.max").write_text(f"{100 * MIB}\n")
        (self.place / "memory.events").write_text(f"oom {kills}\noom_kill {kills}\n")

    def kept(self) -> Record:
        return self.ctx.ledger.read("a", 1)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_store(tmp_path / "watch.db")
    yield connection
    connection.close()


def test_a_steady_job_gets_a_point_every_pace_and_a_climbing_one_at_once(
    stage: Stage, database: sqlite3.Connection
) -> None:
    sampler = stage.sampler(database)
    assert sampler.pause() is None
    stage.holds(10 * MIB)
    while stage.clock.seconds < 3 * PACE:
        sampler.tick([stage.job], stage.clock.now())
        stage.clock.sleep(sampler.pause() or 0)
    stage.holds(70 * MIB)
    sampler.tick([stage.job], stage.clock.now())
    climbed = stage.clock.now()
    stage.holds(20 * MIB)
    stage.clock.sleep(GLANCE)
    sampler.tick([msgspec.structs.replace(stage.job, state="COMPLETING")], stage.clock.now())
    points = SampleStore(database).series(key_of(stage.job))
    assert [point.held for point in points] == [10 * MIB] * 4 + [70 * MIB]
    assert points[-1].at == climbed
    assert points[0].host_available == 1000 * 1024
    memory = stage.kept().memory
    assert memory
    assert (memory.held, memory.held_at, memory.limit) == (70 * MIB, climbed, 100 * MIB)


def test_what_was_seen_outlives_the_sampler(stage: Stage, database: sqlite3.Connection) -> None:
    stage.holds(60 * MIB)
    first = stage.sampler(database)
    first.tick([stage.job], stage.clock.now())
    first.close(stage.clock.now())
    stage.holds(10 * MIB)
    stage.clock.sleep(100)
    second = stage.sampler(database)
    second.tick([stage.job], stage.clock.now())
    second.close(stage.clock.now())
    shutil.rmtree(stage.place)
    third = stage.sampler(database)  # the job ended while nobody was there
    third.tick([], stage.clock.now())
    memory = stage.kept().memory
    assert memory
    assert (memory.held, memory.looks, memory.seconds) == (60 * MIB, 2, 100.0)
    assert SampleStore(database).unfinished() == []


def test_a_peak_at_the_end_that_the_kernel_never_told_apart(stage: Stage) -> None:
    sampler = stage.sampler()
    stage.holds(10 * MIB)
    sampler.tick([stage.job], stage.clock.now())
    stage.holds(10 * MIB, untold=50 * MIB)
    stage.clock.sleep(GLANCE)
    sampler.tick([stage.job], stage.clock.now())
    shutil.rmtree(stage.place)
    stage.clock.sleep(GLANCE)
    sampler.tick([], stage.clock.now())
    memory = stage.kept().memory
    assert memory
    assert (memory.held, memory.untold) == (60 * MIB, 50 * MIB)


def test_a_kill_is_told_when_the_job_goes_on_and_once(stage: Stage) -> None:
    sampler = stage.sampler()
    events = []
    stage.holds(90 * MIB)
    sampler.tick([stage.job], stage.clock.now())
    stage.holds(20 * MIB, kills=1)
    while stage.clock.seconds < 3 * KILLED_GRACE:
        stage.clock.sleep(PACE)
        events += sampler.tick([stage.job], stage.clock.now())
        assert not events or stage.clock.seconds > KILLED_GRACE
    (event,) = events
    assert event.key == f"oom-kill:{key_of(stage.job)}:1"
    assert event.problem
    assert (event.problem.rule, event.problem.subject, event.problem.advice) == ("oom-kill", "12 a", "gpuq mem a")
    assert "90M of 100M" in event.problem.text


def test_an_outcome_that_was_recorded_before_is_corrected(stage: Stage) -> None:
    sampler = stage.sampler()
    stage.holds(90 * MIB, kills=1)
    sampler.tick([stage.job], stage.clock.now())
    ended = Ended(outcome=Outcome.SUCCEEDED, state="COMPLETED", notes=("fine",))
    stage.ctx.ledger.save(msgspec.structs.replace(stage.record, ended=ended))
    sampler.tick([], stage.clock.now())
    kept = stage.kept()
    assert kept.ended
    assert kept.ended.notes == (
        "fine",
        "warning: a process in it was killed for memory; its output may be incomplete",
    )


def test_a_run_that_was_removed_meanwhile_and_a_job_id_that_came_back(
    stage: Stage, database: sqlite3.Connection
) -> None:
    stage.holds(MIB)
    sampler = stage.sampler(database)
    sampler.tick([stage.job], stage.clock.now())
    stage.ctx.ledger.save(msgspec.structs.replace(stage.record, job_id=13))
    sampler.tick([], stage.clock.now())
    assert stage.kept().memory is None, "it is another submission's by now"
    stage.ctx.ledger.save(stage.record)
    sampler.tick([stage.job], stage.clock.now())
    shutil.rmtree(stage.root / "runs/a")
    sampler.tick([], stage.clock.now())
    assert any("is not in its record" in text for text in stage.said)


def test_a_job_elsewhere_is_looked_for_less_and_less(stage: Stage) -> None:
    sampler = stage.sampler()
    for _ in range(20):
        stage.clock.sleep(1)
        assert sampler.tick([stage.job], stage.clock.now()) == []
    assert sampler.pause() is None
    assert sampler.summary(stage.job) is None
    sampler.tick([], stage.clock.now())
    assert stage.kept().memory is None


def test_a_task_of_an_array_has_a_cgroup_with_an_id_of_its_own(
    stage: Stage, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.holds(80 * MIB)  # job_12 is the array's last task
    stage.place.rename(stage.place.with_name("job_14"))
    stage.holds(20 * MIB)
    asked: list[int] = []

    def parts(*_: object) -> dict[str, int]:
        asked.append(1)
        return {"12_1": 14, "12_7": 12}

    monkeypatch.setattr(thishost, "parts", parts)
    tasks = [msgspec.structs.replace(stage.job, id=f"12_{number}", comment="") for number in (1, 7)]
    sampler = stage.sampler(database)
    for _ in range(3):
        sampler.tick(tasks, stage.clock.now())
        stage.clock.seconds += GLANCE
    held = {task.id: summary.held for task in tasks if (summary := sampler.summary(task))}
    assert held == {"12_1": 80 * MIB, "12_7": 20 * MIB}
    assert sampler.near(0.75).keys() == {"12_1"}
    assert len(asked) == 1, "for all of them at once"
    sampler.close(stage.clock.now())
    assert sorted(SampleStore(database).keys(12)) == sorted(key_of(task) for task in tasks)


def test_the_ids_of_tasks_are_asked_of_squeue(tmp_path: Path) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\nprintf '12_1      14        \\n12_7      12        \\n12+1   15\\n\\n'\n")
    squeue.chmod(0o755)
    where = Location(Source.NONE, None)
    assert thishost.parts(where, {"PATH": str(tmp_path)}) == {"12_1": 14, "12_7": 12, "12+1": 15}
    squeue.write_text("#!/bin/sh\nexit 1\n")
    assert thishost.parts(where, {"PATH": str(tmp_path)}) == {}


def test_how_far_the_log_was_at_the_height(stage: Stage) -> None:
    sampler = stage.sampler()
    log = Path(stage.record.log)
    for size, text in (
        (10, "START total=9\nSTEP step=1\n"),
        (60, "STEP step=2 part=evaluation\n"),
        (20, "STEP step=3\n"),
    ):
        with log.open("a") as handle:
            handle.write(text)
        stage.holds(size * MIB)
        sampler.tick([stage.job], stage.clock.now())
        stage.clock.seconds += PACE
    sampler.tick([], stage.clock.now())
    memory = stage.kept().memory
    assert memory
    assert (memory.held, memory.phase) == (60 * MIB, "step=2 part=evaluation")


def test_two_that_looked_at_one_attempt_know_more_together() -> None:
    later = START + datetime.timedelta(minutes=5)
    watcher = MemorySummary(
        held=90,
        anon=90,
        shmem=0,
        gpu_memory=7,
        gpu_utilization=50.0,
        stalled=2.0,
        host_available=5,
        since=START,
        until=START,
    )
    inside = MemorySummary(
        held=99, anon=99, shmem=0, peak=120, stalled=1.0, host_available=9, until=later, source="job"
    )
    for seen in (better(watcher, inside), better(inside, watcher)):
        assert seen
        assert (seen.held, seen.anon, seen.source) == (99, 99, "job")
        assert (seen.gpu_memory, seen.gpu_utilization, seen.peak, seen.stalled, seen.host_available) == (
            7,
            50.0,
            120,
            2.0,
            5,
        )
        assert (seen.since, seen.until) == (START, later)
    assert better(None, inside) == inside


def test_a_store_that_cannot_be_written_stops_nothing(stage: Stage, database: sqlite3.Connection) -> None:
    sampler = stage.sampler(database)
    database.execute("PRAGMA query_only=1")  # what a full disk does, at every write
    stage.holds(60 * MIB)
    sampler.tick([stage.job], stage.clock.now())
    stage.clock.sleep(100)
    sampler.tick([stage.job], stage.clock.now())
    sampler.tick([], stage.clock.now())
    memory = stage.kept().memory
    assert memory
    assert memory.held == 60 * MIB
    assert len([text for text in stage.said if "cannot be kept" in text]) == 1


def test_a_job_that_begins_is_noticed_without_a_question_to_slurm(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = stage.sampler()
    assert not sampler.began(), "nobody answers which node this host is"
    monkeypatch.setattr(thishost, "nodes", lambda *_: frozenset({"n1"}))
    stage.clock.sleep(600)
    assert not sampler.began(), "what was there before is no news"
    assert sampler.pause() == IDLE
    (stage.root / "cgroup/system.slice/other_slurmstepd.scope/job_3").mkdir(parents=True)
    assert not sampler.began(), "another Slurm's"
    stage.holds(MIB)
    assert sampler.began()
    assert not sampler.began()
    shutil.rmtree(stage.place)
    assert not sampler.began()


def test_near_the_limit_is_what_cannot_be_given_back(stage: Stage) -> None:
    sampler = stage.sampler()

    def near(size: int, cache: int = 0) -> dict[str, tuple[int, int]]:
        stage.holds(size * MIB, cache=cache * MIB)
        stage.clock.sleep(PACE)
        sampler.tick([stage.job], stage.clock.now())
        return sampler.near(0.9)

    assert near(50, cache=49) == {}, "the kernel takes the cache back"
    assert near(91) == {"12": (91 * MIB, 100 * MIB)}
    assert near(88).keys() == {"12"}, "it needs a bit less to be well again"
    assert near(80) == {}
    assert near(88) == {}
    near(95)
    sampler.tick([], stage.clock.now())
    assert sampler.near(0.9) == {}, "it is over"


@pytest.mark.parametrize("uid", [1, 2])
def test_on_cgroups_v1_only_the_jobs_of_the_user_count(tmp_path: Path, uid: int) -> None:
    job = tmp_path / "memory/slurm/uid_1/job_5"
    job.mkdir(parents=True)
    assert locate.jobs({"n1"}, tmp_path, uid=uid) == (frozenset({str(job)}) if uid == 1 else frozenset())
    assert locate.jobs({"n1"}, tmp_path) == {str(job)}


@pytest.mark.parametrize("time", ["2026-11-29T13:00:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00"])
def test_a_summary_with_a_time_that_cannot_be_one_is_none(tmp_path: Path, time: str) -> None:
    path = tmp_path / "attempt1.mem.json"
    path.write_text('{"held": 1, "since": "2026-11-29T13:00:00Z"}')
    assert load(path) is not None
    path.write_text(f'{{"held": 1, "since": "{time}"}}')
    assert load(path) is None


def test_a_database_of_a_later_gpuq_is_a_warning_for_who_only_asks(stage: Stage, tmp_path: Path) -> None:
    said: list[str] = []
    ctx = msgspec.structs.replace(stage.ctx, environment={"XDG_STATE_HOME": str(tmp_path)}, say=said.append)
    path = tmp_path / "gpuq" / "watch.db"
    with contextlib.closing(open_store(path)) as connection:
        SampleStore(connection)
        connection.execute("UPDATE parts SET version = 99")
    assert report._kept(ctx, stage.record, None) == (None, False)
    assert said == [f"warning: {path}: samples: version 99 was written by a later gpuq, which knows more"]
