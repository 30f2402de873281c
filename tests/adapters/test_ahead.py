"""Questions that Slurm is asked before anybody needs the answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuq.adapters.slurm.ahead import Asked, AskedOffer, AskedQueue
from gpuq.adapters.slurm.client import SlurmCommands
from gpuq.adapters.slurm.locate import Location, Source
from gpuq.adapters.slurm.pyslurm import PySlurm
from gpuq.errors import SlurmUnreachable
from tests import DATA
from tests.fake_slurm import FakeSlurm

HERE = Location(Source.ENVIRONMENT, None)


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path / "fake", (DATA / "slurm/25.11/scontrol-show-partition.txt").read_text())


@pytest.fixture
def env(fake: FakeSlurm) -> dict[str, str]:
    return {**os.environ, "PATH": fake.path}


def is_over(asked: Asked) -> bool:
    """True when every program that was started has been waited for."""
    return all(not Path(f"/proc/{running._process.pid}").exists() for running in asked.running)


def test_an_answer_that_was_asked_for_ahead_is_the_first_answer_and_no_other(
    fake: FakeSlurm, env: dict[str, str]
) -> None:
    client = SlurmCommands(HERE, env, ahead=AskedQueue(HERE, env, uid=0))
    assert client.jobs(uid=0, ended=True) == []
    assert len(fake.calls("squeue")) == 1
    assert client.jobs(uid=0, ended=True) == []
    assert len(fake.calls("squeue")) == 2
    assert fake.calls("squeue")[0].args[-4:] == ["--user", "0", "--states", "all"]


@pytest.mark.parametrize(("uid", "ended"), [(None, True), (1, True), (0, False)])
def test_an_answer_to_another_question_is_not_taken(
    fake: FakeSlurm, env: dict[str, str], uid: int | None, ended: bool
) -> None:
    asked = AskedQueue(HERE, env, uid=0)
    client = SlurmCommands(HERE, env, ahead=asked)
    assert client.jobs(uid=uid, ended=ended) == []
    assert client.jobs(uid=0, ended=True) == []  # it is still there for the question it answers
    assert len(fake.calls("squeue")) == 2
    assert is_over(asked)


def test_what_there_is_to_ask_for_is_asked_once(fake: FakeSlurm, env: dict[str, str]) -> None:
    client = SlurmCommands(HERE, env, ahead=AskedOffer(HERE, env))
    partitions, nodes = client.ask_offer().answer()
    assert [len(fake.calls(program)) for program in ("scontrol", "sinfo")] == [1, 1]
    assert client.offer() == (partitions, nodes)
    assert [len(fake.calls(program)) for program in ("scontrol", "sinfo")] == [2, 2]


def test_a_question_that_nobody_wants_answered_is_ended(fake: FakeSlurm, env: dict[str, str]) -> None:
    for program in ("scontrol", "squeue"):
        (fake.bin / program).write_text("#!/bin/sh\nexec sleep 600\n")
    offer = AskedOffer(HERE, env)
    assert not is_over(offer)
    offer.drop()
    offer.drop()
    assert is_over(offer)
    queue = AskedQueue(HERE, env, uid=0)
    PySlurm(HERE, env, ahead=queue)  # it reads the queue itself
    assert is_over(queue)


def test_what_is_wrong_is_for_the_answer_to_say(fake: FakeSlurm, env: dict[str, str], tmp_path: Path) -> None:
    missing = AskedOffer(HERE, {**env, "PATH": str(tmp_path)})
    with pytest.raises(SlurmUnreachable, match="scontrol is not installed"):
        SlurmCommands(HERE, env, ahead=missing).ask_offer().answer()
    (fake.bin / "sinfo").unlink()
    half = AskedOffer(HERE, {**env, "PATH": str(fake.bin)})
    with pytest.raises(SlurmUnreachable, match="sinfo is not installed"):
        SlurmCommands(HERE, env, ahead=half).ask_offer().answer()
    assert is_over(half)
    nowhere = Location(Source.ENVIRONMENT, tmp_path / "slurm.conf")
    with pytest.raises(SlurmUnreachable, match="does not exist or cannot be read"):
        SlurmCommands(nowhere, env, ahead=AskedQueue(nowhere, env, uid=0)).jobs(uid=0, ended=True)
    assert fake.calls("squeue") == []


def test_no_two_questions_have_the_same_mark(env: dict[str, str]) -> None:
    asked = [AskedQueue(HERE, env, uid=None) for _ in range(3)]
    assert len({one.mark for one in asked}) == 3
    for one in asked:
        one.drop()
