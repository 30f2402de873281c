"""What the watcher costs while nothing happens: processor time, memory and questions to slurmctld.

The time of the programs that it runs (squeue, scontrol) counts. Measured with one job and with many in the queue, by the
kernel's own counters (proc(5), stat: utime, stime, cutime, cstime), from the moment its first cycles are over.

    python benchmarks/watch_idle.py [--seconds 600] [--jobs 1 5000]

Starts an embedded Slurm of its own and takes it down again. The bounds: 0.2 % of one core, 45 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuq.usecases import local

SETTLE = 12.0
"""Seconds after its start that do not count: the first looks."""


def main() -> None:
    """Measure and print a line for each length of the queue."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 5000])
    options = parser.parse_args()
    print(f"{'jobs':>6} {'CPU of one core':>16} {'RSS':>8} {'RPCs/min':>9} {'seconds':>8}")
    with tempfile.TemporaryDirectory(prefix="gq", dir="/tmp") as name:
        base = Path(name)
        local.up(base / "slurm", say=lambda text: print(text, file=sys.stderr))
        env = environment(base)
        try:
            have = 0
            for jobs in sorted(options.jobs):
                have = fill(env, base, have, jobs)
                measure(env, base, jobs, options.seconds)
        finally:
            local.down(base / "slurm", cancel=True)


def environment(base: Path) -> dict[str, str]:
    """A clean one, with directories of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GPUQ_", "SLURM_", "SBATCH_", "XDG_"))}
    return kept | {
        "SLURM_CONF": str(base / "slurm" / "slurm.conf"),
        "HOME": str(base),
        "XDG_STATE_HOME": str(base / "st"),
    }


def fill(env: dict[str, str], base: Path, have: int, want: int) -> int:
    """Held jobs, so that nothing starts; the first one runs and holds the GPU."""
    for number in range(have, want):
        options = ["--mem=20", "-n1", "--gres=gpu:1", f"--job-name=job{number}"]
        options += ["--hold"] if number else []
        subprocess.run(
            ["sbatch", *options, "--wrap=sleep 36000"], env=env, cwd=base, check=True, stdout=subprocess.DEVNULL
        )
    return max(have, want)


def measure(env: dict[str, str], base: Path, jobs: int, seconds: float) -> None:
    """Run a watcher for so long and print what it took."""
    watcher = subprocess.Popen([sys.executable, "-m", "gpuq", "watch"], env=env, cwd=base, stderr=subprocess.DEVNULL)
    try:
        time.sleep(SETTLE)
        before, started = cpu(watcher.pid), time.monotonic()
        time.sleep(seconds)
        took, used = time.monotonic() - started, cpu(watcher.pid) - before
        rss = int(Path(f"/proc/{watcher.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    finally:
        watcher.terminate()
        watcher.wait()
    ran = subprocess.run(
        [sys.executable, "-m", "gpuq", "watch", "status", "--json"],
        env=env, cwd=base, check=True, capture_output=True, text=True,
    )  # fmt: skip
    report = json.loads(ran.stdout)["report"]
    minutes = (took + SETTLE) / 60
    print(
        f"{jobs:>6} {used / took:>16.3%} {rss / 1e6:>6.1f}MB {report['rpcs'] / minutes:>9.1f} {took:>8.0f}", flush=True
    )


def cpu(pid: int) -> float:
    """Seconds of a process and of those of its children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
