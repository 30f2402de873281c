"""`gpuq submit` on a real Slurm."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from gpuq.adapters import proc
from tests.embedded import Embedded
from tests.gpuq_cli import SOURCE, Project

ENVIRONMENT = 'env -0 > "$GPUQ_RUN_DIR/env"; pwd > "$GPUQ_RUN_DIR/pwd"'


def environment_of(run: Path) -> dict[str, str]:
    pairs = (run / "env").read_bytes().decode(errors="surrogateescape").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


def test_a_bare_submission_fits_the_host_and_runs_with_one_gpu(slurm_shared: Embedded, tmp_path: Path) -> None:
    project = Project(tmp_path / "bare", config=None)
    run = project.run("dino/lr3e-4", f"{ENVIRONMENT}; echo hello")
    ran = project.gpuq("submit", "dino/lr3e-4").ok()
    ended = project.ended("dino/lr3e-4")
    record = project.record("dino/lr3e-4")
    assert ran.stdout.startswith(f"Submitted dino/lr3e-4 attempt 1 as job {record.job_id} (1 GPU, ")
    assert ended.outcome == "SUCCEEDED"
    env = environment_of(run)
    assert env["CUDA_VISIBLE_DEVICES"] == "0"
    assert env["SLURM_JOB_NAME"] == "dino/lr3e-4"
    assert env["GPUQ_TAG"] == "dino/lr3e-4"
    assert env["GPUQ_ATTEMPT"] == "1"
    assert env["GPUQ_RUN_DIR"] == str(run)
    assert env["GPUQ_PROJECT"] == str(project.root)
    assert env["PYTHONUNBUFFERED"] == "1"
    assert (run / "pwd").read_text().strip() == str(project.root)
    assert project.log("dino/lr3e-4") == "hello\n"
    assert record.log == str(run / "slurm/attempt1.out")
    assert (run / "slurm/attempt1.sh").stat().st_mode & 0o111
    assert record.submitted is not None
    assert ended.start is not None
    assert ended.end is not None


def test_cpu_only_gets_no_gpu(slurm_shared: Embedded, project: Project) -> None:
    run = project.run("a", ENVIRONMENT)
    job = project.submit("a", "--cpu-only")
    project.ended("a")
    assert slurm_shared.field(job, "TresPerNode") == ""
    assert "CUDA_VISIBLE_DEVICES" not in environment_of(run)
    assert project.record("a").request.gpu is False


def test_nothing_of_an_outer_allocation_reaches_the_job(slurm_shared: Embedded, project: Project) -> None:
    run = project.run("a", ENVIRONMENT)
    outer = {
        "SLURM_CPU_BIND": "verbose",
        "SLURM_MEM_PER_CPU": "17",
        "SLURM_CPUS_PER_TASK": "31",
        "SLURM_ARRAY_JOB_ID": "4711",
        "SBATCH_PARTITION": "nowhere",
        "SBATCH_ARRAY_INX": "1-5",
        "SRUN_DEBUG": "7",
        "PMIX_RANK": "3",
        "PMI_FD": "9",
        "PYTHONUNBUFFERED": "",
        "MINE": "kept",
    }
    project.gpuq("submit", "a", env=outer).ok()
    project.ended("a")
    env = environment_of(run)
    for name in ("SLURM_ARRAY_JOB_ID", "SBATCH_PARTITION", "SBATCH_ARRAY_INX", "SRUN_DEBUG", "PMIX_RANK", "PMI_FD"):
        assert name not in env
    assert env.get("SLURM_CPU_BIND") != "verbose"
    assert env.get("SLURM_CPUS_PER_TASK") == "1"
    assert env.get("SLURM_MEM_PER_CPU") is None
    assert env["PYTHONUNBUFFERED"] == ""
    assert env["MINE"] == "kept"


@pytest.mark.parametrize(
    "name",
    [
        "100% sure",
        "with%j and blanks",
        "naïve-ü",
        "new\nline",
        "quo'te\"s $HOME",
        "#hash",
    ],
)
def test_project_paths(slurm_shared: Embedded, tmp_path: Path, name: str) -> None:
    project = Project(tmp_path / name)
    run = project.run("sub/a", f"{ENVIRONMENT}; echo out; echo err >&2")
    project.gpuq("submit", "sub/a").ok()
    assert project.ended("sub/a").outcome == "SUCCEEDED"
    assert sorted(project.log("sub/a").split()) == ["err", "out"]
    assert environment_of(run)["GPUQ_PROJECT"] == str(project.root)
    shown = project.gpuq("status", "sub/a", "--json").ok().json
    assert shown["runs"][0]["attempts"][0]["log"] == str(run / "slurm/attempt1.out")


def test_a_project_path_that_is_no_text_is_refused(slurm_shared: Embedded, tmp_path: Path) -> None:
    project = Project(tmp_path / "\udcff")
    project.run("a")
    before = project.listing()
    assert "is not UTF-8" in project.gpuq("submit", "a").exits(5).stderr
    assert project.listing() == before
    project.gpuq("status", "--json").ok()
    project.gpuq("queue").ok()


def test_a_project_path_with_a_backslash_is_refused(slurm_shared: Embedded, tmp_path: Path) -> None:
    project = Project(tmp_path / "back\\slash")
    project.run("a")
    before = project.listing()
    assert "drops backslashes" in project.gpuq("submit", "a").exits(5).stderr
    assert project.listing() == before


def test_a_working_directory_that_is_gone(slurm_shared: Embedded, project: Project) -> None:
    gone = project.root / "gone"
    gone.mkdir()
    ran = project.gpuq("queue", cwd=gone, prefix=("sh", "-c", f'rmdir {gone}; exec "$@"', "sh")).exits(2)
    assert "does not exist any more" in ran.stderr


def test_a_job_submits_another(slurm_shared: Embedded, project: Project) -> None:
    project.run("first", f'cd "$GPUQ_PROJECT" && PYTHONPATH={SOURCE} {sys.executable} -m gpuq submit second --json')
    run = project.run("second", ENVIRONMENT)
    project.gpuq("submit", "first", "--wait").ok()
    project.gpuq("wait", "second").ok()
    env = environment_of(run)
    assert (env["GPUQ_TAG"], env["SLURM_JOB_NAME"]) == ("second", "second")
    assert json.loads(project.log("first"))["job_id"] == int(env["SLURM_JOB_ID"])


def test_a_run_directory_may_be_a_symlink(slurm_shared: Embedded, project: Project, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    project.run("other")
    (project.runs / "other").rename(place)
    (project.runs / "a").symlink_to(place)
    project.submit("a")
    assert project.ended("a").outcome == "SUCCEEDED"
    assert (place / "slurm/attempt1.json").exists()
    assert [run["tag"] for run in project.gpuq("status", "--json").ok().json["runs"]] == ["a"]


def test_a_path_in_place_of_the_tag_is_told(slurm_shared: Embedded, project: Project) -> None:
    project.run("dino/a")
    for text in ("runs/dino/a", "./runs/dino/a", str(project.runs / "dino/a"), "runs/dino/a/job.sh"):
        ran = project.gpuq("submit", text)
        assert ran.code in {2, 6}, ran
        assert "the TAG of that path is dino/a" in ran.stderr
    project.gpuq("submit", "dino/a/").ok()
    assert project.numbers("dino/a") == [1]


def test_from_a_subdirectory_and_without_a_project_file(slurm_shared: Embedded, tmp_path: Path) -> None:
    project = Project(tmp_path / "p", config=None)
    run = project.run("a", ENVIRONMENT)
    (project.root / ".git").mkdir()
    project.gpuq("submit", "a", "--mem", "100M", cwd=run).ok()
    project.ended("a")
    assert environment_of(run)["GPUQ_PROJECT"] == str(project.root)


def test_settings_from_every_layer(slurm_shared: Embedded, project: Project) -> None:
    user = Path(os.environ["XDG_CONFIG_HOME"]) / "gpuq"
    user.mkdir()
    (user / "config.toml").write_text('[submit]\nnice = 3\nmem = "70M"\n')
    project.run("a", "#SBATCH --time=7\ntrue", config='[results]\nfiles = ["x"]\n')
    ran = project.gpuq("submit", "a", "--hold", "--json", env={"GPUQ_MEM": "90M"}).ok()
    request = ran.json["request"]
    assert request["nice"] == 3
    assert request["memory"] == 90 * 2**20
    assert request["time_limit"] == 420
    assert request["results"] == ["x"]
    job = ran.json["job_id"]
    assert slurm_shared.field(job, "TimeLimit") == "00:07:00"
    assert slurm_shared.field(job, "MinMemoryNode") == "90M"
    assert slurm_shared.field(job, "Nice") == "3"
    (user / "config.toml").write_text("[submit]\nmemm = 3\n")
    assert "did you mean 'mem'" in project.gpuq("submit", "a").exits(3).stderr


REFUSED = [
    (("--mem", "9999G"), 5, "10238976M"),
    (("--cpus", "4096"), 5, "4096 CPUs are asked for"),
    (("--time", "30-0"), 5, "7-00:00:00"),
    (("--time", "UNLIMITED"), 5, "no time limit is asked for"),
    (("--partition", "nope"), 5, "(there are: gpu"),
    (("--after", "999999"), 6, "job 999999 is known neither"),
    (("--after-ok", "999999"), 5, "nobody knows any more"),
    (("--after", "nosuch"), 6, "there is no run nosuch"),
    (("--time", "0"), 2, "a time limit of 0"),
    (("--mem", "0"), 2, "a size of 0"),
    (("--cpus", "0"), 2, "at least 1"),
    (("--key", " "), 2, "--key is empty"),
]


@pytest.mark.parametrize(("args", "code", "words"), REFUSED)
def test_a_refusal_leaves_nothing(
    slurm_shared: Embedded, project: Project, args: tuple[str, ...], code: int, words: str
) -> None:
    project.run("a")
    before = project.listing()
    jobs = slurm_shared.must("squeue", "-h", "-t", "all", "-o", "%A")
    assert words in project.gpuq("submit", "a", *args).exits(code).stderr
    assert project.listing() == before
    assert slurm_shared.must("squeue", "-h", "-t", "all", "-o", "%A") == jobs


@pytest.mark.parametrize("earlier", [False, True])
def test_a_refusal_by_slurm_itself_leaves_nothing(slurm_shared: Embedded, project: Project, earlier: bool) -> None:
    project.run("sub/a", "#SBATCH --constraint=warp\ntrue")
    if earlier:
        script = (project.runs / "sub/a/job.sh").read_text()
        project.run("sub/a")
        project.submit("sub/a", "--hold")
        (project.runs / "sub/a/job.sh").write_text(script)
    before = project.listing()
    ran = project.gpuq("submit", "sub/a").exits(5)
    assert "nvalid feature" in ran.stderr
    assert project.listing() == before
    project.run("sub/a")
    project.submit("sub/a", "--hold")
    assert project.numbers("sub/a")[-1] == 1 + earlier


def test_a_job_that_lost_its_gpu_on_the_way_is_cancelled(slurm_shared: Embedded, project: Project) -> None:
    project.run("a", "touch $GPUQ_RUN_DIR/ran; sleep 60")
    before = project.listing()
    project.wrap(
        "sbatch", 'args=(); for a in "$@"; do [[ $a == --gres=* ]] || args+=("$a"); done; "$REAL" "${args[@]}"'
    )
    ran = project.gpuq("submit", "a").exits(5)
    assert "without its one GPU" in ran.stderr
    assert slurm_shared.queued().strip() == ""
    if not (project.runs / "a/ran").exists():  # it had not begun
        assert project.listing() == before


def test_banner_lines_of_a_wrapper(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.wrap("sbatch", 'echo "Welcome to the cluster, node 12"; "$REAL" "$@"; echo "Have 3 nice days"')
    job = project.submit("a", "--hold")
    assert slurm_shared.field(job, "JobName") == "a"


def test_a_wrapper_that_prints_no_id_is_looked_up(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    project.wrap("sbatch", '"$REAL" "$@" >/dev/null')
    job = project.submit("a", "--hold")
    assert slurm_shared.field(job, "JobName") == "a"
    assert slurm_shared.must("squeue", "-h", "-o", "%j").split() == ["a"]


def test_dry_run_reserves_nothing(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    before = project.listing()
    ran = project.gpuq("submit", "a", "--dry-run", "--time", "24:00").ok()
    assert "--gres=gpu:1" in shlex.split(ran.stdout)
    assert "24 minutes" in ran.stderr
    shown = project.gpuq("submit", "a", "--dry-run", "--json").ok().json
    assert shown["schema"] == "gpuq.submit/1"
    assert shown["attempt"] == 1
    assert project.listing() == before
    assert slurm_shared.queued() == ""


def test_json_and_parsable(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    shown = project.gpuq("submit", "a", "--hold", "--json").ok().json
    assert shown["schema"] == "gpuq.submit/1"
    assert (shown["tag"], shown["attempt"], shown["dry_run"], shown["repeated"]) == ("a", 1, False, False)
    ran = project.gpuq("submit", "a", "--hold", "--parsable").ok()
    assert ran.stdout == f"{shown['job_id'] + 1}\n"


def test_wait_gives_the_exit_code_of_the_outcome(slurm_shared: Embedded, project: Project) -> None:
    project.run("good")
    project.run("bad", "exit 3")
    project.gpuq("submit", "good", "--wait").ok()
    ran = project.gpuq("submit", "bad", "--wait", "--json").exits(20)
    assert ran.json["outcome"] == "FAILED"
    assert ran.json["outcome_notes"] == ["exit code 3"]


def test_resubmit_asks_for_the_same(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    assert "no attempt to repeat" in project.gpuq("resubmit", "a").exits(6).stderr
    project.submit("a", "--mem", "77M", "--time", "9", "--cpu-only", "--nice", "5")
    project.ended("a")
    project.gpuq("resubmit", "a", "--nice", "6", "--hold").ok()
    first, second = project.record("a").request, project.record("a", 2).request
    assert (second.memory, second.time_limit, second.gpu) == (first.memory, first.time_limit, False)
    assert second.nice == 6


def test_two_projects_share_the_queue(slurm_shared: Embedded, tmp_path: Path) -> None:
    one, two = Project(tmp_path / "one"), Project(tmp_path / "two")
    for project in (one, two):
        project.run("a", "sleep 0.2; pwd")
    processes = [project.start("submit", "a") for project in (one, two) for _ in range(2)]
    for project, process in zip((one, one, two, two), processes, strict=True):
        project.finish(process).ok()
    for project in (one, two):
        for number in (1, 2):
            project.ended("a", number)
            assert project.log("a", number).strip() == str(project.root)
    ids = [project.record("a", number).job_id for project in (one, two) for number in (1, 2)]
    assert len(set(ids)) == 4


def test_the_signal_comes_before_the_limit(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    job = project.submit("a", "--signal-before", "300", "--hold")
    # SIGTERM to the batch shell only
    assert json.dumps(project.record("a").argv).count("--signal=B:TERM@300") == 1
    assert slurm_shared.field(job, "JobState") == "PENDING"


def test_the_shim(slurm_shared: Embedded, project: Project, tmp_path: Path) -> None:
    project.run("a")
    first = project.submit("a", "--hold")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "gpuq"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpuq "$@"\n')
    command.chmod(0o755)
    result = proc.run(
        [str(SOURCE / "scripts/gpu_submit.sh"), "a", str(first), "80M"],
        timeout=60,
        cwd=project.root,
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(SOURCE)},
    )
    assert result.ok, result.stderr
    job = int(result.stdout)
    assert result.stdout == f"{job}\n"
    assert slurm_shared.field(job, "MinMemoryNode") == "80M"
    assert f"afterany:{first}" in slurm_shared.field(job, "Dependency")


def test_root_is_warned_on_a_system_wide_slurm_only(slurm_shared: Embedded, project: Project) -> None:
    project.run("a")
    ran = project.gpuq("submit", "a", "--hold").ok()
    assert "you are root" not in ran.stderr
    state = slurm_shared.layout.state_file
    try:
        state.rename(state.with_name("aside"))  # what tells an embedded Slurm from another
        ran = project.gpuq("submit", "a", "--hold").ok()
    finally:
        state.with_name("aside").rename(state)
    assert ("you are root" in ran.stderr) == (os.geteuid() == 0)
