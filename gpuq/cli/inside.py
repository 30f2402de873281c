"""`gpuq run`, read and begun without click: it starts with every job (see gpuq.cli.plain)."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence


def read(words: Sequence[str]) -> Callable[[], int] | None:
    """What `gpuq run WORDS` asks for, ready to be called; None: click is to read it, and to say what is wrong."""
    pty, every, at = False, 30.0, 0
    while at < len(words) and words[at] != "--":
        if words[at] == "--pty":
            pty = True
        elif words[at] == "--frames" and at + 1 < len(words) and words[at + 1].isdecimal():
            at += 1
            every = float(words[at])
        else:
            return None
        at += 1
    command = words[at + 1 :]
    return (lambda: go(command, pty=pty, every=every)) if command and command[0] else None


def go(command: Sequence[str], *, pty: bool, every: float) -> int:
    """Run it; its exit code."""
    from gpuq.usecases.inside.run import run

    gc.enable()  # this process stays (see gpuq.__main__)
    return run(command, os.environ, pty=pty, every=every)
