"""The job of each process, from recorded process tables: cgroup v1 and v2, SLUID directories, and no cgroups at all."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest

from gpuq.adapters import jobproc, kernellog
from gpuq.core.gpu.owner import Seen, Witness, read_listpids, with_listpids
from tests import DATA


def table(name: str) -> dict[int, Seen]:
    return {one.pid: one for one in jobproc.processes(DATA / "proc" / name)}


def jobs(found: dict[int, Seen]) -> dict[int, tuple[int, str | None, str]]:
    return {pid: (one.job, one.witness, one.node) for pid, one in found.items() if one.job is not None}


def test_cgroup_v1() -> None:
    found = table("v1")
    assert jobs(found) == {
        100: (12, Witness.CGROUP, "n1"),
        101: (12, Witness.CGROUP, "n1"),
        102: (12, Witness.CGROUP, "n1"),  # its environment says nothing any more
        104: (13, Witness.CGROUP, ""),  # of a slurmd that is alone on its host
    }
    assert 103 not in found  # a zombie
    assert [pid for pid, one in found.items() if one.step_daemon] == [100]
    assert found[301].job is None  # a person's shell with a job's number in its environment


def test_what_a_process_is() -> None:
    found = table("v1")
    python = found[102]
    assert (python.command, python.name, python.uid) == ("python train.py --lr 3e-4", "python", 1000)
    boot = datetime.datetime.fromtimestamp(1795957000, datetime.UTC)
    assert jobproc.boot_time(DATA / "proc/v1") == boot
    assert python.started == boot + datetime.timedelta(seconds=100200 / os.sysconf("SC_CLK_TCK"))
    assert found[104].name == "a) R 1 (b"
    assert found[300].command == "[kthreadd]"
    assert found[1].user == "root"
    assert (found[101].environ_read, found[104].environ_read) == (True, False)


def test_cgroup_v2_is_believed_before_the_environment() -> None:
    found = table("v2")
    assert jobs(found) == {
        100: (12, Witness.CGROUP, "n1"),
        101: (12, Witness.CGROUP, "n1"),
        102: (12, Witness.CGROUP, "n1"),
        103: (13, Witness.CGROUP, ""),  # seen from within a container's cgroup namespace
    }
    assert [pid for pid, one in found.items() if one.step_daemon] == [100]  # not `slurmstepd infinity`


def test_cgroups_that_are_named_by_sluid() -> None:
    found = table("sluid")
    assert found[102].job is None
    assert found[102].sluid == "s8R5M8KJMM0300"
    listed = read_listpids((DATA / "proc/sluid/listpids.txt").read_text())
    assert listed == {100: 12, 101: 12}
    known = {one.pid: one for one in with_listpids(list(found.values()), listed)}
    assert (known[101].job, known[101].witness) == (12, Witness.LISTPIDS)
    assert (known[102].job, known[102].witness) == (12, Witness.LISTPIDS)  # not listed, of the same SLUID as 101
    assert known[103].job is None
    assert (known[104].job, known[104].witness) == (14, Witness.ENVIRON)
    assert known[90].job is None


def test_without_cgroups_the_environment_tells() -> None:
    found = table("linuxproc")
    assert jobs(found) == {
        100: (12, None, ""),  # slurmstepd's own environment may be that of whoever started slurmd
        101: (12, Witness.ENVIRON, "n1"),
        102: (11, Witness.ENVIRON, "n1"),
        103: (12, Witness.ENVIRON, "gpuqabcdef"),
    }
    assert not found[104].environ_read


def test_whether_all_processes_are_shown(tmp_path: Path) -> None:
    assert jobproc.all_visible(DATA / "proc/v1")
    assert not jobproc.all_visible(tmp_path)
    assert jobproc.processes(tmp_path) == []
    assert jobproc.boot_time(tmp_path) is None


def test_a_process_that_ends_while_it_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "5").mkdir()
    (tmp_path / "6").mkdir()
    (tmp_path / "6/stat").write_text("6 (x) S 1\n")
    assert jobproc.processes(tmp_path) == []


def test_this_process_itself() -> None:
    me = next(one for one in jobproc.processes() if one.pid == os.getpid())
    assert me.uid == os.getuid()
    assert "python" in me.command or "pytest" in me.command
    now = datetime.datetime.now(datetime.UTC)
    assert me.started is not None
    assert me.started < now + datetime.timedelta(seconds=10)
    assert me.environ_read


# -- the kernel log --------------------------------------------------------------------------------------------

BOOT = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.UTC)


def test_the_kernel_log(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text("6,1,1500000,-;one\n SUBSYSTEM=pci\n3,2,2000000,c;NVRM: two; three\nnoise\n")
    lines = kernellog.lines(log, boot=BOOT)
    assert lines is not None
    assert [line.text for line in lines] == ["one", "NVRM: two; three"]
    assert lines[0].at == BOOT + datetime.timedelta(seconds=1.5)
    assert [line.at for line in kernellog.lines(log, boot=None) or ()] == [None, None]


def test_a_kernel_log_that_may_not_be_read_is_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "kmsg"
    assert kernellog.lines(missing, boot=BOOT, dmesg=False) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kernellog.lines(missing, boot=BOOT) is None
    program = tmp_path / "dmesg"
    program.write_text("#!/bin/sh\necho 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1\n")
    program.chmod(0o755)
    assert kernellog.lines(missing, boot=BOOT) is None
    program.write_text("#!/bin/sh\necho '[    2.250000] NVRM: x'; echo plain\n")
    lines = kernellog.lines(missing, boot=BOOT) or []
    assert [(line.at, line.text) for line in lines] == [
        (BOOT + datetime.timedelta(seconds=2.25), "NVRM: x"),
        (None, "plain"),
    ]


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="may not read the kernel log")
def test_the_real_kernel_log_is_read_to_its_end() -> None:
    assert kernellog.lines(boot=None, dmesg=False) is not None or os.geteuid() != 0


@pytest.mark.parametrize(("flags", "seen"), [(0x04208060, False), (0x00400100, True)])
def test_a_kernel_thread_is_no_process_of_anybody(tmp_path: Path, flags: int, seen: bool) -> None:
    """Its environment cannot be read, and it is root's: a job of root would never look dead while one is young."""
    place = tmp_path / "77"
    place.mkdir()
    (place / "stat").write_text(f"77 (kworker/0:1-events) I 2 0 0 0 -1 {flags} " + "0 " * 12 + "500 " + "0 " * 30)
    (place / "status").write_text("Name:\tkworker/0:1\nUid:\t0\t0\t0\t0\n")
    assert bool(jobproc.processes(tmp_path)) is seen


@pytest.mark.parametrize(("flags", "hidden"), [(0x0040010C, False), (0x00400108, True)])
def test_what_is_exiting_hides_nothing(tmp_path: Path, flags: int, hidden: bool) -> None:
    """Its memory is given back already, and no zombie yet: each command of a user who may look is so for a moment."""
    place = tmp_path / "78"
    place.mkdir()
    (place / "stat").write_text(f"78 (python3) R 1 78 78 0 -1 {flags} " + "0 " * 12 + "500 " + "0 " * 30)
    (place / "status").write_text("Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\n")
    (place / "cgroup").write_text("5:memory:/slurm/uid_1000/job_12/step_batch/task_0\n")
    (one,) = jobproc.processes(tmp_path)
    assert one.environ_read is not hidden
    assert one.job == 12, "it may hold the GPU to the last"
