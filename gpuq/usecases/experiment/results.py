"""Every run's result in one table: what was changed, what came of it."""

from __future__ import annotations

import datetime

import msgspec

from gpuq.adapters import codestate
from gpuq.core.attempt import Outcome, Record
from gpuq.core.tag import check_tag
from gpuq.errors import LedgerError, NotFound, SlurmUnreachable
from gpuq.usecases.context import Context
from gpuq.usecases.experiment.origin import origin_of
from gpuq.usecases.settle import settle_if_possible, shown_score


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A run's latest successful attempt, or, without one, its latest. Sizes in bytes, durations in seconds, times aware."""

    tag: str
    attempt: int | None
    """None: never submitted."""
    parent: str | None
    change: str | None
    """The one variable that differs from the parent; None: the run was not made by `gpuq new`."""
    edited: bool
    """True where job.sh was edited after `gpuq new` had written it: more may differ than `change`."""
    score: float | None
    outcome: str | None
    """None while it has not ended."""
    elapsed: int | None
    memory_held: int | None
    """What was seen of it; None: nobody looked."""
    memory_asked: int | None
    end: datetime.datetime | None
    git_commit: str | None
    git_dirty: bool | None
    latest: int | None = None
    """The latest attempt, where it is another than the one that is shown."""
    latest_outcome: str | None = None
    """Its outcome; None: it has not ended, or there is no other."""


SORTS = {
    "score": "score",
    "tag": "tag",
    "time": "elapsed",
    "memory": "memory_held",
    "end": "end",
}
"""What results can be sorted by, and the field."""


def results(ctx: Context, below: tuple[str, ...] = (), *, sort: str = "tag", reverse: bool = False) -> list[Result]:
    """The runs (those at or below `below`), sorted; the highest score, the longest time, the latest end first. What has no
    such value comes last. Raises UsageError, NotFound."""
    try:
        settle_if_possible(ctx)
    except SlurmUnreachable as error:
        ctx.say(f"warning: {error.message}; results are shown as they were last known")
    tags = ctx.ledger.tags()
    if below:
        wanted = [_prefix(one) for one in below]
        tags = [tag for tag in tags if any(tag == one or tag.startswith(f"{one}/") for one in wanted)]
        if not tags:
            raise NotFound(f"there is no run at or below {' or '.join(wanted)}", hint="gpuq results")
    found = []
    for tag in tags:
        try:
            found.append(_result(ctx, tag))
        except LedgerError as error:  # of one run; the others are shown all the same
            ctx.say(f"warning: {error.message}")
    field = SORTS[sort]
    known = [one for one in found if getattr(one, field) is not None]
    known.sort(key=lambda one: getattr(one, field), reverse=(sort != "tag") != reverse)
    return known + [one for one in found if getattr(one, field) is None]


def _prefix(text: str) -> str:
    from gpuq.errors import UsageError

    try:
        return check_tag(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _result(ctx: Context, tag: str) -> Result:
    record, latest = _shown(ctx, tag)
    origin = origin_of(ctx, tag)
    edited = False
    if origin is not None:
        try:
            text = ctx.ledger.job_script(tag).read_bytes().decode("utf-8", "surrogateescape")
            edited = codestate.sha256(text) != origin.script_sha256
        except OSError:
            edited = True
    ended = record.ended if record else None
    elapsed = ended.end - ended.start if ended and ended.start and ended.end else None
    return Result(
        tag=tag,
        attempt=record.attempt if record else None,
        parent=origin.parent if origin else None,
        change=origin.words if origin else None,
        edited=edited,
        score=None if record is None else shown_score(ctx, record),
        outcome=ended.outcome.value if ended else None,
        elapsed=None if elapsed is None else int(elapsed.total_seconds()),
        memory_held=record.memory.held if record and record.memory else None,
        memory_asked=record.request.memory if record else None,
        end=ended.end if ended else None,
        git_commit=record.git_commit if record else None,
        git_dirty=record.git_dirty if record else None,
        latest=latest.attempt if latest and latest is not record else None,
        latest_outcome=latest.ended.outcome.value if latest and latest is not record and latest.ended else None,
    )


def _shown(ctx: Context, tag: str) -> tuple[Record | None, Record | None]:
    """The attempt to show, and the latest."""
    latest = None
    for number in reversed(ctx.ledger.attempts(tag)):
        record = ctx.ledger.read(tag, number)
        latest = latest or record
        if record.ended is not None and record.ended.outcome is Outcome.SUCCEEDED:
            return record, latest
    return latest, latest
