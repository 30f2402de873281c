"""What a process sees of its job, and a question that is put in a copy of the process."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from gpuq.adapters import injob
from gpuq.adapters.child import Aside, read_file


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({"SLURM_JOB_GPUS": "0"}, 0),  # left over in a shell: no job
        ({"SLURM_JOB_ID": "1"}, 0),
        ({"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "0"}, 1),
        ({"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "0,1,3", "SLURM_GPUS_ON_NODE": "1"}, 3),
        ({"SLURM_JOB_ID": "1", "SLURM_STEP_GPUS": "1"}, 1),
        ({"SLURM_JOB_ID": "1", "SLURM_GPUS_ON_NODE": "2"}, 2),
        ({"SLURM_JOB_ID": "1", "SLURM_GPUS_ON_NODE": "tesla:2"}, 0),
    ],
)
def test_how_many_gpus_slurm_promised(environment: dict[str, str], count: int) -> None:
    assert injob.promised_gpus(environment) == count


def test_a_device_that_can_be_opened_is_there_and_another_says_why(tmp_path: Path) -> None:
    assert injob.why_closed([]) == ""
    assert injob.why_closed([str(tmp_path / "nvidia0"), "/dev/null"]) == ""
    assert injob.why_closed([str(tmp_path / "nvidia0")]) == f"{tmp_path}/nvidia0: No such file or directory"
    for name in ("nvidia1", "nvidia0", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert injob.devices(str(tmp_path)) == [f"{tmp_path}/nvidia0", f"{tmp_path}/nvidia1"]
    assert injob.devices(str(tmp_path / "no")) == []


def test_a_simulated_gpu_is_known_by_the_embedded_slurms_files(tmp_path: Path) -> None:
    env = {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    (tmp_path / "gres.conf").write_text(f"NodeName=a Name=gpu File={tmp_path}/dev/nvidia0\n")
    assert not injob.simulated(env)  # a slurm.conf of somebody else's
    (tmp_path / "local.json").write_text("{}")
    assert injob.simulated(env)
    (tmp_path / "gres.conf").write_text("NodeName=a Name=gpu File=/dev/null\n")
    assert injob.simulated(env), "one that a plain user started"
    (tmp_path / "gres.conf").write_text("NodeName=a Name=gpu File=/dev/nvidia0\n")
    assert not injob.simulated(env)
    assert not injob.simulated({})


def test_how_long_slurm_waits_before_it_kills(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("# KillWait=9\nkillwait = 7\n")
    assert injob.kill_wait({"SLURM_CONF": str(conf)}) == 7
    conf.write_text("")
    assert injob.kill_wait({"SLURM_CONF": str(conf)}) == injob.DEFAULT_KILL_WAIT


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (json.dumps({"request": {"time_limit": 60, "signal_before": 30}}), (60, 30)),
        (json.dumps({"request": {"time_limit": None}}), (None, None)),
        ("{", (None, None)),
        ("[]", (None, None)),
        ('{"request": 1}', (None, None)),
        (None, (None, None)),
    ],
)
def test_what_the_attempt_asked_for(tmp_path: Path, text: str | None, found: tuple[int | None, int | None]) -> None:
    (tmp_path / "slurm").mkdir()
    if text is not None:
        (tmp_path / "slurm/attempt3.json").write_text(text)
    assert injob.asked({"GPUQ_RUN_DIR": str(tmp_path), "GPUQ_ATTEMPT": "3"}) == found
    assert injob.asked({"GPUQ_RUN_DIR": str(tmp_path), "GPUQ_ATTEMPT": "../3"}) == (None, None)


def test_a_file_is_read_from_its_beginning_or_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    assert read_file(str(path), 4) == b"0123"
    assert read_file(str(path), 4, end=True) == b"6789"
    assert read_file(str(path), 99, end=True) == b"0123456789"
    assert read_file(str(tmp_path / "no")) is None
    assert read_file(str(tmp_path)) is None
    os.mkfifo(tmp_path / "fifo")
    assert read_file(str(tmp_path / "fifo")) == b""  # and does not wait for a writer


def hang() -> bytes:
    time.sleep(600)
    return b"late"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # a test runner has threads, gpuq run has none
def test_a_question_put_aside_is_answered_or_given_up() -> None:
    assert Aside(lambda: b"x" * 100_000).answer(60) == b"x" * 100_000
    assert Aside(lambda: b"").answer(60) is None
    assert Aside(hang).answer(0.2) is None
