"""pyslurm without libslurm: jobs with the attributes of real `pyslurm.Job` objects, recorded on Slurm 25.11.

tests/data/slurm/25.11/pyslurm-jobs.json holds what every attribute of 19 jobs read (`same`: alike in all of them).
An attribute that real objects do not have, or that was not recorded, fails the test that asks for it.
"""

from __future__ import annotations

import json
from typing import Any

from tests.contract.replay import RECORDED

_DATA = json.loads((RECORDED / "pyslurm-jobs.json").read_text())
VERSION: str = _DATA["pyslurm"]
INVALID_JOB_ID = 2017


class RPCError(Exception):
    """Built, and read, like pyslurm's."""

    def __init__(self, errno: int = -1, msg: str | None = None) -> None:
        super().__init__(msg)
        self.errno = errno
        self.msg = msg


class NoSuchAttribute(AssertionError):
    """Not an AttributeError, so that nobody takes it for an answer."""


class RawJob:
    """A `pyslurm.Job`. Text given as bytes is decoded when it is asked for, as PySlurm does."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def __getattr__(self, name: str) -> Any:
        if name in _DATA["unreadable"]:
            raise NoSuchAttribute(f"pyslurm.Job.{name} is an object; it was not recorded")
        if name not in self.values:
            raise NoSuchAttribute(f"pyslurm.Job has no attribute {name!r}")
        value = self.values[name]
        return value.decode() if isinstance(value, bytes) else value


class StandIn:
    """The module. `jobs`: what slurmctld knows; `error`: what every call ends with."""

    __version__ = VERSION
    RPCError = RPCError

    def __init__(self) -> None:
        self.jobs = {int(number): _DATA["same"] | values for number, values in _DATA["jobs"].items()}
        self.error: Exception | None = None
        self.Job = _Job(self)
        self.Jobs = _Jobs(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NoSuchAttribute(f"pyslurm has no {name!r}, or none that gpuq should need")

    def raw(self, number: int, **changes: Any) -> RawJob:
        """A recorded job, with other values for some of its attributes."""
        unknown = set(changes) - set(self.jobs[number])
        assert not unknown, f"pyslurm.Job has no {unknown}"
        return RawJob(self.jobs[number] | changes)

    def add(self, number: int, like: int, **changes: Any) -> None:
        """Another job."""
        self.jobs[number] = self.raw(like, id=number, **changes).values


class _Job:
    def __init__(self, module: StandIn) -> None:
        self._module = module

    def load(self, job_id: int) -> RawJob:
        if self._module.error:
            raise self._module.error
        if job_id >= 2**32:
            raise OverflowError("value too large to convert to uint32_t")
        if job_id not in self._module.jobs:
            raise RPCError(INVALID_JOB_ID, "Invalid job id specified")
        return self._module.raw(job_id)


class _Jobs:
    def __init__(self, module: StandIn) -> None:
        self._module = module

    def load(self) -> _Map:
        if self._module.error:
            raise self._module.error
        return _Map([self._module.raw(number) for number in self._module.jobs])


class _Map:
    """A MultiClusterMap, which is not quite a dict."""

    def __init__(self, jobs: list[RawJob]) -> None:
        self._jobs = jobs

    def values(self) -> list[RawJob]:
        return self._jobs
