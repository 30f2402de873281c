"""The commit that an attempt runs from."""

from __future__ import annotations

import contextlib
from pathlib import Path

from gpuq.adapters import proc
from gpuq.adapters.files import is_there

_TIMEOUT = 10.0
_OID = "# branch.oid "


class Head:
    """The commit that a project stands at. git is asked at once, the answer is taken when it is needed."""

    def __init__(self, project: Path) -> None:
        argv = ["git", "-C", str(project), "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
        self._running: proc.Running | None = None
        with contextlib.suppress(proc.ProgramMissing):
            self._running = proc.start([*argv, "--ignore-submodules=dirty"], timeout=_TIMEOUT)

    def answer(self) -> tuple[str | None, bool | None]:
        """(commit, dirty); (None, None) outside git, before the first commit, or where git does not answer.

        dirty: a tracked file differs from the commit. Untracked files do not count: every run's job.sh begins as one.
        To be called once.
        """
        if self._running is None:
            return None, None
        try:
            result = self._running.result()
        except proc.ProgramTimeout:
            return None, None
        lines = result.stdout.splitlines() if result.ok else []
        commit = next((line.removeprefix(_OID) for line in lines if line.startswith(_OID)), "(initial)")
        if commit == "(initial)":
            return None, None
        return commit, any(line and not line.startswith("#") for line in lines)


def toplevel(directory: Path) -> Path | None:
    """The root of the work tree around `directory`, found as git finds it: the next `.git` upward."""
    for candidate in (directory, *directory.parents):
        if is_there(candidate / ".git"):
            return candidate
    return None
