"""What a host is, and the Slurm that it gets: every decision, and every refusal with its way out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuq.core.config import Settings
from gpuq.core.fit import fit, share_of
from gpuq.core.host import plan as hostplan
from gpuq.core.host import slurm_conf as conf
from gpuq.core.host import state as conf_state
from gpuq.core.host import units as conf_units
from gpuq.core.host.partitions import cpu_share, partitions
from gpuq.core.host.plan import SeenGpu, SeenHost, Wishes, plan, reserve_for
from gpuq.core.host.plan_files import files, manifest
from gpuq.core.host.spec import GPU_CPUS, GPU_MEMORY, CpuLayout, HostSpec
from gpuq.core.job import Node, Partition
from gpuq.core.units import MIB
from gpuq.errors import HostError
from tests.core.reference_host import DIRECTORY, REFERENCE, rendered

TWO = (
    SeenGpu(minor=0, file="/dev/nvidia0", name="RTX 3090"),
    SeenGpu(minor=1, file="/dev/nvidia1", name="GTX 1650"),
)


def host(**changes: object) -> SeenHost:
    """The reference with other facts."""
    return msgspec.structs.replace(REFERENCE, **changes)


def spec(seen: SeenHost = REFERENCE, **wishes: object) -> HostSpec:
    return plan(seen, Wishes(**wishes)).spec  # type: ignore[arg-type]


def refusal(seen: SeenHost, **wishes: object) -> HostError:
    with pytest.raises(HostError) as caught:
        plan(seen, Wishes(**wishes))  # type: ignore[arg-type]
    assert caught.value.exit_code == 9
    assert caught.value.hint
    return caught.value


def line(seen: HostSpec, key: str) -> str:
    """The one line of slurm.conf that begins with `key`."""
    (found,) = [text for text in conf.slurm_conf(seen).splitlines() if text.startswith(key)]
    return found


# -- the committed reference -----------------------------------------------------------------------------------------


def test_the_committed_reference_is_what_is_rendered() -> None:
    found = rendered()
    on_disk = {str(path.relative_to(DIRECTORY)): path for path in DIRECTORY.rglob("*") if path.is_file()}
    assert sorted(on_disk) == sorted(found), "python -m tests.core.reference_host"
    for name, (text, mode) in found.items():
        assert on_disk[name].read_text() == text, f"{name}: python -m tests.core.reference_host"
        assert on_disk[name].stat().st_mode & 0o111 == mode & 0o111, name


def test_the_reference_machine_is_registered_with_54000_mb_and_its_own_cores() -> None:
    assert line(spec(), "NodeName=") == (
        "NodeName=ws NodeHostname=ws NodeAddr=127.0.0.1 Port=6818 CPUs=20 Boards=1 SocketsPerBoard=1 CoresPerSocket=10 "
        "ThreadsPerCore=2 RealMemory=54000 Gres=gpu:1 State=UNKNOWN"
    )


def test_the_manifest_names_every_file_once_and_the_host_that_they_are_for() -> None:
    planned = files(spec())
    lines = manifest(spec(), planned).splitlines()
    words = [text.split(" ") for text in lines if not text.startswith("#")]
    assert {word[0] for word in words} == {"gpuq-host", "host", "slurm", "gpu", "dir", "log", "file", "unit"}
    assert lines[1:5] == ["gpuq-host 1", "host ws", "slurm 24.11", "gpu /dev/nvidia0"]
    assert [word[3] for word in words if word[0] == "file"] == [one.path for one in planned]
    assert "file 0755 root:root /etc/slurm/epilog.sh" in lines
    assert "dir 0700 slurm:slurm /var/lib/slurm/slurmctld" in lines  # everybody's job scripts are in it


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "kept"),
    [(62464, 54000), (63622, 55000), (16000, 11900), (8000, 4000), (2000, 1000), (257000, 226000)],
)
def test_what_stays_with_the_host(seen: int, kept: int) -> None:
    assert spec(host(memory=seen)).real_memory == kept


@given(st.integers(min_value=600, max_value=4_000_000))
def test_never_more_memory_than_there_is(seen: int) -> None:
    real = spec(host(memory=seen)).real_memory
    assert real <= seen - reserve_for(seen)
    assert real >= seen // 4
    assert reserve_for(seen) >= min(4096, seen // 2)


@given(st.integers(min_value=2000, max_value=4_000_000), st.sampled_from([None, 1, 50, 5000]))
def test_a_kernel_that_sees_40_mb_less_drains_nothing(seen: int, reserve: int | None) -> None:
    """RealMemory=64000 and a slurmd that sees 63622: drained. What is written is far enough below."""
    assume(reserve is None or reserve < seen - 300)
    assert spec(host(memory=seen), reserve=reserve).real_memory <= seen - 40


def test_the_reserve_can_be_chosen() -> None:
    assert spec(reserve=8192).real_memory == 54000
    assert spec(reserve=1024).real_memory == 61000
    assert spec(host(memory=64001), reserve=1).real_memory == 63000, "and yet one that slurmd surely sees"
    assert "nothing is left" in refusal(REFERENCE, reserve=62464).message


# -- processors ------------------------------------------------------------------------------------------------------


def test_cores_of_two_kinds_follow_slurmd() -> None:
    """8 cores with two threads and 4 with one: 12 cores, 20 threads. 1x12x2 would be 24, and the node drained."""
    told = CpuLayout(cpus=20, cores_per_socket=12, threads_per_core=1)
    decided = plan(host(cpus=told), Wishes())
    text = line(decided.spec, "NodeName=")
    assert "CPUs=12 Boards=1 SocketsPerBoard=1 CoresPerSocket=12 ThreadsPerCore=1" in text
    assert any("two kinds" in note for note in decided.notes)


@pytest.mark.parametrize(
    "told",
    [
        CpuLayout(cpus=16, cores_per_socket=8, threads_per_core=2),
        CpuLayout(cpus=8, cores_per_socket=8, threads_per_core=2),  # CpuSpecList and the like: a CPU for each core
        CpuLayout(cpus=64, sockets_per_board=2, cores_per_socket=16, threads_per_core=2),
        CpuLayout(cpus=2, sockets_per_board=2),
    ],
)
def test_what_slurmd_says_is_taken_as_it_is(told: CpuLayout) -> None:
    assert spec(host(cpus=told)).cpus == told


LAYOUTS = st.builds(
    lambda sockets, cores, threads: CpuLayout(
        cpus=sockets * cores * threads, sockets_per_board=sockets, cores_per_socket=cores, threads_per_core=threads
    ),
    st.integers(1, 2),
    st.integers(1, 64),
    st.integers(1, 2),
)


@given(LAYOUTS, st.integers(min_value=600, max_value=2_000_000), st.integers(1, 4))
def test_beside_the_work_without_a_gpu_a_default_job_for_each_gpu_always_fits(
    layout: CpuLayout, memory: int, gpus: int
) -> None:
    share = cpu_share(layout, memory, gpus)
    if share is None:
        assert layout.cpus // layout.threads_per_core < 2
        return
    assert 1 <= share.cpus < layout.cpus
    assert share.cpus % layout.threads_per_core == 0  # Slurm hands out whole cores
    assert 1 <= share.memory < memory
    left = layout.cpus - share.cpus
    assert left >= GPU_CPUS * gpus or left >= layout.cpus // 2
    assert memory - share.memory >= min(GPU_MEMORY * gpus, memory // 2)
    numbers = tuple(range(gpus))
    (one,) = [one for one in partitions(layout, memory, kinds=("gpu",) * gpus, numbers=numbers) if one.gpu is None]
    assert (one.max_cpus_per_node, one.licenses) == (share.cpus, None)
    assert (one.mem_per_cpu or 0) * share.cpus <= max(share.memory, share.cpus)


def seen_by_slurm(
    layout: CpuLayout, memory: int, gpus: int, version: tuple[int, int]
) -> tuple[HostSpec, Node, list[Partition]]:
    """A planned host, and what a submission is told of it: the node and the partitions, as scontrol prints them."""
    many = tuple(SeenGpu(minor=at, file=f"/dev/nvidia{at}") for at in range(gpus))
    made = spec(host(cpus=layout, memory=memory, gpus=many, slurm=version), gpus=tuple(range(gpus)))
    gres = next(word for word in line(made, "NodeName=").split() if word.startswith("Gres=")).removeprefix("Gres=")
    node = Node(
        name="ws", partition="gpu", cpus=layout.cpus, memory=made.real_memory * MIB, gres=gres, state="idle", reason=""
    )
    told = [
        Partition(
            name=one.name,
            default=one.default,
            max_time=None,
            default_time=None,
            max_cpus_per_node=one.max_cpus_per_node,
            max_memory_per_node=None,
            max_memory_per_cpu=one.mem_per_cpu * MIB if one.mem_per_cpu else None,
            state="UP",
        )
        for one in made.partitions
    ]
    return made, node, told


@given(LAYOUTS, st.integers(min_value=4000, max_value=1_000_000), st.integers(1, 4))
def test_a_share_that_slurm_does_not_tell_is_found_again(layout: CpuLayout, memory: int, gpus: int) -> None:
    """Where it is counted as licenses, a submission knows the node's CPUs and memory, and MaxMemPerCPU."""
    made, node, told = seen_by_slurm(layout, memory, gpus, (24, 11))
    for one, partition in zip(made.partitions, told, strict=True):
        assert share_of(partition, node) == one.licenses


