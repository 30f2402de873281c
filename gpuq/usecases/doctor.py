"""`gpuq doctor`: examine this host and its Slurm, and mend what needs no root and destroys nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuq.adapters import hostfacts
from gpuq.adapters.slurm.locate import Location, locate
from gpuq.core.checks.check import Check, Verdict
from gpuq.core.checks.checkup import examine
from gpuq.core.checks.hostfacts import DAEMONS, Gpu, HostFacts
from gpuq.core.ports import Say

if TYPE_CHECKING:
    from gpuq.core.gpu.readings import Reading
    from gpuq.core.gpu.xid import KernelLine

PLANNED = Path("ops/slurm")
"""Below the project's root: a directory for each host, with the configuration that it is meant to have."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. `done`: what --fix did, in sentences."""

    host: str
    slurm_conf: str
    slurm_version: str
    embedded: bool
    checks: tuple[Check, ...]
    done: tuple[str, ...] = ()

    @property
    def failures(self) -> int:
        """How many checks failed."""
        return sum(check.verdict is Verdict.FAILURE for check in self.checks)


def doctor(environment: Mapping[str, str], *, project: Path | None, fix: bool, say: Say) -> Report:
    """Examine the host; with `fix`, mend what may be mended and examine it again."""
    location = locate(environment)
    facts = _collect(location, environment, project)
    done = _mend(facts, say) if fix else ()
    if done:
        facts = _collect(location, environment, project)
    return Report(
        host=facts.hostname,
        slurm_conf=facts.slurm_conf.path,
        slurm_version=facts.version,
        embedded=bool(facts.embedded),
        checks=tuple(examine(facts)),
        done=done,
    )


def _collect(location: Location, environment: Mapping[str, str], project: Path | None) -> HostFacts:
    planned = None
    if project is not None:
        from gpuq.adapters.machine import caller

        planned = project / PLANNED / caller().host
    facts = hostfacts.collect(location, environment, planned=planned)
    # NVML is asked, and the kernel log read, only where there is a GPU
    if not facts.gpu.loaded and not any(name[-1].isdigit() for name in facts.gpu.devices):
        return facts
    from gpuq.adapters import gpu, jobproc, kernellog

    lines = kernellog.lines(boot=jobproc.boot_time(jobproc.PROC))
    return msgspec.structs.replace(facts, gpu=with_driver(facts.gpu, gpu.read(), lines or []))


def with_driver(facts: Gpu, reading: Reading, lines: list[KernelLine]) -> Gpu:
    """The facts with what the driver says itself, and what it wrote to the kernel log."""
    from gpuq.core.gpu import xid
    from gpuq.core.gpu.readings import Trouble, trouble_words

    error = ""
    if reading.trouble is not None and reading.trouble is not Trouble.NO_BINDING:
        error = reading.detail or trouble_words(reading.trouble)
    lost = [one for one in reading.gpus if one.trouble is Trouble.LOST]
    return msgspec.structs.replace(
        facts,
        nvml_error=error,
        lost="; ".join(f"GPU {one.index}: {one.detail}" for one in lost),
        faults=tuple(f"{one.meaning}: {one.text}" for one in xid.errors(lines) if one.grave),
    )


def _mend(facts: HostFacts, say: Say) -> tuple[str, ...]:
    """Only an embedded Slurm whose daemons died is started again: its queue is kept, running jobs go on."""
    dead = [name for name in DAEMONS if name not in facts.processes]
    if not facts.embedded or not dead:
        return ()
    from gpuq.errors import HostError
    from gpuq.usecases import local

    try:
        local.up(Path(facts.embedded), None, say)
    except HostError as error:
        say(f"could not start it: {error.message}")
        return ()
    return (f"started {', '.join(dead)} of the embedded Slurm again (gpuq local up); its queue was kept",)
