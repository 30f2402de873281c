"""From what the Slurm commands print to values. Pure; raises SlurmAnswerError for what it does not understand.

Rows of the queue come from `squeue -o` with a format of our own. Free text (names, comments, directories) may hold
any byte, also newlines and separators, and comes last in a row, between marks that are drawn at random for each call;
so no name can look like a row or a field.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from gpuq.core.job import Job, JobEnd, Node, Partition, phase_of
from gpuq.core.units import MIB, parse_clock, parse_epoch, parse_size
from gpuq.errors import SlurmAnswerError

UNIT = "\x1f"
"""Separates the fields that Slurm itself makes; none of them holds a control character."""

_CLOSED = "%i %F %T %P %V %S %e %l %M %m %C %y %Q %N %U %u %b %E %r".split()
"""In the order in which `_job` takes them."""
_FREE = "%k %Z %j".split()


def queue_format(mark: str) -> str:
    """The squeue format whose output `parse_queue` reads. `mark`: random for each call."""
    return mark + UNIT.join(_CLOSED) + mark + mark.join(_FREE) + mark


def parse_queue(text: str, mark: str) -> list[Job]:
    """All rows that squeue printed. A truncated or foreign answer raises SlurmAnswerError."""
    if not text:
        return []
    jobs = []
    width = 2 + len(_FREE)
    parts = text.split(mark)
    # mark closed mark free mark free mark free mark NEWLINE, again and again
    if parts[0] != "" or (len(parts) - 1) % width or parts[-1] != "\n":
        raise SlurmAnswerError(f"squeue printed something that gpuq does not understand: {_short(text)}")
    for start in range(1, len(parts) - 1, width):
        row = parts[start : start + width]
        if row[-1] != "\n":
            raise SlurmAnswerError(f"squeue printed something that gpuq does not understand: {_short(row[-1])}")
        jobs.append(_job(row[0], row[1:-1]))
    return jobs


def _job(closed: str, free: list[str]) -> Job:
    # Taken apart by position: this is done once for each of perhaps 10,000 jobs.
    try:
        id_, number, state, partition, submit, start, end, limit, elapsed, memory, *rest = closed.split(UNIT)
        cpus, nice, priority, node, uid, user, gres, dependency, reason = rest
    except ValueError:
        raise SlurmAnswerError(f"squeue printed a row that gpuq does not understand: {_short(closed)}") from None
    comment, workdir, name = free
    try:
        phase_of(state)
        return Job(
            id=id_,
            number=int(number) if "+" not in id_ else int(id_.split("+", 1)[0]),
            name=name,
            state=state,
            reason="" if reason == "None" else reason,
            partition=partition,
            user=user,
            uid=int(uid),
            submit=parse_epoch(submit),
            start=parse_epoch(start),
            end=parse_epoch(end),
            time_limit=parse_clock(limit),
            elapsed=parse_clock(elapsed) or 0,
            dependency=_text(dependency),
            gres=_text(gres),
            memory=_memory(memory),
            cpus=int(cpus),
            nice=int(nice),
            priority=int(priority),
            node=_text(node),
            comment=_text(comment),
            workdir=workdir,
        )
    except ValueError as error:
        raise SlurmAnswerError(f"squeue printed a job that gpuq does not understand: {error}") from None


def _text(value: str) -> str:
    return "" if value in {"(null)", "N/A", "None"} else value


@functools.lru_cache(maxsize=1024)
def _memory(value: str) -> int | None:
    if value in {"0", "", "N/A"}:
        return None
    return int(float(value) * MIB) if re.fullmatch(r"[\d.]+", value) else parse_size(value)


END_FORMAT = "exit_code:.20,RestartCnt:.12"
PART_END_FORMAT = f"JobArrayID:.200,{END_FORMAT}"
"""With the id as `%i` shows it in front, for jobs of which squeue prints several rows."""


def part_of_end(job: Job, text: str) -> str:
    """What `parse_end` reads, from all that squeue printed with PART_END_FORMAT for the rows of an array or the like."""
    for line in text.split("\n"):
        words = line.split(maxsplit=1)
        if len(words) == 2 and words[0] == job.id:
            return words[1]
    raise SlurmAnswerError(f"squeue printed no end of job {job.id}: {_short(text)}")


def parse_end(job: Job, text: str) -> JobEnd:
    """The end of `job` from its row and from what `squeue -O exit_code,RestartCnt` printed for it.

    exit_code is a wait(2) status in 22.05 (`768`) and `code:signal` in later releases (`3:0`). Slurm's own `signals`
    (53, 125) sit in the low seven bits of the status like real ones.
    """
    match = re.fullmatch(r"\s*(\d+)(?::(\d+))?\s+(\d+)\s*", text)
    if not match:
        raise SlurmAnswerError(f"squeue printed an exit code that gpuq does not understand: {_short(text)}")
    if match[2] is not None:
        code, signal = int(match[1]), int(match[2])
    else:
        status = int(match[1])
        signal = status & 0x7F
        code = 0 if signal else status >> 8 & 0xFF
    return JobEnd(
        state=job.state,
        reason=job.reason,
        exit_code=code,
        signal=signal,
        start=job.start,
        end=job.end,
        restarts=int(match[3]),
        node=job.node,
    )


def parse_partitions(text: str) -> list[Partition]:
    """What `scontrol show partition` printed."""
    found = []
    for block in re.split(r"\n(?=PartitionName=)", text.strip()):
        if not block:
            continue
        if not block.startswith("PartitionName="):
            if block.startswith("No partitions"):
                continue
            raise SlurmAnswerError(f"scontrol printed something that gpuq does not understand: {_short(block)}")
        field = dict(word.split("=", 1) for word in block.split() if "=" in word)
        try:
            found.append(
                Partition(
                    name=field["PartitionName"],
                    default=field["Default"] == "YES",
                    max_time=parse_clock(field["MaxTime"]),
                    default_time=parse_clock(field["DefaultTime"]),
                    max_cpus_per_node=_limit(field["MaxCPUsPerNode"], int),
                    max_memory_per_node=_limit(field["MaxMemPerNode"], lambda text: int(text) * MIB)
                    if "MaxMemPerNode" in field
                    else None,  # the limit may be given as MaxMemPerCPU instead
                    state=field["State"],
                )
            )
        except (KeyError, ValueError) as error:
            raise SlurmAnswerError(f"scontrol printed a partition that gpuq does not understand: {error}") from None
    return found


def _limit(text: str, read: Callable[[str], int]) -> int | None:
    return None if text == "UNLIMITED" else read(text)


NODE_FORMAT = UNIT.join(["%R", "%N", "%c", "%m", "%G", "%T", "%E"])


def parse_nodes(text: str) -> list[Node]:
    """What `sinfo -h -N -o NODE_FORMAT` printed."""
    found: list[Node] = []
    for line in text.split("\n"):
        if not line:
            continue
        words = line.split(UNIT, 6)
        if len(words) != 7:
            if found and UNIT not in line:
                continue  # an administrator's reason may hold a newline
            raise SlurmAnswerError(f"sinfo printed something that gpuq does not understand: {_short(line)}")
        partition, name, cpus, memory, gres, state, reason = words
        try:
            found.append(
                Node(
                    name=name,
                    partition=partition,
                    cpus=int(cpus.rstrip("+")),
                    memory=int(memory.rstrip("+")) * MIB,
                    gres=_text(gres),
                    state=state.rstrip("*~#!%$@^-+"),
                    reason="" if reason == "none" else reason,
                )
            )
        except ValueError as error:
            raise SlurmAnswerError(f"sinfo printed a node that gpuq does not understand: {error}") from None
    return found


def _short(text: str) -> str:
    line = text.strip().replace("\n", "\\n")
    return repr(line if len(line) <= 120 else line[:120] + "…")
