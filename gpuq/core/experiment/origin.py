"""Where a run comes from: `origin.json` in its directory, written by `gpuq new`. A published format: see ADR 24."""

from __future__ import annotations

import shlex

import msgspec

ORIGIN_VERSION = 1


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One variable that was changed."""

    key: str
    """As it is written in the script: `LR`, `--lr`."""
    old: str
    """The old value; as it is written where the shell would have to expand it."""
    new: str
    line: int

    @property
    def words(self) -> str:
        """For a person: `LR=3e-4`, `--lr 3e-4`."""
        return f"{self.key}{' ' if self.key.startswith('-') else '='}{shlex.quote(self.new)}"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The run that was copied, and what was changed in the copy."""

    version: int = ORIGIN_VERSION
    parent: str
    """TAG."""
    attempt: int | None
    """The attempt of the parent whose script was copied; None: its job.sh, which had not succeeded."""
    changes: tuple[Change, ...]
    script_sha256: str
    """Of the job.sh that was written. Another one now: it was edited by hand."""

    @property
    def words(self) -> str:
        """For a person: `LR=3e-4, --epochs 20`."""
        return ", ".join(one.words for one in self.changes)
