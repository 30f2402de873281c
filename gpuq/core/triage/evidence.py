"""What is known of an attempt that has ended, and the places in its log that say something."""

from __future__ import annotations

import msgspec

from gpuq.core.attempt import Request
from gpuq.core.memory.values import MemorySummary
from gpuq.core.triage.rule import Rule
from gpuq.core.triage.tracebacks import Chain


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of a log: of a small one all, of a large one its two ends and what looked interesting between."""

    parts: tuple[tuple[str, ...], ...] = ()
    """Lines that stand next to each other, in the order of the file."""
    size: int = 0
    """Bytes of the whole."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of an attempt that has ended."""

    tag: str
    attempt: int | None
    outcome: str
    state: str
    """Slurm's, with a number of whoever cancelled it where Slurm has one (`CANCELLED by 1000`)."""
    request: Request
    reason: str = ""
    exit_code: int = 0
    signal: int = 0
    started: bool = True
    elapsed: int | None = None
    """Seconds."""
    restarts: int = 0
    notes: tuple[str, ...] = ()
    cancelled_by: str | None = None
    dependencies: tuple[str, ...] = ()
    project: str = ""
    run_dir: str = ""
    log_path: str = ""
    log: Log | None = None
    """None: there is no log."""
    log_fault: str = ""
    """What stands in the way of a log, where something does."""
    script: str = ""
    """The text of the script that ran."""
    script_path: str = ""
    memory: MemorySummary | None = None
    """What was seen of its memory while it ran; None: nobody looked."""
    killed_at: int = 0
    """Bytes: the highest limit at which this or an earlier attempt was killed for memory since the last success; 0: none."""
    checkpoint: str | None = None
    """The newest checkpoint that it wrote, in words; empty: none was found; None: nobody looked."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the log that a row of the table matches."""

    at: int
    rule: Rule
    text: str
    values: dict[str, str]
    chain: Chain | None = None
