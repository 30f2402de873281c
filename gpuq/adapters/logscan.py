"""Read what matters of a log of any size: its two ends, and the places between that say something.

Nothing is held of a log but windows around what was found, so a progress bar of 500 MB in one line, NUL bytes and
bytes that are no text cost neither memory nor an exception. Fixed texts are looked for (bytes.find goes through
gigabytes in a second); regular expressions see only the lines that hold one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from gpuq.core.triage.evidence import Log

WHOLE = 1024 * 1024
"""Bytes. A log up to this size is read as it is."""
HEAD = 64 * 1024
TAIL = 512 * 1024
"""Bytes at the two ends of a larger log that are read whatever they hold."""
NEAR_HEAD = 1024 * 1024
NEAR_TAIL = 4 * 1024 * 1024
"""Bytes at the two ends in which every text is looked for; between them only those that the caller wants anywhere."""
LONGEST = 4000
"""Characters kept of a line."""
_CHUNK = 1024 * 1024
_EACH = 8
"""How many places of one text are kept from either end of the log."""
_BEFORE = 1024
_AFTER = 16 * 1024
"""Bytes around a place: a whole traceback."""
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b\][^\x07]*\x07")


def scan(path: Path, texts: Sequence[str], anywhere: Sequence[str]) -> Log:
    """What matters of the log. texts: what to look for near the two ends; anywhere: those to look for in all of it.

    Raises OSError.
    """
    with path.open("rb") as handle:
        return scan_open(handle, texts, anywhere)


def scan_open(handle: BinaryIO, texts: Sequence[str], anywhere: Sequence[str]) -> Log:
    """What matters of a log that is open. Raises OSError."""
    needles = [text.encode() for text in texts]
    size = handle.seek(0, 2)
    if size <= WHOLE:
        ranges = [(0, size)]
    else:
        ranges = [(0, HEAD), (size - TAIL, size)]
        # The middle has the rarest and longest of them only: they are found fastest.
        tail = max(NEAR_HEAD, size - NEAR_TAIL)
        regions = (
            (0, NEAR_HEAD, needles),
            (NEAR_HEAD, tail, [text.encode() for text in anywhere]),
            (tail, size, needles),
        )
        for start, end, wanted in regions:
            for at in _places(handle, start, min(end, size), wanted):
                ranges.append((max(0, at - _BEFORE), min(size, at + _AFTER)))
    parts = [_lines(handle, start, end, needles, size) for start, end in _merged(ranges)]
    return Log(parts=tuple(part for part in parts if part), size=size)


def _places(handle: BinaryIO, start: int, end: int, needles: list[bytes]) -> list[int]:
    """Offsets of the first and the last few places of each text between `start` and `end`."""
    if start >= end or not needles:
        return []
    first: dict[bytes, list[int]] = {needle: [] for needle in needles}
    last: dict[bytes, list[int]] = {needle: [] for needle in needles}
    overlap = max(map(len, needles)) - 1
    kept = b""
    handle.seek(start)
    at = start
    while at < end and (data := handle.read(min(_CHUNK, end - at))):
        block, base = kept + data, at - len(kept)
        for needle in needles:
            found = block.find(needle)
            if found < 0:
                continue
            while found >= 0 and len(first[needle]) < _EACH:
                first[needle].append(base + found)
                found = block.find(needle, found + 1)
            last[needle] = (last[needle] + [base + one for one in _from_behind(block, needle)])[-_EACH:]
        at += len(data)
        kept = block[len(block) - overlap :] if overlap else b""
    return sorted({place for found in (*first.values(), *last.values()) for place in found})


def _from_behind(block: bytes, needle: bytes) -> list[int]:
    found: list[int] = []
    at = block.rfind(needle)
    while at >= 0 and len(found) < _EACH:
        found.append(at)
        at = block.rfind(needle, 0, at + len(needle) - 1)
    return found[::-1]


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _lines(handle: BinaryIO, start: int, end: int, needles: list[bytes], size: int) -> tuple[str, ...]:
    """The lines of one range. Of a progress bar the last frame, and those that hold one of the texts."""
    handle.seek(start)
    data = handle.read(end - start)
    if start > 0:
        data = data[_first_break(data) :]
    if end < size:
        data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 or len(data)]
    needles = [needle for needle in needles if needle in data]  # few of them: every frame of a bar is asked for each
    lines: list[str] = []
    for line in data.split(b"\n"):
        frames = [frame for frame in line.split(b"\r") if frame.strip(b"\0 ")]
        for frame in frames[:-1]:
            if any(needle in frame for needle in needles):
                lines.append(_text(frame, needles))
        lines.append(_text(frames[-1], needles) if frames else "")
    return tuple(lines[:-1] if lines and not lines[-1] else lines)


def _first_break(data: bytes) -> int:
    """Where the first whole line begins; 0 where that is too far: what was found may stand in the line that is cut."""
    breaks = [at + 1 for at in (data.find(b"\n", 0, _BEFORE), data.find(b"\r", 0, _BEFORE)) if at >= 0]
    return min(breaks, default=0)


def _text(frame: bytes, needles: list[bytes]) -> str:
    """A line for a person: no NUL, no colours, U+FFFD for what is no text; of an endless one what matters."""
    frame = frame.replace(b"\0", b"")
    if len(frame) > LONGEST:
        half = LONGEST // 2
        places = [at for needle in needles if (at := frame.find(needle)) >= 0]
        at = max(0, min(places) - half // 2) if places else len(frame) - half
        frame = frame[at : at + half] if places else frame[:half] + frame[at:]
    return _ESCAPE.sub("", frame.decode("utf-8", "replace")).rstrip()
