"""Problems that the watcher tells, staged on a real Slurm, and what it knows where ends are not pushed."""

from __future__ import annotations

import datetime

import msgspec
import pytest

from gpuq.adapters.clock import SystemClock
from gpuq.adapters.embedded import daemons
from gpuq.cli.context import build
from gpuq.core.event import Event, Kind
from gpuq.usecases import alive
from gpuq.usecases.watch.run import run
from tests.embedded import CAN_CONFINE, Embedded
from tests.gpuq_cli import Project, until
from tests.live.test_watch import events, told, watching, write_config

HOLDS = """
import os, time
held = bytearray(92 * 2**20)
while not os.path.exists("less"): time.sleep(0.05)
del held
while not os.path.exists("end"): time.sleep(0.05)
"""


class Ahead(SystemClock):
    """Goes right, and is some seconds ahead."""

    def __init__(self, seconds: float) -> None:
        self._ahead = datetime.timedelta(seconds=seconds)

    def now(self) -> datetime.datetime:
        return super().now() + self._ahead


def look(seconds: float) -> list[Event]:
    """`gpuq watch --once` so many seconds from now."""
    return run(msgspec.structs.replace(build(), clock=Ahead(seconds)), once=True)


def seconds_today() -> float:
    now = datetime.datetime.now().astimezone()
    return (now - now.replace(hour=0, minute=0, second=0, microsecond=0)).total_seconds()


def rules(found: list[Event], kind: Kind = Kind.PROBLEM) -> set[str]:
    return {e.problem.rule for e in found if e.kind is kind and e.problem is not None}


@pytest.mark.one_release
def test_a_dead_job_a_dependency_that_never_comes_and_the_digest(
    slurm: Embedded, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.root)
    monkeypatch.setattr(alive, "GRACE", 0)
    write_config('[watch]\ndigest = "00:00"\n[notify.kinds.digest]\ntell = true\n')
    assert look(0) == []
    project.run("bad", "exit 7")
    bad = project.submit("bad")
    slurm.wait_state(bad, "FAILED")
    never = slurm.sbatch("true", f"--dependency=afterok:{bad}", "--mem=20", "--gres=gpu:1", cwd=project.root)
    slurm.wait(lambda: slurm.field(never, "Reason"), ("DependencyNeverSatisfied",))
    project.run("dead", "echo on; exec sleep 600")  # forks nothing while it is killed
    dead = project.submit("dead")
    until(lambda: "on" in project.log("dead"), lambda: project.log("dead"))
    slurm.kill_daemons("steps")
    daemons.kill(daemons.job_processes(slurm.layout))

    first = look(0)
    assert [e.ending.job_id for e in first if e.ending is not None] == [str(bad)]
    found = rules(first)

    def dead_is_told() -> bool:
        daemons.kill(daemons.job_processes(slurm.layout))  # one may have been forked while they were killed
        found.update(rules(look(0)))
        return "job-dead" in found

    # the first look may have been in the middle of an end
    until(dead_is_told, timeout=12, what=lambda: (events(), slurm.must("scontrol", "show", "job", str(dead))))
    problems = events(Kind.PROBLEM)
    assert problems[0].problem is not None
    assert f"job {dead}" in problems[0].problem.text
    found.update(rules(look(20)))
    assert found == {"job-dead", "dependency-never"}, "told when it has lasted"
    assert rules(look(21)) == set(), "and once"
    assert events(Kind.RECOVERED) == [], (
        "whether a job is dead is not known for a moment while another Slurm starts one"
    )

    slurm.must("scancel", str(never), str(dead))
    slurm.wait(lambda: slurm.must("squeue", "-h", "-a", "-o", "%A").strip(), ("",))
    look(40)
    look(60)
    assert rules(events(Kind.RECOVERED), Kind.RECOVERED) == {"job-dead", "dependency-never"}
    tomorrow = 86400 - min(300, seconds_today() - 1)
    look(tomorrow)
    digest = events(Kind.DIGEST)[0].digest
    assert digest is not None
    assert digest.outcomes == {"FAILED": 1, "CANCELLED": 2}
    assert [e for e in look(tomorrow + 1) if e.kind is Kind.DIGEST] == [], "once a day"


