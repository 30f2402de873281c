"""A run's job.sh on disk: read it, and let its own shell check the syntax."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from gpuq.adapters import proc
from gpuq.core.script import ScriptCheck, check_script, is_shell
from gpuq.errors import ScriptRefused

_BASH_TIMEOUT = 10.0
_SIZE_LIMIT = 4 * 1024 * 1024
"""Bytes: slurm.conf(5), max_script_size of SchedulerParameters, by default 4 megabytes."""


def read(path: Path, shown: str, tag: str) -> tuple[str, ScriptCheck]:
    """The text of a run's job.sh and what `check_script` says of it.

    shown: how messages name the file. Raises ScriptRefused with every fault that was found.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise ScriptRefused(
            [f"{shown} does not exist"], hint=f"a run is a directory with a job.sh: write {shown}"
        ) from None
    except OSError as error:
        raise ScriptRefused([f"{shown}: {error.strerror}"]) from None
    if stat.S_ISDIR(mode):
        raise ScriptRefused([f"{shown} is a directory; it must be the script that the job runs"])
    if not stat.S_ISREG(mode):
        raise ScriptRefused([f"{shown} is not a regular file"])
    faults = []
    if not mode & 0o111:
        faults.append(f"{shown} is not executable; make it so with: chmod +x {shown}")
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ScriptRefused([f"{shown}: {error.strerror}"]) from None
    if len(raw) > _SIZE_LIMIT:
        raise ScriptRefused([f"{shown} is larger than the 4 megabytes that Slurm takes"])
    text = raw.decode("utf-8", "surrogateescape")
    check = check_script(text, shown)
    faults += check.faults
    if not faults and is_shell(check.interpreter):
        faults += _syntax(raw, check.interpreter, shown)
    if faults:
        raise ScriptRefused(faults, hint=f"mend it, then: gpuq submit {tag}")
    return text, check


def _syntax(raw: bytes, interpreter: str, shown: str) -> list[str]:
    try:
        result = proc.run(
            [interpreter, "-n"], timeout=_BASH_TIMEOUT, input_bytes=raw, env={"LC_ALL": "C", "PATH": os.defpath}
        )
    except proc.ProgramMissing:
        return [f"{shown}:1: there is no {interpreter} on this host to run the script"]
    except proc.ProgramTimeout as error:
        return [f"{shown}: its syntax could not be checked: {error}"]
    if result.ok:
        return []
    found = []
    for line in result.stderr.splitlines():
        match = re.match(r".*?:?\s*(?:line )?(\d+): (.*)", line)
        if match and not match[2].startswith("`"):
            found.append(f"{shown}:{match[1]}: {match[2]}")
    return found or [f"{shown}: {interpreter} -n refuses it: {result.stderr.strip()}"]
