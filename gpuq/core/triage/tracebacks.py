"""Python tracebacks in the lines of a log: also behind rank prefixes, behind a progress bar, and in rich's boxes."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
        return self.is_installed or _SOURCES.search(self.file) is not None

    @property
    def is_installed(self) -> bool:
        """True for code in a place where only packages are put."""
        return _INSTALLED.search(self.file) is not None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One traceback: its calls, outermost first, and the line that names the exception."""

    start: int
    end: int
    """Index of the line with the exception."""
    rank: str
    """Which process of several wrote it (`[rank0]: `); empty: nothing says so."""
    lead: str
    """A regular expression for what stands before each of its lines; empty: nothing."""
    frames: tuple[Frame, ...]
    error: str
    """`ValueError: what it says`."""
    said: tuple[tuple[int, str], ...] = ()
    """The lines below it that are more of what the exception says, with their indices."""
    ignored: bool = False
    """Python says so itself ("Exception ignored in") and goes on."""
    aside: bool = False
    """Of a thread, or of what Python does at its exit: the program does not end by it."""


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

    @property
    def aside(self) -> bool:
        """The program did not end by it."""
        return self.traces[-1].aside

    def blame(self, project: str = "") -> Frame | None:
        """The last call in the user's own code: of the first cause, else of any of them."""
        for trace in self.traces:
            root = project.rstrip("/") + "/"
            inside = [one for one in trace.frames if project and one.file.startswith(root) and not one.is_installed]
            if found := inside or [one for one in trace.frames if not one.is_library]:
                return found[-1]
        return None


_HEADER = "Traceback (most recent call last)"
_INSTALLED = re.compile(r"(?:site|dist)-packages/|/lib(?:64)?/python\d|^<(?!stdin|string)")
_SOURCES = re.compile(r"/multiprocessing/|/torch/")
"""Of Python or PyTorch as they were built; a project of the user's may be called so."""
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_RICH_FRAME = re.compile(r"^(?P<file>/[^\s:]+\.py):(?P<line>\d+) in (?P<function>\S+)")
_CLOCK = r"\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?\s+"
_LEVEL = r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]+ [\d:]+ \[?[\w.]+:\d+\]\s?"
_RANK = (
    r"\[(?:rank|default):? ?\d+\]:?\s?|(?:rank|default)\d+:\s?|\[\d+,\d+\]<std\w+>:\s?|\([^()]*pid=\d+[^()]*\)\s?"
    r"|^\s*\[?\d+\]?:(?:\s|$)"
)
_LEAD = re.compile(rf"^\ufffd*(?:{_CLOCK}|{_LEVEL}|std(?:err|out):\s|[\w.-]+-\d+\s+\|\s|{_RANK})*")
_RANKS = re.compile(_RANK)
ERROR = re.compile(r"^(?:\w+\.)*_?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure|Timeout|Empty|Full)(?::\s.*|)$")
"""A line that names an exception, as Python prints it."""
_NAME = re.compile(
    r"^(?!INFO|WARN|DEBUG|ERROR|CRITICAL|Epoch|slurmstepd:|srun:|error:|wandb:)(?:\w+\.)*[A-Za-z_]\w*(?::\s|:?$)"
)
_AT = re.compile(r'^(?P<lead>.*?)(?:  |> )File "')
SLURMS = ("slurmstepd: ", "srun: ", "error: ")
"""How Slurm's own lines begin in a log."""
_LONGEST = 400
"""Lines of a traceback."""
_CUT = 3
"""Lines at the beginning of a piece of a log within which a traceback that was cut has a call."""
_NEAR = 40
"""Lines within which its first call stands, where several processes write at once."""
_BARE = re.compile(r"^[\w.]+:$")
_MESSAGE = 25
"""Lines that an exception may say."""
_IGNORED = ("Exception ignored ", "--- Logging error ---")
_ASIDE = ("Exception in thread ", "Error in atexit.", "Error in sys.excepthook", "Task exception was never retrieved")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_BAR = "%|"
"""In every frame of a progress bar of tqdm's."""
_BOX = "│┃╭╮╰╯─━ ❱"


def without_rank(line: str) -> str:
    """A line without what a launcher or a logger put before it."""
    return line[found.end() :] if (found := _LEAD.match(line)) else line


def rank_of(line: str) -> str:
    """Which process wrote a line, as a launcher puts it before the line."""
    found = _LEAD.match(line)
    return "".join(part.strip() for part in _RANKS.findall(found[0])) if found else ""


