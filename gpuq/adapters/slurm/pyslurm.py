"""Slurm through PySlurm, for what PySlurm reads rightly; everything else goes through the commands.

The only module that imports pyslurm, and only when `gpuq.adapters.slurm.choose` has made sure that the import is safe:
where libslurm cannot read its configuration, the import ends the process.

PySlurm 25.11 was seen to lose things on the way. Where a job shows that this may have happened, `Unclear` is raised and
squeue is asked instead, so that both backends give the same answer:

- text that is not UTF-8 cannot be read at all (UnicodeDecodeError);
- a GPU type of digits is taken for a count (`gres/gpu:3090:1` reads as 3,090 GPUs), one without a count for nothing;
- `singleton` is dropped from the dependencies;
- of an array or a heterogeneous job `Job.load` gives the first record only;
- 128 is taken off exit codes from 128 on;
- an id that Slurm does not know ends in an attempt that is LOST, so squeue has the last word on it.

`gres`, `gpus`, `tres_per_node` and `tres_per_job` are empty even when a job holds a GPU. `gres_per_node` shows what
squeue's %b does: `--gres=gpu:1`, and nothing for `--gpus=1`.
"""

from __future__ import annotations

import datetime
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from gpuq.adapters import proc
from gpuq.adapters.slurm.ahead import Asked, AskedQueue
from gpuq.adapters.slurm.client import SlurmCommands
from gpuq.adapters.slurm.locate import Location, environment_for
from gpuq.core import batch
from gpuq.core.job import Job, JobEnd, Phase, phase_of
from gpuq.core.ports import Say
from gpuq.core.units import MIB
from gpuq.errors import GpuqError, SlurmAnswerError, SlurmUnreachable

PROBE = "import pyslurm"
"""Python code for a child process: it ends well where the import is safe."""

_INVALID_JOB_ID = 2017
"""ESLURM_INVALID_JOB_ID of slurm_errno.h."""

_OTHER_RELEASE = re.compile(r"Zero Bytes were transmitted|Incompatible versions of client and server")
"""What an RPC comes to when slurmctld is of an older release than libslurm."""

_UNLIMITED = "UNLIMITED"
"""PySlurm's word for Slurm's INFINITE."""

_MOST_GPUS = 99
"""On one node. A count above it is a GPU type that was misread (`gpu:3090`)."""

_KINDS = ("after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer")


class Unclear(Exception):
    """PySlurm does not show this job as squeue would."""


class PySlurm(SlurmCommands):
    """The port `gpuq.core.ports.Slurm`: queue and single jobs through PySlurm, the rest through the commands."""

    def __init__(
        self,
        location: Location,
        environment: Mapping[str, str],
        *,
        ahead: Asked | None = None,
        say: Say | None = None,
    ) -> None:
        if isinstance(ahead, AskedQueue):
            ahead.drop()  # whoever asked did not know that it is here
            ahead = None
        super().__init__(location, environment, ahead=ahead, say=say)
        self._loaded: Any = None
        self._users: dict[int, str] = {}

    def jobs(self, *, uid: int | None = None, ended: bool = False) -> list[Job]:
        """See the port."""
        library = self._library()
        try:
            return [
                to_job(raw, self._users)
                for raw in library.Jobs.load().values()
                if (uid is None or raw.user_id == uid) and (ended or phase_of(raw.state) is not Phase.ENDED)
            ]
        except library.RPCError as error:
            self._judge(error)
        except _MISREAD as error:
            proc.debug(f"PySlurm's queue is not clear ({error}); squeue is asked")
        return super().jobs(uid=uid, ended=ended)

    def job(self, job_id: int, *, part: str = "") -> Job | None:
        """See the port."""
        if part:
            return super().job(job_id, part=part)
        library = self._library()
        try:
            raw = library.Job.load(job_id)
            if raw.array_id is not None or raw.heterogeneous_id is not None:
                raise Unclear("there is more than one record")
            return to_job(raw, self._users)
        except library.RPCError as error:
            self._judge(error)
        except _MISREAD as error:
            proc.debug(f"PySlurm's job {job_id} is not clear ({error}); squeue is asked")
        return super().job(job_id)

    def end_of(self, job: Job) -> JobEnd:
        """See the port."""
        library = self._library()
        try:
            if job.whole:
                raw = library.Job.load(job.number)
                # Any other exit code may be 128 more.
                if raw.state == job.state and (raw.exit_code_signal or job.state == "COMPLETED"):
                    return JobEnd(
                        state=job.state,
                        reason=job.reason,
                        exit_code=raw.exit_code,
                        signal=raw.exit_code_signal,
                        start=job.start,
                        end=job.end,
                        restarts=raw.requeue_count,
                        node=job.node,
                    )
        except library.RPCError as error:
            self._judge(error)
        except _MISREAD as error:
            proc.debug(f"the end of PySlurm's job {job.id} is not clear ({error}); squeue is asked")
        return super().end_of(job)

    def _judge(self, error: Any) -> None:
        """Raise what a failed call of PySlurm means; return when squeue may know better."""
        words = str(error)
        if getattr(error, "errno", None) == _INVALID_JOB_ID or _OTHER_RELEASE.search(words):
            proc.debug(f"PySlurm: {words}; squeue is asked")
            return
        raise self._rpc_failure(words) from None

    def _rpc_failure(self, words: str) -> GpuqError:
        refusal = batch.explain(words)
        if refusal.kind == "refused":
            return SlurmAnswerError(f"PySlurm failed: {refusal.message}")
        return SlurmUnreachable(refusal.message, hint=self._hint(refusal.hint))

    def _library(self) -> Any:
        if self._loaded is None:
            # libslurm looks there, and nowhere else, and only once
            os.environ.update(environment_for(self._location))
            flags = sys.getdlopenflags()
            try:
                import pyslurm
            finally:
                sys.setdlopenflags(flags)  # PySlurm changes them for every module that is imported later
            self._loaded = pyslurm
        return self._loaded


