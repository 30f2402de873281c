"""What the log of a running attempt tells while it grows: that it began, how far it is, that its program is over.

An end is never taken from a log: Slurm decides that. What its last line says makes the queue be looked at sooner.
"""

from __future__ import annotations

import datetime
import re

import msgspec

from gpuq.core.event import Event, Kind
from gpuq.core.inside import runlines

START_PATIENCE = 5.0
"""Seconds after a job was seen running until its start is told without a START line: most scripts write none."""
_LONGEST = 500
_LINE = re.compile(
    rf"(?:\A|(?<=[\r\n]))(?P<kind>{runlines.START}|{runlines.STEP}|{'|'.join(runlines.ENDS)}) (?P<rest>[^\r\n]*)".encode()
)


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """A running attempt whose log is read. Times are seconds since 1970."""

    path: str
    name: str
    """`dino/lr3e-4 attempt 2`."""
    job_id: str
    start: int
    since: float
    """When it was first seen running."""
    offset: int = 0
    """How far the log was read."""
    begun: str = ""
    """What its START line says."""
    started: bool = False
    """Its start has been told, or nobody wants to know."""
    step: str = ""
    """The latest progress that has not been told."""
    progressed: float = 0.0
    over: bool = False
    """Its program has written its last line."""


def take(followed: Followed, data: bytes, offset: int) -> Followed:
    """After whole lines of the log, up to `offset`, have been read."""
    begun, step, over = followed.begun, followed.step, followed.over
    for match in _LINE.finditer(data):
        kind, rest = match["kind"].decode(), match["rest"].decode("utf-8", "replace").strip()[:_LONGEST]
        if kind == runlines.START:
            begun = rest
        elif kind == runlines.STEP:
            step = rest
        else:
            # FAILED exit=none is written before the end, and the program may go on
            over = f"exit={runlines.NOT_ENDED}" not in rest
    return msgspec.structs.replace(followed, offset=offset, begun=begun, step=step, over=over)


def tell(
    followed: Followed, at: float, controller: str, *, start: bool, progress: float | None
) -> tuple[Followed, list[Event]]:
    """What is to be told now. controller: its name in the keys. start: somebody wants to know of starts. progress: seconds
    between two notices about it; None: nobody wants them."""
    events = []
    if not followed.started and (followed.begun or followed.over or at - followed.since >= START_PATIENCE or not start):
        if start:
            events.append(started(controller, followed.job_id, followed.start, followed.name, followed.begun))
        followed = msgspec.structs.replace(followed, started=True)
    if progress is None:
        return msgspec.structs.replace(followed, step=""), events
    if followed.step and at - followed.progressed >= progress:
        events.append(
            Event(
                key=f"{controller}:progress:{followed.job_id}:{followed.start}:{followed.offset}",
                kind=Kind.PROGRESS,
                time=datetime.datetime.fromtimestamp(at, datetime.UTC),
                subject=_subject(followed.name, followed.job_id),
                text=followed.step,
            )
        )
        followed = msgspec.structs.replace(followed, step="", progressed=at)
    return followed, events


def evidence(tail: str) -> str:
    """What the last line that ends a log says for the cause of a failure, in words; empty: nothing, or there is none."""
    for text in reversed(tail.split("\n")):
        try:
            line = runlines.read(text.rpartition("\r")[2].strip())
        except ValueError:
            continue
        if line is None or line.kind not in runlines.ENDS:
            continue
        if line.kind == runlines.FINISHED:
            return "its log says FINISHED: what failed came after the program"
        return line.get("error") or ""
    return ""


def started(controller: str, job_id: str, start: int, name: str, text: str = "") -> Event:
    """The event of a job that began."""
    return Event(
        key=f"{controller}:start:{job_id}:{start}",
        kind=Kind.JOB_STARTED,
        time=datetime.datetime.fromtimestamp(start, datetime.UTC),
        subject=_subject(name, job_id),
        text=text,
    )


def _subject(name: str, job_id: str) -> str:
    return f"{name} (job {job_id})"
