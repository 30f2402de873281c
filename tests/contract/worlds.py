"""The worlds in which every backend has to say the same: a live Slurm, and what one was recorded to say."""

from __future__ import annotations

import abc
import os
from enum import Enum, auto
from pathlib import Path

import pytest

from gpuq.core.ports import Slurm
from tests.contract.replay import Replay
from tests.contract.standin import RPCError, StandIn
from tests.embedded import Embedded
from tests.gpuq_cli import ROOT, foreign_job

AWAY = "Unable to contact slurm controller (connect failure)"


class Kind(Enum):
    """What a job can be like."""

    RUNNING = auto()
    WAITING = auto()
    HELD = auto()
    DEPENDENT = auto()
    """On the running one."""
    NEVER = auto()
    """It waits for the success of the failed one."""
    ARRAY = auto()
    """Tasks 1 to 3, one at a time, none of them started."""
    TASKS = auto()
    """An array whose tasks 0 and 1 have ended."""
    TOGETHER = auto()
    """A heterogeneous job of two components."""
    TOO_LONG = auto()
    """It asks for more time than the partition allows, or has been given it."""
    NICE = auto()
    """By 100; an hour."""
    GPUS = auto()
    """It asks with `--gpus=1`, which no per-node GRES shows."""
    CPU_ONLY = auto()
    LATER = auto()
    """Not before an hour has passed."""
    COMPLETED = auto()
    FAILED = auto()
    """With exit code 3."""
    SIGNALLED = auto()
    """By a segmentation fault."""
    OUT_OF_MEMORY = auto()
    CANCELLED = auto()
    """Before it began."""
    FOREIGN = auto()
    """Another user's, who is called nobody."""


class World(abc.ABC):
    """A Slurm with jobs, and the backend that is asked about them."""

    client: Slurm
    uid: int
    """Of the user that everything belongs to."""
    too_long: int
    """Seconds: the time limit of TOO_LONG."""

    @abc.abstractmethod
    def job(self, kind: Kind) -> int:
        """The id of a job of that kind; always the same one. Skips the test where there can be none."""

    @abc.abstractmethod
    def named(self, name: str, comment: str) -> int:
        """The id of a held job with that name and comment; any bytes but NUL."""

    @abc.abstractmethod
    def lose_controller(self) -> None:
        """slurmctld is gone."""


# -- live ------------------------------------------------------------------------------------------------------

_ASK = ("--mem=100M", "--cpus-per-task=1")
_GPU = "--gres=gpu:1"

_MADE: dict[Kind, tuple[str, tuple[str, ...], str]] = {
    Kind.RUNNING: ("sleep 600", (_GPU,), "RUNNING"),
    Kind.WAITING: ("true", (_GPU,), "PENDING"),
    Kind.HELD: ("true", (_GPU, "--hold"), "PENDING"),
    Kind.DEPENDENT: ("true", (_GPU, "--dependency=afterok:{RUNNING}"), "PENDING"),
    Kind.NEVER: ("true", (_GPU, "--dependency=afterok:{FAILED}"), "PENDING"),
    Kind.ARRAY: ("true", (_GPU, "--hold", "--array=1-3%1"), "PENDING"),
    Kind.TASKS: ('[ "$SLURM_ARRAY_TASK_ID" = 0 ] || exit 3', ("--array=0-1",), ""),
    Kind.TOGETHER: ("#SBATCH hetjob\n#SBATCH --mem=100M --cpus-per-task=1\ntrue", ("--hold",), "PENDING"),
    Kind.TOO_LONG: ("true", (_GPU, "--hold"), "PENDING"),
    Kind.NICE: ("true", (_GPU, "--hold", "--nice=100", "--time=60"), "PENDING"),
    Kind.GPUS: ("true", ("--gpus=1", "--hold"), "PENDING"),
    Kind.CPU_ONLY: ("true", ("--hold",), "PENDING"),
    Kind.LATER: ("true", (_GPU, "--begin=now+1hour"), "PENDING"),
    Kind.COMPLETED: ("true", (_GPU,), "COMPLETED"),
    Kind.FAILED: ("exit 3", (_GPU,), "FAILED"),
    Kind.SIGNALLED: ("ulimit -c 0; kill -SEGV $$", (_GPU,), "FAILED"),
    Kind.CANCELLED: ("true", (_GPU, "--hold"), "PENDING"),
}
"""The script, the options (with the ids of other kinds), and the state to wait for."""


