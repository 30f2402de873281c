"""Executables in Slurm's place that print what Slurm 25.11 was recorded to print.

tests/data/slurm/25.11/squeue-fields.json holds, for each recorded job, what squeue printed for each field of a format
(%i, %j, ...), and for jobs that had ended what `scontrol show job` printed for it. Any format can be filled in from that.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests import DATA

RECORDED = DATA / "slurm/25.11"

_SQUEUE = r"""#!{python} -IS
import json, re, sys
STATE, args = {state!r}, sys.argv[1:]
with open(STATE + "/calls", "a") as calls:
    calls.write(" ".join(args).replace("\n", " ") + "\n")
with open(STATE + "/slurm.json") as file:
    slurm = json.load(file)

def give_up(words):
    sys.stderr.write(words + "\n")
    sys.exit(1)

def option(name):
    return args[args.index(name) + 1] if name in args else None

if slurm["away"]:
    give_up("slurm_load_jobs error: " + slurm["away"])
rows = list(slurm["jobs"].values())
if option("--jobs"):
    wanted = [one.split("_")[0] for one in option("--jobs").split(",")]
    rows = [row for row in rows if row["F"] in wanted]
    if not rows:
        give_up("slurm_load_jobs error: Invalid job id specified")
if option("--user"):
    rows = [row for row in rows if row["U"] == option("--user")]
if option("--states") != "all":
    rows = [row for row in rows if row["T"] in ("PENDING", "RUNNING")]
for row in rows:
    if "-O" in args:
        fields = [one.split(":.") for one in option("-O").split(",")]
        line = "".join((row | {{"JobArrayID": row["i"]}})[field].rjust(int(width)) for field, width in fields)
    else:
        line = re.sub("%([A-Za-z])", lambda match: row[match[1]], option("--format"))
    sys.stdout.buffer.write(line.encode("utf-8", "surrogateescape") + b"\n")
"""

_SCONTROL = """#!/bin/sh
if [ -e {state}/away ]; then
  echo "slurm_load_partitions error: $(cat {state}/away)" >&2
  exit 1
fi
case "$*" in
  *config*) printf '%s\\n' 'JobCompLoc = {jobcomp}' 'JobCompType = jobcomp/filetxt' 'SLURM_VERSION = 25.11.2' ;;
  *) cat {partition} ;;
esac
"""

_SINFO = """#!/bin/sh
printf 'gpu\\037n25\\0372\\03720000\\037gpu:1\\037mixed\\037none\\n'
"""


class Replay:
    """The executables in `root`/bin. `jobs`: what they know, by job id; `save` makes a change to it count."""

    def __init__(self, root: Path) -> None:
        self._state = root / "state"
        self.bin = root / "bin"
        self.away = ""
        self.jobs: dict[str, dict[str, str]] = json.loads((RECORDED / "squeue-fields.json").read_text())
        for directory in (self._state, self.bin):
            directory.mkdir(parents=True)
        (self._state / "calls").touch()
        names = {"state": self._state, "jobcomp": RECORDED / "jobcomp.txt"}
        self._program("squeue", _SQUEUE.format(python=sys.executable, state=str(self._state)))
        self._program("scontrol", _SCONTROL.format(partition=RECORDED / "scontrol-show-partition.txt", **names))
        self._program("sinfo", _SINFO)
        self.save()

    def _program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def save(self) -> None:
        """From now on the executables know this."""
        (self._state / "slurm.json").write_text(json.dumps({"away": self.away, "jobs": self.jobs}))
        if self.away:
            (self._state / "away").write_text(self.away)

    @property
    def path(self) -> str:
        """PATH with these programs first."""
        return f"{self.bin}:{os.environ.get('PATH', os.defpath)}"

    @property
    def squeues(self) -> int:
        """How often squeue has been called."""
        return (self._state / "calls").read_bytes().count(b"\n")
