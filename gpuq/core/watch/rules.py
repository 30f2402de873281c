"""What keeps the GPU idle, or will: problems as data. A row has an id, how long it must last, and what finds it.

A rule is given a `View` and returns the problems that it sees in it, or None where the view does not hold what it needs (a
query failed): then nothing is concluded, neither that a problem began nor that one is over.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpuq.core.event import Problem
from gpuq.core.job import Job, Phase
from gpuq.core.memory.sizing import option, round_up
from gpuq.core.reason import never_cures, reason_words
from gpuq.core.units import format_duration, format_size
from gpuq.core.usage import NodeUsage
from gpuq.core.waits.chain import follow, is_dead

COMPLETING = 300.0
"""Seconds in COMPLETING after which it is one (Slurm's own UnkillableStepTimeout is 60)."""
AWAY = 3
"""Questions on end that the controller left without an answer."""
_ORDINARY = frozenset({"", "None", "Priority", "Resources", "ReqNodeNotAvail"})


class Ended(msgspec.Struct, frozen=True):
    """What the rules need of a job that ended."""

    id: str
    name: str
    outcome: str
    elapsed: int | None


class Disk(msgspec.Struct, frozen=True):
    """A file system, by the directory in it that matters. Bytes."""

    place: str
    free: int
    total: int


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen at one moment. None: not known."""

    rows: tuple[Job, ...] | None = None
    """The user's jobs that have not ended."""
    nodes: tuple[NodeUsage, ...] | None = None
    unanswered: int = 0
    """Questions on end without an answer."""
    unanswered_why: str = ""
    ended: tuple[Ended, ...] = ()
    """The last endings, the latest last."""
    fast_failures: int = 3
    """How many fast failures in a row are a problem (what waits will probably go the same way); 0: none is."""
    fast_seconds: float = 60.0
    """A job that fails within them did not get to its work."""
    holds: bool = False
    """What waits is held after fast failures."""
    near: dict[str, tuple[int, int]] | None = None
    """Running jobs that are near their memory limit: what each holds and its limit in bytes, by job id."""
    dead: dict[str, str] | None = None
    """Sentences about running jobs that look dead, by job id."""
    unsure: frozenset[str] = frozenset()
    """Ids of running jobs of which it could not be told now whether they are dead: what was seen before holds."""
    disks: tuple[Disk, ...] | None = None
    disk_free: float = 0.05
    full: frozenset[str] = frozenset()
    """The places that count as nearly full now: they need a bit more before they do not."""


class Rule(msgspec.Struct, frozen=True):
    """One row."""

    id: str
    after: float
    """Seconds that it must last before it is told, and be gone before it is over: what changes at every job is no news."""
    find: Callable[[View], list[Problem] | None]
    unsure: Callable[[View], frozenset[str]] = lambda _: frozenset()
    """Subjects of which the view does not tell: a problem of theirs has neither begun nor is it over."""


def _never_dependency(view: View) -> list[Problem] | None:
    if view.rows is None:
        return None
    found = []
    for job in view.rows:
        if job.phase is Phase.WAITING and job.dependency:
            never = job.reason.startswith("DependencyNeverSatisfied")
            if never or is_dead(job, follow(job, view.rows)):
                found.append(
                    _of(
                        "dependency-never",
                        job,
                        "will never run: what it depends on did not succeed",
                        f"gpuq why {job.number}; to give it up: gpuq cancel {job.number}",
                    )
                )
    return found


def _never_starts(view: View) -> list[Problem] | None:
    if view.rows is None:
        return None
    found = []
    for job in view.rows:
        if job.phase is not Phase.WAITING or job.reason.startswith("DependencyNeverSatisfied"):
            continue
        if job.reason.startswith("launch failed requeued held") or job.state in {"REQUEUE_HOLD", "SPECIAL_EXIT"}:
            text = "is held: Slurm could not start it and put it back"
            found.append(_of("launch-failed", job, text, f"look into slurmd's log, then: gpuq release {job.number}"))
        elif job.reason == "JobHeldAdmin":
            found.append(
                _of("held-by-admin", job, "is held by the administrator", f"ask for: scontrol release {job.number}")
            )
        elif never_cures(job.reason) or job.reason in {"InvalidAccount", "InvalidQOS"}:
            words = reason_words(job.reason)
            text = words if words.startswith("will never run") else f"will never run: {words}"
            found.append(_of("never-starts", job, text, f"gpuq why {job.number}"))
    return found


def _nodes(view: View) -> list[Problem] | None:
    if view.nodes is None:
        return None
    found = []
    for node in view.nodes:
        if node.usable:
            continue
        why = node.reason or ("its slurmd does not answer" if node.silent else "Slurm gives no reason")
        found.append(
            Problem(
                rule="node-unusable",
                subject=f"node {node.name}",
                text=f"node {node.name} is {node.state}: {why}; nothing starts there",
                advice="systemctl restart slurmd (on the node); gpuq doctor"
                if node.silent
                else f"gpuq doctor; when it is mended, as root: scontrol update NodeName={node.name} State=RESUME",
            )
        )
    return found


def _controller(view: View) -> list[Problem] | None:
    if view.unanswered == 0:
        return []
    if view.unanswered < AWAY:
        return None
    return [
        Problem(
            rule="controller-away",
            subject="the Slurm controller",
            text=f"the Slurm controller does not answer: {view.unanswered_why or 'no answer'}; what runs goes on",
            advice="scontrol ping; systemctl status slurmctld (or: gpuq local status)",
        )
    ]


def _idle(view: View) -> list[Problem] | None:
    waiting = _could_run(view)
    if waiting is None or view.nodes is None:
        return None
    if not waiting or not _gpu_free(view.nodes, view.rows or ()):
        return []
    first = waiting[0]
    count = f"{len(waiting)} jobs wait for it" if len(waiting) > 1 else f"job {first.id} ({first.name}) waits for it"
    return [
        Problem(
            rule="gpu-idle",
            subject="the GPU",
            text=f"the GPU is idle while {count}; Slurm says {first.reason or 'nothing'}",
            advice=f"gpuq why {first.number}; gpuq doctor",
        )
    ]


def _held(view: View) -> list[Problem] | None:
    could = _could_run(view)
    if could is None or view.nodes is None or view.rows is None:
        return None
    held = [job for job in view.rows if job.phase is Phase.WAITING and job.reason == "JobHeldUser" and job.has_gpu]
    if not held or could or not _gpu_free(view.nodes, view.rows):
        return []
    first = held[0]
    rest = f" and {len(held) - 1} more" if len(held) > 1 else ""
    return [
        Problem(
            rule="gpu-idle-held",
            subject="the GPU",
            text=f"the GPU is idle and all that waits is held: job {first.id} ({first.name}){rest}",
            advice=f"gpuq release {first.number}",
        )
    ]


def _dead(view: View) -> list[Problem] | None:
    if view.dead is None:
        return None
    return [
        Problem(
            rule="job-dead",
            subject=_named(view, job),
            text=text,
            advice=f"gpuq gpu; gpuq log {job.split('_')[0]} --tail 20; to give it up: "
            + (f"gpuq cancel {job}" if job.isdecimal() else f"scancel {job}"),  # the others of an array go on
        )
        for job, text in view.dead.items()
    ]


def _unsure(view: View) -> frozenset[str]:
    return frozenset(_named(view, job) for job in view.unsure)


def _named(view: View, job: str) -> str:
    name = next((row.name for row in view.rows or () if row.id == job), "")
    return f"job {job} {name}".strip()


def _completing(view: View) -> list[Problem] | None:
    if view.rows is None:
        return None
    return [
        _of(
            "completing",
            job,
            f"has been COMPLETING for more than {format_duration(COMPLETING)}: its processes do not end, "
            "and the GPU is not given to the next",
            f"on {job.node or 'its node'}: ps -o pid,stat,cmd -p $(scontrol listpids {job.number} | awk 'NR>1{{print $1}}')",
        )
        for job in view.rows
        if job.phase is Phase.ENDING
    ]


def _failures(view: View) -> list[Problem] | None:
    count = view.fast_failures
    if not count:
        return []
    if view.rows is None:  # what waits cannot be held now
        return None
    fast = [
        one
        for one in view.ended[-count:]
        if one.outcome == "FAILED" and one.elapsed is not None and one.elapsed < view.fast_seconds
    ]
    if len(fast) < count:
        return []
    names = ", ".join(f"{one.name} ({one.id})" for one in fast)
    waiting = [job for job in view.rows if job.phase is Phase.WAITING]
    rest = "; what waits is held" if view.holds and waiting else f"; {len(waiting)} more wait" if waiting else ""
    return [
        Problem(
            rule="fast-failures",
            subject="the last jobs",
            text=f"{count} jobs in a row failed within {format_duration(view.fast_seconds)}: {names}{rest}",
            advice=f"gpuq why {fast[-1].id}" + ("; then: gpuq release JOB" if view.holds and waiting else ""),
        )
    ]


def _memory(view: View) -> list[Problem] | None:
    if view.near is None or view.rows is None:
        return None
    running = {job.id: job for job in view.rows if job.phase is Phase.RUNNING}
    return [
        _of(
            "memory-near",
            running[id_],
            f"holds {format_size(held)} of its {format_size(limit)} of memory ({held / limit:.0%}), cache not counted: "
            "it is killed when it needs more",
            f"gpuq mem {id_}; more for its next attempt: --mem {option(round_up(int(limit * 1.25)))}",
        )
        for id_, (held, limit) in view.near.items()
        if id_ in running
    ]


def _disks(view: View) -> list[Problem] | None:
    if view.disks is None:
        return None
    return [
        Problem(
            rule="disk-full",
            subject=f"disk of {disk.place}",
            text=f"the disk of {disk.place} is nearly full: {format_size(disk.free)} of {format_size(disk.total)} free",
            advice=f"df -h {disk.place}; du -xhd2 {disk.place} | sort -h | tail",
        )
        for disk in view.disks
        if disk.total and disk.free < disk.total * view.disk_free * (1.2 if disk.place in view.full else 1.0)
    ]


def _of(rule: str, job: Job, text: str, advice: str) -> Problem:
    return Problem(
        rule=rule, subject=f"job {job.id} {job.name}", text=f"job {job.id} ({job.name}) {text}", advice=advice
    )


def _could_run(view: View) -> list[Job] | None:
    """GPU jobs that wait for nothing but the GPU, by what Slurm says."""
    if view.rows is None:
        return None
    return [
        job
        for job in view.rows
        if job.state == "PENDING"
        and job.has_gpu
        and not job.dependency
        and job.priority != 0
        and job.reason.split(",", 1)[0] in _ORDINARY
    ]


def _gpu_free(nodes: tuple[NodeUsage, ...], rows: tuple[Job, ...]) -> bool:
    """True when no job holds a GPU, and there is one to hold (a node that is down is another problem)."""
    if any(job.has_gpu and job.phase in {Phase.RUNNING, Phase.ENDING} for job in rows):
        return False
    usable = [node for node in nodes if node.gpus and node.usable]
    return bool(usable) and all(node.gpus_used == 0 for node in usable)


RULES: tuple[Rule, ...] = (
    # Slurm cancels by itself, within seconds, what was submitted with --kill-on-invalid-dep
    Rule("dependency-never", 15, _never_dependency),
    # behind other jobs Slurm first says Priority, and PartitionConfig for a moment while a node registers
    Rule("never-starts", 10, _never_starts),
    Rule("node-unusable", 20, _nodes),
    Rule("controller-away", 0, _controller),
    Rule("gpu-idle", 15, _idle),
    Rule("gpu-idle-held", 600, _held),
    Rule("job-dead", 0, _dead, _unsure),
    Rule("completing", COMPLETING, _completing),
    Rule("fast-failures", 0, _failures),
    Rule("memory-near", 0, _memory),
    Rule("disk-full", 0, _disks),
)
"""In the order in which they are told. Kills that were sampled come from the sampler itself."""
