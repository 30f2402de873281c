"""What the guard's rules look at, and what they say."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec


class Use(StrEnum):
    """How far a run is, as far as editing it matters."""

    IDLE = "idle"
    WAITING = "waiting"
    RUNNING = "running"
    UNKNOWN = "unknown"
    """It may wait or run; Slurm does not answer."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules need to know of the project and the caller."""

    cwd: str
    project: str
    runs: str
    """The runs root; absolute, as the two above."""
    in_job: bool = False
    """The agent itself runs in a Slurm job."""
    remote: bool = False
    """What is judged runs on another machine (ssh): its GPU and its files are not known here."""
    step: bool = False
    """What is judged runs through srun."""
    home: str = ""
    """Where `~` leads; empty: not known."""
    place: Callable[[str], str] = lambda path: path
    """An absolute path, with links followed as far as they lead into the runs root."""
    glob: Callable[[str], Sequence[str]] = lambda _pattern: ()
    """The files (absolute) that a pattern of bash (absolute) stands for."""
    use: Callable[[str], Use] = lambda _tag: Use.IDLE
    """How far the run TAG is."""
    tag: Callable[[str], str | None] = lambda _path: None
    """The TAG of the run that a path (absolute) lies in or is."""
    read: Callable[[str], str | None] = lambda _path: None
    """The text of a file (absolute path), when it is a small one."""
    trained: Callable[[], frozenset[str]] = lambda: frozenset()
    """Paths of the programs that the job.sh of some run starts, relative to the project."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """refused: the rule that was broken, what was wrong, and what to do. Not refused but `doubt`: could not be judged."""

    rule: str = ""
    text: str = ""
    instead: str = ""
    doubt: str = ""

    @property
    def refused(self) -> bool:
        """True when a rule is broken."""
        return bool(self.rule)


def absolute(path: str, scene: Scene) -> str:
    """`path` as seen from where the command runs."""
    return scene.place(posixpath.normpath(posixpath.join(scene.cwd, path)))
