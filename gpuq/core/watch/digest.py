"""The daily digest: how much of a day a job held the GPU, why none did in the rest, and what came of the jobs.

From events alone, so that it can be made at any time for any day. Time is divided by the most certain reason first: held by
a job, then not seen (the watcher was not there), then what was wrong, then an empty queue.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from gpuq.core.event import Digest, Ending, Event, Kind

Span = tuple[float, float]

BEST = 5
"""How many scores are shown."""
_CAUSES = {
    "node-unusable": "node down",
    "controller-away": "controller away",
    "gpu-idle": "jobs waited all the same",
    "gpu-idle-held": "jobs held",
    "job-dead": "job dead",
}
NOT_SEEN, EMPTY, BETWEEN = "not seen", "queue empty", "between jobs"


def digest(
    since: datetime.datetime,
    until: datetime.datetime,
    events: Sequence[Event],
    *,
    running: Iterable[Span] = (),
    seen: Iterable[Span] = (),
    problems: Iterable[tuple[str, float]] = (),
    empty_before: bool = False,
    empty: bool = False,
) -> Digest:
    """[since, until) in short. events: those that were recorded from then on, in order; running: GPU jobs that have not
    ended, as (start, until); seen: when the watcher was there; problems: those that go on, as (rule, since);
    empty_before, empty: the queue was empty at `since`, is empty now."""
    start, stop = since.timestamp(), until.timestamp()
    endings = [event for event in events if event.time < until]
    running, problems = list(running), list(problems)
    held = _merged([*_held(events), *running], start, stop)
    rest = _minus([(start, stop)], held)
    idle: dict[str, float] = {}
    for cause, spans in (
        (NOT_SEEN, _minus([(start, stop)], _merged(seen, start, stop))),
        *(
            (words, _merged(_problems(events, rule, problems, start, stop), start, stop))
            for rule, words in _CAUSES.items()
        ),
        (EMPTY, _merged(_empty(events, running, start, stop, empty_before, empty), start, stop)),
    ):
        taken = _length(rest)
        rest = _minus(rest, spans)
        if (gone := taken - _length(rest)) > 0:
            idle[cause] = idle.get(cause, 0.0) + gone
    if (left := _length(rest)) > 0:
        idle[BETWEEN] = left
    outcomes: dict[str, int] = {}
    for event in endings:
        counts = {event.ending.outcome: 1} if event.kind is Kind.JOB_ENDED and event.ending else event.task_outcomes
        for outcome, count in counts.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    return Digest(
        since=since,
        until=until,
        used=_length(held),
        idle=idle,
        outcomes=outcomes,
        best=_best([event.ending for event in endings if event.ending is not None]),
    )


def _best(endings: Iterable[Ending]) -> tuple[tuple[str, float], ...]:
    """The highest scores. Whether more is better is the run's own business; the name of the score stands beside it."""
    scored = [one for one in endings if one.score is not None]
    scored.sort(key=lambda one: -(one.score or 0.0))
    return tuple(
        (one.name if one.attempt is None else f"{one.name} attempt {one.attempt}", one.score)
        for one in scored[:BEST]
        if one.score is not None
    )


def _held(events: Iterable[Event]) -> list[Span]:
    endings = [event.ending for event in events if event.ending is not None]
    return [(one.start.timestamp(), one.end.timestamp()) for one in endings if one.gpu and one.start and one.end]


def _problems(
    events: Iterable[Event], rule: str, open_: Iterable[tuple[str, float]], start: float, stop: float
) -> list[Span]:
    spans: list[Span] = []
    began: dict[str, float] = {}
    first = True
    for event in events:
        if event.problem is None or event.problem.rule != rule:
            continue
        if event.kind is Kind.PROBLEM:
            began.setdefault(event.problem.subject, event.time.timestamp())
        elif event.kind is Kind.RECOVERED and (first or event.problem.subject in began):
            # the first thing that is heard of it: then it had begun before `start`
            spans.append((began.pop(event.problem.subject, start), event.time.timestamp()))
        first = False
    return [*spans, *((at, stop) for at in began.values()), *((at, stop) for one, at in open_ if one == rule)]


def _empty(
    events: Sequence[Event], running: Iterable[Span], start: float, stop: float, before: bool, now: bool
) -> list[Span]:
    """From each event that says so to the start of the next job; what is not known to have been empty is not."""
    starts = sorted(
        [
            one.timestamp()
            for event in events
            if event.ending is not None
            for one in (event.ending.start,)
            if one is not None
        ]
        + [at for at, _ in running]
    )
    moments = [event.time.timestamp() for event in events if event.kind is Kind.QUEUE_EMPTY]
    if before or (now and not moments and not starts):
        moments.insert(0, start)
    spans = []
    for at in moments:
        after = next((one for one in starts if one >= at), None)
        spans.append((at, after if after is not None else (stop if now else at)))
    return spans


def _merged(spans: Iterable[Span], start: float, stop: float) -> list[Span]:
    found: list[Span] = []
    for begin, end in sorted((max(a, start), min(b, stop)) for a, b in spans):
        if begin >= end:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _minus(spans: Iterable[Span], holes: Sequence[Span]) -> list[Span]:
    found = []
    for begin, end in spans:
        at = begin
        for a, b in holes:
            if b <= at or a >= end:
                continue
            if a > at:
                found.append((at, a))
            at = max(at, b)
        if at < end:
            found.append((at, end))
    return found


def _length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)
