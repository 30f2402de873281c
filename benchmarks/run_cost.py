"""What `gpuq run` costs a job: at the start, per line of output, and in memory.

The same programs are run bare and under `gpuq run`, in turns, so that whatever else the machine does hits them alike. The
difference of the medians is what to look at. Outside of Slurm, without a GPU: START, pass the output on, the last line.

    python benchmarks/run_cost.py [--rounds 20] [--lines 200000]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

GPUQ = Path(sysconfig.get_path("scripts")) / "gpuq"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--lines", type=int, default=200_000)
    options = parser.parse_args()
    wrapped = [str(GPUQ), "run", "--"]
    print(f"{'median of ' + str(options.rounds):28} {'bare':>10} {'gpuq run':>10} {'difference':>12}")
    bare, under = alternately(["true"], wrapped, options.rounds)
    row("start and end, ms", bare * 1e3, under * 1e3, (under - bare) * 1e3, 1)
    python, _ = alternately([sys.executable, "-c", ""], [], options.rounds)
    print(f"{'  of this Python itself, ms':28} {python * 1e3:10.1f}")
    lines = f"for i in range({options.lines}): print('step', i, 'loss 0.123456 lr 0.0003 time 0.25s', flush=True)"
    bare, under = alternately([sys.executable, "-c", lines], wrapped, max(3, options.rounds // 5))
    scale = 1e6 / options.lines
    row("a line, µs", bare * scale, under * scale, (under - bare) * scale, 2)
    print(f"{'memory (VmRSS), MiB':28} {'':>10} {resident() / 1024:10.1f}")


def alternately(argv: list[str], wrapper: list[str], rounds: int) -> tuple[float, float]:
    """Medians of the seconds that `argv` takes, bare and behind `wrapper`."""
    taken: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryFile() as sink:
        for _ in range(rounds + 1):
            for place, command in zip(taken, (argv, [*wrapper, *argv]), strict=True):
                begun = time.perf_counter()
                subprocess.run(command, stdout=sink, stderr=sink, check=True)
                place.append(time.perf_counter() - begun)
    return statistics.median(taken[0][1:]), statistics.median(taken[1][1:])


def row(name: str, bare: float, under: float, difference: float, digits: int) -> None:
    """One line of the table."""
    print(f"{name:28} {bare:10.{digits}f} {under:10.{digits}f} {difference:12.{digits}f}")


def resident() -> int:
    """KiB of `gpuq run` beside a program, in a job that watches its own memory."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "slurm").mkdir()
        env = {**os.environ, "SLURM_JOB_ID": "1", "GPUQ_RUN_DIR": place, "GPUQ_ATTEMPT": "1"}
        argv = [str(GPUQ), "run", "--", "sh", "-c", "echo ready; exec sleep 60"]
        process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE)
        assert process.stdout is not None
        while process.stdout.readline() != b"ready\n":
            pass
        time.sleep(1.5)  # it begins to watch the memory once the program runs
        status = Path(f"/proc/{process.pid}/status").read_text()
        process.terminate()
        process.communicate()
    return int(status.split("VmRSS:")[1].split()[0])


if __name__ == "__main__":
    main()
