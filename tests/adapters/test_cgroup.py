"""Find and read a job's memory cgroup: trees recorded on real hosts, and what no host here shows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gpuq.adapters.cgroup import read
from gpuq.adapters.cgroup.locate import Place, find, jobs, of_process, version_of
from tests import DATA

TREES = DATA / "cgroup"
MIB = 1024**2


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def v2_job(directory: Path, anon: int = 7, limit: str = "max") -> None:
    write(directory / "memory.stat", f"anon {anon}\nfile 5\nshmem 2\nkernel 0\n")
    write(directory / "memory.current", "14\n")
    write(directory / "memory.max", f"{limit}\n")


# -- recorded --------------------------------------------------------------------------------------------------------


def test_v1_as_recorded() -> None:
    """Slurm 22.05, Linux 6.18, no systemd: 100 MiB anonymous, 50 MiB shared, 256 MiB of a mapped file, --mem=1G."""
    tree = TREES / "v1"
    pids = [int(path.name) for path in (tree / "proc").iterdir() if path.is_dir()]
    place = find(1, node="gpuqrec", root=tree / "cgroup", proc_root=tree / "proc")
    assert place
    assert place.path.endswith("/memory/slurm_gpuqrec/uid_0/job_1")
    assert {of_process(pid, root=tree / "cgroup", proc_root=tree / "proc") for pid in pids} == {place}
    seen = read.read(place)
    assert seen
    assert seen.held == pytest.approx(150 * MIB, rel=0.1)
    assert seen.cache == pytest.approx(256 * MIB, rel=0.02)
    assert seen.limit == 1024 * MIB
    assert seen.peak
    assert seen.peak > 400 * MIB
    assert (seen.oom_kill, seen.oom, seen.stalled, seen.untold) == (0, None, None, 0)
    assert read.glance(place) == seen.held
    assert set(pids) <= set(read.processes(place)), "the job's own cgroup.procs is empty"
    assert read.available(tree / "proc")


@pytest.mark.parametrize(("name", "directory"), [("v2", "job_1"), ("v2-sluid", "s81DM8M3NFHV00")])
def test_v2_as_recorded(name: str, directory: str) -> None:
    """Under systemd, Slurm 24.11 (Linux 6.12) and 26.05 (7.2): 100 MiB anonymous, 60 shared, 300 mapped, --mem=600M."""
    tree = TREES / name
    root, proc_root = tree / "cgroup", tree / "proc"
    pids = [int(path.name) for path in proc_root.iterdir() if path.is_dir()]
    place = find(1, node="gpuhost", pids=pids, root=root, proc_root=proc_root)
    assert place
    assert place.path.endswith(f"/system.slice/gpuhost_slurmstepd.scope/{directory}")
    assert {of_process(pid, root=root, proc_root=proc_root) for pid in pids} == {place}
    seen = read.read(place)
    assert seen
    assert seen.held == pytest.approx(160 * MIB, rel=0.1)
    assert seen.cache == pytest.approx(300 * MIB, rel=0.02)
    assert seen.limit == 600 * MIB
    assert seen.peak
    assert seen.peak > 440 * MIB
    assert (seen.oom_kill, seen.oom, seen.stalled, seen.untold) == (0, 0, 0.0, 0)
    assert read.glance(place) == seen.held
    assert set(pids) <= set(read.processes(place))
    inner = Place(2, f"{place.path}/step_batch/user/task_0", place.root)
    deep = read.read(inner)
    assert deep
    assert deep.limit == 600 * MIB, "`max` at the task, the job's limit above"


# -- where it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inside",
    [
        "system.slice/n1_slurmstepd.scope/job_12",
        "system.slice/slurmstepd.scope/job_12",
        "n1_slurmstepd.scope/job_12",
        "slurmstepd.scope/job_12",
    ],
)
def test_known_places_of_v2(tmp_path: Path, inside: str) -> None:
    write(tmp_path / "cgroup.controllers", "memory\n")
    v2_job(tmp_path / inside)
    assert find(12, node="n1", root=tmp_path) == Place(2, str(tmp_path / inside), str(tmp_path))
    assert find(1, node="n1", root=tmp_path) is None


@pytest.mark.parametrize("inside", ["slurm_n1/uid_1000/job_12", "slurm/uid_1000/job_12", "system/slurm/uid_0/job_12"])
def test_known_places_of_v1(tmp_path: Path, inside: str) -> None:
    write(tmp_path / "memory" / inside / "memory.stat", "total_rss 1\ntotal_shmem 1\n")
    assert find(12, node="n1", root=tmp_path) == Place(1, str(tmp_path / "memory" / inside), str(tmp_path / "memory"))


def test_the_job_of_another_slurm_is_not_taken(tmp_path: Path) -> None:
    write(tmp_path / "cgroup.controllers")
    v2_job(tmp_path / "system.slice/n2_slurmstepd.scope/job_12")
    assert find(12, node="n1", root=tmp_path) is None


def test_by_a_process_where_the_directory_is_named_by_sluid(tmp_path: Path) -> None:
    write(tmp_path / "cgroup/cgroup.controllers")
    scope = "system.slice/n1_slurmstepd.scope/s8R5M8KJMM0300"
    v2_job(tmp_path / "cgroup" / scope)
    write(tmp_path / "proc/77/cgroup", f"0::/{scope}/step_batch/user/task_0\n")
    found = find(12, node="n1", pids=[1, 77], root=tmp_path / "cgroup", proc_root=tmp_path / "proc")
    assert found == Place(2, str(tmp_path / "cgroup" / scope), str(tmp_path / "cgroup"))


@pytest.mark.parametrize(
    "text",
    [
        "0::/user.slice/session-1.scope\n",
        "0::/../../job_1/step_batch\n",
        "0::/gone/job_1/step_batch\n",
        "",
        "4:memory:/slurm/uid_0/job_1/step_batch\n",
    ],
)
def test_a_process_in_no_job_or_in_one_that_cannot_be_seen(tmp_path: Path, text: str) -> None:
    write(tmp_path / "cgroup/cgroup.controllers")
    write(tmp_path / "proc/self/cgroup", text)
    assert of_process("self", root=tmp_path / "cgroup", proc_root=tmp_path / "proc") is None
    assert of_process("1", root=tmp_path / "cgroup", proc_root=tmp_path / "proc") is None


def test_both_versions_mounted_means_v1_for_memory(tmp_path: Path) -> None:
    write(tmp_path / "unified/cgroup.controllers")
    assert version_of(tmp_path) == 1


def test_all_jobs_of_a_host() -> None:
    def names(tree: str, *nodes: str) -> set[str]:
        return {path.rpartition("/")[2] for path in jobs(nodes, TREES / tree / "cgroup")}

    assert names("v1", "other", "gpuqrec") == {"job_1"}
    assert names("v2", "gpuhost") == {"job_1"}
    assert names("v2-sluid", "gpuhost") == {"s81DM8M3NFHV00"}
    assert names("v2", "other") == names("nothing", "gpuhost") == set()


# -- what it shows ---------------------------------------------------------------------------------------------------


def test_the_limit_is_found_upwards(tmp_path: Path) -> None:
    """memory.max reads `max` at the step, the limit is at the job; a lower one may be above."""
    job = tmp_path / "a/job_1"
    for place, text in ((job / "step_batch", "max"), (job, "1000"), (tmp_path / "a", "2000"), (tmp_path, "5")):
        write(place / "memory.max", f"{text}\n")
    assert read.limit(str(job / "step_batch"), str(tmp_path)) == 1000
    write(tmp_path / "a/memory.max", "500\n")
    assert read.limit(str(job), str(tmp_path)) == 500
    assert read.limit(str(tmp_path), str(tmp_path)) is None


def test_numbers_of_steps_are_added_up_where_the_job_has_none(tmp_path: Path) -> None:
    for step in ("step_batch", "step_0"):
        v2_job(tmp_path / "job_1" / step, limit="64")
        v2_job(tmp_path / "job_1" / step / "user")
    seen = read.read(Place(2, str(tmp_path / "job_1"), str(tmp_path)))
    assert seen
    assert (seen.held, seen.current, seen.limit, seen.peak) == (18, 28, 64, None)
    assert read.glance(Place(2, str(tmp_path / "job_1"), str(tmp_path))) == 18


def test_v1_without_a_hierarchy(tmp_path: Path) -> None:
    """Linux before 5.11 with use_hierarchy=0: `total_` is the directory's own."""
    job = tmp_path / "memory/slurm/uid_0/job_1"
    for place, size in ((job, 0), (job / "step_batch", 1), (job / "step_batch/task_0", 20)):
        write(place / "memory.stat", f"total_rss {size}\ntotal_shmem 0\ntotal_cache 0\n")
        write(place / "memory.use_hierarchy", "0\n")
        write(place / "memory.limit_in_bytes", "4096\n" if place == job else "9223372036854771712\n")
    seen = read.read(Place(1, str(job), str(tmp_path / "memory")))
    assert seen
    assert (seen.held, seen.limit, seen.peak) == (21, 4096, None)


