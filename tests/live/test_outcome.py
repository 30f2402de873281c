"""How attempts end on a real Slurm, and that gpuq finds out, whoever has forgotten what."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.embedded import CAN_CONFINE, Embedded
from tests.gpuq_cli import Project, said, until, wipe

RESULTS = '[results]\nfiles = ["cv.json"]\nscore = "cv.json:folds.0"\n'


def test_exit_codes_and_signals(slurm_shared: Embedded, project: Project) -> None:
    for tag, body in (("code", "exit 3"), ("kill", "kill -9 $$"), ("inner", "bash -c 'kill -15 $$'"), ("fine", "true")):
        project.run(tag, body)
        project.submit(tag, "--cpu-only")
    code, kill, inner, fine = (project.ended(tag) for tag in ("code", "kill", "inner", "fine"))
    assert (code.outcome, code.exit_code, code.notes) == ("FAILED", 3, ("exit code 3",))
    assert (kill.outcome, kill.signal) == ("FAILED", 9)
    assert kill.notes[0] == "killed by signal 9"
    assert (inner.outcome, inner.exit_code) == ("FAILED", 143)
    assert "killed by signal 15" in inner.notes[0]
    assert fine.outcome == "SUCCEEDED"
    assert fine.start
    assert fine.end
    assert fine.end >= fine.start


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("echo '{\"folds\": [1'$(printf '0%.0s' {1..400})']}' > $GPUQ_RUN_DIR/cv.json", "SUCCEEDED"),
        ("echo '{\"folds\": [1e999]}' > $GPUQ_RUN_DIR/cv.json", "SUCCEEDED"),
        ("head -c 100000 /dev/zero | tr '\\0' '[' > $GPUQ_RUN_DIR/cv.json", "SUCCEEDED"),
        ("head -c 100000 /dev/urandom > $GPUQ_RUN_DIR/cv.json", "SUCCEEDED"),
        ("touch -d @9999999999999 $GPUQ_RUN_DIR/cv.json", "SUCCEEDED"),
        ("mkdir $GPUQ_RUN_DIR/cv.json", "SUCCEEDED"),
        ("mkfifo $GPUQ_RUN_DIR/cv.json", "SUCCEEDED"),
        ("ln -s cv.json $GPUQ_RUN_DIR/cv.json", "INCOMPLETE"),
    ],
)
def test_whatever_a_job_leaves_as_its_result_its_end_is_recorded(
    slurm_shared: Embedded, project: Project, body: str, outcome: str
) -> None:
    project.run("a", body, config=RESULTS)
    project.submit("a", "--cpu-only")
    ended = project.ended("a")
    assert ended.outcome == outcome
    assert ended.score is None
    project.gpuq("status").ok()


def test_promised_results(slurm_shared: Embedded, project: Project) -> None:
    run = project.run("a", "true", config=RESULTS)
    stale = run / "cv.json"
    project.submit("a")
    assert project.ended("a").notes == ("promised result cv.json is missing",)
    assert project.ended("a").outcome == "INCOMPLETE"
    stale.write_text("{}")
    os.utime(stale, (1, 1))
    project.submit("a")
    assert project.ended("a", 2).notes == ("promised result cv.json is older than this attempt",)
    project.gpuq("wait", "a").exits(25)
    project.run("a", """echo '{"folds": [0.25]}' > "$GPUQ_RUN_DIR/cv.json\"""")
    project.submit("a")
    assert (project.ended("a", 3).outcome, project.ended("a", 3).score) == ("SUCCEEDED", 0.25)
    assert "score 0.25" in project.gpuq("wait", "a").ok().stdout


