"""A frozen copy of a project's tree, in which a job runs whatever is edited meanwhile.

``runs/.gpuq/snapshots/<token>`` is a git worktree of the commit, with the uncommitted difference applied and untracked
files copied. What git ignores (data, environments) is linked, not copied, and so is the run's own directory: what the job
writes there is there. What it writes elsewhere in the copy is moved out of it before that goes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

from gpuq.adapters import git
from gpuq.adapters.files import is_there, move, write_atomic
from gpuq.core.experiment.provenance import NOT_CODE

SNAPSHOTS = "snapshots"
_LARGE = 16 << 20
"""Bytes from which on an untracked file is taken for data, and linked."""
_MOST = 20_000
"""Untracked files that are still copied one by one."""
_TIMEOUT = 600.0


class SnapshotFailed(Exception):
    """The copy could not be made; nothing of it is left."""


def place_of(runs: Path, token: str) -> Path:
    """Where the snapshot of an attempt is."""
    return runs / ".gpuq" / SNAPSHOTS / token


def project_in(runs: Path, token: str, project: Path) -> Path:
    """The project's root in the snapshot of an attempt: git's work tree may begin further up."""
    top = git.toplevel(project) or project
    return place_of(runs, token) / project.relative_to(top)


def make(project: Path, runs: Path, tag: str, token: str, commit: str, patch: str) -> list[str]:
    """Make the snapshot; what of it is not frozen, for a person. Raises SnapshotFailed."""
    top = git.toplevel(project)
    if top is None:
        raise SnapshotFailed(f"{project} is not in a git work tree")
    place = place_of(runs, token)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        ignore = place.parent.parent / ".gitignore"
        if not is_there(ignore):
            write_atomic(ignore, "*\n", durable=False)
        _git(top, "worktree", "add", "--quiet", "--detach", "--lock", str(place), commit)
        if patch:
            data = patch.encode("utf-8", "surrogateescape")
            _git(place, "apply", "--binary", "--whitespace=nowarn", "-", data=data)
        notes = _fill(place, top, runs, tag)
        os.utime(place / ".git")  # from now on, what changes is the job's
        _git(top, "worktree", "unlock", str(place))
    except OSError as error:
        remove(project, runs, token)
        raise SnapshotFailed(f"{error.filename or place}: {error.strerror or error}") from None
    except BaseException:
        remove(project, runs, token)
        raise
    return notes


def remove(project: Path, runs: Path, token: str, *, keep: Path | None = None) -> list[str]:
    """Take the snapshot away; what it links to stays. Nothing happens where there is none.

    keep: where the files go that the job has written or changed in it; their names are returned. Raises OSError when one
    cannot be moved there; the snapshot is there still.
    """
    place = place_of(runs, token)
    kept = []
    if is_there(place):
        if keep is not None:
            kept = _move_out(place, keep)
        git.ask(project, "worktree", "remove", "--force", "--force", str(place), timeout=_TIMEOUT)
        shutil.rmtree(place, ignore_errors=True)
        git.ask(project, "worktree", "prune")
    with contextlib.suppress(OSError):
        place.parent.rmdir()
    return kept


def _move_out(place: Path, keep: Path) -> list[str]:
    try:
        made = (place / ".git").stat().st_ctime_ns
        administration = (place / ".git").read_text().removeprefix("gitdir: ").rstrip("\n")
    except FileNotFoundError:
        return []
    if is_there(Path(administration) / "locked"):
        return []  # it never was a whole one: nothing in it is a job's (gitrepository-layout(5), "worktrees/<id>/locked")
    moved = []
    for name in _newer(place, made):
        target = keep / name
        target.parent.mkdir(parents=True, exist_ok=True)
        move(place / name, target)
        moved.append(name)
    return moved


def _newer(place: Path, made: int, below: str = "") -> Iterator[str]:
    """The files, by their names in `place`, that were written there, or changed, after `made` (a ctime in ns)."""
    for entry in sorted(os.scandir(place / below), key=lambda one: one.name):
        if entry.name in NOT_CODE or (entry.name == ".git" and not below):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _newer(place, made, f"{below}{entry.name}/")
        elif (entry.is_symlink() or entry.is_file()) and entry.stat(follow_symlinks=False).st_ctime_ns > made:
            yield below + entry.name


def sweep(project: Path, runs: Path, keep: Iterable[str]) -> list[Path]:
    """Take away the snapshots of attempts that are not open any more: their gpuq was killed before it could.

    Where files are that the jobs had written there.
    """
    wanted, left = set(keep), []
    with contextlib.suppress(OSError):
        for name in os.listdir(place_of(runs, "x").parent):
            if name not in wanted:
                aside = runs / ".gpuq" / "left" / name
                if remove(project, runs, name, keep=aside):
                    left.append(aside)
    return left


def _git(place: Path, *argv: str, data: bytes | None = None) -> None:
    result = git.ask(place, *argv, timeout=_TIMEOUT, data=data)
    if result is None or not result.ok:
        words = "it does not answer" if result is None else " ".join(result.stderr.split())
        raise SnapshotFailed(f"git {argv[0]}: {words}")


def _fill(place: Path, top: Path, runs: Path, tag: str) -> list[str]:
    """Copy what is untracked, link what is ignored, the submodules and the run's directory."""
    notes = []
    own = runs / tag
    large, others = [], []
    names, made = [], {}
    for name in git.listed(top, "ls-files", "--others", "--exclude-standard", "-z"):
        if tool := next((part for part in PurePath(name).parts if part in NOT_CODE), None):
            made[name.partition(f"{tool}/")[0] + tool] = tool
        elif ".gpuq" not in PurePath(name).parts:
            names.append(name)
    if len(names) > _MOST:
        raise SnapshotFailed(
            f"git does not ignore {len(names)} files that it does not have; data belong into .gitignore"
        )
    for name in (name for name, tool in made.items() if tool != "__pycache__"):
        _link(place / name, top / name)
    for name in names:
        source = top / name
        if source.is_relative_to(own):
            continue
        if name.endswith("/"):  # a repository of its own
            others.append(name)
            _link(place / name.rstrip("/"), source)
            continue
        if source.is_file() and not source.is_symlink() and source.stat().st_size >= _LARGE:
            large.append(name)
            _link(place / name, source)
        else:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place / name, follow_symlinks=False)
    if large:
        notes.append(f"not frozen, because large: {', '.join(large[:4])}")
    if others:
        notes.append(f"not frozen, because repositories of their own: {', '.join(others[:4])}")
    modules = git.ask(top, "config", "--file", ".gitmodules", "--get-regexp", r"\.path$")
    if modules is not None and modules.ok:
        paths = [line.split(" ", 1)[1] for line in modules.stdout.splitlines() if " " in line]
        notes.append(f"not frozen, because submodules: {', '.join(paths)}")
        for path in paths:
            with contextlib.suppress(OSError):
                (place / path).rmdir()
            _link(place / path, top / path)
    for name in git.listed(top, "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"):
        source = top / name.rstrip("/")
        if source.name in {"__pycache__", ".gpuq"} or source.is_relative_to(own):
            continue
        _link(place / name.rstrip("/"), source)
    inside = place / own.relative_to(top)
    if own.is_relative_to(top) and not _leads_out(inside, place):
        if inside.is_dir():
            shutil.rmtree(inside)
        _link(inside, own)
    return notes


def _link(link: Path, target: Path) -> None:
    if _leads_out(link, link.parent) or is_there(link):
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        link.symlink_to(target)


def _leads_out(path: Path, place: Path) -> bool:
    """True where `path` is below a directory of `place` that is a link: it is the real one already."""
    return any(one.is_symlink() for one in (path, *path.parents) if one.is_relative_to(place) and one != place)
