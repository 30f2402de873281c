"""The mapping from PySlurm's jobs to gpuq's, over what real ones were recorded to be; and what PySlurm gets wrong."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuq.adapters.slurm.locate import Location, Source
from gpuq.adapters.slurm.pyslurm import PySlurm, Unclear, to_job
from gpuq.core.job import Job, Phase
from gpuq.core.units import MIB
from gpuq.errors import SlurmAnswerError, SlurmUnreachable
from tests.contract.replay import Replay
from tests.contract.standin import NoSuchAttribute, RPCError, StandIn

DEPENDENCY: dict[str, Any] = {
    "after": [], "afterany": [], "afterburstbuffer": [], "aftercorr": [], "afternotok": [], "afterok": [],
    "singleton": False, "satisfy": "all",
}  # fmt: skip


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    monkeypatch.setitem(sys.modules, "pyslurm", made)
    return made


@pytest.fixture
def replay(tmp_path: Path) -> Replay:
    return Replay(tmp_path / "replay")


@pytest.fixture
def client(library: StandIn, replay: Replay) -> PySlurm:
    return PySlurm(Location(Source.ENVIRONMENT, None), {**os.environ, "PATH": replay.path})


def mapped(library: StandIn, number: int, **changes: Any) -> Job:
    return to_job(library.raw(number, **changes), {})


def test_the_stand_in_has_what_real_jobs_have_and_nothing_else(library: StandIn) -> None:
    assert library.raw(6).name == 'dino/lr=3e-4 "q" a=b|c'
    for name in ("job_id", "jobid", "tres_alloc_str"):
        with pytest.raises(NoSuchAttribute, match="has no attribute"):
            getattr(library.raw(6), name)
    with pytest.raises(NoSuchAttribute, match="was not recorded"):
        _ = library.raw(6).allocated_tres
    with pytest.raises(NoSuchAttribute):
        _ = library.load_jobs


def test_what_pyslurm_reads_is_what_squeue_printed(library: StandIn, client: PySlurm, replay: Replay) -> None:
    """For every job that both were recorded for, in every field."""
    read = {job.number: job for job in client.jobs(ended=True)}
    assert replay.squeues == 0
    printed = {job.number: job for job in super(PySlurm, client).jobs(ended=True)}
    assert set(read) - set(printed) == {20}  # it was gone when squeue's turn came
    assert len(printed) == 18
    for number, job in printed.items():
        for field in Job.__struct_fields__:
            mine, theirs = getattr(read[number], field), getattr(job, field)
            if field == "reason":  # scontrol, which the ended ones come from, writes blanks as underscores
                mine = mine.replace(" ", "_")
            assert mine == theirs, (number, field)


def test_what_pyslurm_reads_rightly_takes_no_process(client: PySlurm, replay: Replay) -> None:
    assert len(client.jobs()) == 12
    assert len(client.jobs(uid=0, ended=True)) == 19
    assert client.jobs(uid=1) == []
    for number, signal in ((1, 0), (3, 125), (4, 11), (20, 1)):
        job = client.job(number)
        assert job is not None
        assert client.end_of(job).signal == signal
    assert replay.squeues == 0


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"state_reason": None}, "reason", ""),
        ({"state_reason": "RaisedSignal:9(Killed)"}, "reason", "RaisedSignal:9(Killed)"),
        ({"time_limit": None}, "time_limit", None),
        ({"time_limit": 1}, "time_limit", 60),
        ({"run_time": 2**64 - 5}, "elapsed", 0),
        ({"run_time": None}, "elapsed", 0),
        ({"memory_per_node": None, "memory_per_cpu": 300}, "memory", 300 * MIB),
        ({"memory_per_node": None}, "memory", None),
        ({"memory_per_node": "UNLIMITED"}, "memory", None),
        ({"priority": "UNLIMITED"}, "priority", 4294967295),
        ({"nice": None}, "nice", 0),
        ({"name": None}, "name", ""),
        ({"user_name": None, "user_id": 77}, "user", "77"),
        ({"submit_time": None}, "submit", None),
        ({"gres_per_node": {"gres/gpu:a100": 2, "gres/shard": 4}}, "gres", "gres/gpu:a100:2,gres/shard:4"),
        ({"state": "COMPLETING"}, "phase", Phase.ENDING),
        ({"state": "SUSPENDED"}, "phase", Phase.RUNNING),
        ({"state": "REQUEUE_HOLD"}, "phase", Phase.WAITING),
    ],
)
def test_pyslurms_ways_to_give_a_value(library: StandIn, changes: dict[str, Any], field: str, value: object) -> None:
    assert getattr(mapped(library, 6, **changes), field) == value


@pytest.mark.parametrize(
    ("changes", "shown", "number"),
    [
        ({}, "15_[1-3%1]", 15),
        ({"array_tasks_parallel": None}, "15_[1-3]", 15),
        ({"array_tasks_waiting": "0"}, "15_[0%1]", 15),
        ({"array_tasks_waiting": None, "array_task_id": 3, "id": 21}, "15_3", 15),
        ({"array_tasks_waiting": None, "id": 22}, "15_0", 15),
        ({"array_id": None, "array_tasks_waiting": None, "heterogeneous_id": 30, "id": 30}, "30+0", 30),
        (
            {
                "array_id": None,
                "array_tasks_waiting": None,
                "heterogeneous_id": 30,
                "heterogeneous_offset": 1,
                "id": 31,
            },
            "30+1",
            30,
        ),
    ],
)
def test_arrays_and_heterogeneous_jobs(library: StandIn, changes: dict[str, Any], shown: str, number: int) -> None:
    job = mapped(library, 15, **changes)
    assert (job.id, job.number) == (shown, number)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"afterok": ["5(failed)", "6(unfulfilled)"]}, "afterok:5(failed),afterok:6(unfulfilled)"),
        ({"afterany": [6], "satisfy": "any", "afterok": ["7_1(unfulfilled)"]}, "afterany:6?afterok:7_1(unfulfilled)"),
        ({"after": ["6+10(unfulfilled)"]}, "after:6+10(unfulfilled)"),
        ({"singleton": True}, "singleton"),
    ],
)
def test_dependencies_are_told_in_squeues_words(library: StandIn, found: dict[str, Any], words: str) -> None:
    assert mapped(library, 8, dependencies=DEPENDENCY | found).dependency == words


UNCLEAR: list[dict[str, Any]] = [
    {"name": b"caf\xe9"},
    {"comment": b"\xff"},
    {"working_directory": b"/\xff"},
    {"gres_per_node": {"gres/gpu": 3090}},
    {"gres_per_node": {"gres/gpu": {"count": 1, "indexes": "0"}}},
    {"gres_per_node": {}, "submit_line": "sbatch --gres=gpu:a100 x.sh"},
    {"gres_per_node": {}, "submit_line": "sbatch --gpus-per-node=a100 x.sh"},
    {"dependencies": DEPENDENCY},
    {"state": "DANCING"},
    {"time_limit": {}},
    {"submit_time": 1e30},
]


@pytest.mark.parametrize("changes", UNCLEAR)
def test_where_pyslurm_loses_something_squeue_is_asked(
    library: StandIn, client: PySlurm, replay: Replay, changes: dict[str, Any]
) -> None:
    with pytest.raises((Unclear, ValueError, TypeError, OverflowError)):
        mapped(library, 6, **changes)
    library.jobs[6] |= changes
    jobs = {job.number: job for job in client.jobs()}
    assert jobs[6].name == 'dino/lr=3e-4 "q" a=b|c'
    assert len(jobs) == 12
    assert replay.squeues == 1
    assert client.job(6) == jobs[6]
    assert replay.squeues == 2


def test_what_is_unclear_about_another_users_job_is_nobodys_business(
    library: StandIn, client: PySlurm, replay: Replay
) -> None:
    library.jobs[6] |= {"user_id": 1000, "name": b"\xff"}
    assert 6 not in {job.number for job in client.jobs(uid=0)}
    assert replay.squeues == 0


def test_an_array_is_asked_of_squeue_because_pyslurm_gives_one_record(client: PySlurm, replay: Replay) -> None:
    job = client.job(15)
    assert job is not None
    assert job.id == "15_[1-3%1]"
    assert replay.squeues == 1


@pytest.mark.parametrize("code", [3, 72, 0])
def test_an_exit_code_that_may_be_128_more_is_asked_of_squeue(
    library: StandIn, client: PySlurm, replay: Replay, code: int
) -> None:
    library.jobs[5]["exit_code"] = code
    replay.jobs["5"]["exit_code"] = f"{code + 128}:0"
    replay.save()
    job = client.job(5)
    assert job is not None
    assert client.end_of(job).exit_code == code + 128
    assert replay.squeues == 1


def test_an_id_that_pyslurm_does_not_know_is_gone_only_when_squeue_says_so(
    library: StandIn, client: PySlurm, replay: Replay
) -> None:
    assert client.job(99) is None
    assert replay.squeues == 1
    del library.jobs[6]
    job = client.job(6)
    assert job is not None
    assert replay.squeues == 2


AWAY = [
    "Unable to contact slurm controller (connect failure)",
    "Socket timed out on send/recv operation",
    "Message receive failure",
    "Protocol authentication error",
]


@pytest.mark.parametrize("words", AWAY)
def test_a_controller_that_hangs_or_is_dead_is_unreachable(library: StandIn, client: PySlurm, words: str) -> None:
    job = client.job(1)
    assert job is not None
    library.error = RPCError(1853, words)
    for ask in (client.jobs, lambda: client.jobs(uid=0, ended=True), lambda: client.job(1), lambda: client.end_of(job)):
        with pytest.raises(SlurmUnreachable, match=words.split("(")[0].strip()):
            ask()


def test_a_failure_that_nobody_has_seen_before_is_no_answer(library: StandIn, client: PySlurm) -> None:
    library.error = RPCError(-1, "Unspecified error")
    for ask in (client.jobs, lambda: client.job(1)):
        with pytest.raises(SlurmAnswerError, match="Unspecified error"):
            ask()


@pytest.mark.parametrize(
    "words", ["Zero Bytes were transmitted or received", "Incompatible versions of client and server code"]
)
def test_a_controller_of_another_release_is_asked_through_squeue(
    library: StandIn, client: PySlurm, replay: Replay, words: str
) -> None:
    library.error = RPCError(1006, words)
    assert len(client.jobs()) == 12
    job = client.job(5)
    assert job is not None
    assert client.end_of(job).exit_code == 3
    assert replay.squeues == 3


def test_parts_are_asked_of_squeue(client: PySlurm, replay: Replay) -> None:
    assert client.job(15, part="15_[1-3%1]") is not None
    assert replay.squeues == 1


def test_the_library_is_told_which_slurm_and_leaves_no_trace_in_later_imports(
    library: StandIn, replay: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", "/nowhere")
    flags = sys.getdlopenflags()
    conf = tmp_path / "slurm.conf"
    PySlurm(Location(Source.EMBEDDED, conf), {"PATH": replay.path}).jobs()
    assert os.environ["SLURM_CONF"] == str(conf)
    assert sys.getdlopenflags() == flags
