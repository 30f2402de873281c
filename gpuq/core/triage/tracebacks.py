"""Python tracebacks in the lines of a log: also behind rank prefixes, behind a progress bar, and in rich's boxes."""

from __future__ import annotations

import re

import msgspec

GAP = "\0"
"""A line that stands for a part of the log that was not read; no text of a log holds a NUL by then."""


class Frame(msgspec.Struct, frozen=True):
    """One call in a traceback."""

    file: str
    line: int
    function: str

    @property
    def is_library(self) -> bool:
        """True for code of an installed package or of Python itself, which is seldom to blame."""
        return _LIBRARY.search(self.file) is not None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One traceback: its calls, outermost first, and the line that names the exception."""

    start: int
    end: int
    """Index of the line with the exception."""
    rank: str
    """What stands before each of its lines (`[rank0]: `); empty: nothing."""
    frames: tuple[Frame, ...]
    error: str
    """`ValueError: what it says`."""
    ignored: bool = False
    """Python says so itself ("Exception ignored in") and goes on."""


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """Tracebacks that belong together, the first cause first and what ended the program last."""

    traces: tuple[Trace, ...]

    @property
    def start(self) -> int:
        """Index of its first line."""
        return min(trace.start for trace in self.traces)

    @property
    def end(self) -> int:
        """Index of its last line."""
        return max(trace.end for trace in self.traces)

    @property
    def rank(self) -> str:
        """Whose it is."""
        return self.traces[-1].rank

    @property
    def error(self) -> str:
        """The exception that ended the program."""
        return self.traces[-1].error

    @property
    def first_error(self) -> str:
        """The exception that it began with."""
        return self.traces[0].error

    def blame(self, project: str = "") -> Frame | None:
        """The last call in the user's own code: of the first cause, else of any of them."""
        for trace in self.traces:
            own = [frame for frame in trace.frames if not frame.is_library]
            inside = [frame for frame in own if project and frame.file.startswith(project.rstrip("/") + "/")]
            if found := inside or own:
                return found[-1]
        return None


_HEADER = "Traceback (most recent call last)"
_LIBRARY = re.compile(r"(?:site|dist)-packages/|/lib(?:64)?/python\d|^<(?!stdin|string)|/multiprocessing/|/torch/")
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_RICH_FRAME = re.compile(r"^(?P<file>/[^\s:]+\.py):(?P<line>\d+) in (?P<function>\S+)")
_RANK = re.compile(
    r"^(?:\[?(?:rank|default)?\d+\]?:\s?|\[\d+,\d+\]<std\w+>:\s?|\([^()]*pid=\d+[^()]*\)\s?|\[rank:? ?\d+\]\s?)+"
)
ERROR = re.compile(r"^(?:\w+\.)*_?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure|Timeout|Empty|Full)(?::\s.*|)$")
"""A line that names an exception, as Python prints it."""
_NAME = re.compile(r"^(?!INFO|WARN|DEBUG|ERROR|CRITICAL|Epoch)(?:\w+\.)*[A-Za-z_]\w*(?::\s|$)")
_LONGEST = 400
"""Lines of a traceback."""
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_BOX = "│┃╭╮╰╯─━ ❱"


def without_rank(line: str) -> str:
    """A line without the prefix that a launcher put before it."""
    return line[found.end() :] if (found := _RANK.match(line)) else line


def rank_of(line: str) -> str:
    """The prefix that a launcher put before a line."""
    return found[0] if (found := _RANK.match(line)) else ""


def find_chains(lines: list[str]) -> list[Chain]:
    """Every traceback of a log, those that belong together joined, in the order of their ends."""
    chains: list[list[Trace]] = []
    for index, line in enumerate(lines):
        at = line.find(_HEADER)
        if at < 0:
            continue
        before = line[:at]
        trace = _read(lines, index, before)
        if trace is None:
            continue
        if index and "Exception ignored in" in lines[index - 1]:
            chains.append([msgspec.structs.replace(trace, ignored=True)])
        elif before.rstrip().endswith("Original") and (
            outer := next((c for c in reversed(chains) if c[-1].end < index), None)
        ):
            outer.insert(0, trace)  # what happened in a worker, told inside the exception of the main process
        elif (joined := _joined_to(lines, index, trace.rank, chains)) is not None:
            joined.append(trace)
        else:
            chains.append([trace])
    return sorted((Chain(traces=tuple(chain)) for chain in chains), key=lambda chain: chain.end)


def _read(lines: list[str], index: int, before: str) -> Trace | None:
    rank = rank_of(before)
    boxed = any(mark in before for mark in "╭─")
    frames: list[Frame] = []
    for number in range(index + 1, min(index + _LONGEST, len(lines))):
        line = lines[number]
        if line == GAP:
            return None
        if rank:
            if not line.startswith(rank):
                continue  # another rank writes in between
            line = line[len(rank) :]
        if boxed:
            inside = line.startswith(("│", "╭", "╰", "┃"))
            line = line.strip(_BOX)
            if match := _RICH_FRAME.match(line):
                frames.append(Frame(match["file"], int(match["line"]), match["function"]))
            if inside or not line:
                continue
        if match := _FRAME.match(line):
            frames.append(Frame(match["file"], int(match["line"]), match["function"] or ""))
            continue
        if not line.strip() or (line[0].isspace() and not boxed):
            continue
        if _HEADER in line:
            return None
        if not _NAME.match(line):
            continue  # a line of somebody else's, written in between
        return Trace(start=index, end=number, rank=rank, frames=tuple(frames), error=line.strip())
    return None


def _joined_to(lines: list[str], index: int, rank: str, chains: list[list[Trace]]) -> list[Trace] | None:
    """The chain that the traceback at `index` goes on from."""
    for number in range(index - 1, max(index - 12, -1), -1):
        line = lines[number]
        if rank and not line.startswith(rank):
            continue
        line = line[len(rank) :].strip()
        if line.startswith(_CHAINED):
            return next((c for c in reversed(chains) if c[-1].rank == rank and c[-1].end <= number), None)
        if line and line.strip("\"'"):
            return None
    return None
