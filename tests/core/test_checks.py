"""What `gpuq doctor` finds on a host, from its facts: the right finding first, and no red herring."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from gpuq.core.checks.check import Check, Verdict
from gpuq.core.checks.checkup import examine
from gpuq.core.checks.hostfacts import FileFact, Gpu, HostFacts, Log, Machine, Process, Text, Updates, read_conf
from gpuq.core.gpu.readings import GpuState, Reading, Trouble
from gpuq.core.gpu.xid import KernelLine
from gpuq.core.usage import NodeUsage
from gpuq.usecases.doctor import with_driver

NOW = datetime.datetime(2026, 11, 29, 12, 0, tzinfo=datetime.UTC)
EARLIER = NOW - datetime.timedelta(hours=1)
LATER = NOW + datetime.timedelta(hours=1)
MIB = 2**20

SLURM_CONF = """\
ClusterName=x
SlurmctldHost=ws(127.0.0.1)
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
GresTypes=gpu
NodeName=ws CPUs=20 Boards=1 SocketsPerBoard=1 CoresPerSocket=12 ThreadsPerCore=1 RealMemory=60000 Gres=gpu:1
PartitionName=gpu Nodes=ws Default=YES
"""

CONFIG = {
    "ClusterName": "x",
    "SlurmUser": "slurm(64030)",
    "AuthType": "auth/munge",
    "DefMemPerCPU": "3000",
    "DependencyParameters": "kill_invalid_depend",
    "EnforcePartLimits": "ALL",
    "Epilog": "/bin/true",
    "HASH_VAL": "Match",
    "JobCompType": "jobcomp/filetxt",
    "MinJobAge": "86400 sec",
    "PluginDir": "/usr/lib/slurm",
    "ProctrackType": "proctrack/cgroup",
    "ReturnToService": "2",
    "TaskPlugin": "task/cgroup,task/affinity",
    "ConstrainRAMSpace": "yes",
    "ConstrainDevices": "yes",
    "ConstrainCores": "yes",
    "SLURM_VERSION": "24.11.5",
}

MACHINE = Machine(
    line="NodeName=ws CPUs=20 Boards=1 SocketsPerBoard=1 CoresPerSocket=12 ThreadsPerCore=1 RealMemory=63622",
    cpus=20,
    cores=12,
    memory=63622,
)

HERRINGS = (
    "error: Configured MailProg is invalid",
    "error: Referenced but unset environment variable evaluates to an empty string: SLURMCTLD_OPTIONS",
    "error: Could not open node state file /var/lib/slurm/slurmctld/node_state: No such file or directory",
    "error:  mpi/pmix_v4: init: (null) [0]: mpi_pmix.c:195: pmi/pmix: can not load PMIx library",
    "error: Couldn't load specified plugin name for mpi/pmix: Plugin init() callback failed",
    "error: If munged is up, restart with --num-threads=10",
)
"""What every log holds, and what is never the cause."""


def conf(name: str, text: str | None, **given: Any) -> Text:
    return Text(path=f"/etc/slurm/{name}", text=text, modified=EARLIER, **given)


def healthy(**given: Any) -> HostFacts:
    """A host with one GPU on which all is well; `given` is what is wrong with it."""
    values: dict[str, Any] = {
        "taken": NOW,
        "hostname": "ws",
        "kernel": "6.12.1-amd64",
        "systemd": True,
        "slurm_conf": conf("slurm.conf", SLURM_CONF),
        "gres_conf": conf("gres.conf", "NodeName=ws Name=gpu File=/dev/nvidia0\n"),
        "cgroup_conf": conf("cgroup.conf", "CgroupPlugin=autodetect\nConstrainCores=yes\nConstrainDevices=yes\n"),
        "version": "24.11.5",
        "machine": MACHINE,
        "config": CONFIG,
        "processes": {name: Process(100, NOW) for name in ("munged", "slurmctld", "slurmd")},
        "munge_error": "",
        "munge_key": FileFact(path="/etc/munge/munge.key", kind="file", owner="munge", mode=0o400, modified=EARLIER),
        "node": node(),
        "logs": {name: Log(path=f"/var/log/slurm/{name}.log", lines=HERRINGS) for name in ("slurmctld", "slurmd")},
        "gpu": Gpu(
            on_bus=True,
            devices=("/dev/nvidia0", "/dev/nvidiactl"),
            modules=("6.12.1-amd64",),
            loaded="550.54.14",
            libraries=("550.54.14",),
        ),
        "gres_files": (FileFact(path="/dev/nvidia0", kind="char"),),
        "cgroup_version": 2,
        "dbus": True,
        "plugins": ("cgroup_v1.so", "cgroup_v2.so", "gpu_generic.so"),
    }
    return HostFacts(**{**values, **given})


def node(**given: Any) -> NodeUsage:
    values: dict[str, Any] = {
        "name": "ws",
        "cpus": 20,
        "cpus_used": 0,
        "memory": 60000 * MIB,
        "memory_used": 0,
        "gpus": 1,
        "gpus_used": 0,
        "state": "IDLE",
        "reason": "",
    }
    return NodeUsage(**{**values, **given})


def without(*names: str) -> dict[str, Process]:
    return {name: Process(100, NOW) for name in ("munged", "slurmctld", "slurmd") if name not in names}


def died(daemon: str, *lines: str, **given: Any) -> HostFacts:
    """`daemon` does not run; its log holds `lines` among what every log holds."""
    other = "slurmd" if daemon == "slurmctld" else "slurmctld"
    said = (*HERRINGS[:3], *lines, *HERRINGS[3:])
    logs = {daemon: Log(path=f"/var/log/slurm/{daemon}.log", lines=said), other: Log(path="/x", lines=HERRINGS)}
    config = {"config": None, "config_error": "slurmctld does not run", "node": None} if daemon == "slurmctld" else {}
    return healthy(**{"processes": without(daemon), "logs": logs, **config, **given})


def told(check: Check) -> str:
    return "\n".join((check.text, *check.evidence, *check.repair))


def settings(**given: str) -> dict[str, str]:
    return {key: value for key, value in {**CONFIG, **given}.items() if value}


SMALL_MEMORY = SLURM_CONF.replace("RealMemory=60000", "RealMemory=64000")

CASES: list[tuple[str, HostFacts, str, tuple[str, ...]]] = [
    (
        "RealMemory above what slurmd sees",
        healthy(
            slurm_conf=conf("slurm.conf", SMALL_MEMORY),
            node=node(
                memory=64000 * MIB,
                state="IDLE+DRAIN+INVALID_REG",
                reason="Low RealMemory (reported:63622 < 100.00% of configured:64000)",
            ),
        ),
        "real-memory",
        (
            "/etc/slurm/slurm.conf:8: NodeName=ws CPUs=20",
            "RealMemory=60440",
            "scontrol update NodeName=ws State=RESUME",
        ),
    ),
    (
        "the same where only slurmctld's words tell what slurmd sees",
        healthy(
            machine=None,
            slurm_conf=conf("slurm.conf", SMALL_MEMORY),
            node=node(memory=64000 * MIB, state="INVAL", reason="low real_memory size (63622 < 64000)"),
        ),
        "real-memory",
        ("RealMemory=60440",),
    ),
    (
        "no GPU found",
        healthy(node=node(state="INVAL", reason="gres/gpu count reported lower than configured (0 < 1)")),
        "gpu-count",
        ("finds no GPU", "modprobe nvidia", "State=RESUME"),
    ),
    (
        "one of four GPUs lost",
        healthy(node=node(gpus=4, state="INVAL", reason="gres/gpu count reported lower than configured (3 < 4)")),
        "gpu-count",
        ("3 of 4 GPUs: one was lost", "Xid", "Gres=gpu:3"),
    ),
    (
        "no module for the running kernel",
        died(
            "slurmd",
            "fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory",
            gres_files=(FileFact(path="/dev/nvidia0", kind="missing"),),
            gpu=Gpu(on_bus=True, modules=("6.1.0-25-amd64",)),
        ),
        "gpu-module",
        ("built for kernel 6.1.0-25-amd64, and 6.12.1-amd64 runs", "dkms autoinstall -k 6.12.1-amd64"),
    ),
    (
        "the module is there and was loaded too late",
        died(
            "slurmd",
            "error: Waiting for gres.conf file /dev/nvidia0",
            "fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory",
            gres_files=(FileFact(path="/dev/nvidia0", kind="missing"),),
            gpu=Gpu(on_bus=True, modules=("6.12.1-amd64",)),
        ),
        "gpu-boot-order",
        ("nvidia-modprobe", "systemctl restart slurmd", "nvidia-persistenced"),
    ),
    (
        "no driver at all",
        healthy(gres_files=(FileFact(path="/dev/nvidia0", kind="missing"),), gpu=Gpu()),
        "gpu-driver",
        ("no NVIDIA driver is installed",),
    ),
    (
        "no GPU on the bus",
        healthy(gres_files=(FileFact(path="/dev/nvidia0", kind="missing"),), gpu=Gpu(on_bus=False)),
        "gpu-off-bus",
        ("lspci",),
    ),
    (
        "driver and library differ while jobs run",
        healthy(
            running_jobs=(12, 13),
            gpu=Gpu(
                on_bus=True,
                loaded="550.54.14",
                libraries=("550.90.07",),
                nvml_error="Failed to initialize NVML: Driver/library version mismatch",
            ),
        ),
        "gpu-driver-library",
        ("2 jobs still run, reboot when they have ended", "gpuq wait 12 13"),
    ),
    (
        "a GPU that has fallen off the bus",
        healthy(gpu=Gpu(on_bus=True, loaded="1.2", libraries=("1.2",), lost="GPU 0: GPU is lost", faults=("Xid 79",))),
        "gpu-lost",
        ("GPU is lost", "Xid 79", "switch the machine off and on again"),
    ),
    (
        "driver and library differ on disk alone, nothing runs",
        healthy(gpu=Gpu(on_bus=True, loaded="550.54.14", libraries=("550.90.07",))),
        "gpu-driver-library",
        ("no job runs, reboot now",),
    ),
    (
        "no cgroup/v2 plugin",
        died(
            "slurmd",
            "error: Couldn't find the specified plugin name for cgroup/v2 looking at all files",
            "error: cannot find cgroup plugin for cgroup/v2",
            "error: slurmd initialization failed",
        ),
        "cgroup-plugin",
        ("apt-get install slurm-wlm-basic-plugins",),
    ),
    (
        "no dbus",
        died(
            "slurmd",
            "error: cgroup_dbus_attach_to_scope: cannot connect to dbus system daemon: Failed to connect to socket",
            "error: Couldn't load specified plugin name for cgroup/v2: Plugin init() callback failed",
            "fatal: systemd scope for slurmstepd could not be set.",
        ),
        "dbus",
        ("systemctl start dbus", "IgnoreSystemd=yes"),
    ),
    ("no dbus, seen before slurmd is started", healthy(dbus=False), "dbus", ("apt-get install dbus",)),
    (
        "Slurm 21.08 on cgroup v2",
        healthy(version="21.08.8"),
        "cgroup-version",
        ("Slurm 21.08.8 knows only v1", "systemd.unified_cgroup_hierarchy=0"),
    ),
    (
        "the host has another name than the controller",
        died(
            "slurmctld",
            "error: This host (ws2/ws2.lan) not a valid controller",
            hostname="ws2",
            slurm_conf=conf("slurm.conf", SLURM_CONF),
        ),
        "controller-host",
        ("change SlurmctldHost=ws(127.0.0.1) to: SlurmctldHost=ws2", "hostnamectl set-hostname ws"),
    ),
    (
        "the state directory, beside red herrings",
        died("slurmctld", "fatal: Incorrect permissions on state save loc: /var/lib/slurm/slurmctld"),
        "state-dir",
        ("chown slurm: /var/lib/slurm/slurmctld", "systemctl restart slurmctld"),
    ),
    (
        "a key newer than munged",
        healthy(munge_key=FileFact(path="/etc/munge/munge.key", kind="file", mode=0o400, modified=LATER)),
        "munge-key",
        ("systemctl restart munge",),
    ),
    (
        "an unexpected reboot",
        healthy(node=node(state="DOWN", reason="Node unexpectedly rebooted")),
        "node-rebooted",
        ("ReturnToService=2", "scontrol update NodeName=ws State=RESUME"),
    ),
    (
        "options that this release does not know",
        died(
            "slurmd",
            "fatal: Support for CgroupReleaseAgentDir option has been removed.",
            cgroup_conf=conf("cgroup.conf", "CgroupAutomount=yes\nCgroupReleaseAgentDir=/x\n"),
        ),
        "removed-options",
        ("CgroupReleaseAgentDir", "/etc/slurm/cgroup.conf"),
    ),
    (
        "the same without a log",
        died("slurmd", cgroup_conf=conf("cgroup.conf", "CgroupAutomount=yes\nCgroupReleaseAgentDir=/x\n")),
        "removed-options",
        ("/etc/slurm/cgroup.conf:2: CgroupReleaseAgentDir", "CgroupAutomount"),
    ),
    (
        "an unrecognised key",
        died(
            "slurmd",
            "error: _parse_next_key: Parsing error at unrecognized key: EnableControllers",
            "fatal: Could not open/read/parse cgroup.conf file /etc/slurm/cgroup.conf",
            version="22.05.8",
            cgroup_conf=conf("cgroup.conf", "EnableControllers=yes\n"),
        ),
        "removed-options",
        ("take EnableControllers out of /etc/slurm/cgroup.conf",),
    ),
    (
        "AutoDetect without NVML",
        healthy(gres_conf=conf("gres.conf", "AutoDetect=nvml\n"), gres_files=()),
        "autodetect-nvml",
        ("NodeName=ws Name=gpu File=/dev/nvidia0",),
    ),
    (
        "AutoDetect without NVML, in slurmd's words",
        died(
            "slurmd",
            "fatal: We were configured to autodetect nvml functionality, but we weren't able to find that lib when "
            "Slurm was configured.",
        ),
        "autodetect-nvml",
        ("File=/dev/nvidia0",),
    ),
    (
        "a shape that the processor does not have",
        healthy(
            slurm_conf=conf("slurm.conf", SLURM_CONF.replace("ThreadsPerCore=1", "ThreadsPerCore=2")),
            node=node(cpus=24, state="INVAL", reason="Low socket*core*thread count, Low CPUs"),
        ),
        "cpu-shape",
        ("promises 24 processors and slurmd sees 20", "CoresPerSocket=12 ThreadsPerCore=1 RealMemory=60000"),
    ),
    ("munge is dead", healthy(processes=without("munged"), munge_error="Failed to access socket"), "munge", ()),
    (
        "the clock",
        healthy(munge_error="Rewound credential (16)"),
        "clock",
        ("timedatectl",),
    ),
    ("slurmd is dead and says nothing", died("slurmd"), "slurmd", ("systemctl restart slurmd", "slurmd.log")),
    (
        "a fatal line that no rule knows",
        died("slurmctld", "fatal: the flux capacitor is open"),
        "slurmctld-fatal",
        ("the flux capacitor is open",),
    ),
    (
        "a name of another cluster",
        died("slurmctld", "fatal: CLUSTER NAME MISMATCH."),
        "cluster-name",
        ("clustername",),
    ),
    (
        "no network at boot",
        died("slurmctld", "fatal: _open_ports: Unable to listen to file descriptors. Existing slurmctld process"),
        "ports",
        ("EnableIPv6",),
    ),
    (
        "drained by somebody",
        healthy(node=node(state="IDLE+DRAIN", reason="new fan")),
        "node",
        ("new fan", "State=RESUME"),
    ),
    ("slurmctld is silent", healthy(config=None, config_error="Unable to contact", node=None), "answers", ()),
    (
        "no slurm.conf",
        healthy(slurm_conf=conf("slurm.conf", None, why="cannot be read"), config=None, processes={}, node=None),
        "slurm-conf",
        ("gpuq local up",),
    ),
    (
        "a state directory that slurm may not write",
        healthy(files={"StateSaveLocation": FileFact(path="/state", kind="dir", owner="root", mode=0o755)}),
        "state-dir",
        ("chown slurm: /state",),
    ),
]


@pytest.mark.parametrize(("facts", "id", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_first_finding(facts: HostFacts, id: str, words: tuple[str, ...]) -> None:
    checks = examine(facts)
    first = checks[0]
    assert (first.id, first.verdict) == (id, Verdict.FAILURE), [told(check) for check in checks[:3]]
    for word in words:
        assert word in told(first)
    assert first.repair, "every failure has a repair"
    everything = "\n".join(told(check) for check in checks if check.verdict is not Verdict.OK)
    for herring in HERRINGS:
        assert herring.removeprefix("error: ") not in everything


def test_three_causes_of_no_cgroup_are_three_findings() -> None:
    ids = {name: examine(facts)[0].id for name, facts, _, _ in CASES if "cgroup" in name or name == "no dbus"}
    assert len(set(ids.values())) == 3


WARNINGS: list[tuple[str, dict[str, Any], str, str]] = [
    ("linuxproc", {"config": settings(ProctrackType="proctrack/linuxproc")}, "proctrack", "setsid()"),
    ("no DefMem", {"config": settings(DefMemPerCPU="")}, "default-memory", "DefMemPerCPU=3000"),
    ("MinJobAge", {"config": settings(MinJobAge="300 sec")}, "min-job-age", "MinJobAge=86400"),
    ("jobcomp", {"config": settings(JobCompType="jobcomp/none")}, "job-completion", "jobcomp/filetxt"),
    ("EnforcePartLimits", {"config": settings(EnforcePartLimits="NO")}, "enforce-limits", "EnforcePartLimits=ALL"),
    ("ReturnToService", {"config": settings(ReturnToService="0")}, "return-to-service", "ReturnToService=2"),
    ("dependencies", {"config": settings(DependencyParameters="")}, "invalid-dependencies", "kill_invalid_depend"),
    ("constrain", {"config": settings(ConstrainRAMSpace="no")}, "confinement", "ConstrainRAMSpace=yes"),
    ("no task/cgroup", {"config": settings(TaskPlugin="task/affinity")}, "confinement", "task/cgroup"),
    ("no epilog", {"config": settings(Epilog="")}, "idle-gap", "Epilog=/bin/true"),
    ("defer", {"config": settings(SchedulerParameters="defer")}, "idle-gap", "batch_sched_delay=0"),
    ("another slurm.conf", {"config": settings(HASH_VAL="Different Ours=0x1")}, "conf-in-use", "scontrol reconfigure"),
    (
        "gres.conf newer than slurmd",
        {"gres_conf": Text(path="/etc/slurm/gres.conf", text="Name=gpu File=/dev/nvidia0", modified=LATER)},
        "conf-in-use",
        "systemctl restart",
    ),
    (
        "not what the project keeps",
        {"planned": {"slurm.conf": SLURM_CONF + "KillWait=5\n"}, "planned_dir": "ops/slurm/ws"},
        "planned-conf",
        "diff -u ops/slurm/ws/slurm.conf /etc/slurm/slurm.conf",
    ),
    (
        "no margin of memory",
        {"node": node(memory=63600 * MIB)},
        "real-memory",
        "RealMemory=60440",
    ),
    (
        "upgrades",
        {
            "gpu": Gpu(packages=("nvidia-driver",), loaded="1.2", libraries=("1.2",)),
            "updates": Updates(unattended=True),
        },
        "upgrades",
        "Package-Blacklist",
    ),
    (
        "errors of the GPU in the kernel log",
        {"gpu": Gpu(loaded="1.2", libraries=("1.2",), faults=("an NVLink error: NVRM: Xid 74",))},
        "gpu-faults",
        "NVLink",
    ),
    (
        "a defunct option that the daemons only complain about",
        {"cgroup_conf": conf("cgroup.conf", "CgroupAutomount=yes\n")},
        "removed-options",
        "CgroupAutomount",
    ),
    (
        "a GPU that is not offered",
        {"slurm_conf": conf("slurm.conf", SLURM_CONF.replace(" Gres=gpu:1", ""))},
        "gpu-not-offered",
        "Gres=gpu:1",
    ),
]


@pytest.mark.parametrize(("given", "id", "word"), [case[1:] for case in WARNINGS], ids=[case[0] for case in WARNINGS])
def test_the_only_warning(given: dict[str, Any], id: str, word: str) -> None:
    wrong = [check for check in examine(healthy(**given)) if check.verdict is not Verdict.OK]
    assert [(check.id, check.verdict) for check in wrong] == [(id, Verdict.WARNING)], [told(check) for check in wrong]
    assert word in told(wrong[0])


def test_what_the_driver_and_the_kernel_log_say_becomes_facts() -> None:
    reading = Reading(gpus=(GpuState(index=0, trouble=Trouble.LOST, detail="GPU is lost"), GpuState(index=1)))
    lines = [
        KernelLine(None, "NVRM: Xid (PCI:0000:01:00): 13, pid=7, Graphics Exception"),  # the program's own fault
        KernelLine(None, "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."),
    ]
    found = with_driver(Gpu(), reading, lines)
    assert found.lost == "GPU 0: GPU is lost"
    assert ["fallen off the bus" in fault for fault in found.faults] == [True]
    assert with_driver(Gpu(), Reading(trouble=Trouble.NO_BINDING), []) == Gpu()
    assert "different versions" in with_driver(Gpu(), Reading(trouble=Trouble.MISMATCH), []).nvml_error


def test_a_healthy_host_has_nothing_but_ok() -> None:
    assert {check.verdict for check in examine(healthy())} == {Verdict.OK}


def test_options_by_release() -> None:
    def first(version: str, text: str) -> str:
        facts = healthy(version=version, cgroup_conf=conf("cgroup.conf", text))
        return next(check.verdict.value for check in examine(facts) if check.id == "removed-options")

    assert first("22.05.8", "CgroupAutomount=yes\n") == "ok"
    assert first("24.11.5", "CgroupAutomount=yes\n") == "warning"
    assert first("22.05.8", "ConstrainKmemSpace=no\n") == "ok"
    assert first("24.11.5", "ConstrainKmemSpace=no\n") == "failure"
    assert first("22.05.8", "TaskAffinity=yes\n") == "failure"
    assert first("22.05.8", "EnableControllers=yes\n") == "failure"
    assert first("24.11.5", "EnableControllers=yes\n") == "ok"


def test_the_log_of_a_daemon_that_runs_is_history() -> None:
    lines = ("fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory",)
    facts = healthy(logs={"slurmd": Log(path="/x", lines=lines)})
    assert {check.verdict for check in examine(facts)} == {Verdict.OK}


def test_held_packages_are_enough() -> None:
    gpu = Gpu(packages=("nvidia-driver",), loaded="1.2", libraries=("1.2",))
    updates = Updates(unattended=True, excluded=("linux-image",), held=("nvidia-driver",))
    assert all(check.verdict is Verdict.OK for check in examine(healthy(gpu=gpu, updates=updates)))


@pytest.mark.parametrize(
    ("excluded", "held", "word"),
    [
        (("linux-", "nvidia-", "libnvidia-"), (), ""),
        (("linux-image", ".*nvidia"), (), ""),
        ((), ("linux-generic-hwe-24.04", "nvidia-driver"), ""),
        ((), ("linux-image-amd64", "nvidia-settings"), "the NVIDIA driver"),
        (("nvidia-settings", "linux-firmware"), ("linux-libc-dev",), "the kernel and the NVIDIA driver"),
        (("nvidia-driver", "("), ("linux-image-6.1.0-13-amd64",), "the kernel"),
    ],
)
def test_what_automatic_upgrades_leave_alone(excluded: tuple[str, ...], held: tuple[str, ...], word: str) -> None:
    gpu = Gpu(packages=("nvidia-driver",), loaded="1.2", libraries=("1.2",))
    updates = Updates(unattended=True, excluded=excluded, held=held)
    (check,) = [one for one in examine(healthy(gpu=gpu, updates=updates)) if one.id == "upgrades"]
    assert (check.verdict is Verdict.OK) is not bool(word)
    assert not word or f"may replace {word} while" in check.text


def test_a_host_that_is_only_a_client_is_not_asked_for_daemons() -> None:
    checks = examine(healthy(hostname="laptop", processes=without("slurmctld", "slurmd"), node=None))
    assert all(check.verdict is not Verdict.FAILURE for check in checks)


def test_the_embedded_slurm_is_mended_through_gpuq() -> None:
    facts = msgspec.structs.replace(died("slurmd"), embedded="/tmp/x")
    assert "gpuq local up --dir /tmp/x" in told(examine(facts)[0])


def test_a_configuration_is_read_as_slurm_reads_it() -> None:
    entries = read_conf("# x\nNodeName=a \\\n  CPUs=2 # two\n\nnodename=b cpus=4\n")
    assert [(entry.line, entry.fields) for entry in entries] == [
        (2, {"nodename": "a", "cpus": "2"}),
        (5, {"nodename": "b", "cpus": "4"}),
    ]
