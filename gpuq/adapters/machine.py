"""Who runs gpuq, and where."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Mapping

import msgspec


class Caller(msgspec.Struct, frozen=True):
    """The user and host of this process."""

    user: str
    uid: int
    host: str

    @property
    def root(self) -> bool:
        """True for the superuser."""
        return self.uid == 0


def caller() -> Caller:
    """Who calls. A user id without a name (containers) is named by its number."""
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return Caller(name, uid, os.uname().nodename.split(".", 1)[0])


def new_token() -> str:
    """A name for an attempt that no other will ever have: 64 random bits."""
    return os.urandom(8).hex()


def with_gpuq_on_path(environment: Mapping[str, str]) -> Mapping[str, str]:
    """`environment` with the directory of the gpuq that runs now at the end of PATH, where PATH has none.

    job.sh ends in `gpuq run`, and who submits with `.venv/bin/gpuq` has not put that directory on PATH.
    """
    path = environment.get("PATH", os.defpath)
    if any(os.access(f"{directory}/gpuq", os.X_OK) for directory in path.split(":") if directory):
        return environment
    own = os.path.dirname(sys.executable)  # noqa: PTH120 - pathlib is not loaded for this
    return {**environment, "PATH": f"{path}:{own}"} if os.access(f"{own}/gpuq", os.X_OK) else environment
