"""slurm.conf, gres.conf and cgroup.conf as text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.host import gres_conf as conf_gres
from gpuq.core.host import slurm_conf as conf
from gpuq.core.host.spec import (
    Confinement,
    CpuLayout,
    Gpu,
    HostSpec,
    Partition,
    default_mem_per_cpu,
    memory_with_margin,
)

ALL = Confinement(tracking=True, cores=True, ram=True, swap=True, devices=True)


def spec(**changes: object) -> HostSpec:
    """A plain host; `changes` replace fields."""
    plain = HostSpec(
        version=(24, 11),
        cluster="c1",
        node="n1",
        hostname="box",
        address="127.0.0.1",
        cpus=CpuLayout(cpus=16, cores_per_socket=8, threads_per_core=2),
        real_memory=60000,
        gpus=(Gpu(Path("/dev/nvidia0")),),
        epilog=Path("/etc/slurm/epilog.sh"),
        state_dir=Path("/s/state"),
        spool_dir=Path("/s/spool"),
        log_dir=Path("/s/log"),
        run_dir=Path("/s/run"),
        jobcomp_log=Path("/s/jobcomp.log"),
    )
    return msgspec.structs.replace(plain, **changes)


def settings(text: str) -> dict[str, str]:
    """The Key=Value lines of a configuration, comments left out."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("version", [(22, 5), (24, 11), (25, 11), (26, 5)])
def test_every_release_gets_what_keeps_the_gpu_busy_and_the_queue_whole(version: tuple[int, int]) -> None:
    found = settings(conf.slurm_conf(spec(version=version)))
    assert found["Epilog"] == "/etc/slurm/epilog.sh"
    assert "batch_sched_delay=0" in found["SchedulerParameters"]
    assert "defer" not in found["SchedulerParameters"]
    assert found["ReturnToService"] == "2"
    assert found["MinJobAge"] == "86400"
    assert found["JobCompType"] == "jobcomp/filetxt"
    assert found["JobCompLoc"] == "/s/jobcomp.log"
    assert found["EnforcePartLimits"] == "ALL"
    assert found["SelectTypeParameters"] == "CR_Core_Memory"
    assert found["GresTypes"] == "gpu"
    assert found["PriorityType"] == "priority/basic"  # newer releases' default would make --nice and top no-ops
    # Fatal without slurmdbd, and only slurmdbd needs it.
    assert "AccountingStorageTRES" not in found
    assert "EpilogSlurmctld" not in found


def test_node_and_partition_lines() -> None:
    text = conf.slurm_conf(
        spec(
            partitions=(
                Partition(name="gpu", default=True, max_time="2-00:00:00", default_time="1:00:00"),
                Partition(name="cpu", gpu=None, priority_tier=10, max_cpus_per_node=1, max_mem_per_node=1000, up=False),
            )
        )
    )
    assert (
        "NodeName=n1 NodeHostname=box NodeAddr=127.0.0.1 Port=6818 CPUs=16 Boards=1 SocketsPerBoard=1 "
        "CoresPerSocket=8 ThreadsPerCore=2 RealMemory=60000 Gres=gpu:1 State=UNKNOWN\n"
    ) in text
    assert ("PartitionName=gpu Nodes=n1 Default=YES MaxTime=2-00:00:00 DefaultTime=1:00:00 State=UP\n") in text
    assert (
        "PartitionName=cpu Nodes=n1 MaxTime=7-00:00:00 PriorityTier=10 MaxCPUsPerNode=1 MaxMemPerNode=1000 State=DOWN\n"
    ) in text


def test_a_host_without_gpu_names_none() -> None:
    without = spec(gpus=())
    assert "Gres=" not in conf.slurm_conf(without)
    assert "File=" not in conf_gres.gres_conf(without)


def test_a_gpu_type_is_on_both_sides() -> None:
    typed = spec(gpus=(Gpu(Path("/dev/nvidia0"), "a100"),))
    assert " Gres=gpu:a100:1 " in conf.slurm_conf(typed)
    assert "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0\n" in conf_gres.gres_conf(typed)


def test_confinement_names_its_plugins() -> None:
    found = settings(conf.slurm_conf(spec(confinement=ALL)))
    assert found["ProctrackType"] == "proctrack/cgroup"
    assert found["TaskPlugin"] == "task/affinity,task/cgroup"


def test_without_confinement_nothing_asks_for_cgroups() -> None:
    found = settings(conf.slurm_conf(spec()))
    assert found["ProctrackType"] == "proctrack/linuxproc"
    assert "TaskPlugin" not in found
    assert settings(conf_gres.cgroup_conf(spec())) == {"CgroupPlugin": "disabled"}
    assert settings(conf_gres.cgroup_conf(spec(version=(22, 5)))) == {"CgroupPlugin": "cgroup/v1"}


def test_affinity_is_off_when_processors_are_pretended() -> None:
    found = settings(conf.slurm_conf(spec(confinement=ALL, config_overrides=True)))
    assert found["SlurmdParameters"] == "config_overrides"
    assert found["TaskPlugin"] == "task/cgroup"


def test_swap_is_held_only_where_asked() -> None:
    with_swap = settings(conf_gres.cgroup_conf(spec(confinement=ALL)))
    assert with_swap["ConstrainSwapSpace"] == "yes"
    assert with_swap["AllowedSwapSpace"] == "0"
    without = settings(conf_gres.cgroup_conf(spec(confinement=msgspec.structs.replace(ALL, swap=False))))
    assert "ConstrainSwapSpace" not in without


def test_cgroup_keywords_follow_the_release() -> None:
    alone = msgspec.structs.replace(ALL, ignore_systemd=True)
    old = settings(conf_gres.cgroup_conf(spec(version=(22, 5), confinement=alone)))
    new = settings(conf_gres.cgroup_conf(spec(version=(24, 11), confinement=alone)))
    assert old["IgnoreSystemd"] == new["IgnoreSystemd"] == "yes"
    assert "EnableControllers" not in old  # unknown to 22.05, and an unknown keyword is fatal
    assert new["EnableControllers"] == "yes"


def test_optional_lines() -> None:
    found = settings(conf.slurm_conf(spec(munge_socket=Path("/s/run/m"), ipv6=False, extra=("Licenses=x:1",))))
    assert found["AuthInfo"] == "socket=/s/run/m"
    assert "CommunicationParameters" not in found
    assert found["Licenses"] == "x:1"
    assert settings(conf.slurm_conf(spec()))["CommunicationParameters"] == "EnableIPv6"


@given(st.integers(min_value=1, max_value=10**8))
def test_the_memory_margin_is_below_what_was_seen(seen: int) -> None:
    kept = memory_with_margin(seen)
    assert 1 <= kept <= seen
    assert seen < 100 or kept <= seen * 96 // 100


@given(st.integers(min_value=1, max_value=4096), st.integers(min_value=1, max_value=10**8))
def test_all_cpus_together_never_exceed_the_memory(cpus: int, memory: int) -> None:
    share = default_mem_per_cpu(spec(cpus=CpuLayout(cpus=cpus), real_memory=memory))
    assert share >= 1
    assert share * cpus <= memory or share == 1


def test_layouts() -> None:
    layout = CpuLayout(cpus=16, sockets_per_board=1, cores_per_socket=8, threads_per_core=2)
    assert layout.hardware == 16
    assert layout.limited(3).hardware == 3
