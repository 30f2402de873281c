"""The settings of Slurm: what this release does not know any more, and what bites on a host with one GPU."""

from __future__ import annotations

import re

from gpuq.core.checks.check import Check, failure, ok, warning
from gpuq.core.checks.hostfacts import HostFacts

REMOVED: dict[str, dict[str, tuple[tuple[int, int], bool]]] = {
    "cgroup.conf": {
        "CgroupReleaseAgentDir": ((17, 11), True),
        "TaskAffinity": ((22, 5), True),
        "CgroupAutomount": ((23, 11), False),
        "AllowedKmemSpace": ((23, 11), True),
        "ConstrainKmemSpace": ((23, 11), True),
        "MaxKmemPercent": ((23, 11), True),
        "MinKmemSpace": ((23, 11), True),
    },
    "slurm.conf": {
        "FastSchedule": ((20, 2), False),
        "SallocDefaultCommand": ((20, 11), False),
        "AccountingStorageLoc": ((20, 11), False),
        "AccountingStoreJobComment": ((21, 8), False),
        "PowerParameters": ((24, 5), False),
        "ExtSensorsType": ((24, 5), False),
        "ExtSensorsFreq": ((24, 5), False),
        "CoreSpecPlugin": ((24, 5), False),
    },
}
"""By file: the key, the release that removed it, and whether the daemons refuse to start with it (else they complain)."""

_ADDED: dict[str, tuple[int, int]] = {"EnableControllers": (23, 2), "IgnoreSystemd": (22, 5), "CgroupPlugin": (22, 5)}
"""Keys of cgroup.conf that an older release does not know and does not start with."""

_HOUR = 3600


def _removed(facts: HostFacts) -> list[Check]:
    release = facts.release
    if release is None or facts.slurm_conf.text is None:
        return []
    fatal: list[str] = []
    harmless: list[str] = []
    for file in (facts.cgroup_conf, facts.slurm_conf):
        name = file.path.rsplit("/", 1)[-1]
        known = {key.lower(): (key, since, kills) for key, (since, kills) in REMOVED.get(name, {}).items()}
        for entry in file.entries:
            for key in entry.fields:
                if key in known and release >= known[key][1]:
                    spelled, since, kills = known[key]
                    words = f"{file.path}:{entry.line}: {spelled} (removed in {since[0]}.{since[1]:02d})"
                    (fatal if kills else harmless).append(words)
        if name == "cgroup.conf":
            for key, since in _ADDED.items():
                if file.value(key) and release < since:
                    fatal.append(f"{file.path}: {key} (new in {since[0]}.{since[1]:02d})")
    if not fatal and not harmless:
        return ok("removed-options", f"Slurm {facts.version} knows the options in its configuration")
    lines = [*fatal, *harmless]
    keys = ", ".join(re.sub(r".*: (\w+) \(.*", r"\1", line) for line in lines)
    dead = (facts.compute and "slurmd" not in facts.processes) or (
        facts.controller and "slurmctld" not in facts.processes
    )
    repair = (f"take out: {keys}", facts.restart("slurmctld", "slurmd"))
    text = f"Slurm {facts.version} does not know {keys}"
    if fatal or dead:
        return failure("removed-options", f"{text}; its daemons do not start with it", *lines, repair=repair)
    return warning("removed-options", f"{text} any more, and complains", *lines, repair=repair)


def _tracking(facts: HostFacts) -> list[Check]:
    kind = facts.setting("ProctrackType")
    if not kind or kind == "proctrack/cgroup":
        return ok("proctrack", "every process of a job ends with it (proctrack/cgroup)") if kind else []
    return warning(
        "proctrack",
        f"{kind} loses sight of processes that call setsid(): they outlive scancel and keep the GPU",
        f"ProctrackType={kind}",
        repair=_set(facts, "ProctrackType=proctrack/cgroup") if not facts.embedded else _as_root(facts),
    )


def _confinement(facts: HostFacts) -> list[Check]:
    if facts.config is None or facts.setting("ProctrackType") != "proctrack/cgroup":
        return []
    wanted = {
        "ConstrainRAMSpace": "a job may take more memory than it asked for",
        "ConstrainDevices": "a job without --gres may use the GPU",
        "ConstrainCores": "a job may take more cores than it asked for",
    }
    values = {key: (facts.cgroup_conf.value(key) or facts.setting(key) or "no").lower() for key in wanted}
    off = [key for key, value in values.items() if value in {"no", "false"}]
    if "task/cgroup" not in facts.setting("TaskPlugin"):
        off = list(wanted)
    if not off:
        return ok("confinement", "jobs are held to their memory, cores and devices")
    repair = _as_root(facts) if facts.embedded else (
        f"in {facts.cgroup_conf.path}: {', '.join(f'{key}=yes' for key in off)}",
        "in slurm.conf: TaskPlugin=task/cgroup,task/affinity",
        facts.restart("slurmctld", "slurmd"),
    )  # fmt: skip
    return warning("confinement", "; ".join(wanted[key] for key in off), f"off: {', '.join(off)}", repair=repair)


