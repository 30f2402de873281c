"""What it costs to look at a job's memory: CPU time per look, wall time, and the size of the process that looks.

    python benchmarks/sampling.py [--looks 2000]

Starts an embedded Slurm with one job that has a few processes, and takes it down again. A glance happens twice a second, a
full look every five seconds, or while usage climbs; the budget is 1 ms of CPU per job and look.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gpuq.adapters import proc
from gpuq.adapters.cgroup import locate, read
from gpuq.adapters.embedded import daemons
from gpuq.adapters.embedded.layout import Layout
from gpuq.adapters.embedded.state import node_name
from gpuq.usecases import local

BUDGET = 1000.0
"""Microseconds."""


def main() -> int:
    """Measure and print; 1 when a look costs more than the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--looks", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gq", dir="/tmp") as name:
        base = Path(name) / "slurm"
        local.up(base, say=lambda text: print(text, file=sys.stderr))
        try:
            place = _job(base)
            worst = max(_measure(label, look, options.looks) for label, look in _looks(place))
        finally:
            local.down(base, cancel=True)
    _inside()
    print(f"dearest look {worst:.0f} us of CPU, budget {BUDGET:.0f} us: {'kept' if worst <= BUDGET else 'BROKEN'}")
    return 0 if worst <= BUDGET else 1


def _job(base: Path) -> locate.Place:
    layout = Layout(base)
    script = b"#!/bin/bash\nfor n in 1 2 3 4; do sleep 600 & done; wait\n"
    env = daemons.clean_environment(layout)
    result = proc.run(
        ["sbatch", "--parsable", "--mem=100M", "--gres=gpu:1"], timeout=30, env=env, cwd=base, input_bytes=script
    )
    job = int(result.stdout.strip())
    deadline = time.monotonic() + 30
    while (place := locate.find(job, node=node_name(base.resolve()))) is None:
        if time.monotonic() > deadline:
            raise SystemExit("no cgroup: this host confines no memory (root is needed)")
        time.sleep(0.1)
    return place


def _looks(place: locate.Place) -> list[tuple[str, Callable[[], object]]]:
    return [
        ("glance (twice a second)", lambda: read.glance(place)),
        ("full look (every 5 s)", lambda: (read.read(place), read.available())),
    ]


def _measure(label: str, look: Callable[[], object], looks: int) -> float:
    """Microseconds of CPU of one look, the median of ten parts."""
    costs, walls = [], []
    for _ in range(10):
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(looks // 10):
            look()
        costs.append((time.process_time() - cpu) / (looks // 10) * 1e6)
        walls.append((time.perf_counter() - wall) / (looks // 10) * 1e6)
    print(f"{label:<28} {statistics.median(costs):7.0f} us CPU   {statistics.median(walls):7.0f} us wall")
    return statistics.median(costs)


def _inside() -> None:
    """The sampler of `gpuq run`: its start and its size."""
    code = (
        "import time; t = time.perf_counter(); import gpuq.usecases.memory.own; "
        "print(time.perf_counter() - t, open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )
    ran = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True) for _ in range(9)]
    times = [float(one.stdout.split()[0]) * 1000 for one in ran]
    size = max(int(one.stdout.split()[1]) for one in ran) / 1024
    print(f"inside a job                 {statistics.median(times):7.1f} ms to import, {size:.1f} MB in all")
    print(f"this process                 {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:7.1f} MB")


if __name__ == "__main__":
    sys.exit(main())
