"""Slurm's commands, started before anybody needs their answer.

While they run, `gpuq submit` imports what it will need afterwards. So this module imports next to nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from gpuq.adapters import proc
from gpuq.adapters.slurm.locate import Location, environment_for
from gpuq.core.inherited import scrub

READ_TIMEOUT = 30.0
"""Seconds. Slurm's own commands give up after MessageTimeout (10 s) and a few retries."""

UNIT = "\x1f"
"""Separates the fields that Slurm itself makes; none of them holds a control character."""

_CLOSED = "%i %F %T %P %V %S %e %l %M %m %C %y %Q %N %U %u %b %E %r".split()
"""In the order in which `gpuq.adapters.slurm.parse` takes them."""
FREE = "%k %Z %j".split()
NODE_FORMAT = UNIT.join(["%R", "%N", "%c", "%m", "%G", "%T", "%E"])


def new_mark() -> str:
    """What text in a queue cannot hold, because nobody has seen it."""
    return f"\x1e{os.urandom(4).hex()}"


def queue_format(mark: str) -> str:
    """The squeue format whose output `parse_queue` reads. `mark`: random for each call."""
    return mark + UNIT.join(_CLOSED) + mark + mark.join(FREE) + mark


def reading(location: Location, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command that only reads."""
    # Seconds since 1970 know no daylight saving (slurm.conf(5) does not say it: any strftime(3) format works).
    # UTC makes no difference to them, but a third of squeue's time with 10,000 jobs would go into mktime(3).
    own = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C"}
    return scrub(environment) | environment_for(location) | own


def is_readable(location: Location) -> bool:
    """False where Slurm's commands would look for a controller in the DNS, and say nothing for half a minute."""
    return location.conf is None or os.access(location.conf, os.R_OK)


class Asked:
    """Several commands at once: who asks waits for the slowest only.

    error: what kept the command `failed` from being started (ProgramMissing, OSError). Where slurm.conf cannot be read,
    nothing is started, and there is no error either.
    """

    def __init__(self, commands: Sequence[Sequence[str]], location: Location, environment: Mapping[str, str]) -> None:
        self.running: list[proc.Running] = []
        self.error: Exception | None = None
        self.failed = ""
        if not is_readable(location):
            return
        env = reading(location, environment)
        try:
            for argv in commands:
                self.failed = argv[0]
                self.running.append(proc.start(argv, timeout=READ_TIMEOUT, env=env))
        except (proc.ProgramMissing, OSError) as error:
            self.error = error

    def drop(self) -> None:
        """The answers are not wanted any more."""
        for running in self.running:
            running.drop()


class AskedOffer(Asked):
    """What there is to ask for: partitions, and a row for each node in each of them. --all: hidden ones exist too."""

    def __init__(self, location: Location, environment: Mapping[str, str]) -> None:
        commands = (
            ["scontrol", "--all", "show", "partition"],
            ["sinfo", "--all", "--noheader", "--Node", "-o", NODE_FORMAT],
        )
        super().__init__(commands, location, environment)


class AskedQueue(Asked):
    """The queue of user `uid` (None: everybody's), with `ended` also what has ended."""

    def __init__(
        self, location: Location, environment: Mapping[str, str], *, uid: int | None, ended: bool = True
    ) -> None:
        self.uid = uid
        self.ended = ended
        self.mark = new_mark()
        argv = ["squeue", "--noheader", "--all", "--format", queue_format(self.mark)]
        if uid is not None:
            argv += ["--user", str(uid)]
        if ended:
            argv += ["--states", "all"]
        super().__init__([argv], location, environment)
