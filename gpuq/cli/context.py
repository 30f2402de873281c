"""The composition root: the parts of gpuq, put together for one command."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from gpuq.adapters.slurm.locate import Location, locate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gpuq.adapters.slurm.ahead import Asked
    from gpuq.usecases.context import Context


def build(first: Callable[[Location, Mapping[str, str]], Asked] | None = None) -> Context:
    """Raises ConfigError.

    first: what the command will ask Slurm first, whatever comes between. It is asked at once, before everything else
    that a command needs is imported; that takes as long as the answer.
    """
    environment = dict(os.environ)
    location = locate(environment)
    ahead = first(location, environment) if first is not None else None
    try:
        return _context(environment, location, ahead)
    except BaseException:
        if ahead is not None:
            ahead.drop()
        raise


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions, which is 8 ms where it is installed.

    msgspec asks it for names that `typing` has from Python 3.11 on, and takes those where it is missing.
    """
    if "typing_extensions" in sys.modules or "msgspec" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # an import of it fails (sys.modules)
    try:
        with contextlib.suppress(ImportError):  # a later msgspec may insist on it
            import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def working_directory() -> Path:
    """Where the command was called. Raises UsageError: somebody has removed it meanwhile."""
    from pathlib import Path

    from gpuq.errors import UsageError

    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "the working directory does not exist any more", hint="cd to a directory of the project"
        ) from None


def _context(environment: dict[str, str], location: Location, ahead: Asked | None) -> Context:
    _import_msgspec()
    from gpuq.adapters.clock import SystemClock
    from gpuq.adapters.configfiles import find_project
    from gpuq.adapters.ledger import Ledger
    from gpuq.adapters.machine import caller
    from gpuq.adapters.proc import debug
    from gpuq.adapters.slurm.choose import choose
    from gpuq.cli.output import say
    from gpuq.usecases.context import Context

    project = find_project(working_directory(), environment)
    choice = choose(location, environment, ahead=ahead, say=say)
    debug(choice.reason)
    return Context(
        slurm=choice.slurm,
        ledger=Ledger(project.runs),
        project=project,
        caller=caller(),
        clock=SystemClock(),
        environment=environment,
        controller=location.identity,
        system_wide=not location.embedded,
        say=say,
    )
