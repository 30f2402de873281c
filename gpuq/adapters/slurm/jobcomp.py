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
    r"SubmitTime=(?P<submit>\S+) .*ExitCode=(?P<code>\d+):(?P<signal>\d+)\s*$"
)


def last_end(path: Path, job_id: int, *, uid: int, name: str, since: datetime.datetime) -> JobEnd | None:
    """The last ending of the job that the file tells of; None when it tells of none, or there is no file.

    Ids come back after a lost state, so user, name and submit time (not before `since`, whole seconds) must fit too.
    A line that is cut off or foreign is passed over.
    """
    try:
        handle = path.open("rb")
    except OSError:
        return None
    prefix = f"JobId={job_id} ".encode()
    earliest = since - datetime.timedelta(seconds=1)
    zones = _zones()
    found: JobEnd | None = None
    with handle:
        for raw in handle:
            if not raw.startswith(prefix):
                continue
            match = _LINE.match(raw.decode("utf-8", "surrogateescape"))
            if not match or int(match["uid"]) != uid or match["name"] != name or match["state"] not in ENDED:
                continue  # JobState=PENDING is written at a requeue
            readings = [(at, zone) for zone in zones for at in _moments(match["submit"], zone) if at >= earliest]
            if not readings:
                continue
            submitted, zone = min(readings, key=lambda reading: reading[0])
            start = _not_before(submitted, _moments(match["start"], zone))
            found = JobEnd(
                state=match["state"],
                exit_code=int(match["code"]),
                signal=int(match["signal"]),
                start=start,
                end=_not_before(start or submitted, _moments(match["end"], zone)),
                node="" if match["node"] == "(null)" else match["node"],
                source="jobcomp",
            )
    return found


def _zones() -> list[datetime.tzinfo | None]:
    """The zones that slurmctld may write in: the caller's (None), and the system's where TZ names another."""
    if not os.environ.get("TZ"):
        return [None]
    try:
        with Path("/etc/localtime").open("rb") as handle:
            return [None, zoneinfo.ZoneInfo.from_file(handle)]
    except (OSError, ValueError):
        return [None, datetime.UTC]


def _moments(text: str, zone: datetime.tzinfo | None) -> list[datetime.datetime]:
    """When clocks in `zone` showed `text`, in order; empty where it is no time."""
    try:
        wall = datetime.datetime.fromisoformat(text)
        return sorted(wall.replace(tzinfo=zone, fold=fold).astimezone(datetime.UTC) for fold in (0, 1))
    except (ValueError, OverflowError):
        return []


def _not_before(earliest: datetime.datetime, moments: list[datetime.datetime]) -> datetime.datetime | None:
    """The first of `moments` from `earliest` on; the first of all where each is before it (a clock set back)."""
    return next((moment for moment in moments if moment >= earliest), moments[0] if moments else None)
