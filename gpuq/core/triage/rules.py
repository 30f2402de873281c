"""Why attempts fail, as data: one table, a row for each cause. Adding a cause is adding a row and a log below
tests/data/failures or tests/data/wordings.

The order of the rows counts twice: of the rows that match one line the first is taken, and of the rows that explain a
consequence the first is the cause.
"""

from __future__ import annotations

from gpuq.core.triage.environment import ENVIRONMENT
from gpuq.core.triage.host import HOST
from gpuq.core.triage.program import PROGRAM
from gpuq.core.triage.rule import Rule

RULES: tuple[Rule, ...] = HOST + ENVIRONMENT + PROGRAM
"""Every cause, most decisive first."""

BY_ID: dict[str, Rule] = {rule.id: rule for rule in reversed(RULES)}

ANYWHERE: tuple[str, ...] = (
    "Traceback (most recent call last)",
    "slurmstepd: error: ",
    "=== gpuq: started again after",
)
"""Looked for in the whole of a log however large it is; everything else near its two ends."""


def anchors() -> tuple[str, ...]:
    """Every text that makes a line worth keeping."""
    found = dict.fromkeys(ANYWHERE)
    for rule in RULES:
        found.update(dict.fromkeys(rule.anchors))
    return tuple(found)
