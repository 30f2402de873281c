"""gpuq's client over the recorded answers of every release: what is known of the recorded jobs is what it says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuq.adapters.slurm import jobcomp
from gpuq.adapters.slurm.client import SlurmCommands
from gpuq.core.job import Job, Phase
from gpuq.core.units import MIB
from gpuq.errors import ChangeRefused, SlurmUnreachable, SubmissionRefused
from tests import DATA
from tests.recording import BEGIN, ENDED, INDEX, PLACE, Fact, Recorded

PLACES = sorted(path.parent for path in (DATA / "slurm").glob(f"*/answers/{INDEX}"))
WELL = "all is well"


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The job completion log has local times, and was recorded in UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(params=PLACES, ids=lambda place: place.parent.name)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    """One release."""
    place: Path = request.param
    return Recorded(place)


def rows(recorded: Recorded) -> dict[str, Job]:
    """Every recorded job by its id."""
    with recorded.client(WELL) as slurm:
        return {job.id: job for job in slurm.jobs(ended=True)}


def fact_of(recorded: Recorded, what: str) -> Fact:
    return next(fact for fact in recorded.index.facts if fact.what == what)


def number_of(recorded: Recorded, what: str) -> int:
    return rows(recorded)[fact_of(recorded, what).id].number


def test_every_release_that_can_be_installed_is_recorded() -> None:
    assert [place.parent.name for place in PLACES] == ["22.05", "24.11", "26.05"]


def test_a_recording_tells_nothing_of_where_it_was_made(recorded: Recorded) -> None:
    assert recorded.index.version == recorded.place.parent.name
    names = {INDEX, ENDED} | {call.file for call in recorded.index.calls if call.file}
    total = 0
    for name in names:
        data = (recorded.place / name).read_bytes()
        total += len(data)
        for word in (b"/tmp/", b"/root/", b"/home/", b"/out/", b"/src/"):
            assert word not in data, (name, word)
    assert total < 200_000


def test_the_queue(recorded: Recorded) -> None:
    jobs = rows(recorded)
    assert sorted(jobs) == sorted(fact.id for fact in recorded.index.facts)
    for fact in recorded.index.facts:
        job = jobs[fact.id]
        assert (job.name, job.state, job.phase, job.user) == (fact.name, fact.state, fact.phase, fact.user), fact
        if "--gpus=1" not in fact.what:
            assert job.has_gpu == bool(fact.gpus), fact
        assert (job.comment, job.dependency) == (fact.comment, fact.dependency), fact
        assert not fact.reason or job.reason in fact.reason, fact
        assert job.number == int(fact.id.split("_")[0].split("+")[0])
        assert job.memory in {60 * MIB, 100 * MIB}
        assert job.workdir in {PLACE, "/"}
        assert job.submit is not None
        assert job.submit.timestamp() == BEGIN
        assert bool(job.node) == (job.phase is Phase.RUNNING or (job.phase is Phase.ENDED and job.priority != 0))


def test_special_requests(recorded: Recorded) -> None:
    jobs = {fact.what: rows(recorded)[fact.id] for fact in recorded.index.facts}
    assert jobs["nice, with a signal"].nice == 50
    assert jobs["longer than the partition allows"].time_limit == 9 * 3600
    later = jobs["begins tomorrow"].start
    assert later is not None
    assert later.timestamp() >= BEGIN + 86400
    assert jobs["held"].priority == 0
    assert jobs["an array"].reason == "JobHeldUser"
    assert not jobs["an array"].whole
    assert jobs["held"].whole


def test_the_queue_of_one_user(recorded: Recorded) -> None:
    with recorded.client(WELL) as slurm:
        everybody, mine = slurm.jobs(), slurm.jobs(uid=0)
        theirs = slurm.jobs(uid=fact_uid(recorded), ended=True)
        assert slurm.jobs(uid=54321) == []  # a user without a name
    assert Phase.ENDED not in {job.phase for job in everybody}
    assert {job.id for job in everybody} == {job.id for job in mine} | {job.id for job in theirs}
    assert {job.user for job in mine} == {"root"}
    assert [job.name for job in theirs] == ["theirs"]


def fact_uid(recorded: Recorded) -> int:
    return rows(recorded)[fact_of(recorded, "another user's").id].uid


def test_one_job(recorded: Recorded) -> None:
    jobs = rows(recorded)
    with recorded.client(WELL) as slurm:
        assert slurm.job(999999) is None
        for job in jobs.values():
            found = slurm.job(job.number)
            assert found is not None
            if job.whole:
                assert found == job
            else:
                assert found.number == job.number
            if not job.whole and "[" not in job.id:
                assert slurm.job(job.number, part=job.id) == job


def test_what_stands_for_all_parts_of_a_job(recorded: Recorded) -> None:
    with recorded.client(WELL) as slurm:
        running = slurm.job(number_of(recorded, "the tasks of an array that wait"))
        failed = slurm.job(number_of(recorded, "a task that ended well"))
    assert running is not None
    assert running.phase is Phase.RUNNING
    assert failed is not None
    assert failed.state == "FAILED"


def test_the_ends(recorded: Recorded) -> None:
    jobs = rows(recorded)
    ended = [fact for fact in recorded.index.facts if fact.exit_code is not None]
    assert {"FAILED", "COMPLETED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY"} <= {fact.state for fact in ended}
    with recorded.client(WELL) as slurm:
        for fact in ended:
            end = slurm.end_of(jobs[fact.id])
            assert (end.state, end.exit_code, end.signal) == (fact.state, fact.exit_code, fact.signal), fact
            assert end.restarts == fact.restarts
            assert end.start is not None
            assert end.end is not None


def test_the_ends_in_the_job_completion_log(recorded: Recorded) -> None:
    jobs = rows(recorded)
    with recorded.client(WELL) as slurm:
        for fact in recorded.index.facts:
            job = jobs[fact.id]
            if not job.whole:
                continue
            assert job.submit is not None
            if fact.exit_code is None:  # a requeued one has a line, too
                path = recorded.place / ENDED
                assert jobcomp.last_end(path, job.number, uid=job.uid, name=job.name, since=job.submit) is None
                continue
            end = slurm.finished(job.number, uid=job.uid, name=job.name, since=job.submit)
            assert end is not None, fact
            assert (end.state, end.exit_code, end.source) == (fact.state, fact.exit_code, "jobcomp"), fact
            # what Slurm itself ended is written down before its processes are gone
            assert end.signal == fact.signal or (end.signal == 0 and end.state in {"CANCELLED", "TIMEOUT"})


def test_partition_node_and_cluster(recorded: Recorded) -> None:
    with recorded.client(WELL) as slurm:
        (partition,), (node,) = slurm.offer()
        assert slurm.cluster() == "node1"
    assert (partition.name, partition.default, partition.max_time) == ("gpu", True, 8 * 3600)
    assert (partition.default_time, partition.max_cpus_per_node, partition.max_memory_per_node) == (None, None, None)
    assert partition.state == "UP"
    assert (node.name, node.partition, node.cpus, node.memory, node.gpus) == ("node1", "gpu", 16, 16000 * MIB, 1)
    assert (node.state, node.reason) == ("mixed", "")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--mem=100000000", "no node of the partition has"),
        ("--gres=gpu:2", "no node of the partition has what is asked for"),
        ("--gres=foo:1", "this node offers no gres/gpu"),
        ("--partition=nope", "there is no such partition"),
        ("--time=soon", "Invalid --time specification"),
        ("--time=30-0", "above what the partition allows"),
        ("--constraint=none", "Invalid feature specification"),
        ("--dependency=after", "Job dependency problem"),
    ],
)
def test_refused_submissions(recorded: Recorded, option: str, words: str) -> None:
    with recorded.client(WELL) as slurm, pytest.raises(SubmissionRefused, match=words):
        slurm.submit(["--parsable", option, "--wrap=true"], {})


def test_a_dependency_on_an_unknown_job_is_taken_by_22_05_only(recorded: Recorded) -> None:
    argv = ["--parsable", "--dependency=afterok:999999", "--wrap=true"]
    with recorded.client(WELL) as slurm:
        if recorded.index.version == "22.05":
            assert slurm.submit(argv, {}).cluster is None
        else:
            with pytest.raises(SubmissionRefused, match="is not known to Slurm"):
                slurm.submit(argv, {})


def test_refused_changes(recorded: Recorded) -> None:
    running = number_of(recorded, "runs with a name full of specials")
    held, ended = number_of(recorded, "held"), number_of(recorded, "completed, CPU only")
    with recorded.client(WELL) as slurm:
        slurm.cancel(ended)  # no error to scancel
        slurm.cancel(999999)
        refused: list[Callable[[], None]] = [
            lambda: slurm.update(running, {"MinMemoryNode": "50"}),
            lambda: slurm.update(held, {"MinMemoryNode": "28G"}),
            lambda: slurm.update(999999, {"Nice": "5"}),
            lambda: slurm.hold(ended),
            lambda: slurm.release(999999),
        ]
        for change in refused:
            with pytest.raises(ChangeRefused, match=r"Slurm will not (change|hold|release) job \d+: \w+"):
                change()


def test_another_users_job_is_another_users(recorded: Recorded) -> None:
    job = number_of(recorded, "held")
    mine = number_of(recorded, "another user's")
    with recorded.client("as nobody") as slurm:
        refused: list[Callable[[], None]] = [
            lambda: slurm.cancel(job),
            lambda: slurm.hold(job),
            lambda: slurm.release(job),
            lambda: slurm.top(job),
            lambda: slurm.update(job, {"Nice": "-5"}),
            lambda: slurm.update(mine, {"Nice": "-5"}),
        ]
        for change in refused:
            with pytest.raises(ChangeRefused) as caught:
                change()
            assert "only root or a Slurm operator" in caught.value.hint


def test_a_dead_controller_is_unreachable_and_nothing_else(recorded: Recorded) -> None:
    job = number_of(recorded, "held")
    with recorded.client("controller down") as slurm:
        for ask in questions(slurm, job):
            with pytest.raises(SlurmUnreachable) as caught:
                ask()
            assert "does not answer" in caught.value.message


def questions(slurm: SlurmCommands, job: int) -> list[Callable[[], object]]:
    """Everything that is asked of a dead controller."""
    return [
        slurm.jobs,
        lambda: slurm.job(job),
        slurm.offer,
        slurm.cluster,
        lambda: slurm.cancel(job),
        lambda: slurm.submit(["--parsable", "--wrap=true"], {}),
    ]


def test_a_question_that_was_not_recorded_says_how_to_record_it(recorded: Recorded) -> None:
    with recorded.client(WELL) as slurm, pytest.raises(KeyError, match=r"record-slurm\.sh"):
        slurm.job(123456)
