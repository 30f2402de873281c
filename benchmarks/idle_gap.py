"""How long the GPU idles between two jobs: under Slurm as it is by default, under ours, and under two other queues.

The gap is from the last moment of one job to the first of the next, by the jobs' own clocks. Four queues are measured
in one run, in turns, with jobs of the same random lengths (0.3-1.3 s), so that whatever else the machine does hits them
alike and no queue's own tick is favoured:

- `default`: Slurm with what slurm.conf must say and nothing more;
- `ours`: the configuration that `gpuq local` and `gpuq host plan` write;
- `task-spooler` (Debian's package of that name, `tsp`) and `runqd` (PyPI; it brings `gflowd` and `gbatch`, and needs
  tmux), each left out, and said so, where it is not installed.

Each job waits for the one before (a chain by `afterany`, or what comes closest), or all are independent and queue for
the one GPU. Then the same for the two Slurms with many more jobs waiting behind.

    python benchmarks/idle_gap.py [--rounds 3] [--jobs 6] [--waiting 2000] [--runqd DIR-OF-GFLOWD]

Run it on a machine that does nothing else: a job's start and end take some twenty processes, and where each takes ten
times as long, so does the gap. Beside other work `chrt -f 1` in front of it comes close.

Exit status 1 when ours is not below 100 ms at the 90th percentile everywhere, or less than 20 times below the default.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuq.adapters.embedded.state import Options
from gpuq.usecases import local

LIMIT_MS = 100
TIMES = 20

KEPT = (
    "ClusterName SlurmctldHost SlurmUser SlurmdUser SlurmctldPort SlurmdPort AuthType CredType AuthInfo "
    "CommunicationParameters StateSaveLocation SlurmdSpoolDir SlurmctldPidFile SlurmdPidFile SlurmctldLogFile "
    "SlurmdLogFile SelectType SelectTypeParameters GresTypes ProctrackType TaskPlugin ReturnToService MinJobAge NodeName"
).split()
"""What a slurm.conf for one host with one GPU has to say (MinJobAge apart, by which ended jobs stay visible)."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rounds", type=int, default=3, help="turns of each queue, for chains and for independent jobs"
    )
    parser.add_argument("--jobs", type=int, default=6, help="jobs in a turn; there is a gap before and after each")
    parser.add_argument("--waiting", type=int, default=2000, help="jobs that wait behind in the second part")
    parser.add_argument("--runqd", type=Path, help="where gflowd and gbatch are, when not on PATH")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gq", dir="/tmp")))
        default, ours = Slurm(base / "d", plain=True), Slurm(base / "o", plain=False)
        queues: list[Queue] = [default, ours, TaskSpooler(base / "t"), Runqd(base / "r", options.runqd)]
        for queue in list(queues):
            if missing := queue.missing():
                _say(f"{queue.name} is left out: {missing}")
                queues.remove(queue)
                continue
            stack.callback(queue.stop)
            queue.start()
        spawns: list[float] = []
        results: dict[tuple[str, str], list[float]] = {}
        _turns(queues, options.rounds, options.jobs, "", results, spawns)
        for slurm in (default, ours):
            slurm.fill(options.waiting)
        _turns([default, ours], options.rounds, options.jobs, f", {options.waiting} more waiting", results, spawns)
    # What is in every gap, and grows with whatever else the machine does.
    print(
        f"a process of its own (true), meanwhile: median {statistics.median(spawns):.1f} ms, max {max(spawns):.0f} ms"
    )
    sys.exit(_report(results))


def _turns(
    queues: list[Queue],
    rounds: int,
    jobs: int,
    label: str,
    results: dict[tuple[str, str], list[float]],
    spawns: list[float],
) -> None:
    for number in range(rounds):
        for chain, kind in ((True, "chain"), (False, "independent")):
            lengths = [random.uniform(0.3, 1.3) for _ in range(jobs)]
            for queue in queues:
                _say(f"turn {number + 1} of {rounds}{label}: {kind}, {queue.name}")
                for _ in range(10):
                    before = time.perf_counter()
                    subprocess.run(["true"], check=True)
                    spawns.append((time.perf_counter() - before) * 1e3)
                results.setdefault((kind + label, queue.name), []).extend(queue.gaps(lengths, chain=chain))


