"""Whether a log keeps the format of `gpuq.core.inside.runlines`: what is told of it line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuq.core.inside.runlines import ENDS, FAILED, NOT_ENDED, START, STEP, Line, read

AGAIN = "=== gpuq: started again after"
"""Begins the line that a requeue leaves."""
LONGEST = 64 * 1024
"""Bytes of a line that a person can still read."""
_SLURMS = ("slurmstepd", "srun: ", "[", "=== gpuq: ")
"""How lines begin that Slurm, or what gpuq puts around job.sh, writes when everything in the job is over."""
_NEEDED = {START: ("device",), FAILED: ("cause", "exit", "oom_kill"), STEP: ("step",)}


class Fault:
    """What is wrong, and in which line (counted from 1)."""

    __slots__ = ("line", "text")

    def __init__(self, line: int, text: str) -> None:
        self.line = line
        self.text = text


def lint(lines: Iterable[bytes]) -> list[Fault]:
    """The faults of a log, in order. `lines`: with their newlines; a longer one than LONGEST may come in pieces."""
    look = _Lint()
    for number, (line, whole) in enumerate(_joined(lines), 1):
        look.take(number, line, whole=whole)
    return look.done()


def _joined(lines: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    """(the beginning of each line, its length in bytes)."""
    head, length = b"", 0
    for piece in lines:
        head, length = (head, length + len(piece)) if length else (piece, len(piece))
        if piece.endswith(b"\n"):
            yield head, length
            head, length = b"", 0
    if length:
        yield head, length


class _Lint:
    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.number = 0
        self.started = 0  # the line of START; 0: none yet in this start of the job
        self.ended: Line | None = None
        self.ended_at = 0
        self.said_after = False
        self.killed = False  # FAILED exit=none stands there; more may have come before the kill
        self.step = -1.0

    def take(self, number: int, line: bytes, *, whole: int) -> None:
        self.number = number
        frames = line.rstrip(b"\r\n").count(b"\r")
        if frames > 1:
            self.fault(f"a progress bar with {frames} frames or more in one line; gpuq run keeps one in 30 seconds")
        elif whole > LONGEST:
            self.fault(f"{whole} bytes in one line")
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text.startswith(AGAIN):
            self.begin(0)
            return
        try:
            found = read(text)
        except ValueError as error:
            self.fault(f"{text.split(' ', 1)[0]}: {error}")
            return
        if found is None:
            if self.ended is not None and text.strip() and not text.startswith(_SLURMS):
                self.after_the_end()
            return
        self.ours(found)

    def ours(self, line: Line) -> None:
        for key in _NEEDED.get(line.kind, ()):
            if line.get(key) is None:
                self.fault(f"{line.kind} without {key}=")
        if line.kind == START:
            if self.started and self.ended is None and not self.killed:
                self.fault(f"START, and the one of line {self.started} has not ended")
            self.begin(self.number)
            return
        if not self.started:
            self.fault(f"{line.kind} before START")
            self.started = self.number
        if self.ended is not None:
            self.after_the_end()
        if line.kind in ENDS:
            self.end(line)
        elif line.kind == STEP:
            self.progress(line.get("step") or "")

    def begin(self, started: int) -> None:
        self.started, self.ended, self.said_after, self.killed, self.step = started, None, False, False, -1.0

    def end(self, line: Line) -> None:
        code = line.get("exit")
        if code is not None and not (code.isdecimal() or (line.kind == FAILED and code == NOT_ENDED)):
            self.fault(f"{line.kind} exit={code}: not a number")
        if line.kind == FAILED and code == "0":
            self.fault("FAILED exit=0")
        self.killed = code == NOT_ENDED
        if code != NOT_ENDED:
            self.ended, self.ended_at = line, self.number

    def progress(self, step: str) -> None:
        done, _, total = step.partition("/")
        try:
            at, most = float(done), float(total or "inf")
        except ValueError:
            self.fault(f"STEP step={step}: not a number, nor one like 120/1000")
            return
        if at > most:
            self.fault(f"STEP step={step}: more than all")
        if at < self.step:
            self.fault(f"STEP step={step}: it was at {self.step:g} before")
        self.step = at

    def after_the_end(self) -> None:
        if not self.said_after and self.ended is not None:
            self.fault(f"text after the end: line {self.ended_at} says {self.ended.kind}")
        self.said_after = True

    def fault(self, text: str) -> None:
        self.faults.append(Fault(self.number, text))

    def done(self) -> list[Fault]:
        self.number = max(self.number, 1)
        if not self.started:
            self.fault("no START")
        elif self.ended is None and not self.killed:
            self.fault(
                "neither FINISHED nor FAILED at the end: it still runs, or everything in the job was killed at once"
            )
        return self.faults