def find_chains(lines: list[str]) -> list[Chain]:
    """Every traceback of a log, those that belong together joined, in the order of their ends."""
    chains: list[list[Trace]] = []
    for index, before in _headers(lines):
        trace = _read(lines, index, before)
        if trace is None:
            continue
        above = [without_rank(one) for one in lines[max(0, index - 2) : max(0, index)]]
        if any(_IGNORED[0] in one or one.startswith(_IGNORED) for one in above[-1:]):
            chains.append([msgspec.structs.replace(trace, ignored=True)])
        elif any(one.startswith(_ASIDE) for one in above):
            chains.append([msgspec.structs.replace(trace, aside=True)])
        elif before.rstrip().endswith("Original") and (
            outer := next((c for c in reversed(chains) if c[-1].end < index), None)
        ):
            outer.insert(0, trace)  # what happened in a worker, told inside the exception of the main process
        elif (joined := _joined_to(lines, index, trace, chains)) is not None:
            joined.append(trace)
        else:
            chains.append([trace])
    return sorted((Chain(traces=tuple(chain)) for chain in chains), key=lambda chain: chain.end)


def _headers(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Index of each traceback's header and what stands before it there; of one that was cut, of the line above it."""
    began = 0
    for index, line in enumerate(lines):
        at = line.find(_HEADER)
        if at >= 0:
            yield index, line[:at]
            began = -_CUT
        elif line == GAP:
            began = index + 1
        elif began <= index < began + _CUT and (match := _AT.match(line)):
            yield index - 1, match["lead"]
            began = -_CUT


def _lead_of(lines: list[str], index: int, before: str) -> str:
    """A regular expression for what stands before each line of the traceback whose header is at `index`: a rank, a time, a
    frame that rich or an exception group draws. Numbers may differ from line to line, but not those of a rank."""
    rank, lead = rank_of(before), found[0] if (found := _LEAD.match(before)) else ""
    for line in lines[index + 1 : index + _NEAR]:
        match = _AT.match(line)
        if match is not None and rank_of(match["lead"]) == rank:
            lead = match["lead"]
            break
    bare = lead.rstrip() or lead  # nothing but spaces: set in, as torchrun shows the error of a rank
    shape, at = "", 0
    for part in _RANKS.finditer(bare):
        shape += re.sub(r"\d+", r"\\d+", re.escape(bare[at : part.start()])) + re.escape(part[0])
        at = part.end()
    shape += re.sub(r"\d+", r"\\d+", re.escape(bare[at:]))
    return shape + (rf"\s{{0,{len(lead) - len(bare)}}}" if shape and len(lead) > len(bare) else "")


def _rest(line: str, lead: re.Pattern[str]) -> str | None:
    """The line without what stands before each of its kind; None: it is of another kind."""
    return line[match.end() :] if (match := lead.match(line)) else None


def _read(lines: list[str], index: int, before: str) -> Trace | None:
    rank, shape = rank_of(before), _lead_of(lines, index, before)
    lead = re.compile(shape)
    boxed = any(mark in before for mark in "╭─")
    frames: list[Frame] = []
    for number in range(index + 1, min(index + _LONGEST, len(lines))):
        if lines[number] == GAP:
            return None
        line = _rest(lines[number], lead)
        if line is None:
            continue  # another process writes in between
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
        error = line.strip()
        said = _said(lines, number, lead, rank, _says_more(error, frames))
        if _BARE.match(error) and said:
            error += f" {said[0][1]}"
        return Trace(
            start=max(0, index), end=number, rank=rank, lead=shape, frames=tuple(frames), error=error, said=tuple(said)
        )
    return None


def _says_more(error: str, frames: list[Frame]) -> bool:
    """Whether an exception is of the kind that says more in further lines: libraries' are, those of a user's code seldom."""
    return error.endswith(":") or "." in error.partition(":")[0] or (bool(frames) and frames[-1].is_library)


def _said(lines: list[str], end: int, lead: re.Pattern[str], rank: str, more: bool) -> list[tuple[int, str]]:
    """The lines below an exception that belong to what it says: those set in, or, where it says `more`, all that follow."""
    said: list[tuple[int, str]] = []
    for number in range(end + 1, min(end + _MESSAGE, len(lines))):
        line = _rest(lines[number], lead)
        if line is None or rank_of(lines[number]) != rank:
            continue
        if line == GAP or _HEADER in line or line.lstrip().startswith(_CHAINED) or line.startswith(SLURMS):
            break
        if line.strip() and not (more or line[0].isspace()):
            break
        if any(mark.isalnum() for mark in line):
            said.append((number, line.strip()))
    return said


def _joined_to(lines: list[str], index: int, trace: Trace, chains: list[list[Trace]]) -> list[Trace] | None:
    """The chain that the traceback at `index` goes on from."""
    lead = re.compile(trace.lead)
    for number in range(index - 1, max(index - 12, -1), -1):
        line = _rest(lines[number], lead)
        if line is None:
            continue
        line = line.strip()
        if line.startswith(_CHAINED):
            return next((c for c in reversed(chains) if c[-1].lead == trace.lead and c[-1].end <= number), None)
        if line.strip("\"'") and _BAR not in line:
            return None
    return None
