"""The daemons of one private directory: find them, start them, stop them, and what they leave running.

A process belongs to the directory when its command line, the SLURM_CONF it was started with or its log names it.
Names alone never decide: several Slurms may run on one host.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec
import psutil

from gpuq.adapters import proc
from gpuq.adapters.embedded.host import Programs, port_listens
from gpuq.adapters.embedded.layout import Layout
from gpuq.errors import HostError

SLURM_VARIABLES = ("SLURM", "SBATCH_", "SRUN_", "SALLOC_", "SCANCEL_", "SQUEUE_", "SCONTROL_", "SINFO_")
"""Prefixes of variables that change what Slurm's daemons and commands do."""

DAEMONS = ("munged", "slurmctld", "slurmd")


_PROGRAMS = (*DAEMONS, "slurmstepd", "slurmscriptd")
"""Process names (before a "-wlm" of the distribution). A job's own process is called slurm_script."""


class DaemonFailed(Exception):
    """A daemon did not start. `line` is its own fatal: or error: line; `log` is where it wrote it."""

    def __init__(self, daemon: str, line: str, log: Path) -> None:
        super().__init__(f"{daemon} did not start: {line}")
        self.daemon = daemon
        self.line = line
        self.log = log


class Found(msgspec.Struct):
    """The live processes of one directory."""

    daemons: dict[str, psutil.Process] = {}
    helpers: list[psutil.Process] = []  # slurmscriptd, `slurmstepd infinity`, daemons in the middle of forking
    steps: list[psutil.Process] = []

    def all(self) -> list[psutil.Process]:
        """Everything, in the order in which it should end: the controller first, so that it saves its state."""
        order = [self.daemons[name] for name in ("slurmctld", "slurmd") if name in self.daemons]
        last = [self.daemons["munged"]] if "munged" in self.daemons else []
        return [*order, *self.helpers, *self.steps, *last]


