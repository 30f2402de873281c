"""What gpuq costs over Slurm's own commands: `gpuq submit` over `sbatch`, `gpuq queue` over `squeue`.

All are measured in one run, in turns, so that whatever else the machine does hits them alike. Absolute times hold only
for the machine they were taken on; the difference and the ratio are what to look at.

    python benchmarks/overhead.py [--rounds 30] [--jobs 10]

Starts an embedded Slurm of its own and takes it down again.
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
from collections.abc import Callable
from pathlib import Path

from gpuq.usecases import local


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="how often each command is timed")
    parser.add_argument("--jobs", type=int, default=10, help="how many held jobs are in the queue meanwhile")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gq", dir="/tmp") as name:
        base = Path(name)
        local.up(base / "slurm", say=_say)
        try:
            _measure(base, options.rounds, options.jobs)
        finally:
            local.down(base / "slurm", cancel=True)


def _measure(base: Path, rounds: int, jobs: int) -> None:
    project = base / "project"
    run = project / "runs" / "bench"
    run.mkdir(parents=True)
    (project / "gpuq.toml").touch()
    script = run / "job.sh"
    script.write_text("#!/bin/bash\ntrue\n")
    script.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GPUQ_", "SLURM_", "SBATCH_"))}
    env = kept | local.environment(base / "slurm")
    gpuq = shutil.which("gpuq", path=str(Path(sys.executable).parent)) or "gpuq"

    def timed(argv: list[str]) -> tuple[float, str]:
        started = time.perf_counter()
        done = subprocess.run(argv, env=env, cwd=project, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
        if done.returncode:
            raise SystemExit(f"{shlex.join(argv)} failed: {done.stderr}")
        return seconds * 1e3, done.stdout

    asked = timed([gpuq, "submit", "bench", "--hold", "--dry-run"])[1]
    sbatch = [word for word in shlex.split(asked) if not word.startswith(("--comment", "--output"))]
    sbatch[-1:] = [f"--output={base}/bare.out", str(script)]
    for _ in range(jobs):
        timed(sbatch)

    def cancel_bench() -> None:
        subprocess.run(["scancel", "--name=bench", "--state=PENDING"], env=env, check=True)
        for _ in range(jobs):
            timed(sbatch)

    commands: dict[str, list[str]] = {
        "true": ["true"],
        "python -c pass": [sys.executable, "-c", "pass"],
        "sbatch": sbatch,
        "gpuq submit": [gpuq, "submit", "bench", "--hold"],
        "squeue": ["squeue"],
        "gpuq queue": [gpuq, "queue"],
        "gpuq --help": [gpuq, "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for label, argv in commands.items():
            milliseconds = timed(argv)[0]
            if number:  # the first round fills caches
                times[label].append(milliseconds)
        if number % 5 == 4:
            cancel_bench()
    _print(times, jobs)


def _print(times: dict[str, list[float]], jobs: int) -> None:
    middle: Callable[[str], float] = lambda name: statistics.median(times[name])  # noqa: E731
    print(f"wall time in ms, {len(times['sbatch'])} rounds in turns, {jobs} jobs in the queue")
    for name, values in times.items():
        cut = statistics.quantiles(values, n=10)
        print(f"  {name:<16} median {middle(name):7.1f}   p10 {cut[0]:7.1f}   p90 {cut[-1]:7.1f}")
    for ours, theirs in (("gpuq submit", "sbatch"), ("gpuq queue", "squeue")):
        more = middle(ours) - middle(theirs)
        print(f"{ours} over {theirs}: +{more:.1f} ms, {middle(ours) / middle(theirs):.1f} times")


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
