"""Where the `gpuq` command and `python -m gpuq` begin and end.

Start-up is part of the product. Collecting garbage finds none in a command that is over in a tenth of a second, and
costs 5 ms while modules are imported; taking the interpreter apart at the end costs 7 ms more. Together that is a sixth
of `gpuq submit`. So neither is done, but in commands that stay (`gpuq.cli.output.stay`).
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys


def run() -> None:
    """Run the command line and end the process with its exit code."""
    gc.disable()
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
