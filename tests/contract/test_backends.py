"""What every backend of the port `gpuq.core.ports.Slurm` has to say, on every Slurm, about every kind of job."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

from gpuq.core.job import Job, Phase
from gpuq.core.units import MIB
from gpuq.errors import SlurmUnreachable
from tests.contract.worlds import Kind, World

LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
SETTLED = (
    "id", "number", "name", "state", "partition", "user", "uid", "submit", "time_limit", "dependency", "gres",
    "memory", "cpus", "nice", "node", "comment", "workdir",
)  # fmt: skip
"""Fields that do not change from one question to the next."""


def look(world: World, number: int) -> Job:
    """The job, asked for alone; the list of all has to say the same."""
    alone = world.client.job(number)
    assert alone is not None
    listed = [job for job in world.client.jobs(ended=True) if job.number == number]
    assert len(listed) == 1
    for field in SETTLED:
        assert getattr(alone, field) == getattr(listed[0], field), field
    return alone


def test_a_running_job(world: World) -> None:
    job = look(world, number := world.job(Kind.RUNNING))
    assert (job.id, job.number, job.state, job.phase) == (str(number), number, "RUNNING", Phase.RUNNING)
    assert (job.reason, job.dependency, job.uid) == ("", "", world.uid)
    assert job.has_gpu
    assert job.node
    assert job.memory in {100 * MIB, 200 * MIB}
    assert job.cpus >= 1
    assert job.submit is not None
    assert job.start is not None
    assert job.end is not None
    assert job.time_limit is not None
    assert job.submit <= job.start
    assert job.end - job.start == datetime.timedelta(seconds=job.time_limit)
    assert 0 <= job.elapsed < 600
    assert job.workdir.startswith("/")


def test_a_waiting_job(world: World) -> None:
    job = look(world, world.job(Kind.WAITING))
    assert (job.state, job.phase, job.node, job.elapsed) == ("PENDING", Phase.WAITING, "", 0)
    assert job.reason in {"Resources", "Priority"}
    assert job.priority > 0
    assert job.has_gpu


def test_a_held_job(world: World) -> None:
    job = look(world, world.job(Kind.HELD))
    assert (job.reason, job.priority, job.start, job.end) == ("JobHeldUser", 0, None, None)


def test_a_dependent_job(world: World) -> None:
    running, number = world.job(Kind.RUNNING), world.job(Kind.DEPENDENT)
    job = look(world, number)
    assert (job.phase, job.dependency) == (Phase.WAITING, f"afterok:{running}(unfulfilled)")


def test_a_dependency_that_never_comes_true(world: World) -> None:
    failed, number = world.job(Kind.FAILED), world.job(Kind.NEVER)
    job = look(world, number)
    assert (job.reason, job.dependency) == ("DependencyNeverSatisfied", f"afterok:{failed}(failed)")


def test_an_array(world: World) -> None:
    number = world.job(Kind.ARRAY)
    job = look(world, number)
    assert (job.id, job.number, job.phase) == (f"{number}_[1-3%1]", number, Phase.WAITING)


def test_the_tasks_of_an_array_that_have_ended(world: World) -> None:
    number = world.job(Kind.TASKS)
    tasks = {job.id: job for job in world.client.jobs(ended=True) if job.number == number}
    assert {name: one.state for name, one in tasks.items()} == {f"{number}_0": "COMPLETED", f"{number}_1": "FAILED"}
    ends = [world.client.end_of(tasks[f"{number}_{task}"]) for task in range(2)]
    assert [(end.state, end.exit_code) for end in ends] == [("COMPLETED", 0), ("FAILED", 3)]
    for name in tasks:
        part = world.client.job(number, part=name)
        assert part is not None
        assert (part.id, part.state) == (name, tasks[name].state)
    whole = world.client.job(number)
    assert whole is not None
    assert whole.state == "FAILED"


def test_the_components_of_a_heterogeneous_job(world: World) -> None:
    number = world.job(Kind.TOGETHER)
    listed = [(job.id, job.number, job.phase) for job in world.client.jobs() if "+" in job.id]
    assert sorted(listed) == [(f"{number}+{part}", number, Phase.WAITING) for part in range(2)]
    for part in range(2):
        job = world.client.job(number, part=f"{number}+{part}")
        assert job is not None
        assert job.id == f"{number}+{part}"


def test_more_time_than_the_partition_allows(world: World) -> None:
    job = look(world, world.job(Kind.TOO_LONG))
    assert (job.phase, job.time_limit) == (Phase.WAITING, world.too_long)


def test_a_nice_job(world: World) -> None:
    job = look(world, world.job(Kind.NICE))
    assert (job.nice, job.time_limit) == (100, 3600)


@pytest.mark.parametrize("kind", [Kind.GPUS, Kind.CPU_ONLY])
def test_a_job_without_gres_per_node(world: World, kind: Kind) -> None:
    job = look(world, world.job(kind))
    assert (job.gres, job.has_gpu) == ("", False)


def test_a_job_that_begins_later(world: World) -> None:
    job = look(world, world.job(Kind.LATER))
    assert (job.phase, job.reason) == (Phase.WAITING, "BeginTime")
    assert job.start is not None
    assert job.submit is not None
    assert job.start >= job.submit + datetime.timedelta(hours=1)
    held = look(world, world.job(Kind.HELD))
    assert world.client.restarts([job.number]) == {job.id: 0}
    assert world.client.restarts([job.number, held.number]) == {job.id: 0, held.id: 0}
    assert world.client.restarts([999_999]) == {}


@pytest.mark.parametrize(
    ("kind", "state", "code", "signal"),
    [
        (Kind.COMPLETED, "COMPLETED", 0, 0),
        (Kind.FAILED, "FAILED", 3, 0),
        (Kind.SIGNALLED, "FAILED", 0, 11),
        (Kind.OUT_OF_MEMORY, "OUT_OF_MEMORY", 0, 125),
        (Kind.CANCELLED, "CANCELLED", 0, 0),
    ],
)
def test_a_job_that_has_ended(world: World, kind: Kind, state: str, code: int, signal: int) -> None:
    number = world.job(kind)
    job = look(world, number)
    assert (job.state, job.phase) == (state, Phase.ENDED)
    assert number not in {one.number for one in world.client.jobs()}
    end = world.client.end_of(job)
    assert (end.state, end.exit_code, end.signal, end.restarts) == (state, code, signal, 0)
    assert (end.start, end.end, end.node) == (job.start, job.end, job.node)
    assert end.end is not None
    assert end.source == "slurmctld"


@pytest.mark.parametrize(("kind", "state", "code"), [(Kind.COMPLETED, "COMPLETED", 0), (Kind.FAILED, "FAILED", 3)])
def test_an_end_that_only_the_job_completion_file_tells_of(world: World, kind: Kind, state: str, code: int) -> None:
    job = look(world, world.job(kind))
    end = world.client.finished(job.number, uid=world.uid, name=job.name, since=LONG_AGO)
    assert end is not None
    assert (end.state, end.exit_code, end.signal, end.source) == (state, code, 0, "jobcomp")
    assert world.client.finished(job.number, uid=world.uid, name="another", since=LONG_AGO) is None


@pytest.mark.parametrize(
    "name",
    [
        "dino/lr3e-4",
        "with blank, \"quotes\" and 'those'",
        "a=b|c State=RUNNING",
        "two\nlines\tand a tab",
        "\x1e\x1f%i",
        "Größe 模型",
        "caf\udce9 \udcff",
        "None",
        "x" * 300,
    ],
)
def test_any_name_and_any_comment(world: World, name: str) -> None:
    job = look(world, world.named(name, f"gpuq:1:2:{name}"))
    assert (job.name, job.comment) == (name, f"gpuq:1:2:{name}")


def test_a_job_without_a_comment(world: World) -> None:
    assert look(world, world.job(Kind.HELD)).comment == ""


def test_the_jobs_of_one_user_and_those_of_all(world: World) -> None:
    foreign, mine = world.job(Kind.FOREIGN), world.job(Kind.HELD)
    job = look(world, foreign)
    assert (job.user, job.uid != world.uid) == ("nobody", True)
    for ended in (False, True):
        all_of_them = {one.number for one in world.client.jobs(ended=ended)}
        assert {foreign, mine} <= all_of_them
        assert {one.uid for one in world.client.jobs(uid=world.uid, ended=ended)} == {world.uid}
        assert {one.number for one in world.client.jobs(uid=job.uid, ended=ended)} == {foreign}
    assert world.client.jobs(uid=54321) == []


@pytest.mark.parametrize("number", [999_999, 2**40])
def test_an_id_that_slurm_does_not_know(world: World, number: int) -> None:
    assert world.client.job(number) is None
    assert world.client.finished(number, uid=world.uid, name="x", since=LONG_AGO) is None


def test_what_there_is_to_ask_for(world: World) -> None:
    partitions, nodes = world.client.offer()
    assert [(one.name, one.default, one.state) for one in partitions][:1] == [("gpu", True, "UP")]
    assert ("gpu", 1) in [(one.partition, one.gpus) for one in nodes]
    assert nodes[0].memory > 0
    assert nodes[0].cpus > 0


@pytest.mark.slurm_options(extra=("MessageTimeout=2",))
def test_a_controller_that_is_gone_is_never_an_empty_queue(world: World) -> None:
    job = look(world, world.job(Kind.CANCELLED))
    world.lose_controller()
    questions: list[Callable[[], object]] = [
        world.client.jobs,
        lambda: world.client.jobs(uid=world.uid, ended=True),
        lambda: world.client.job(job.number),
        lambda: world.client.job(999_999),
        lambda: world.client.end_of(job),
        world.client.offer,
    ]
    for ask in questions:
        # the latter: the connection broke off in the middle of an answer
        with pytest.raises(SlurmUnreachable, match=r"does not answer|gave no answer"):
            ask()
