"""What a running watcher tells about itself, for `gpuq watch status`. It is kept in the store, as JSON."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpuq.usecases.watch.look import Look


class Report(msgspec.Struct, kw_only=True):
    """Written every minute, and at the end."""

    pid: int
    controller: str
    started: datetime.datetime
    at: datetime.datetime
    sources: dict[str, str]
    polls: int
    rpcs: int
    """Questions to slurmctld since it started."""
    jobs: int
    unanswered: int
    problems: list[str]


def sources(look: Look, told: bool, pause: float, sampled: bool) -> dict[str, str]:
    """Where the news come from, for a person. told: the kernel tells of the completion file. pause: seconds between
    polls."""
    path = look.jobcomp
    if path is None:
        words = "none: this Slurm writes no job completion file (JobCompType=jobcomp/filetxt)"
        words = words if look.configured else "not known: Slurm has not answered yet"
    elif path.exists() and not look.readable():
        words = f"{path} may not be read: the queue is polled instead"
    else:
        words = f"{path}, " + ("watched by the kernel" if told else "looked at twice a second")
    return {
        "completions": words,
        "queue": f"polled every {pause:g} s",
        "memory": "sampled" if sampled else "not sampled",
    }
