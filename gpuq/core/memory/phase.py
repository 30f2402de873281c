"""How far a program was when it held most, from the lines that runlog writes (core/inside/runlines). Pure."""

from __future__ import annotations

import re

from gpuq.core.printable import printable

TAIL = 8192
"""Bytes of the log's end in which its last word is looked for: a look must cost little."""
_LONGEST = 120
_STEP = re.compile(rb"[\r\n]STEP ([^\r\n]*)(?=[\r\n])")
_TIMES = re.compile(r" (?:speed|eta|elapsed|at)=\S*")
"""What runlog adds of its own, and says nothing of a phase."""


def phase(tail: bytes) -> str:
    """What the last whole STEP line says; empty: there is none.

    >>> phase(b"START total=9\\nSTEP step=3 part=evaluation eta=2s\\nSTEP st")
    'step=3 part=evaluation'
    """
    found = _STEP.findall(tail)
    if not found:
        return ""
    return _TIMES.sub("", printable(found[-1].decode("utf-8", "replace").strip()))[:_LONGEST]
