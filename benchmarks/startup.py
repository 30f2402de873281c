"""What each command imports before it does anything: modules, and milliseconds.

    python benchmarks/startup.py [--rounds 10]

Needs no Slurm. For each command the command line `gpuq COMMAND --help` is read as click reads it, with everything that
the command's module imports; `gpuq submit`, `gpuq queue` and `gpuq status` are read without click as long as nothing is
wrong with them, and of those the imports up to their first question to Slurm are shown as well. Each figure is the
median of processes of their own, started in turns, whose modules are compiled already. The interpreter's own start is
not in it; it is the first line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from gpuq.cli.main import COMMANDS

CHILD = """
import gc, sys, time
gc.disable()
before, started = set(sys.modules), time.perf_counter()
def report():
    milliseconds = (time.perf_counter() - started) * 1e3
    import json, os
    print("@" + json.dumps([milliseconds, len(set(sys.modules) - before - {"json", "json.decoder", "json.scanner",
        "json.encoder"})]), flush=True)
    os._exit(0)
sys.addaudithook(lambda event, args: report() if event == "subprocess.Popen" else None)
from gpuq.cli.main import _run
_run(sys.argv[1:])
report()
"""
"""Reports when the command is done, or starts its first program."""

PLAIN = (("submit", "no-such-run"), ("queue",), ("status", "no-such-run"))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="how often each command is started")
    options = parser.parse_args()
    lines = [("--help",), *((name, "--help") for name in COMMANDS), *PLAIN]
    found: dict[tuple[str, ...], list[tuple[float, int]]] = {line: [] for line in lines}
    bare = []
    with tempfile.TemporaryDirectory() as place:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("GPUQ_", "SLURM_"))}
        env |= {
            "PYTHONPYCACHEPREFIX": f"{place}/bytecode",
            "SLURM_CONF": "/dev/null",
            "PYTHONPATH": sys.path[0] + "/..",
        }
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(options.rounds + 1):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", "pass"], env=env, check=True)
            bare.append((time.perf_counter() - started) * 1e3)
            for line in lines:
                ran = subprocess.run(
                    [sys.executable, "-c", CHILD, *line],
                    env=env,
                    cwd=place,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if number:  # the first round compiles
                    milliseconds, modules = json.loads(ran.stdout.rsplit("@", 1)[1])
                    found[line].append((milliseconds, modules))
    print(f"{options.rounds} rounds in turns; the interpreter itself: {statistics.median(bare):.1f} ms")
    for line, values in found.items():
        milliseconds, modules = statistics.median(value for value, _ in values), values[0][1]
        print(f"  gpuq {' '.join(line):<24} {milliseconds:6.1f} ms   {modules:4} modules")


if __name__ == "__main__":
    main()
