"""Check logs against the format of START, STEP, FINISHED and FAILED."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpuq.core.inside.lintlog import LONGEST, lint
from gpuq.errors import NotFound


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of a log."""

    file: str
    line: int
    text: str


def check(path: Path) -> list[Checked]:
    """The faults of one log, of any size. Raises NotFound where it cannot be read."""
    try:
        with path.open("rb") as handle:
            pieces = iter(lambda: handle.readline(LONGEST), b"")
            return [Checked(file=str(path), line=fault.line, text=fault.text) for fault in lint(pieces)]
    except OSError as error:
        raise NotFound(f"{path}: {error.strerror}", hint="gpuq log TAG --path says where a log is") from None
