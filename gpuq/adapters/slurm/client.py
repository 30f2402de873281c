"""Slurm through its own commands: squeue, sinfo, scontrol, sbatch, scancel."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuq.adapters import proc
from gpuq.adapters.embedded import layout
from gpuq.adapters.slurm import parse
from gpuq.adapters.slurm.ahead import Asked, AskedOffer, AskedQueue, new_mark, queue_format
from gpuq.adapters.slurm.locate import Location, Source, environment_for, stopped
from gpuq.core import batch
from gpuq.core.job import Job, JobEnd, Node, Partition, Phase
from gpuq.core.ports import Accepted, InDoubt, Say
from gpuq.core.tag import LARGEST_ID
from gpuq.errors import ChangeRefused, GpuqError, SlurmAnswerError, SlurmUnreachable, SubmissionRefused

if TYPE_CHECKING:
    from gpuq.core.usage import Allocation, Estimate, NodeUsage

_ONE_BY_ONE = 1000
"""Jobs that squeue is given by number; from then on all of them are cheaper."""

SLOW = 2.0
"""Seconds without an answer after which a person is told what is waited for."""

SUBMIT_TIMEOUT = 90.0
"""Seconds. sbatch itself waits and tries again while the controller is busy."""


class SlurmCommands:
    """The port `gpuq.core.ports.Slurm` over the installed commands of any release from 22.05 on."""

    def __init__(
        self,
        location: Location,
        environment: Mapping[str, str],
        *,
        ahead: Asked | None = None,
        say: Say | None = None,
    ) -> None:
        """ahead: the first question, where it has been asked already. say: hears, once, that an answer is slow."""
        self._location = location
        self._say = say
        self._environment = environment
        self._ahead = ahead

    # -- reading -----------------------------------------------------------------------------------------------

    def jobs(self, *, uid: int | None = None, ended: bool = False) -> list[Job]:
        """See the port."""
        asked, self._ahead = self._ahead, None
        if not isinstance(asked, AskedQueue) or (asked.uid, asked.ended) != (uid, ended):
            self._ahead = asked
            asked = AskedQueue(self._location, self._environment, uid=uid, ended=ended)
        reader = parse.QueueReader(asked.mark)
        result = self._first(asked, reader.feed)
        if not result.ok:
            raise self._failure(result)
        if uid is not None and "Invalid user" in result.stderr:
            # A user id without a name, as in containers: squeue says so, prints no row and exits with 0.
            return [job for job in self.jobs(ended=ended) if job.uid == uid]
        return reader.jobs()

    def job(self, job_id: int, *, part: str = "") -> Job | None:
        """See the port."""
        if not 0 < job_id <= LARGEST_ID:
            return None
        mark = new_mark()
        result = self._run(
            ["squeue", "--noheader", "--all", "--states", "all", "--jobs", part or str(job_id)]
            + ["--format", queue_format(mark)],
        )
        if not result.ok:
            if "Invalid job id" in result.stderr:
                return None
            raise self._failure(result)
        rows = parse.parse_queue(result.stdout, mark)
        # An array and a heterogeneous job have a row for each part: such a job has ended when the last one has, and
        # well only when all have. Asked for one component, squeue shows them all.
        return min((row for row in rows if part in ("", row.id)), key=_says_least, default=None)

    def end_of(self, job: Job) -> JobEnd:
        """See the port."""
        argv = ["squeue", "--noheader", "--all", "--states", "all", "--jobs", str(job.number), "-O"]
        if job.whole:
            return parse.parse_end(job, self._read([*argv, parse.END_FORMAT]).split("\n", 1)[0])
        return parse.parse_end(job, parse.part_of_end(job, self._read([*argv, parse.PART_END_FORMAT])))

    def finished(self, job_id: int, *, uid: int, name: str, since: datetime.datetime, part: str = "") -> JobEnd | None:
        """See the port."""
        from gpuq.adapters.slurm import jobcomp  # rarely needed

        values = self.config()
        if values.get("JobCompType") != "jobcomp/filetxt":
            return None
        path = values.get("JobCompLoc", "")
        if not path.startswith("/"):
            path = "/var/log/slurm_jobcomp.log"  # slurm.conf(5), JobCompLoc: the default of jobcomp/filetxt
        return jobcomp.last_end(Path(path), job_id, uid=uid, name=name, since=since, part=part)

    def cluster(self) -> str:
        """See the port."""
        return self.config().get("ClusterName", "")

    def offer(self) -> tuple[list[Partition], list[Node]]:
        """See the port."""
        asked = self.ask_offer()
        try:
            return asked.answer()
        finally:
            asked.drop()

    def ask_offer(self) -> _Offer:
        """See the port."""
        asked, self._ahead = self._ahead, None
        if not isinstance(asked, AskedOffer):
            self._ahead = asked
            asked = AskedOffer(self._location, self._environment)
        return _Offer(self, asked)

    def usage(self) -> list[NodeUsage]:
        """See the port."""
        from gpuq.adapters.slurm import parse_usage  # as below: only where somebody asks why

        return parse_usage.nodes(self._read(["scontrol", "--all", "--details", "show", "node"]))

    def allocations(self, job_ids: Sequence[int]) -> dict[int, Allocation]:
        """See the port."""
        from gpuq.adapters.slurm import parse_usage

        found = {}
        for job_id in job_ids:
            result = self._run(["scontrol", "--details", "show", "job", str(job_id)])
            if result.ok:
                found[job_id] = parse_usage.allocation(result.stdout)
            elif "Invalid job id" not in result.stderr:
                raise self._failure(result)
        return found

    def gpus(self, job_ids: Sequence[int]) -> dict[str, int]:
        """See the port."""
        from gpuq.adapters.slurm import parse_usage

        return parse_usage.gpus(self._fields(parse_usage.GPUS_FORMAT, job_ids))

    def restarts(self, job_ids: Sequence[int]) -> dict[str, int]:
        """See the port."""
        from gpuq.adapters.slurm import parse_usage

        return parse_usage.restarts(self._fields(parse_usage.RESTARTS_FORMAT, job_ids))

    def _fields(self, fields: str, job_ids: Sequence[int]) -> str:
        argv = ["squeue", "--noheader", "--all", "--states", "all", "-O", fields]
        if len(job_ids) <= _ONE_BY_ONE:
            argv += ["--jobs", ",".join(map(str, job_ids))]
        result = self._run(argv)
        if result.ok:
            return result.stdout
        if "Invalid job id" in result.stderr:  # they have all gone meanwhile
            return ""
        raise self._failure(result)

    def config(self) -> dict[str, str]:
        """See the port."""
        from gpuq.adapters.slurm import parse_usage

        return parse_usage.config(self._read(["scontrol", "show", "config"]))

    def estimate(self, options: Sequence[str]) -> Estimate:
        """See the port."""
        from gpuq.adapters.slurm import parse_usage

        result = self._run(["sbatch", "--test-only", *options, "--wrap=true"])
        refusal = batch.explain(result.stderr)
        if not result.ok and refusal.kind != "refused":
            raise self._unreachable(refusal)
        return parse_usage.estimate(result.ok, result.stderr)

    # -- changing ----------------------------------------------------------------------------------------------

    def submit(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        keep_open: int | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Accepted:
        """See the port."""
        env = dict(environment) | environment_for(self._location)
        try:
            # own session: Ctrl-C reaches gpuq alone, which can say what became of the attempt
            running = proc.start(
                ["sbatch", *argv],
                timeout=SUBMIT_TIMEOUT,
                env=env,
                pass_fds=() if keep_open is None else (keep_open,),
                own_session=True,
            )
            try:
                if meanwhile is not None:
                    meanwhile()
            finally:  # whatever comes of that, sbatch is heard
                result = running.result(slow=(SLOW, self._is_slow))
        except proc.ProgramMissing as error:
            raise self._missing(error) from None
        except proc.ProgramTimeout as error:
            raise InDoubt(str(error)) from None
        except OSError as error:
            raise SubmissionRefused(f"sbatch could not be started: {error.strerror}") from None
        if result.ok:
            found = batch.read_job_id(result.stdout)
            if found is None:
                raise InDoubt(f"sbatch succeeded, but printed no job id: {result.stdout.strip()[:120]!r}")
            return Accepted(*found)
        refusal = batch.explain(result.stderr)
        if result.returncode < 0:
            raise InDoubt(f"sbatch was killed by signal {-result.returncode}")
        if refusal.kind == "doubt":
            raise InDoubt(refusal.message)
        if refusal.kind == "unreachable":
            raise self._unreachable(refusal)
        raise SubmissionRefused(refusal.message, hint=refusal.hint)

    def cancel(self, job_id: int) -> None:
        """See the port."""
        self._change(["scancel", str(job_id)], f"cancel job {job_id}")

    def update(self, job_id: int, changes: Mapping[str, str]) -> None:
        """See the port."""
        words = [f"{key}={value}" for key, value in changes.items()]
        self._change(["scontrol", "update", f"JobId={job_id}", *words], f"change job {job_id}")

    def hold(self, job_id: int) -> None:
        """See the port."""
        # uhold: root's own `hold` would be an administrator's, which is another reason in the queue
        self._change(["scontrol", "uhold", str(job_id)], f"hold job {job_id}")

    def release(self, job_id: int) -> None:
        """See the port."""
        self._change(["scontrol", "release", str(job_id)], f"release job {job_id}")

    def top(self, job_id: int) -> None:
        """See the port."""
        self._change(["scontrol", "top", str(job_id)], f"move job {job_id} to the top")

    # -- the one way out ---------------------------------------------------------------------------------------

    def _answers(self, asked: Asked) -> list[str]:
        """What the commands printed, in their order."""
        if asked.error is not None or not asked.running:
            asked.drop()
            raise self._not_started(asked)
        results = [self._result(running) for running in asked.running]
        for result in results:
            if not result.ok:
                raise self._failure(result)
        return [result.stdout for result in results]

    def _not_started(self, asked: Asked) -> GpuqError:
        if isinstance(asked.error, proc.ProgramMissing):
            return self._missing(asked.error)
        if isinstance(asked.error, OSError):
            return SlurmUnreachable(f"{asked.failed} could not be started: {asked.error.strerror}")
        down = self._down()
        if down is not None:
            return SlurmUnreachable(down[0], hint=down[1])
        return SlurmUnreachable(
            f"there is no Slurm to ask: {self._location.conf} does not exist or cannot be read",
            hint=self._hint("unset SLURM_CONF, or let it name the slurm.conf of a Slurm that runs"),
        )

    def _result(self, running: proc.Running, each: Callable[[str], None] | None = None) -> proc.Result:
        try:
            return running.result(each, slow=(SLOW, self._is_slow))
        except proc.ProgramTimeout as error:
            raise SlurmUnreachable(
                f"Slurm does not answer: {error.argv[0]} gave nothing within {error.seconds:g} s",
                hint=self._hint("scontrol ping"),
            ) from None

    def _run(self, argv: Sequence[str]) -> proc.Result:
        return self._first(Asked([argv], self._location, self._environment))

    def _first(self, asked: Asked, each: Callable[[str], None] | None = None) -> proc.Result:
        if not asked.running:
            raise self._not_started(asked)
        return self._result(asked.running[0], each)

    def _read(self, argv: Sequence[str]) -> str:
        result = self._run(argv)
        if not result.ok:
            raise self._failure(result)
        return result.stdout

    def _failure(self, result: proc.Result) -> GpuqError:
        refusal = batch.explain(result.stderr)
        if refusal.kind == "refused":
            return SlurmAnswerError(f"{result.argv[0]} failed (exit {result.returncode}): {refusal.message}")
        return self._unreachable(refusal)

    def _change(self, argv: Sequence[str], what: str) -> None:
        result = self._run(argv)
        if result.ok:
            return
        refusal = batch.explain(result.stderr)
        if refusal.kind in {"unreachable", "doubt"}:
            error = self._unreachable(refusal)
            if refusal.kind == "doubt":  # the request may have come through
                raise SlurmUnreachable(f"{error.message}; it is not known whether it did {what}", hint=error.hint)
            raise error
        words = batch.slurm_words(result.stderr)
        hint = ""
        if "Access/permission denied" in words or "Invalid user id" in words:
            hint = "only root or a Slurm operator may do this to this job"
        raise ChangeRefused(f"Slurm will not {what}: {words or f'exit {result.returncode}'}", hint=hint)

    def _missing(self, error: proc.ProgramMissing) -> GpuqError:
        return SlurmUnreachable(
            f"{error.program} is not installed, so there is no Slurm here",
            hint="apt-get install slurm-wlm munge, then: gpuq local up",
        )

    def _is_slow(self) -> None:
        say, self._say = self._say, None
        if say is not None:
            say("note: waiting for slurmctld to answer")

    def _down(self) -> tuple[str, str] | None:
        """As `stopped`, of the Slurm that is asked here: no other is configured."""
        if self._location.source is Source.NONE:
            return stopped(layout.conf_path(layout.default_dir()))
        return stopped(self._location.conf) if self._location.conf is not None else None

    def _unreachable(self, refusal: batch.Refusal) -> SlurmUnreachable:
        down = self._down()
        if down is not None:
            return SlurmUnreachable(down[0], hint=down[1])
        return SlurmUnreachable(refusal.message, hint=self._hint(refusal.hint))

    def _hint(self, default: str) -> str:
        if self._location.source is Source.NONE:
            return "no Slurm is configured here; start one for this host: gpuq local up"
        if self._location.embedded:
            directory = self._location.conf.parent if self._location.conf else ""
            return f"start the embedded Slurm again: gpuq local up --dir {directory}"
        return default


class _Offer:
    def __init__(self, slurm: SlurmCommands, asked: Asked) -> None:
        self._slurm = slurm
        self._asked = asked

    def answer(self) -> tuple[list[Partition], list[Node]]:
        """See the port."""
        partitions, nodes = self._slurm._answers(self._asked)
        return parse.parse_partitions(partitions), parse.parse_nodes(nodes)

    def drop(self) -> None:
        """See the port."""
        self._asked.drop()


def _says_least(row: Job) -> int:
    """Of the parts of a job, the one that stands for all of them comes first."""
    order = (Phase.RUNNING, Phase.ENDING, Phase.WAITING, Phase.ENDED)
    return order.index(row.phase) + (row.state == "COMPLETED")