def _report(results: dict[tuple[str, str], list[float]]) -> int:
    bad = 0
    kinds = list(dict.fromkeys(kind for kind, _ in results))
    print("idle GPU between two jobs, ms")
    for kind in kinds:
        print(f"  {kind}")
        medians = {
            name: statistics.median(values) for (this, name), values in results.items() if this == kind and values
        }
        for name in medians:
            values = results[kind, name]
            cut = statistics.quantiles(values, n=10)
            print(
                f"    {name:<13} n {len(values):3}   median {medians[name]:7.0f}   p10 {cut[0]:7.0f}   "
                f"p90 {cut[-1]:7.0f}   max {max(values):7.0f}"
            )
        ratio = medians["default"] / medians["ours"]
        p90 = statistics.quantiles(results[kind, "ours"], n=10)[-1]
        fine = p90 < LIMIT_MS and ratio >= TIMES
        bad += not fine
        print(f"    ours: p90 {p90:.0f} ms, {ratio:.0f} times below the default{'' if fine else '   NOT GOOD ENOUGH'}")
    return 1 if bad else 0


class Queue:
    """A queue in front of one GPU. Jobs write their first and last moment into files."""

    name = ""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.count = 0
        self.env = dict(os.environ)

    def missing(self) -> str:
        """What is not installed; empty when all is there."""
        return ""

    def start(self) -> None:
        """Start its daemons, and a first job that occupies the GPU."""
        self.base.mkdir(parents=True, exist_ok=True)
        self.prepare()
        self.plug = self.submit(None, None)
        _until(self.plug.with_suffix(".start").exists, f"{self.name}: the first job")

    def prepare(self) -> None:
        """Start its daemons."""

    def stop(self) -> None:
        """Stop everything it started."""

    def gaps(self, lengths: list[float], *, chain: bool) -> list[float]:
        """Queue jobs of these lengths behind the one that occupies the GPU, then one that occupies it again; let go.

        Returns the gaps in ms.
        """
        files = [self.plug]
        for length in [*lengths, None]:
            files.append(self.submit(length, files[-1] if chain else None))
        time.sleep(1.5)  # what a submission sets in motion is over
        files[0].with_suffix(".go").touch()
        self.plug = files[-1]
        _until(self.plug.with_suffix(".start").exists, f"{self.name}: the last job of a turn")
        moments = [(_moment(file.with_suffix(".start")), file) for file in files]
        in_order = [file for _, file in sorted(moments, key=lambda pair: pair[0])]
        return [
            (_moment(after.with_suffix(".start")) - _moment(before.with_suffix(".end"))) * 1e3
            for before, after in itertools.pairwise(in_order)
        ]

    def submit(self, length: float | None, after: Path | None) -> Path:
        """Queue a job of `length` seconds (None: until its .go file is there). after: the job to wait for."""
        self.count += 1
        file = self.base / f"job{self.count}"
        work = f"sleep {length:.2f}" if length is not None else f"while [ ! -e {file}.go ]; do sleep 0.02; done"
        script = file.with_suffix(".sh")
        # Renamed, so that a file that is there has its line in it.
        stamp = "date +%s.%N >{0}.new && mv {0}.new {0}"
        script.write_text(f"#!/bin/sh\n{stamp.format(f'{file}.start')}\n{work}\n{stamp.format(f'{file}.end')}\n")
        script.chmod(0o755)
        self.put(script, file, after)
        return file

    def put(self, script: Path, file: Path, after: Path | None) -> None:
        """Hand `script` to the queue."""
        raise NotImplementedError

    def run(self, *argv: str, timeout: float = 60) -> str:
        """Standard output of a command that must succeed."""
        done = subprocess.run(
            argv, env=self.env, cwd=self.base, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=timeout,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{shlex.join(argv)} failed: {done.stderr or done.stdout}")
        return done.stdout


class Slurm(Queue):
    """An embedded Slurm; plain: brought down to what a slurm.conf must say."""

    def __init__(self, base: Path, *, plain: bool) -> None:
        super().__init__(base)
        self.name = "default" if plain else "ours"
        self.plain = plain
        self.ids: dict[Path, str] = {}

    def prepare(self) -> None:
        """Start it."""
        local.up(self.base / "slurm", Options(simulate_gpu=True))
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("GPUQ_", "SLURM_", "SBATCH_"))}
        self.env = kept | local.environment(self.base / "slurm")
        if self.plain:
            conf = self.base / "slurm" / "slurm.conf"
            lines = [line for line in conf.read_text().splitlines() if line.partition("=")[0] in KEPT]
            node = re.search(r"^NodeName=(\S+)", "\n".join(lines), re.MULTILINE)
            assert node is not None
            conf.write_text(
                "\n".join([*lines, f"PartitionName=gpu Nodes={node[1]} Default=YES MaxTime=08:00:00"]) + "\n"
            )
            self.run("scontrol", "reconfigure")
            time.sleep(2)
            shown = self.run("scontrol", "show", "config")
            assert re.search(r"^Epilog\s*= \(null\)", shown, re.MULTILINE), "the Epilog is still there"

    def stop(self) -> None:
        """Stop it, and cancel what is left."""
        local.down(self.base / "slurm", cancel=True)

    def put(self, script: Path, file: Path, after: Path | None) -> None:
        """Submit it."""
        dependency = [f"--dependency=afterany:{self.ids[after]}"] if after is not None else []
        self.ids[file] = self.run(
            "sbatch", "--parsable", "--gres=gpu:1", "-c1", "--mem=50", "-t60", "-o/dev/null", *dependency, str(script)
        ).strip()

    def fill(self, jobs: int) -> None:
        """Queue so many jobs that come after all others."""
        _say(f"{self.name}: {jobs} more jobs")
        line = "sbatch --parsable --gres=gpu:1 -c1 --mem=50 -t60 -o/dev/null --nice=1000000 --wrap true >/dev/null"
        self.run("bash", "-ec", f"for ((n = 0; n < {jobs}; n++)); do {line}; done", timeout=600)


