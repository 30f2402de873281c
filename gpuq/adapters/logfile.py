"""Attempt logs on disk, read from either end and while they grow."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

from gpuq.core.frames import Frames

_CHUNK = 1024 * 1024


def whole(path: Path) -> Iterator[str]:
    """Every line of a log, whatever its size. Raises FileNotFoundError."""
    growing = Growing(path)
    yield from growing.more()
    if pending := growing.pending():
        yield pending


def last_lines(path: Path, lines: int) -> tuple[list[str], int]:
    """The last `lines` lines and the offset behind them, reading from the end. Raises FileNotFoundError."""
    found: deque[str] = deque(maxlen=lines)
    frames = Frames()
    with path.open("rb") as handle:
        size = handle.seek(0, 2)
        # Back to a place before the lines that are wanted, then forward: one endless line is never held in memory.
        start, newlines = size, 0
        while start > 0 and newlines <= lines:
            step = min(_CHUNK, start)
            start -= step
            handle.seek(start)
            newlines += handle.read(step).count(b"\n")
        handle.seek(start)
        while start < size and (data := handle.read(min(_CHUNK, size - start))):
            start += len(data)
            found.extend(frames.feed(data))
    if pending := frames.pending():
        found.append(pending)
    return list(found), size


def tail(path: Path, size: int) -> bytes:
    """The last `size` bytes. Raises OSError."""
    with path.open("rb") as handle:
        handle.seek(max(0, handle.seek(0, 2) - size))
        return handle.read(size)


class Growing:
    """A log that is still written to; remembers how far it was read."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._frames = Frames()

    def more(self) -> Iterator[str]:
        """The lines that were completed since the last call. Raises FileNotFoundError while there is no log.

        A log that became shorter was cut by somebody; it is read from its beginning again.
        """
        with self._path.open("rb") as handle:
            if handle.seek(0, 2) < self._offset:
                self._offset = 0
                self._frames = Frames()
            handle.seek(self._offset)
            while data := handle.read(_CHUNK):
                self._offset += len(data)
                yield from self._frames.feed(data)

    def pending(self) -> str:
        """The line that is being written, as it is now."""
        return self._frames.pending()
