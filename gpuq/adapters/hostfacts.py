"""Collects the facts that `gpuq doctor` judges. Reads only, needs no root, and says None where it may not look."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpuq.adapters import proc
from gpuq.adapters.embedded import daemons
from gpuq.adapters.embedded.host import SYSTEM_DIRS
from gpuq.adapters.embedded.layout import Layout
from gpuq.adapters.hostfiles import Roots, cgroup_version, file_fact, gpu, moment, read_log, text, updates
from gpuq.adapters.slurm import parse_usage
from gpuq.adapters.slurm.locate import SYSTEM_CONF, Location, environment_for
from gpuq.core import batch
from gpuq.core.checks.hostfacts import FileFact, HostFacts, Log, Machine, Process
from gpuq.core.inherited import scrub
from gpuq.core.usage import NodeUsage
from gpuq.errors import SlurmAnswerError

PATIENCE = 6.0
"""Seconds for a question to Slurm; its own commands take ten when nobody answers."""

_HEARD_WITHIN = 8.0
"""Seconds. Right after a start or a RESUME slurmctld has not heard from a node yet."""


def collect(location: Location, environment: Mapping[str, str], *, planned: Path | None = None) -> HostFacts:
    """Everything about this host and the Slurm of `location`. planned: the project's own configuration for the host."""
    roots = Roots()
    conf = location.conf or _system_conf()
    embedded = Layout(conf.parent) if location.embedded else None
    env = scrub(environment) | environment_for(location) | {"LC_ALL": "C"}
    env["PATH"] = f"{env.get('PATH', os.defpath)}:{SYSTEM_DIRS}"
    facts = from_files(conf, roots, planned=planned)
    processes = _processes(conf, facts, embedded)
    config, said = _config(facts, processes, env)
    facts = msgspec.structs.replace(facts, config=config, config_error=said, processes=processes)
    if embedded is not None:
        facts = msgspec.structs.replace(facts, embedded=str(embedded.dir))
    return msgspec.structs.replace(
        facts,
        version=_version(env),
        machine=_machine(env),
        munge_error=_munge(facts, env),
        munge_key=file_fact(_munge_key(embedded), roots),
        node=_node(facts, env) if config is not None else None,
        running_jobs=_running(env) if config is not None else (),
        logs={name: _with_journal(name, log, facts, env) for name, log in logs(facts, roots).items()},
        plugins=_plugins(facts, roots),
        files=_files(facts, roots),
        gpu=gpu(roots, os.uname().release),
    )


def from_files(conf: Path, roots: Roots, *, planned: Path | None = None, hostname: str = "") -> HostFacts:
    """What files alone tell, without asking a program."""
    facts = HostFacts(
        taken=datetime.datetime.now(datetime.UTC),
        hostname=hostname or socket.gethostname(),
        kernel=os.uname().release,
        systemd=roots.at("/run/systemd/system").is_dir(),
        slurm_conf=text(conf),
        gres_conf=text(conf.with_name("gres.conf")),
        cgroup_conf=text(conf.with_name("cgroup.conf")),
        cgroup_version=cgroup_version(roots),
        dbus=roots.at("/run/dbus/system_bus_socket").exists(),
        updates=updates(roots),
    )
    names = [entry.fields["file"] for entry in facts.gres_conf.entries if "file" in entry.fields]
    files = tuple(file_fact(name, roots) for name in names if "[" not in name)
    where = "" if planned is None else str(_planned_conf(planned))
    return msgspec.structs.replace(facts, gres_files=files, planned=_planned(planned), planned_dir=where)


def logs(facts: HostFacts, roots: Roots) -> dict[str, Log]:
    """What slurmctld and slurmd said since they last started, by the daemon's name."""
    found = {}
    for daemon, key, fallback in (
        ("slurmctld", "SlurmctldLogFile", "/var/log/slurm/slurmctld.log"),
        ("slurmd", "SlurmdLogFile", "/var/log/slurm/slurmd.log"),
    ):
        host = facts.hostname.split(".", 1)[0]
        node = facts.node_entry.fields["nodename"] if facts.node_entry else host
        path = (facts.setting(key) or fallback).replace("%h", host).replace("%n", node)
        found[daemon] = read_log(path, roots)
    return found


def _planned_conf(directory: Path) -> Path:
    """Where the project's configuration for this host lies: a tree that mirrors the root (gpuq host plan), or its files."""
    inside = directory / "etc/slurm"
    return inside if os.path.isdir(inside) else directory  # noqa: PTH112 - Path.is_dir raises where one may not look


def _planned(directory: Path | None) -> dict[str, str]:
    found: dict[str, str | None] = {}
    if directory is not None:
        with contextlib.suppress(OSError):
            found = {path.name: text(path).text for path in _planned_conf(directory).glob("*.conf")}
    return {name: content for name, content in found.items() if content is not None}


def _files(facts: HostFacts, roots: Roots) -> dict[str, FileFact]:
    """The directories that slurm.conf gives to daemons of this host."""
    wanted = []
    if facts.controller:
        wanted += ["StateSaveLocation", "SlurmctldLogFile"]
    if facts.compute:
        wanted += ["SlurmdSpoolDir", "SlurmdLogFile"]
    if not facts.systemd:  # where systemd runs them, no pid file is written
        wanted += [key for key in ("SlurmctldPidFile", "SlurmdPidFile") if f"{key[:-7]}".lower() in facts.processes]
    found = {}
    for key in wanted:
        path = facts.setting(key)
        if path.startswith("/") and "%" not in path:
            directory = path if key in {"StateSaveLocation", "SlurmdSpoolDir"} else os.path.dirname(path)  # noqa: PTH120
            found[key] = file_fact(directory, roots)
    return found


