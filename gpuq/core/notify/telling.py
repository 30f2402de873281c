"""From an event to the notices about it: who is told, in which words.

What the words are made of (names of jobs, lines of logs, reasons of Slurm) may hold anything; it is made printable here,
once, so that a notice can be stored, logged and sent.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping, Sequence

from gpuq.core.event import Digest, Ending, Event, Kind, Problem, Queue
from gpuq.core.frames import last_frame
from gpuq.core.notice import Level, Notice
from gpuq.core.notify.config import Config
from gpuq.core.notify.wording import fill
from gpuq.core.units import format_duration

TITLE, TEXT, TAIL_LINES, TAIL_LINE = 250, 3000, 200, 500
"""Characters of a title and a text, lines of a log and characters of each, that a notice holds at most."""
_TASKS = 10
"""Tasks of an array that are told one by one."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_NO_TEXT = re.compile("[\ud800-\udfff]")
"""Bytes that were no UTF-8, as surrogateescape keeps them, and halves of pairs: neither can be stored or sent."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LEVELS = {
    "SUCCEEDED": Level.GOOD,
    "CANCELLED": Level.WARNING,
    "INCOMPLETE": Level.WARNING,
}

Words = tuple[Level, str, str, dict[str, str]]
"""Level, title, text, and the fields that a template may use."""


def notices(event: Event, config: Config) -> list[tuple[str, Notice]]:
    """What to tell about `event`: (sink, notice) for each sink that is to hear of it. Empty: nobody."""
    routes = config.routes(event.kind)
    if not routes:
        return []
    notice = notice_of(event, config)
    return [(sink, notice) for sink in routes]


def notice_of(event: Event, config: Config) -> Notice:
    """The notice about `event`, in the user's words where there are some."""
    level, title, text, values = _WORDS[event.kind](event)
    values = {key: clean(value) for key, value in values.items()}
    values |= _queue_values(event) | {"kind": event.kind.value, "time": clock(event.time, event.time)}
    # a subject may be blank in all that it has
    title, text = one_line(title) or event.kind.value.replace("_", " "), clean(text)
    chosen = config.kind(event.kind)
    if chosen.title is not None:
        title = one_line(fill(chosen.title, {**values, "default": title})) or title
    if chosen.text is not None:
        text = clean(fill(chosen.text, {**values, "default": text}))
    ending = event.ending
    return Notice(
        key=event.key,
        kind=event.kind,
        level=level,
        title=_cut(title, TITLE),
        text=_cut(text, TEXT),
        fields=tuple((name, one_line(value)) for name, value in _fields(event) if value),
        log_tail=log_lines(ending.log_tail) if ending else "",
        log_name=_log_name(ending) if ending and ending.log_tail else "",
        time=event.time,
        merge=_merge(event),
    )


def _merge(event: Event) -> str:
    """Equal problems that wait for delivery become one, so do the ends of them, and of the progress of a job only the latest
    is news."""
    if event.kind is Kind.PROGRESS:
        return one_line(f"progress {event.subject}")
    if event.kind in {Kind.PROBLEM, Kind.RECOVERED} and event.problem:  # one that comes and goes would fill the outbox
        return one_line(f"{event.kind.value} {event.problem.rule} {event.problem.subject}")
    return ""


# -- the wording of each kind --------------------------------------------------------------------------------------


def _job_ended(event: Event) -> Words:
    ending = event.ending
    if ending is None:
        return _plain(event)
    warned = ending.outcome == "SUCCEEDED" and bool(ending.notes)
    level = Level.WARNING if warned else _LEVELS.get(ending.outcome, Level.BAD)
    title = f"{_whole_name(ending)} {ending.outcome}"
    if ending.elapsed is not None:
        title += f" after {format_duration(ending.elapsed)}"
    if ending.score is not None:
        title += f": {_score(ending)}"
    again = _sentence(f"tried again {ending.retry}") if ending.retry else ""
    lines = [_sentence(ending.cause), *map(_sentence, ending.notes), again, _after(event)]
    return level, title, "\n".join(filter(None, lines)), _ending_values(ending)


def _array_ended(event: Event) -> Words:
    whole = event.ending
    name = f"{whole.name} ({whole.job_id})" if whole else event.subject or "array"
    bad = {outcome for outcome, count in event.task_outcomes.items() if count} - {"SUCCEEDED"}
    levels = [_LEVELS.get(outcome, Level.BAD) for outcome in bad]
    level = Level.BAD if Level.BAD in levels else Level.WARNING if levels else Level.GOOD
    outcomes = _counts(event.task_outcomes)
    tasks = [
        f"{task.job_id} {task.outcome}" + (f": {_sentence(task.cause)}" if task.cause else "")
        for task in event.tasks[:_TASKS]
    ]
    if len(event.tasks) > _TASKS:
        tasks.append(f"and {_beyond(event)} more")
    values = {
        "name": whole.name if whole else event.subject,
        "job_id": whole.job_id if whole else "",
        "user": whole.user if whole else "",
        "project": whole.project if whole else "",
        "outcomes": outcomes,
        "tasks": "\n".join(tasks),
    }
    return level, f"{name}: the array ended, {outcomes or 'no task ran'}", "\n".join([*tasks, _after(event)]), values


