"""`gpuq doctor` on a real Slurm: well, and broken in several ways for real."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpuq.adapters.embedded import daemons
from tests.embedded import CAN_CONFINE, Embedded
from tests.gpuq_cli import Project, until


def findings(project: Project, code: int, *args: str) -> list[dict[str, Any]]:
    """All checks, and the exit code that belongs to them."""
    report = project.gpuq("doctor", "--json", *args).exits(code).json
    assert report["schema"] == "gpuq.doctor/1"
    assert set(report) == {"schema", "host", "slurm_conf", "slurm_version", "embedded", "done", "checks"}
    checks: list[dict[str, Any]] = report["checks"]
    assert {frozenset(check) for check in checks} == {frozenset({"id", "verdict", "text", "evidence", "repair"})}
    return checks


def first(project: Project) -> dict[str, Any]:
    found = findings(project, 10)[0]
    assert found["verdict"] == "failure"
    assert found["repair"]
    return found


def test_the_embedded_slurm_is_well(slurm_shared: Embedded, project: Project) -> None:
    checks = findings(project, 0)
    wrong = [check for check in checks if check["verdict"] != "ok"]
    if CAN_CONFINE and not slurm_shared.status().confinement.missing:
        assert wrong == []
    assert {check["id"] for check in wrong} <= {"proctrack", "confinement"}
    assert {"munge", "slurmctld", "slurmd", "answers", "node", "real-memory"} <= {check["id"] for check in checks}
    text = project.gpuq("doctor").ok().stdout
    assert "munge" in text
    assert str(slurm_shared.layout.conf) in text
    assert ("nothing is wrong" in text) is (wrong == [])


def test_slurmd_is_dead_and_is_started_again(slurm: Embedded, project: Project) -> None:
    job = slurm.sbatch("true", "--hold")
    slurm.kill_daemons("slurmd")
    assert first(project)["id"] == "slurmd"
    ran = project.gpuq("doctor", "--fix").ok()
    assert "fixed: started slurmd of the embedded Slurm again" in ran.stdout
    assert slurm.job_state(job) == "PENDING"
    ran = project.gpuq("doctor", "--fix").ok()
    assert "fixed" not in ran.stdout


def test_slurmctld_is_dead(slurm: Embedded, project: Project) -> None:
    slurm.kill_daemons("slurmctld")
    assert first(project)["id"] == "slurmctld"


@pytest.mark.one_release
def test_munge_is_dead(slurm: Embedded, project: Project) -> None:
    slurm.kill_daemons("munged")
    found = findings(project, 10)
    assert [check["id"] for check in found if check["verdict"] == "failure"] == ["munge"]
    assert project.gpuq("doctor", "--fix").ok().stdout.startswith("fixed: started munged")


def test_munge_runs_with_an_old_key(slurm: Embedded, project: Project) -> None:
    import os
    import time

    later = time.time() + 3600
    os.utime(slurm.layout.munge_key, (later, later))
    assert first(project)["id"] == "munge-key"


def test_the_node_is_drained(slurm: Embedded, project: Project) -> None:
    slurm.must("scontrol", "update", f"NodeName={slurm.node}", "State=DRAIN", "Reason=new fan")
    found = first(project)
    assert found["id"] == "node"
    assert "new fan" in found["text"]
    command = found["repair"][-1].split()
    slurm.must(*command)
    findings(project, 0)


def restart(slurm: Embedded, *names: str) -> None:
    """Kill and start daemons, with whatever is in their files now."""
    slurm.kill_daemons(*names)
    if "slurmctld" in names:
        slurm.must("/usr/sbin/slurmctld", "-f", str(slurm.layout.conf))
    slurm.run("/usr/sbin/slurmd", "-f", str(slurm.layout.conf), "-N", slurm.node)


def node_is(slurm: Embedded, word: str) -> None:
    until(
        lambda: word in slurm.run("scontrol", "show", "node").stdout,
        lambda: slurm.run("scontrol", "show", "node").stdout,
    )


def test_more_memory_is_promised_than_there_is(slurm: Embedded, project: Project) -> None:
    conf = slurm.layout.conf
    conf.write_text(re.sub(r"RealMemory=\d+", "RealMemory=99000000", conf.read_text()))
    restart(slurm, "slurmctld", "slurmd")
    node_is(slurm, "Low RealMemory")
    found = first(project)
    assert found["id"] == "real-memory"
    assert "99000000" in found["evidence"][0]
    assert "node" not in {check["id"] for check in findings(project, 10) if check["verdict"] == "failure"}


def slurmd_gives_up(slurm: Embedded) -> None:
    """22.05 does so before it goes to the background, later releases after."""
    until(lambda: "slurmd" not in daemons.find(slurm.layout).daemons, lambda: slurm.layout.log_dir, timeout=60)


@pytest.mark.one_release
def test_the_device_file_is_gone(slurm: Embedded, project: Project) -> None:
    if not slurm.layout.device.exists():
        pytest.skip("no device node of its own here")
    slurm.layout.device.unlink()
    slurm.kill_daemons("slurmd")
    slurm.run("/usr/sbin/slurmd", "-f", str(slurm.layout.conf), "-N", slurm.node, timeout=60)
    slurmd_gives_up(slurm)
    found = first(project)
    assert found["id"] == "gpu-device"
    assert str(slurm.layout.device) in found["text"]
    ran = project.gpuq("doctor", "--fix").ok()  # the embedded Slurm makes its device anew
    assert "fixed" in ran.stdout


def test_an_option_that_slurm_does_not_know(slurm: Embedded, project: Project) -> None:
    conf = slurm.layout.cgroup_conf
    conf.write_text(conf.read_text() + "TaskAffinity=yes\n")
    slurm.kill_daemons("slurmd")
    slurm.run("/usr/sbin/slurmd", "-f", str(slurm.layout.conf), "-N", slurm.node)
    slurmd_gives_up(slurm)
    found = first(project)
    assert found["id"] == "removed-options"
    assert "TaskAffinity" in found["text"]


def test_up_takes_a_node_back_that_slurm_itself_drained(slurm: Embedded) -> None:
    reason = "Reason=gres/gpu count reported lower than configured (0 < 1)"
    slurm.must("scontrol", "update", f"NodeName={slurm.node}", "State=DRAIN", reason)
    slurm.kill_daemons("slurmd")
    assert slurm.up().state == "up"


def test_no_slurm_at_all(project: Project) -> None:
    ran = project.gpuq("doctor", env={"SLURM_CONF": str(project.root / "none.conf"), "PATH": "/nowhere"})
    assert ran.exits(10).stdout.startswith("failure  slurm-conf")
    assert "gpuq local up" in ran.stdout