def _default_memory(facts: HostFacts) -> list[Check]:
    if facts.config is None:
        return []
    values = [facts.setting(key) for key in ("DefMemPerNode", "DefMemPerCPU", "DefMemPerGPU")]
    if any(value not in {"", "UNLIMITED", "0"} for value in values):
        return ok("default-memory", "a job that names no --mem gets a share")
    share = 0
    if facts.node is not None:
        share = facts.node.memory // 2**20 // max(1, facts.node.cpus)
    return warning(
        "default-memory",
        "a job that names no --mem gets all memory of the node, and nothing runs beside it",
        "neither DefMemPerCPU nor DefMemPerNode is set",
        repair=_set(facts, f"DefMemPerCPU={share or 'MEGABYTES'}"),
    )


def _history(facts: HostFacts) -> list[Check]:
    if facts.config is None:
        return []
    found: list[Check] = []
    age = re.match(r"\d+", facts.setting("MinJobAge"))
    seconds = int(age[0]) if age else 300
    if seconds < _HOUR:
        found += warning(
            "min-job-age",
            f"Slurm forgets how a job ended after {seconds} seconds",
            f"MinJobAge={seconds}",
            repair=_set(facts, "MinJobAge=86400"),
        )
    if facts.setting("JobCompType") in {"", "jobcomp/none"} and "slurmdbd" not in facts.setting(
        "AccountingStorageType"
    ):
        found += warning(
            "job-completion",
            "nothing is written down about ended jobs; after MinJobAge, or a lost state, nobody knows how they ended",
            f"JobCompType={facts.setting('JobCompType') or '(not set)'}",
            repair=_set(facts, "JobCompType=jobcomp/filetxt", "JobCompLoc=/var/log/slurm/jobcomp.log"),
        )
    return found or ok("history", "Slurm remembers ended jobs and writes them down")


def _refusals(facts: HostFacts) -> list[Check]:
    if facts.config is None:
        return []
    found: list[Check] = []
    if facts.setting("EnforcePartLimits").upper() in {"", "NO"}:
        found += warning(
            "enforce-limits",
            "a job that asks for more time than the partition allows is accepted, and waits for ever",
            "EnforcePartLimits=NO",
            repair=_set(facts, "EnforcePartLimits=ALL"),
        )
    if facts.setting("ReturnToService") in {"0", "1"}:
        found += warning(
            "return-to-service",
            "after an unexpected reboot the node stays down until somebody takes it back",
            f"ReturnToService={facts.setting('ReturnToService')}",
            repair=_set(facts, "ReturnToService=2"),
        )
    parameters = facts.setting("DependencyParameters") + facts.setting("SchedulerParameters")
    if "kill_invalid_depend" not in parameters and not facts.embedded:
        found += warning(
            "invalid-dependencies",
            "a job of a bare sbatch whose dependency can never be satisfied waits for ever (gpuq's own are cancelled)",
            repair=_set(facts, "DependencyParameters=kill_invalid_depend"),
        )
    return found


def _idle_gap(facts: HostFacts) -> list[Check]:
    if facts.config is None:
        return []
    parameters = facts.setting("SchedulerParameters").split(",")
    if "defer" in parameters:
        return warning(
            "idle-gap",
            "between two jobs the GPU idles for seconds, because the scheduler defers",
            "SchedulerParameters has defer",
            repair=_set(facts, "SchedulerParameters=batch_sched_delay=0,sched_interval=5"),
        )
    if any(key.startswith("Epilog") and key[6:7] in {"", "["} for key in facts.config) or "Contain" in facts.setting(
        "PrologFlags"
    ):
        return []
    return warning(
        "idle-gap",
        "between two jobs the GPU idles for about 2.5 seconds: without an Epilog slurmctld hears late of an end",
        repair=_set(facts, "Epilog=/bin/true"),
    )


def _set(facts: HostFacts, *words: str) -> tuple[str, ...]:
    return (f"in {facts.slurm_conf.path}: {' and '.join(words)}", facts.restart("slurmctld", "slurmd"))


def _as_root(facts: HostFacts) -> tuple[str, ...]:
    return (f"as root, where cgroups can be made: gpuq local up --dir {facts.embedded}",)


CAUSES = (_removed,)
RULES = (_tracking, _confinement, _default_memory, _history, _refusals, _idle_gap)
