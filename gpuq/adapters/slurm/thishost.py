"""What Slurm says of this host alone: which of its nodes it is, and the processes of the jobs on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuq.adapters import proc
from gpuq.adapters.slurm.locate import Location, environment_for
from gpuq.core.gpu.owner import read_listpids, read_node_hosts
from gpuq.core.inherited import scrub

TIMEOUT = 15.0
"""Seconds. Slurm's own commands give up after MessageTimeout (10 s) and a few retries."""


def nodes(location: Location, environment: Mapping[str, str], host: str) -> frozenset[str] | None:
    """Names of the nodes that are this host; None: Slurm gives no answer. `host`: its short name."""
    text = _ask(["scontrol", "--all", "show", "node"], location, environment)
    if text is None:
        return None
    return frozenset(node for node, where in read_node_hosts(text).items() if where.split(".", 1)[0] == host)


def listpids(location: Location, environment: Mapping[str, str]) -> dict[int, int]:
    """The job of each process that a living slurmstepd looks after. What it does not list is not thereby in no job."""
    return read_listpids(_ask(["scontrol", "listpids"], location, environment) or "")


def parts(location: Location, environment: Mapping[str, str]) -> dict[str, int]:
    """The job id that slurmd and cgroups know each running task of an array and component of a heterogeneous job by, by the
    id that squeue shows (`12_3`, `12+1`). Empty where Slurm gives no answer."""
    argv = "squeue --noheader --all --array --states running,completing -O JobArrayID:.200,JobID:.20".split()
    found = {}
    for line in (_ask(argv, location, environment) or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isdecimal():
            found[words[0]] = int(words[1])
    return found


def _ask(argv: Sequence[str], location: Location, environment: Mapping[str, str]) -> str | None:
    env = scrub(environment) | environment_for(location) | {"LC_ALL": "C"}
    try:
        result = proc.run(argv, timeout=TIMEOUT, env=env)
    except (proc.ProgramMissing, proc.ProgramTimeout, OSError):
        return None
    return result.stdout if result.ok else None
