"""Who runs gpuq, and where."""

from __future__ import annotations

import os
import pwd

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
