"""The composition root: the parts of gpuq, put together for one command."""

from __future__ import annotations

import os
from pathlib import Path

from gpuq.adapters.clock import SystemClock
from gpuq.adapters.configfiles import find_project
from gpuq.adapters.ledger import Ledger
from gpuq.adapters.machine import caller
from gpuq.adapters.proc import debug
from gpuq.adapters.slurm.choose import choose
from gpuq.adapters.slurm.locate import locate
from gpuq.cli.output import say
from gpuq.errors import UsageError
from gpuq.usecases.context import Context


def build() -> Context:
    """Raises ConfigError. Asks nothing of Slurm yet."""
    environment = dict(os.environ)
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "the working directory does not exist any more", hint="cd to a directory of the project"
        ) from None
    project = find_project(here, environment)
    location = locate(environment)
    choice = choose(location, environment)
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
