"""Slurm's jobcomp file (`JobCompType=jobcomp/filetxt`): a line for each job that ended.

It outlives slurmctld's memory of a job (MinJobAge). Values are not quoted and names may hold blanks and `=`, so a
line is taken apart at its known keys only. Times are slurmctld's local ones, whole seconds, without a zone: an hour
comes twice when clocks are set back, and the caller's TZ need not be slurmctld's. So the submit time decides, which is
known from elsewhere: the reading that fits it best is the one for all times of a line.
"""

from __future__ import annotations

import datetime
import os
import re
import zoneinfo
from pathlib import Path

from gpuq.core.job import ENDED, JobEnd

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
    """The last ending of the job that the file tells of; None when it tells of none, or there is no file.

    part: one task (`12_3`) or component (`12+1`). Without it an array or a heterogeneous job has ended as the worst of
    its parts. Each of those has a line, under an id that nobody was shown, and with the one that was.

    Ids come back after a lost state, so user, name and submit time (not before `since`, whole seconds) must fit too.
    A line that is cut off or foreign is passed over.
    """
    try:
        handle = path.open("rb")
    except OSError:
        return None
    number = str(job_id)
    mention = f"JobId={number} ".encode()
    earliest = since - datetime.timedelta(seconds=1)
    zones = zones_of_file()
    found: dict[str, JobEnd] = {}
    with handle:
        for raw in handle:
            if mention not in raw:
                continue
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
        return sorted(wall.replace(tzinfo=zone, fold=fold).astimezone(datetime.UTC) for fold in (0, 1))
    except (ValueError, OverflowError):
        return []


def first_from(earliest: datetime.datetime, readings: list[datetime.datetime]) -> datetime.datetime | None:
    """The first of `readings` from `earliest` on; the first of all where each is before it (a clock set back)."""
    return next((moment for moment in readings if moment >= earliest), readings[0] if readings else None)
