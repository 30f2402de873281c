"""A job's memory, now or as it was; what to ask for; what fits beside it."""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpuq.adapters.cgroup import locate, read
from gpuq.adapters.store.db import FILE, open_store, state_dir
from gpuq.adapters.store.samples import SampleStore
from gpuq.core.attempt import Ended, Record, Request
from gpuq.core.fit import CPU, choose_partition, most_memory, share_of
from gpuq.core.job import Job, Node, Partition, Phase
from gpuq.core.memory import sizing
from gpuq.core.memory.looks import SETTLES, Reading, Sample, Tally
from gpuq.core.memory.sizing import Advice, Beside
from gpuq.core.memory.values import MemorySummary, summary_path
from gpuq.core.tag import is_job_id
from gpuq.core.units import MIB, format_size
from gpuq.errors import ChangeRefused, NotFound, SubmissionRefused
from gpuq.usecases.context import Context
from gpuq.usecases.memory.ended import better, load
from gpuq.usecases.memory.sample import HOST, Finder, Roots, key_of
from gpuq.usecases.refs import Target, record_of, require_run, resolve
from gpuq.usecases.settle import settle_if_possible

WATCH = "gpuq watch keeps what is seen of every job; on another host than the job's, gpuq run -- CMD in job.sh does"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one attempt or job. Sizes in bytes; None: not told."""

    tag: str
    attempt: int | None
    job_id: int | None
    job: str = ""
    """The job's id as Slurm shows it: `12`, `12_3`."""
    state: str
    """Slurm's state, or the outcome of what has ended."""
    running: bool
    waiting: bool = False
    """It has not started yet."""
    asked: int | None
    now: Reading | None = None
    """A look at this moment; None: it does not run, or not on this host."""
    held: int | None = None
    cache: int | None = None
    processes: int | None = None
    host_available: int | None = None
    summary: MemorySummary | None = None
    """What was seen until now, or until its end; None: nobody looked."""
    watched: bool = False
    """Somebody keeps what is seen."""
    notes: tuple[str, ...] = ()
    advice: str = ""


def view(ctx: Context, ref: str, *, roots: Roots = HOST) -> View:
    """The memory of what `ref` means: an attempt that has ended or waits, or a job that runs.

    Raises UsageError, NotFound, and what Slurm raises.
    """
    settle_if_possible(ctx)
    return view_of(ctx, resolve(ctx, ref), roots, Finder(ctx, roots))


def views(ctx: Context, *, roots: Roots = HOST) -> list[View]:
    """The memory of each of the caller's jobs that run. Raises what Slurm raises."""
    jobs = [job for job in ctx.slurm.jobs(uid=ctx.caller.uid) if job.phase is Phase.RUNNING]
    finder = Finder(ctx, roots)
    return [view_of(ctx, Target(job.id, record_of(ctx, job), job), roots, finder) for job in jobs]


def view_of(ctx: Context, target: Target, roots: Roots, finder: Finder, followed: MemorySummary | None = None) -> View:
    """The memory of a target whose row and record are known. followed: what the caller has seen of it until now."""
    record, job = target.record, target.job
    running = job is not None and job.phase in {Phase.RUNNING, Phase.ENDING}
    now, processes = None, None
    if job is not None and running:
        place = finder.find(job)
        if place is not None:
            now = _settled(ctx, place)
            processes = len(read.processes(place)) if now is not None else None
    kept, watched = _kept(ctx, record, job)
    summary = better(record.memory if record is not None else None, kept)
    if record is not None and record.log and (own := load(Path(summary_path(record.log)))) is not None:
        summary = better(summary, own)
        watched = watched or running  # gpuq run does
    if not running:
        summary = better(summary, followed)
    ended = record.ended if record is not None else None
    return View(
        tag=record.tag if record is not None else job.name if job is not None else target.text,
        attempt=record.attempt if record is not None else None,
        job_id=record.job_id if record is not None else job.number if job is not None else None,
        job=job.id if job is not None else "" if record is None or record.job_id is None else str(record.job_id),
        state=ended.outcome.value if ended is not None else job.state if job is not None else "UNKNOWN",
        running=running,
        waiting=job is not None and job.phase is Phase.WAITING,
        asked=record.request.memory if record is not None else job.memory if job is not None else None,
        now=now,
        held=None if now is None or now.held is None else now.held + now.untold,
        cache=now.cache if now is not None else None,
        processes=processes,
        host_available=read.available(roots.proc) if now is not None else None,
        summary=summary,
        watched=watched,
        notes=(*_notes(now, summary, job, running, watched, ended), *(ended.notes if ended is not None else ())),
        advice=_advice(record, summary, _until(ctx, record)),
    )


