"""How soon a CPU-only job starts while one GPU job runs and another waits.

In one partition the waiting GPU job plans the whole node: a one-minute CPU job behind it starts after half a minute, a
longer one not at all. In our configuration it has the partition `cpu`. The time is from before the submission to the
job's own first moment.

    python benchmarks/cpu_beside.py [--rounds 15] [--limit 1.5]

Starts an embedded Slurm of its own and takes it down again. Exit status 1 when one start took longer than the limit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuq.adapters.embedded.state import Options
from gpuq.usecases import local


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="CPU-only jobs, one after the other")
    parser.add_argument("--limit", type=float, default=1.5, help="seconds within which each has to start")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gq", dir="/tmp") as name:
        base = Path(name)
        local.up(base / "slurm", Options(simulate_gpu=True))
        try:
            kept = {k: v for k, v in os.environ.items() if not k.startswith(("GPUQ_", "SLURM_", "SBATCH_"))}
            seconds = _measure(base, kept | local.environment(base / "slurm"), options.rounds)
        finally:
            local.down(base / "slurm", cancel=True)
    cut = statistics.quantiles(seconds, n=10)
    print(
        f"CPU-only job beside a running and a waiting GPU job: started after {statistics.median(seconds):.2f} s "
        f"(p10 {cut[0]:.2f}, p90 {cut[-1]:.2f}, max {max(seconds):.2f}, n {len(seconds)})"
    )
    sys.exit(max(seconds) > options.limit)


def _measure(base: Path, env: dict[str, str], rounds: int) -> list[float]:
    def submit(*argv: str) -> str:
        done = subprocess.run(
            ["sbatch", "--parsable", "-c1", "--mem=50", "-t60", "-o/dev/null", *argv],
            env=env,
            cwd=base,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        return done.stdout.strip()

    def state(job: str) -> str:
        argv = ["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"]
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout.strip()

    running = submit("--gres=gpu:1", "--wrap", "sleep 3600")
    _until(lambda: state(running) == "RUNNING", "the first GPU job")
    waiting = submit("--gres=gpu:1", "--wrap", "sleep 3600")
    seconds = []
    for number in range(rounds):
        time.sleep(number % 10 / 10)  # not in step with slurmctld's one-second tick
        stamp = base / f"start{number}"
        before = time.time()
        job = submit("-p", "cpu", "--wrap", f"date +%s.%N >{stamp}.new && mv {stamp}.new {stamp}")
        _until(stamp.exists, f"the CPU-only job {job}")
        seconds.append(float(stamp.read_text()) - before)
        _until(lambda job=job: state(job) == "COMPLETED", f"the end of {job}")
        if state(waiting) != "PENDING":
            raise SystemExit("the second GPU job does not wait")
    return seconds


def _until(true: object, what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
