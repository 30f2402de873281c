"""Slurm's jobcomp file, read as it grows: from a stored place on, across rotation, truncation and half-written lines."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import re
from pathlib import Path
from typing import BinaryIO

import msgspec

from gpuq.adapters.slurm.jobcomp import UNREADABLE, first_from, moments, opened, rotated, zones_of_file
from gpuq.core.job import ENDED, JobEnd
from gpuq.core.printable import encodable
from gpuq.core.watch.facts import Completion

_LINE = re.compile(
    r"JobId=(?P<id>\d+) UserId=(?P<user>.*?)\((?P<uid>\d+)\) GroupId=.*? Name=(?P<name>.*) JobState=(?P<state>\S+) "
    r"Partition=\S* TimeLimit=\S* StartTime=(?P<start>\S+) EndTime=(?P<end>\S+) NodeList=(?P<node>\S*) .*?"
    r"WorkDir=(?P<workdir>.*) ReservationName=.*SubmitTime=(?P<submit>\S+) EligibleTime=\S+ "
    r"(?:ArrayJobId=(?P<array>\d+) ArrayTaskId=(?P<task>\d+) )?.*ExitCode=(?P<code>\d+):(?P<signal>\d+)\s*$"
)
_BEGIN = re.compile(r"JobId=\d+ UserId=\S*\(\d+\) GroupId=")
_HEAD = 512
"""Bytes at the beginning of the file that it is recognised by; the first line has as many."""
_BLOCK = 1024 * 1024


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """How far a file was read."""

    offset: int = 0
    inode: int = 0
    head: str = ""
    """Hash of its first bytes (of `head_size` bytes): an inode is used again, and a truncated file grows again."""
    head_size: int = 0


class Follower:
    """Reads the new lines of the file of one Slurm. `place`: where an earlier one stopped."""

    def __init__(self, path: Path, place: Place | None = None) -> None:
        self.path = path
        self.place = place or Place()

    def skip(self) -> None:
        """Go to the end, behind the last whole line: what is in the file now is no news."""
        try:
            with self.path.open("rb") as handle:
                size = os.fstat(handle.fileno()).st_size
                handle.seek(max(0, size - _BLOCK))
                tail = handle.read()
                self.place = _place(handle, size - (len(tail) - (tail.rfind(b"\n") + 1)))
        except OSError:
            self.place = Place()

    def files(self) -> list[Path]:
        """What to watch for news: the file, and the one that was rotated away as long as it was read last: slurmctld goes on
        with that until it is told to open its files again."""
        found = [self.path]
        with contextlib.suppress(OSError):
            if self.place.inode and self.path.stat().st_ino != self.place.inode:
                found += [one for one in rotated(self.path) if one.stat().st_ino == self.place.inode][:1]
        return found

    def read(self, *, uid: int | None = None) -> tuple[list[Completion], Place]:
        """The endings (of user `uid`) that were written since, and the place behind them. `place` itself is moved by
        the caller when they are safe. Raises OSError where the file is there and cannot be read."""
        found: list[Completion] = []
        place = self.place
        try:
            handle = self.path.open("rb")
        except FileNotFoundError:
            found, old = _rest_of_old(self.path, place, uid)
            return found, old or place
        with handle:
            if not _is(handle, place):
                # looked at before the old one is read: what slurmctld has begun to write here comes after all of that
                begun = os.fstat(handle.fileno()).st_size > 0
                found, old = _rest_of_old(self.path, place, uid)
                if old is not None and not begun:
                    return found, old  # slurmctld writes to the old one until it is told to open its files again
                place = Place()
            data = b""
            handle.seek(place.offset)
            offset = place.offset
            while block := handle.read(_BLOCK):
                data += block
                whole = data.rfind(b"\n") + 1
                found += parse(data[:whole], uid)
                offset += whole
                data = data[whole:]
            return found, _place(handle, offset)


def parse(data: bytes, uid: int | None = None) -> list[Completion]:
    """The endings in whole lines. Lines that are foreign, cut off, or of a requeue (JobState=PENDING) are passed over."""
    found = []
    mark = None if uid is None else f"({uid}) GroupId=".encode()
    zones = zones_of_file()
    for raw in data.split(b"\n"):
        if mark is not None and mark not in raw:
            continue
        text = raw.decode("utf-8", "surrogateescape")
        # slurmctld was killed while it wrote, and the next one went on behind the half of a line
        *_, start = (0, *(found.start() for found in _BEGIN.finditer(text)))
        match = _LINE.match(text[start:])
        if match is None or match["state"] not in ENDED or (uid is not None and int(match["uid"]) != uid):
            continue
        completion = _completion(match, zones)
        if completion is not None:
            found.append(completion)
    return found


def _completion(match: re.Match[str], zones: list[datetime.tzinfo | None]) -> Completion | None:
    readings = [(at, zone) for zone in zones for at in moments(match["submit"], zone)]
    if not readings:
        return None
    submitted, zone = readings[0]
    node = "" if match["node"] == "(null)" else match["node"]
    # cancelled while it waited: slurmctld writes the time of the end as the start, too
    start = first_from(submitted, moments(match["start"], zone)) if node else None
    end = JobEnd(
        state=match["state"],
        exit_code=int(match["code"]),
        signal=int(match["signal"]),
        start=start,
        end=first_from(start or submitted, moments(match["end"], zone)),
        node=node,
        source="jobcomp",
    )
    return Completion(
        id=f"{match['array']}_{match['task']}" if match["array"] else match["id"],
        number=int(match["array"] or match["id"]),
        uid=int(match["uid"]),
        user=match["user"],
        name=encodable(match["name"]),
        state=match["state"],
        submits=tuple(dict.fromkeys(int(at.timestamp()) for at, _ in readings)),
        end=end,
        workdir=encodable(match["workdir"]),
    )


def _place(handle: BinaryIO, offset: int) -> Place:
    size = min(_HEAD, offset)
    handle.seek(0)
    return Place(
        offset=offset,
        inode=os.fstat(handle.fileno()).st_ino,
        head=hashlib.sha256(handle.read(size)).hexdigest(),
        head_size=size,
    )


def _is(handle: BinaryIO, place: Place) -> bool:
    """True when this is the file that was read up to `place` (by its content: a copy that was put back is, too)."""
    if place.offset == 0:
        return place.inode in {0, os.fstat(handle.fileno()).st_ino}
    handle.seek(0)
    if hashlib.sha256(handle.read(place.head_size)).hexdigest() != place.head:
        return False
    handle.seek(place.offset - 1)
    return handle.read(1) != b""  # it reaches so far


def _rest_of_old(path: Path, place: Place, uid: int | None) -> tuple[list[Completion], Place | None]:
    """What the file that was rotated away (or copied before it was truncated) has behind the place, and the place behind
    that; None: it is not there."""
    newer: list[Path] = []
    for one in rotated(path)[:8] if place.inode else ():
        try:
            with opened(one) as handle:
                if not _is(handle, place):
                    newer.append(one)
                    continue
                found, end = _read_from(handle, place.offset, uid)
        except UNREADABLE:
            continue
        for later in reversed(newer):  # rotated more than once meanwhile
            with contextlib.suppress(*UNREADABLE), opened(later) as handle:
                more, end = _read_from(handle, 0, uid)
                found += more
        return found, end
    return [], None


def _read_from(handle: BinaryIO, offset: int, uid: int | None) -> tuple[list[Completion], Place]:
    """What stands behind `offset` in a file to which nobody writes any more, or not for long; and the place behind it."""
    handle.seek(offset)
    data = handle.read()
    return parse(data, uid), _place(handle, offset + data.rfind(b"\n") + 1)
