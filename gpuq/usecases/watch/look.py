"""What the watcher looks at: the queue, the nodes, the host. Each look is counted, and one that failed is no answer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from gpuq.core.attempt import read_comment
from gpuq.core.job import Job, JobEnd, Phase
from gpuq.core.usage import NodeUsage
from gpuq.core.watch.facts import Answers, Snapshot, State, Watched
from gpuq.core.watch.rows import legible
from gpuq.core.watch.rules import Disk
from gpuq.core.watch.step import unsure
from gpuq.errors import GpuqError, SlurmUnreachable
from gpuq.usecases.context import Context
from gpuq.usecases.watch.endings import attempt_of

T = TypeVar("T")


class Look:
    """Questions to Slurm and to the host. `unanswered` counts those on end that Slurm left without an answer."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.jobcomp: Path | None = None
        """The job completion file; None: this Slurm has none, or has not said so yet."""
        self.configured = False
        """Slurm has said which."""
        self.rpcs = 0
        self.unanswered = 0
        self.why = ""
        self.cost = 0.0
        """Seconds that the last snapshot took."""

    def _ask(self, question: Callable[[], T]) -> T | None:
        self.rpcs += 1
        try:
            answer = question()
        except GpuqError as error:
            self.unanswered += 1
            self.why = error.message
            return None
        self.unanswered = 0
        self.why = ""
        return answer

    def find_jobcomp(self) -> None:
        """Ask once where the job completion file is."""
        if self.configured:
            return
        values = self._ask(self._ctx.slurm.config)
        if values is None:
            return
        self.configured = True
        if values.get("JobCompType") == "jobcomp/filetxt":
            path = values.get("JobCompLoc", "")
            # slurm.conf(5), JobCompLoc: the default of jobcomp/filetxt
            self.jobcomp = Path(path if path.startswith("/") else "/var/log/slurm_jobcomp.log")

    def readable(self) -> bool:
        """Whether the job completion file is there for us: it is root's or slurm's."""
        return self.jobcomp is not None and os.access(self.jobcomp, os.R_OK)

    def snapshot(self, state: State, *, ended: bool) -> Snapshot | None:
        """The user's queue, in one question (and one for each job that was requeued without gpuq's mark)."""
        started = time.monotonic()
        jobs = self._ask(lambda: self._ctx.slurm.jobs(uid=self._ctx.caller.uid, ended=ended))
        if jobs is None:
            return None
        rows = tuple(legible(row) for row in jobs)
        restarted: frozenset[int] = frozenset()
        if numbers := unsure(state, rows):
            found = self._ask(lambda: self._ctx.slurm.allocations(sorted(numbers)))
            if found is None:
                return None
            restarted = frozenset(number for number, one in found.items() if one.restarts > 0)
        self.cost = time.monotonic() - started
        return Snapshot(
            serial=state.serial + 1,
            at=self._ctx.clock.now().timestamp(),
            jobs=rows,
            ended=ended,
            restarted=restarted,
        )

    def nodes(self) -> tuple[NodeUsage, ...] | None:
        """All nodes."""
        found = self._ask(self._ctx.slurm.usage)
        return None if found is None else tuple(found)

    def answers(self, asked: Mapping[str, Watched]) -> Answers:
        """What became of jobs that are missing in the queue. One of which Slurm says that it goes on is left out."""
        ends: dict[str, JobEnd | None] = {}
        for key, watched in asked.items():
            try:
                known, end = self._fate(watched)
            except SlurmUnreachable:
                break  # each question to one that hangs takes half a minute; all are asked again after the next snapshot
            except GpuqError:
                continue  # not known: it is asked for again after the next snapshot
            if known:
                ends[key] = end
        return Answers(at=self._ctx.clock.now().timestamp(), ends=ends)

    def _fate(self, watched: Watched) -> tuple[bool, JobEnd | None]:
        self.rpcs += 1
        row = self._ctx.slurm.job(watched.number, part=watched.id if "_" in watched.id else "")
        if row is not None and _same(watched, legible(row)):
            return (True, self._ctx.slurm.end_of(row)) if row.phase is Phase.ENDED else (False, None)
        # the completion file has been followed: had it a line about this job, it would not be missing
        found = attempt_of(self._ctx, watched.workdir, watched.name, watched.number, (watched.submit,), watched.comment)
        if found is not None and found[1].ended is not None and found[1].ended.state:
            ended = found[1].ended
            return True, JobEnd(
                state=ended.state,
                reason=ended.reason,
                exit_code=ended.exit_code,
                signal=ended.signal,
                start=ended.start,
                end=ended.end,
                restarts=ended.restarts,
                source="record",
            )
        return True, None

    def dead(self, rows: Sequence[Job], *, silent: float) -> tuple[dict[str, str] | None, frozenset[str]]:
        """Sentences about running jobs that look dead, by id (None: nothing is known), and the ids of those of which
        it cannot be told now. silent: seconds without a word in the log."""
        from gpuq.usecases import alive  # psutil and NVML: only where a job runs

        running = [row for row in rows if row.state == "RUNNING" and row.elapsed >= alive.GRACE]
        found: dict[str, str] = {}
        unsure: set[str] = set()
        if not running:
            return found, frozenset()
        try:
            host = alive.look_at_host(self._ctx)
            for row in running:
                dead = alive.looks_dead(self._ctx, row, host)
                text = dead or self._stuck(row, silent)
                if text:
                    found[row.id] = text
                elif dead is None:
                    unsure.add(row.id)
        except (GpuqError, OSError):
            return None, frozenset()
        return found, frozenset(unsure)

    def _stuck(self, row: Job, silence: float) -> str:
        from gpuq.usecases import alive

        if row.elapsed < silence or not row.has_gpu or row.submit is None:
            return ""
        found = attempt_of(self._ctx, row.workdir, row.name, row.number, (int(row.submit.timestamp()),), row.comment)
        if found is None:
            return ""
        try:
            silent = self._ctx.clock.now().timestamp() - os.stat(found[1].log).st_mtime  # noqa: PTH116 - may be any text
        except OSError:
            return ""
        if silent < silence:
            return ""
        from gpuq.adapters import gpu as nvml  # the driver is asked only when the log is silent

        return alive.looks_stuck(found[0], row, nvml.read(), silence=silence)

    def disks(self, places: Sequence[Path]) -> tuple[Disk, ...]:
        """The file systems of these directories, each once. Those that cannot be asked are left out."""
        found = []
        seen = set()
        for place in places:
            try:
                device = place.stat().st_dev
                facts = os.statvfs(place)
            except OSError:
                continue
            if device not in seen:
                seen.add(device)
                # f_bavail: what is left for others than root
                free, total = facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize
                found.append(Disk(place=str(place), free=free, total=total))
        return tuple(found)


def _same(watched: Watched, row: Job) -> bool:
    if row.submit is None:
        return False
    mark = read_comment(watched.comment) if watched.comment else None
    if mark is not None:
        return read_comment(row.comment) == mark
    return int(row.submit.timestamp()) == watched.submit
