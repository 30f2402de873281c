"""A notice: what a person is told about an event, before any sink has shaped it."""

from __future__ import annotations

import datetime
from enum import StrEnum

import msgspec

from gpuq.core.event import Kind


class Level(StrEnum):
    """How a notice looks and sounds."""

    GOOD = "good"
    INFO = "info"
    WARNING = "warning"
    BAD = "bad"


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One message. It is stored as JSON in the outbox until it is delivered, once for each sink."""

    key: str
    """Of the event; with the sink's name it is the idempotency key of the delivery."""
    kind: Kind
    level: Level
    title: str
    text: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    """Names and values of a small table."""
    log_tail: str = ""
    log_name: str = ""
    time: datetime.datetime
    merge: str = ""
    """Notices of one sink with the same text here that still wait for delivery become one, the latest; empty: never."""
