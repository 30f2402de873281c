"""From rows of the queue and lines of the completion file to what the watcher remembers of a job."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuq.core.attempt import read_comment
from gpuq.core.job import Job, JobEnd, Phase
from gpuq.core.printable import encodable
from gpuq.core.watch.facts import Array, Completion, Snapshot, Watched


def legible(row: Job) -> Job:
    """`row` without bytes that are no text: what is known of it is written down as JSON, and told."""
    if row.name.isascii() and row.workdir.isascii() and row.comment.isascii():
        return row
    return msgspec.structs.replace(
        row, name=encodable(row.name), workdir=encodable(row.workdir), comment=encodable(row.comment)
    )


def running_of(rows: Iterable[Job]) -> tuple[Job, ...]:
    """Those that hold what they run on."""
    return tuple(row for row in rows if row.state != "PENDING" and row.phase in {Phase.RUNNING, Phase.ENDING})


def plain_id(row: Job) -> str:
    """The id of a row as the completion file has it: a component `12+1` is job 13 there."""
    if "+" in row.id:
        first, _, component = row.id.partition("+")
        if component.isdigit():
            return str(int(first) + int(component))
    return row.id


def end_key(id_: str, submit: int) -> str:
    """The key of a job's ending: its id and its submission."""
    return f"end:{id_}:{submit}"


def same_job(before: Watched, row: Job, fact: Snapshot) -> bool:
    """True when a row with a later submit time is the same job, requeued."""
    mark, was = mark_of(row.comment), mark_of(before.comment)
    if mark or was:
        return mark == was
    return (before.uid, before.name) == (row.uid, row.name) and row.number in fact.restarted


def mark_of(comment: str) -> tuple[int, str] | None:
    """gpuq's own mark in a comment."""
    return read_comment(comment) if comment else None


def from_row(id_: str, row: Job, submit: int) -> Watched:
    """A job as the queue shows it."""
    running = row.phase in {Phase.RUNNING, Phase.ENDING}
    return Watched(
        id=id_,
        number=row.number,
        uid=row.uid,
        name=row.name,
        user=row.user,
        submit=submit,
        comment=row.comment,
        workdir=row.workdir,
        gpu=row.has_gpu,
        running=running,
        start=int(row.start.timestamp()) if running and row.start else None,
    )


def from_line(line: Completion) -> Watched:
    """A job that was never seen in the queue."""
    return Watched(
        id=line.id,
        number=line.number,
        uid=line.uid,
        name=line.name,
        user=line.user,
        submit=line.submits[0],
        workdir=line.workdir,
    )


def task_of(array: Array, task: str) -> Watched:
    """A task whose end is to be asked for."""
    return Watched(
        id=task, number=array.number, uid=array.uid, name=array.name, user=array.user, submit=array.submit, missing=1
    )


def end_of(row: Job) -> JobEnd:
    """What the row itself tells; the exit code is asked for when the ending is told."""
    return JobEnd(state=row.state, reason=row.reason, start=row.start, end=row.end, node=row.node, source="squeue")
