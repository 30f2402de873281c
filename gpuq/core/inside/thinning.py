"""A progress bar on its way into a log: of the frames that it rewrites with `\\r`, one line in a while.

Everything else passes as it is, at once and byte for byte, whatever the bytes are.
"""

from __future__ import annotations

EVERY = 30.0
"""Seconds between two lines of one bar."""
LONGEST = 64 * 1024
"""Bytes. What is longer is no frame of a bar, and passes."""
_UP = b"\x1b[A"
"""Cursor up: with it tqdm returns from the second of several bars to the first."""


class Thinner:
    """Fed with output in any pieces; what it returns is to be written. Times are seconds of one monotonic clock."""

    def __init__(self, every: float = EVERY) -> None:
        self._every = every
        self._bar = False  # inside a line that has been rewritten
        self._frame = b""  # of such a line, what stands since the last \r
        self._last = b""  # the last whole frame that has not been written
        self._since: float | None = None  # when the bar began, or its last line was written
        self._several = False
        self._held = b""  # a \r, or \n, whose meaning the next byte decides
        self._open = False  # a part of an ordinary line has passed, and its end has not

    def feed(self, data: bytes, now: float) -> bytes:
        """What of `data` is to be written now."""
        if not self._bar and not self._held and b"\r" not in data:
            self._open = not data.endswith(b"\n")
            return data
        data = self._held + data
        self._held = b""
        out: list[bytes] = []
        while data:
            data = self._in_bar(data, out, now) if self._bar else self._plain(data, out)
        return b"".join(out)

    def _plain(self, data: bytes, out: list[bytes]) -> bytes:
        """Outside of a bar: pass everything before the next `\\r`. What is left to look at."""
        at = data.find(b"\r")
        if at < 0:
            out.append(data)
            self._open = not data.endswith(b"\n")
            return b""
        if at + 1 == len(data):  # \r\n or a bar?
            self._held = b"\r"
        if at:
            out.append(data[:at])
            self._open = not data[:at].endswith(b"\n")
        if self._held:
            return b""
        if data[at + 1 : at + 2] == b"\n":
            out.append(b"\r\n")
            self._open = False
            return data[at + 2 :]
        if self._open:  # the bar's first frame has passed already
            out.append(b"\n")
            self._open = False
        self._bar = True
        return data[at + 1 :]

    def _in_bar(self, data: bytes, out: list[bytes], now: float) -> bytes:
        """Inside a bar: take its next frame. What is left to look at."""
        if self._since is None:
            self._since = now
        ends = [at for at in (data.find(b"\r"), data.find(b"\n")) if at >= 0]
        if not ends:
            self._frame += data
            if len(self._frame) > LONGEST:
                out.append(self._frame)
                self._open = True
                self._leave()
            return b""
        end = min(ends)
        # is this \r the one of \r\n? does \n end the bar, or go to the next of several?
        if end + 1 == len(data) and (data[end : end + 1] == b"\r" or self._several or _UP in data):
            self._frame += data[:end]
            self._held = data[end:]
            return b""
        frame = self._frame + data[:end]
        self._frame = b""
        self._several = self._several or _UP in frame
        frame = frame.replace(_UP, b"")
        if len(frame) > LONGEST:
            out.append(frame + b"\n")
        elif frame.strip(b" \t\0"):
            self._last = frame
        following = data[end : end + 2]
        if following == b"\r\n" or (following[:1] == b"\n" and not (self._several and following == b"\n\r")):
            if self._last:
                out.append(self._last + b"\n")
            self._leave()
            return data[end + (2 if following == b"\r\n" else 1) :]
        out.append(self.tick(now))
        return data[end + 1 :]

    def _leave(self) -> None:
        self._bar = self._several = False
        self._frame = self._last = b""
        self._since = None

    def due(self) -> float | None:
        """When the last frame is to be written though nothing more comes; None: there is none."""
        return None if self._since is None or not self._last else self._since + self._every

    def tick(self, now: float) -> bytes:
        """The last frame as a line, where it is due."""
        due = self.due()
        if due is None or now < due:
            return b""
        out, self._last, self._since = self._last + b"\n", b"", now
        return out

    def close(self) -> bytes:
        """The output has ended: what stands there last."""
        frame = (self._frame + (b"" if self._held == b"\r" else self._held)).replace(_UP, b"").rstrip(b"\r\n")
        last = frame if frame.strip(b" \t\0") else self._last
        held = self._held if not self._bar else b""
        self._leave()
        self._held = b""
        return last + b"\n" if last else held
