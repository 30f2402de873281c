"""The commit that an attempt runs from."""

from __future__ import annotations

import contextlib
from pathlib import Path

from gpuq.adapters import proc
from gpuq.adapters.files import is_there

_TIMEOUT = 10.0
_OID = "# branch.oid "
_PLAIN = [
    word
    for setting in (
        "core.hooksPath=/dev/null",
        "core.quotePath=false",
        "diff.relative=false",
        "diff.context=3",
        "diff.submodule=short",
        "submodule.recurse=false",
    )
    for word in ("-c", setting)
]


class Head:
    """The commit that a project stands at. git is asked at once, the answer is taken when it is needed."""

    def __init__(self, project: Path) -> None:
        argv = ["git", "-C", str(project), "status", "--porcelain=v2", "-z", "--branch", "--untracked-files=normal"]
        self.untracked: tuple[str, ...] = ()
        """Once there is an answer: what git does not have and does not ignore, relative to the root of the work tree; a
        directory that git has nothing of ends in `/`."""
        self._running: proc.Running | None = None
        with contextlib.suppress(proc.ProgramMissing):
            self._running = proc.start([*argv, "--ignore-submodules=dirty"], timeout=_TIMEOUT)

    def drop(self) -> None:
        """The answer is not wanted any more."""
        if self._running is not None:
            self._running.drop()

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
        entries = iter(result.stdout.split("\0") if result.ok else ())
        commit, dirty, untracked = "(initial)", False, []
        for entry in entries:  # git-status(1), "Porcelain Format Version 2"
            if entry.startswith(_OID):
                commit = entry.removeprefix(_OID)
            elif entry.startswith("? "):
                untracked.append(entry[2:])
            elif entry and not entry.startswith("#"):
                dirty = True
                if entry.startswith("2 "):
                    next(entries, "")  # where it was renamed from
        if commit == "(initial)":
            return None, None
        self.untracked = tuple(untracked)
        return commit, dirty


def begin(place: Path, *argv: str, timeout: float = _TIMEOUT, data: bytes | None = None) -> proc.Running | None:
    """Start git in `place`; None: there is no git. Neither hooks nor the user's own ways of showing differences come in."""
    with contextlib.suppress(proc.ProgramMissing):
        return proc.start(
            ["git", "--no-optional-locks", *_PLAIN, "-C", str(place), *argv],
            timeout=timeout,
            input_bytes=data,
        )
    return None


def ask(place: Path, *argv: str, timeout: float = _TIMEOUT, data: bytes | None = None) -> proc.Result | None:
    """What git says in `place`; None: there is no git, or no answer. A status other than 0 is for the caller to judge."""
    running = begin(place, *argv, timeout=timeout, data=data)
    with contextlib.suppress(proc.ProgramTimeout):
        return None if running is None else running.result()
    return None


def listed(place: Path, *argv: str) -> list[str]:
    """The names that a git command with `-z` prints; empty also where git does not answer."""
    result = ask(place, *argv)
    return [name for name in result.stdout.split("\0") if name] if result is not None and result.ok else []


def outside(runs: str) -> list[str]:
    """The pathspec of everything but the runs root (`runs`, relative to the project): git-glossary(7)."""
    return ["--", ":/", f":(exclude,literal){runs}"]


class Difference:
    """What the work tree outside of the runs root differs by from a commit. Asked at once, like Head."""

    def __init__(self, project: Path, commit: str, runs: str) -> None:
        plain = [
            "--binary",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--no-renames",
            "--src-prefix=a/",  # whatever diff.noprefix and diff.mnemonicPrefix say
            "--dst-prefix=b/",
            "--full-index",
            "--ignore-submodules=dirty",
        ]
        self._running = begin(project, "diff", *plain, commit, *outside(runs), timeout=30)

    def drop(self) -> None:
        """The answer is not wanted any more."""
        if self._running is not None:
            self._running.drop()

    def answer(self) -> str | None:
        """As `git apply` takes it, from the root of the work tree; None: no answer. To be called once."""
        with contextlib.suppress(proc.ProgramTimeout):
            result = None if self._running is None else self._running.result()
            return result.stdout if result is not None and result.ok else None
        return None


def changed_names(project: Path, older: str, newer: str | None, runs: str) -> list[str] | None:
    """The files outside of the runs root that differ between two commits, or (`newer` None) between a commit and the
    work tree; None: git cannot tell (it may not have the commit any more)."""
    result = ask(
        project, "diff", "--name-only", "--no-renames", "-z", older, *([newer] if newer else []), *outside(runs)
    )
    return [name for name in result.stdout.split("\0") if name] if result is not None and result.ok else None


def changed_blobs(project: Path, older: str, newer: str, runs: str) -> dict[str, tuple[str, str]]:
    """Of the files outside of the runs root that differ between two commits, git's hashes in both; empty also where git
    cannot tell."""
    raw = listed(project, "diff", "--raw", "--no-abbrev", "--no-renames", "-z", older, newer, *outside(runs))
    pairs = zip(raw[::2], raw[1::2], strict=False)  # `:mode mode blob blob status`, name
    return {name: (words[2], words[3]) for head, name in pairs if len(words := head.split(" ")) == 5}


def toplevel(directory: Path) -> Path | None:
    """The root of the work tree around `directory`, found as git finds it: the next `.git` upward."""
    for candidate in (directory, *directory.parents):
        if is_there(candidate / ".git"):
            return candidate
    return None
