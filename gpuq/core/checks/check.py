"""A check of `gpuq doctor` and its verdict. The rules are in the modules `checks_*`, their order in `checkup`.

A rule is a function from facts to checks (none where it does not apply). Adding one is adding a function to a table.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from gpuq.core.checks.hostfacts import HostFacts


class Verdict(StrEnum):
    """What a check came to."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"
    UNKNOWN = "unknown"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check. `text` is a sentence; `repair` are commands, or what to change where no command does it."""

    id: str
    verdict: Verdict
    text: str
    evidence: tuple[str, ...] = ()
    repair: tuple[str, ...] = ()


Rule = Callable[[HostFacts], list[Check]]

RANK = {Verdict.FAILURE: 0, Verdict.WARNING: 1, Verdict.UNKNOWN: 2, Verdict.OK: 3}


def ok(id: str, text: str, *evidence: str) -> list[Check]:
    """A check that found nothing."""
    return [Check(id=id, verdict=Verdict.OK, text=text, evidence=evidence)]


def unknown(id: str, text: str, *evidence: str) -> list[Check]:
    """A check that could not be made."""
    return [Check(id=id, verdict=Verdict.UNKNOWN, text=text, evidence=evidence)]


def failure(id: str, text: str, *evidence: str, repair: tuple[str, ...]) -> list[Check]:
    """Something that keeps jobs from running, or loses them."""
    said = tuple(line for line in evidence if line)
    return [Check(id=id, verdict=Verdict.FAILURE, text=text, evidence=said, repair=repair)]


def warning(id: str, text: str, *evidence: str, repair: tuple[str, ...]) -> list[Check]:
    """Something that works, and will bite."""
    said = tuple(line for line in evidence if line)
    return [Check(id=id, verdict=Verdict.WARNING, text=text, evidence=said, repair=repair)]
