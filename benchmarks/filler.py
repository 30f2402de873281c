"""How soon a filler run is off the GPU when a real job comes, and whether it finishes later from its checkpoint.

Two fillers, submitted with `gpuq submit --fill`: one saves its count at SIGTERM and ends; the other saves and does not
end, the worst case, in which GraceTime is used up. The time is from the submission of the real job to its first moment.
A requeued job waits two minutes before Slurm starts it again, so this takes about five.

    python benchmarks/filler.py [--grace 20]

Starts an embedded Slurm of its own and takes it down again. Exit status 1 when the GPU was free later than GraceTime + 2 s,
or a filler did not go on from where it was and succeed in the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuq.adapters.embedded.state import Options
from gpuq.usecases import local

SPARE = 2.0

FILLER = """#!/bin/bash
cd {place}
count=$(cat saved 2>/dev/null || echo 0)
echo "from $count" >>lives
trap 'echo "$count" >saved; [ "{ends}" = no ] || exit 1' TERM
while ((count < {steps})); do sleep 0.1 & wait $!; count=$((count + 1)); done
"""

REAL = """#!/bin/bash
cd {place}
date +%s.%N >start
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    # Not less than KillWait (5 there) + MessageTimeout (10): slurmctld looks at a preempted job again only after these.
    parser.add_argument("--grace", type=int, default=20, help="GraceTime of the partition, in seconds")
    options = parser.parse_args()
    bad = False
    with tempfile.TemporaryDirectory(prefix="gq", dir="/tmp") as name:
        base = Path(name)
        local.up(base / "slurm", Options(simulate_gpu=True, grace=options.grace))
        try:
            bench = Bench(base)
            for tag, text in (("ends", "ends at SIGTERM"), ("stays", "does not end at SIGTERM")):
                seconds = bench.preempt(tag)
                waited = bench.gpuq("wait", tag, "--timeout", "400")
                code = waited.returncode
                lives = (bench.runs / tag / "lives").read_text().splitlines()
                fine = seconds <= options.grace + SPARE and len(lives) == 2 and lives[1] != "from 0" and code == 0
                bad |= not fine
                print(f"a filler that {text}: the real job began after {seconds:.1f} s (GraceTime {options.grace} s)")
                print(f"  its lives: {', '.join(lives)} ; in the end gpuq wait says {code}")
                if not fine:
                    print(f"  NOT GOOD ENOUGH\n{waited.stdout}{waited.stderr}")
        finally:
            local.down(base / "slurm", cancel=True)
    sys.exit(bad)


class Bench:
    """A project with two fillers and what they make way for."""

    def __init__(self, base: Path) -> None:
        self.runs = base / "project" / "runs"
        for tag, text in (("ends", FILLER), ("stays", FILLER), ("for-ends", REAL), ("for-stays", REAL)):
            script = self.runs / tag / "job.sh"
            script.parent.mkdir(parents=True)
            script.write_text(
                text.format(
                    place=script.parent,
                    **({"ends": "no", "steps": 500} if tag == "stays" else {"ends": "yes", "steps": 100}),
                )
            )
            script.chmod(0o755)
        (base / "project" / "gpuq.toml").write_text('[submit]\nmem = "50M"\ncpus = 1\ntime = "60"\n')
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("GPUQ_", "SLURM_", "SBATCH_"))}
        self.env = kept | local.environment(base / "slurm")

    def gpuq(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """One call of gpuq in the project."""
        argv = (sys.executable, "-m", "gpuq", *argv)
        return subprocess.run(argv, env=self.env, cwd=self.runs, capture_output=True, text=True, check=False)

    def submit(self, *argv: str) -> None:
        """A submission that must succeed."""
        done = self.gpuq("submit", *argv)
        if done.returncode:
            raise SystemExit(done.stderr)

    def preempt(self, tag: str) -> float:
        """Seconds from the submission of a real job to its first moment, while the filler `tag` has the GPU."""
        self.submit(tag, "--fill")
        _until((self.runs / tag / "lives").exists, "the filler's start")
        time.sleep(2)
        before = time.time()
        self.submit(f"for-{tag}")
        stamp = self.runs / f"for-{tag}" / "start"
        _until(lambda: stamp.exists() and stamp.read_text().endswith("\n"), "the real job's start")
        return float(stamp.read_text()) - before


def _until(true: object, what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
