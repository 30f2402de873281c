"""`gpuq guard`: the hook that keeps an agent to the rules."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuq.cli.output import say

if TYPE_CHECKING:
    from gpuq.core.guard.scene import Verdict
    from gpuq.usecases.guard.call import ToolCall


@click.command()
@click.option("--strict", is_flag=True, help="Also refuse what cannot be judged.")
@click.option("--command", metavar="TEXT", help="Judge this shell command, instead of the JSON on standard input.")
@click.option("--hook", "as_hook", is_flag=True, help="With --command: answer as the hook does, in JSON.")
def guard(strict: bool, command: str | None, as_hook: bool) -> None:
    """Refuse what an agent must not do by hand (a PreToolUse hook).

    Reads a tool call as JSON on standard input, as Claude Code and Codex send it, and answers as both understand it:
    nothing to let it pass, a "deny" with the gpuq command to use instead to refuse it. What is refused: sbatch, srun and
    salloc by hand, training on the GPU outside a job, cancelling all jobs of a user, edits of a run that waits, changes of
    records, deletion of runs. Its exit status is 0 either way. gpuq init --guard installs it. With --command it answers in
    words.

    \b
    Example:
      gpuq guard --command 'sbatch runs/base/job.sh'
      echo '{"tool_name": "Bash", "tool_input": {"command": "scancel -u $USER"}}' | gpuq guard
    """
    verdict = _judge(command)
    reason = ""
    if verdict.refused:
        reason = f"{verdict.text}. Instead: {verdict.instead}"
    elif strict and verdict.doubt:
        reason = f"not understood well enough to be let through (--strict): {verdict.doubt}"
    if command is None or as_hook:
        if reason:
            _deny(reason)
    elif reason:
        click.echo(f"refused: {reason}")
    else:
        click.echo(
            f"passes, but is not understood (--strict refuses it): {verdict.doubt}" if verdict.doubt else "passes"
        )


def _judge(command: str | None) -> Verdict:
    """What fails here must not stop all work (exit status 2 would refuse every call): it is said, and is a doubt."""
    from gpuq.core.guard.scene import Verdict
    from gpuq.errors import GpuqError, HostError
    from gpuq.usecases.guard import call as usecase

    try:
        if command is None:
            call = usecase.read_call(sys.stdin.buffer.read())
        else:
            call = usecase.ToolCall("Bash", {"command": command}, "")
        cwd = usecase.directory(call, str(Path.cwd()))
    except (GpuqError, OSError) as error:
        return _failed(error)
    try:
        return _judge_in_project(call, cwd)
    except HostError as error:  # no parser
        return _failed(error)
    except GpuqError as error:
        from gpuq.adapters.bashparse import Parser

        doubt = _failed(error)
        verdict = usecase.judge(call, usecase.bare_scene(cwd), Parser)
        return verdict if verdict.refused else doubt
    except RecursionError:
        return Verdict(doubt="it is nested too deeply")


def _judge_in_project(call: ToolCall, cwd: str) -> Verdict:
    from gpuq.adapters.bashparse import Parser
    from gpuq.cli.context import build
    from gpuq.usecases.guard import call as usecase

    try:
        os.chdir(cwd)
    except (OSError, ValueError) as error:
        say(f"gpuq: {cwd}: {getattr(error, 'strerror', None) or 'no such directory'}")
    place = Path(usecase.around(call, cwd))  # the project is the one around the call
    for directory in (place, *place.parents):
        with contextlib.suppress(OSError, ValueError):
            os.chdir(directory)
            break
    return usecase.judge(call, usecase.look_around(build(), cwd, Parser), Parser)


def _failed(error: Exception) -> Verdict:
    from gpuq.core.guard.scene import Verdict

    message = getattr(error, "message", "") or getattr(error, "strerror", "") or type(error).__name__
    hint = getattr(error, "hint", "")
    say(f"gpuq: {message}" + (f"; {hint}" if hint else ""))
    return Verdict(doubt=message)


def _deny(reason: str) -> None:
    import msgspec

    answer = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": f"gpuq: {reason}",
    }
    click.echo(msgspec.json.encode({"hookSpecificOutput": answer}))
