"""What it costs to make gpuq's jobs of what either backend gives: squeue's rows, and PySlurm's objects.

    python benchmarks/backends.py [--rounds 7] [--jobs 10 2000 10000]

Needs neither Slurm nor PySlurm: the rows and the objects are those recorded on Slurm 25.11 that the tests use, repeated.
Reading an attribute of a real object makes a Python value of a C one, which takes longer than it does here. What PySlurm
itself takes to fetch the queue is not in the figures, nor what squeue takes; benchmarks/overhead.py measures both, where
they are.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the recordings are among the tests

from gpuq.adapters.slurm import parse
from gpuq.adapters.slurm.ahead import queue_format
from gpuq.adapters.slurm.pyslurm import Unclear, to_job
from gpuq.core.job import Job
from tests.contract.replay import RECORDED
from tests.contract.standin import StandIn

MARK = "\x1e00000000"


def main() -> None:
    """Measure and print a line for each length of the queue."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="how often each is timed")
    parser.add_argument("--jobs", type=int, nargs="+", default=[10, 2000, 10000], help="lengths of the queue")
    options = parser.parse_args()
    gc.disable()  # as in gpuq
    rows_of_squeue, objects = _rows(), _objects()
    for jobs in options.jobs:
        text = "".join(rows_of_squeue[n % len(rows_of_squeue)] for n in range(jobs))
        raw = [objects[n % len(objects)] for n in range(jobs)]
        rows = _timed(options.rounds, partial(parse.parse_queue, text, MARK))
        mapped = _timed(options.rounds, partial(_map, raw))
        print(f"{jobs:6} jobs   squeue's rows {rows:7.1f} ms   PySlurm's objects {mapped:7.1f} ms")


def _rows() -> list[str]:
    """What squeue prints for each recorded job."""
    recorded: dict[str, dict[str, str]] = json.loads((RECORDED / "squeue-fields.json").read_text())
    line = queue_format(MARK) + "\n"
    return [re.sub("%([A-Za-z])", lambda match, job=job: job[match[1]], line) for job in recorded.values()]  # type: ignore[misc]


def _map(objects: list[Any]) -> list[Job]:
    users: dict[int, str] = {}
    return [to_job(one, users) for one in objects]


def _objects() -> list[Any]:
    """The recorded jobs that PySlurm shows rightly; for the others squeue is asked."""
    library = StandIn()
    found = []
    for number in library.jobs:
        with contextlib.suppress(Unclear):
            raw = library.raw(number)
            to_job(raw, {})
            found.append(SimpleNamespace(**raw.values))
    return found


def _timed(rounds: int, work: Callable[[], object]) -> float:
    """Milliseconds, the median."""
    found = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        found.append((time.perf_counter() - started) * 1e3)
    return statistics.median(found)


if __name__ == "__main__":
    main()
