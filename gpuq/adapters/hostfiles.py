"""What the files of a host tell `gpuq doctor`: below roots that are parameters, so that a recorded tree is a test."""

from __future__ import annotations

import contextlib
import datetime
import os
import pwd
import re
import stat
from pathlib import Path

import msgspec

from gpuq.adapters.gpu import module_version
from gpuq.core.checks.hostfacts import FileFact, Gpu, Log, Text, Updates

_LOG_TAIL = 256 * 1024


class Roots(msgspec.Struct, frozen=True, kw_only=True):
    """Where the file systems begin."""

    root: Path = Path("/")
    """Holds etc, var, usr, lib and run."""
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")

    def at(self, path: str) -> Path:
        """An absolute path of the host below the roots."""
        for prefix, place in (("/dev/", self.dev), ("/proc/", self.proc), ("/sys/", self.sys)):
            if path.startswith(prefix):
                return place / path.removeprefix(prefix)
        return self.root / path.lstrip("/")


def text(path: Path) -> Text:
    """A text file as it is."""
    try:
        modified = moment(path.stat().st_mtime)
        return Text(path=str(path), text=path.read_bytes().decode("utf-8", "replace"), modified=modified)
    except OSError as error:
        return Text(path=str(path), why=f"cannot be read: {error.strerror}")


def file_fact(path: str, roots: Roots) -> FileFact:
    """What a file is, by its inode."""
    try:
        status = roots.at(path).stat()
    except FileNotFoundError:
        return FileFact(path=path, kind="missing")
    except OSError:
        return FileFact(path=path, kind="other")
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFCHR: "char", stat.S_IFSOCK: "socket"}
    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = str(status.st_uid)
    return FileFact(
        path=path,
        kind=kinds.get(stat.S_IFMT(status.st_mode), "other"),
        owner=owner,
        mode=stat.S_IMODE(status.st_mode),
        modified=moment(status.st_mtime),
    )


def read_log(path: str, roots: Roots) -> Log:
    """The fatal: and error: lines, and those about NVML, after the last sign of a start."""
    try:
        with roots.at(path).open("rb") as handle:
            handle.seek(0, os.SEEK_END)
            handle.seek(max(0, handle.tell() - _LOG_TAIL))
            lines = handle.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return Log(path=path)
    except OSError:
        return Log(path=path, readable=False)
    starts = [at for at, line in enumerate(lines) if re.search(r"\b(?:slurmd|slurmctld) version \S+ started", line)]
    since = lines[starts[-1] :] if starts else lines
    wanted = [line for line in since if re.search(r"fatal:|error:|nvml functionality", line)]
    return Log(path=path, lines=tuple(wanted[-50:]))


def gpu(roots: Roots, kernel: str) -> Gpu:
    """Devices, modules, versions. `kernel` is the one that runs."""
    places = [place for place in (roots.at("/lib/modules"), roots.at("/usr/lib/modules")) if place.is_dir()]
    kernels = {
        path.name
        for place in places
        for path in place.iterdir()
        if any(path.glob("**/nvidia.ko*")) or any(path.glob("**/nvidia-current.ko*"))
    }
    libraries = {
        match[1]
        for place in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
        for directory in (roots.at(place), roots.at(place) / "nvidia/current")
        for path in directory.glob("libnvidia-ml.so.*")
        if (match := re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", path.name))
    }
    packages = [name for name in _packages(roots) if re.match(r"(?:lib)?nvidia-(?:driver|kernel|dkms|headless)", name)]
    return Gpu(
        on_bus=_on_bus(roots),
        devices=tuple(f"/dev/{path.name}" for path in sorted(roots.dev.glob("nvidia*"))),
        modules=tuple(sorted(kernels, key=lambda name: (name != kernel, name))),
        loaded=module_version(roots.proc),
        libraries=tuple(sorted(libraries)),
        packages=tuple(packages),
    )


def _on_bus(roots: Roots) -> bool | None:
    """An NVIDIA display controller is on the PCI bus; None: there is no PCI bus to look at."""
    devices = list(roots.at("/sys/bus/pci/devices").glob("*"))
    if not devices:
        return None
    for device in devices:
        with contextlib.suppress(OSError):
            vendor = (device / "vendor").read_text().strip()
            if vendor == "0x10de" and (device / "class").read_text().startswith("0x03"):
                return True
    return False


def _packages(roots: Roots, wanted: str = "install ok installed") -> list[str]:
    try:
        status = roots.at("/var/lib/dpkg/status").read_bytes().decode("utf-8", "replace")
    except OSError:
        return []
    pairs = re.findall(r"^Package: (\S+)\nStatus: (.*)$", status, re.MULTILINE)
    return [name for name, state in pairs if state == wanted or (wanted != "hold" and state.startswith(wanted))]


def updates(roots: Roots) -> Updates:
    """Whether packages are upgraded unattended, and which are spared."""
    directory = roots.at("/etc/apt/apt.conf.d")
    parts = [text(path).text or "" for path in sorted(directory.glob("*"))] if directory.is_dir() else []
    settings = "\n".join(re.sub(r"^\s*(?://|#).*$", "", part, flags=re.MULTILINE) for part in parts)
    on = re.findall(r'APT::Periodic::Unattended-Upgrade\s+"(\w+)"', settings)
    excluded: list[str] = []
    for block in re.findall(r"Unattended-Upgrade::Package-Blacklist\s*\{(.*?)\}", settings, re.DOTALL):
        excluded += re.findall(r'"([^"]+)"', block)
    held = [name for name in _packages(roots, "hold ok installed") if re.search(r"nvidia|^linux-", name)]
    return Updates(unattended=bool(on) and on[-1] not in {"0", "false"}, excluded=tuple(excluded), held=tuple(held))


def cgroup_version(roots: Roots) -> int | None:
    place = roots.at("/sys/fs/cgroup")
    if (place / "cgroup.controllers").exists():
        return 2
    return 1 if any((place / name).is_dir() for name in ("memory", "freezer", "cpuset")) else None


def moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