@pytest.mark.one_release
def test_a_success_that_ends_in_an_error_says_so(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", """python3 -c 'raise ValueError("no data")' 2>&1 | tee copy.txt""")
    project.submit("a", "--cpu-only")
    ended = project.ended("a")
    assert ended.outcome == "SUCCEEDED"
    (note,) = ended.notes
    assert note == "it ended with exit code 0, but its log ends in an error: ValueError: no data (gpuq why a)"
    assert note in project.gpuq("wait", "a").ok().stdout
    assert note in project.gpuq("status", "a").ok().stdout


@pytest.mark.skipif(not CAN_CONFINE, reason="memory is enforced through cgroups, by root")
def test_out_of_memory(slurm_shared: Embedded, project: Project) -> None:
    if not slurm_shared.status().confinement.on:
        pytest.skip("this host lets nobody make cgroups")
    project.run("a", "python3 -c 'x = bytearray(400 * 2**20); print(len(x))'; exit 0")
    project.submit("a", "--mem", "60M")
    ended = project.ended("a")
    assert ended.outcome == "OUT_OF_MEMORY", ended
    assert "its output may be incomplete" in ended.notes[0]
    project.gpuq("wait", "a").exits(21)


@pytest.mark.one_release
def test_time_limit(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "sleep 600")
    job = project.submit("a", "--time", "1")
    slurm_shared.wait_state(job, "TIMEOUT", timeout=150)
    assert project.ended("a").outcome == "TIMEOUT"
    project.gpuq("wait", "a").exits(22)


def test_cancelled_by_scancel_and_by_gpuq(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "sleep 600")
    job = project.submit("a")
    slurm_shared.wait_state(job, "RUNNING")
    slurm_shared.must("scancel", str(job))
    ended = project.ended("a")
    assert ended.outcome == "CANCELLED"
    assert not any("cancelled by" in note for note in ended.notes)
    project.submit("a", "--hold")
    project.gpuq("cancel", "a").ok()
    assert any("cancelled by" in note for note in project.ended("a", 2).notes)


def test_a_log_that_cannot_be_made(slurm_shared: Embedded, project: Project) -> None:
    run = project.run("a")
    project.submit("a", "--hold")
    (run / "slurm/attempt1.out").mkdir()
    project.gpuq("release", "a").ok()
    ended = project.ended("a")
    assert (ended.outcome, ended.signal) == ("FAILED", 53)
    assert ended.notes == (f"Slurm could not create the log file in {run / 'slurm'}",)


def test_what_slurm_forgot_is_read_from_its_file(slurm: Embedded, project: Project) -> None:
    for tag, body in (("good", "true"), ("bad", "exit 5"), ("lost", "true"), ("again", "true")):
        project.run(tag, body)
    for tag in ("good", "bad", "lost", "again"):
        job = project.submit(tag, "--cpu-only")
        slurm.wait_state(job, "COMPLETED", "FAILED")
    wipe(slurm)
    lines = slurm.jobcomp.read_text().splitlines(keepends=True)
    slurm.jobcomp.write_text(
        "".join(line for line in lines if " Name=lost " not in line and " Name=again " not in line)
    )
    # The number of `again` is given out once more, to the same run.
    for number in range(3):
        slurm.sbatch("true", "--hold", f"--job-name=filler{number}")
    assert project.submit("again", "--cpu-only") == project.record("again").job_id
    slurm.wait_state(4, "COMPLETED")
    until(lambda: "JobId=4 " in slurm.jobcomp.read_text(), slurm.jobcomp.read_text)
    project.gpuq("queue").ok()
    good, bad, lost = (project.record(tag).ended for tag in ("good", "bad", "lost"))
    assert good
    assert bad
    assert lost
    assert (good.outcome, good.source) == ("SUCCEEDED", "jobcomp")
    assert (bad.outcome, bad.exit_code) == ("FAILED", 5)
    assert lost.outcome == "LOST"
    project.gpuq("wait", "lost").exits(26)
    first, second = project.record("again", 1).ended, project.record("again", 2).ended
    assert first
    assert second
    assert (first.outcome, second.outcome) == ("LOST", "SUCCEEDED")


def test_an_array_that_slurm_forgot_is_read_from_its_file(slurm: Embedded, project: Project) -> None:
    """Waited for while slurmctld loses all it knew: tasks by themselves, and the array as the worst of them."""
    array = slurm.sbatch("[ $SLURM_ARRAY_TASK_ID != 2 ]", "--array=1-3", "--mem=100", "--output=/dev/null", "--hold")
    refs = {str(array): 20, f"{array}_1": 0, f"{array}_2": 20}
    waiting = {ref: project.start("wait", ref, "--json") for ref in refs}
    for process in waiting.values():  # it has seen the array
        assert "held" in said(process)
        process.send_signal(signal.SIGSTOP)
    slurm.must("scontrol", "release", str(array))
    until(lambda: slurm.jobcomp.read_text().count(f"ArrayJobId={array} ") == 3, slurm.jobcomp.read_text)
    wipe(slurm)
    for process in waiting.values():
        process.send_signal(signal.SIGCONT)
    for ref, process in waiting.items():
        (result,) = project.finish(process, "wait", ref).exits(refs[ref]).json["results"]
        assert result["outcome"] == ("FAILED" if refs[ref] else "SUCCEEDED"), ref


def test_another_controllers_ignorance_is_no_loss(slurm_shared: Embedded, slurm: Embedded, project: Project) -> None:
    project.run("a")
    ours = {"SLURM_CONF": str(slurm_shared.layout.conf)}
    project.env = ours
    job = project.submit("a", "--hold")
    project.env = {"SLURM_CONF": str(slurm.layout.conf)}
    while slurm.sbatch("true", "--hold", "-J", "a") < job:
        pass
    for args in (("queue",), ("status", "a"), ("status",)):
        project.gpuq(*args).ok()
    assert "UNKNOWN" in project.gpuq("status", "a").stdout
    project.gpuq("cancel", "a").exits(11)
    ran = project.gpuq("wait", "a").exits(27)
    assert "another controller" in ran.stdout
    assert project.record("a").ended is None
    project.env = ours
    project.gpuq("release", "a").ok()
    assert project.ended("a").outcome == "SUCCEEDED"


@pytest.mark.slurm_options(extra=("MinJobAge=2",))
def test_a_job_that_slurm_forgets_at_once(slurm: Embedded, project: Project) -> None:
    project.run("a", "exit 6")
    project.run("b")
    job = project.submit("a")
    until(
        lambda: slurm.run("squeue", "-h", "-t", "all", "-j", str(job)).stdout == "",
        lambda: slurm.must("squeue", "-t", "all"),
        timeout=90,
    )
    assert "ended as FAILED" in project.gpuq("submit", "b", "--after-ok", str(job)).exits(5).stderr
    assert (project.ended("a").outcome, project.ended("a").exit_code) == ("FAILED", 6)
    project.gpuq("wait", str(job)).exits(20)


def test_a_run_that_was_removed_meanwhile(slurm_shared: Embedded, project: Project) -> None:
    run: Path = project.run("a")
    project.run("b")
    job = project.submit("a", "--hold")
    shutil.rmtree(run)
    project.gpuq("queue").ok()
    project.gpuq("status").ok()
    project.gpuq("cancel", str(job)).ok()
    project.submit("b")
    assert project.ended("b").outcome == "SUCCEEDED"


def test_a_comment_that_somebody_took_away(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    job = project.submit("a", "--hold")
    slurm_shared.must("scontrol", "update", f"JobId={job}", "Comment=mine")
    assert "held" in project.gpuq("status", "a").ok().stdout
    assert project.record("a").ended is None
    project.gpuq("release", "a").ok()
    assert project.ended("a").outcome == "SUCCEEDED"


def test_a_record_that_cannot_be_read_stops_nothing_else(slurm_shared: Embedded, project: Project) -> None:
    for tag in ("a", "b", "c"):
        project.run(tag)
    project.submit("a", "--hold")
    job = project.submit("b")
    slurm_shared.wait_state(job, "COMPLETED")
    (project.runs / "a/slurm/attempt1.json").write_text("{")
    ran = project.gpuq("queue").ok()
    assert "a/slurm/attempt1.json is not a record" in ran.stderr
    ended = project.record("b").ended
    assert ended
    assert ended.outcome == "SUCCEEDED"
    assert [run["tag"] for run in project.gpuq("status", "--json").ok().json["runs"]] == ["b", "c"]
    project.gpuq("wait", "b").ok()
    project.submit("c", "--hold")
    project.gpuq("cancel", "c").ok()
    project.gpuq("status", "a").exits(8)
    project.submit("a", "--hold")
    assert project.record("a", 2).attempt == 2