def _settled(ctx: Context, place: locate.Place) -> Reading | None:
    """A look; another one while the kernel has not told apart what is used, at most SETTLES seconds long."""
    deadline = ctx.clock.monotonic() + SETTLES
    while True:
        now = read.read(place)
        if now is None or not now.untold or ctx.clock.monotonic() >= deadline:
            return now
        ctx.clock.sleep(0.1)


def _notes(
    now: Reading | None,
    summary: MemorySummary | None,
    job: Job | None,
    running: bool,
    watched: bool,
    ended: Ended | None,
) -> Iterator[str]:
    if running and now is None:
        if job is not None and job.phase is Phase.ENDING:
            yield "it is ending, and its cgroup is gone"
            return
        node = f" ({job.node})" if job is not None and job.node else ""
        yield f"its cgroup is not on this host{node}, or Slurm confines no memory here: nothing can be seen of it"
    if running and now is not None and now.peak is None:
        yield "this kernel keeps no peak of a cgroup (Linux 5.19 does): what was seen is approximate"
    if now is not None and now.untold:
        yield f"{format_size(now.untold)} of its usage the kernel does not tell apart: taken for held"
    if running and not watched:
        yield f"nobody keeps what is seen of it: {WATCH}"
    if not running and summary is None and (job is None or job.phase is Phase.ENDED):
        if ended is not None and any("killed for memory" in note for note in ended.notes):
            yield f"nobody looked at its memory before it was killed: {WATCH}"
        elif ended is not None and (ended.start is None or ended.start == ended.end):
            yield "it did not run, or for less than a second: there was nothing to look at"
        else:
            yield f"nobody looked at its memory while it ran: {WATCH}"
    if summary is not None and summary.peak is None and not running:
        yield "its kernel kept no peak of a cgroup: the highest that was seen is approximate"
    killed = max((now.oom_kill or 0) if now is not None else 0, (summary.oom_kill or 0) if summary is not None else 0)
    if killed and ended is not None and any("killed for memory" in note for note in ended.notes):
        return  # the record says it
    if killed:
        yield f"{killed} of its processes {'was' if killed == 1 else 'were'} killed for memory; output may be incomplete"
    elif summary is not None and summary.at_limit:
        slow = sizing.slowed(summary)
        yield (
            f"its usage reached the limit: {slow}"
            if slow
            else (
                "its usage reached the limit without a process being killed: page cache under reclaim, no need for more"
            )
        )


def _advice(record: Record | None, summary: MemorySummary | None, before: list[Record]) -> str:
    """before: the run's attempts up to this one."""
    if record is None or record.ended is None:
        return ""
    counted = summary.oom_kill if summary is not None else 0
    if counted or sizing.killed_at([record]):
        limit = max((summary.limit if summary is not None else None) or record.request.memory, sizing.killed_at(before))
        more = sizing.round_up(int(limit * sizing.AFTER_OOM))
        return f"gpuq resubmit {record.tag} --mem {sizing.option(more)}"
    return f"gpuq mem --advise {record.tag}" if summary is not None else ""


def _until(ctx: Context, record: Record | None) -> list[Record]:
    """The attempts of a run up to this one, those that can be read."""
    if record is None or record.ended is None:
        return []
    return [one for one in ctx.ledger.records(record.tag, sound=True) if one.attempt <= record.attempt]


# what was kept ----------------------------------------------------------------------------------------------------