_MISREAD = (Unclear, ValueError, TypeError, AttributeError, OverflowError)
"""What reading a job through PySlurm can come to; UnicodeDecodeError is a ValueError."""


def to_job(raw: Any, users: dict[int, str]) -> Job:
    """A `pyslurm.Job` as squeue shows it. `users`: names that are known by now, kept up here.

    Raises Unclear, ValueError, TypeError or AttributeError when squeue has to be asked.
    """
    state = raw.state
    phase_of(state)
    uid = raw.user_id
    if uid not in users:
        users[uid] = raw.user_name or str(uid)
    shown, number = _ids(raw)
    reason = raw.state_reason
    return Job(
        id=shown,
        number=number,
        name=raw.name or "",
        state=state,
        reason="" if reason in {None, "None"} else reason,
        partition=raw.partition or "",
        user=users[uid],
        uid=uid,
        submit=_time(raw.submit_time),
        start=_time(raw.start_time),
        end=_time(raw.end_time),
        time_limit=None if raw.time_limit is None else raw.time_limit * 60,
        elapsed=_elapsed(raw.run_time),
        dependency=_dependency(raw.dependencies),
        gres=_gres(raw),
        memory=_memory(raw.memory_per_cpu, raw.memory_per_node),
        cpus=raw.cpus,
        nice=raw.nice or 0,
        priority=2**32 - 1 if raw.priority == _UNLIMITED else raw.priority,
        node=raw.allocated_nodes or "",
        comment=raw.comment or "",
        workdir=raw.working_directory or "",
    )


def _ids(raw: Any) -> tuple[str, int]:
    """The id as squeue shows it (%i), and the one that scancel takes (%F)."""
    array = raw.array_id
    if array is not None:
        waiting = raw.array_tasks_waiting
        if waiting:
            at_once = raw.array_tasks_parallel
            return f"{array}_[{waiting}{f'%{at_once}' if at_once else ''}]", array
        return f"{array}_{raw.array_task_id or 0}", array  # task 0 reads as None
    together = raw.heterogeneous_id
    if together is not None:
        return f"{together}+{raw.heterogeneous_offset or 0}", together
    return str(raw.id), raw.id


def _time(seconds: int | None) -> datetime.datetime | None:
    return None if seconds is None else datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _elapsed(seconds: int | None) -> int:
    # A start in the future (two clocks) is a negative time, which PySlurm takes for a huge one.
    return 0 if seconds is None or seconds >= 2**31 else seconds


def _memory(per_cpu: object, per_node: object) -> int | None:
    for megabytes in (per_cpu, per_node):
        if isinstance(megabytes, int):
            return megabytes * MIB
    return None


def _dependency(found: Mapping[str, Any] | None) -> str:
    """PySlurm's dictionary in squeue's words: `afterok:6(unfulfilled),afterany:7(unfulfilled)`."""
    if found is None:
        return ""
    parts = [f"{kind}:{job}" for kind in _KINDS for job in found[kind]]
    if found["singleton"]:
        parts.append("singleton")
    if not parts:
        raise Unclear("a dependency that is not shown")
    return ("?" if found["satisfy"] == "any" else ",").join(parts)


def _gres(raw: Any) -> str:
    found: Mapping[str, Any] = raw.gres_per_node
    if any(not isinstance(count, int) or count > _MOST_GPUS for count in found.values()):
        raise Unclear(f"GRES that may be misread: {dict(found)}")
    if not found and re.search(r"--(?:gres|gpus-per-node)\b", raw.submit_line or ""):
        raise Unclear("GRES that was asked for, but is not shown")
    return ",".join(f"{name}:{count}" for name, count in found.items())
