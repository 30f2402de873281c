"""The gate (job_submit.lua) on real Slurm: in a partition with the GPU a job has exactly one GPU, whatever asks for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuq.adapters import proc
from gpuq.adapters.embedded import start
from gpuq.core.host.partitions import partitions
from gpuq.core.host.spec import Gpu, HostSpec
from tests.embedded import CAN_CONFINE, Embedded
from tests.gpuq_cli import Project, until

pytestmark = pytest.mark.slurm_options(gate=True, cpus=16, memory=48000)

QUIET = ("--output=/dev/null", "--wrap=true")
REFUSED = (
    ((), "asks for no GPU"),
    (("--gres=gpu:0",), "asks for no GPU"),
    (("--gres=none",), "asks for no GPU"),
    (("--gpus=0",), "asks for no GPU"),
    (("--partition=bg",), "partition bg: this job asks for no GPU"),
    (("--gres=gpu:2",), "asks for 2"),
    (("--gres=gpu:1,gpu:1",), "asks for 2"),
    (("--gpus=2",), "asks for 2"),
    (("--gpus-per-node=2",), "asks for 2"),
    (("--gres=gpu:1", "--gpus=2"), "asks for 2"),
    (("--ntasks=1", "--gpus-per-task=1"), "per task"),
    (("--gres=gpu:1", "--exclusive"), "--exclusive takes the whole host"),
    (("--gres=gpu:1", "--exclusive=user"), "--exclusive takes the whole host"),
    (("--partition=cpu", "--exclusive"), "--exclusive takes the whole host"),
    (("--partition=cpu", "--gres=gpu:1"), "without a GPU"),
    (("--partition=gpu,cpu", "--gres=gpu:1"), "name one partition"),
)
TAKEN = (
    ("--gres=gpu:1",),
    ("--gres=gpu",),
    ("--gpus=1",),
    ("--gpus-per-node=1",),
    ("--gres=gpu:1", "--oversubscribe"),
    ("--partition=bg", "--gres=gpu:1"),
    ("--partition=cpu",),
)


def test_exactly_one_gpu_or_the_line_to_add(slurm: Embedded) -> None:
    for options, words in REFUSED:
        ran = slurm.run("sbatch", *options, *QUIET)
        assert not ran.ok, f"{options} was taken: {ran.stdout}"
        assert words in ran.stderr, f"{options}: {ran.stderr}"
        assert "gpu:1" in ran.stderr or "leave" in ran.stderr or "name one" in ran.stderr, ran.stderr
    plain = slurm.run("sbatch", *QUIET).stderr
    assert "add --gres=gpu:1 to the command, or #SBATCH --gres=gpu:1 to the script" in plain
    assert "--partition=cpu" in plain
    for program in (("srun", "true"), ("salloc", "true"), ("sbatch", "--test-only", "--wrap=true")):
        ran = slurm.run(*program)
        assert not ran.ok, program
        assert "add --gres=gpu:1" in ran.stderr, program
    assert slurm.queued() == ""
    for options in TAKEN:
        assert slurm.run("sbatch", "--hold", *options, *QUIET).ok, options
    assert slurm.run("srun", "--gres=gpu:1", "true").ok
    assert slurm.run("srun", "--partition=cpu", "true").ok

    waiting = int(slurm.must("sbatch", "--parsable", "--hold", "--gres=gpu:1", *QUIET))
    work = int(slurm.must("sbatch", "--parsable", "--hold", "--partition=cpu", *QUIET))
    for job, change in (
        (waiting, "Gres=gpu:2"),
        (waiting, "Gres=gpu:0"),
        (waiting, "Gres=none"),
        (waiting, "Gres="),
        (waiting, "Partition=cpu"),
        (waiting, "OverSubscribe=NO"),
        (work, "Gres=gpu:1"),
        (work, "Partition=gpu"),
    ):
        ran = slurm.run("scontrol", "update", f"JobId={job}", change)
        assert not ran.ok, f"{change} was taken"
    for change in ("Gres=gpu:1", "Partition=bg", "TimeLimit=3", "MinMemoryNode=100", "Nice=3"):
        ask = ("scontrol", "update", f"JobId={waiting}", change)
        # 24.11 answers "Resource temporarily unavailable" now and then
        until(lambda ask=ask: slurm.run(*ask).ok, lambda ask=ask: slurm.run(*ask).stderr)  # type: ignore[misc]
    # More memory costs more CPUs, and where those are counted as licenses (24.11, 25.11) the licenses follow.
    counted = slurm.field(work, "Licenses").startswith("cpushare:")
    for change in ("MinMemoryNode=9000", "NumCPUs=6", "Licenses=", "MinMemoryNode=300"):
        ask = ("scontrol", "update", f"JobId={work}", change)
        until(lambda ask=ask: slurm.run(*ask).ok, lambda ask=ask: slurm.run(*ask).stderr)  # type: ignore[misc]
        cpus, licenses = slurm.field(work, "NumCPUs"), slurm.field(work, "Licenses")
        assert licenses == f"cpushare:{cpus}" or not counted, f"{change}: {cpus} CPUs and {licenses}"
    if counted:
        for change in ("MinMemoryNode=40000", "NumCPUs=12", "NumTasks=2", "MinMemoryNode=0"):
            assert not slurm.run("scontrol", "update", f"JobId={work}", change).ok, change
    slurm.must("scontrol", "release", str(work))
    for job in (waiting, work):  # a new nice value lets a held job go
        assert slurm.wait_state(job, "COMPLETED", "FAILED") == "COMPLETED"


@pytest.mark.one_release
def test_a_gate_that_breaks_lets_nothing_through(slurm: Embedded) -> None:
    """Slurm accepts a job when its script fails. The script is read again at the next submission."""
    whole = slurm.layout.job_submit.read_text()
    mark = "local names = job.partition\n"
    assert whole.count(mark) == 1
    for number, fault in enumerate(("error('x')\n", "local bad = slurm.NO_SUCH .. 'x'\n", "do return 'text' end\n")):
        slurm.layout.job_submit.write_text(whole.replace(mark, fault + mark))
        os.utime(slurm.layout.job_submit, (number + 2e9, number + 2e9))  # newer than before, whatever the clock says
        ran = slurm.run("sbatch", "--gres=gpu:1", *QUIET)
        assert not ran.ok, fault
        assert "the gate of this host" in ran.stderr
    slurm.layout.job_submit.write_text(whole)
    os.utime(slurm.layout.job_submit, (2.1e9, 2.1e9))
    slurm.must("sbatch", "--gres=gpu:1", *QUIET)


@pytest.mark.slurm_options(cpus=4, memory=9000)
def test_gpuq_passes_it_and_cpu_work_starts_beside_a_waiting_gpu_job(slurm: Embedded, project: Project) -> None:
    project.run("train", "sleep 600")
    project.run("table", "sleep 600")
    first = project.submit("train")
    slurm.wait_state(first, "RUNNING")
    waits = project.submit("train")
    work = project.gpuq("submit", "table", "--cpu-only", "--time", "5:00:00", "--json").ok().json
    assert work["request"]["partition"] == "cpu"
    slurm.wait_state(work["job_id"], "RUNNING")
    assert slurm.job_state(waits) == "PENDING"
    # The share is full: the next one waits, and keeps the GPU from nobody.
    more = project.submit("table", "--cpu-only", "--time", "5:00:00", "--cpus", "1", "--mem", "2000M")
    slurm.must("scancel", str(first))
    slurm.wait_state(waits, "RUNNING")
    assert slurm.job_state(more) == "PENDING"
    listed = project.gpuq("queue", "--json").ok().json["jobs"]
    assert [row["partition"] for row in listed if row["id"] == str(more)] == ["cpu"]
    table = [line.split() for line in project.gpuq("queue").ok().stdout.splitlines()]
    assert table[0][4] == "PART"
    assert {row[1]: row[4] for row in table[1:]} == {str(waits): "gpu", str(work["job_id"]): "cpu", str(more): "cpu"}
    assert "elapsed" not in project.gpuq("status", "table").ok().stdout.split(f"(job {more})")[1]
    assert "Resources" not in project.gpuq("why", str(waits)).ok().stdout
    refused = project.gpuq("submit", "table", "--cpu-only", "--cpus", "3").exits(5)
    assert "partition cpu" in refused.stderr


@pytest.mark.slurm_options(cpus=8, memory=8000)
def test_work_without_a_gpu_never_takes_what_the_default_job_needs(slurm: Embedded) -> None:
    """More memory costs more CPUs, so the cap on CPUs is one on memory, too: for all jobs together."""
    for _ in range(4):
        slurm.must("sbatch", "--partition=cpu", "-c1", "--mem=1500M", "--output=/dev/null", "--wrap=sleep 600")
    until(
        lambda: "RUNNING" in slurm.must("squeue", "-h", "-o", "%T"),
        lambda: slurm.must("squeue", "--all"),
    )
    job = int(
        slurm.must(
            "sbatch", "--parsable", "--gres=gpu:1", "-c6", "--mem=5900M", "--output=/dev/null", "--wrap=sleep 600"
        )
    )
    slurm.wait_state(job, "RUNNING")
    assert slurm.must("squeue", "-h", "-t", "R", "-p", "cpu", "-o", "%C").split() == ["2"]


def test_the_epilog_runs_and_is_no_shell_error(slurm: Embedded) -> None:
    checked = proc.run(["sh", "-n", str(slurm.layout.epilog)], timeout=10)
    assert checked.ok, checked.stderr
    for _ in range(2):
        job = slurm.sbatch("true", "--gres=gpu:1", "--output=/dev/null")
        slurm.wait_state(job, "COMPLETED")
    assert "DRAIN" not in slurm.must("scontrol", "show", "node", slurm.node)


@pytest.mark.skipif(not CAN_CONFINE, reason="needs root and writable control groups")
def test_a_gpu_that_is_not_for_jobs_is_closed_to_them(slurm: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `gpuq host plan --gpu 1` renders it on a host with two. Else CUDA_VISIBLE_DEVICES=0 would mean the first of them,
    which every job could open."""
    one = start._spec

    def second(*args: Any) -> HostSpec:
        spec = one(*args)
        mine = spec.gpus[0].file.with_name("nvidia1")
        if not mine.exists():
            os.mknod(mine, stat.S_IFCHR | 0o666, os.makedev(195, 1))
            mine.chmod(0o666)
        return msgspec.structs.replace(spec, gpus=(Gpu(mine),), kept=(spec.gpus[0].file,))

    slurm.down(cancel=True)
    monkeypatch.setattr(start, "_spec", second)
    slurm.up()
    for options in (("--gres=nic:1",), ("--gres=gpu:1,nic:1",), ("--partition=cpu", "--gres=nic:1")):
        ran = slurm.run("sbatch", *options, *QUIET)
        assert not ran.ok, options
        assert "the GPU that no job gets" in ran.stderr, ran.stderr
    proof = Path(__file__).parents[2] / "scripts" / "prove_slurm.sh"
    proved = proc.run([str(proof)], timeout=120, env=slurm.env | {"SUDO_USER": "root"})
    assert proved.ok, proved.stdout + proved.stderr
    assert "a job with the GPU may open it" in proved.stdout
    assert f"nor may anybody's job open {slurm.layout.device_dir}/nvidia0" in proved.stdout
    (slurm.layout.device_dir / "nvidia1").unlink()


