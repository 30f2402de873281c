"""A controller that hangs, dies or comes back, and disks that are full."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuq.adapters.embedded import daemons
from tests.embedded import Embedded
from tests.gpuq_cli import Project, until

FAST = pytest.mark.slurm_options(extra=("MessageTimeout=2",))


def controller(slurm: Embedded) -> int:
    """Its process id."""
    return daemons.find(slurm.layout).daemons["slurmctld"].pid


def go_on(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def test_an_old_record_that_cannot_be_read_is_in_nobodys_way(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.submit("a")
    project.ended("a")
    old = project.runs / "a/slurm/attempt1.json"
    old.write_text("garbage")
    job = project.submit("a", "--hold")
    assert project.gpuq("wait", "a", "--timeout", "0").code == 27
    project.gpuq("cancel", "a").ok()
    assert project.gpuq("wait", "a").exits(23).stdout.startswith(f"a attempt 2 (job {job}): CANCELLED")
    project.gpuq("resubmit", "a", "--hold").ok()
    # whether it had this key cannot be known, and the run as a whole cannot be shown
    assert "attempt1.json" in project.gpuq("submit", "a", "--key", "k").exits(8).stderr
    assert "attempt1.json" in project.gpuq("status", "a").exits(8).stderr
    assert old.read_text() == "garbage"


@FAST
def test_a_dead_controller(slurm: Embedded, project: Project) -> None:
    project.run("a")
    job = project.submit("a", "--hold")
    before = project.listing()
    slurm.kill_daemons("slurmctld")
    # reading and changing at once: each gives up only after some seconds
    calls = [("submit", "a"), ("queue",), ("queue", "--json"), ("status", "a"), ("cancel", "a"), ("chain", "a", "a")]
    processes = [project.start(*args) for args in calls]
    for args, process in zip(calls, processes, strict=True):
        ran = project.finish(process, *args).exits(4)
        assert "gpuq local up" in ran.stderr
        if "--json" in args:
            assert (ran.json["schema"], ran.json["code"]) == ("gpuq.error/1", 4)
            continue
        # what is on disk is shown all the same
        assert ran.stdout == "" or (args[0] == "status" and "a attempt 1 (job 1): UNKNOWN" in ran.stdout)
    assert project.listing() == before
    assert project.gpuq("status").code == 4
    project.gpuq("log", "a").exits(6)
    slurm.up()
    assert [row["job_id"] for row in project.gpuq("queue", "--json").ok().json["jobs"]] == [job]
    project.gpuq("release", "a").ok()
    assert project.ended("a").outcome == "SUCCEEDED"


@FAST
def test_a_controller_that_dies_before_sbatch_asks_it(slurm: Embedded, project: Project) -> None:
    project.run("a")
    before = project.listing()
    project.wrap("sbatch", f'kill -9 {controller(slurm)}; sleep 0.2; exec "$REAL" "$@"')
    ran = project.gpuq("submit", "a").exits(4)
    assert "gpuq local up" in ran.stderr
    project.unwrap()
    assert project.listing() == before
    slurm.up()
    assert slurm.must("squeue", "-h", "-t", "all", "-o", "%A") == ""


@FAST
@pytest.mark.one_release
@pytest.mark.parametrize("key", [False, True])
def test_a_controller_that_hangs_while_it_is_given_the_job(slurm: Embedded, project: Project, key: bool) -> None:
    project.run("a")
    args = ("submit", "a", "--hold", *(("--key", "k") if key else ()))
    pid = controller(slurm)
    project.wrap("sbatch", f'kill -STOP {pid}; exec timeout -s KILL 6 "$REAL" "$@"')
    try:
        ran = project.gpuq(*args, patience=1).exits(4)
    finally:
        go_on(pid)
    assert "nothing is submitted twice" in ran.stderr
    project.unwrap()
    assert project.record("a").job_id is None
    # what the controller was sent is still worked on, or was never sent: either way there is one truth
    until(lambda: slurm.run("scontrol", "ping").ok, lambda: "no controller")
    project.gpuq("queue").ok()
    if key:
        job = project.gpuq(*args, "--json").ok().json["job_id"]
        assert slurm.queued().split() == [str(job)]
    else:
        jobs = slurm.queued().split()
        ran = project.gpuq("status", "a", "--json", patience=0).ok()
        shown = [str(one["job_id"]) for one in ran.json["runs"][0]["attempts"] if one["job_id"]]
        assert shown == jobs


@FAST
@pytest.mark.parametrize("took_it", [False, True])
def test_a_controller_that_dies_over_the_question(slurm: Embedded, project: Project, took_it: bool) -> None:
    project.run("a")
    pid = controller(slurm)
    # the connection ends in the same way with and without the job: only a look at Slurm can tell
    before = '"$REAL" "$@" >/dev/null\nsleep 3\n' if took_it else ""
    project.wrap(
        "sbatch", f'{before}kill -STOP {pid}; (sleep 0.5; kill -KILL {pid}) >/dev/null 2>&1 & exec "$REAL" "$@"'
    )
    ran = project.gpuq("submit", "a", "--hold", patience=1).exits(4)
    assert "nothing is submitted twice" in ran.stderr
    project.unwrap()
    slurm.up()
    for _ in range(2):  # one answer is no proof
        project.gpuq("queue", patience=0).ok()
    jobs = slurm.queued().split()
    assert len(jobs) == int(took_it)
    assert project.numbers("a") == ([1] if took_it else [])
    if took_it:
        assert str(project.record("a").job_id) == jobs[0]


@FAST
def test_a_controller_that_hangs(slurm: Embedded, project: Project) -> None:
    project.run("a")
    project.submit("a", "--hold")
    before = project.listing()
    calls = [("submit", "a"), ("queue",), ("status", "a"), ("cancel", "a"), ("chain", "a", "a", "--key", "k")]
    calls += [("resubmit", "a"), ("set", "a", "--mem", "50M"), ("why", "a"), ("wait", "a", "--timeout", "0")]
    pid = controller(slurm)
    os.kill(pid, signal.SIGSTOP)
    try:
        processes = [project.start(*args) for args in calls]
        for args, process in zip(calls, processes, strict=True):
            ran = project.finish(process, *args).exits(4)
            assert ran.stdout == "" or (args[0] == "status" and "UNKNOWN" in ran.stdout)
            said = [line for line in ran.stderr.splitlines() if line.startswith("gpuq: ")]
            assert len([line for line in said if not line.startswith("gpuq: hint: ")]) == 1, ran
    finally:
        go_on(pid)
    assert project.listing() == before
    until(lambda: slurm.run("scontrol", "ping").ok, lambda: "no controller")
    assert len(slurm.must("squeue", "-h", "-t", "all", "-o", "%A").split()) == 1


@FAST
def test_a_controller_that_hangs_for_a_moment(slurm: Embedded, project: Project) -> None:
    project.run("a")
    pid = controller(slurm)
    project.wrap("sbatch", f'kill -STOP {pid}; (sleep 1; kill -CONT {pid}) >/dev/null 2>&1 & exec "$REAL" "$@"')
    job = project.submit("a", "--hold")
    assert slurm.queued().split() == [str(job)]


@FAST
@pytest.mark.one_release
def test_wait_outlasts_a_restart(slurm: Embedded, project: Project) -> None:
    project.run("a", 'while [ ! -e "$GPUQ_RUN_DIR/go" ]; do sleep 0.1; done')
    job = project.submit("a")
    slurm.wait_state(job, "RUNNING")
    debug = {"GPUQ_DEBUG": "1"}  # shows when they have begun
    process = project.start("wait", "a", "--timeout", "120", env=debug)
    follower = project.start("log", "a", "-f", env=debug)
    assert process.stderr is not None
    assert follower.stderr is not None
    for stream in (process.stderr, follower.stderr):
        asked = 0
        while asked < 5:  # a slow machine may have other lines in between
            line = stream.readline()
            assert line, "it has given up"
            asked += "squeue" in line
    slurm.kill_daemons("slurmctld")
    for stream, words in ((process.stderr, "waiting for it to come back"), (follower.stderr, "still following")):
        while words not in (line := stream.readline()):
            assert line, "it has given up"
    slurm.up()
    (project.runs / "a/go").touch()
    project.finish(process).ok()
    project.finish(follower).ok()


def test_no_slurm_at_all(project: Project, tmp_path: Path) -> None:
    project.run("a")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/bash").symlink_to("/bin/bash")
    before = project.listing()
    for args in (("submit", "a"), ("queue",)):
        ran = project.gpuq(*args, env={"PATH": str(tmp_path / "bin")}).exits(4)
        assert "is not installed" in ran.stderr
        assert "gpuq local up" in ran.stderr
    assert project.listing() == before


# -- full disks ------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB for the runs."""
    place = tmp_path / "project" / "runs"
    place.mkdir(parents=True)
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], check=False).returncode:
        pytest.skip("may not mount here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(place: Path) -> Path:
    """Leave no block free."""
    filler = place / ".filler"
    with filler.open("ab", buffering=0) as handle:
        for size in (65536, 4096, 1):
            try:
                while True:
                    handle.write(b"x" * size)
            except OSError:
                continue
    return filler


def test_a_full_disk_refuses_the_submission(slurm_shared: Embedded, small_disk: Path, project: Project) -> None:
    project.run("a")
    filler = fill(small_disk)
    before = project.listing()
    ran = project.gpuq("submit", "a").exits(8)
    assert "No space left" in ran.stderr
    assert project.listing() == before
    assert slurm_shared.queued() == ""
    filler.unlink()
    project.submit("a", "--hold")


@pytest.mark.one_release
def test_a_disk_that_fills_up_under_a_chain_leaves_none_of_its_jobs(
    slurm_shared: Embedded, small_disk: Path, project: Project
) -> None:
    """The second would wait for nothing once the first is cancelled."""
    for tag in ("a", "b"):
        project.run(tag)
    filler = small_disk / ".filler"
    second = 'case "$*" in *--job-name=b*) cat /dev/zero > '
    project.wrap("sbatch", f'"$REAL" "$@"; {second}{filler} 2>/dev/null;; esac; exit 0')
    ran = project.gpuq("chain", "a", "b").exits(8)
    project.unwrap()
    filler.unlink()
    assert "what Slurm had accepted was cancelled" in ran.stderr
    assert "still there" not in ran.stderr
    assert slurm_shared.queued() == ""
    assert [project.numbers(tag) for tag in ("a", "b")] == [[], []]


def test_a_disk_that_fills_up_under_a_submission_loses_no_job(
    slurm_shared: Embedded, small_disk: Path, project: Project
) -> None:
    project.run("a")
    filler = small_disk / ".filler"
    project.wrap("sbatch", f'"$REAL" "$@"; cat /dev/zero > {filler} 2>/dev/null; exit 0')
    ran = project.gpuq("submit", "a", "--hold").exits(8)
    jobs = slurm_shared.queued().split()
    assert len(jobs) == 1
    assert f"job {jobs[0]}" in ran.stderr
    project.unwrap()
    # everything that only looks still works
    assert [row["attempt"] for row in project.gpuq("queue", "--json").ok().json["jobs"]] == [1]
    filler.unlink()
    project.gpuq("queue").ok()
    assert str(project.record("a").job_id) == jobs[0]
    # a full disk at the end of a job: written down when there is room again
    filler = fill(small_disk)
    project.gpuq("cancel", str(jobs[0]))
    slurm_shared.must("scancel", jobs[0])
    project.gpuq("status", "a").ok()
    filler.unlink()
    assert project.ended("a").outcome == "CANCELLED"
