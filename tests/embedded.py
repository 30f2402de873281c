"""A real Slurm for a test: the embedded one, with small helpers to submit and to wait.

Import `Embedded` for type hints; get one from the fixtures `slurm` and `slurm_shared` (conftest.py).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from gpuq.adapters import proc
from gpuq.adapters.embedded import cgroups, daemons
from gpuq.adapters.embedded.layout import Layout
from gpuq.adapters.embedded.state import Options, node_name
from gpuq.usecases import local
from gpuq.usecases.local import LocalStatus


class Embedded:
    """One embedded Slurm in `dir`. `said` collects the notes of `up` and `down`."""

    def __init__(self, directory: Path, options: Options) -> None:
        self.dir = directory.resolve()
        self.options = options
        self.layout = Layout(directory)
        self.node = node_name(self.dir)
        self.said: list[str] = []

    def up(self) -> LocalStatus:
        """Bring it up (again)."""
        return local.up(self.dir, self.options, self.said.append)

    def down(self, *, cancel: bool = False) -> LocalStatus:
        """Take it down."""
        return local.down(self.dir, cancel=cancel, say=self.said.append)

    def status(self) -> LocalStatus:
        """How it is."""
        return local.status(self.dir)

    @property
    def env(self) -> dict[str, str]:
        """An environment for commands against it."""
        return daemons.clean_environment(self.layout)

    @property
    def jobcomp(self) -> Path:
        """The job completion log."""
        return self.layout.jobcomp

    def run(self, *argv: str, cwd: Path | None = None, timeout: float = 30) -> proc.Result:
        """Run any command against it."""
        return proc.run(argv, timeout=timeout, env=self.env, cwd=cwd)

    def must(self, *argv: str, cwd: Path | None = None) -> str:
        """Run a command that has to succeed; its standard output."""
        result = self.run(*argv, cwd=cwd)
        assert result.ok, f"{argv}: {result.stderr}"
        return result.stdout

    def sbatch(self, script: str, *options: str, cwd: Path | None = None) -> int:
        """Submit shell code; the job id."""
        place = cwd or self.dir
        result = proc.run(
            ["sbatch", "--parsable", *options],
            timeout=30,
            env=self.env,
            cwd=place,
            input_bytes=f"#!/bin/bash\n{script}\n".encode(),
        )
        assert result.ok, result.stderr
        return int(result.stdout.strip().split(";")[0])

    def field(self, job: int, name: str) -> str:
        """One field of `scontrol show job`, e.g. JobState; "" when it has none."""
        text = self.must("scontrol", "show", "job", str(job))
        match = re.search(rf"(?:^|\s){name}=(\S*)", text)
        return match[1] if match else ""

    def queued(self) -> str:
        """Ids of the jobs that wait or run, one per line, as squeue prints them. One that was cancelled a moment ago is
        COMPLETING while its processes end, and not among them."""
        return self.must("squeue", "-h", "--all", "-t", "PENDING,CONFIGURING,RUNNING,SUSPENDED", "-o", "%A")

    def job_state(self, job: int) -> str:
        """JobState of a job."""
        return self.field(job, "JobState")

    def wait_state(self, job: int, *states: str, timeout: float = 60) -> str:
        """Wait until the job is in one of `states`."""
        return self.wait(lambda: self.job_state(job), states, timeout=timeout)

    def wait(self, ask: Callable[[], str], wanted: tuple[str, ...], *, timeout: float = 60) -> str:
        """Poll `ask` until it answers one of `wanted`; fails with the last answer after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while (answer := ask()) not in wanted:
            assert time.monotonic() < deadline, f"still {answer!r} after {timeout} s, wanted {wanted}"
            time.sleep(0.05)
        return answer

    def clear(self) -> None:
        """Cancel all jobs, release what tests may have set, and wait until nothing is left."""
        ids = self.must("squeue", "-h", "-a", "-t", "all", "-o", "%A|%T").split()
        live = [word.split("|")[0] for word in ids if word.split("|")[1] in _LIVE]
        if live:
            self.run("scancel", *live)
            self.run("scancel", "--signal=KILL", "--full", *live)
        self.wait(lambda: self.must("squeue", "-h", "-a", "-o", "%A").strip(), ("",))
        self.must("scontrol", "update", "PartitionName=gpu", "State=UP")

    def leftovers(self) -> list[str]:
        """Everything that `down` should have removed and did not."""
        left = [f"process {p.pid} {p.name()}" for p in daemons.find(self.layout).all()]
        left += [f"job process {p.pid} {p.name()}" for p in daemons.job_processes(self.layout)]
        left += [f"cgroup {path}" for path in cgroups.of_node(self.node)]
        left += [f"socket {path}" for path in self.dir.rglob("*") if path.is_socket()]
        left += [f"pid file {path}" for path in self.dir.rglob("*.pid")]
        return left

    def kill_daemons(self, *names: str) -> None:
        """kill -9 of daemons by name ("slurmctld", "slurmd", "munged"); "steps" means the slurmstepds."""
        found = daemons.find(self.layout)
        victims: list[psutil.Process] = [found.daemons[name] for name in names if name in found.daemons]
        if "slurmctld" in names:
            victims += [helper for helper in found.helpers if "scriptd" in helper.name()]
        if "steps" in names:
            victims += found.steps
        daemons.kill(victims)

    def kill_everything(self) -> None:
        """What a power cut does: every process of this Slurm and of its jobs is gone at once."""
        daemons.kill(daemons.find(self.layout).all())
        daemons.kill(daemons.job_processes(self.layout))


_LIVE = {"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD"}

CAN_CONFINE = os.geteuid() == 0