@given(
    LAYOUTS,
    st.integers(min_value=4000, max_value=1_000_000),
    st.integers(1, 4),
    st.sampled_from([(22, 5), (24, 11), (26, 5)]),
)
def test_what_gpuq_asks_for_by_itself_fits_beside_all_else(
    layout: CpuLayout, memory: int, gpus: int, version: tuple[int, int]
) -> None:
    """With the share of `cpu` taken, and a default job on each other GPU, in whole cores."""
    made, node, told = seen_by_slurm(layout, memory, gpus, version)
    share = cpu_share(layout, made.real_memory, gpus)
    threads = layout.threads_per_core
    asked = fit(Settings(), gpu=True, hold=False, partition=told[0], nodes=[node], beside=told).request
    cores = (share.cpus if share else 0) // threads + gpus * -(-(asked.cpus or 0) // threads)
    assume(layout.cpus // threads > gpus)
    assert cores <= layout.cpus // threads
    beside = (share.memory // share.cpus or 1) * share.cpus if share else 0
    assert beside + gpus * ((asked.memory or 0) // MIB) <= made.real_memory


def test_the_shares_of_the_reference() -> None:
    assert line(spec(slurm=(26, 5)), "PartitionName=cpu") == (
        "PartitionName=cpu Nodes=ws MaxTime=7-00:00:00 DefaultTime=1-00:00:00 PriorityTier=30 MaxCPUsPerNode=12 "
        "DefMemPerCPU=2110 MaxMemPerCPU=2110 PreemptMode=OFF State=UP"
    )
    assert line(spec(), "PartitionName=bg").endswith("PriorityTier=10 PreemptMode=REQUEUE GraceTime=30 State=UP")
    assert [one.name for one in spec(host(cpus=CpuLayout(cpus=1))).partitions] == ["gpu", "bg"]


# -- GPUs ------------------------------------------------------------------------------------------------------------


def test_two_gpus_must_be_chosen_from() -> None:
    error = refusal(host(gpus=TWO))
    assert "GPU 0 RTX 3090, GPU 1 GTX 1650" in error.message
    assert "--gpu 0" in error.hint
    assert "no GPU 2" in refusal(host(gpus=TWO), gpus=(2,)).message
    assert "twice" in refusal(host(gpus=TWO), gpus=(0, 0)).message


def test_one_of_two_gpus() -> None:
    decided = plan(host(gpus=TWO), Wishes(gpus=(1,)))
    assert [str(gpu.file) for gpu in decided.spec.gpus] == ["/dev/nvidia1"]
    assert [one.name for one in decided.spec.partitions] == ["gpu", "cpu", "bg"]
    assert any("GPU 0 RTX 3090: not for jobs, and closed to them" in note for note in decided.notes)
    texts = {one.path.rpartition("/")[2]: one.text for one in files(decided.spec)}
    assert " Gres=gpu:1,nic:1 " in line(decided.spec, "NodeName=")
    assert "\nGresTypes=gpu,nic\n" in texts["slurm.conf"]
    assert "\nNodeName=ws Name=gpu File=/dev/nvidia1\n" in texts["gres.conf"]
    assert "\nNodeName=ws Name=nic File=/dev/nvidia0\n" in texts["gres.conf"]
    assert 'local KEPT = "nic"' in texts["job_submit.lua"]
    drop_in = conf_units.service_dropin("slurmd", decided.spec)
    assert "nvidia-modprobe -c 1\n" in drop_in
    assert "nvidia-modprobe -c 0\n" in drop_in, "slurmd does not start without a file that gres.conf names"
    lines = manifest(decided.spec, files(decided.spec)).splitlines()
    assert "gpu /dev/nvidia0" in lines
    assert "gpu /dev/nvidia1" in lines


def test_with_all_gpus_given_nothing_is_closed() -> None:
    assert spec(host(gpus=TWO), gpus=(0, 1)).kept == ()
    assert '"nic"' not in "".join(one.text for one in files(spec()))
    assert "Name=nic" not in "".join(one.text for one in files(spec()))


def test_each_further_gpu_has_a_partition_of_its_own() -> None:
    both = spec(host(gpus=TWO), gpus=(0, 1))
    assert " Gres=gpu:gpu0:1,gpu:gpu1:1 " in line(both, "NodeName=")
    assert [(one.name, one.gpu, one.default) for one in both.partitions] == [
        ("gpu", "gpu:gpu0", True),
        ("gpu1", "gpu:gpu1", False),
        ("cpu", None, False),
        ("bg", "gpu:gpu0", False),
    ]
    texts = {one.path: one.text for one in files(both)}
    assert "Name=gpu Type=gpu1 File=/dev/nvidia1\n" in texts["/etc/slurm/gres.conf"]
    assert '["gpu1"] = "gpu1"' in texts["/etc/slurm/job_submit.lua"]
    assert "/dev/nvidia0 /dev/nvidia1" in texts["/etc/slurm/epilog.sh"]


def test_no_gpu_is_refused_by_what_is_missing() -> None:
    none = host(gpus=(), driver=None, gpu_on_bus=False)
    assert "no NVIDIA GPU" in refusal(none).message
    assert "driver is not loaded" in refusal(msgspec.structs.replace(none, gpu_on_bus=True)).message
    loaded = refusal(msgspec.structs.replace(none, gpu_on_bus=True, driver="550.163.01"))
    assert "(550.163.01) is loaded, and there is no /dev/nvidia0" in loaded.message
    assert "nvidia-modprobe -c 0" in loaded.hint
    assert "/dev/dxg" in refusal(msgspec.structs.replace(none, wsl=True)).message


def test_a_divided_gpu_is_refused() -> None:
    error = refusal(host(gpus=(SeenGpu(minor=0, file="/dev/nvidia0", mig=True),)))
    assert "MIG" in error.message
    assert "nvidia-smi -i 0 -mig 0" in error.hint


def test_a_device_without_a_driver_is_planned_and_told() -> None:
    assert any("does not answer" in note for note in plan(host(driver=None), Wishes()).notes)


# -- the host --------------------------------------------------------------------------------------------------------


def test_a_fully_qualified_name_becomes_the_short_one_everywhere() -> None:
    qualified = spec(host(hostname="ws.lab.example.org"))
    text = conf.slurm_conf(qualified)
    assert "SlurmctldHost=ws(127.0.0.1)\n" in text
    assert "NodeName=ws NodeHostname=ws NodeAddr=127.0.0.1" in text
    assert "example" not in text
    assert "/etc/systemd/system/ws_slurmstepd.scope.d/order.conf" in {one.path for one in files(qualified)}


def test_no_address_of_the_host_is_named() -> None:
    """Debian gives the host's name 127.0.1.1, others the address of a network that may be away: neither is used."""
    text = conf.slurm_conf(spec())
    assert {word for word in text.split() if word.startswith("NodeAddr=")} == {"NodeAddr=127.0.0.1"}
    assert "127.0.1.1" not in text


@pytest.mark.parametrize("name", ["localhost", "localhost.localdomain", "", "my host", "n[1-3]", "-x", "ünï"])
def test_a_name_that_cannot_be_a_node_is_refused(name: str) -> None:
    assert "hostnamectl" in refusal(host(hostname=name)).hint


def test_without_systemd_there_is_no_set_up() -> None:
    assert "gpuq local up" in refusal(host(systemd=False)).hint
    wsl = refusal(host(systemd=False, wsl=True))
    assert "WSL2 without systemd" in wsl.message
    assert "/etc/wsl.conf" in wsl.hint


def test_an_unknown_or_old_release_is_refused() -> None:
    assert "--slurm" in refusal(host(slurm=None)).hint
    assert spec(host(slurm=None), slurm=(25, 11)).version == (25, 11)
    assert "21.08 is too old" in refusal(host(slurm=(21, 8))).message
    assert any("27.05 is newer" in note for note in plan(host(slurm=(27, 5)), Wishes()).notes)


def test_the_default_time_limit_is_never_more_than_the_longest() -> None:
    assert " MaxTime=1:00:00 DefaultTime=1:00:00 " in line(spec(max_time="1:00:00"), "PartitionName=gpu")
    assert " MaxTime=UNLIMITED DefaultTime=1-00:00:00 " in line(spec(max_time="UNLIMITED"), "PartitionName=gpu")
    assert "more than the longest" in refusal(REFERENCE, max_time="1:00:00", default_time="2:00:00").message
    assert "more than the longest" in refusal(REFERENCE, max_time="1:00:00", default_time="UNLIMITED").message


@pytest.mark.parametrize("version", [(22, 5), (24, 11), (25, 11), (26, 5)])
def test_the_same_plan_for_every_release(version: tuple[int, int]) -> None:
    """None of the keywords is new or gone in one of them (tests/live/test_gate.py starts real daemons with them); only
    how the share of `cpu` is capped differs."""
    counted = version in {(24, 11), (25, 11)}
    mine, reference = spec(slurm=version), spec(slurm=(24, 11) if counted else (22, 5))
    for one, other in zip(files(mine), files(reference), strict=True):
        assert one.text == other.text, one.path
    texts = {one.path: one.text for one in files(mine)}
    assert ("\nLicenses=cpushare:12\n" in texts["/etc/slurm/slurm.conf"]) is counted
    assert (" MaxCPUsPerNode=12 " in texts["/etc/slurm/slurm.conf"]) is not counted
    assert ("local SHARE = { cpus = 12, threads = 2, memory = 2110 }" in texts["/etc/slurm/job_submit.lua"]) is counted


def test_what_would_be_wrong_is_never_rendered() -> None:
    texts = {one.path: one.text for one in files(spec())}
    everything = "\n".join(texts.values())
    for word in ("AutoDetect", "EpilogSlurmctld=", "AccountingStorageTRES", "CgroupAutomount", "CgroupReleaseAgentDir"):
        assert f"\n{word}" not in everything, word
    assert "File=/dev/nvidia0\n" in texts["/etc/slurm/gres.conf"]
    for wanted in (
        "EnforcePartLimits=ALL",
        "DefMemPerCPU=2700",
        "MinJobAge=86400",
        "ReturnToService=2",
        "UnkillableStepTimeout=180",
        "JobCompLoc=/var/log/slurm/jobcomp.log",
        "JobSubmitPlugins=lua",
        "Epilog=/etc/slurm/epilog.sh",
    ):
        assert f"{wanted}\n" in texts["/etc/slurm/slurm.conf"], wanted
    assert "bf_min_prio_reserve=" in line(spec(), "SchedulerParameters=")
    held = texts["/etc/slurm/cgroup.conf"]
    assert all(f"Constrain{what}=yes\n" in held for what in ("Cores", "RAMSpace", "Devices", "SwapSpace"))


def test_every_setting_that_is_not_its_own_explanation_says_what_it_is_for() -> None:
    plain = ("ClusterName", "Slurm", "Auth", "Cred", "StateSave")
    for block in conf.slurm_conf_blocks(spec()):
        assert block.why or block.lines[0].startswith(plain), block.lines


def test_what_slurmctld_waits_before_it_preempts_again_is_no_more_than_the_grace() -> None:
    """slurmctld looks at a preempted job again after KillWait + MessageTimeout (10) only."""
    mine = spec()
    (grace,) = {one.grace for one in mine.partitions if one.grace}
    assert mine.kill_wait + 10 <= grace


def test_scripts_of_jobs_are_looked_after_before_each_start_of_slurmctld(tmp_path: Path) -> None:
    texts = {one.path: one.text for one in files(spec())}
    unit = texts["/etc/systemd/system/slurmctld.service.d/gpuq.conf"]
    assert "\nExecStartPre=-/etc/slurm/before_slurmctld.sh\n" in unit
    state = tmp_path / "a state"
    sound, lost, half = (state / "hash.1" / name for name in ("job.1", "job.11", "job.21"))
    for job in (sound, lost, half):
        job.mkdir(parents=True)
        (job / "script").write_bytes(b"#!/bin/sh\ntrue\n\0")
        (job / "environment").write_bytes(b"\1\0\0\0A=1\0")
    for path in (lost / "script", lost / "environment", half / "environment", state / "job_state"):
        path.write_bytes(b"")
    script = conf_state.before_slurmctld(state)
    for _ in range(2):
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert (sound / "script").read_bytes() == b"#!/bin/sh\ntrue\n\0"
        assert (sound / "environment").read_bytes() == b"\1\0\0\0A=1\0"
        assert (state / "job_state").read_bytes() == b"", "not one of a job's files"
        for job in (lost, half):
            told = (job / "script").read_bytes()
            assert told.startswith(b"#!/bin/sh\n")
            assert told.endswith(b"exit 1\n\0")
            count, _, rest = (job / "environment").read_bytes().partition(b"\1\0\0\0")
            assert (count, rest) == (b"", b"GPUQ_SCRIPT_LOST=1\0")


def test_scripts_of_jobs_are_synced_each_time_when_the_list_of_jobs_was_saved() -> None:
    mine = spec()
    texts = {one.path.rpartition("/")[2]: one.text for one in files(mine)}
    assert f"\nPathChanged={mine.state_dir}/job_state\n" in texts[f"{conf_state.SYNC}.path"]
    assert f"find {mine.state_dir} " in texts[f"{conf_state.SYNC}.service"]
    assert f"unit {conf_state.SYNC}.path" in manifest(mine, files(mine)).splitlines()


def test_slurmd_registers_again_after_every_start_of_slurmctld() -> None:
    unit = {one.path: one.text for one in files(spec())}[f"/etc/systemd/system/{conf_units.RECHECK}"]
    assert "\nWantedBy=slurmctld.service\n" in unit
    assert "\nPartOf=slurmctld.service\n" in unit


def test_hosts_without_swap_accounting_do_not_ask_for_it() -> None:
    old = host(cgroup_version=1, swap_accounted=False)
    text = {one.path: one.text for one in files(spec(old))}["/etc/slurm/cgroup.conf"]
    assert "ConstrainSwapSpace" not in text


def test_notes_tell_what_is_missing() -> None:
    assert any("dbus" in note for note in plan(host(dbus=False), Wishes()).notes)
    assert any("control groups" in note for note in plan(host(cgroup_version=None), Wishes()).notes)
    assert hostplan.plan(REFERENCE, Wishes()).notes == ()
