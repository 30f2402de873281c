"""Notices and endings for tests."""

from __future__ import annotations

import datetime
from typing import Any

from gpuq.core.event import Ending, Event, Kind, Queue
from gpuq.core.notice import Level, Notice

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


def notice(number: int = 1, **fields: Any) -> Notice:
    """The notice that job `number` failed."""
    values: dict[str, Any] = {
        "key": f"end {number}",
        "kind": Kind.JOB_ENDED,
        "level": Level.BAD,
        "title": f"run{number} FAILED",
        "text": "Exit code 1.",
        "fields": (("Job", str(number)),),
        "time": NOW,
    }
    return Notice(**{**values, **fields})


def ended(**fields: Any) -> Event:
    """A job ended; fields of Ending, and `queue`."""
    queue = fields.pop("queue", None)
    values: dict[str, Any] = {
        "job_id": "12",
        "name": "dino/lr3e-4",
        "user": "anna",
        "attempt": 3,
        "outcome": "SUCCEEDED",
        "state": "COMPLETED",
        "elapsed": 4320,
    }
    return Event(
        key="end 12 2026-03-01", kind=Kind.JOB_ENDED, time=NOW, ending=Ending(**{**values, **fields}), queue=queue
    )


def queue(**fields: Any) -> Queue:
    """A queue with one running and three waiting jobs."""
    values: dict[str, Any] = {"running": 1, "waiting": 3, "next_name": "cnn/wide", "next_id": "13"}
    return Queue(**{**values, **fields})