class Live(World):
    """The embedded Slurm of whatever release is installed."""

    too_long = 8 * 86400

    def __init__(self, slurm: Embedded, client: Slurm) -> None:
        self.client = client
        self.uid = os.getuid()
        self._slurm = slurm
        self._jobs: dict[Kind, int] = {}

    def job(self, kind: Kind) -> int:
        if kind not in self._jobs:
            self._jobs[kind] = self._make(kind)
        return self._jobs[kind]

    def _make(self, kind: Kind) -> int:
        if kind is Kind.FOREIGN:
            return foreign_job(self._slurm, "--hold", *_ASK)
        if kind is Kind.OUT_OF_MEMORY:
            pytest.skip("memory is not confined everywhere; tests/live/test_outcome.py sees to it")
        if kind is Kind.WAITING:
            self.job(Kind.RUNNING)
        script, options, state = _MADE[kind]
        ids = {other.name: self.job(other) for other in Kind if any(f"{{{other.name}}}" in one for one in options)}
        made = self._slurm.sbatch(script, *_ASK, *(one.format(**ids) for one in options))
        if kind is Kind.TASKS:
            self._slurm.wait(lambda: self._states(made), ("COMPLETED FAILED",))
            return made
        self._slurm.wait_state(made, state)
        if kind is Kind.CANCELLED:
            self._slurm.must("scancel", str(made))
            self._slurm.wait_state(made, "CANCELLED")
        if kind is Kind.TOO_LONG:  # at submission EnforcePartLimits may be in the way
            if not ROOT:
                pytest.skip("only root can give a job more time")
            self._slurm.must("scontrol", "update", f"JobId={made}", "TimeLimit=8-0")
        if kind in _REASONS:
            self._slurm.wait(lambda: self._slurm.field(made, "Reason"), _REASONS[kind])
        return made

    def _states(self, array: int) -> str:
        """Of all its tasks, in alphabetical order."""
        return " ".join(sorted(self._slurm.must("squeue", "-h", "-t", "all", "-j", str(array), "-o", "%T").split()))

    def named(self, name: str, comment: str) -> int:
        return self._slurm.sbatch("true", "--hold", *_ASK, f"--job-name={name}", f"--comment={comment}")

    def lose_controller(self) -> None:
        self._slurm.kill_daemons("slurmctld")


_REASONS = {Kind.WAITING: ("Resources", "Priority"), Kind.NEVER: ("DependencyNeverSatisfied",)}
"""What turns up only when the scheduler has looked at the job."""


# -- recorded --------------------------------------------------------------------------------------------------

_RECORDED = {
    Kind.RUNNING: 6,
    Kind.WAITING: 7,
    Kind.HELD: 11,
    Kind.DEPENDENT: 9,
    Kind.NEVER: 10,
    Kind.ARRAY: 15,
    Kind.TOO_LONG: 12,
    Kind.NICE: 13,
    Kind.GPUS: 14,
    Kind.CPU_ONLY: 17,
    Kind.LATER: 18,
    Kind.COMPLETED: 1,
    Kind.FAILED: 5,
    Kind.SIGNALLED: 4,
    Kind.OUT_OF_MEMORY: 3,
    Kind.CANCELLED: 16,
}


class Recorded(World):
    """Slurm 25.11 as it was recorded, in the commands' words and, where `stand_in` is given, in PySlurm's."""

    uid = 0
    too_long = 2 * 86400

    def __init__(self, root: Path, stand_in: StandIn | None = None) -> None:
        self.replay = Replay(root)
        self.stand_in = stand_in

    def job(self, kind: Kind) -> int:
        if kind is Kind.FOREIGN:
            # every recorded job is root's: the held one again, with another user
            return self._copy(U="65534", u="nobody", user_id=65534, user_name="nobody")
        if kind not in _RECORDED:
            pytest.skip("none was recorded")
        return _RECORDED[kind]

    def named(self, name: str, comment: str) -> int:
        # PySlurm gives None for no text at all, and cannot give what is not UTF-8
        texts = {"name": name, "comment": comment}
        raw = {key: text.encode("utf-8", "surrogateescape") or None for key, text in texts.items()}
        return self._copy(j=name, k=comment, **raw)

    def _copy(self, **changes: object) -> int:
        number = 1 + max(int(number) for number in self.replay.jobs)
        like = _RECORDED[Kind.HELD]
        fields = {key: str(value) for key, value in changes.items() if len(key) == 1}
        attributes = {key: value for key, value in changes.items() if len(key) > 1}
        self.replay.jobs[str(number)] = self.replay.jobs[str(like)] | {"i": str(number), "F": str(number)} | fields
        self.replay.save()
        if self.stand_in:
            self.stand_in.add(number, like, **attributes)
        return number

    def lose_controller(self) -> None:
        self.replay.away = AWAY
        self.replay.save()
        if self.stand_in:
            self.stand_in.error = RPCError(1853, AWAY)
