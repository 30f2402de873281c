"""What was found on a host and in its Slurm: the facts that `gpuq doctor` judges. Values only; None means not known."""

from __future__ import annotations

import datetime
import re

import msgspec

from gpuq.core.usage import NodeUsage

DAEMONS = ("munged", "slurmctld", "slurmd")


class FileFact(msgspec.Struct, frozen=True, kw_only=True):
    """A file, by its inode. kind: file, dir, char, socket, other or missing."""

    path: str
    kind: str
    owner: str = ""
    mode: int = 0
    modified: datetime.datetime | None = None

    @property
    def missing(self) -> bool:
        """There is no such file."""
        return self.kind == "missing"


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """A text file. text: None when it is missing or may not be read; `why` says which."""

    path: str
    text: str | None = None
    why: str = ""
    modified: datetime.datetime | None = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Its lines as a Slurm configuration."""
        return read_conf(self.text or "")

    def value(self, key: str) -> str:
        """The last value of `key` on a line of its own; empty: it is not set."""
        wanted = key.lower()
        found = [entry.fields[wanted] for entry in self.entries if next(iter(entry.fields), "") == wanted]
        return found[-1] if found else ""


class Entry(msgspec.Struct, frozen=True):
    """One line of a Slurm configuration: its number, its text, its keys (in lower case) and values."""

    line: int
    text: str
    fields: dict[str, str]


class Process(msgspec.Struct, frozen=True):
    """A daemon that runs."""

    pid: int
    started: datetime.datetime | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What slurmd sees of the hardware (`slurmd -C`). Memory in MiB."""

    line: str
    cpus: int
    boards: int = 1
    sockets: int = 1
    cores: int = 1
    threads: int = 1
    memory: int


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """What a daemon wrote since its last start (or while it last tried to start)."""

    path: str
    lines: tuple[str, ...] = ()
    readable: bool = True


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """The NVIDIA side of the host."""

    on_bus: bool | None = None
    devices: tuple[str, ...] = ()
    """Names like /dev/nvidia0."""
    modules: tuple[str, ...] = ()
    """Kernels for which there is an nvidia module."""
    loaded: str | None = None
    """Version of the driver in the running kernel."""
    libraries: tuple[str, ...] = ()
    """Versions of libnvidia-ml on disk."""
    nvml_error: str = ""
    lost: str = ""
    """What the driver says of a GPU that does not answer any more; empty: all do, or it was not asked."""
    faults: tuple[str, ...] = ()
    """Errors in the kernel log for which the GPU is to blame, in words, the oldest first."""
    packages: tuple[str, ...] = ()
    """Installed packages of the driver."""


class Updates(msgspec.Struct, frozen=True, kw_only=True):
    """Automatic upgrades of packages."""

    unattended: bool = False
    excluded: tuple[str, ...] = ()
    """Patterns in Unattended-Upgrade::Package-Blacklist."""
    held: tuple[str, ...] = ()


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one host."""

    taken: datetime.datetime
    hostname: str = ""
    kernel: str = ""
    systemd: bool = False
    embedded: str = ""
    """The directory of the embedded Slurm; empty: it is another one."""
    slurm_conf: Text
    gres_conf: Text
    cgroup_conf: Text
    version: str = ""
    """Of the installed slurmd, else of slurmctld: `22.05.8`."""
    machine: Machine | None = None
    config: dict[str, str] | None = None
    """`scontrol show config`; None: slurmctld did not answer."""
    config_error: str = ""
    processes: dict[str, Process] = {}
    munge_error: str | None = None
    """Empty: a credential could be made and read; None: not tried."""
    munge_key: FileFact | None = None
    node: NodeUsage | None = None
    """This host as slurmctld knows it."""
    running_jobs: tuple[int, ...] = ()
    logs: dict[str, Log] = {}
    gpu: Gpu = Gpu()
    gres_files: tuple[FileFact, ...] = ()
    """The device files that gres.conf names."""
    cgroup_version: int | None = None
    cgroup_controllers: tuple[str, ...] = ()
    dbus: bool | None = None
    plugins: tuple[str, ...] | None = None
    """Files in PluginDir."""
    files: dict[str, FileFact] = {}
    """By the key of slurm.conf that names them: StateSaveLocation, SlurmdSpoolDir, directories of logs and pid files."""
    updates: Updates = Updates()
    planned: dict[str, str] = {}
    """What the project's ops directory holds for this host, by file name."""
    planned_dir: str = ""

    @property
    def release(self) -> tuple[int, int] | None:
        """(22, 5) of version 22.05.8."""
        match = re.match(r"(\d+)\.(\d+)", self.version)
        return (int(match[1]), int(match[2])) if match else None

    def setting(self, key: str) -> str:
        """slurmctld's value of a key of slurm.conf, else the file's; empty: not set."""
        if self.config is not None:
            for name, value in self.config.items():
                if name.lower() == key.lower():
                    return re.sub(r"\(\d+\)$", "", value) if key.endswith("User") else value
            return ""
        return self.slurm_conf.value(key)

    @property
    def node_entry(self) -> Entry | None:
        """The line of slurm.conf that describes this host."""
        short = self.hostname.split(".", 1)[0]
        lines = [entry for entry in self.slurm_conf.entries if "nodename" in entry.fields]
        for entry in lines:
            names = {entry.fields["nodename"], entry.fields.get("nodehostname", entry.fields["nodename"])}
            if self.node is not None and self.node.name in names:
                return entry
            if short in {name.split(".", 1)[0] for name in names}:
                return entry
        return None

    @property
    def controller(self) -> bool:
        """slurmctld belongs here, by slurm.conf."""
        short = self.hostname.split(".", 1)[0]
        names = [
            value.split("(", 1)[0].split(".", 1)[0]
            for entry in self.slurm_conf.entries
            for key, value in entry.fields.items()
            if key in {"slurmctldhost", "controlmachine"}
        ]
        return short in names

    @property
    def compute(self) -> bool:
        """slurmd belongs here, by slurm.conf."""
        return self.node_entry is not None

    def restart(self, *daemons: str) -> str:
        """The command that starts daemons again."""
        if self.embedded:
            return f"gpuq local down --dir {self.embedded} && gpuq local up --dir {self.embedded}"
        if self.systemd:
            return "systemctl restart " + " ".join("munge" if name == "munged" else name for name in daemons)
        return "start again: " + ", ".join(daemons)

    def look(self, daemon: str) -> str:
        """The command that shows what a daemon said last."""
        log = self.logs.get(daemon)
        if log is not None and log.path:
            return f"tail -n 30 {log.path}"
        return f"journalctl -u {'munge' if daemon == 'munged' else daemon} -n 30 --no-pager"


_FIELD = re.compile(r'([A-Za-z_][\w/]*)\s*=\s*("[^"]*"|\S+)')


def read_conf(text: str) -> tuple[Entry, ...]:
    """slurm.conf, gres.conf and cgroup.conf alike: `Key=value` words, `#` comments, `\\` at the end of a line.

    A value with blanks inside (`SlurmctldParameters=a b`) is cut at the first; Slurm quotes such values.
    """
    found = []
    pending, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(?<!\\)#.*", "", raw).rstrip()
        start = start or number
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        whole = (pending + line).strip()
        fields: dict[str, str] = {}
        for match in _FIELD.finditer(whole):
            fields.setdefault(match[1].lower(), match[2].strip('"'))
        if fields:
            found.append(Entry(start, whole, fields))
        pending, start = "", 0
    return tuple(found)
