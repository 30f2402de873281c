"""What a Slurm daemon that does not run said when it died: a table of lines and what they mean.

The log of a daemon that runs is not read for causes: what it complained about may be long mended, and the other
checks look at the thing itself. Lines in `_HARMLESS` are never a finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from gpuq.core.checks.check import Check, failure
from gpuq.core.checks.hostfacts import HostFacts

_HARMLESS = re.compile(
    r"MailProg|unset environment variable|Could not open .* state file|pmix|PMIx|MPI: Cannot create context"
    r"|rsmi_init|drm root|--num-threads|No (?:fed_mgr|last|trigger|reservation)|Unable to open pidfile|pid(?:file| file)"
    r"|Waiting for gres\.conf file",
    re.IGNORECASE,
)

Repair = Callable[[re.Match[str], HostFacts], tuple[str, ...]]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a daemon dies with. `text` may name groups of the pattern."""

    id: str
    pattern: str
    text: str
    repair: Repair


def _state_dir(match: re.Match[str], facts: HostFacts) -> tuple[str, ...]:
    user = facts.setting("SlurmUser") or "slurm"
    place = match["path"].rstrip(".:")
    return (f"chown {user}: {place}", f"chmod 755 {place}", facts.restart("slurmctld"))


def _controller(match: re.Match[str], facts: HostFacts) -> tuple[str, ...]:
    named = facts.slurm_conf.value("SlurmctldHost") or facts.slurm_conf.value("ControlMachine")
    host = match["host"]
    return (
        f"in {facts.slurm_conf.path}, change SlurmctldHost={named or '?'} to: SlurmctldHost={host}",
        f"or rename the host: hostnamectl set-hostname {named.split('(', 1)[0] or 'NAME'}",
        facts.restart("slurmctld"),
    )


def _key(match: re.Match[str], facts: HostFacts) -> tuple[str, ...]:
    where = facts.slurm_conf
    for file in (facts.slurm_conf, facts.gres_conf, facts.cgroup_conf):
        if any(match["key"].lower() in entry.fields for entry in file.entries):
            where = file
    return (f"take {match['key']} out of {where.path}", facts.restart("slurmctld", "slurmd"))


def _plugin(_match: re.Match[str], facts: HostFacts) -> tuple[str, ...]:
    return (
        "apt-get install slurm-wlm-basic-plugins dbus",
        "without the plugin, boot with cgroup v1: systemd.unified_cgroup_hierarchy=0 on the kernel command line",
        facts.restart("slurmd"),
    )


def _dbus(_match: re.Match[str], facts: HostFacts) -> tuple[str, ...]:
    first = "apt-get install dbus && systemctl start dbus" if facts.systemd else "start the system's dbus"
    return (first, f"or, without dbus: IgnoreSystemd=yes in {facts.cgroup_conf.path}", facts.restart("slurmd"))


def _port(_match: re.Match[str], facts: HostFacts) -> tuple[str, ...]:
    return (
        "see who listens: ss -ltnp | grep -E ':681[78]'",
        "with no network up, Slurm cannot bind either; add to slurm.conf: CommunicationParameters=EnableIPv6",
        facts.restart("slurmctld", "slurmd"),
    )


def _nvml(_match: re.Match[str], facts: HostFacts) -> tuple[str, ...]:
    node = facts.node_entry.fields["nodename"] if facts.node_entry else facts.hostname
    return (
        f"in {facts.gres_conf.path}, instead of AutoDetect=nvml: NodeName={node} Name=gpu File=/dev/nvidia0",
        facts.restart("slurmd"),
    )


def _cluster(_match: re.Match[str], facts: HostFacts) -> tuple[str, ...]:
    place = facts.setting("StateSaveLocation") or "StateSaveLocation"
    return (
        f"put the old ClusterName back into {facts.slurm_conf.path}: cat {place}/clustername",
        f"or, to drop the old queue on purpose: rm {place}/clustername",
        facts.restart("slurmctld"),
    )


def _restart_only(daemon: str, *more: str) -> Repair:
    return lambda _, facts: (*more, facts.restart(daemon))


