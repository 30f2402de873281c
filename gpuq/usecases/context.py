"""What every use case works with. The command line puts it together; tests put in what they like."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuq.adapters.configfiles import Project
from gpuq.adapters.ledger import Ledger
from gpuq.adapters.machine import Caller
from gpuq.core.ports import Clock, Say, Slurm


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The parts, put together once per command."""

    slurm: Slurm
    ledger: Ledger
    project: Project
    caller: Caller
    clock: Clock
    environment: Mapping[str, str]
    """The caller's environment, as it is."""
    controller: str
    """Names the controller that `slurm` talks to; records carry it."""
    system_wide: bool
    """True for a controller that is not the embedded one."""
    say: Say
    """Tells a person something, on stderr."""
