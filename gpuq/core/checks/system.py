"""The operating system under Slurm: cgroups, dbus, permissions, automatic upgrades."""

from __future__ import annotations

import contextlib
import re

from gpuq.core.checks.check import Check, failure, ok, warning
from gpuq.core.checks.hostfacts import FileFact, HostFacts

_FIRST_V2 = (22, 5)
"""First release with a cgroup/v2 plugin."""


def _uses_cgroups(facts: HostFacts) -> bool:
    plugin = (facts.cgroup_conf.value("CgroupPlugin") or facts.setting("CgroupPlugin")).lower()
    words = facts.setting("ProctrackType") + facts.setting("TaskPlugin") + facts.setting("JobAcctGatherType")
    return "cgroup" in words and plugin != "disabled"


def _cgroup_version(facts: HostFacts) -> list[Check]:
    if not _uses_cgroups(facts) or facts.cgroup_version is None:
        return []
    plugin = (facts.cgroup_conf.value("CgroupPlugin") or facts.setting("CgroupPlugin") or "autodetect").lower()
    release = facts.release
    boot_v1 = "boot with cgroup v1: systemd.unified_cgroup_hierarchy=0 on the kernel command line"
    if facts.cgroup_version == 2 and release is not None and release < _FIRST_V2:
        return failure(
            "cgroup-version",
            f"the host has cgroup v2, and Slurm {facts.version} knows only v1 (22.05 is the first that knows v2)",
            repair=("install a newer Slurm", f"or {boot_v1}"),
        )
    wrong = {("cgroup/v1", 2), ("cgroup/v2", 1)}
    if (plugin, facts.cgroup_version) in wrong:
        return failure(
            "cgroup-version",
            f"cgroup.conf says {plugin}, and the host has cgroup v{facts.cgroup_version}",
            repair=(f"in {facts.cgroup_conf.path}: CgroupPlugin=autodetect", facts.restart("slurmd")),
        )
    needed = f"cgroup_v{facts.cgroup_version}.so"
    if facts.plugins is not None and (release is None or release >= _FIRST_V2) and needed not in facts.plugins:
        return failure(
            "cgroup-plugin",
            f"Slurm's cgroup/v{facts.cgroup_version} plugin is not installed, and this host needs it",
            f"{needed} is not in {facts.setting('PluginDir') or 'the plugin directory'}",
            repair=("apt-get install slurm-wlm-basic-plugins dbus", f"or {boot_v1}", facts.restart("slurmd")),
        )
    return ok("cgroup-version", f"cgroup v{facts.cgroup_version}, and Slurm has the plugin for it")


def _dbus(facts: HostFacts) -> list[Check]:
    ignores = (facts.cgroup_conf.value("IgnoreSystemd") or facts.setting("IgnoreSystemd")).lower() in {"yes", "true"}
    if facts.cgroup_version != 2 or not _uses_cgroups(facts) or ignores or facts.dbus is not False:
        return []
    return failure(
        "dbus",
        "slurmd makes its cgroup through dbus, and no dbus runs here",
        "/run/dbus/system_bus_socket: no such socket",
        repair=(
            "apt-get install dbus && systemctl start dbus" if facts.systemd else "start the system's dbus",
            f"or, without dbus: IgnoreSystemd=yes in {facts.cgroup_conf.path}",
            facts.restart("slurmd"),
        ),
    )


def _permissions(facts: HostFacts) -> list[Check]:
    user = facts.setting("SlurmUser") or "slurm"
    found: list[Check] = []
    for key, file in facts.files.items():
        owner = "root" if key.startswith("Slurmd") else user
        if file.missing:
            found += failure(
                _file_id(key),
                f"{key} {file.path} is not there",
                repair=(f"install -d -o {owner} -m 755 {file.path}", facts.restart(_daemon_of(key))),
            )
        elif not _may_write(file, owner):
            found += failure(
                _file_id(key),
                f"{owner} may not write {file.path}, which slurm.conf gives to {key}",
                f"owner {file.owner}, mode {file.mode:04o}",
                repair=(f"chown {owner}: {file.path}", f"chmod 755 {file.path}", facts.restart(_daemon_of(key))),
            )
    if facts.files and not found:
        found = ok("permissions", "Slurm's directories are there and may be written by their daemons")
    return found


def _file_id(key: str) -> str:
    return {"StateSaveLocation": "state-dir"}.get(key, f"path-{key.lower()}")


def _daemon_of(key: str) -> str:
    return "slurmd" if key.startswith("Slurmd") else "slurmctld"


def _may_write(file: FileFact, owner: str) -> bool:
    if owner == "root" or file.kind != "dir":
        return True
    return (file.owner == owner and bool(file.mode & 0o200)) or bool(file.mode & 0o002)


_KERNELS = ("linux-image-amd64", "linux-image-arm64", "linux-image-generic", "linux-generic")
_KERNEL = re.compile(r"linux-(?:image|generic|lowlatency|virtual|oem)(?!.*\d+\.\d+\.\d+)")
"""A package that brings in each new kernel; one kernel that is held by its number keeps no newer one away."""


def _excludes(facts: HostFacts, packages: tuple[str, ...]) -> bool:
    """Whether unattended-upgrades leaves one of the packages alone; its list has regular expressions."""
    for pattern in facts.updates.excluded:
        with contextlib.suppress(re.error):
            if any(re.match(pattern, package) for package in packages):
                return True
    return False


def _upgrades(facts: HostFacts) -> list[Check]:
    driver = facts.gpu.packages
    if not driver or not facts.updates.unattended:
        return []
    spared = (*facts.updates.excluded, *facts.updates.held)
    held_driver = any(name in driver for name in facts.updates.held) or _excludes(facts, driver)
    held_kernel = any(_KERNEL.match(name) for name in facts.updates.held) or _excludes(facts, _KERNELS)
    if held_driver and held_kernel:
        return ok("upgrades", "automatic upgrades leave kernel and driver alone")
    what = " and ".join(
        name for name, held in (("the kernel", held_kernel), ("the NVIDIA driver", held_driver)) if not held
    )
    return warning(
        "upgrades",
        f"automatic upgrades may replace {what} while jobs run; the GPU is then gone until the next reboot",
        f"unattended-upgrades is on; held: {', '.join(spared) or 'nothing'}",
        repair=(
            "in /etc/apt/apt.conf.d/50unattended-upgrades: Unattended-Upgrade::Package-Blacklist "
            '{ "nvidia-"; "libnvidia-"; "linux-image"; "linux-headers"; };',
        ),
    )


CAUSES = (_cgroup_version, _dbus)
RULES = (_permissions, _upgrades)
