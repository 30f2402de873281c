"""What gpuq costs over Slurm's own commands, with queues of different lengths.

`gpuq submit` over a bare `sbatch` with the same flags, `gpuq queue` over `squeue`, `gpuq status TAG` over
`squeue --jobs ID`, and the start-up of the interpreter and of `gpuq --help` beside them. All are measured in one run,
in turns, so that whatever else the machine does hits them alike. Absolute times hold only for the machine they were
taken on; the difference and the ratio are what to look at.

    python benchmarks/overhead.py [--rounds 20] [--jobs 10 2000 10000]

Starts an embedded Slurm of its own and takes it down again. Filling the queue takes about 4 ms a job.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuq.usecases import local


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
        self.gpuq = shutil.which("gpuq", path=str(Path(sys.executable).parent)) or "gpuq"
        asked = self.timed([self.gpuq, "submit", "bench", "--hold", "--dry-run"])[1]
        self.sbatch = [word for word in shlex.split(asked) if not word.startswith(("--comment", "--output"))]
        self.sbatch[-1:] = [f"--output={base}/bare.out", str(script)]
        self.filled = 0
        self.first = self.timed([self.gpuq, "submit", "one", "--hold", "--parsable"])[1].strip()

    def timed(self, argv: list[str]) -> tuple[float, str]:
        """(milliseconds, standard output) of one command that must succeed."""
        started = time.perf_counter()
        done = subprocess.run(argv, env=self.env, cwd=self.project, capture_output=True, text=True, check=False)
        milliseconds = (time.perf_counter() - started) * 1e3
        if done.returncode:
            raise SystemExit(f"{shlex.join(argv)} failed: {done.stderr}")
        return milliseconds, done.stdout

    def fill(self, jobs: int) -> None:
        """Submit held jobs until there are `jobs` of them."""
        more = max(0, jobs - self.filled)
        _say(f"filling the queue with {more} held jobs")
        line = shlex.join(self.sbatch)
        subprocess.run(
            ["bash", "-ec", f"for ((n = 0; n < {more}; n++)); do {line} >/dev/null; done"], env=self.env, check=True
        )
        self.filled += more

    def measure(self, rounds: int) -> None:
        """Time every command, in turns, and print what came of it."""
        commands: dict[str, list[str]] = {
            "true": ["true"],
            "python -c pass": [sys.executable, "-c", "pass"],
            "gpuq --help": [self.gpuq, "--help"],
            "sbatch": self.sbatch,
            "gpuq submit": [self.gpuq, "submit", "bench", "--hold"],
            "squeue": ["squeue"],
            "gpuq queue": [self.gpuq, "queue"],
            "gpuq queue --json": [self.gpuq, "queue", "--json"],
            "squeue --jobs ID": ["squeue", "--jobs", self.first],
            "gpuq status TAG": [self.gpuq, "status", "one"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(rounds + 1):
            for label, argv in commands.items():
                milliseconds = self.timed(argv)[0]
                if number:  # the first round fills caches
                    times[label].append(milliseconds)
        print(f"\nwall time in ms, {rounds} rounds in turns, {self.filled} jobs in the queue")
        for name, values in times.items():
            cut = statistics.quantiles(values, n=10)
            print(f"  {name:<18} median {statistics.median(values):7.1f}   p10 {cut[0]:7.1f}   p90 {cut[-1]:7.1f}")
        for ours, theirs in (
            ("gpuq submit", "sbatch"),
            ("gpuq queue", "squeue"),
            ("gpuq status TAG", "squeue --jobs ID"),
        ):
            mine, other = statistics.median(times[ours]), statistics.median(times[theirs])
            print(f"{ours} over {theirs}: +{mine - other:.1f} ms, {mine / other:.1f} times")


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
