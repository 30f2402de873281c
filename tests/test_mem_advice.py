"""What is made of the advice: `--mem auto`, the bound of the node, the table, and what a person reads of it."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gpuq.adapters.clock import SystemClock
from gpuq.adapters.configfiles import Project
from gpuq.adapters.ledger import Ledger
from gpuq.adapters.machine import caller
from gpuq.cli.mem import _advise_all, _tell_advice
from gpuq.core.attempt import Ended, Outcome, Record, Request
from gpuq.core.config import Settings
from gpuq.core.job import Node, Partition
from gpuq.core.memory.values import MemorySummary
from gpuq.core.units import GIB
from gpuq.errors import NotFound
from gpuq.usecases.context import Context
from gpuq.usecases.memory.report import advise, advise_all, auto_memory, auto_size, view
from gpuq.usecases.memory.retry import Planned, planned

START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
END = START + datetime.timedelta(hours=8)
NODE = 62 * GIB


def offer() -> tuple[list[Partition], list[Node]]:
    """A workstation as gpuq sets it up."""
    gpu: dict[str, Any] = {"max_time": None, "default_time": None, "state": "UP"}
    share: dict[str, Any] = {"max_cpus_per_node": 12, "max_memory_per_node": 24 * GIB, "max_memory_per_cpu": 2 * GIB}
    partitions = [
        Partition(name="gpu", default=True, max_cpus_per_node=None, max_memory_per_node=None, **gpu),
        Partition(name="cpu", default=False, **share, **gpu),
    ]
    nodes = [
        Node(name="ws", partition=one.name, cpus=20, memory=NODE, gres="gpu:1", state="idle", reason="")
        for one in partitions
    ]
    return partitions, nodes


class Stage:
    """A project with one run, whose attempts the test writes."""

    def __init__(self, root: Path) -> None:
        runs = root / "runs"
        (runs / "a/slurm").mkdir(parents=True)
        self.said: list[str] = []
        slurm: Any = SimpleNamespace(offer=offer, jobs=lambda **_: [], job=lambda *_, **__: None)
        self.ctx = Context(
            slurm=slurm,
            ledger=Ledger(runs),
            project=Project(root, runs, Settings(), Settings()),
            caller=caller(),
            clock=SystemClock(),
            environment={"PATH": "/nonexistent", "XDG_STATE_HOME": str(root)},
            controller="c",
            system_wide=True,
            say=self.said.append,
        )

    def attempt(
        self,
        number: int,
        held: float | None,
        outcome: Outcome = Outcome.SUCCEEDED,
        *,
        asked: float = 28,
        gpu: bool = True,
        tag: str = "a",
    ) -> Record:
        (self.ctx.ledger.root / tag / "slurm").mkdir(parents=True, exist_ok=True)
        size = None if held is None else int(held * GIB)
        limit = int(asked * GIB)
        seen = MemorySummary(held=size, anon=size, shmem=0, peak=size, limit=limit, looks=9, since=START, until=END)
        record = Record(
            tag=tag,
            attempt=number,
            token=f"{number:016x}",
            request=Request(cpus=8, memory=limit, gpu=gpu),
            argv=(),
            script="",
            script_sha256="",
            log=f"{self.ctx.ledger.root}/{tag}/slurm/attempt{number}.out",
            project="",
            user="me",
            uid=self.ctx.caller.uid,
            host="h",
            reserved=START,
            job_id=number,
            ended=Ended(outcome=outcome, state="COMPLETED", start=START, end=END),
            memory=None if held is None else seen,
        )
        self.ctx.ledger.save(record)
        return record


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_auto_takes_the_advice_and_says_of_which_run(stage: Stage) -> None:
    for number in (1, 2, 3):
        stage.attempt(number, 4)
    assert auto_size(stage.ctx, "a", 28 * GIB, NODE) == 5 * GIB
    assert stage.said[-1].startswith("note: a: --mem auto: 5G (the highest of anon + shmem, 4G")
    assert auto_memory(stage.ctx, "a") == 5 * GIB


def test_auto_never_asks_for_more_than_a_node_has(stage: Stage) -> None:
    for number in (1, 2, 3):
        stage.attempt(number, 58, asked=62)
    assert auto_size(stage.ctx, "a", None, NODE) == NODE
    assert "no node gives more than 62G" in stage.said[-1]
    assert auto_memory(stage.ctx, "a") == NODE
    sized = advise(stage.ctx, "a")
    assert sized.advice.memory == NODE
    assert sized.advice.reasons[-1] == "67G would be wanted, and no node gives more than 62G"


def test_auto_with_too_little_evidence_is_not_what_was_killed_already(stage: Stage) -> None:
    stage.attempt(1, 4)
    assert auto_size(stage.ctx, "a", 28 * GIB, NODE) is None
    assert stage.said[-1].endswith("1 of 3 attempts that it takes were seen to a successful end; as without it")
    stage.attempt(2, None, Outcome.OUT_OF_MEMORY, asked=8)
    assert auto_size(stage.ctx, "a", 28 * GIB, NODE) is None, "what would be asked for is enough"
    assert auto_size(stage.ctx, "a", 8 * GIB, NODE) == 12 * GIB
    assert stage.said[-1].endswith("; 12G, because an attempt was killed at less")
    assert auto_size(stage.ctx, "a", 8 * GIB, 10 * GIB) == 10 * GIB, "the node has no more"
    assert auto_size(stage.ctx, "a", None, NODE) is None


def test_what_a_kill_says_is_said_without_evidence_for_more(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.attempt(1, None, Outcome.OUT_OF_MEMORY, asked=8)
    _tell_advice(advise(stage.ctx, "a"), given=False)
    out = capsys.readouterr().out
    assert "too little evidence: 0 of 3" in out
    assert "less than 12G is known to be too little: attempt 1 was killed at 8G" in out
    assert "gpuq mem --advise a --anyway" in out
    _tell_advice(advise(stage.ctx, "a"), given=True)
    assert capsys.readouterr().out.startswith("a: --mem 12G [too little evidence")


def test_after_a_kill_that_nobody_saw_the_next_size_is_offered(stage: Stage) -> None:
    stage.attempt(1, None, Outcome.OUT_OF_MEMORY, asked=8)
    seen = view(stage.ctx, "a")
    assert seen.advice == "gpuq resubmit a --mem 12G"
    stage.attempt(2, None, Outcome.FAILED, asked=8)
    assert view(stage.ctx, "a").advice == "", "nothing is known of it"


def test_what_fits_beside_it_is_what_partition_cpu_gives(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2, 3):
        stage.attempt(number, 16, asked=40)
    sized = advise(stage.ctx, "a")
    assert sized.advice.memory == 19 * GIB
    fits = {one.memory // GIB: one.count for one in sized.beside}
    assert fits == {1: 12, 2: 12, 4: 6, 8: 3, 16: 1, 32: 0}
    assert {one.memory // GIB: one.count for one in sized.beside_now}[16] == 1
    _tell_advice(sized, given=True)
    out = capsys.readouterr().out
    assert "partition cpu gives them 12 CPUs together, with 2G each" in out
    for number in (4, 5, 6):
        stage.attempt(number, 16, asked=24, gpu=False)
    assert advise(stage.ctx, "a").node == "", "a CPU-only run has no GPU job beside which others fit"


def test_another_partition_than_there_is_any_more(stage: Stage) -> None:
    for number in (1, 2, 3):
        record = stage.attempt(number, 4)
        stage.ctx.ledger.save(
            msgspec.structs.replace(record, request=msgspec.structs.replace(record.request, partition="gone"))
        )
    assert advise(stage.ctx, "a").advice.memory == 5 * GIB


def test_every_run_at_once(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert advise_all(stage.ctx) == []
    _advise_all(stage.ctx, anyway=False, as_json=False)
    assert "Of no run's memory anything is known: gpuq watch" in capsys.readouterr().out
    for number in (1, 2, 3):
        stage.attempt(number, 4)
    stage.attempt(1, 2, tag="b/c")
    stage.attempt(1, None, tag="unseen")
    stage.attempt(1, None, Outcome.OUT_OF_MEMORY, tag="killed", asked=8)
    assert [one.tag for one in advise_all(stage.ctx)] == ["a", "b/c", "killed"]
    _advise_all(stage.ctx, anyway=False, as_json=False)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "TAG HELD MOST ASKED FOR SEEN TO ITS END --mem",
        "a 4G 28G 3 of 3 5G",
        "b/c 2G 28G 1 of 3 too little evidence",
        "killed not told 8G 0 of 3 too little evidence, not below 12G",
    ]
    _advise_all(stage.ctx, anyway=True, as_json=False)
    assert capsys.readouterr().out.splitlines()[2].endswith("2.5G")
    _advise_all(stage.ctx, anyway=False, as_json=True)
    assert [one["tag"] for one in json.loads(capsys.readouterr().out)["runs"]] == ["a", "b/c", "killed"]


def test_a_job_id_means_its_run(stage: Stage) -> None:
    stage.attempt(7, 4)
    assert advise(stage.ctx, "7").tag == "a"
    with pytest.raises(NotFound):
        advise(stage.ctx, "8")


def test_a_retry_is_bounded_by_the_node_and_by_its_number(stage: Stage) -> None:
    (stage.ctx.ledger.root / "a/run.toml").write_text("[retry]\noom = 2\n")

    def killed(number: int, asked: float, key: str | None = None) -> Record:
        record = stage.attempt(number, None, Outcome.OUT_OF_MEMORY, asked=asked)
        record = msgspec.structs.replace(record, key=key)
        stage.ctx.ledger.save(record)
        return record

    first = killed(1, 50)
    assert planned(stage.ctx, first) == Planned(2, NODE, False), "no more than the node has"
    second = killed(2, 62, "gpuq-retry-oom-1")
    assert planned(stage.ctx, first) == Planned(2, NODE, True), "once"
    assert planned(stage.ctx, second, say=True) is None
    assert stage.said == ["note: a attempt 2 had all the memory that a node has (62G); it is not tried again"]
    smaller = killed(3, 8)
    assert planned(stage.ctx, smaller, say=True) is None, "all of it was too little already"
    assert "a before a attempt 3 had all" in stage.said[-1]

    stage.attempt(4, 20)
    killed(5, 8)
    killed(6, 12, "gpuq-retry-oom-5")
    third = killed(7, 18, "gpuq-retry-oom-6")
    assert planned(stage.ctx, third) is None, "oom = 2 are two more"
    (stage.ctx.ledger.root / "a/run.toml").write_text("[retry]\noom = 3\n")
    assert planned(stage.ctx, third) == Planned(8, 27 * GIB, False)
    (stage.ctx.ledger.root / "a/run.toml").unlink()
    assert planned(stage.ctx, third) is None, "nobody wants it"
