"""Record what the installed Slurm answers to gpuq: python -m tests.record_slurm DIRECTORY (below it: <version>/answers).

Root only. Brings up an embedded Slurm with one job of every kind, lets gpuq's own client ask its questions, and checks
each answer against what the jobs were made to be before it writes anything. scripts/record-slurm.sh calls it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gpuq.adapters.embedded.state import Options
from gpuq.adapters.slurm.client import SlurmCommands
from gpuq.core.job import Job, Phase
from gpuq.core.ports import InDoubt
from gpuq.errors import GpuqError
from tests.embedded import Embedded
from tests.recording import ENDED, Fact, Recorder, commands

NOBODY = pwd.getpwnam("nobody").pw_uid
COMMENT = "gpuq:1:3:0123456789abcdef"
SPECIALS = "a b=c|d%j'\"\\ State=X \x1f\ttab\ncaf\udce9 é"
LONG = "sleep 3000"
WAITS = ("Priority", "Resources")
BIG = "python3 -c 'x = bytearray(400 * 2**20); print(len(x))'"
AGAIN = '[ "$SLURM_RESTART_COUNT" ] || sleep 3000'


class World:
    """A job of every kind, and what is known of each."""

    def __init__(self, slurm: Embedded) -> None:
        self.slurm = slurm
        self.facts: list[Fact] = []

    def sbatch(self, script: str, *options: str) -> int:
        """Submit; the job is small and writes nowhere unless the options say so."""
        return self.slurm.sbatch(script, "--mem=100", "--output=/dev/null", *options)

    def until(self, job: str, *states: str) -> None:
        """Wait for the state of one row of squeue."""

        def ask() -> str:
            rows = self.slurm.must("squeue", "-h", "-a", "-t", "all", "-o", "%i %T")
            return dict(line.rsplit(" ", 1) for line in rows.splitlines()).get(job, "")

        self.slurm.wait(ask, states, timeout=200)

    def add(self, what: str, job: int | str, name: str, state: str, **facts: object) -> None:
        """Wait until the job is in `state`, and remember what is known of it."""
        self.until(str(job), state)
        phase = {"PENDING": "waiting", "RUNNING": "running", "SUSPENDED": "running"}.get(state, "ended")
        if phase == "ended":
            facts.setdefault("exit_code", 0)
        fact = {"what": what, "id": str(job), "name": name, "phase": phase, "state": state, **facts}
        self.facts.append(Fact(**fact))  # type: ignore[arg-type]

    def ended(self) -> None:
        """Jobs that have ended."""
        limit = self.sbatch(LONG, "-Jtimeout", "--time=1")
        self.until(str(limit), "RUNNING")
        self.add("completed, CPU only", self.sbatch("true", "-Jok"), "ok", "COMPLETED")
        self.add(
            "completed, with a GPU", self.sbatch("true", "-Jok/gpu", "--gres=gpu:1"), "ok/gpu", "COMPLETED", gpus=1
        )
        self.add("exit 3", self.sbatch("exit 3", "-Jfail"), "fail", "FAILED", exit_code=3)
        self.add("segmentation fault", self.sbatch("kill -SEGV $$", "-Jseg"), "seg", "FAILED", signal=11)
        job = self.sbatch(LONG, "-Jstopped")
        self.until(str(job), "RUNNING")
        self.slurm.must("scancel", str(job))
        self.add("cancelled while it ran", job, "stopped", "CANCELLED", signal=15)
        job = self.sbatch("true", "-Jnever-ran", "--hold")
        self.slurm.must("scancel", str(job))
        self.add("cancelled while it waited", job, "never-ran", "CANCELLED")
        if self.slurm.status().confinement.on:
            job = self.sbatch(BIG, "-Joom", "--mem=60")
            self.add("out of memory", job, "oom", "OUT_OF_MEMORY", signal=125)
        array = self.sbatch("exit $((SLURM_ARRAY_TASK_ID - 1))", "-Jsweep/done", "--array=1-2")
        self.add("a task that ended well", f"{array}_1", "sweep/done", "COMPLETED")
        self.add("a task that failed", f"{array}_2", "sweep/done", "FAILED", exit_code=1)
        job = self.sbatch(AGAIN, "-Jagain")
        self.until(str(job), "RUNNING")
        self.slurm.must("scontrol", "requeue", str(job))
        self.until(str(job), "PENDING")
        self.slurm.must("scontrol", "update", f"JobId={job}", "StartTime=now")
        self.add("requeued, and then completed", job, "again", "COMPLETED", restarts=1)
        self.add("hit its time limit", limit, "timeout", "TIMEOUT", signal=15)

    def running(self) -> None:
        """Jobs that are on the node."""
        job = self.sbatch(LONG, f"-J{SPECIALS}", "--gres=gpu:1", f"--comment={COMMENT}")
        self.gpu = job
        self.add("runs with a name full of specials", job, SPECIALS, "RUNNING", gpus=1, comment=COMMENT)
        array = self.sbatch(f"[ $SLURM_ARRAY_TASK_ID = 1 ] || {LONG}", "-Jsweep", "--array=1-9%1")
        self.add("the task of an array that has ended", f"{array}_1", "sweep", "COMPLETED")
        self.add("the task of an array that runs", f"{array}_2", "sweep", "RUNNING")
        self.add(
            "the tasks of an array that wait", f"{array}_[3-9%1]", "sweep", "PENDING", reason=("JobArrayTaskLimit",)
        )
        job = self.sbatch(LONG, "-Jpaused")
        self.until(str(job), "RUNNING")
        self.slurm.must("scontrol", "suspend", str(job))
        self.add("suspended", job, "paused", "SUSPENDED")

    def het(self, script: str, *options: str) -> int:
        """Submit a heterogeneous job of two components."""
        path = self.slurm.dir / "het.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        same = ("--mem=100", "--output=/dev/null", *options)
        out = self.slurm.must("sbatch", "--parsable", *same, "--ntasks=1", ":", *same, "--ntasks=1", str(path))
        return int(out)

    def waiting(self) -> None:
        """Jobs that wait, each for something else."""
        failed = next(fact.id for fact in self.facts if fact.name == "fail")
        job = self.sbatch(LONG, "-Jrequeued")
        self.until(str(job), "RUNNING")
        self.slurm.must("scontrol", "requeue", str(job))
        self.add("requeued", job, "requeued", "PENDING", reason=("BeginTime",))
        job = self.sbatch("true", "-Jgpu", "--gres=gpu:1")
        self.add("waits for the GPU", job, "gpu", "PENDING", gpus=1, reason=WAITS)
        job = self.sbatch("true", "-Jgpus", "--gpus=1")
        self.add("asks with --gpus=1, which %b does not show", job, "gpus", "PENDING", reason=WAITS)
        job = self.sbatch("true", "-Jgpu/two", "--gpus-per-node=1", "--nice=50", "--signal=B:TERM@60")
        self.add("nice, with a signal", job, "gpu/two", "PENDING", gpus=1, reason=WAITS)
        after = f"afterok:{self.gpu}"
        job = self.sbatch("true", "-Jdep", f"--dependency={after}")
        facts = {"reason": ("Dependency",), "dependency": f"{after}(unfulfilled)"}
        self.add("waits for another", job, "dep", "PENDING", **facts)
        job = self.sbatch("true", "-Jdep/never", f"--dependency=afterok:{failed}")
        facts = {"reason": ("DependencyNeverSatisfied",), "dependency": f"afterok:{failed}(failed)"}
        self.add("waits for one that failed", job, "dep/never", "PENDING", **facts)
        self.add("held", self.sbatch("true", "-Jheld", "-H"), "held", "PENDING", reason=("JobHeldUser",))
        job = self.sbatch("true", "-Jheld/root")
        self.slurm.must("scontrol", "hold", str(job))
        self.add("held by the administrator", job, "held/root", "PENDING", reason=("JobHeldAdmin",))
        job = self.sbatch("true", "-Jlong", "--time=9:00:00")
        self.slurm.must("scontrol", "update", "PartitionName=gpu", "MaxTime=8:00:00")
        self.add("longer than the partition allows", job, "long", "PENDING", reason=("PartitionTimeLimit", *WAITS))
        job = self.sbatch("true", "-Jlater", "--begin=now+1day")
        self.add("begins tomorrow", job, "later", "PENDING", reason=("BeginTime",))
        job = self.sbatch("true", "-Jtheirs", "--hold", f"--uid={NOBODY}", "--chdir=/")
        self.add("another user's", job, "theirs", "PENDING", user="nobody", reason=("JobHeldUser",))
        array = self.sbatch("true", "-Jsweep/held", "--array=0-999%4", "--hold")
        self.add("an array", f"{array}_[0-999%4]", "sweep/held", "PENDING", reason=("JobHeldUser",))
        het = self.het("true", "-Jhet/held", "--hold")
        for part in (0, 1):  # Slurm gives no two components one node, so none of them ever runs here
            self.add("a component that waits", f"{het}+{part}", "het/held", "PENDING", reason=("JobHeldUser",))
        self.settled()

    def settled(self) -> None:
        """Wait until the scheduler has given every job its reason."""
        wanted = {fact.id: fact.reason for fact in self.facts if fact.reason}

        def ask() -> str:
            rows = self.slurm.must("squeue", "-h", "-a", "-o", "%i %r").splitlines()
            shown = dict(row.split(" ", 1) for row in rows)
            return ", ".join(f"{job}: {shown.get(job)}" for job, words in wanted.items() if shown.get(job) not in words)

        self.slurm.wait(ask, ("",), timeout=120)


def check(world: World, rows: list[Job], ask: SlurmCommands) -> None:
    """Ask for everything, one by one; what comes must be what is known."""
    found = {row.id: row for row in rows}
    assert sorted(found) == sorted(fact.id for fact in world.facts), (sorted(found), world.facts)
    for fact in world.facts:
        row = found[fact.id]
        seen = (row.name, row.state, row.phase, row.user, row.comment, row.dependency)
        assert seen == (fact.name, fact.state, fact.phase, fact.user, fact.comment, fact.dependency), (fact, row)
        if row.phase is Phase.ENDED:
            end = ask.end_of(row)
            ended = (end.exit_code, end.signal, end.restarts)
            assert ended == (fact.exit_code, fact.signal, fact.restarts), (fact, end)
            if row.whole and row.submit is not None:
                assert ask.finished(row.number, uid=row.uid, name=row.name, since=row.submit) is not None
        assert ask.job(row.number) is not None
        if not row.whole and "[" not in row.id:
            part = ask.job(row.number, part=row.id)
            assert part is not None
            assert part.id == row.id


REFUSED = (
    ("--mem=100000000",), ("--gres=gpu:2",), ("--gres=foo:1",), ("--partition=nope",), ("--time=soon",),
    ("--constraint=none",), ("--dependency=afterok:999999",), ("--dependency=after",), ("--time=30-0",),
)  # fmt: skip


def refusals(recorder: Recorder, world: World, ask: SlurmCommands) -> None:
    """Everything that Slurm says no to."""
    job = {fact.what: int(fact.id.split("_")[0].split("+")[0]) for fact in world.facts}
    mine, running, ended = job["held"], job["runs with a name full of specials"], job["completed, CPU only"]
    taken: list[int] = []
    with recorder.scene("all is well"):
        for options in REFUSED:
            with suppress(GpuqError):
                taken.append(ask.submit(["--parsable", *options, "--wrap=true"], world.slurm.env).job_id)
        attempts: list[Callable[[], object]] = [
            lambda: ask.cancel(ended),
            lambda: ask.cancel(999999),
            lambda: ask.update(running, {"MinMemoryNode": "50"}),
            lambda: ask.update(mine, {"MinMemoryNode": "28G"}),
            lambda: ask.update(999999, {"Nice": "5"}),
            lambda: ask.hold(ended),
            lambda: ask.release(999999),
            lambda: ask.job(999999),
            lambda: ask.jobs(uid=54321),
        ]
        for attempt in attempts:
            with suppress(GpuqError):
                attempt()
    for job_id in taken:
        world.slurm.must("scancel", str(job_id))
    with recorder.scene("as nobody", ("runuser", "-u", "nobody", "--")):
        changes: list[Callable[[], None]] = [
            lambda: ask.cancel(mine),
            lambda: ask.hold(mine),
            lambda: ask.release(mine),
            lambda: ask.top(mine),
            lambda: ask.update(mine, {"Nice": "-5"}),
            lambda: ask.update(job["another user's"], {"Nice": "-5"}),
            lambda: ask.top(job["another user's"]),
        ]
        for change in changes:
            with suppress(GpuqError):
                change()
    world.slurm.kill_daemons("slurmctld")
    down: list[Callable[[], object]] = [
        ask.jobs,
        lambda: ask.job(mine),
        ask.offer,
        ask.cluster,
        lambda: ask.cancel(mine),
        lambda: ask.submit(["--parsable", "--wrap=true"], world.slurm.env),
    ]
    with recorder.scene("controller down"):
        for one in down:
            with suppress(GpuqError, InDoubt):
                one()
                raise AssertionError("a dead controller answered")


def main() -> None:
    """Make the world, ask, write."""
    target = Path(sys.argv[1]).resolve()
    os.environ["TZ"] = "UTC"
    os.environ["LC_ALL"] = "C"
    time.tzset()
    place = Path(tempfile.mkdtemp(prefix="gq", dir="/tmp"))
    place.chmod(0o755)
    os.chdir(place)  # the working directory of what sbatch is given
    options = Options(cpus=16, memory=16000, simulate_gpu=True, extra=("MessageTimeout=2",))
    slurm = Embedded(place, options)
    try:
        begin = time.time()
        status = slurm.up()
        world = World(slurm)
        for step in (world.ended, world.running, world.waiting):
            step()
        assert status.ports is not None
        host = os.uname().nodename.split(".", 1)[0]
        recorder = Recorder(
            {
                slurm.node: "node1", host: "host1",
                str(status.ports.slurmctld): "6817", str(status.ports.slurmd): "6818",
            },
            str(place),
            begin,
        )  # fmt: skip
        ask = commands(slurm.layout.conf)
        with recorder.scene("all is well"):
            rows = ask.jobs(ended=True)
            ask.jobs()
            ask.jobs(uid=0)
            ask.jobs(uid=NOBODY, ended=True)
            ask.offer()
            ask.cluster()
            ask._read(["scontrol", "ping"])
            check(world, rows, ask)
        refusals(recorder, world, ask)
        ends = recorder.neutral(slurm.jobcomp.read_bytes().decode("utf-8", "surrogateescape"))
        version = ".".join((status.slurm_version or "").split(".")[:2])
        recorder.write(target / version / "answers", version, world.facts, {ENDED: ends})
        print(f"recorded Slurm {version}: {len(recorder.calls)} calls about {len(world.facts)} jobs")
    finally:
        os.chdir("/")
        slurm.down(cancel=True)
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