@pytest.mark.one_release
def test_after_fast_failures_what_waits_is_held(slurm: Embedded, project: Project) -> None:
    write_config("[watch]\npoll = 1\nhold_after_failures = true\nfast_failures = 3\n")
    project.run("blocks", "while [ ! -e go ]; do sleep 0.05; done; exit 1")
    for tag in ("bad", "worse"):
        project.run(tag, "exit 1")
    project.run("runs", "sleep 600")
    project.run("waits")
    project.run("spare")
    with watching(project):
        for tag in ("blocks", "bad", "worse", "runs"):
            project.submit(tag)
        waits, spare = project.submit("waits"), project.submit("spare")
        (project.root / "go").touch()
        until(lambda: rules(events(Kind.PROBLEM)) == {"fast-failures"}, lambda: events())
        for job in (waits, spare):
            slurm.wait(lambda job=job: slurm.field(job, "Reason"), ("JobHeldUser",))  # type: ignore[misc]
        text = events(Kind.PROBLEM)[0].problem
        assert text is not None
        assert text.text.startswith("3 jobs in a row failed within 1m: blocks")
        assert text.text.endswith("; what waits is held")
        # one that waits has ended before `gpuq cancel` can write who did it
        project.wrap("scancel", '"$REAL" "$@"; sleep 0.5')
        project.gpuq("cancel", "spare").ok()
        project.unwrap()
        until(lambda: told()[str(spare)] == 1, lambda: events())
        (gone,) = [e.ending for e in events(Kind.JOB_ENDED) if e.ending and e.ending.job_id == str(spare)]
        assert gone.cause.startswith("cancelled by"), gone
        project.gpuq("release", "waits").ok()
        project.gpuq("cancel", "runs").ok()
        until(lambda: told()[str(waits)] == 1, lambda: events())
        until(lambda: rules(events(Kind.RECOVERED), Kind.RECOVERED) == {"fast-failures"}, lambda: events())


@pytest.mark.one_release
@pytest.mark.slurm_options(extra=("JobCompType=jobcomp/none",))
def test_without_a_completion_file_and_what_logs_tell(slurm: Embedded, project: Project) -> None:
    write_config(
        "[watch]\npoll = 1\nprogress = 1\n"
        "[notify.kinds.job_started]\ntell = true\n[notify.kinds.progress]\ntell = true\n"
    )
    project.run(
        "a",
        "echo START device=none lr=0.1; echo STEP step=1/2; while [ ! -e go ]; do sleep 0.05; done\n"
        "echo STEP step=2/2 loss=0.5; while [ ! -e end ]; do sleep 0.05; done; echo FINISHED exit=0; exit 3",
    )
    with watching(project):
        job = project.submit("a")
        until(lambda: bool(events(Kind.JOB_STARTED)), lambda: events())
        until(lambda: bool(events(Kind.PROGRESS)), lambda: events())
        (project.root / "go").touch()
        until(lambda: len(events(Kind.PROGRESS)) == 2, lambda: events())
        (project.root / "end").touch()
        until(lambda: told()[str(job)] == 1, lambda: events())
        until(lambda: project.record("a").ended is not None, lambda: "told, and its record was not written")
        status = project.gpuq("watch", "status", "--json").ok().json["report"]["sources"]
        assert "none" in status["completions"]
    (began,) = events(Kind.JOB_STARTED)
    assert (began.subject, began.text) == (f"a (job {job})", "device=none lr=0.1")
    assert [e.text for e in events(Kind.PROGRESS)] == ["step=1/2", "step=2/2 loss=0.5"]
    (ended,) = [e.ending for e in events(Kind.JOB_ENDED)]
    assert ended is not None
    assert (ended.outcome, ended.exit_code) == ("FAILED", 3), "Slurm decides, not the log"
    assert "its log says FINISHED" in ended.cause


@pytest.mark.one_release
def test_memory_near_the_limit_is_told_before_the_kill(slurm: Embedded, project: Project) -> None:
    if not CAN_CONFINE or not slurm.status().confinement.on:
        pytest.skip("memory is accounted for by root, where cgroups can be made")
    write_config("[watch]\npoll = 1\n")
    (project.root / "hold.py").write_text(HOLDS)
    project.run("big", f"exec {project.python} hold.py")
    with watching(project):
        project.submit("big", "--mem", "100M")
        until(lambda: rules(events(Kind.PROBLEM)) == {"memory-near"}, lambda: events())
        (problem,) = [e.problem for e in events(Kind.PROBLEM)]
        assert problem is not None
        assert "of its 100M of memory (9" in problem.text
        (project.root / "less").touch()
        until(lambda: rules(events(Kind.RECOVERED), Kind.RECOVERED) == {"memory-near"}, lambda: events())
        (project.root / "end").touch()
        until(lambda: bool(events(Kind.JOB_ENDED)), lambda: events())
    assert len(events(Kind.PROBLEM)) == 1, "told once"
