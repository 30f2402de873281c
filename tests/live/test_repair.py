"""Submitters that die half-way: the next command finds out, and there is never a second job."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.embedded import Embedded
from tests.gpuq_cli import Project, until, wipe


def die_in_sbatch(project: Project, script: str, *args: str) -> None:
    """Submit with an sbatch that kills gpuq; returns when nobody holds the attempt any more."""
    project.wrap("sbatch", script)
    process = project.start("submit", "a", *args)
    ran = project.finish(process)
    assert ran.code == -signal.SIGKILL, ran
    project.unwrap()


def test_killed_before_sbatch_ran(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    before = project.listing()
    die_in_sbatch(project, 'kill -9 "$PPID"')
    assert project.numbers("a") == [1]
    # not at once: what had reached the controller may still be worked on
    ran = project.gpuq("status", "a").ok()
    assert "SUBMITTING" in ran.stdout
    ran = project.gpuq("queue", patience=0).ok()
    assert "was never accepted by Slurm; its number is free again" in ran.stderr
    assert project.listing() == before
    project.submit("a", "--hold")
    assert project.numbers("a") == [1]


def test_one_answer_without_the_job_is_no_proof_that_it_was_never_made(
    slurm_shared: Embedded, project: Project
) -> None:
    # a controller that hung answers squeue before it takes the job that an sbatch, dead by now, had sent it
    project.run("a")
    die_in_sbatch(project, 'kill -9 "$PPID"', "--hold", "--key", "k")
    project.gpuq("queue", patience=0).ok()
    record = project.record("a")
    job = int(slurm_shared.must(*record.argv))
    assert project.submit("a", "--hold", "--key", "k") == job
    assert project.record("a").job_id == job
    assert slurm_shared.queued().split() == [str(job)]


def test_a_log_without_its_job_in_one_answer_is_not_lost(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    die_in_sbatch(project, 'kill -9 "$PPID"')
    project.gpuq("queue", patience=0).ok()
    record = project.record("a")
    Path(record.log).touch()  # it began just behind the answer
    project.gpuq("queue", patience=60).ok()
    assert project.record("a").ended is None
    slurm_shared.must(*record.argv)
    assert project.gpuq("wait", "a").ok().stdout.startswith("a attempt 1 (job ")


def test_a_late_answer_without_the_job_does_not_end_the_search_for_it(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.wrap("squeue", 'sleep 2; exec "$REAL" "$@"')
    project.wrap(
        "sbatch",
        '(sleep 3; exec "$REAL" "$@") > /dev/null 2>&1 &\n'
        'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2\nexit 1',
    )
    ran = project.gpuq("submit", "a", "--hold", "--parsable", patience=1.5).ok()
    assert slurm_shared.queued().split() == ran.stdout.split()


@pytest.mark.parametrize("look", [("queue",), ("status",), ("status", "a"), ("wait", "a", "--timeout", "0")])
def test_killed_after_slurm_accepted_it(slurm_shared: Embedded, project: Project, look: tuple[str, ...]) -> None:
    project.run("a")
    die_in_sbatch(project, '"$REAL" "$@"; kill -9 "$PPID"', "--hold")
    assert project.record("a").job_id is None
    ran = project.gpuq(*look, patience=0)
    assert ran.code == (27 if look[0] == "wait" else 0)
    assert "had been accepted as job" in ran.stderr
    record = project.record("a")
    assert slurm_shared.queued().split() == [str(record.job_id)]
    assert record.submitted is not None
    project.gpuq("cancel", "a").ok()
    assert project.ended("a").outcome == "CANCELLED"


def test_killed_and_over_before_anybody_looks(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "exit 3")
    die_in_sbatch(project, '"$REAL" "$@"; kill -9 "$PPID"')
    until(lambda: slurm_shared.queued() == "", project.listing)
    project.gpuq("status", "a", patience=0).ok()
    ended = project.record("a").ended
    assert ended
    assert (ended.outcome, ended.exit_code) == ("FAILED", 3)


def test_killed_and_forgotten_by_slurm_before_anybody_looks(slurm: Embedded, project: Project) -> None:
    project.run("a", "echo ran")
    die_in_sbatch(project, '"$REAL" "$@"; kill -9 "$PPID"', "--key", "k")
    until(lambda: project.log("a") == "ran\n", project.listing)
    until(lambda: slurm.queued() == "", project.listing)
    wipe(slurm)
    # it left a log, so it has run: the number is not free, and the key does not make it run again
    ran = project.gpuq("submit", "a", "--key", "k", "--wait", patience=0)
    assert ran.code == 26, ran
    assert "was submitted with this key before; nothing is submitted" in ran.stdout
    assert slurm.must("squeue", "-h", "-t", "all", "-o", "%A") == ""
    ended = project.record("a").ended
    assert ended
    assert "it left a log" in ended.notes[0]


def test_while_sbatch_still_runs_nobody_takes_the_number(
    slurm_shared: Embedded, project: Project, tmp_path: Path
) -> None:
    project.run("a")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    project.wrap("sbatch", f'kill -9 "$PPID"; read -r _ < {fifo}; exec "$REAL" "$@"')
    assert project.finish(project.start("submit", "a", "--hold")).code == -signal.SIGKILL
    project.unwrap()
    for _ in range(2):
        project.gpuq("queue", patience=0).ok()
    assert project.numbers("a") == [1]
    again = project.submit("a", "--hold")
    assert project.numbers("a") == [1, 2]
    fifo.write_text("go\n")
    until(
        lambda: len(slurm_shared.queued().split()) == 2,
        lambda: slurm_shared.must("squeue"),
    )
    project.gpuq("queue", patience=0).ok()
    assert project.record("a").job_id == again + 1


def test_the_same_key_after_a_crash_never_makes_a_second_job(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    die_in_sbatch(project, '"$REAL" "$@"; kill -9 "$PPID"', "--hold", "--key", "k")
    job = project.submit("a", "--key", "k", "--hold")
    assert slurm_shared.queued().split() == [str(job)]
    assert project.numbers("a") == [1]


def test_the_same_key_after_a_crash_before_slurm_submits(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    die_in_sbatch(project, 'kill -9 "$PPID"', "--hold", "--key", "k")
    ran = project.gpuq("submit", "a", "--key", "k", "--hold", "--json", patience=0).ok()
    assert ran.json["repeated"] is False
    assert slurm_shared.queued().split() == [str(ran.json["job_id"])]
    assert project.numbers("a") == [1]


def test_the_next_submission_finds_out_too(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.run("b")
    die_in_sbatch(project, '"$REAL" "$@"; kill -9 "$PPID"', "--hold")
    ran = project.gpuq("submit", "b", "--hold").ok()
    assert "a attempt 1 had been accepted as job" in ran.stderr
    assert len(slurm_shared.queued().split()) == 2


def test_an_adopted_job_without_its_gpu_is_cancelled(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "sleep 600")
    die_in_sbatch(
        project,
        'args=(); for a in "$@"; do [[ $a == --gres=* ]] || args+=("$a"); done; "$REAL" "${args[@]}"; kill -9 "$PPID"',
    )
    assert "it was cancelled" in project.gpuq("queue").ok().stderr
    ended = project.ended("a")
    assert ended.outcome == "CANCELLED"
    assert any("did not give it" in note for note in ended.notes)


def test_wait_says_so_when_it_was_never_accepted(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    die_in_sbatch(project, 'kill -9 "$PPID"')
    ran = project.gpuq("wait", "a", patience=1)
    assert ran.code == 6, ran
    assert "never accepted" in ran.stderr or "no attempt" in ran.stderr


def test_interrupted_while_sbatch_runs(slurm_shared: Embedded, project: Project, tmp_path: Path) -> None:
    project.run("a")
    mark = tmp_path / "mark"
    project.wrap("sbatch", f'"$REAL" "$@" > {mark}; sleep 600')
    process = project.start("submit", "a", "--hold")
    until(lambda: mark.exists() and mark.read_text() != "", lambda: "sbatch has not run")
    process.send_signal(signal.SIGINT)
    ran = project.finish(process)
    assert ran.code == 130, ran
    assert "gpuq status a tells" in ran.stderr
    project.unwrap()
    project.gpuq("status", "a", patience=0).ok()
    assert project.record("a").job_id == int(mark.read_text())


def test_a_submitter_that_died_before_the_record_was_written(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.submit("a", "--hold")
    stray = project.runs / ".gpuq/open/0123456789abcdef"
    stray.write_text("a\n2\n")
    project.gpuq("queue").ok()
    assert not stray.exists()
    assert project.numbers("a") == [1]


def test_a_lost_index_loses_no_outcome(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    job = project.submit("a")
    for path in (project.runs / ".gpuq/open").iterdir():
        path.unlink()
    slurm_shared.wait_state(job, "COMPLETED")
    project.gpuq("status", "a").ok()
    ended = project.record("a").ended
    assert ended
    assert ended.outcome == "SUCCEEDED"


def test_an_index_that_a_power_cut_emptied_hides_no_end(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "exit 3")
    job = project.submit("a", "--hold")
    for entry in (project.runs / ".gpuq" / "open").iterdir():
        entry.write_text("")
    slurm_shared.must("scontrol", "release", str(job))
    slurm_shared.wait_state(job, "FAILED")
    (run,) = project.gpuq("status", "--json").ok().json["runs"]
    assert run["attempts"][0]["outcome"] == "FAILED"