def clean_environment(layout: Layout) -> dict[str, str]:
    """The caller's environment without Slurm's variables, for daemons and for commands that ask them.

    Also without TZ: the daemons write times without a zone, for readers who may have another TZ.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(SLURM_VARIABLES) and name != "TZ"}
    kept["SLURM_CONF"] = str(layout.conf)
    return kept


def find(layout: Layout) -> Found:
    """Look through the process table. Zombies do not count."""
    found = Found(daemons={}, helpers=[], steps=[])
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            name = process.name()
            if name.split("-")[0] not in _PROGRAMS or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if not _is_ours(process, layout):
                continue
            kind = next((daemon for daemon in DAEMONS if name == daemon or name.startswith(f"{daemon}-")), "")
            if kind and _is_older(process, found.daemons.get(kind)):
                if kind in found.daemons:
                    found.helpers.append(found.daemons[kind])
                found.daemons[kind] = process
            elif name.startswith("slurmstepd") and "infinity" not in process.cmdline():
                found.steps.append(process)
            else:
                found.helpers.append(process)
    return found


def find_configured(conf: Path, *, system: bool, munge_socket: str) -> dict[str, psutil.Process]:
    """The daemons of a Slurm that is not an embedded one. system: `conf` is where the packages look, so that a daemon
    which names no configuration is its. munge_socket: empty for munge's own default."""
    found: dict[str, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            name = process.name()
            kind = next((daemon for daemon in DAEMONS if name == daemon or name.startswith(f"{daemon}-")), "")
            if not kind or process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = process.cmdline()
            if kind == "munged":
                sockets = [word.partition("=")[2] for word in words if word.startswith("--socket=")]
                ours = munge_socket in sockets if munge_socket else not sockets
            else:
                named = words[words.index("-f") + 1] if "-f" in words[:-1] else _environ(process).get("SLURM_CONF")
                ours = named == str(conf) or (named is None and system)
            if ours and _is_older(process, found.get(kind)):
                found[kind] = process
    return found


def _is_older(process: psutil.Process, than: psutil.Process | None) -> bool:
    return than is None or process.create_time() < than.create_time()


def _is_ours(process: psutil.Process, layout: Layout) -> bool:
    conf, socket = str(layout.conf), f"--socket={layout.munge_socket}"
    if any(word in (conf, socket) for word in process.cmdline()):
        return True
    return _environ(process).get("SLURM_CONF") == conf or _logs_here(process, layout)


def _logs_here(process: psutil.Process, layout: Layout, proc_root: Path = Path("/proc")) -> bool:
    """True when `process` writes to our slurmd's log: a slurmstepd of 24.11 shows neither conf nor environment."""
    place = proc_root / str(process.pid)
    try:
        descriptors = list((place / "fd").iterdir())
    except OSError:
        return False
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            if str(descriptor.readlink()).removesuffix(" (deleted)") == str(layout.log_dir / "slurmd.log"):
                return True
    # Not psutil's cwd(): some of its releases let the FileNotFoundError of a process that is just ending through.
    with contextlib.suppress(OSError):
        return str((place / "cwd").readlink()) == str(layout.log_dir)  # where slurmd goes when it becomes a daemon
    return False


def _environ(process: psutil.Process, proc_root: Path = Path("/proc")) -> dict[str, str]:
    """The environment that `process` was started with; empty when it may not be read.

    Not psutil's: slurmstepd writes its title over the head of it, and psutil stops at the empty entries there.
    """
    try:
        raw = (proc_root / str(process.pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in raw.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in pairs}


def step_jobs(found: Found, layout: Layout, node: str) -> set[int] | None:
    """Job ids that have a living slurmstepd; None when one of them does not say which job it serves.

    Both its process title ("slurmstepd: [3.batch]") and the socket that it listens on
    (spool/<node>_<job>.<step>) tell; releases may change either.
    """
    jobs: set[int] = set()
    for process in found.steps:
        try:
            title = re.search(r"\[(\d+)\.", " ".join(process.cmdline()))
        except psutil.NoSuchProcess:
            continue
        if title is not None:
            jobs.add(int(title[1]))
        elif (job := _job_of_socket(process, layout, node)) is not None:
            jobs.add(job)
        else:
            return None
    return jobs


def _job_of_socket(process: psutil.Process, layout: Layout, node: str) -> int | None:
    pattern = re.compile(re.escape(f"{layout.spool_dir}/{node}_") + r"(\d+)\.")
    with contextlib.suppress(psutil.Error, OSError):
        for connection in process.net_connections(kind="unix"):
            if match := pattern.match(str(connection.laddr)):
                return int(match[1])
    return None


def job_processes(layout: Layout, *, but: Iterable[int] = ()) -> list[psutil.Process]:
    """Processes that a slurmstepd of this directory started as a job, by the environment it gave them.

    SLURM_TASK_PID tells a job's processes from a person's shell in which SLURM_CONF is set (or salloc's).
    but: job ids to leave out.
    """
    conf, spared = str(layout.conf), {str(job) for job in but}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            environ = _environ(process)
            if (
                environ.get("SLURM_CONF") == conf
                and "SLURM_TASK_PID" in environ
                and environ.get("SLURM_JOB_ID") not in spared
                and process.pid != os.getpid()
            ):
                found.append(process)
    return found


def start_munged(programs: Programs, layout: Layout) -> None:
    """Start munged on our socket with our key. Raises DaemonFailed."""
    if not layout.munge_key.exists():
        layout.munge_key.touch(mode=0o600)
        layout.munge_key.write_bytes(os.urandom(1024))
    layout.munge_key.chmod(0o600)
    log = layout.log_dir / "munged.log"
    argv = [
        programs.munged,
        f"--socket={layout.munge_socket}",
        f"--key-file={layout.munge_key}",
        f"--pid-file={layout.run_dir / 'munged.pid'}",
        f"--log-file={log}",
        f"--seed-file={layout.munge_seed}",
    ]
    result = proc.run(argv, timeout=20, env=clean_environment(layout))
    if not result.ok:
        # Refused for the permissions of a directory above us (a group-writable home, say): ours are in order.
        result = proc.run([*argv, "--force"], timeout=20, env=clean_environment(layout))
    if not result.ok:
        raise DaemonFailed("munged", _reason(result.stderr, log, 0) or f"exit status {result.returncode}", log)


def start_slurm(daemon: str, argv: list[str], layout: Layout, port: int, *, patience: float = 15.0) -> None:
    """Start slurmctld or slurmd and wait until it listens on `port`.

    It forks itself into the background (no -D), so it is nobody's child here and leaves no zombie.
    patience: seconds. Raises DaemonFailed.
    """
    log = layout.log_dir / f"{daemon}.log"
    offset = log.stat().st_size if log.exists() else 0
    try:
        result = proc.run(argv, timeout=patience, env=clean_environment(layout), cwd=layout.dir)
    except proc.ProgramTimeout as error:
        raise DaemonFailed(daemon, _reason("", log, offset) or str(error), log) from None
    if not result.ok:
        reason = _reason(result.stderr, log, offset) or f"exit status {result.returncode}"
        raise DaemonFailed(daemon, reason, log)
    deadline = time.monotonic() + patience
    while daemon not in find(layout).daemons or not port_listens(port):
        fatal = _reason("", log, offset, only_fatal=True)
        if fatal and daemon not in find(layout).daemons:
            raise DaemonFailed(daemon, fatal, log)
        if time.monotonic() > deadline:
            raise DaemonFailed(daemon, _reason("", log, offset) or f"not listening after {patience:g} s", log)
        time.sleep(0.01)


def _reason(stderr: str, log: Path, offset: int, *, only_fatal: bool = False) -> str:
    """The line in which a daemon says why it gave up: the last fatal:, else the last error:."""
    text = stderr
    with contextlib.suppress(OSError), proc.open_text(log) as handle:
        handle.seek(offset)
        text += "\n" + handle.read()
    lines = [line.strip() for line in text.splitlines()]
    for word in ("fatal:",) if only_fatal else ("fatal:", "error:", "Error:"):
        hits = [line for line in lines if word in line and "Couldn't load specified plugin" not in line]
        if hits:
            return hits[-1]
    return ""


def last_reason(log: Path) -> str:
    """The last fatal: (else error:) line of `log`, "" when there is none."""
    return _reason("", log, 0)


def stop(processes: list[psutil.Process], *, patience: float = 8.0) -> None:
    """End `processes` one after another: SIGTERM, after `patience` seconds SIGKILL. Those already gone are fine.

    Raises HostError when one survives SIGKILL (it is stuck in the kernel).
    """
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
            if not _gone(process, patience):
                process.kill()
                if not _gone(process, patience):
                    raise HostError(
                        f"process {process.pid} ({process.name()}) does not end, not even by SIGKILL",
                        hint=f"ps -o pid,stat,wchan:30,args -p {process.pid}",
                    )


def end_together(processes: list[psutil.Process], *, patience: float) -> None:
    """SIGTERM to all of them, and SIGKILL to those that live `patience` seconds later."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    deadline = time.monotonic() + patience
    if not all([_gone(process, max(0.0, deadline - time.monotonic())) for process in processes]):
        kill(processes)


def kill(processes: list[psutil.Process], *, patience: float = 5.0) -> None:
    """SIGKILL them all and wait up to `patience` seconds."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + patience
    for process in processes:
        _gone(process, max(0.0, deadline - time.monotonic()))


def _gone(process: psutil.Process, patience: float) -> bool:
    return wait_for(lambda: not process.is_running() or _is_zombie(process), patience)


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_for(happened: Callable[[], bool], patience: float, *, pause: float = 0.02) -> bool:
    """Poll `happened` for up to `patience` seconds; its last answer."""
    deadline = time.monotonic() + patience
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


def ask(argv: list[str], layout: Layout, *, timeout: float = 10.0) -> proc.Result:
    """Run a Slurm command against this directory's controller. Raises ProgramMissing, ProgramTimeout."""
    environment: Mapping[str, str] = clean_environment(layout)
    return proc.run(argv, timeout=timeout, env=environment)


def sweep_files(layout: Layout, *, alive: Collection[int] | None) -> None:
    """Remove stale sockets, pid files and job scripts.

    alive: jobs that still run and keep theirs; None when that is not known (then the spool is left alone).
    A left-over script is not harmless: slurmd cannot launch the job again ("slurm_script: File exists") and
    Slurm holds it ("launch failed requeued held").
    """
    for path in layout.run_dir.glob("*"):
        path.unlink(missing_ok=True)
    if alive is None:
        return
    for path in layout.spool_dir.iterdir():
        if path.is_socket():
            job = re.search(r"_(\d+)\.\d+$", path.name)
            if job is None or int(job[1]) not in alive:
                path.unlink(missing_ok=True)
        elif (script := re.fullmatch(r"job(\d+)", path.name)) and int(script[1]) not in alive:
            shutil.rmtree(path, ignore_errors=True)
        elif (topology := re.match(r"hwloc_topo_(\d+)\.", path.name)) and int(topology[1]) not in alive:
            path.unlink(missing_ok=True)
