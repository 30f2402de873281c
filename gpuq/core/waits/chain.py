"""A chain of dependencies, followed from a waiting job to its root."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuq.core.dependency import parse_dependency
from gpuq.core.job import Job, Phase

_WAITS = {
    "afterany": "until {job} has ended",
    "afterok": "until {job} has succeeded",
    "afternotok": "until {job} has failed",
    "after": "until {job} has started",
}


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One step towards the root: `child` waits for job `number` in the manner `kind`."""

    depth: int
    kind: str
    child: int
    number: int
    job: Job | None
    """None: slurmctld does not know it (any more)."""
    dead: bool
    """What is waited for has ended in the wrong way, or will: this can never be satisfied."""


def follow(job: Job, rows: Iterable[Job]) -> list[Link]:
    """Every dependency above `job`, nearest first, each branch down to its root.

    `rows`: the queue, with those ended jobs that are still known. A job that cannot run because of its own
    dependency passes that on: who waits for its success never runs either, though Slurm still reads "unfulfilled".
    """
    known: dict[int, Job] = {}
    for row in rows:
        seen = known.get(row.number)
        if seen is None or seen.phase is Phase.ENDED:  # an array has many rows; one that has not ended speaks for it
            known[row.number] = row
    links: list[Link] = []
    _walk(job, known, 1, (job.number,), links)
    return links


def _walk(job: Job, known: dict[int, Job], depth: int, path: tuple[int, ...], links: list[Link]) -> bool:
    """True when `job` can never start for its dependencies."""
    any_of_them = "?" in job.dependency
    verdicts = []
    for kind, number, state in parse_dependency(job.dependency):
        above = known.get(number)
        at = len(links)
        parent_dead = False
        if above is not None and above.phase is Phase.WAITING and above.dependency and number not in path:
            parent_dead = _walk(above, known, depth + 1, (*path, number), links)
        dead = _is_dead(kind, state, above, parent_dead)
        links.insert(at, Link(depth=depth, kind=kind, child=job.number, number=number, job=above, dead=dead))
        verdicts.append(dead)
    if not verdicts:
        return False
    return all(verdicts) if any_of_them else any(verdicts)


def _is_dead(kind: str, state: str, above: Job | None, parent_dead: bool) -> bool:
    if state == "failed":
        return True
    if above is None:
        return False
    if above.phase is Phase.ENDED:
        good = above.state.split(" ", 1)[0] == "COMPLETED"
        return (kind == "afterok" and not good) or (kind == "afternotok" and good)
    return parent_dead and kind in {"afterok", "after"}


def is_dead(job: Job, links: list[Link]) -> bool:
    """True when `job` (of which `links` are the dependencies) can never start."""
    mine = [link.dead for link in links if link.child == job.number and link.depth == 1]
    if "?" in job.dependency:
        return bool(mine) and all(mine)
    return any(mine)


def draw(job: Job, links: list[Link]) -> tuple[str, ...]:
    """The chain for a person, a line each, indented by its distance from `job`."""
    if not links:
        return ()
    lines = [f"job {job.id} ({job.shown}) waits"]
    for link in links:
        target = f"job {link.number}" + (f" ({link.job.shown})" if link.job else "")
        words = _WAITS.get(link.kind, link.kind + " {job}").format(job=target)
        lines.append(f"{'  ' * link.depth}{words}: {_standing(link)}")
    return tuple(lines)


def _standing(link: Link) -> str:
    if link.job is None:
        return "no longer known to Slurm" + (", did not succeed" if link.dead else "")
    if link.job.phase is not Phase.WAITING:
        return link.job.state
    words = link.job.reason or "PENDING"
    return f"waits ({words})" + (", can never run" if link.dead else "")


def roots(links: list[Link]) -> list[Link]:
    """The ends of the branches: dependencies on a job that waits for no other job."""
    with_parent = {link.child for link in links}
    return [link for link in links if link.number not in with_parent]