def _beyond(event: Event) -> int:
    """How many of the tasks that did not succeed are not named. `20_[3-9]` stands for many, so then ids are counted."""
    if any("[" in task.job_id for task in event.tasks):
        return len(event.tasks) - _TASKS
    return sum(count for outcome, count in event.task_outcomes.items() if outcome != "SUCCEEDED") - _TASKS


def _one_left(event: Event) -> Words:
    queue = event.queue or Queue()
    what = f": {_next(queue)}" if queue.next_name else ""
    return Level.INFO, f"One job is left{what}", _empty_at(event), {}


def _queue_empty(event: Event) -> Words:
    return Level.INFO, "The queue is empty", event.text or "Nothing runs or waits: the GPU is idle.", {}


def _started(event: Event) -> Words:
    return Level.INFO, f"{event.subject or 'A job'} started", event.text, _plain(event)[3]


def _progress(event: Event) -> Words:
    return Level.INFO, event.subject or "Progress", event.text, _plain(event)[3]


def _problem(event: Event) -> Words:
    problem = event.problem
    if problem is None:
        return _plain(event)
    text = "\n".join(filter(None, [_sentence(problem.text), f"Helps: {problem.advice}" if problem.advice else ""]))
    return Level.WARNING, f"Problem: {problem.subject}", text, _problem_values(problem)


def _recovered(event: Event) -> Words:
    problem = event.problem
    if problem is None:
        return Level.GOOD, event.subject or "A problem is over", event.text, _plain(event)[3]
    text = event.text or problem.text
    return Level.GOOD, f"Over: {problem.subject}", _sentence(text), _problem_values(problem)


def _digest(event: Event) -> Words:
    digest = event.digest
    if digest is None:
        return _plain(event)
    values = _digest_values(digest)
    idle = sum(digest.idle.values())
    lines = [f"GPU used {values['used']}, idle {_hours(idle)}" + (f" ({values['idle']})" if values["idle"] else "")]
    lines.append(f"Jobs ended: {values['outcomes'] or 'none'}")
    if values["best"]:
        lines.append(f"Best: {values['best']}")
    title = f"{format_duration((digest.until - digest.since).total_seconds())} until {values['until']}"
    return Level.INFO, f"Digest: {title}", "\n".join(lines), values


def _plain(event: Event) -> Words:
    title = event.subject or event.kind.value.replace("_", " ")
    return Level.INFO, title, event.text, {"subject": event.subject, "text": event.text}


_WORDS: Mapping[Kind, Callable[[Event], Words]] = {
    Kind.JOB_ENDED: _job_ended,
    Kind.ARRAY_ENDED: _array_ended,
    Kind.ONE_LEFT: _one_left,
    Kind.QUEUE_EMPTY: _queue_empty,
    Kind.JOB_STARTED: _started,
    Kind.PROGRESS: _progress,
    Kind.PROBLEM: _problem,
    Kind.RECOVERED: _recovered,
    Kind.DIGEST: _digest,
    Kind.TEST: _plain,
}


# -- values --------------------------------------------------------------------------------------------------------


def _ending_values(ending: Ending) -> dict[str, str]:
    ran = ending.outcome != "LOST" and ending.state != ""
    return {
        "name": ending.name,
        "job_id": ending.job_id,
        "user": ending.user,
        "attempt": "" if ending.attempt is None else str(ending.attempt),
        "outcome": ending.outcome,
        "state": ending.state,
        "cause": ending.cause,
        "exit_code": str(ending.exit_code) if ran else "",
        "signal": str(ending.signal) if ran else "",
        "elapsed": "" if ending.elapsed is None else format_duration(ending.elapsed),
        "score": "" if ending.score is None else f"{ending.score:.6g}",
        "score_name": ending.score_name,
        "notes": "\n".join(ending.notes),
        "project": ending.project,
        "log": ending.log,
    }


def _problem_values(problem: Problem) -> dict[str, str]:
    return {"rule": problem.rule, "subject": problem.subject, "text": problem.text, "advice": problem.advice}


def _digest_values(digest: Digest) -> dict[str, str]:
    idle = sorted(digest.idle.items(), key=lambda one: -one[1])
    return {
        "since": clock(digest.since, digest.until - datetime.timedelta(days=7)),
        "until": clock(digest.until, digest.until - datetime.timedelta(days=7)),
        "used": _hours(digest.used),
        "idle": ", ".join(f"{why} {_hours(seconds)}" for why, seconds in idle if seconds >= 1),
        "outcomes": _counts(digest.outcomes),
        "best": "; ".join(f"{name} {score:.6g}" for name, score in digest.best),
    }


