"""Many submissions at once, and keys."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.embedded import Embedded
from tests.gpuq_cli import Project, until

TOGETHER = 10


def test_fifty_at_once_get_fifty_numbers_and_logs(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", 'echo "$GPUQ_ATTEMPT"')
    with ThreadPoolExecutor(TOGETHER) as pool:
        ids = list(pool.map(lambda _: project.submit("a", "--cpu-only", "--mem", "20M"), range(50)))
    assert len(set(ids)) == 50
    assert project.numbers("a") == list(range(1, 51))
    assert sorted(job for n in range(1, 51) if (job := project.record("a", n).job_id)) == sorted(ids)
    until(
        lambda: slurm_shared.queued() == "",
        lambda: slurm_shared.must("squeue", "-o", "%A %T %r"),
        timeout=120,
    )
    assert [project.log("a", n) for n in range(1, 51)] == [f"{n}\n" for n in range(1, 51)]
    # and all of them look at once: every outcome is written once
    with ThreadPoolExecutor(TOGETHER) as pool:
        shown = list(pool.map(lambda _: project.gpuq("status", "a", "--json").ok().json, range(TOGETHER)))
    assert {a["outcome"] for a in project.gpuq("status", "a", "--json").ok().json["runs"][0]["attempts"]} == {
        "SUCCEEDED"
    }
    assert all(len(one["runs"][0]["attempts"]) == 50 for one in shown)
    assert list((project.runs / ".gpuq/open").iterdir()) == []


def test_an_outcome_is_written_once(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "exit 4")
    job = project.submit("a")
    slurm_shared.wait_state(job, "FAILED")
    with ThreadPoolExecutor(TOGETHER) as pool:
        for ran in pool.map(lambda _: project.gpuq("queue"), range(TOGETHER)):
            ran.ok()
    first = project.record("a")
    assert first.ended
    assert first.ended.exit_code == 4
    for args in (("queue",), ("status", "a"), ("status",)):
        project.gpuq(*args).ok()
    assert project.record("a") == first


def test_one_key_makes_one_attempt_also_at_once(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.run("b")
    with ThreadPoolExecutor(TOGETHER) as pool:
        ids = set(pool.map(lambda _: project.submit("a", "--hold", "--key", "night 1"), range(TOGETHER)))
    assert len(ids) == 1
    assert project.numbers("a") == [1]
    assert project.submit("b", "--hold", "--key", "night 1") not in ids
    assert project.submit("a", "--hold", "--key", "night 2") not in ids
    shown = project.gpuq("submit", "a", "--key", "night 1", "--json").ok().json
    assert shown["repeated"] is True
    assert shown["job_id"] in ids


def test_a_key_lasts_beyond_the_end(slurm_shared: Embedded, project: Project) -> None:
    project.run("parent", "exit 1")
    project.run("a")
    project.submit("parent", "--hold")
    first = project.submit("a", "--key", "k", "--after-ok", "parent")
    project.gpuq("release", "parent").ok()
    assert project.ended("a").outcome == "CANCELLED"
    # its dependency would be refused by now
    assert project.submit("a", "--key", "k", "--after-ok", "parent") == first
    project.gpuq("submit", "a", "--after-ok", "parent").exits(5)
    project.gpuq("submit", "a", "--key", "k", "--wait").exits(23)
