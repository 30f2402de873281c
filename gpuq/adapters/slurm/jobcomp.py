"""Slurm's jobcomp file (`JobCompType=jobcomp/filetxt`): a line for each job that ended.

It outlives slurmctld's memory of a job (MinJobAge). Values are not quoted and names may hold blanks and `=`, so a
line is taken apart at its known keys only. Times are local, whole seconds.
"""

from __future__ import annotations

import datetime
import re
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
    found: JobEnd | None = None
    with handle:
        for raw in handle:
            if not raw.startswith(prefix):
                continue
            match = _LINE.match(raw.decode("utf-8", "surrogateescape"))
            if not match or int(match["uid"]) != uid or match["name"] != name or match["state"] not in ENDED:
                continue  # JobState=PENDING is written at a requeue
            submitted = _local(match["submit"])
            if submitted is None or submitted < earliest:
                continue
            found = JobEnd(
                state=match["state"],
                exit_code=int(match["code"]),
                signal=int(match["signal"]),
                start=_local(match["start"]),
                end=_local(match["end"]),
                node="" if match["node"] == "(null)" else match["node"],
                source="jobcomp",
            )
    return found


def _local(text: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except ValueError:
        return None
