"""What the watcher is put together from: the faces of its neighbours, and the part of the configuration that it minds."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from gpuq.core.event import Event, Kind
from gpuq.core.job import Job
from gpuq.core.notice import Notice


class CourierLike(Protocol):
    """What the watcher needs of the courier."""

    def wake(self) -> None:
        """There is something new in the outbox."""


class SamplerLike(Protocol):
    """What the watcher needs of the memory sampler."""

    def tick(self, jobs: Sequence[Job], now: datetime.datetime) -> list[Event]:
        """Look at the running jobs among these; those that are not there any more are over."""

    def pause(self) -> float | None:
        """Seconds until the next tick is wanted."""

    def began(self) -> bool:
        """A job has begun since this was asked last: the queue is worth a look."""

    def near(self, part: float) -> dict[str, tuple[int, int]]:
        """Of the jobs at whose memory it looks, those that hold `part` of their limit: bytes held and limit, by job id."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What is configured, as far as the watcher minds."""

    poll: float = 30.0
    hold: bool = False
    digest: str = "09:00"
    disk_free: float = 0.05
    fast_failures: int = 3
    fast_seconds: float = 60.0
    memory_near: float = 0.9
    silent: float = 1800.0
    """Seconds."""
    progress: float = 60.0
    notices: Callable[[Event], list[tuple[str, Notice]]]
    wants: Callable[[Kind], bool]
