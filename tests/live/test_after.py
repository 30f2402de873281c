"""`--after` and `--after-ok` on a real Slurm."""

from __future__ import annotations

import pytest

from tests.embedded import Embedded
from tests.gpuq_cli import ROOT, Project, foreign_job, wipe


def dependencies(project: Project, tag: str, attempt: int = 1) -> tuple[str, ...]:
    return project.record(tag, attempt).dependencies


@pytest.mark.parametrize(("option", "kind"), [("--after", "afterany"), ("--after-ok", "afterok")])
def test_a_job_a_tag_and_the_last_job(slurm_shared: Embedded, project: Project, option: str, kind: str) -> None:
    for tag in ("a", "b"):
        project.run(tag)
    first = project.submit("a", "--hold")
    project.submit("b", option, str(first))
    project.submit("b", option, "a")
    project.submit("b", option, "a", option, str(first), "--hold")
    for number in (1, 2, 3):
        assert dependencies(project, "b", number) == (f"{kind}:{first}",)
    # somebody else's, from another project
    foreign = foreign_job(slurm_shared, "--hold") if ROOT else slurm_shared.sbatch("true", "--hold")
    ran = project.gpuq("submit", "b", option, "last").ok()
    assert f"last is job {foreign}" in ran.stderr
    assert dependencies(project, "b", 4) == (f"{kind}:{foreign}",)
    argv = project.record("b", 4).argv
    assert ("--kill-on-invalid-dep=yes" in argv) == (option == "--after-ok")


def test_last_in_an_empty_partition(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    ran = project.gpuq("submit", "a", "--after", "last", "--hold").ok()
    assert "partition gpu is empty" in ran.stderr
    assert dependencies(project, "a") == ()


def test_after_ok_on_a_success_needs_no_dependency(slurm_shared: Embedded, project: Project) -> None:
    for tag in ("a", "b"):
        project.run(tag)
    job = project.submit("a")
    slurm_shared.wait_state(job, "COMPLETED")
    # nobody has looked yet: the outcome is found now
    ran = project.gpuq("submit", "b", "--after-ok", "a", "--hold").ok()
    assert "has succeeded already" in ran.stderr
    project.gpuq("submit", "b", "--after-ok", str(job), "--hold").ok()
    project.gpuq("submit", "b", "--after", str(job), "--hold").ok()
    assert [dependencies(project, "b", number) for number in (1, 2, 3)] == [(), (), ()]


@pytest.mark.parametrize(
    ("body", "config", "outcome"),
    [("exit 1", "", "FAILED"), ("true", '[results]\nfiles = ["cv.json"]\n', "INCOMPLETE")],
)
def test_after_ok_on_a_failure_is_refused(
    slurm_shared: Embedded, project: Project, body: str, config: str, outcome: str
) -> None:
    project.run("a", body, config=config)
    project.run("b")
    job = project.submit("a")
    project.ended("a")
    before = project.listing()
    for ref in ("a", str(job)):
        assert f"ended as {outcome}" in project.gpuq("submit", "b", "--after-ok", ref).exits(5).stderr
    assert project.listing() == before
    project.gpuq("submit", "b", "--after", "a").ok()
    assert dependencies(project, "b") == ()


def test_jobs_that_gpuq_did_not_submit(slurm_shared: Embedded, project: Project) -> None:
    project.run("b")
    good, bad = slurm_shared.sbatch("true"), slurm_shared.sbatch("exit 7")
    slurm_shared.wait_state(good, "COMPLETED")
    slurm_shared.wait_state(bad, "FAILED")
    project.gpuq("submit", "b", "--after-ok", str(good), "--hold").ok()
    assert dependencies(project, "b") == ()
    assert "ended as FAILED (7:0)" in project.gpuq("submit", "b", "--after-ok", str(bad)).exits(5).stderr
    project.gpuq("submit", "b", "--after", str(bad), "--hold").ok()


def test_an_array(slurm_shared: Embedded, project: Project) -> None:
    project.run("b")
    array = slurm_shared.sbatch('[ "$SLURM_ARRAY_TASK_ID" != 2 ] || sleep 600', "--array=1-2", "--mem=50M", "-c1")
    slurm_shared.wait(
        lambda: slurm_shared.must("squeue", "-h", "-r", "-t", "all", "-j", str(array), "-o", "%K%T"),
        ("1COMPLETED\n2RUNNING\n", "2RUNNING\n1COMPLETED\n"),
    )
    project.gpuq("submit", "b", "--after", str(array)).ok()
    assert dependencies(project, "b") == (f"afterany:{array}",)
    project.gpuq("submit", "b", "--after", f"{array}_2").ok()
    assert dependencies(project, "b", 2) == (f"afterany:{array}_2",)
    assert f"{array}_1 is" in project.gpuq("cancel", f"{array}_1").exits(2).stderr
    assert project.gpuq("wait", str(array), "--timeout", "0").code == 27


def test_dependants_of_a_failure_are_cancelled_and_say_why(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "exit 1")
    project.run("b")
    project.submit("a", "--hold")
    project.submit("b", "--after-ok", "a")
    project.gpuq("release", "a").ok()
    ended = project.ended("b")
    assert ended.outcome == "CANCELLED"
    assert "what it depended on did not succeed" in ended.notes
    assert "did not succeed" in project.gpuq("status", "b").ok().stdout


def test_a_job_forgotten_by_slurm_counts_as_recorded(slurm: Embedded, project: Project) -> None:
    for tag, body in (("good", "true"), ("bad", "exit 1"), ("b", "true")):
        project.run(tag, body)
    good, bad = project.submit("good"), project.submit("bad")
    project.ended("good")
    project.ended("bad")
    wipe(slurm)
    for ref in ("bad", str(bad)):
        assert "ended as FAILED" in project.gpuq("submit", "b", "--after-ok", ref).exits(5).stderr
    project.gpuq("submit", "b", "--after-ok", str(good), "--hold").ok()
    assert dependencies(project, "b") == ()
    # Ids began again: the first job is now b's, and its number means b's.
    assert project.record("b").job_id == good
    project.gpuq("submit", "b", "--after-ok", str(good)).ok()
    assert dependencies(project, "b", 2) == (f"afterok:{good}",)
    assert "has succeeded already" in project.gpuq("submit", "b", "--after-ok", "good").ok().stderr


def test_another_controllers_job_is_not_guessed_at(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.run("b")
    project.submit("a", "--hold")
    conf = slurm_shared.layout.conf
    other = project.root / "slurm.conf"
    other.write_text(conf.read_text())  # the same controller under another name will do
    ran = project.gpuq("submit", "b", "--after", "a", env={"SLURM_CONF": str(other)}).exits(5)
    assert "another controller" in ran.stderr
    assert project.gpuq("wait", "a", env={"SLURM_CONF": str(other)}).code == 27
    assert "no log yet" in project.gpuq("log", "a", "-f", env={"SLURM_CONF": str(other)}).exits(6).stderr
    project.gpuq("status", "a", env={"SLURM_CONF": str(other)}).ok()
    assert project.record("a").ended is None
