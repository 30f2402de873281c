"""The last word of a program in its log, as whoever records the end of an attempt reads it."""

from __future__ import annotations

import math
import re
from pathlib import Path

from gpuq.adapters import logfile
from gpuq.core.inside.lintlog import AGAIN
from gpuq.core.inside.runlines import ENDS, Line, read

_TAIL = 256 * 1024
"""Bytes at the end of a log that are read."""
_AGAIN = AGAIN.encode()
"""What stands before it is an earlier start's."""
_ENDS = re.compile(rb"^(?:" + "|".join(ENDS).encode() + rb") [^\r\n]*", re.MULTILINE)


def tail(log: Path) -> bytes:
    """The end of a log, of its last start; empty: there is none."""
    try:
        if not log.is_file():  # a FIFO would never be read to its end
            return b""
        return logfile.tail(log, _TAIL).rpartition(_AGAIN)[2]
    except (OSError, ValueError):
        return b""


def last_line(end: bytes) -> Line | None:
    """The last FINISHED or FAILED line in the end of a log; None: there is none, or it cannot be read."""
    for found in reversed(_ENDS.findall(end)):
        try:
            return read(found.decode("utf-8", "replace"))
        except ValueError:
            continue
    return None


def score_in(end: bytes) -> float | None:
    """`score=` of the last line, where that is FINISHED; None: it has none, or that is no number."""
    line = last_line(end)
    try:
        score = float((line.get("score") if line is not None and line.kind == "FINISHED" else None) or "")
    except ValueError:
        return None
    return score if math.isfinite(score) else None
