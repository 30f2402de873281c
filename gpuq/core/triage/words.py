"""The texts of a verdict: templates filled in, lines quoted."""

from __future__ import annotations

import re
import shlex

from gpuq.core.memory.oom import used_words
from gpuq.core.memory.sizing import AFTER_OOM, option, round_up
from gpuq.core.triage.evidence import Event, Evidence
from gpuq.core.units import MIB, format_duration, format_size, slurm_time

_QUOTED = 3
_WIDEST = 300
"""Characters quoted of a line."""


def facts(evidence: Evidence) -> dict[str, str]:
    """The values that every text of the table may name."""
    asked = evidence.request
    by = evidence.cancelled_by or ""
    directory = evidence.log_path.rpartition("/")[0]
    values = {
        "tag": shlex.quote(evidence.tag),
        "attempt": str(evidence.attempt or ""),
        "memory": format_size(asked.memory),
        "held": used_words(evidence.memory),
        "more_memory": _half_again(max(asked.memory, evidence.killed_at)),
        "time_limit": format_duration(asked.time_limit) if asked.time_limit else "",
        "more_time": slurm_time(2 * asked.time_limit) if asked.time_limit else "LONGER",
        "reason": evidence.reason,
        "exit_code": str(code_of(evidence)),
        "project": shlex.quote(evidence.project),
        "run_dir": shlex.quote(evidence.run_dir),
        "log_dir": shlex.quote(directory),
        "log_fault": evidence.log_fault,
        "script": shlex.quote(evidence.script_path),
        "dependencies": ", ".join(evidence.dependencies),
        "parent": next((d.rpartition(":")[2] for d in evidence.dependencies), "THAT"),
        "promised": "; ".join(note for note in evidence.notes if note.startswith("promised")),
        "cancelled_by": by,
        "cancelled_else": "" if by else ", with scancel or by Slurm; gpuq did not do it",
        "before_start": "" if evidence.started else "before it had started",
    }
    if not by and (match := re.search(r"by (\d+)", evidence.state)):
        values |= {"cancelled_by": f"user {match[1]}", "cancelled_else": ""}
    return values


def fill(text: str, evidence: Evidence, event: Event | None) -> str:
    values = facts(evidence) | {name: cut(value) for name, value in (event.values if event else {}).items()}
    if event is not None:
        values.setdefault("error", cut(event.text))
    return expand(text, values)


def expand(text: str, values: dict[str, str]) -> str:
    """Fill a template in; a part in square brackets that lacks a value is left out.

    >>> expand("full[ at {size}]", {})
    'full'
    """

    def optional(match: re.Match[str]) -> str:
        names = re.findall(r"\{(\w+)\}", match[1])
        return match[1] if all(values.get(name) for name in names) else ""

    chosen = re.sub(r"\[([^\[\]]*\{\w+\}[^\[\]]*)\]", optional, text)
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], ""), chosen)


def slurm_says(evidence: Evidence) -> str:
    words = f"Slurm: {evidence.state or 'nothing'}"
    if evidence.state:
        words += f", exit code {evidence.exit_code}:{evidence.signal}"
    if evidence.elapsed is not None:
        words += f", after {format_duration(evidence.elapsed)}"
    asked = evidence.request
    return f"{words}; asked for {'1 GPU' if asked.gpu else 'no GPU'} and {format_size(asked.memory)}"


def memory_says(evidence: Evidence) -> list[str]:
    """What was seen of its memory, for an end that may have been for want of it."""
    seen = evidence.memory
    if seen is None or seen.held is None:
        return []
    parts = " + ".join(
        f"{format_size(size)} {name}"
        for name, size in (("anon", seen.anon), ("shmem", seen.shmem), ("swap", seen.swap))
        if size
    )
    limit = f" of {format_size(seen.limit)}" if seen.limit else ""
    found = [
        f"seen at its height: {format_size(seen.held)}{limit}{f' ({parts})' if parts else ''}, page cache not counted"
    ]
    if seen.oom_kill:
        found.append(f"its cgroup counted {seen.oom_kill} killed for memory")
    if seen.host_available is not None and seen.host_available < 512 * MIB:
        found.append(f"the host itself had only {format_size(seen.host_available)} left")
    return found


def quotes(events: list[Event]) -> list[str]:
    """The lines of the log, each that differs in more than its numbers once, with how often it was seen."""
    seen: dict[str, list[str]] = {}
    for event in events:
        seen.setdefault(re.sub(r"\d+", "0", event.text), []).append(event.text)
    return [
        cut(texts[0]) + (f" ({len(texts)} times)" if len(texts) > 1 else "") for texts in list(seen.values())[-_QUOTED:]
    ]


def cut(text: str) -> str:
    clean = "".join(c if c.isprintable() else " " for c in text).strip()
    return clean if len(clean) <= _WIDEST else clean[: _WIDEST - 1] + "…"


def code_of(evidence: Evidence) -> int:
    return 128 + evidence.signal if 0 < evidence.signal <= 64 and not evidence.exit_code else evidence.exit_code


def _half_again(memory: int) -> str:
    """Half as much again, as `gpuq mem` and [retry] have it."""
    return option(round_up(int(memory * AFTER_OOM)))
