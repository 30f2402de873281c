"""Whether one job is left, or none: held back while one that was killed for memory is about to be tried again."""

from __future__ import annotations

from gpuq.core.event import Kind
from gpuq.usecases.watch.state import Memory

_KINDS = {0: Kind.QUEUE_EMPTY, 1: Kind.ONE_LEFT}


def is_retry_due(work: Memory) -> bool:
    """An attempt that is promised has not been made, nor refused for good."""
    return any(one.retry for one in work.unsettled.values())


def left_to_tell(work: Memory, few: int | None, *, looked: bool) -> Kind | None:
    """What is to be told of how many are left; None: nothing now. few: their number, where it has just fallen to one or
    none. looked: the queue has been looked at since, so that `work.state.left` counts.

    A retry may be refused in the end, and then the queue has been that short all the time: what was held back is told
    at the first look after the last retry was made or refused, if no more jobs are left than were.
    """
    if few is not None:
        work.held_back = few
    if work.held_back is None or not looked or is_retry_due(work):
        return None
    if any(job.missing for job in work.state.jobs.values()):
        return None  # it may be over, or not: the next look knows
    most, work.held_back = work.held_back, None
    return _KINDS[work.state.left] if work.state.left <= most else None
