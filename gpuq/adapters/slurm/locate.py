"""Which Slurm gpuq talks to: the one that is configured, else the embedded one (`gpuq local`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from gpuq.adapters.embedded import layout
from gpuq.adapters.files import is_there

SYSTEM_CONF = Path("/etc/slurm/slurm.conf")
"""Where the distributions' packages look; also where a configless slurmd's clients look first."""

RUN_CONF = Path("/run/slurm/conf/slurm.conf")
"""Where a configless slurmd keeps what it was sent."""


class Source(StrEnum):
    """Where the configuration comes from."""

    ENVIRONMENT = "environment"
    SYSTEM = "system"
    EMBEDDED = "embedded"
    NONE = "none"


class Location(NamedTuple):
    """The Slurm that was found."""

    source: Source
    conf: Path | None
    """slurm.conf; None: Slurm's own search decides (a build with another default place, or configless)."""

    @property
    def embedded(self) -> bool:
        """True when this is a Slurm that `gpuq local up` started, however it was found."""
        return self.conf is not None and is_there(self.conf.parent / layout.STATE_FILE)

    @property
    def identity(self) -> str:
        """Names the controller in a record, so that another controller's ignorance of a job is not taken for
        the loss of it."""
        conf = self.conf if self.conf is not None else SYSTEM_CONF
        return os.path.join(os.path.realpath(conf.parent), conf.name)  # noqa: PTH118 - one spelling, as text


def locate(environment: Mapping[str, str], *, system_conf: Path = SYSTEM_CONF) -> Location:
    """SLURM_CONF first, then the system's slurm.conf, then the embedded Slurm, then Slurm's own search."""
    given = environment.get("SLURM_CONF")
    if given:
        return Location(Source.ENVIRONMENT, Path(given))
    if environment.get("SLURM_CONF_SERVER"):
        return Location(Source.ENVIRONMENT, None)
    if is_there(system_conf) or is_there(RUN_CONF):
        return Location(Source.SYSTEM, None)
    conf = layout.conf_path(layout.default_dir())
    if is_there(conf):
        return Location(Source.EMBEDDED, conf)
    return Location(Source.NONE, None)


def stopped(conf: Path) -> tuple[str, str] | None:
    """(what happened, the command that helps) where `conf` is that of an embedded Slurm that `gpuq local down` stopped."""
    if is_there(conf) or not is_there(conf.parent / layout.STATE_FILE):
        return None
    where = "" if conf.parent == layout.default_dir() else f" --dir {conf.parent}"
    return f"the embedded Slurm in {conf.parent} is down; its jobs are kept", f"gpuq local up{where}"


def environment_for(location: Location) -> dict[str, str]:
    """What must be added to a Slurm command's environment so that it talks to `location`."""
    if location.conf is not None:
        return {"SLURM_CONF": os.fspath(location.conf)}
    return {}