def series(ctx: Context, ref: str) -> list[Sample]:
    """The points that were kept of the attempt or job, oldest first. Raises UsageError, NotFound, what Slurm raises."""
    target = resolve(ctx, ref)
    found: list[Sample] = []
    with _store(ctx) as store:
        for key in _keys(ctx, store, target.record, target.job):
            found += store.series(key) if store is not None else []
    return sorted(found, key=lambda sample: sample.at)


def _kept(ctx: Context, record: Record | None, job: Job | None) -> tuple[MemorySummary | None, bool]:
    """What the watcher has seen, and whether it looks now."""
    summary, newest = None, None
    with _store(ctx) as store:
        for key in _keys(ctx, store, record, job):
            tally = store.tally(key) if store is not None else None
            if isinstance(tally, Tally):
                summary = better(summary, tally.summary())
                newest = tally.until if newest is None or (tally.until and tally.until > newest) else newest
    recent = newest is not None and ctx.clock.now() - newest < datetime.timedelta(seconds=90)
    return summary, recent


def _keys(ctx: Context, store: SampleStore | None, record: Record | None, job: Job | None) -> list[str]:
    if store is None:
        return []
    if record is not None and record.job_id is not None:
        return store.keys(record.job_id, str(ctx.ledger.root), record.tag, record.attempt)
    if job is None:
        return []
    return [key for key in store.keys(job.number) if key == key_of(job)]  # ids come back, and an array has tasks


@contextlib.contextmanager
def _store(ctx: Context) -> Iterator[SampleStore | None]:
    """The watcher's store, where there is one; it is not made for a question."""
    path = state_dir(ctx.environment) / FILE
    if not path.exists():
        yield None
        return
    with contextlib.ExitStack() as stack:
        store = None
        try:
            store = SampleStore(stack.enter_context(contextlib.closing(open_store(path))))
        except (sqlite3.Error, OSError) as error:
            ctx.say(f"warning: {path}: {error}")
        try:
            yield store
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            ctx.say(f"warning: {path}: {error}")


# advice -----------------------------------------------------------------------------------------------------------


class Sized(msgspec.Struct, frozen=True, kw_only=True):
    """The advice for a run."""

    tag: str
    advice: Advice
    asked: int
    """What the latest attempt asked for."""
    node: str = ""
    node_memory: int = 0
    cpus: int = 0
    gpu: bool = True
    share: sizing.Share | None = None
    """What CPU-only jobs are given together, by the partition for them; None: there is none, or it sets no limit."""
    beside: tuple[Beside, ...] = ()
    """With the advised memory."""
    beside_now: tuple[Beside, ...] = ()
    """With what is asked for now."""


def advise(ctx: Context, ref: str) -> Sized:
    """What the next attempt of a run should ask for. ref: its TAG, or the id of a job of it.

    Raises UsageError, NotFound, what Slurm raises.
    """
    if is_job_id(ref):
        target = resolve(ctx, ref, live=False)
        if target.record is None:
            raise NotFound(f"{target.name} was not submitted through gpuq: there are no attempts to go by")
        ref = target.record.tag
    tag = require_run(ctx, ref)
    settle_if_possible(ctx, tag=tag)
    records = ctx.ledger.records(tag, sound=True)
    if not records:
        raise NotFound(f"run {tag} has no attempt yet", hint=f"gpuq submit {tag}")
    advice = sizing.advise(records)
    offer = ctx.slurm.offer() if advice.memory is not None else ([], [])
    return _sized(tag, records[-1].request, advice, *offer)


def advise_all(ctx: Context) -> list[Sized]:
    """The same for every run of whose memory something is known. Raises what Slurm raises."""
    settle_if_possible(ctx)
    found = []
    for tag in ctx.ledger.tags():
        records = ctx.ledger.records(tag, sound=True)
        if records and (advice := sizing.advise(records)).memory is not None:
            found.append((tag, records[-1].request, advice))
    if not found:
        return []
    partitions, nodes = ctx.slurm.offer()
    return [_sized(*one, partitions, nodes) for one in found]


