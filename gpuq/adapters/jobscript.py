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


class Script:
    """A job.sh whose text is in order. Its shell is reading it; `accepted` says what that came to."""

    def __init__(self, text: str, check: ScriptCheck, shown: str, tag: str, syntax: proc.Running | None) -> None:
        self.text = text
        self.check = check
        self._shown = shown
        self._tag = tag
        self._syntax = syntax

    def accepted(self) -> None:
        """Wait for the shell. To be called once. Raises ScriptRefused with every fault that it names."""
        if self._syntax is not None:
            _refuse(_syntax_faults(self._syntax, self.check.interpreter, self._shown), self._tag)

    def drop(self) -> None:
        """What the shell says is not wanted any more."""
        if self._syntax is not None:
            self._syntax.drop()


def read(path: Path, shown: str, tag: str) -> Script:
    """A run's job.sh and what `check_script` says of it. Its syntax is still being checked then.

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
    syntax = None
    if not faults and is_shell(check.interpreter):
        env = {"LC_ALL": "C", "PATH": os.defpath}
        try:
            syntax = proc.start([check.interpreter, "-n"], timeout=_BASH_TIMEOUT, input_bytes=raw, env=env)
        except proc.ProgramMissing:
            faults.append(f"{shown}:1: there is no {check.interpreter} on this host to run the script")
    _refuse(faults, tag)
    return Script(text, check, shown, tag, syntax)


def sha256(text: str) -> str:
    """The digest of a script, in hexadecimal."""
    try:  # Loading OpenSSL takes 2 ms; the standard library's `random` spares them in the same way.
        from _sha256 import sha256 as digest  # type: ignore[import-not-found]  # Python 3.11; elsewhere under other names
    except ImportError:
        from hashlib import sha256 as digest
    found: str = digest(text.encode("utf-8", "surrogateescape")).hexdigest()
    return found


def _refuse(faults: list[str], tag: str) -> None:
    if faults:
        raise ScriptRefused(faults, hint=f"mend it, then: gpuq submit {tag}")


def _syntax_faults(running: proc.Running, interpreter: str, shown: str) -> list[str]:
    try:
        result = running.result()
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
