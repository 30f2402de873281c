"""What `gpuq queue` and `gpuq status` print, however their command line was read."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from gpuq.adapters.slurm.ahead import AskedQueue
from gpuq.cli.context import build
from gpuq.cli.output import echo, emit_json, state, table
from gpuq.core.units import format_duration, format_size

if TYPE_CHECKING:
    import datetime

    from gpuq.usecases.board import Row
    from gpuq.usecases.status import AttemptView, RunView


def queue(*, everybody: bool = False, as_json: bool = False) -> int:
    """`gpuq queue`; its exit code."""
    ctx = build(partial(AskedQueue, uid=None if everybody else os.geteuid()))
    from gpuq.usecases.board import board

    rows = board(ctx, everybody=everybody)
    if as_json:
        emit_json("gpuq.queue/1", jobs=rows)
        return 0
    if not rows:
        echo("The queue is empty." if everybody else "None of your jobs runs or waits.")
        return 0
    headings = ["#", "JOB", "TAG", "TRY", "STATE", "WHY", "ELAPSED", "LIMIT", "MEM", "CPU", "GPU"]
    cells = [_queue_cells(row) for row in rows]
    if len({row.partition for row in rows}) > 1:  # each is a queue of its own
        headings.insert(4, "PART")
        for line, row in zip(cells, rows, strict=True):
            line.insert(4, row.partition)
    if everybody:
        headings.insert(2, "USER")
        for line, row in zip(cells, rows, strict=True):
            line.insert(2, row.user)
    table(headings, cells, styled=headings.index("STATE"))
    return 0


def _queue_cells(row: Row) -> list[str]:
    # a job that was just submitted or changed has no reason yet, but its dependency stands
    depends = row.position > 0 and row.reason in {"Dependency", "None", ""}
    why = (row.dependency_words if depends else "") or row.reason_words
    if row.reason == "BeginTime" and row.start is not None:
        why = f"{'requeued; from' if row.restarts else 'not before'} {_soon(row.start)}"
    if row.edited:
        more = f" and {len(row.edited) - 2} more" if len(row.edited) > 2 else ""
        why += f"{'; ' if why else ''}edited since: {', '.join(row.edited[:2])}{more}"
    return [
        str(row.position) if row.position else "-",
        row.id,
        row.tag,
        str(row.attempt) if row.attempt is not None else "",
        row.state,
        why,
        format_duration(row.elapsed) if row.elapsed or not row.position else "",
        "unlimited" if row.time_limit is None else format_duration(row.time_limit),
        format_size(row.memory) if row.memory else "",
        str(row.cpus),
        str(row.gpus) if row.gpus else "",
    ]


def status(ref: str | None = None, *, as_json: bool = False) -> int:
    """`gpuq status`; its exit code."""
    ctx = build()
    from gpuq.usecases import status as usecase

    if ref is None:
        runs, away = usecase.overview(ctx)
    else:
        run, away = usecase.status(ctx, ref)
        runs = [run]
    if as_json:
        emit_json("gpuq.status/1", runs=runs)
    elif ref is not None:
        _describe_run(runs[0])
    elif runs:
        rows = [_attempt_cells(attempt, run.tag) for run in runs for attempt in (run.attempts or (None,))]
        table(["TAG", "TRY", "JOB", "OUTCOME", "SCORE", "ELAPSED", "ENDED", "NOTE"], rows, styled=3)
    else:
        echo(f"There is no run yet below {ctx.ledger.root}; a run is a directory with a job.sh.")
    if away is not None:  # what is on disk was shown; that the rest is not known is an error all the same
        raise away
    return 0


def _describe_run(run: RunView) -> None:
    if not run.attempts:
        echo(f"{run.tag} has no attempt yet; gpuq submit {run.tag}")
    for attempt in run.attempts:
        _describe(attempt)


def _attempt_cells(attempt: AttemptView | None, tag: str) -> list[str]:
    if attempt is None:
        return [tag, "", "", "", "", "", "", "never submitted"]
    return [
        tag,
        str(attempt.attempt),
        "" if attempt.job_id is None else str(attempt.job_id),
        attempt.outcome or attempt.state,
        "" if attempt.score is None else f"{attempt.score:g}",
        _elapsed(attempt),
        _clock(attempt.end),
        "; ".join(attempt.notes) or attempt.reason_words,
    ]


def _describe(attempt: AttemptView) -> None:
    head = f"{attempt.tag} attempt {attempt.attempt}"
    if attempt.job_id is not None:
        head += f" (job {attempt.job_id})"
    words = [state(attempt.outcome or attempt.state)]
    words += [note for note in (attempt.reason_words, *attempt.notes) if note]
    echo(f"{head}: {'; '.join(words)}")
    facts = [
        ("score", "" if attempt.score is None else f"{attempt.score:g}"),
        ("started", _clock(attempt.start) if attempt.outcome or attempt.state != "PENDING" else ""),
        ("ended", _clock(attempt.end)),
        ("elapsed", _elapsed(attempt)),
        (
            "asked",
            f"{'1 GPU' if attempt.gpu else 'no GPU'}, {attempt.cpus} CPU{'s' if attempt.cpus != 1 else ''}, "
            + format_size(attempt.memory)
            + (f", {format_duration(attempt.time_limit)}" if attempt.time_limit else ""),
        ),
        ("after", ", ".join(attempt.dependencies)),
        ("commit", (attempt.git_commit or "")[:12] + (" (dirty)" if attempt.git_dirty else "")),
        ("log", attempt.log),
        ("left", attempt.left),
    ]
    for name, value in facts:
        if value:
            echo(f"  {name:<8} {value}")


def _elapsed(attempt: AttemptView) -> str:
    """Empty for what waits: it has not begun."""
    waits = attempt.outcome is None and attempt.state == "PENDING" and not attempt.elapsed
    return "" if attempt.elapsed is None or waits else format_duration(attempt.elapsed)


def _soon(moment: datetime.datetime) -> str:
    """The time of a day; with the day where that is another one."""
    local = moment.astimezone()
    today = local.date() == type(local).now(local.tzinfo).date()
    return local.strftime("%H:%M" if today else "%Y-%m-%d %H:%M")


def _clock(moment: datetime.datetime | None) -> str:
    return "" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
