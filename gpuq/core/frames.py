"""A log as a person wants to read it: of a progress bar that rewrites its line with `\\r`, the last frame."""

from __future__ import annotations

LONGEST = 64 * 1024
"""Bytes shown of one frame. A bar of 500 MB in one line must not be held in memory."""


class Frames:
    """Fed with the bytes of a log in any pieces, gives whole lines with only the last frame of each."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._line = b""
        self._longest = longest

    def feed(self, data: bytes) -> list[str]:
        """The lines that `data` completes."""
        *whole, rest = data.split(b"\n")
        lines = []
        for part in whole:
            lines.append(last_frame(self._line + part, self._longest))
            self._line = b""
        self._line += rest
        if len(self._line) > 4 * self._longest:
            self._line = _shorten(self._line, self._longest)
        return lines

    def pending(self) -> str:
        """What stands of the line that is not complete yet: the bar as it is now. Empty when there is none."""
        return last_frame(self._line, self._longest)


def last_frame(line: bytes, longest: int = LONGEST) -> str:
    """The last frame of a line that is not blank; bytes that are not UTF-8 become U+FFFD, NUL is dropped.

    >>> last_frame(b"Epoch 1:  50%\\rEpoch 1: 100%\\r")
    'Epoch 1: 100%'
    """
    return _text(_last_bytes(line, longest))


def _last_bytes(line: bytes, longest: int) -> bytes:
    end = len(line.rstrip(b"\r"))
    while end >= 0:
        cut = line.rfind(b"\r", 0, end)
        frame = line[max(cut + 1, end - longest) : end]
        if _text(frame).strip():
            return frame
        end = cut
    return b""


def _text(frame: bytes) -> str:
    return frame.decode("utf-8", "replace").replace("\0", "")


def _shorten(line: bytes, longest: int) -> bytes:
    """Keep what may still be shown: the frame that is being written, and the last one before it that is not blank."""
    cut = line.rfind(b"\r")
    now = line[max(cut + 1, len(line) - longest) :]
    return now if cut < 0 else _last_bytes(line[:cut], longest) + b"\r" + now
