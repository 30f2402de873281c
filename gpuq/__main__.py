"""Where the `gpuq` command and `python -m gpuq` begin and end.

Start-up is part of the product. Collecting garbage while modules are imported finds none and costs 5 ms, taking the
interpreter apart at the end costs 7 ms more; together a sixth of `gpuq submit`. So neither is done.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys


def run() -> None:
    """Run the command line and end the process with its exit code."""
    gc.disable()  # gpuq.cli.main switches it on again when the command begins
    from gpuq.cli.main import main

    try:
        main()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
