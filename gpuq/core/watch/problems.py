"""Problems over time: each is told once when it has lasted, and once when it is over."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping

import msgspec

from gpuq.core.event import Event, Kind, Problem
from gpuq.core.watch.rules import RULES, Rule, View

MANY = 3
"""Problems of one rule that are told one by one; more at one time are one message."""


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that was seen. Times are seconds since 1970."""

    problem: Problem
    since: float
    told: bool = False
    gone: float | None = None
    """Since when it has not been seen; None: it was there at the last look."""


Opens = Mapping[str, Open]


def judge(opens: Opens, view: View, at: float, rules: tuple[Rule, ...] = RULES) -> tuple[dict[str, Open], list[Event]]:
    """The problems that are open after `view` was seen at `at`, and what is to be told."""
    now = dict(opens)
    begun: dict[str, list[Open]] = {}
    over: dict[str, list[Open]] = {}
    for rule in rules:
        found = rule.find(view)
        if found is None:
            continue
        seen = {_key(rule, problem): problem for problem in found}
        for key, problem in seen.items():
            one = now.get(key) or Open(problem=problem, since=at)
            one = msgspec.structs.replace(one, problem=problem, gone=None)
            if not one.told and at - one.since >= rule.after:
                one = msgspec.structs.replace(one, told=True)
                begun.setdefault(rule.id, []).append(one)
            now[key] = one
        unsure = rule.unsure(view)
        for key in [key for key in now if key.startswith(f"{rule.id}|") and key not in seen]:
            one = now[key]
            if one.problem.subject in unsure:
                continue
            gone = at if one.gone is None else one.gone
            now[key] = msgspec.structs.replace(one, gone=gone)
            # one that was not told is forgotten at once: it did not last
            if not one.told or at - gone >= rule.after:
                del now[key]
                if one.told:
                    over.setdefault(rule.id, []).append(one)
    events = [event for ones in begun.values() for event in _events(Kind.PROBLEM, ones, at)]
    events += [event for ones in over.values() for event in _events(Kind.RECOVERED, ones, at)]
    return now, events


def next_look(opens: Opens, rules: tuple[Rule, ...] = RULES) -> float | None:
    """When to look again so that a problem is told, or over, as soon as it has lasted; None: nothing is pending."""
    after = {rule.id: rule.after for rule in rules}
    pending = []
    for key, one in opens.items():
        patience = after.get(key.partition("|")[0], 0.0)
        if one.gone is not None:
            pending.append(one.gone + patience)
        elif not one.told:
            pending.append(one.since + patience)
    return min(pending, default=None)


def _key(rule: Rule, problem: Problem) -> str:
    return f"{rule.id}|{problem.rule}|{problem.subject}"


def _events(kind: Kind, ones: Iterable[Open], at: float) -> list[Event]:
    found = list(ones)
    if len(found) <= MANY:
        return [_event(kind, one.problem, one.since, at) for one in found]
    first = found[0].problem
    names = ", ".join(one.problem.subject for one in found[:MANY])
    whole = Problem(
        rule=first.rule,
        subject=f"{len(found)} at once: {names} and {len(found) - MANY} more",
        text=f"{first.text} (and {len(found) - 1} more like it)",
        advice=first.advice,
    )
    return [_event(kind, whole, found[0].since, at)]


def _event(kind: Kind, problem: Problem, since: float, at: float) -> Event:
    return Event(
        key=f"{kind.value}:{problem.rule}:{problem.subject}:{since:.3f}",
        kind=kind,
        time=datetime.datetime.fromtimestamp(since if kind is Kind.PROBLEM else at, datetime.UTC),
        problem=problem,
        subject=problem.subject,
        text="" if kind is Kind.PROBLEM else f"it lasted {_words(at - since)}: {problem.text}",
    )


def _words(seconds: float) -> str:
    from gpuq.core.units import format_duration  # only when something is over

    return format_duration(seconds)
