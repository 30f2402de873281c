"""When to look at the queue because a job has begun on this host: soon, unless it is others that begin all the time."""

from __future__ import annotations

SOON = 1.0
"""Seconds after a job's cgroup appeared until Slurm is asked: it is to be looked at if it lasts."""


class Begun:
    """The kernel does not tell whose job it is (cgroup v2), nor of which of several Slurms: where the looks find nothing
    new, they become rarer, down to one in `slowest` seconds. Times are monotonic seconds."""

    def __init__(self, slowest: float) -> None:
        self._slowest = slowest
        self._pause = SOON
        self._last = 0.0
        self._caused = False

    def look_at(self, now: float) -> float:
        """A job began: when to look."""
        if now - self._last > 2 * self._slowest:
            self._pause = SOON
        self._last = now
        self._caused = True
        return now + self._pause

    def looked(self, changed: bool) -> None:
        """The queue was looked at."""
        if changed:
            self._pause = SOON
        elif self._caused:
            self._pause = min(2 * self._pause, self._slowest)
        self._caused = False
