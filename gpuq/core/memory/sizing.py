"""How much memory to ask for: from what earlier attempts held at their height, not from their page cache.

The rule: the highest anon + shmem of the recent attempts, plus a margin, rounded up; never below a limit under which reclaim
slowed an attempt down; above a limit at which one was killed. Pure; sizes in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpuq.core.attempt import Outcome, Record
from gpuq.core.memory.values import MemorySummary
from gpuq.core.units import GIB, MIB, format_size

RECENT = 5
"""Attempts that are looked at: the program changes. So many that succeeded, and so many others since the first of those: a
few that crash at once must not push the evidence out."""
ENOUGH = 3
"""Attempts that have to have been seen to their end."""

MARGIN = 0.15
LEAST_MARGIN = 128 * MIB
"""The larger of both is added: runs differ, and page tables, sockets and slurmstepd count too."""

AFTER_OOM = 1.5
"""Times the limit at which an attempt was killed: how much it would have taken is not known."""

REFAULTED = 20 * MIB
"""Bytes a second that were taken out of the page cache and read again: more than a program does that has room."""
STALLED = 0.05
"""Part of the time in which tasks waited for memory (PSI, some)."""
ENDS_WITHIN = 30.0
"""Seconds before the end after which nobody looked: then the evaluation at the end may have been missed."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt as evidence."""

    attempt: int
    outcome: str
    memory: MemorySummary
    asked: int
    whole: bool
    """It succeeded, and was looked at to its end."""
    killed: bool
    """It, or a process in it, was killed for memory."""
    slowed: str
    """Why reclaim is thought to have slowed it; empty: it did not."""
    script: str = ""
    """sha256 of its job.sh."""

    @property
    def words(self) -> str:
        """For a person."""
        seen = self.memory
        parts = " + ".join(
            f"{format_size(size)} {name}"
            for name, size in (("anon", seen.anon), ("shmem", seen.shmem), ("swap", seen.swap))
            if size
        )
        text = f"attempt {self.attempt}: held {format_size(seen.held or 0)}" + (f" ({parts})" if parts else "")
        if seen.cache is not None:
            text += f", page cache {format_size(seen.cache)}"
        text += f", asked for {format_size(self.asked)}; {self.outcome}"
        text += f", {seen.looks} looks" if seen.looks != 1 else ", 1 look"
        if self.outcome == Outcome.SUCCEEDED and not self.whole:
            text += ", not to its end"
        return text + (f"; {self.slowed}" if self.slowed else "")


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask for, and why."""

    memory: int | None
    """None: nothing can be said."""
    enough: bool
    """Enough attempts were seen to their end."""
    measured: int
    whole: int
    """How many were seen in all, and to their end."""
    held: int | None = None
    """The highest that could not be given back."""
    margin: int = 0
    least: int = 0
    """Less is known to be too little, whatever the evidence for the rest: an attempt was killed. 0: none was."""
    kill: str = ""
    """Why."""
    because: str = ""
    """What decided the size."""
    reasons: tuple[str, ...] = ()
    """All that went into it, in sentences."""
    points: tuple[Point, ...] = ()


def advise(records: Sequence[Record]) -> Advice:
    """What the next attempt of a run should ask for. records: its attempts, ascending."""
    points = _recent([_point(record) for record in records if record.ended is not None and _seen(record)])
    whole = sum(point.whole for point in points)
    killed = _unanswered_kill(records)
    least = round_up(int(_limit(killed) * AFTER_OOM)) if killed is not None else 0
    why = _killed_words(killed) if killed is not None else ""
    if not points:
        return Advice(
            memory=least or None,
            enough=False,
            measured=0,
            whole=0,
            least=least,
            kill=why,
            because=why,
            reasons=(why,) if why else (),
        )
    held = max(point.memory.held or 0 for point in points)
    margin = max(int(held * MARGIN), LEAST_MARGIN)
    wanted = held + margin
    reasons = [
        f"the highest of anon + shmem, {format_size(held)}, plus {MARGIN:.0%} but at least {format_size(LEAST_MARGIN)}: "
        f"{format_size(wanted)}, rounded up"
    ]
    for point in points:
        limit = point.memory.limit
        if point.slowed and limit is not None and limit > wanted:
            wanted = limit
            reasons.append(f"not less than the {format_size(limit)} of attempt {point.attempt}: {point.slowed}")
    if least > wanted:
        wanted = least
        reasons.append(why)
    because = reasons[-1]
    reasons += [
        f"attempt {point.attempt} reached its limit without being killed: page cache under reclaim, which needs no more"
        for point in points
        if point.memory.at_limit and not point.killed and not point.slowed
    ]
    if other := [point.attempt for point in points if point.script != points[-1].script]:
        reasons.append(
            f"job.sh was another one in attempt{'s' if len(other) != 1 else ''} {', '.join(map(str, other))}: what "
            f"{'they' if len(other) != 1 else 'it'} held may not be what the next one will hold"
        )
    if any(point.memory.peak is None for point in points):
        reasons.append("this kernel keeps no peak of a cgroup: what was seen is approximate")
    return Advice(
        memory=round_up(wanted),
        enough=whole >= ENOUGH,
        measured=len(points),
        whole=whole,
        held=held,
        margin=margin,
        least=least,
        kill=why,
        because=because,
        reasons=tuple(reasons),
        points=tuple(points),
    )


def too_little(advice: Advice) -> str:
    """The sentence for advice that rests on too few attempts."""
    return f"too little evidence: {advice.whole} of {ENOUGH} attempts that it takes were seen to a successful end" + (
        f" ({advice.measured} were looked at)" if advice.measured != advice.whole else ""
    )


def round_up(size: int) -> int:
    """To what a person would write: 64M steps below 1G, 128M below 2G, 0.5G below 16G, else 1G.

    >>> round_up(int(3.2 * 2**30)) / 2**30
    3.5
    """
    step = 64 * MIB if size <= GIB else 128 * MIB if size <= 2 * GIB else GIB // 2 if size <= 16 * GIB else GIB
    return -(-size // step) * step


def option(size: int) -> str:
    """A size as --mem takes it, exactly: 28G, 3.5G, 640M."""
    if size % (GIB // 2) == 0:
        return f"{size / GIB:g}G"
    return f"{-(-size // MIB)}M"


def slowed(memory: MemorySummary) -> str:
    """Why reclaim is thought to have slowed an attempt; empty: nothing points to it. Only under a limit that was reached."""
    seconds = memory.seconds
    if not memory.at_limit or seconds <= 0:
        return ""
    if memory.stalled is not None and memory.stalled / seconds >= STALLED:
        return f"tasks waited for memory {memory.stalled / seconds:.0%} of the time"
    rate = (memory.refaults or 0) * 4096 / seconds
    if rate >= REFAULTED:
        return f"{format_size(int(rate))} a second were dropped from the page cache and read again"
    return ""


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """How many CPU-only jobs of one size fit beside the GPU job."""

    memory: int
    count: int
    """With one core each, or as many as their memory costs."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What a partition gives to all CPU-only jobs together, where there is one for them (core/host/partitions)."""

    cpus: int
    memory_per_cpu: int | None = None
    """Bytes; a job with more takes more CPUs."""


