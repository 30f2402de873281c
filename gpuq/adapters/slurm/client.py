"""Slurm through its own commands: squeue, sinfo, scontrol, sbatch, scancel."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuq.adapters import proc
from gpuq.adapters.slurm import parse
from gpuq.adapters.slurm.locate import Location, Source, environment_for
from gpuq.core import batch
from gpuq.core.job import Job, JobEnd, Node, Partition, Phase
from gpuq.core.ports import Accepted, InDoubt
from gpuq.core.tag import LARGEST_ID
from gpuq.core.usage import Allocation, Estimate, NodeUsage
from gpuq.errors import ChangeRefused, GpuqError, SlurmAnswerError, SlurmUnreachable, SubmissionRefused

READ_TIMEOUT = 30.0
"""Seconds. Slurm's own commands give up after MessageTimeout (10 s) and a few retries."""

SUBMIT_TIMEOUT = 90.0
"""Seconds. sbatch itself waits and tries again while the controller is busy."""


class SlurmCommands:
    """The port `gpuq.core.ports.Slurm` over the installed commands of any release from 22.05 on."""

    def __init__(self, location: Location, environment: Mapping[str, str]) -> None:
        self._location = location
        self._env = batch.scrub(environment) | environment_for(location)
        # Seconds since 1970 know no daylight saving (slurm.conf(5) does not say it: any strftime(3) format works).
        # UTC makes no difference to them, but a third of squeue's time with 10,000 jobs would go into mktime(3).
        self._read_env = self._env | {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C"}

    # -- reading -----------------------------------------------------------------------------------------------

    def jobs(self, *, uid: int | None = None, ended: bool = False) -> list[Job]:
        """See the port."""
        mark = _mark()
        argv = ["squeue", "--noheader", "--all", "--format", parse.queue_format(mark)]
        if uid is not None:
            argv += ["--user", str(uid)]
        if ended:
            argv += ["--states", "all"]
        result = self._run(argv)
        if not result.ok:
            raise self._failure(result)
        if uid is not None and "Invalid user" in result.stderr:
            # A user id without a name, as in containers: squeue says so, prints no row and exits with 0.
            return [job for job in self.jobs(ended=ended) if job.uid == uid]
        return parse.parse_queue(result.stdout, mark)

    def job(self, job_id: int, *, part: str = "") -> Job | None:
        """See the port."""
        if not 0 < job_id <= LARGEST_ID:
            return None
        mark = _mark()
        result = self._run(
            ["squeue", "--noheader", "--all", "--states", "all", "--jobs", part or str(job_id)]
            + ["--format", parse.queue_format(mark)],
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

    def finished(self, job_id: int, *, uid: int, name: str, since: datetime.datetime) -> JobEnd | None:
        """See the port."""
        from gpuq.adapters.slurm import jobcomp  # rarely needed

        values = self._config()
        if values.get("JobCompType") != "jobcomp/filetxt":
            return None
        path = values.get("JobCompLoc", "")
        if not path.startswith("/"):
            path = "/var/log/slurm_jobcomp.log"  # slurm.conf(5), JobCompLoc: the default of jobcomp/filetxt
        return jobcomp.last_end(Path(path), job_id, uid=uid, name=name, since=since)

    def cluster(self) -> str:
        """See the port."""
        return self._config().get("ClusterName", "")

    def _config(self) -> dict[str, str]:
        values = {}
        for line in self._read(["scontrol", "show", "config"]).splitlines():
            key, equals, value = line.partition("=")
            if equals:
                values[key.strip()] = value.strip()
        return values

    def offer(self) -> tuple[list[Partition], list[Node]]:
        """See the port."""
        # Two processes at once: a submission waits for the slower one only. --all: hidden partitions exist too.
        asked = [
            self._start(["scontrol", "--all", "show", "partition"]),
            self._start(["sinfo", "--all", "--noheader", "--Node", "-o", parse.NODE_FORMAT]),
        ]
        results = [self._result(running) for running in asked]
        for result in results:
            if not result.ok:
                raise self._failure(result)
        return parse.parse_partitions(results[0].stdout), parse.parse_nodes(results[1].stdout)

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
            raise SlurmUnreachable(refusal.message, hint=self._hint(refusal.hint))
        return parse_usage.estimate(result.ok, result.stderr)

    # -- changing ----------------------------------------------------------------------------------------------

    def submit(self, argv: Sequence[str], environment: Mapping[str, str], *, keep_open: int | None = None) -> Accepted:
        """See the port."""
        env = dict(environment) | environment_for(self._location)
        try:
            # own session: Ctrl-C reaches gpuq alone, which can say what became of the attempt
            result = proc.run(
                ["sbatch", *argv],
                timeout=SUBMIT_TIMEOUT,
                env=env,
                pass_fds=() if keep_open is None else (keep_open,),
                own_session=True,
            )
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
            raise SlurmUnreachable(refusal.message, hint=self._hint(refusal.hint))
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

    def _start(self, argv: Sequence[str]) -> proc.Running:
        conf = self._location.conf
        if conf is not None and not os.access(conf, os.R_OK):
            # Slurm's commands would look for a controller in the DNS, and say nothing for more than half a minute.
            raise SlurmUnreachable(
                f"there is no Slurm to ask: {conf} does not exist or cannot be read",
                hint=self._hint("unset SLURM_CONF, or let it name the slurm.conf of a Slurm that runs"),
            )
        try:
            return proc.start(argv, timeout=READ_TIMEOUT, env=self._read_env)
        except proc.ProgramMissing as error:
            raise self._missing(error) from None
        except OSError as error:
            raise SlurmUnreachable(f"{argv[0]} could not be started: {error.strerror}") from None

    def _result(self, running: proc.Running) -> proc.Result:
        try:
            return running.result()
        except proc.ProgramTimeout as error:
            raise SlurmUnreachable(
                f"Slurm does not answer: {error.argv[0]} gave nothing within {error.seconds:g} s",
                hint=self._hint("scontrol ping"),
            ) from None

    def _run(self, argv: Sequence[str]) -> proc.Result:
        return self._result(self._start(argv))

    def _read(self, argv: Sequence[str]) -> str:
        result = self._run(argv)
        if not result.ok:
            raise self._failure(result)
        return result.stdout

    def _failure(self, result: proc.Result) -> GpuqError:
        refusal = batch.explain(result.stderr)
        if refusal.kind == "refused":
            return SlurmAnswerError(f"{result.argv[0]} failed (exit {result.returncode}): {refusal.message}")
        return SlurmUnreachable(refusal.message, hint=self._hint(refusal.hint))

    def _change(self, argv: Sequence[str], what: str) -> None:
        result = self._run(argv)
        if result.ok:
            return
        refusal = batch.explain(result.stderr)
        if refusal.kind in {"unreachable", "doubt"}:
            raise SlurmUnreachable(refusal.message, hint=self._hint(refusal.hint))
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

    def _hint(self, default: str) -> str:
        if self._location.source is Source.NONE:
            return "no Slurm is configured here; start one for this host: gpuq local up"
        if self._location.embedded:
            directory = self._location.conf.parent if self._location.conf else ""
            return f"start the embedded Slurm again: gpuq local up --dir {directory}"
        return default


def _says_least(row: Job) -> int:
    """Of the parts of a job, the one that stands for all of them comes first."""
    order = (Phase.RUNNING, Phase.ENDING, Phase.WAITING, Phase.ENDED)
    return order.index(row.phase) + (row.state == "COMPLETED")


def _mark() -> str:
    return f"\x1e{os.urandom(4).hex()}"
