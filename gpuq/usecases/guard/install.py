"""Put the guard into the agents' settings of a project: .claude/settings.json and .codex/hooks.json."""

from __future__ import annotations

import shlex
from pathlib import Path, PurePath
from typing import Any

import msgspec

from gpuq.errors import ConfigError
from gpuq.usecases.experiment.init import Step

FILES = {
    ".claude/settings.json": "Bash|Edit|Write|MultiEdit|NotebookEdit",
    ".codex/hooks.json": "Bash|apply_patch",
}
"""The settings of each agent, relative to the project, and the tools that its hook is asked about. The two have one format
(code.claude.com/docs/en/hooks, developers.openai.com/codex/hooks)."""

_TIMEOUT = 20
"""Seconds after which the agent goes on without an answer."""


def plan(project: Path, *, strict: bool, program: str = "gpuq") -> list[Step]:
    """The files as they will be. What else stands in them is kept. Raises ConfigError for one that is not understood.

    program: how gpuq is called, a name on PATH or a path.
    """
    command = shlex.join([program, "guard", *(["--strict"] if strict else [])])
    return [_merged(project / name, name, matcher, command) for name, matcher in FILES.items()]


def _is_ours(command: str) -> bool:
    """Whether a hook's command is the guard, by whatever path it is called."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return False
    return len(words) > 1 and PurePath(words[0]).name == "gpuq" and words[1] == "guard"


def _merged(path: Path, name: str, matcher: str, command: str) -> Step:
    try:
        before = path.read_bytes()
    except FileNotFoundError:
        before = b""
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    try:
        settings: Any = msgspec.json.decode(before) if before.strip() else {}
        hooks = settings.setdefault("hooks", {})
        groups: list[Any] = hooks.setdefault("PreToolUse", [])
        ours = [hook for group in groups for hook in group.get("hooks", []) if _is_ours(str(hook.get("command", "")))]
        if ours:
            ours[0]["command"] = command
        else:
            hook = {"type": "command", "command": command, "timeout": _TIMEOUT}
            groups.append({"matcher": matcher, "hooks": [hook]})
    except (msgspec.DecodeError, AttributeError, TypeError):
        raise ConfigError(f"{path} is not settings as the agent reads them", hint="mend it, then again") from None
    if before.strip() and msgspec.json.decode(before) == settings:
        return Step(name=name, what="unchanged", path=path, text=before.decode())
    text = msgspec.json.format(msgspec.json.encode(settings), indent=2).decode() + "\n"
    return Step(name=name, what="extended" if before else "made", path=path, text=text)
