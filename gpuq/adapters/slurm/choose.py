"""Which backend answers gpuq's questions: PySlurm where it is installed and fits the Slurm here, else the commands.

PySlurm binds to one release of Slurm, and its import ends the process where libslurm cannot work with its
configuration. So nothing is imported here: the configuration has to be readable and the release has to be that of the
commands; then a child process imports it. When that went well it is written down, and not tried again until PySlurm, the
commands or a configuration file has changed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from gpuq.adapters import proc
from gpuq.adapters.slurm.ahead import Asked
from gpuq.adapters.slurm.client import SlurmCommands
from gpuq.adapters.slurm.locate import RUN_CONF, SYSTEM_CONF, Location, Source, environment_for
from gpuq.core.inherited import scrub
from gpuq.core.ports import Say, Slurm
from gpuq.errors import ConfigError

VARIABLE = "GPUQ_BACKEND"
COMMANDS = "commands"
PYSLURM = "pyslurm"

PROBE_TIMEOUT = 10.0
"""Seconds for the child that imports PySlurm; it takes 0.05."""


class Choice(msgspec.Struct, frozen=True):
    """The backend, and why it is this one."""

    name: str
    """`commands` or `pyslurm`."""
    reason: str
    """A sentence without its full stop, for --debug."""
    slurm: Slurm


def choose(
    location: Location, environment: Mapping[str, str], *, ahead: Asked | None = None, say: Say | None = None
) -> Choice:
    """The backend for `location`, which answers what was asked `ahead`. say: see SlurmCommands.

    GPUQ_BACKEND=commands or pyslurm forces one; raises ConfigError when it cannot be.
    """
    wanted = environment.get(VARIABLE, "")
    if wanted not in {"", COMMANDS, PYSLURM}:
        raise ConfigError(f"environment: {VARIABLE}={wanted!r} is neither {COMMANDS!r} nor {PYSLURM!r}")
    obstacle = f"{VARIABLE}={COMMANDS}" if wanted == COMMANDS else why_not_pyslurm(location, environment)
    if not obstacle:
        from gpuq.adapters.slurm.pyslurm import PySlurm

        return Choice(
            PYSLURM,
            "PySlurm reads the queue: it fits the Slurm here",
            PySlurm(location, environment, ahead=ahead, say=say),
        )
    if wanted == PYSLURM:
        raise ConfigError(
            f"environment: {VARIABLE}={PYSLURM}, but {obstacle}",
            hint=f"unset {VARIABLE}; scripts/install-pyslurm.sh installs PySlurm where that is possible",
        )
    return Choice(
        COMMANDS, f"squeue reads the queue: {obstacle}", SlurmCommands(location, environment, ahead=ahead, say=say)
    )


def why_not_pyslurm(
    location: Location, environment: Mapping[str, str], *, system: Sequence[Path] = (SYSTEM_CONF, RUN_CONF)
) -> str:
    """What is in the way of PySlurm, as a sentence without its full stop; empty: nothing is."""
    package = _installed()
    if package is None:
        return "PySlurm is not installed"
    conf = _conf(location, system)
    if conf is None:
        return "there is no slurm.conf here that can be checked before PySlurm is imported"
    try:
        conf.open("rb").close()
    except OSError as error:
        return f"{conf} cannot be read ({error.strerror}), and importing PySlurm without it would end gpuq"
    version = _version(package)
    if version is None:
        return f"the PySlurm in {package} does not say its version"
    env = scrub(environment) | environment_for(location)
    stamp, key = _stamp(environment), _key(package, version, conf, env)
    if _remembered(stamp) == key:
        return ""
    found = _commands_version(env)
    if found is None:
        return "squeue does not say which Slurm this is"
    if _release(version) != _release(found):
        return f"PySlurm {version} is for Slurm {_release(version)}, and this is {found}"
    obstacle = _probe(env)
    if not obstacle:
        _remember(stamp, key)
    return obstacle


def _installed() -> Path | None:
    # A sixth of the price of importlib.util, and paid by everybody who has no PySlurm.
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(PYSLURM)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _conf(location: Location, system: Sequence[Path]) -> Path | None:
    if location.source is Source.SYSTEM and location.conf is None:
        return next((path for path in system if path.exists()), None)
    return location.conf


def _version(package: Path) -> str | None:
    try:
        text = (package / "version.py").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    match = re.search(r"^__version__\s*=\s*[\"']([0-9.]+)", text, re.MULTILINE)
    return match[1] if match else None


def _release(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _commands_version(env: Mapping[str, str]) -> str | None:
    """`25.11.2` from `slurm 25.11.2` or `slurm-wlm 25.11.2`. The commands are installed with libslurm; where slurmctld
    is of another release than both, PySlurm is told so, and its place is taken by the commands."""
    try:
        result = proc.run(["squeue", "--version"], timeout=PROBE_TIMEOUT, env=env)
    except (proc.ProgramMissing, proc.ProgramTimeout, OSError):
        return None
    match = re.fullmatch(r"slurm\S*\s+([0-9]+\.[0-9]+\S*)\s*", result.stdout)
    return match[1] if result.ok and match else None


def _probe(env: Mapping[str, str]) -> str:
    from gpuq.adapters.slurm.pyslurm import PROBE

    try:
        result = proc.run([sys.executable, "-c", PROBE], timeout=PROBE_TIMEOUT, env=env)
    except proc.ProgramTimeout:
        return f"importing PySlurm gave no answer within {PROBE_TIMEOUT:g} s"
    except (proc.ProgramMissing, OSError) as error:
        return f"whether PySlurm can be imported could not be tried ({error})"
    if result.ok:
        return ""
    said = result.stderr.strip().splitlines() or [f"exit {result.returncode}"]
    return f"PySlurm cannot be imported: {said[-1].strip()}"


# -- what has been tried before --------------------------------------------------------------------------------


def _stamp(environment: Mapping[str, str]) -> Path | None:
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME", ""), ".cache")  # noqa: PTH118
    return Path(cache, "gpuq", "pyslurm-imports") if cache.startswith("/") else None


def _key(package: Path, version: str, conf: Path, env: Mapping[str, str]) -> str:
    """Changes with everything that the answer may depend on: PySlurm, the commands, the configuration."""
    lines = [version, sys.executable, *_facts(package / "version.py")]
    for directory in env.get("PATH", os.defpath).split(os.pathsep):
        squeue = Path(directory or ".", "squeue")
        if squeue.exists():
            lines += _facts(squeue)
            break
    lines += _facts(conf)
    for path in sorted(conf.parent.glob("*.conf")):  # those that slurm.conf includes are usually beside it
        lines += _facts(path)
    return "\n".join(lines)


def _facts(path: Path) -> Iterator[str]:
    try:
        real = path.resolve()
        status = real.stat()
    except OSError:
        return
    yield f"{real} {status.st_ino} {status.st_size} {status.st_mtime_ns}"


def _remembered(stamp: Path | None) -> str | None:
    try:
        return None if stamp is None else stamp.read_text()
    except (OSError, UnicodeDecodeError):
        return None


def _remember(stamp: Path | None, key: str) -> None:
    from gpuq.adapters import files

    if stamp is None:
        return
    try:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(stamp, key, durable=False)
    except OSError:
        return  # it will be tried again
