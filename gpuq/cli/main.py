"""`gpuq`: the group of all commands, and the one place where an error becomes an exit code."""

# Start-up is part of the product: a command's module is imported when that command runs, and not before.
from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Any

COMMANDS: dict[str, tuple[str, str]] = {
    "submit": ("gpuq.cli.submit:submit", "Submit a run: one GPU, its own attempt number and log."),
    "chain": ("gpuq.cli.submit:chain", "Submit several runs, each after the one before, all or none."),
    "resubmit": ("gpuq.cli.submit:resubmit", "Submit a run again as it was asked for last."),
    "new": ("gpuq.cli.experiment:new", "Make a run out of a proven one, with one variable changed."),
    "diff": ("gpuq.cli.experiment:diff", "Show two runs side by side: script, code, environment, outcome, score."),
    "results": ("gpuq.cli.experiment:results", "Show every run: what was changed, score, outcome, time, memory."),
    "queue": ("gpuq.cli.queue:queue", "Show what runs and what waits, in order, and why."),
    "status": ("gpuq.cli.queue:status", "Show runs, their attempts and how they ended."),
    "log": ("gpuq.cli.log:log", "Print or follow the log of an attempt."),
    "wait": ("gpuq.cli.wait:wait", "Wait until attempts have ended; the exit code tells how."),
    "why": ("gpuq.cli.why:why", "Say why a job waits, or why it ended as it did."),
    "cancel": ("gpuq.cli.change:cancel", "Cancel attempts or jobs."),
    "hold": ("gpuq.cli.change:hold", "Hold waiting jobs."),
    "release": ("gpuq.cli.change:release", "Release held jobs."),
    "top": ("gpuq.cli.change:top", "Move a waiting job before your others."),
    "nice": ("gpuq.cli.change:nice", "Let a waiting job go later."),
    "set": ("gpuq.cli.change:set_", "Change memory or time limit of a waiting job."),
    "gpu": ("gpuq.cli.gpu:gpu", "Show who holds the GPU, and what it does."),
    "watch": ("gpuq.cli.watch:watch", "Tell a person when jobs end, one is left, or the GPU idles."),
    "notify": ("gpuq.cli.notify:notify", "Try the sinks of notices, and see what was not delivered."),
    "mem": ("gpuq.cli.mem:mem", "Show what a job's memory holds, and what to ask for."),
    "doctor": ("gpuq.cli.doctor:doctor", "Check this host and its Slurm, and say how to mend what is wrong."),
    "init": (
        "gpuq.cli.experiment:init",
        "Make a repository ready: gpuq.toml, AGENTS.md, runs/, ops/decisions.md, .gitignore.",
    ),
    "guard": ("gpuq.cli.guard:guard", "Refuse what an agent must not do by hand (a PreToolUse hook)."),
    "schema": ("gpuq.cli.schema:schema", "Print the JSON Schema of what a command prints with --json."),
    "run": ("gpuq.cli.run:run", "Run a program inside job.sh, with a first and a last line in the log."),
    "lint-log": ("gpuq.cli.lint_log:lint_log", "Check that logs keep the format of START, STEP, FINISHED and FAILED."),
    "host": ("gpuq.cli.host:host", "Plan the set-up of this machine as a queue for its GPU."),
    "local": ("gpuq.cli.local:local", "An embedded Slurm for this host, in one private directory."),
}
"""Command, where it is, and its line in `gpuq --help` (a test holds it against the command's own)."""


def main(argv: list[str] | None = None) -> None:
    """Run one command and exit with its code. Never returns."""
    _open_standard_streams()
    # A name on the command line, in Slurm's answers or in a log may hold any bytes.
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else argv
    try:
        code = _run(words)
    except Exception as error:  # a defect: the traceback is for whoever mends it, the object for the program that reads
        code = _defect(words, error)
    sys.exit(code)


def _open_standard_streams() -> None:
    """Put /dev/null where the caller closed 0, 1 or 2: a lock or a pipe would come to stand there otherwise."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")


def _complain(text: str) -> None:
    from gpuq.cli.output import say  # not needed when all goes well

    say(text)


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def _run(argv: list[str]) -> int:
    from gpuq.errors import GpuqError, OutputError, exit_code_of

    try:
        code = _call(argv)
        # the pipe may be closed by now: find out here, where it is handled
        sys.stdout.flush()
        return code
    except KeyboardInterrupt as error:  # a command may say what becomes of what it waited for
        _complain("; ".join(["gpuq: interrupted", *map(str, error.args)]))
        tell_program(argv, 130, "interrupted", "")
        return 130
    except BrokenPipeError:
        # `gpuq queue | head`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _complain(f"gpuq: standard output: {error.strerror}")
        _complain("gpuq: hint: what was asked for was done all the same; gpuq status tells")
        return OutputError.exit_code
    except GpuqError as error:
        if os.environ.get("GPUQ_DEBUG"):
            import traceback

            traceback.print_exc()
        for line in error.message.splitlines():
            _complain(f"gpuq: {line}")
        if error.hint:
            _complain(f"gpuq: hint: {error.hint}")
        tell_program(argv, exit_code_of(error), error.message, error.hint)
        return exit_code_of(error)


def _defect(argv: list[str], error: Exception) -> int:
    from gpuq.errors import GpuqError

    with contextlib.suppress(OSError):
        sys.excepthook(type(error), error, error.__traceback__)
    tell_program(argv, GpuqError.exit_code, f"{type(error).__name__}: {error}", "the traceback is on standard error")
    return GpuqError.exit_code


def _call(argv: list[str]) -> int:
    from gpuq.cli import plain

    read = plain.read(argv)
    if read is not None:
        try:
            return read()
        except KeyboardInterrupt:
            _complain("")  # ends the line that has ^C in it, as click does
            raise
    from gpuq.cli import group

    return group.run(argv)


def tell_program(argv: list[str], code: int, message: str, hint: str) -> None:
    """The error in JSON too, where the command line asks for JSON."""
    if any(word.startswith("--json") for word in argv):
        from gpuq.cli.failure import emit_error, wants_json

        if wants_json(argv):
            with contextlib.suppress(OSError):
                emit_error(code, message, hint)
