"""`gpuq chain` on a real Slurm."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.embedded import Embedded
from tests.gpuq_cli import Project, until

ORDER = 'echo "$GPUQ_TAG" >> "$GPUQ_PROJECT/order"'


def test_a_chain_runs_in_order_whatever_the_outcomes(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", f"{ORDER}; exit 1")
    project.run("b", ORDER)
    project.run("c", ORDER)
    ran = project.gpuq("chain", "a", "b", "c", "--wait", "--json")
    assert ran.code == 20, ran
    shown = ran.json
    assert shown["schema"] == "gpuq.chain/1"
    assert [one["outcome"] for one in shown["attempts"]] == ["FAILED", "SUCCEEDED", "SUCCEEDED"]
    assert [one["dependencies"] for one in shown["attempts"]] == [
        [],
        [f"afterany:{shown['attempts'][0]['job_id']}"],
        [f"afterany:{shown['attempts'][1]['job_id']}"],
    ]
    assert (project.root / "order").read_text().split() == ["a", "b", "c"]
    assert project.record("a").request.hold is False


def test_with_ok_the_rest_is_cancelled_after_a_failure(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", f"{ORDER}; exit 1")
    project.run("b", ORDER)
    project.run("c", ORDER)
    ran = project.gpuq("chain", "--ok", "a", "b", "c", "--wait", "--json")
    assert ran.code == 20, ran
    assert [one["outcome"] for one in ran.json["attempts"]] == ["FAILED", "CANCELLED", "CANCELLED"]
    assert "what it depended on did not succeed" in ran.json["attempts"][1]["outcome_notes"]
    assert (project.root / "order").read_text().split() == ["a"]


@pytest.mark.parametrize("refused", ["b", "c"])
def test_all_or_nothing(slurm_shared: Embedded, project: Project, refused: str) -> None:
    for tag in "abc":
        project.run(tag, ORDER)
    before = project.listing()
    project.wrap(
        "sbatch",
        f'for a in "$@"; do [[ $a == --job-name={refused} ]] && '
        '{ echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy" >&2; exit 1; }; done\n'
        'exec "$REAL" "$@"',
    )
    ran = project.gpuq("chain", "a", "b", "c").exits(5)
    assert "QOS policy" in ran.stderr
    assert "what Slurm had accepted was cancelled" in ran.stderr
    assert project.listing() == before
    assert slurm_shared.queued() == ""
    assert not (project.root / "order").exists()


def test_everything_is_checked_before_anything_is_submitted(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.run("b", "#SBATCH --array=1-3\ntrue")
    before = project.listing()
    jobs = slurm_shared.must("squeue", "-h", "-t", "all", "-o", "%A")
    assert "runs/b/job.sh:2" in project.gpuq("chain", "a", "b").exits(5).stderr
    assert project.listing() == before
    assert slurm_shared.must("squeue", "-h", "-t", "all", "-o", "%A") == jobs


def test_a_key_completes_a_chain_that_was_cut_off(slurm_shared: Embedded, project: Project) -> None:
    for tag in "abc":
        project.run(tag, ORDER)
    project.wrap(
        "sbatch", 'for a in "$@"; do [[ $a == --job-name=c ]] && { kill -9 "$PPID"; exit; }; done; exec "$REAL" "$@"'
    )
    ran = project.finish(project.start("chain", "a", "b", "c", "--key", "k"))
    assert ran.code == -signal.SIGKILL
    project.unwrap()
    assert not (project.root / "order").exists()
    shown = project.gpuq("chain", "a", "b", "c", "--key", "k", "--json", patience=0).ok().json
    assert [one["repeated"] for one in shown["attempts"]] == [True, True, False]
    project.gpuq("wait", "a", "b", "c", "--timeout", "60").ok()
    assert (project.root / "order").read_text().split() == ["a", "b", "c"]
    ids = [one["job_id"] for one in shown["attempts"]]
    ran = project.gpuq("chain", "a", "b", "c", "--key", "k", "--parsable").ok()
    assert [int(line) for line in ran.stdout.split()] == ids
    assert [project.numbers(tag) for tag in "abc"] == [[1], [1], [1]]


def test_one_key_makes_one_chain_also_at_once(slurm_shared: Embedded, project: Project) -> None:
    for tag in "abc":
        project.run(tag, ORDER)
    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(project.gpuq, "chain", "a", "b", "c", "--key", "k", "--parsable") for _ in range(6)]
    assert len({call.result().ok().stdout for call in calls}) == 1
    project.gpuq("wait", "a", "b", "c", "--timeout", "60").ok()
    assert (project.root / "order").read_text().split() == ["a", "b", "c"]
    assert [project.numbers(tag) for tag in "abc"] == [[1], [1], [1]]


def test_interrupted(slurm_shared: Embedded, project: Project, tmp_path: Path) -> None:
    for tag in "ab":
        project.run(tag, ORDER)
    before = project.listing()
    mark = tmp_path / "mark"
    project.wrap(
        "sbatch",
        f'for a in "$@"; do [[ $a == --job-name=b ]] && {{ touch {mark}; exec sleep 600; }}; done; exec "$REAL" "$@"',
    )
    process = project.start("chain", "a", "b")
    until(mark.exists, project.listing)
    process.send_signal(signal.SIGINT)
    ran = project.finish(process)
    assert ran.code == 130, ran
    assert "what Slurm had accepted was cancelled" in ran.stderr
    assert slurm_shared.queued() == ""
    project.unwrap()
    for _ in range(2):  # one answer that does not have the job is no proof yet
        project.gpuq("queue", patience=0).ok()
    assert project.listing() == before
    assert not (project.root / "order").exists()


@pytest.mark.one_release
def test_interrupted_when_slurm_has_taken_the_last(slurm_shared: Embedded, project: Project, tmp_path: Path) -> None:
    """It would wait for nothing once the first is cancelled, and run."""
    for tag in "ab":
        project.run(tag, ORDER)
    before = project.listing()
    mark = tmp_path / "mark"
    project.wrap("sbatch", f'"$REAL" "$@"; case "$*" in *--job-name=b*) touch {mark}; exec sleep 600;; esac')
    process = project.start("chain", "a", "b")
    until(mark.exists, project.listing)
    process.send_signal(signal.SIGINT)
    ran = project.finish(process)
    assert ran.code == 130, ran
    assert slurm_shared.queued() == ""
    assert project.listing() == before
    assert not (project.root / "order").exists()


def test_a_key_outlives_what_the_chain_waited_for(slurm_shared: Embedded, project: Project) -> None:
    for tag in ("parent", "a", "b"):
        project.run(tag, "exit 1" if tag == "parent" else "true")
    project.submit("parent", "--hold")
    args = ("chain", "a", "b", "--after-ok", "parent", "--key", "k", "--parsable")
    first = project.gpuq(*args).ok().stdout
    project.gpuq("release", "parent").ok()
    assert project.ended("a").outcome == "CANCELLED"
    assert project.gpuq(*args).ok().stdout == first


def test_hold_holds_the_first_and_its_release_lets_the_chain_go(slurm_shared: Embedded, project: Project) -> None:
    for tag in "ab":
        project.run(tag, ORDER)
    project.gpuq("chain", "a", "b", "--hold").ok()
    states = [row["state"] for row in project.gpuq("queue", "--json").ok().json["jobs"]]
    assert states == ["PENDING", "PENDING"]
    assert [project.record(tag).request.hold for tag in "ab"] == [True, False]
    project.gpuq("release", "a").ok()  # lets the chain go, as the help of --hold says
    project.gpuq("wait", "a", "b", "--timeout", "60").ok()
    assert (project.root / "order").read_text().split() == ["a", "b"]


def test_the_whole_chain_waits_for_another_job(slurm_shared: Embedded, project: Project) -> None:
    for tag in "ab":
        project.run(tag)
    other = slurm_shared.sbatch("true", "--hold")
    ran = project.gpuq("chain", "a", "b", "--after", "last").ok()
    assert f"last is job {other}" in ran.stderr
    assert project.record("a").dependencies == (f"afterany:{other}",)
    assert project.record("b").dependencies == (f"afterany:{project.record('a').job_id}",)


def test_a_dry_run(slurm_shared: Embedded, project: Project) -> None:
    for tag in "ab":
        project.run(tag)
    before = project.listing()
    assert len(project.gpuq("chain", "a", "b", "--dry-run").ok().stdout.splitlines()) == 2
    shown = project.gpuq("chain", "a", "b", "--dry-run", "--json").ok().json
    assert [one["tag"] for one in shown["attempts"]] == ["a", "b"]
    shown = project.gpuq("chain", "a", "b", "a", "--dry-run", "--json").ok().json
    assert [one["attempt"] for one in shown["attempts"]] == [1, 1, 2]
    first, second = project.gpuq("chain", "a", "a", "--ok", "--dry-run").ok().stderr.splitlines()
    assert "when the one before" not in first
    assert second.startswith("would submit a attempt 2: ")
    assert second.endswith(", when the one before has succeeded")
    assert project.listing() == before
