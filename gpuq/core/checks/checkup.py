"""All checks of `gpuq doctor` on one host, and the order in which what they find is told."""

from __future__ import annotations

from gpuq.core.checks import daemons as checks_daemons
from gpuq.core.checks import gpu as checks_gpu
from gpuq.core.checks import logs as checks_logs
from gpuq.core.checks import node as checks_node
from gpuq.core.checks import settings as checks_settings
from gpuq.core.checks import system as checks_system
from gpuq.core.checks.check import RANK, Check, Rule
from gpuq.core.checks.hostfacts import HostFacts

TABLES: tuple[tuple[Rule, ...], ...] = (
    checks_logs.RULES,
    checks_daemons.CAUSES,
    checks_gpu.RULES,
    checks_system.CAUSES,
    checks_settings.CAUSES,
    checks_daemons.RULES,
    checks_node.RULES,
    checks_system.RULES,
    checks_settings.RULES,
)
"""Causes before what they cause."""


def examine(facts: HostFacts) -> list[Check]:
    """All checks: failures first, causes before what they cause; then warnings, what is unknown, and what is well."""
    found: list[Check] = []
    for table in TABLES:
        for rule in table:
            for check in rule(facts):
                if not any(check.id == other.id and RANK[other.verdict] <= RANK[check.verdict] for other in found):
                    found = [other for other in found if other.id != check.id] + [check]
    return sorted(found, key=lambda check: RANK[check.verdict])