@pytest.mark.one_release
@pytest.mark.skipif(os.geteuid() != 0, reason="needs mknod")
def test_each_of_two_gpus_has_a_partition_of_its_own(slurm: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `gpuq host plan --gpu 0 --gpu 1` renders it; a second device file stands in for the second GPU."""
    one = start._spec

    def two(*args: Any) -> HostSpec:
        spec = one(*args)
        second = spec.gpus[0].file.with_name("nvidia1")
        if not second.exists():
            os.mknod(second, stat.S_IFCHR | 0o666, os.makedev(195, 1))
        return msgspec.structs.replace(
            spec,
            gpus=(Gpu(spec.gpus[0].file, "gpu0"), Gpu(second, "gpu1")),
            partitions=partitions(spec.cpus, spec.real_memory, kinds=("gpu0", "gpu1"), numbers=(0, 1)),
        )

    slurm.down(cancel=True)
    monkeypatch.setattr(start, "_spec", two)
    slurm.up()
    for options, wanted in (
        (("--gres=gpu:1",), "gpu:gpu0:1"),
        (("--partition=bg", "--gres=gpu:1"), "gpu:gpu0:1"),
        (("--partition=gpu1", "--gres=gpu:1"), "gpu:gpu1:1"),
        (("--partition=gpu1", "--gpus=1"), "gpu:gpu1:1"),
        (("--partition=gpu1", "--gres=gpu:gpu1:1"), "gpu:gpu1:1"),
    ):
        job = int(slurm.must("sbatch", "--parsable", "--hold", *options, *QUIET))
        asked = slurm.field(job, "TresPerNode") or slurm.field(job, "TresPerJob")
        assert asked.endswith(wanted), f"{options}: {asked}"
    for options in (
        ("--partition=gpu1", "--gres=gpu:gpu0:1"),
        ("--partition=gpu,gpu1", "--gres=gpu:1"),
        ("--partition=gpu1",),
        ("--partition=gpu1", "--gres=gpu:2"),
    ):
        assert not slurm.run("sbatch", *options, *QUIET).ok, options
    jobs = [
        slurm.sbatch("sleep 600", f"--partition={name}", "--gres=gpu:1", "-c1", "--mem=100M", "--output=/dev/null")
        for name in ("gpu", "gpu1")
    ]
    for job in jobs:
        slurm.wait_state(job, "RUNNING")
    (slurm.layout.device_dir / "nvidia1").unlink()
