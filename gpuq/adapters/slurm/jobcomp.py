"""Slurm's jobcomp file (`JobCompType=jobcomp/filetxt`): a line for each job that ended.

It outlives slurmctld's memory of a job (MinJobAge). Values are not quoted and names may hold blanks and `=`, so a
line is taken apart at its known keys only. Times are slurmctld's local ones, whole seconds, without a zone: an hour
comes twice when clocks are set back, and the caller's TZ need not be slurmctld's. So the submit time decides, which is
known from elsewhere: the reading that fits it best is the one for all times of a line.

The file is rotated (logrotate(8)): then a line stands in `jobcomp.log.1`, `jobcomp.log-20261129` (dateext) or, packed, in
`jobcomp.log.2.gz`.
"""

from __future__ import annotations

import datetime
import os
import re
import zlib
import zoneinfo
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from gpuq.core.job import ENDED, JobEnd, is_sane

_LINE = re.compile(
    r"JobId=(?P<id>\d+) UserId=(?P<user>.*?)\((?P<uid>\d+)\) GroupId=.*? Name=(?P<name>.*) JobState=(?P<state>\S+) "
    r"Partition=\S* TimeLimit=\S* StartTime=(?P<start>\S+) EndTime=(?P<end>\S+) NodeList=(?P<node>\S*) .*"
    r"SubmitTime=(?P<submit>\S+) (?:EligibleTime=\S+ )?"
    r"(?:(?:ArrayJobId|HetJobId)=(?P<group>\d+) (?:ArrayTaskId|HetJobOffset)=(?P<member>\S+) )?"
    r".*ExitCode=(?P<code>\d+):(?P<signal>\d+)\s*$"
)


def last_end(
    path: Path, job_id: int, *, uid: int, name: str, since: datetime.datetime, part: str = ""
) -> JobEnd | None:
    """The last ending of the job that the file, or what was rotated away since, tells of; None when they tell of none, or
    there is no file.

    part: one task (`12_3`) or component (`12+1`). Without it an array or a heterogeneous job has ended as the worst of
    its parts. Each of those has a line, under an id that nobody was shown, and with the one that was.

    Ids come back after a lost state, so user, name and submit time (not before `since`, whole seconds) must fit too.
    A line that is cut off or foreign is passed over.
    """
    number = str(job_id)
    mention = f"JobId={number} ".encode()
    earliest = since - datetime.timedelta(seconds=1)
    zones = zones_of_file()
    found: dict[str, JobEnd] = {}
    for raw in _lines(path, earliest, mention):
        match = _LINE.match(raw.decode("utf-8", "surrogateescape"))
        if not match or number not in (match["id"], match["group"]):
            continue
        if int(match["uid"]) != uid or match["name"] != name or match["state"] not in ENDED:
            continue  # JobState=PENDING is written at a requeue
        member = match["member"] or ""
        if part and member and part not in (f"{number}_{member}", f"{number}+{member}"):
            continue
        readings = [(at, zone) for zone in zones for at in moments(match["submit"], zone) if at >= earliest]
        if not readings:
            continue
        submitted, zone = min(readings, key=lambda reading: reading[0])
        start = first_from(submitted, moments(match["start"], zone))
        found[member] = JobEnd(
            state=match["state"],
            exit_code=int(match["code"]),
            signal=int(match["signal"]),
            start=start,
            end=first_from(start or submitted, moments(match["end"], zone)),
            node="" if match["node"] == "(null)" else match["node"],
            source="jobcomp",
        )
    # tasks that were cancelled before they were tasks have one line, the array's
    ends = [end for member, end in found.items() if member or not part] or list(found.values())
    return next((end for end in ends if end.state != "COMPLETED"), ends[-1] if ends else None)


def _lines(path: Path, since: datetime.datetime, mention: bytes) -> Iterator[bytes]:
    """The lines with `mention`, the oldest first, from all files that may hold what was written from `since` on."""
    old = [one for one in rotated(path) if _written(one) >= since.timestamp()]
    for one in (*reversed(old), path):
        try:
            with opened(one) as handle:
                yield from (raw for raw in handle if mention in raw)
        except UNREADABLE:
            continue


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


UNREADABLE = (OSError, EOFError, zlib.error)
"""What reading a file raises that is gone, is no file, or is packed only in part."""


def rotated(path: Path) -> list[Path]:
    """What was rotated away from `path`, the latest first."""
    try:
        names = [name for name in os.listdir(path.parent) if name.startswith((f"{path.name}.", f"{path.name}-"))]
    except OSError:
        return []
    found = filter(Path.is_file, map(path.with_name, names))  # a pipe would keep us waiting
    return sorted(found, key=_written, reverse=True)


def opened(path: Path) -> BinaryIO:
    """The file, unpacked where it is packed. This and reading raise UNREADABLE."""
    if path.suffix == ".gz":
        import gzip  # rarely needed

        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def zones_of_file() -> list[datetime.tzinfo | None]:
    """The zones that slurmctld may write in: the caller's (None), and the system's where TZ names another."""
    if not os.environ.get("TZ"):
        return [None]
    try:
        with Path("/etc/localtime").open("rb") as handle:
            return [None, zoneinfo.ZoneInfo.from_file(handle)]
    except (OSError, ValueError):
        return [None, datetime.UTC]


def moments(text: str, zone: datetime.tzinfo | None) -> list[datetime.datetime]:
    """When clocks in `zone` showed `text`, in order; empty where it is no time."""
    try:
        wall = datetime.datetime.fromisoformat(text)
        found = sorted(wall.replace(tzinfo=zone, fold=fold).astimezone(datetime.UTC) for fold in (0, 1))
    except (ValueError, OverflowError):
        return []
    return [moment for moment in found if is_sane(moment)]


def first_from(earliest: datetime.datetime, readings: list[datetime.datetime]) -> datetime.datetime | None:
    """The first of `readings` from `earliest` on; the first of all where each is before it (a clock set back)."""
    return next((moment for moment in readings if moment >= earliest), readings[0] if readings else None)