def _queue_values(event: Event) -> dict[str, str]:
    queue = event.queue
    if queue is None:
        return {}
    return {
        "running": str(queue.running),
        "waiting": str(queue.waiting),
        "next": one_line(queue.next_name),
        "next_id": queue.next_id,
        "drained": clock(queue.drained, event.time) if queue.drained else "",
    }


def _fields(event: Event) -> list[tuple[str, str]]:
    """The small table: what a person looks for first, and nothing that the title says."""
    ending = event.ending
    if event.kind is not Kind.JOB_ENDED or ending is None:
        return []
    exit_code = f"{ending.exit_code}" + (f", signal {ending.signal}" if ending.signal else "")
    return [
        ("Job", ending.job_id + (f" of {ending.user}" if ending.user else "")),
        ("Exit code", exit_code if (ending.exit_code or ending.signal) else ""),
        ("Slurm", ending.state if ending.state not in {ending.outcome, "COMPLETED"} else ""),
        ("Project", ending.project),
        ("Log", ending.log),
    ]


def _whole_name(ending: Ending) -> str:
    name = ending.name or f"job {ending.job_id}"
    return name if ending.attempt is None else f"{name} attempt {ending.attempt}"


def _score(ending: Ending) -> str:
    return f"{ending.score_name or 'score'} {ending.score:.6g}"


def _counts(outcomes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items() if count)


def _hours(seconds: float) -> str:
    return format_duration(seconds) if seconds else "0h"


def _next(queue: Queue) -> str:
    return queue.next_name + (f" (job {queue.next_id})" if queue.next_id else "")


def _after(event: Event) -> str:
    """What runs next, how much waits behind it, and when all is done."""
    queue = event.queue
    if queue is None:
        return ""
    if not queue.next_name:
        if queue.waiting:
            return f"Nothing can run now; {_jobs(queue.waiting)} {'waits' if queue.waiting == 1 else 'wait'}."
        return "" if queue.running else "Nothing runs or waits."
    behind = queue.waiting - (0 if queue.running else 1)
    words = [f"Next: {_next(queue)}"]
    if behind > 0:
        words.append(f"{_jobs(behind)} behind it")
    end = _empty_at(event)
    return ", ".join(words) + "." + (f" {end}" if end else "")


def _empty_at(event: Event) -> str:
    queue = event.queue
    return f"Empty at about {clock(queue.drained, event.time)}." if queue and queue.drained else ""


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"


def clock(moment: datetime.datetime, now: datetime.datetime) -> str:
    """Local time; with the date when that is another day than `now`."""
    local = moment.astimezone()
    return local.strftime("%H:%M" if local.date() == now.astimezone().date() else "%Y-%m-%d %H:%M")


def _sentence(text: str) -> str:
    """With a capital and a full stop: causes come from rules that write them without. `cv.json` stays what it is."""
    text = text.strip()
    if not text:
        return ""
    word = text.split(None, 1)[0].rstrip(",:;")
    first = text[0].upper() if word.isascii() and word.isalpha() and word.islower() else text[0]
    return first + text[1:] + ("" if text[-1] in ".!?:" else ".")


# -- printable -----------------------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """`text` without escape sequences and control characters (newlines stay); bytes that were no text become U+FFFD."""
    text = _ESCAPES.sub("", _NO_TEXT.sub("�", text)).replace("\t", "    ")
    return "".join(c if c == "\n" or c.isprintable() else "" if c in "\r\0" else "�" for c in text)


def one_line(text: str) -> str:
    """`clean`, and newlines and runs of blanks as one blank."""
    return " ".join(clean(text).split())


def log_lines(text: str) -> str:
    """The end of a log: of a progress bar its last frame, no blank lines at the ends, no endless line."""
    lines = [clean(last_frame(line.encode())).rstrip() for line in _NO_TEXT.sub("�", text).split("\n")[-TAIL_LINES:]]
    return "\n".join(_cut(line, TAIL_LINE) for line in _stripped(lines))


def _stripped(lines: Sequence[str]) -> list[str]:
    kept = list(lines)
    while kept and not kept[-1].strip():
        kept.pop()
    while kept and not kept[0].strip():
        kept.pop(0)
    return kept


def _log_name(ending: Ending) -> str:
    """`dino/lr3e-4`, attempt 3 → `dino-lr3e-4-attempt3.log`: a name for the attached end of the log."""
    name = _NO_NAME.sub("-", ending.name).strip("-.") or _NO_NAME.sub("-", f"job{ending.job_id}")
    return f"{name[:80]}{'' if ending.attempt is None else f'-attempt{ending.attempt}'}.log"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"