LINES: tuple[Line, ...] = (
    Line(
        id="state-dir",
        pattern=r"Incorrect permissions on state save loc(?:ation)?:? ?(?P<path>\S+)",
        text="slurmctld may not write its state directory {path}",
        repair=_state_dir,
    ),
    Line(
        id="state-dir",
        pattern=r"(?:Unable to stat state save loc|State save loc): (?P<path>\S+)",
        text="slurmctld's state directory {path} is not there",
        repair=lambda match, facts: (f"mkdir -p {match['path'].rstrip(':')}", *_state_dir(match, facts)),
    ),
    Line(
        id="controller-host",
        pattern=r"This host \((?P<host>[^/\s)]+)/[^)]*\) not a valid controller",
        text="this host is called {host}, and slurm.conf names another one as the controller",
        repair=_controller,
    ),
    Line(
        id="removed-options",
        pattern=r"Support for (?P<key>\w+) option has been removed|The (?P<key2>\w+) option has been removed"
        r"|unrecognized key: (?P<key3>\w+)",
        text="{key} is in a configuration file, and this Slurm does not know it (any more)",
        repair=_key,
    ),
    Line(
        id="autodetect-nvml",
        pattern=r"configured (?:to autodetect nvml|with nvml) functionality.*(?:find that lib|lib wasn't found)",
        text="gres.conf says AutoDetect=nvml, and this build of Slurm has no NVML in it",
        repair=_nvml,
    ),
    Line(
        id="cgroup-plugin",
        pattern=r"(?:Couldn't find the specified plugin name for|cannot find cgroup plugin for) (?P<path>cgroup/v\d)",
        text="Slurm's {path} plugin is not installed, and this host needs it",
        repair=_plugin,
    ),
    Line(
        id="dbus",
        pattern=r"cannot connect to dbus|systemd scope for slurmstepd could not be set|_init_new_scope_dbus",
        text="slurmd makes its cgroup through dbus, and dbus does not answer",
        repair=_dbus,
    ),
    Line(
        id="accounting-tres",
        pattern=r"slurmdbd is required to run with TRES (?P<path>\S+)",
        text="AccountingStorageTRES={path} needs slurmdbd, and there is none",
        repair=_restart_only("slurmctld", "take AccountingStorageTRES out of slurm.conf"),
    ),
    Line(
        id="cluster-name",
        pattern=r"CLUSTER NAME MISMATCH",
        text="slurmctld's saved state belongs to a cluster of another name",
        repair=_cluster,
    ),
    Line(
        id="state-version",
        pattern=r"Can not recover .*incompatible version",
        text="slurmctld's saved state was written by a Slurm of another release",
        repair=_restart_only("slurmctld", "install the release that wrote it; `slurmctld -i` would lose the queue"),
    ),
    Line(
        id="ports",
        pattern=r"Unable to listen to file descriptors|Unable to bind listen port|Address already in use",
        text="a Slurm daemon cannot listen on its port: another one has it, or no network is up",
        repair=_port,
    ),
    Line(
        id="node-name",
        pattern=r"Unable to determine this slurmd's NodeName",
        text="no NodeName line of slurm.conf is for this host",
        repair=lambda _, facts: (
            f"add to {facts.slurm_conf.path}: {facts.machine.line if facts.machine else 'what slurmd -C prints'}",
            facts.restart("slurmctld", "slurmd"),
        ),
    ),
)
"""In the order of weight: one daemon's death is told by the first that matches."""


def _log_findings(facts: HostFacts) -> list[Check]:
    found: list[Check] = []
    for daemon, log in facts.logs.items():
        if daemon in facts.processes:
            continue
        lines = [line for line in log.lines if not _HARMLESS.search(line)]
        fatal = [line for line in lines if "fatal:" in line]
        matched = _matches(lines, facts)
        found += matched
        # A fatal line that no rule knows is told as it is, unless rules explain the death.
        if fatal and not matched and not _ELSEWHERE.search(fatal[-1]):
            said = re.sub(r"^.*?fatal:\s*", "", fatal[-1])
            found += failure(
                f"{daemon}-fatal",
                f"{daemon} gave up: {said}",
                fatal[-1],
                repair=(facts.look(daemon), facts.restart(daemon)),
            )
    return found


_ELSEWHERE = re.compile(r"gres\.conf file|munge", re.IGNORECASE)
"""Told by the checks of GPU and munge, which know more."""


def _matches(lines: list[str], facts: HostFacts) -> list[Check]:
    found: list[Check] = []
    for rule in LINES:
        for line in reversed(lines):
            match = re.search(rule.pattern, line)
            if match is None:
                continue
            match = _one_key(match)
            if any(check.id == rule.id for check in found):
                break
            words = {name: value for name, value in match.groupdict().items() if value is not None}
            found += failure(rule.id, rule.text.format(**words), line, repair=rule.repair(match, facts))
            break
    return found


def _one_key(match: re.Match[str]) -> re.Match[str]:
    """Whichever of the groups key, key2, key3 matched, as `key`."""
    for name in ("key2", "key3"):
        if match.groupdict().get(name):
            renamed = re.search(r"(?P<key>\w+)", match[name])
            if renamed is not None:
                return renamed
    return match


RULES = (_log_findings,)
