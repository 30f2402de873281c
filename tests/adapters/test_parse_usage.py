"""What scontrol and `sbatch --test-only` print about what is in use, as recorded."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.adapters.slurm import parse_usage
from gpuq.core.units import MIB
from gpuq.core.usage import Allocation
from gpuq.errors import SlurmAnswerError

DATA = Path(__file__).parent.parent / "data" / "slurm"


def read(release: str, name: str) -> str:
    return (DATA / release / f"{name}.txt").read_text()


@pytest.mark.parametrize("release", ["22.05", "25.11"])
def test_a_node_in_use(release: str) -> None:
    (node,) = parse_usage.nodes(read(release, "scontrol-d-show-node"))
    assert (node.cpus, node.cpus_used, node.gpus, node.gpus_used) == (2, 1, 1, 1)
    assert node.memory_used in {100 * MIB, 200 * MIB}
    assert node.memory > node.memory_used
    assert node.usable
    assert node.reason == ""


def test_a_drained_node_and_its_reason() -> None:
    (node,) = parse_usage.nodes(read("22.05", "scontrol-d-show-node-drained"))
    assert not node.usable
    assert "DRAIN" in node.flags
    assert node.reason == "two words [x]"


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        ("IDLE", True),
        ("MIXED+PLANNED", True),
        ("IDLE*", False),
        ("DOWN*+DRAIN", False),
        ("IDLE+DRAIN+INVALID_REG", False),
        ("IDLE+NOT_RESPONDING", False),
    ],
)
def test_states_in_which_nothing_starts(state: str, usable: bool) -> None:
    text = read("25.11", "scontrol-d-show-node").replace("State=MIXED", f"State={state}")
    (node,) = parse_usage.nodes(text)
    assert node.usable is usable


@pytest.mark.parametrize(("release", "memory"), [("22.05", 100), ("25.11", 200)])
def test_what_a_running_job_has_whatever_its_name(release: str, memory: int) -> None:
    found = parse_usage.allocation(read(release, "scontrol-d-show-job-running"))
    assert found == Allocation(cpus=1, memory=memory * MIB, gpus=1)


def test_what_a_waiting_job_asks_for_with_gpus() -> None:
    found = parse_usage.allocation(read("22.05", "scontrol-d-show-job-pending"))
    assert (found.cpus, found.memory, found.gpus) == (1, 100 * MIB, 1)


@pytest.mark.parametrize("release", ["22.05", "25.11"])
def test_an_answer_that_is_cut_off_is_none(release: str) -> None:
    job = read(release, "scontrol-d-show-job-running")
    config = read(release, "scontrol-show-config")
    forecast = read(release, "sbatch-test-only")
    version = config.index("SLURM_VERSION")
    for text, length, ask in (
        *((job, length, parse_usage.allocation) for length in range(0, len(job) - 2, 7)),
        *((config, length, parse_usage.config) for length in range(0, version, 97)),
        *((forecast, length, lambda said: parse_usage.estimate(True, said)) for length in (0, 3, 20)),
    ):
        with pytest.raises(SlurmAnswerError):
            ask(text[:length])


@given(st.text(max_size=200))
def test_no_text_is_a_job_a_configuration_or_a_forecast(text: str) -> None:
    for ask in (parse_usage.allocation, parse_usage.config, lambda said: parse_usage.estimate(True, said)):
        with pytest.raises(SlurmAnswerError):
            ask(text)


@pytest.mark.parametrize("release", ["22.05", "25.11"])
def test_the_configuration(release: str) -> None:
    config = parse_usage.config(read(release, "scontrol-show-config"))
    assert config["MinJobAge"] == "86400 sec"
    assert config["ConstrainRAMSpace"] == "yes"
    assert config["HASH_VAL"].split()[0] in {"Match", "Different"}
    assert "AuthAltTypes" not in config


@pytest.mark.parametrize("release", ["22.05", "25.11"])
def test_when_slurm_would_start_it(release: str) -> None:
    found = parse_usage.estimate(True, read(release, "sbatch-test-only"))
    assert found.possible
    assert found.start is not None
    assert found.start.tzinfo is not None


def test_an_estimate_in_seconds_since_1970() -> None:
    line = "sbatch: Job 5 to start at 1795958639 a using 1 processors on nodes n25 in partition gpu"
    assert parse_usage.estimate(True, line).start == datetime.datetime.fromtimestamp(1795958639, datetime.UTC)


def test_what_slurm_would_not_take() -> None:
    found = parse_usage.estimate(False, read("22.05", "sbatch-test-only-impossible"))
    assert not found.possible
    assert "Requested node configuration is not available" in found.words


@pytest.mark.parametrize("text", ["nonsense", "NodeName=a CPUTot=x"])
def test_what_is_not_understood_raises(text: str) -> None:
    with pytest.raises(SlurmAnswerError):
        parse_usage.nodes(text)


def test_no_nodes_is_an_answer() -> None:
    assert parse_usage.nodes("No nodes in the system\n") == []


def test_gpus_that_a_row_does_not_show() -> None:
    text = """
        10529_[1-3]    1    gres:gpu:1    N/A    N/A
        10528          1    N/A           N/A    N/A
        10527          1    N/A           N/A    gres/gpu:2
        10525          3    N/A           gres/gpu=1    N/A
        10524          1    gres/gpu:a100:4    N/A    N/A
    """
    assert parse_usage.gpus(text) == {"10529_[1-3]": 1, "10527": 2, "10525": 3, "10524": 4}
    assert parse_usage.gpus("") == {}


@pytest.mark.parametrize("text", ["slurm_load_jobs", "1 x N/A N/A N/A", "1 1 N/A N/A", "1 1 N/A N/A N/A N/A"])
def test_an_answer_about_gpus_that_is_none(text: str) -> None:
    with pytest.raises(SlurmAnswerError):
        parse_usage.gpus(text)


@given(st.text(alphabet="12 \n\tN/A:gpu=x", max_size=60))
def test_no_text_about_gpus_is_anything_but_counts_or_a_typed_error(text: str) -> None:
    try:
        found = parse_usage.gpus(text)
    except SlurmAnswerError:
        return
    assert all(count > 0 for count in found.values())


def test_how_often_jobs_were_put_back() -> None:
    text = """
        10529_[1-3,5%2]    0
        10529_4            12
        10528+1            1
    """
    assert parse_usage.restarts(text) == {"10529_[1-3,5%2]": 0, "10529_4": 12, "10528+1": 1}
    assert parse_usage.restarts("") == {}


@pytest.mark.parametrize("text", ["slurm_load_jobs", "1 x", "1 -1", "1 1 1", "1 \u00b2"])
def test_an_answer_about_restarts_that_is_none(text: str) -> None:
    with pytest.raises(SlurmAnswerError):
        parse_usage.restarts(text)


@given(st.text(alphabet="12 \n\t_[%]x-", max_size=60))
def test_no_text_about_restarts_is_anything_but_counts_or_a_typed_error(text: str) -> None:
    try:
        found = parse_usage.restarts(text)
    except SlurmAnswerError:
        return
    assert all(count >= 0 for count in found.values())