def fits_beside(node_memory: int, node_cpus: int, memory: int, cpus: int, share: Share | None = None) -> list[Beside]:
    """Of each usual size, how many CPU-only jobs with a core each run beside a GPU job that has `memory` and `cpus`.

    Two GPU jobs never run together, whatever their memory.
    """
    left = max(0, node_memory - memory)
    cores = max(0, node_cpus - cpus)
    if share is not None:
        cores = min(cores, share.cpus)
    found = []
    for size in (GIB << power for power in range(8)):
        takes = -(-size // share.memory_per_cpu) if share is not None and share.memory_per_cpu else 1
        found.append(Beside(memory=size, count=min(cores // takes, left // size)))
    return [one for one in found if one.memory <= node_memory]


def _seen(record: Record) -> bool:
    return record.memory is not None and bool(record.memory.held)


def _was_killed(record: Record) -> bool:
    ended = record.ended
    return ended is not None and (
        ended.outcome is Outcome.OUT_OF_MEMORY
        or bool(record.memory and record.memory.oom_kill)
        or any("killed for memory" in note for note in ended.notes)
    )


def _point(record: Record) -> Point:
    assert record.ended is not None  # noqa: S101 - only such are handed in
    assert record.memory is not None  # noqa: S101
    seen, ended = record.memory, record.ended
    to_end = ended.end is None or seen.until is None or (ended.end - seen.until).total_seconds() <= ENDS_WITHIN
    killed = _was_killed(record)
    return Point(
        attempt=record.attempt,
        outcome=ended.outcome.value,
        memory=seen,
        asked=record.request.memory,
        whole=ended.outcome is Outcome.SUCCEEDED and to_end and not killed,
        killed=killed,
        slowed=slowed(seen),
        script=record.script_sha256,
    )


def _recent(points: Sequence[Point]) -> list[Point]:
    """The last RECENT that were seen to a successful end, and the last RECENT others since the first of them."""
    whole = [point for point in points if point.whole][-RECENT:]
    since = whole[0].attempt if len(whole) == RECENT else 0
    others = [point for point in points if not point.whole and point.attempt > since][-RECENT:]
    return sorted((*whole, *others), key=lambda point: point.attempt)


def _unanswered_kill(records: Sequence[Record]) -> Record | None:
    """Of the attempts that were killed for memory since the last that was seen to succeed, the one that had most; whether
    somebody looked at it or not."""
    found: Record | None = None
    for record in reversed(records):
        if record.ended is None:
            continue
        if _seen(record) and _point(record).whole:
            break
        if _was_killed(record) and (found is None or _limit(record) > _limit(found)):
            found = record
    return found


def _killed_words(record: Record) -> str:
    """What follows for the next attempt."""
    return (
        f"attempt {record.attempt} was killed at {format_size(_limit(record))}, and how much it would have taken is not "
        f"known: {AFTER_OOM:g} times that"
    )


def _limit(record: Record) -> int:
    return (record.memory.limit if record.memory is not None else None) or record.request.memory


def killed_at(records: Sequence[Record]) -> int:
    """The highest limit at which an attempt was killed for memory since the last that succeeded, in bytes; 0: none was.

    records: attempts of a run, ascending. What one had that was killed is too little for the next, whichever it was.
    """
    highest = 0
    for record in reversed(records):
        if record.ended is None:
            continue
        if _was_killed(record):
            highest = max(highest, _limit(record))
        elif record.ended.outcome is Outcome.SUCCEEDED:
            break
    return highest
