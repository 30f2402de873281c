"""Out of memory, under whatever state Slurm gives it."""

from __future__ import annotations

import pytest

from gpuq.core.attempt import Outcome, Request, judge
from gpuq.core.job import JobEnd
from gpuq.core.memory.oom import Signs, find, weigh
from gpuq.core.memory.values import MemorySummary
from gpuq.core.triage.diagnosis import diagnose
from gpuq.core.triage.evidence import Evidence, Log

GIB = 1024**3
SPELLINGS = (
    "slurmstepd-n1: error: Detected 1 oom-kill event(s) in StepId=2.batch. Some of your processes may have been killed by "
    "the cgroup out-of-memory handler.",
    "slurmstepd: error: Detected 4 oom_kill events in StepId=280.batch. Some of the step tasks have been OOM Killed.",
    "[2026-03-01T12:00:00.123] error: Detected 1 oom_kill event in StepId=3.batch. Some of the step tasks have been "
    "OOM Killed.",
    "srun: error: n1: task 0: Out Of Memory",
    "slurmstepd: error: Exceeded job memory limit",
)


@pytest.mark.parametrize("line", SPELLINGS)
def test_every_spelling(line: str) -> None:
    assert find(["epoch 3", line, "on"]) == line


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: exceeded step memory limit at some point.",
        "help: --oom  what to do when out of memory. Detected 1 oom_kill event is written then",
        "RuntimeError: CUDA out of memory",
        "Killed",
    ],
)
def test_what_is_none(line: str) -> None:
    assert find([line]) == ""


def outcome(state: str, code: int = 0, signal: int = 0, **signs: object) -> tuple[Outcome, tuple[str, ...]]:
    end = JobEnd(state=state, exit_code=code, signal=signal)
    found, notes = judge(end, [])
    given = Signs(**signs)  # type: ignore[arg-type]
    first = weigh(end, found, notes, given)
    assert weigh(end, *first, given) == first, "doing it again changes nothing"
    return first


def test_slurms_own_word() -> None:
    found, notes = outcome("OUT_OF_MEMORY", 0, 125, memory=MemorySummary(held=30 * GIB, limit=32 * GIB))
    assert found is Outcome.OUT_OF_MEMORY
    assert notes == ("killed for memory; its output may be incomplete", "it held 30G of 32G")


def test_nobody_looked_and_the_limit_is_told_all_the_same() -> None:
    _, notes = outcome("OUT_OF_MEMORY", 0, 125, asked=4 * GIB)
    assert notes == ("killed for memory; its output may be incomplete", "its limit was 4G")
    seen = Signs(asked=4 * GIB, memory=MemorySummary(held=4 * GIB, limit=4 * GIB))
    end = JobEnd(state="OUT_OF_MEMORY", exit_code=0, signal=125)
    assert weigh(end, Outcome.OUT_OF_MEMORY, notes, seen)[1][1:] == ("it held 4G of 4G",), "it is known later"


def test_completed_but_a_child_was_killed() -> None:
    found, notes = outcome("COMPLETED", memory=MemorySummary(held=1, oom_kill=2))
    assert found is Outcome.SUCCEEDED
    assert notes == ("warning: 2 processes in it were killed for memory; its output may be incomplete",)
    found, notes = outcome("COMPLETED", said=SPELLINGS[0])
    assert (found, notes) == (
        Outcome.SUCCEEDED,
        ("warning: a process in it was killed for memory; its output may be incomplete",),
    )


def test_failed_because_of_it() -> None:
    found, notes = outcome("FAILED", 1, said=SPELLINGS[1])
    assert found is Outcome.OUT_OF_MEMORY
    assert notes[:2] == ("exit code 1", "killed for memory; its output may be incomplete")


@pytest.mark.parametrize(("code", "signal"), [(137, 0), (0, 9)])
def test_a_bare_kill_is_less_certain(code: int, signal: int) -> None:
    found, notes = outcome("FAILED", code, signal)
    assert found is Outcome.FAILED
    assert notes[1] == "SIGKILL may have been the kernel's, for want of memory"
    full = MemorySummary(held=31 * GIB, limit=32 * GIB)
    assert outcome("FAILED", code, signal, memory=full)[1][1].endswith("it held 31G of 32G")


def test_nothing_of_it() -> None:
    assert outcome("COMPLETED", memory=MemorySummary(held=GIB, oom_kill=0)) == (Outcome.SUCCEEDED, ())
    assert outcome("FAILED", 1)[0] is Outcome.FAILED
    assert "killed for memory" in outcome("TIMEOUT", said=SPELLINGS[0])[1][-1]


def evidence(**values: object) -> Evidence:
    base: dict[str, object] = {"tag": "a", "attempt": 1, "state": "COMPLETED", "request": Request(cpus=1, memory=GIB)}
    return Evidence(**(base | values))  # type: ignore[arg-type]


@pytest.mark.parametrize("line", SPELLINGS[:4])
def test_why_says_so_of_what_ended_well(line: str) -> None:
    answer = diagnose(evidence(outcome="SUCCEEDED", log=Log(parts=((line, "done"),))))
    assert answer.id == "hidden_oom"


def test_why_uses_what_was_seen() -> None:
    seen = MemorySummary(held=30 * GIB, anon=28 * GIB, shmem=2 * GIB, limit=32 * GIB, oom_kill=1)
    counted = diagnose(evidence(outcome="SUCCEEDED", log=Log(parts=(("done",),)), memory=seen))
    assert (counted.id, counted.confidence) == ("hidden_oom", "certain")
    assert any("30G of 32G (28G anon + 2G shmem)" in line for line in counted.evidence)
    assert "its cgroup counted 1 killed for memory" in counted.evidence

    bare = evidence(outcome="FAILED", state="FAILED", exit_code=137, log=Log(parts=(("Killed",),)))
    assert (diagnose(bare).id, diagnose(bare).confidence) == ("killed", "possible")
    full = MemorySummary(held=31 * GIB, limit=32 * GIB, host_available=100 * 1024**2)
    known = diagnose(
        evidence(outcome="FAILED", state="FAILED", exit_code=137, log=Log(parts=(("Killed",),)), memory=full)
    )
    assert (known.id, known.confidence) == ("killed", "likely")
    assert "the host itself had only 100M left" in known.evidence
