"""The command line as click reads it: the group of all commands, its help, and what is said about a wrong one."""

from __future__ import annotations

import contextlib
import importlib
import os

import click

from gpuq import __version__
from gpuq.cli.main import COMMANDS, tell_program


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


def run(argv: list[str]) -> int:
    """Run one command line; its exit code. Raises what the command raises, and nothing of click's."""
    try:
        code = cli.main(args=argv, prog_name="gpuq", standalone_mode=False)
    except click.ClickException as error:
        with contextlib.suppress(OSError):
            error.show()
        tell_program(argv, error.exit_code, error.format_message(), "")
        return error.exit_code
    except click.exceptions.Abort as error:
        said = error.__cause__.args if isinstance(error.__cause__, KeyboardInterrupt) else ()
        raise KeyboardInterrupt(*said) from None
    except SystemExit:
        # click's answer to a closed pipe; everything else returns or raises
        raise BrokenPipeError from None
    return code if isinstance(code, int) else 0
