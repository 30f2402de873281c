"""Executables in Slurm's place, for faults that no real Slurm can be brought to show.

They know one partition, one node with one GPU, and the jobs that were submitted. What works on a real Slurm is
tested on a real one (tests/live); this is for wrong, lost and strange answers only.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec

PROGRAMS = ("sbatch", "scancel", "scontrol", "sinfo", "squeue")

_PROGRAM = r"""#!{python} -IS
import json, os, re, sys
STATE = {state!r}
name, args = os.path.basename(sys.argv[0]), sys.argv[1:]
# gpuq asks several of them at one time, and ends those that it does not need: one line is one write
calls = os.open(STATE + "/calls", os.O_WRONLY | os.O_APPEND)
os.write(calls, (json.dumps([name, args, dict(os.environ)]) + "\n").encode())
os.close(calls)
def save(jobs):
    new = STATE + "/jobs." + str(os.getpid())
    with open(new, "w") as file:
        json.dump(jobs, file)
    os.replace(new, STATE + "/jobs")
try:
    fault = json.load(open(STATE + "/" + name + ".fault"))
except FileNotFoundError:
    fault = None

def answer():
    jobs = json.load(open(STATE + "/jobs"))
    option = lambda key, default="": next((a.split("=", 1)[1] for a in args if a.startswith(key + "=")), default)
    if name == "sbatch":
        number = str(len(jobs) + 1)
        jobs[number] = dict(comment=option("--comment"), name=option("--job-name"), gres=option("--gres"), state="PENDING")
        save(jobs)
        return number + "\n"
    if name == "scancel":
        jobs[args[0]]["state"] = "CANCELLED"
        save(jobs)
        return ""
    if name == "scontrol":
        return open(STATE + "/partition").read() if "partition" in args else open(STATE + "/config").read()
    if name == "sinfo":
        return "\x1f".join(["gpu", "n1", "20", "15867", "gpu:1", "idle", "none"]) + "\n"
    if "--jobs" in args:
        number = args[args.index("--jobs") + 1]
        jobs = {{number: jobs[number]}} if number in jobs else None
    if jobs is None:
        sys.stderr.write("slurm_load_jobs error: Invalid job id specified\n")
        sys.exit(1)
    if "-O" in args:
        return "".join("0 0\n" for _ in jobs)
    out = ""
    for number, job in jobs.items():
        values = dict(
            i=number, F=number, T=job["state"], P="gpu", V="1795958639", S="N/A", e="N/A", l="8:00:00", M="0:00", m="2G",
            C="1", y="0", Q="10", N="", U=str(os.getuid()), u="me", b=job["gres"].replace("gpu", "gres/gpu") or "N/A",
            E="(null)", r="Priority", k=job["comment"], Z="/", j=job["name"],
        )
        out += re.sub("%([A-Za-z])", lambda m: values[m[1]], args[args.index("--format") + 1]) + "\n"
    return out

if fault is None or fault["works"]:
    out = answer()
if fault is None:
    sys.stdout.write(out)
    sys.exit(0)
sys.stdout.buffer.write(fault["stdout"].encode("utf-8", "surrogateescape"))
sys.stderr.write(fault["stderr"])
sys.stdout.flush()
if fault["signal"]:
    os.kill(os.getpid(), fault["signal"])
sys.exit(fault["code"])
"""


_CONFIG = "ClusterName = fake\n{}\nSLURM_VERSION = 25.11.2\n"


class Call(msgspec.Struct, frozen=True, array_like=True):
    """One call of a program."""

    program: str
    args: list[str]
    environment: dict[str, str]


class FakeSlurm:
    """The executables in `root`/bin and what they remember."""

    def __init__(self, root: Path, partition: str) -> None:
        self._state = root / "state"
        self.bin = root / "bin"
        for directory in (self._state, self.bin):
            directory.mkdir(parents=True)
        (self._state / "jobs").write_text("{}")
        (self._state / "calls").touch()
        (self._state / "partition").write_text(partition)
        (self._state / "config").write_text(_CONFIG.format("JobCompType = jobcomp/none"))
        for program in PROGRAMS:
            path = self.bin / program
            path.write_text(_PROGRAM.format(python=sys.executable, state=str(self._state)))
            path.chmod(0o755)

    @property
    def path(self) -> str:
        """PATH with these programs first."""
        return f"{self.bin}:{os.environ.get('PATH', os.defpath)}"

    def fault(
        self, program: str, *, stdout: str = "", stderr: str = "", code: int = 0, signal: int = 0, works: bool = False
    ) -> None:
        """From now on `program` answers like this. works: it does what it was asked for all the same."""
        fault = {"stdout": stdout, "stderr": stderr, "code": code, "signal": signal, "works": works}
        (self._state / f"{program}.fault").write_text(json.dumps(fault))

    def mend(self, program: str) -> None:
        """From now on `program` answers as it should."""
        (self._state / f"{program}.fault").unlink()

    def calls(self, program: str) -> list[Call]:
        """Every call of `program` until now."""
        lines = (self._state / "calls").read_text().splitlines()
        return [call for line in lines if (call := msgspec.json.decode(line, type=Call)).program == program]

    def has(self, jobs: dict[str, dict[str, str]]) -> None:
        """From now on Slurm knows these jobs, and no other."""
        (self._state / "jobs").write_text(json.dumps(jobs))

    def keeps(self, jobcomp: Path) -> None:
        """From now on Slurm says that it writes ended jobs down in `jobcomp`."""
        (self._state / "config").write_text(
            _CONFIG.format(f"JobCompLoc              = {jobcomp}\nJobCompType = jobcomp/filetxt")
        )

    def jobs(self) -> dict[str, dict[str, str]]:
        """The jobs that were accepted."""
        found: dict[str, dict[str, str]] = json.loads((self._state / "jobs").read_text())
        return found
