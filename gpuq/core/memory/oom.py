"""Whether an attempt ran out of host memory, where Slurm's state alone does not say so.

Three degrees: Slurm's own word (OUT_OF_MEMORY, 0:125); a process that was counted as killed (oom_kill of the cgroup) or that
slurmstepd wrote of, under whatever state (a step that died in a script that went on is COMPLETED 0:0); a bare SIGKILL (9,
137), which anybody may have sent.
"""

from __future__ import annotations

import re

import msgspec

from gpuq.core.attempt import Outcome
from gpuq.core.job import JobEnd
from gpuq.core.memory.values import MemorySummary
from gpuq.core.units import format_size

TEXTS = ("kill event", "Out Of Memory", "memory limit")
"""One of these stands in every line that PATTERN matches."""

PATTERN = (
    r"Detected \d+ oom[-_]kill event|tasks? [\d,-]+: Out Of Memory"
    r"|(?i:exceeded (?:job |step )?memory limit)(?! at some point)"
)
"""Every release's spelling, of slurmstepd and of srun. `exceeded step memory limit at some point` alone is no failure."""

SLURMS = re.compile(r"slurmstepd|\bsrun: |\berror: Detected \d+ oom")
"""Slurm's own line, and not a program's talk of memory. Since 26.05 slurmstepd does not give its name."""

INCOMPLETE = "its output may be incomplete"
_SURE = f"killed for memory; {INCOMPLETE}"
_BARE = "SIGKILL may have been the kernel's, for want of memory"


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """What points to it."""

    memory: MemorySummary | None = None
    said: str = ""
    """Slurm's line in the log; empty: there is none."""
    asked: int = 0
    """Bytes that it asked for, its limit where nobody looked; 0: not known."""

    @property
    def counted(self) -> int:
        """Processes that the cgroup counted as killed."""
        return (self.memory.oom_kill or 0) if self.memory is not None else 0


def find(lines: list[str]) -> str:
    """The last line in which Slurm says it; empty: there is none."""
    said = [line for line in lines if re.search(PATTERN, line) and SLURMS.search(line)]
    return said[-1].strip() if said else ""


def weigh(end: JobEnd, outcome: Outcome, notes: tuple[str, ...], signs: Signs) -> tuple[Outcome, tuple[str, ...]]:
    """The outcome and notes that `judge` gave, with what the signs add. Doing it again changes nothing."""
    added: list[str] = []
    sure = bool(signs.said or signs.counted)
    if outcome is Outcome.FAILED and sure:
        outcome = Outcome.OUT_OF_MEMORY
        added.append(_SURE)
    elif outcome in {Outcome.SUCCEEDED, Outcome.INCOMPLETE} and sure:
        added.append(f"warning: {_how_many(signs)} killed for memory; {INCOMPLETE}")
    elif outcome in {Outcome.TIMEOUT, Outcome.CANCELLED} and sure:
        added.append(f"before that {_how_many(signs)} killed for memory")
    elif outcome is Outcome.FAILED and (end.signal == 9 or end.exit_code == 137):
        full = used_words(signs.memory) if signs.memory is not None and close(signs.memory) else ""
        added.append(f"{_BARE}: it held {full}" if full else _BARE)
    limit = f"its limit was {format_size(signs.asked)}" if signs.asked else ""
    if outcome is Outcome.OUT_OF_MEMORY:
        if used := used_words(signs.memory):
            added.append(f"it held {used}")
            notes = tuple(note for note in notes if note != limit)
        elif limit:
            added.append(limit)
    return outcome, tuple(dict.fromkeys((*notes, *added)))


def used_words(memory: MemorySummary | None) -> str:
    """`30.1G of 32G`; empty where nothing is known. A rise that was too fast to be seen is told as such."""
    if memory is None or memory.held is None:
        return ""
    missed = " when last looked at, before it rose" if memory.oom_kill and not close(memory) else ""
    return format_size(memory.held) + (f" of {format_size(memory.limit)}" if memory.limit else "") + missed


def close(memory: MemorySummary) -> bool:
    """What it held when it was last at its height was most of what it might."""
    return memory.held is not None and memory.limit is not None and memory.held >= 0.85 * memory.limit


def _how_many(signs: Signs) -> str:
    if signs.counted > 1:
        return f"{signs.counted} processes in it were"
    return "a process in it was"
