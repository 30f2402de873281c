"""Sizes are bytes and durations are seconds inside; people and Slurm see 28G and 1h12m.

Sources: sbatch(1), `--mem` ("Default units are megabytes. Different units can be specified using the suffix
[K|M|G|T]"; Slurm's units are powers of 1024) and `--time` (acceptable formats).
"""

from __future__ import annotations

import datetime
import functools
import re

_remembered = functools.lru_cache(maxsize=2048)
"""A queue of 10,000 jobs has few different limits and sizes."""

KIB = 1024
MIB = 1024**2
GIB = 1024**3
TIB = 1024**4

_SUFFIX = {"": MIB, "K": KIB, "M": MIB, "G": GIB, "T": TIB}
# Patterns that few commands need are compiled when they are needed.
_SIZE = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([KMGT]?)(?:i?B)?"


def parse_size(text: str) -> int:
    """`28G`, `28.5G`, `28GiB` or a bare number of megabytes, as Slurm reads `--mem`, in bytes.

    Raises ValueError with a sentence for a person. Zero is refused: in Slurm `--mem=0` means "all of the node".
    """
    match = re.fullmatch(_SIZE, text.strip(), re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is not a size; write it like 28G, 900M or 28000 (megabytes)")
    size = int(float(match[1]) * _SUFFIX[match[2].upper()])
    if size < MIB:
        if float(match[1]) == 0:
            raise ValueError("a size of 0 means the whole node's memory to Slurm; name the amount, like 28G")
        raise ValueError(f"{text!r} is less than 1M, the smallest amount that Slurm accounts for")
    return size


def slurm_megabytes(size: int) -> int:
    """`size` bytes as the whole megabytes that Slurm wants, rounded up."""
    return -(-size // MIB)


@_remembered
def format_size(size: int) -> str:
    """Bytes for a person, at most one decimal: 28G, 1.5G, 900M, 12K, 0."""
    for suffix, unit in (("T", TIB), ("G", GIB), ("M", MIB), ("K", KIB)):
        if size >= unit - unit // 20480:  # 1023.95 of the next smaller unit would be shown as 1024 of it
            text = f"{size / unit:.1f}"
            return (text[:-2] if text.endswith(".0") else text) + suffix
    return f"{size}B" if size else "0"


_TIME = r"""(?: (?P<dd>\d+)-(?P<dh>\d+)(?: : (?P<dm>\d+) (?: : (?P<ds>\d+))? )?
          | (?P<h>\d+):(?P<hm>\d+):(?P<hs>\d+)
          | (?P<m>\d+) (?: : (?P<s>\d+) )? )"""
_UNLIMITED = {"UNLIMITED", "INFINITE"}
_NONE = {"", "N/A", "n/a", "NONE", "None", "NOT_SET", "INVALID", "(null)", "Partition_Limit"}


def parse_time_limit(text: str) -> int | None:
    """A Slurm time limit in seconds, rounded up to whole minutes as Slurm does; None for UNLIMITED.

    Formats: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes,
    days-hours:minutes:seconds. So `24:00` is 24 minutes. Raises ValueError with a sentence for a person.
    """
    word = text.strip()
    if word.upper() in _UNLIMITED:
        return None
    match = re.fullmatch(_TIME, word, re.VERBOSE)
    if not match:
        hint = ""
        if re.fullmatch(r"(\d+[dhms])+", word.lower()):
            hint = f"; Slurm would want {slurm_time(_human(word.lower()))}"
        raise ValueError(
            f"{text!r} is not a time limit; write minutes (90), hours:minutes:seconds (8:00:00) "
            f"or days-hours (1-12){hint}"
        )
    parts = {key: int(value) for key, value in match.groupdict().items() if value is not None}
    seconds = (
        86400 * parts.get("dd", 0)
        + 3600 * (parts.get("dh", 0) + parts.get("h", 0))
        + 60 * (parts.get("dm", 0) + parts.get("hm", 0) + parts.get("m", 0))
        + parts.get("ds", 0)
        + parts.get("hs", 0)
        + parts.get("s", 0)
    )
    if seconds == 0:
        raise ValueError(
            "a time limit of 0 asks Slurm for no limit at all, and such a job pends for ever where the "
            "partition has a limit; name the time, like 8:00:00"
        )
    return -(-seconds // 60) * 60


def is_minutes_seconds(text: str) -> bool:
    """True for the form `24:00`, which people write for 24 hours and Slurm reads as 24 minutes."""
    return re.fullmatch(r"\s*\d+:\d+\s*", text) is not None


def _human(text: str) -> int:
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    return sum(int(n) * units[u] for n, u in re.findall(r"(\d+)([dhms])", text))


@_remembered
def parse_clock(text: str) -> int | None:
    """A duration as squeue and sinfo print it (`4:05`, `1:02:03`, `7-00:00:00`) in seconds.

    None for UNLIMITED and for Slurm's spellings of "no value". Raises ValueError for anything else.
    """
    word = text.strip()
    if word in _NONE or word.upper() in _UNLIMITED:
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", word)
    if not match:
        raise ValueError(f"{text!r} is not a duration as Slurm prints it")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def slurm_time(seconds: int) -> str:
    """Seconds as Slurm prints and reads a time limit: `24:00` becomes 00:24:00, with days `1-12:00:00`."""
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


@_remembered
def format_duration(seconds: float) -> str:
    """Seconds for a person, two units at most: 45s, 24m, 1h12m, 2d3h."""
    total = max(0, round(seconds))
    if total < 60:
        return f"{total}s"
    if total < 3600:
        minutes, rest = divmod(total, 60)
        return f"{minutes}m{rest:02d}s" if rest else f"{minutes}m"
    if total < 86400:
        hours, rest = divmod(total // 60, 60)
        return f"{hours}h{rest:02d}m" if rest else f"{hours}h"
    days, rest = divmod(total // 3600, 24)
    return f"{days}d{rest}h" if rest else f"{days}d"


def duration_words(seconds: int) -> str:
    """Seconds in whole words, so that nobody takes minutes for hours: `24 minutes`, `1 hour 30 minutes`."""
    words = []
    rest = seconds
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count} {unit}{'s' if count != 1 else ''}")
    return " ".join(words) or "0 seconds"


@_remembered
def parse_epoch(text: str) -> datetime.datetime | None:
    """A time as the Slurm commands print it under SLURM_TIME_FORMAT=%s, as an aware UTC datetime.

    None where Slurm has no time (`N/A`, `Unknown`, `None`, 0). Raises ValueError for anything else.
    """
    word = text.strip()
    if word in _NONE or word in {"Unknown", "0"}:
        return None
    if not re.fullmatch(r"[0-9]{1,11}", word):
        raise ValueError(f"{text!r} is not a number of seconds since 1970")
    return datetime.datetime.fromtimestamp(int(word), datetime.UTC)


def check_number(field: str, value: int) -> int:
    """`value` when it is in the range that Slurm takes for cpus, nice or signal_before; else ValueError."""
    if field == "cpus" and value < 1:
        raise ValueError("must be at least 1")
    if field == "signal_before" and not 1 <= value <= 65535:
        raise ValueError("must be between 1 and 65535 seconds (sbatch(1), --signal)")
    if field == "check_seconds" and not 1 <= value <= 3600:
        raise ValueError("must be between 1 and 3600 seconds")
    if field == "retry_oom" and not 0 <= value <= 5:
        raise ValueError("must be between 0 and 5 attempts")
    if field == "nice" and not -2147483645 <= value <= 2147483645:
        raise ValueError("must be between -2147483645 and 2147483645 (sbatch(1), --nice)")
    return value
