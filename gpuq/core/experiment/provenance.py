"""What an attempt ran from: the code, the lock files, the machine. Enough to say why two attempts differ."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gpuq.core.config import PROJECT_FILE

ORIGIN_FILE = "origin.json"
"""In a run's directory: where it comes from (gpuq.core.experiment.origin)."""


class LockFile(msgspec.Struct, frozen=True):
    """A file that pins what is installed, in the project root."""

    name: str
    sha256: str


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Written into `attemptN.json` at the submission, on the host that submits. None: not known, or there is none."""

    diff: str | None = None
    """Path of `attemptN.diff`: what tracked files outside the runs root differed by from the commit."""
    diff_sha256: str | None = None
    """Of the whole difference, also where it was too large to be kept."""
    untracked: tuple[str, ...] = ()
    """Code files that git does not have, relative to the project; a directory ends in `/`. Where there is no git: the
    files of the project that job.sh names."""
    locks: tuple[LockFile, ...] = ()
    python: str | None = None
    """Version and place of the project's environment, as its files say."""
    driver: str | None = None
    gpu: str | None = None
    slurm: str | None = None
    gpuq: str | None = None
    snapshot: str | None = None
    """The frozen copy of the tree that the job runs in; removed when it has ended."""


CODE = frozenset(
    ".py .pyx .ipynb .sh .bash .toml .yaml .yml .json .cfg .ini .c .cc .cpp .cu .cuh .h .hpp .rs .jl .r .lua .nix".split()
)
"""What the name of a code file ends in."""

NOT_CODE = frozenset({"__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache"})
"""Directories that are made by tools, also where git is not told to ignore them."""

_FOR_PEOPLE = frozenset(
    {
        PROJECT_FILE,
        "AGENTS.md",
        "CLAUDE.md",
        "ops/decisions.md",
        ".gitignore",
        ".claude/settings.json",
        ".codex/hooks.json",
    }
)
"""Files of `gpuq init`. AGENTS.md asks for a line in ops/decisions.md before every submission."""

_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "pixi.lock", "Pipfile.lock", "flake.lock")
_PINS = (("requirements", (".txt",)), ("environment", (".yml", ".yaml")), ("conda", (".yml", ".yaml", ".txt")))


def is_code(name: str) -> bool:
    """True where a path's end says that it is code or configuration."""
    dot = name.rfind(".")
    return dot > name.rfind("/") and name[dot:].lower() in CODE


def is_lock(name: str) -> bool:
    """True for the name of a file that pins what is installed."""
    return name in _LOCKS or any(name.startswith(head) and name.endswith(tails) for head, tails in _PINS)


def few(names: Iterable[str], most: int = 4) -> str:
    """`a.py, b.py and 7 more`."""
    listed = list(names)
    over = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {over} more" if over > 0 else "")


def code_only(names: Iterable[str]) -> list[str]:
    """`names` without what tools make (NOT_CODE), and without what `gpuq init` writes: no program reads that.

    >>> code_only(["train.py", "ops/decisions.md", "AGENTS.md", ".venv/bin/activate"])
    ['train.py']
    """
    return [name for name in names if name not in _FOR_PEOPLE and not NOT_CODE.intersection(name.split("/"))]


def new_blob(part: str) -> str | None:
    """git's hash of a file after its part of a patch (git-diff(1), `--full-index`); None: its content is the same."""
    match = re.search(r"^index [0-9a-f]+\.\.([0-9a-f]+)", part, re.MULTILINE)
    return match[1] if match else None


def patched(patch: str) -> dict[str, str]:
    """The files that a patch of git's is about, each with its part of the patch."""
    found = {}
    for part in ("\n" + patch.rstrip("\n")).split("\ndiff --git ")[1:]:
        head = part.split("\n", 1)[0]
        found[head[len(head) // 2 + 1 :].strip('"').removeprefix("b/")] = (
            part  # without renames both halves are one name
        )
    return found


def differing(old: str, new: str) -> list[str]:
    """The files that two patches of the same tree leave different."""
    before, after = patched(old), patched(new)
    return [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
