"""An error, for a program that reads: one JSON object on standard output where --json was given."""

from __future__ import annotations

from collections.abc import Sequence

_SIGNALLED = 128
"""An exit status above it is this and the number of a signal (bash(1), "Exit Status")."""


def wants_json(argv: Sequence[str]) -> bool:
    """True when the command line has --json, before a `--`; also --json=1, which is an error of its own."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    return any(word.partition("=")[0] == "--json" for word in own)


def emit_error(code: int, message: str, hint: str) -> None:
    """`{"schema": "gpuq.error/1", "code": …, "message": …, "hint": …}`: code is the exit status.

    Nothing when the command has already written its object (what it found before something went wrong).
    """
    from gpuq.cli import output

    if not output.written:
        output.emit_json("gpuq.error/1", code=code, meaning=_meaning(code), message=message, hint=hint)


def _meaning(code: int) -> str:
    from gpuq.errors import EXIT_CODES

    if code > _SIGNALLED:
        import signal

        return f"ended by {signal.Signals(code - _SIGNALLED).name}"
    return EXIT_CODES.get(code, "").replace("`", "")