class TaskSpooler(Queue):
    """tsp with its one slot."""

    name = "task-spooler"

    def missing(self) -> str:
        """Whether tsp is here."""
        return "" if shutil.which("tsp") else "apt-get install task-spooler"

    def prepare(self) -> None:
        """A server of its own, by its own socket; the first job starts it."""
        self.env |= {"TS_SOCKET": str(self.base / "socket"), "TMPDIR": str(self.base)}

    def stop(self) -> None:
        """End the job that occupies the slot, and the server."""
        self.plug.with_suffix(".go").touch()
        self.run("tsp", "-w")
        self.run("tsp", "-K")

    def put(self, script: Path, file: Path, after: Path | None) -> None:  # noqa: ARG002  # it needs no ids
        """Queue it; -d is its word for a job that waits for the one before."""
        self.run("tsp", *(["-d"] if after is not None else []), str(script))


class Runqd(Queue):
    """gflowd: a GPU it does not see cannot be asked for, so independent jobs are held to one at a time."""

    name = "runqd"

    def __init__(self, base: Path, place: Path | None) -> None:
        super().__init__(base)
        path = os.environ.get("PATH", "")
        self.path = f"{place}:{path}" if place else path
        self.ids: dict[Path, str] = {}

    def missing(self) -> str:
        """Whether its programs are here."""
        found = all(shutil.which(program, path=self.path) for program in ("gflowd", "gbatch", "tmux"))
        return "" if found else "pip install runqd (in an environment of its own; see --runqd), apt-get install tmux"

    def prepare(self) -> None:
        """A daemon and a tmux server of its own."""
        home = str(self.base)
        (self.base / ".bash_profile").write_text(f"export PATH={shlex.quote(self.path)}\n")  # tmux starts login shells
        self.env = {k: v for k, v in self.env.items() if k != "TMUX"}
        self.env |= {name: home for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")}
        self.env |= {"TMUX_TMPDIR": home, "TERM": "xterm", "PATH": self.path, "SHELL": "/bin/bash"}
        self.run("gflowd", "up")
        _until(lambda: self._answers("ginfo"), "gflowd")

    def _answers(self, program: str) -> bool:
        return subprocess.run([program], env=self.env, capture_output=True, check=False).returncode == 0

    def stop(self) -> None:
        """Everything of it is in its tmux."""
        self.plug.with_suffix(".go").touch()
        subprocess.run(["gflowd", "down"], env=self.env, capture_output=True, check=False)
        subprocess.run(["tmux", "kill-server"], env=self.env, capture_output=True, check=False)

    def gaps(self, lengths: list[float], *, chain: bool) -> list[float]:
        """Only chains: it runs independent jobs side by side as long as it counts no GPU."""
        return super().gaps(lengths, chain=True) if chain else []

    def put(self, script: Path, file: Path, after: Path | None) -> None:
        """Submit it."""
        dependency = ["--no-auto-cancel", "-d", self.ids[after]] if after is not None else []
        said = self.run("gbatch", "--auto-close", *dependency, str(script))
        number = re.search(r"batch job (\d+)", said)
        assert number is not None, said
        self.ids[file] = number[1]


def _moment(file: Path) -> float:
    return float(file.read_text())


def _until(true: object, what: str, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.05)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