def _plugins(facts: HostFacts, roots: Roots) -> tuple[str, ...] | None:
    place = facts.setting("PluginDir") or "/usr/lib/x86_64-linux-gnu/slurm-wlm"
    try:
        return tuple(sorted(os.listdir(roots.at(place))))
    except OSError:
        return None


def _system_conf() -> Path:
    places = (SYSTEM_CONF, Path("/run/slurm/conf/slurm.conf"))
    return next((path for path in places if path.exists()), SYSTEM_CONF)


# -- processes and programs ------------------------------------------------------------------------------------------


def _processes(conf: Path, facts: HostFacts, embedded: Layout | None) -> dict[str, Process]:
    """The daemons of this Slurm: of the embedded one by its directory, else by what their command lines name."""
    if embedded is not None:
        alive = daemons.find(embedded).daemons
    else:
        alive = daemons.find_configured(conf, system=conf == _system_conf(), munge_socket=_munge_socket(facts))
    found = {}
    for name, process in alive.items():
        with contextlib.suppress(Exception):  # it has just ended
            found[name] = Process(process.pid, moment(process.create_time()))
    return found


def _munge_socket(facts: HostFacts) -> str:
    match = re.search(r"socket=([^,\s]+)", facts.setting("AuthInfo"))
    return match[1] if match else ""


def _ask(argv: list[str], env: Mapping[str, str], *, data: bytes | None = None) -> tuple[bool, str, str]:
    try:
        result = proc.run(argv, timeout=PATIENCE, env=env, input_bytes=data)
    except proc.ProgramMissing as error:
        return False, "", str(error)
    except proc.ProgramTimeout as error:
        return False, "", str(error)
    return result.ok, result.stdout, result.stderr


def _config(
    facts: HostFacts, processes: Mapping[str, Process], env: Mapping[str, str]
) -> tuple[dict[str, str] | None, str]:
    if facts.controller and "slurmctld" not in processes:
        return None, "slurmctld does not run"  # asking would take its whole time limit
    ok, out, err = _ask(["scontrol", "show", "config"], env)
    if not ok:
        return None, batch.slurm_words(err) or err.strip()
    try:
        return parse_usage.config(out), ""
    except SlurmAnswerError as error:
        return None, error.message


def _with_journal(daemon: str, log: Log, facts: HostFacts, env: Mapping[str, str]) -> Log:
    """Before a daemon has read its configuration it has no log file: what it dies of then stands in the journal."""
    if not facts.systemd or daemon in facts.processes or any("fatal:" in line for line in log.lines):
        return log
    ok, out, _ = _ask(["journalctl", "-q", "-b", "-u", daemon, "-n", "60", "--no-pager", "-o", "cat"], env)
    lines = [line for line in out.splitlines() if re.search(r"fatal:|error:", line)] if ok else []
    return msgspec.structs.replace(log, lines=(*log.lines, *lines))


def _version(env: Mapping[str, str]) -> str:
    for program in ("slurmd", "sinfo"):
        ok, out, _ = _ask([program, "-V"], env)
        match = re.search(r"\d+\.\d+\.\S+", out) if ok else None
        if match:
            return match[0]
    return ""


def _machine(env: Mapping[str, str]) -> Machine | None:
    ok, out, _ = _ask(["slurmd", "-C"], env)
    return machine(out) if ok else None


def machine(out: str) -> Machine | None:
    """What `slurmd -C` printed. GPU libraries print noise beside its line."""
    line = next((text for text in out.splitlines() if text.startswith("NodeName=")), "")
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    try:
        return Machine(
            line=line,
            cpus=int(words["CPUs"]),
            boards=int(words.get("Boards", 1)),
            sockets=int(words.get("SocketsPerBoard", words.get("Sockets", 1))),
            cores=int(words.get("CoresPerSocket", 1)),
            threads=int(words.get("ThreadsPerCore", 1)),
            memory=int(words["RealMemory"]),
        )
    except (KeyError, ValueError):
        return None


def _munge(facts: HostFacts, env: Mapping[str, str]) -> str | None:
    """Empty when a credential could be made and read again."""
    if "munge" not in (facts.setting("AuthType") or "auth/munge"):
        return None
    where = _munge_socket(facts)
    options = ["--socket", where] if where else []
    ok, out, err = _ask(["munge", "--no-input", *options], env)
    if not ok:
        return err.strip() or "munge failed"
    ok, out, err = _ask(["unmunge", *options], env, data=out.encode())
    status = re.search(r"STATUS:\s+(.*)", out)
    if ok:
        return ""
    return (status[1] if status else err).strip() or "unmunge failed"


def _munge_key(embedded: Layout | None) -> str:
    return str(embedded.munge_key) if embedded is not None else "/etc/munge/munge.key"


def _node(facts: HostFacts, env: Mapping[str, str]) -> NodeUsage | None:
    entry = facts.node_entry
    name = entry.fields["nodename"] if entry else facts.hostname.split(".", 1)[0]
    deadline = time.monotonic() + _HEARD_WITHIN
    while True:
        ok, out, _ = _ask(["scontrol", "--details", "show", "node", name], env)
        found: NodeUsage | None = None
        with contextlib.suppress(SlurmAnswerError):
            found = next(iter(parse_usage.nodes(out)), None) if ok else None
        silent = found is not None and found.silent
        if not silent or "slurmd" not in facts.processes or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def _running(env: Mapping[str, str]) -> tuple[int, ...]:
    ok, out, _ = _ask(["squeue", "--noheader", "--all", "--states", "R", "-o", "%A"], env)
    return tuple(int(word) for word in out.split() if word.isdigit()) if ok else ()
