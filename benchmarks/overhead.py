"""What gpuq costs over Slurm's own commands, with queues of different lengths, and over both backends.

`gpuq submit` over a bare `sbatch` with the same flags, `gpuq queue` over `squeue`, `gpuq status TAG` over
`squeue --jobs ID`, and the start-up of the interpreter and of `gpuq --help` beside them. All are measured in one run,
in turns, so that whatever else the machine does hits them alike. Absolute times hold only for the machine they were
taken on; the difference and the ratio are what to look at. The processor time of a command, with that of all programs
it ran, hardly changes when the machine has other work.

    python benchmarks/overhead.py [--rounds 20] [--jobs 10 2000 10000]

Starts an embedded Slurm of its own and takes it down again. Filling the queue takes about 6 ms a job. PySlurm is
measured where it can be imported for this Slurm; else it is said why not (benchmarks/backends.py measures its mapping
anywhere).
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuq.adapters.slurm.choose import why_not_pyslurm
from gpuq.adapters.slurm.locate import locate
from gpuq.usecases import local

OVER = (
    ("gpuq submit", "sbatch"),
    ("gpuq queue", "squeue"),
    ("gpuq queue", "squeue -h -o"),
    ("gpuq queue (pyslurm)", "squeue -h -o"),
    ("gpuq status TAG", "squeue --jobs ID"),
    ("gpuq status TAG (pyslurm)", "squeue --jobs ID"),
)
"""What is held against what."""


def main() -> None:
    """Measure and print a table for each length of the queue."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="how often each command is timed")
    parser.add_argument(
        "--jobs", type=int, nargs="+", default=[10], help="how many held jobs are in the queue meanwhile"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gq", dir="/tmp") as name:
        base = Path(name)
        local.up(base / "slurm", say=_say)
        try:
            bench = Bench(base)
            for jobs in sorted(options.jobs):
                bench.fill(jobs)
                bench.measure(options.rounds)
        finally:
            local.down(base / "slurm", cancel=True)


class Bench:
    """A project with a run that is submitted again and again and one that is submitted once; a queue that only grows."""

    def __init__(self, base: Path) -> None:
        self.project = base / "project"
        for tag in ("bench", "one"):
            script = self.project / "runs" / tag / "job.sh"
            script.parent.mkdir(parents=True)
            script.write_text("#!/bin/bash\ntrue\n")
            script.chmod(0o755)
        (self.project / "gpuq.toml").touch()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("GPUQ_", "SLURM_", "SBATCH_"))}
        self.env = kept | local.environment(base / "slurm")
        # As an installed gpuq: modules are compiled once, whatever this shell or this tree has it otherwise.
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)
        self.env["PYTHONPYCACHEPREFIX"] = str(base / "bytecode")
        self.gpuq = shutil.which("gpuq", path=str(Path(sys.executable).parent)) or "gpuq"
        asked = self.run([self.gpuq, "submit", "bench", "--hold", "--dry-run"])
        self.sbatch = [word for word in shlex.split(asked) if not word.startswith(("--comment", "--output"))]
        self.sbatch[-1:] = [f"--output={base}/bare.out", str(script)]
        self.filled = 0
        self.first = self.run([self.gpuq, "submit", "one", "--hold", "--parsable"]).strip()
        self.no_pyslurm = why_not_pyslurm(locate(self.env), self.env)

    def run(self, argv: list[str], **more: str) -> str:
        """Standard output of a command that must succeed; more: variables."""
        done = subprocess.run(argv, env=self.env | more, cwd=self.project, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{shlex.join(argv)} failed: {done.stderr}")
        return done.stdout

    def timed(self, argv: list[str], **more: str) -> tuple[float, float]:
        """(wall time, processor time) of one command, in milliseconds."""
        spent, started = _processor(), time.perf_counter()
        self.run(argv, **more)
        return (time.perf_counter() - started) * 1e3, (_processor() - spent) * 1e3

    def fill(self, jobs: int) -> None:
        """Submit held jobs until there are `jobs` of them."""
        more = max(0, jobs - self.filled)
        _say(f"filling the queue with {more} held jobs")
        line = shlex.join(self.sbatch)
        subprocess.run(
            ["bash", "-ec", f"for ((n = 0; n < {more}; n++)); do {line} >/dev/null; done"], env=self.env, check=True
        )
        self.filled += more

    def commands(self) -> dict[str, tuple[list[str], dict[str, str]]]:
        """What is measured: by its name the argv, and variables."""
        found: dict[str, tuple[list[str], dict[str, str]]] = {
            "true": (["true"], {}),
            "python -c pass": ([sys.executable, "-c", "pass"], {}),
            "gpuq --help": ([self.gpuq, "--help"], {}),
            "sbatch": (self.sbatch, {}),
            "gpuq submit": ([self.gpuq, "submit", "bench", "--hold"], {}),
            "squeue": (["squeue"], {}),
            "squeue -h -o": (["squeue", "-h", "-o", "%i|%T|%r"], {}),
        }
        backends = {"commands": ""} if self.no_pyslurm else {"commands": "", "pyslurm": " (pyslurm)"}
        for backend, label in backends.items():
            chosen = {"GPUQ_BACKEND": backend}
            found[f"gpuq queue{label}"] = ([self.gpuq, "queue"], chosen)
            found[f"gpuq queue --json{label}"] = ([self.gpuq, "queue", "--json"], chosen)
            found[f"gpuq status TAG{label}"] = ([self.gpuq, "status", "one"], chosen)
        found["squeue --jobs ID"] = (["squeue", "--jobs", self.first], {})
        return found

    def measure(self, rounds: int) -> None:
        """Time every command, in turns, and print what came of it."""
        commands = self.commands()
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(rounds + 1):
            for label, (argv, more) in commands.items():
                spent = self.timed(argv, **more)
                if number:  # the first round fills caches
                    times[label].append(spent)
        print(f"\n{rounds} rounds in turns, {self.filled} jobs in the queue; ms (processor: of all programs together)")
        middle = {}
        for name, values in times.items():
            walls = [wall for wall, _ in values]
            cut = statistics.quantiles(walls, n=10, method="inclusive")
            middle[name] = statistics.median(walls)
            spent_cpu = statistics.median(cpu for _, cpu in values)
            print(
                f"  {name:<26} median {middle[name]:7.1f}   p10 {cut[0]:7.1f}   p90 {cut[-1]:7.1f}"
                f"   processor {spent_cpu:7.1f}"
            )
        if self.no_pyslurm:
            print(f"  no PySlurm here: {self.no_pyslurm}")
        for ours, theirs in OVER:
            if ours in middle:
                mine, other = middle[ours], middle[theirs]
                print(f"{ours} over {theirs}: +{mine - other:.1f} ms, {mine / other:.1f} times")


def _processor() -> float:
    """Seconds of processor time that all ended children have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
