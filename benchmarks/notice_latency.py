"""From the end of a job to the POST that tells of it, at a server on this host.

The end is the job's own last `date`. Beside gpuq watch in the same run: slurmctld's own part (its line in the job completion
file), a loop that runs squeue every second and posts what is gone, and, where it is installed, gflowd of `runqd`, which is
a scheduler of its own and tells of the same commands run by itself.

    python benchmarks/notice_latency.py [--jobs 40] [--runqd DIR]     DIR: where gflowd and gbatch are

Starts an embedded Slurm of its own and takes it down again. The bounds: median 100 ms, p99 1 s.
"""

from __future__ import annotations

import argparse
import http.server
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuq.adapters.filewatch import FileWatch
from gpuq.usecases import local

_NAME = re.compile(rb"(bench-\d+)")
_ID = re.compile(rb'"(?:job_)?id": ?"?(\d+)')


class Ears(http.server.ThreadingHTTPServer):
    """Takes every POST and remembers when it first heard of each job, by the path that was posted to."""

    daemon_threads = True

    def __init__(self) -> None:
        self.heard: dict[str, dict[str, float]] = {}
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, who: str) -> str:
        """Where `who` is to post."""
        return f"http://127.0.0.1:{self.server_address[1]}/api/webhooks/1/{who}"


class Handler(http.server.BaseHTTPRequestHandler):
    """One POST."""

    server: Ears

    def do_POST(self) -> None:
        """Note the time, answer as Discord does."""
        now = time.time()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        who = self.path.split("?")[0].rpartition("/")[2]
        name = _NAME.search(body.replace(b"\\", b""))  # gpuq escapes what Discord would take for markdown
        number = _ID.search(body)
        if name:
            self.server.heard.setdefault(who, {}).setdefault(name[1].decode(), now)
        elif number:  # runqd names the job by its id, the first of which is 1
            self.server.heard.setdefault(who, {}).setdefault(f"bench-{int(number[1]) - 1}", now)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    """Run the jobs, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--runqd", type=Path, help="the directory of gflowd and gbatch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gq", dir="/tmp") as name:
        base = Path(name)
        (base / "home/.config/gpuq").mkdir(parents=True)
        (base / "ends").mkdir()
        ears = Ears()
        rows: dict[str, list[float]] = {}
        local.up(base / "slurm", say=lambda text: print(text, file=sys.stderr))
        try:
            env = environment(base)
            rows |= slurm_jobs(base, env, ears, options.jobs)
        finally:
            local.down(base / "slurm", cancel=True)
        if options.runqd is not None:
            rows |= runqd_jobs(base, ears, options.jobs, options.runqd)
    print(f"{'from the end of a job, in ms':<34} {'n':>4} {'median':>7} {'p90':>7} {'p99':>7} {'max':>7}")
    for who, values in rows.items():
        if not values:
            print(f"{who:<34}    0  heard nothing")
            continue
        values.sort()
        at = [values[min(len(values) - 1, int(len(values) * part))] for part in (0.9, 0.99)]
        figures = (statistics.median(values), *at, values[-1])
        print(f"{who:<34} {len(values):>4} " + " ".join(f"{1e3 * one:>7.1f}" for one in figures))


def environment(base: Path) -> dict[str, str]:
    """A clean one, with directories of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GPUQ_", "SLURM_", "SBATCH_", "XDG_"))}
    return kept | {"SLURM_CONF": str(base / "slurm/slurm.conf"), "HOME": str(base / "home")}


def slurm_jobs(base: Path, env: dict[str, str], ears: Ears, jobs: int) -> dict[str, list[float]]:
    """gpuq and the loop, at the same jobs."""
    config = base / "home/.config/gpuq/config.toml"
    config.write_text(f'[notify.sinks.ears]\ntype = "discord"\nurl = "{ears.url("gpuq")}"\n')
    config.chmod(0o600)
    project = base / "project"
    written: dict[str, float] = {}
    with watcher(base, env), squeue_loop(env, ears), completions(base, written):
        time.sleep(2)
        for number in range(jobs):
            run = project / "runs" / f"bench-{number}"
            run.mkdir(parents=True)
            script = run / "job.sh"
            script.write_text(job(base, "slurm", number))
            script.chmod(0o755)
            subprocess.run(
                [sys.executable, "-m", "gpuq", "submit", f"bench-{number}", "--mem", "100M", "--cpus", "1"],
                env=env, cwd=project, check=True, capture_output=True,
            )  # fmt: skip
        wait(lambda: len(ears.heard.get("gpuq", {})) >= jobs and len(ears.heard.get("loop", {})) >= jobs)
    ends = read_ends(base, "slurm")
    return {
        "slurmctld: its line in the file": [written[name] - end for name, end in ends.items() if name in written],
        "gpuq watch: POST": [ears.heard["gpuq"][name] - end for name, end in ends.items()],
        "squeue every second: POST": [ears.heard["loop"][name] - end for name, end in ends.items()],
    }


