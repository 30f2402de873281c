"""`gpuq mem -f`, on a cgroup tree that the test writes and a Slurm that it plays."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gpuq.adapters.slurm import thishost
from gpuq.core.job import Job
from gpuq.errors import SlurmUnreachable
from gpuq.usecases.memory.follow import ASK, Follower
from gpuq.usecases.memory.sample import Roots
from tests.test_sampler import MIB, Stage


class Played:
    """A Slurm with one job. `job` None: it knows of none; `down`: it does not answer."""

    def __init__(self, job: Job) -> None:
        self.row: Job | None = job
        self.down = False
        self.asked: list[str] = []

    def job(self, number: int, *, part: str = "") -> Job | None:
        self.asked.append(part or str(number))
        if self.down:
            raise SlurmUnreachable("no answer")
        return self.row


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(thishost, "listpids", lambda *_: {})
    return Stage(tmp_path)


def follow(stage: Stage, job: Job) -> tuple[Follower, Played]:
    slurm = Played(job)
    fake: Any = SimpleNamespace(job=slurm.job, cluster=lambda: "", jobs=lambda **_: [])
    ctx = msgspec.structs.replace(stage.ctx, slurm=fake)
    return Follower(ctx, job.id, roots=Roots(cgroup=stage.root / "cgroup", proc=stage.root)), slurm


def test_slurm_is_asked_now_and_then_and_when_the_cgroup_is_gone(stage: Stage) -> None:
    foreign = msgspec.structs.replace(stage.job, comment="", name="theirs")
    stage.holds(20 * MIB)
    following, slurm = follow(stage, foreign)
    before = len(slurm.asked)
    for size in (20, 70, 30):
        stage.holds(size * MIB)
        assert following.look().held == size * MIB
        stage.clock.seconds += 1
    assert len(slurm.asked) == before + 1
    stage.clock.seconds += ASK
    slurm.down = True
    assert following.look().held == 30 * MIB, "a Slurm that does not answer is no reason to look away"
    slurm.down = False
    stage.clock.seconds += 1
    shutil.rmtree(stage.place)
    slurm.row = msgspec.structs.replace(foreign, state="COMPLETED")
    last = following.look()
    assert (last.running, last.state, last.now) == (False, "COMPLETED", None)
    assert last.summary
    assert (last.summary.held, last.summary.source) == (70 * MIB, "mem")
    assert not any("nobody looked" in note for note in last.notes)


def test_a_slurm_that_does_not_answer_when_nothing_else_is_seen(stage: Stage) -> None:
    following, slurm = follow(stage, msgspec.structs.replace(stage.job, comment=""))
    slurm.down = True
    with pytest.raises(SlurmUnreachable):
        following.look()


def test_a_task_of_an_array_is_followed_and_no_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thishost, "parts", lambda *_: {"12_3": 14, "12_4": 12})
    stage.holds(80 * MIB)
    stage.place.rename(stage.place.with_name("job_14"))
    stage.holds(20 * MIB)
    following, slurm = follow(stage, msgspec.structs.replace(stage.job, id="12_3", comment=""))
    assert following.look().held == 80 * MIB
    assert set(slurm.asked) == {"12_3"}
