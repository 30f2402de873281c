"""From what the Slurm commands print to values. Pure; raises SlurmAnswerError for what it does not understand.

Rows of the queue come from `squeue -o` with a format of our own. Free text (names, comments, directories) may hold
any byte, also newlines and separators, and comes last in a row, between marks that are drawn at random for each call;
so no name can look like a row or a field.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from gpuq.adapters.slurm.ahead import FREE, UNIT
from gpuq.core.job import Job, JobEnd, Node, Partition, phase_of
from gpuq.core.units import MIB, parse_clock, parse_epoch, parse_size
from gpuq.errors import SlurmAnswerError


def parse_queue(text: str, mark: str) -> list[Job]:
    """All rows that squeue printed. A truncated or foreign answer raises SlurmAnswerError."""
    reader = QueueReader(mark)
    reader.feed(text)
    return reader.jobs()


class QueueReader:
    """`parse_queue` for an answer that comes in pieces, cut anywhere: its rows are read while squeue prints others."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._parts: list[str] | None = None
        self._rest = ""
        self._jobs: list[Job] = []
        self._error: SlurmAnswerError | None = None

    def feed(self, text: str) -> None:
        """The next piece. Raises nothing: squeue may have failed, which explains more than what it printed."""
        if self._error is None:
            try:
                self._read(text)
            except SlurmAnswerError as error:
                self._error = error

    def jobs(self) -> list[Job]:
        """All rows, when there are no more pieces. To be called once. Raises SlurmAnswerError."""
        if self._error is None and (self._parts is not None or self._rest):
            self.feed(self._mark)  # the last row ends like the others
            if self._error is None and (self._parts or self._rest):
                raise _foreign("".join([*(self._parts or ()), self._rest]))
        if self._error is not None:
            raise self._error
        return self._jobs

    def _read(self, text: str) -> None:
        # mark closed mark free mark free mark free mark NEWLINE, again and again
        *parts, self._rest = (self._rest + text).split(self._mark)
        if self._parts is None:
            if not parts:
                return
            first, *parts = parts
            if first:
                raise _foreign(first)
        else:
            parts = self._parts + parts
        width = 2 + len(FREE)
        whole = len(parts) // width * width
        for start in range(0, whole, width):
            closed, *free, end = parts[start : start + width]
            if end != "\n":
                raise _foreign(end)
            self._jobs.append(_job(closed, free))
        self._parts = parts[whole:]


def _foreign(text: str) -> SlurmAnswerError:
    return SlurmAnswerError(f"squeue printed something that gpuq does not understand: {_short(text)}")


def _job(closed: str, free: list[str]) -> Job:
    # Taken apart by position: this is done once for each of perhaps 10,000 jobs.
    try:
        (
            id_, number, state, partition, submit, start, end, limit, elapsed, memory,
            cpus, nice, priority, node, uid, user, gres, dependency, reason,
        ) = closed.split(UNIT)  # fmt: skip
    except ValueError:
        raise SlurmAnswerError(f"squeue printed a row that gpuq does not understand: {_short(closed)}") from None
    comment, workdir, name = free
    try:
        phase_of(state)
        return Job(
            id_,
            int(number) if "+" not in id_ else int(id_.split("+", 1)[0]),
            name,
            state,
            "" if reason == "None" else reason,
            partition,
            user,
            int(uid),
            parse_epoch(submit),
            parse_epoch(start),
            parse_epoch(end),
            parse_clock(limit),
            parse_clock(elapsed) or 0,
            _NO_TEXT.get(dependency, dependency),
            _NO_TEXT.get(gres, gres),
            _memory(memory),
            int(cpus),
            int(nice),
            int(priority),
            _NO_TEXT.get(node, node),
            _NO_TEXT.get(comment, comment),
            workdir,
        )
    except ValueError as error:
        raise SlurmAnswerError(f"squeue printed a job that gpuq does not understand: {error}") from None


_NO_TEXT = dict.fromkeys(("(null)", "N/A", "None"), "")


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
                    max_memory_per_node=_limit(field["MaxMemPerNode"], _mebibytes)
                    if "MaxMemPerNode" in field
                    else _by_cpu(field),
                    state=field["State"],
                    max_memory_per_cpu=_limit(field.get("MaxMemPerCPU", "UNLIMITED"), _mebibytes),
                )
            )
        except (KeyError, ValueError) as error:
            raise SlurmAnswerError(f"scontrol printed a partition that gpuq does not understand: {error}") from None
    return found


def _mebibytes(text: str) -> int:
    return int(text) * MIB


def _by_cpu(field: dict[str, str]) -> int | None:
    """The memory of a node where the limit is given as MaxMemPerCPU: Slurm then gives CPUs for memory, as many as it may."""
    cpus = _limit(field["MaxCPUsPerNode"], int)
    return None if cpus is None else cpus * _mebibytes(field["MaxMemPerCPU"])


def _limit(text: str, read: Callable[[str], int]) -> int | None:
    return None if text == "UNLIMITED" else read(text)


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
                    gres=_NO_TEXT.get(gres, gres),
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