def job(base: Path, who: str, number: int) -> str:
    """A job of 0.3 to 1.2 s that notes its own end."""
    seconds = random.Random(number).uniform(0.3, 1.2)
    return f"#!/bin/bash\nsleep {seconds:.3f}\ndate +%s.%N > {base}/ends/{who}-bench-{number}\n"


def read_ends(base: Path, who: str) -> dict[str, float]:
    """When each job ended, by its own clock."""
    return {path.name.removeprefix(f"{who}-"): float(path.read_text()) for path in (base / "ends").glob(f"{who}-*")}


@contextmanager
def watcher(base: Path, env: dict[str, str]) -> Iterator[None]:
    """gpuq watch."""
    (base / "project").mkdir()
    (base / "project/gpuq.toml").touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuq", "watch"], env=env, cwd=base / "project", stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def squeue_loop(env: dict[str, str], ears: Ears) -> Iterator[None]:
    """What people write themselves: squeue every second, and a POST (curl's part done here) for each name that is gone."""
    import urllib.request

    stop = threading.Event()

    def loop() -> None:
        before: set[str] = set()
        while not stop.is_set():
            ran = subprocess.run(["squeue", "-h", "-o", "%j"], env=env, capture_output=True, text=True)
            if ran.returncode == 0:
                now = set(ran.stdout.split())
                for name in before - now:
                    urllib.request.urlopen(ears.url("loop"), data=name.encode()).close()
                before = now
            stop.wait(1)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def completions(base: Path, written: dict[str, float]) -> Iterator[None]:
    """When slurmctld wrote each line, as the kernel tells it."""
    path = base / "slurm/jobcomp.log"
    path.touch()
    place = 0

    def changed() -> None:
        nonlocal place
        now = time.time()
        with path.open("rb") as handle:
            handle.seek(place)
            data = handle.read()
            place += len(data)
        for match in _NAME.finditer(data):
            written.setdefault(match[1].decode(), now)

    files = FileWatch(changed)
    files.watch(path)
    try:
        yield
    finally:
        files.close()


def runqd_jobs(base: Path, ears: Ears, jobs: int, programs: Path) -> dict[str, list[float]]:
    """The same commands in runqd's own queue (it needs tmux)."""
    if shutil.which("tmux") is None or not (programs / "gflowd").exists():
        print("runqd: gflowd or tmux is not installed", file=sys.stderr)
        return {}
    home = base / "runqd"
    home.mkdir()
    config = home / ".config/gflow/gflow.toml"
    config.parent.mkdir(parents=True)
    # it runs a job in a login shell, with its own programs behind it
    (home / ".bash_profile").write_text(f'export PATH="{programs}:$PATH"\n')
    config.write_text(
        '[daemon]\nhost = "127.0.0.1"\nport = 59731\n[notifications]\nenabled = true\n[[notifications.webhooks]]\n'
        f'url = "{ears.url("runqd")}"\nevents = ["job_completed", "job_failed"]\n'
    )
    env = environment(base) | {"HOME": str(home), "TMUX_TMPDIR": str(home), "SHELL": "/bin/bash"}
    daemon = subprocess.Popen(
        [programs / "gflowd"],
        env=env,
        cwd=home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(2)
        for number in range(jobs):
            script = home / f"job{number}.sh"
            script.write_text(job(base, "runqd", number))
            script.chmod(0o755)
            subprocess.run(
                [programs / "gbatch", "--name", f"bench-{number}", script],
                env=env, cwd=home, check=True, capture_output=True,
            )  # fmt: skip
            wait(lambda number=number: f"bench-{number}" in read_ends(base, "runqd"), 20)
        wait(lambda: len(ears.heard.get("runqd", {})) >= jobs, 15)
    finally:
        daemon.terminate()
        daemon.wait()
        subprocess.run(["tmux", "kill-server"], env=env, stderr=subprocess.DEVNULL)
    heard = ears.heard.get("runqd", {})
    return {"runqd (gflowd): POST": [heard[n] - end for n, end in read_ends(base, "runqd").items() if n in heard]}


def wait(ask: object, seconds: float = 180) -> None:
    """Poll until it is true, or the time is over."""
    assert callable(ask)
    deadline = time.monotonic() + seconds
    while not ask() and time.monotonic() < deadline:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
