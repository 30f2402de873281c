"""Find in a log what ended the attempt: every place that a row of the table matches, and the one that was the cause."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate

from gpuq.core.triage.evidence import Event, Evidence, Log
from gpuq.core.triage.rule import Rule
from gpuq.core.triage.rules import BY_ID, RULES
from gpuq.core.triage.tracebacks import ERROR, GAP, SLURMS, Chain, find_chains, without_rank

_SEPARATOR = "=== gpuq: started again after"
_OVERCOME = 50
"""Lines. A program that wrote so much after a traceback had gone on from it."""


def last_start(log: Log | None) -> list[str]:
    """The lines since Slurm started the job last; what an earlier start left says nothing about this end."""
    lines: list[str] = []
    for part in log.parts if log else ():
        if lines:
            lines.extend([GAP] * (_OVERCOME + 1))  # however much was left out, it was much
        lines.extend(part)
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].startswith(_SEPARATOR):
            return lines[index + 1 :]
    return lines


def read_events(lines: list[str], evidence: Evidence) -> list[Event]:
    """Every place that matches a row of the table, in the order of the log."""
    chains = find_chains(lines)
    inside = {number for chain in chains for trace in chain.traces for number in range(trace.start, trace.end + 1)}
    rules = [
        (rule, re.compile(rule.pattern or "|".join(map(re.escape, rule.anchors)))) for rule in RULES if rule.anchors
    ]
    worth = _with_one_of(lines, {anchor for rule in RULES for anchor in rule.anchors})
    found: list[Event] = []
    for chain in chains:
        if not chain.traces[-1].ignored:
            ended, told = _of_chain(chain, rules, evidence)
            found.append(ended)
            inside.update(told)
    for index, line in enumerate(lines):
        if line == GAP or line.startswith("+ "):  # `set -x` shows commands, not what they say
            continue
        if index in inside and not line.startswith(SLURMS):  # Slurm writes into whatever is being written
            continue
        text = without_rank(line.strip("│┃╭╮╰╯─━ "))
        event = _match(index, text, None, rules, evidence) if index in worth else None
        if event is None and ERROR.match(text) and ": " in text:
            event = Event(at=index, rule=BY_ID["python_error"], text=text, values={"error": text})
        if event is not None:
            found.append(event)
    return sorted(found, key=lambda event: event.at)


def _with_one_of(lines: list[str], texts: set[str]) -> set[int]:
    """Indices of the lines that hold one of the texts; each is looked for in all lines at once, which is fast."""
    whole = "\n".join(lines)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    found: set[int] = set()
    for text in texts:
        at = whole.find(text)
        while at >= 0:
            index = bisect_right(starts, at) - 1
            found.add(index)
            at = whole.find(text, starts[index + 1])
    return found


def _of_chain(
    chain: Chain, rules: list[tuple[Rule, re.Pattern[str]]], evidence: Evidence
) -> tuple[Event, tuple[int, ...]]:
    """What the traceback is, and the lines below it that say so."""
    for trace in reversed(chain.traces):
        event = _match(chain.end, trace.error, chain, rules, evidence)
        if event is not None:
            return event, ()
    for trace in reversed(chain.traces):
        for number, text in trace.said:
            event = _match(chain.end, text, chain, rules, evidence)
            if event is not None and not event.rule.symptom:
                return event, (number,)
    event = Event(
        at=chain.end, rule=BY_ID["python_error"], text=chain.error, values={"error": chain.error}, chain=chain
    )
    return event, ()


def _match(
    at: int, text: str, chain: Chain | None, rules: list[tuple[Rule, re.Pattern[str]]], evidence: Evidence
) -> Event | None:
    for rule, pattern in rules:
        if not any(anchor in text for anchor in rule.anchors):
            continue
        if rule.gpu is not None and rule.gpu is not evidence.request.gpu:
            continue
        match = pattern.search(text)
        if match is None:
            continue
        files = [frame.file for trace in chain.traces for frame in trace.frames] if chain else []
        if rule.frames and not any(re.search(rule.frames, file) for file in files):
            continue
        values = {name.rstrip("0123456789"): value for name, value in match.groupdict().items() if value}
        if rule.script:
            line = re.search(rule.script, evidence.script)
            if line is None:
                continue
            values |= line.groupdict()
        return Event(at=at, rule=rule, text=text, values=values, chain=chain)
    return None


def pick(found: list[Event], code: int) -> Event | None:
    """The event that ended the job: a cause before its symptoms, a traceback before a mention, the last before those
    that were overcome; of several ranks the one that failed first. Then what explains it. code: the exit code."""
    found = [event for event in found if event.rule.id != "hidden_cancel"]
    causes = [event for event in found if not event.rule.symptom]
    tracebacks = [event for event in causes if event.chain and not event.chain.aside]
    tracebacks = tracebacks or [event for event in causes if event.chain]
    chosen: Event | None = None
    if tracebacks:
        last_of_rank = {event.chain.rank: event for event in tracebacks if event.chain}
        chosen = min(last_of_rank.values(), key=lambda event: event.at)
        after = max(event.at for event in last_of_rank.values()) + _OVERCOME
        later = [e for e in found if e.at > after and (not e.rule.symptom or code in e.rule.exits)]
        chosen = _specific(later) or chosen
    elif causes:
        chosen = _specific(causes) or causes[-1]
    elif found:
        rows = list(RULES)
        chosen = min(found, key=lambda event: rows.index(event.rule))
    for _ in range(3):  # a cause may itself have one
        above = next(
            (event for rule in RULES for event in found if event.rule is rule and _explains(rule, chosen)), None
        )
        if above is None:
            break
        chosen = above
    return chosen


def _specific(events: list[Event]) -> Event | None:
    """The last event of which more is known than that it is an exception; the first of its kind in a row."""
    known = [event for event in events if event.rule.id != "python_error"]
    return known[-1] if known else None


def _explains(rule: Rule, event: Event | None) -> bool:
    return event is not None and event.rule.id in rule.explains and event.rule.id != rule.id