def _sized(tag: str, asks: Request, advice: Advice, partitions: list[Partition], nodes: list[Node]) -> Sized:
    with contextlib.suppress(SubmissionRefused):  # a partition that is gone: the next submission says so
        most = most_memory(choose_partition(asks.partition, partitions), nodes, gpu=asks.gpu)
        advice = _bounded(advice, most)
    sized = Sized(tag=tag, advice=advice, asked=asks.memory, cpus=asks.cpus, gpu=asks.gpu)
    with_gpu = [node for node in nodes if node.gpus]
    if advice.memory is None or not asks.gpu or not with_gpu:
        return sized
    node = max(with_gpu, key=lambda one: one.memory)
    cpu = next((one for one in partitions if one.name == CPU), None)
    share = None
    if cpu is not None and (cpus := share_of(cpu, node)) is not None:
        share = sizing.Share(cpus=cpus, memory_per_cpu=cpu.max_memory_per_cpu)
    return msgspec.structs.replace(
        sized,
        node=node.name,
        node_memory=node.memory,
        share=share,
        beside=tuple(sizing.fits_beside(node.memory, node.cpus, advice.memory, asks.cpus, share)),
        beside_now=tuple(sizing.fits_beside(node.memory, node.cpus, asks.memory, asks.cpus, share)),
    )


def _bounded(advice: Advice, most: int) -> Advice:
    """The advice, at most what a node has. most: bytes; 0: not known."""
    if advice.memory is None or not most or advice.memory <= most:
        return advice
    limit = most // MIB * MIB
    why = f"{format_size(advice.memory)} would be wanted, and no node gives more than {format_size(limit)}"
    return msgspec.structs.replace(advice, memory=limit, because=why, reasons=(*advice.reasons, why))


def auto_size(ctx: Context, tag: str, otherwise: int | None, most: int) -> int | None:
    """`--mem auto` of a submission, in bytes; None, and that is said: too little evidence, as without it.

    otherwise: what would be asked for without it; more than that where an attempt was killed at as much. most: what a node
    has; 0: not known.
    """
    advice = _bounded(sizing.advise(ctx.ledger.records(tag, sound=True)), most)
    if advice.memory is not None and advice.enough:
        ctx.say(f"note: {tag}: --mem auto: {sizing.option(advice.memory)} ({advice.because})")
        return advice.memory
    few = f"note: {tag}: --mem auto: {sizing.too_little(advice)}"
    least = min(advice.least, most or advice.least)
    if otherwise is not None and otherwise < least:
        ctx.say(f"{few}; {sizing.option(least)}, because an attempt was killed at less")
        return least
    ctx.say(f"{few}; as without it")
    return None


def auto_memory(ctx: Context, ref: str) -> int:
    """`gpuq set TAG --mem auto`: bytes. Raises ChangeRefused where there is too little evidence."""
    target = resolve(ctx, ref, live=False)
    if target.record is None:
        raise ChangeRefused(f"{target.name} was not submitted through gpuq: there are no attempts to go by")
    tag, request = target.record.tag, target.record.request
    advice = sizing.advise(ctx.ledger.records(tag, sound=True))
    if advice.memory is None or not advice.enough:
        raise ChangeRefused(f"{tag}: {sizing.too_little(advice)}", hint=f"gpuq mem --advise {tag} --anyway")
    partitions, nodes = ctx.slurm.offer()
    with contextlib.suppress(SubmissionRefused):
        advice = _bounded(advice, most_memory(choose_partition(request.partition, partitions), nodes, gpu=request.gpu))
    assert advice.memory is not None  # noqa: S101 - looked at above
    ctx.say(f"note: {tag}: --mem auto: {sizing.option(advice.memory)} ({advice.because})")
    return advice.memory


def held_words(reading: Reading) -> str:
    """`4.1G (3.9G anon + 0.2G shmem)`."""
    if reading.held is None:
        return "not told"
    parts = " + ".join(
        f"{format_size(size)} {name}"
        for name, size in (("anon", reading.anon), ("shmem", reading.shmem), ("swap", reading.swap))
        if size
    )
    return format_size(reading.held) + (f" ({parts})" if parts else "")
