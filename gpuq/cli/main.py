"""`gpuq`: the group of all commands, and the one place where an error becomes an exit code."""

# Start-up is part of the product: a command's module is imported when that command runs, and not before.
from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
from typing import Any

import click

from gpuq import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "submit": ("gpuq.cli.submit:submit", "Submit a run: one GPU, its own attempt number and log."),
    "chain": ("gpuq.cli.submit:chain", "Submit several runs, each after the one before, all or none."),
    "resubmit": ("gpuq.cli.submit:resubmit", "Submit a run again as it was asked for last."),
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
    "doctor": ("gpuq.cli.doctor:doctor", "Check this host and its Slurm, and say how to mend what is wrong."),
    "local": ("gpuq.cli.local:local", "An embedded Slurm for this host, in one private directory."),
}
"""Command, where it is, and its line in `gpuq --help` (a test holds it against the command's own)."""


class LazyGroup(click.Group):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of a working day, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return it."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest command named for a mistyped one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(COMMANDS)}"
            ctx.fail(f"no such command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table above, so that --help imports nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="gpuq")
@click.option("--debug", is_flag=True, help="Show every command that gpuq runs, and tracebacks.")
def cli(debug: bool) -> None:
    """Real Slurm in front of one GPU, and what Slurm lacks on a bare host.

    A run is a directory below runs/ with a job.sh; its path there is its TAG.

    \b
    Example:
      gpuq submit digits/baseline --mem 2G --time 8:00:00
      gpuq queue
      gpuq wait digits/baseline
    """
    if debug:
        os.environ["GPUQ_DEBUG"] = "1"


def main(argv: list[str] | None = None) -> None:
    """Run one command and exit with its code. Never returns."""
    _open_standard_streams()
    # A name on the command line, in Slurm's answers or in a log may hold any bytes.
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    sys.exit(_run(sys.argv[1:] if argv is None else argv))


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
        code = cli.main(args=argv, prog_name="gpuq", standalone_mode=False)
        # the pipe may be closed by now: find out here, where it is handled
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        with contextlib.suppress(OSError):
            error.show()
        return error.exit_code
    except click.exceptions.Abort:
        _complain("gpuq: interrupted")
        return 130
    except SystemExit:
        # click's answer to a closed pipe; everything else returns or raises
        return 141
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
        return exit_code_of(error)
