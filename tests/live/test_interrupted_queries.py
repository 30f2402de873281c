"""A controller that dies, comes back or is replaced while a question is on its way: the right answer, or a typed error."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from gpuq.adapters.embedded import daemons
from tests.embedded import Embedded
from tests.gpuq_cli import Project, Ran, until

pytestmark = [pytest.mark.one_release, pytest.mark.slurm_options(extra=("MessageTimeout=2",))]

QUESTIONS = (("queue", "--json"), ("status", "--json"), ("wait", "a", "--timeout", "0", "--json"))


def ask_a_stopped_controller(
    slurm: Embedded, project: Project, then: Callable[[int], object]
) -> list[tuple[tuple[str, ...], subprocess.Popen[str]]]:
    """Start all questions while slurmctld is stopped; `then` gets its process id when each has reached squeue."""
    pid = daemons.find(slurm.layout).daemons["slurmctld"].pid
    asked = project.root / "asked"
    asked.mkdir()
    project.wrap("squeue", f'touch {asked}/$$; exec "$REAL" "$@"')
    os.kill(pid, signal.SIGSTOP)
    try:
        started: list[tuple[tuple[str, ...], subprocess.Popen[str]]] = [
            (args, project.start(*args)) for args in QUESTIONS
        ]
        until(lambda: len(list(asked.iterdir())) >= len(QUESTIONS), lambda: list(asked.iterdir()))
        then(pid)
    except BaseException:
        os.kill(pid, signal.SIGCONT)
        raise
    return started


def shows(answer: dict[str, object], job: int) -> bool:
    """True when an answer of any of the questions has the job in it."""
    return f"'job_id': {job}" in str(answer) or f"'job_id': '{job}'" in str(answer)


def failed(ran: Ran) -> None:
    """Nothing was shown, but for what the records tell: that is no news of the job."""
    if ran.stdout and ran.json["schema"] == "gpuq.error/1":
        assert ran.json["code"] == ran.code
    elif ran.stdout:
        ((attempt,),) = (run["attempts"] for run in ran.json["runs"])
        assert (attempt["state"], attempt["outcome"]) == ("UNKNOWN", None)


def test_it_dies(slurm: Embedded, project: Project) -> None:
    project.run("a")
    project.submit("a", "--hold")
    for args, process in ask_a_stopped_controller(slurm, project, lambda pid: os.kill(pid, signal.SIGKILL)):
        ran = project.finish(process, *args)
        if args[0] == "wait":  # which gives a controller two minutes to come back, but has no time
            assert ran.code in {4, 27}, ran
        else:
            failed(ran.exits(4))
    assert project.record("a").ended is None


@pytest.mark.parametrize("how", ["goes on", "is replaced"])
def test_it_answers_late(slurm: Embedded, project: Project, how: str) -> None:
    project.run("a")
    job = project.submit("a", "--hold")

    def replaced(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        slurm.kill_daemons("slurmctld")
        slurm.up()

    then = replaced if how == "is replaced" else lambda pid: os.kill(pid, signal.SIGCONT)
    for args, process in ask_a_stopped_controller(slurm, project, then):
        ran = project.finish(process, *args)
        if ran.code in {0, 27}:
            assert shows(ran.json, job), ran
        else:
            failed(ran.exits(4))
    project.unwrap()
    assert shows(project.gpuq("queue", "--json").ok().json, job)
    assert project.record("a").ended is None
    project.gpuq("release", "a").ok()
    assert project.ended("a").outcome == "SUCCEEDED"