def test_a_kernel_without_a_peak_says_none(tmp_path: Path) -> None:
    v2_job(tmp_path / "job_1")
    seen = read.read(Place(2, str(tmp_path / "job_1"), str(tmp_path)))
    assert seen
    assert (seen.peak, seen.current, seen.stalled, seen.oom_kill) == (None, 14, None, None)


def test_a_cgroup_that_is_gone(tmp_path: Path) -> None:
    v2_job(tmp_path / "job_1")
    place = Place(2, str(tmp_path / "job_1"), str(tmp_path))
    shutil.rmtree(tmp_path / "job_1")
    assert read.read(place) is None
    assert read.glance(place) is None
    assert read.processes(place) == []
    assert read.available(tmp_path) is None


@pytest.mark.parametrize(("tree", "node", "most"), [("v1", "gpuqrec", 4), ("v2", "gpuhost", 3)])
def test_a_look_that_is_taken_twice_a_second_reads_few_files(
    tree: str, node: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = find(1, node=node, root=TREES / tree / "cgroup", proc_root=TREES / tree / "proc")
    assert place
    opened: list[str] = []
    real = os.open

    def counting(path: str, *rest: int) -> int:
        opened.append(path)
        return real(path, *rest)

    monkeypatch.setattr(os, "open", counting)
    assert read.glance(place) is not None
    assert len(opened) <= most, opened


def test_more_processes_than_one_page_of_the_file_holds(tmp_path: Path) -> None:
    """The kernel gives cgroup.procs out in pieces of a page: a single read(2) tells of 500 or so."""
    task = tmp_path / "step_0/user/task_0"
    task.mkdir(parents=True)
    (task / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in range(1000, 21000)))
    assert len(read.processes(Place(2, str(tmp_path), str(tmp_path)))) == 20000
