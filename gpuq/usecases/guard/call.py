"""Judge one tool call of a coding agent (the PreToolUse hook of Claude Code and of Codex)."""

from __future__ import annotations

import posixpath
import re
import stat
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from gpuq.core.guard.files import judge_edit, patched_files
from gpuq.core.guard.rules import judge_command
from gpuq.core.guard.scene import Scene, Use, Verdict
from gpuq.core.guard.shell import UNKNOWN, Parse
from gpuq.core.guard.unwrap import programs
from gpuq.core.job import Phase
from gpuq.errors import GpuqError, UsageError
from gpuq.usecases.context import Context
from gpuq.usecases.refs import job_of

_LARGEST_SCRIPT = 256 * 1024
_MOST_RUNS = 500
_MOST_FILES = 256


class ToolCall(msgspec.Struct, frozen=True):
    """What both agents send (their other fields are not needed). `tool_input` has a shape of its own for each tool."""

    tool_name: str = ""
    tool_input: Any = None
    cwd: str = ""


def read_call(raw: bytes) -> ToolCall:
    """The hook's standard input. Raises UsageError."""
    try:
        try:
            return msgspec.json.decode(raw, type=ToolCall)
        except (msgspec.DecodeError, UnicodeDecodeError):
            import json  # takes half a surrogate pair, as JavaScript writes it; bytes that are no text are replaced

            return msgspec.convert(json.loads(raw.decode("utf-8", "replace")), ToolCall)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"standard input is no PreToolUse JSON: {error}", hint="gpuq init --guard installs it"
        ) from None


def judge(call: ToolCall, scene: Scene, make_parser: Callable[[], Parse]) -> Verdict:
    """The verdict on a tool call. Commands are told from edits by their fields, because the tools' names differ."""
    given = call.tool_input
    if not isinstance(given, Mapping):
        return Verdict()
    command = next((given[key] for key in ("command", "cmd", "script") if given.get(key)), None)
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        import shlex

        command = shlex.join(command)
    if isinstance(command, str):
        if call.tool_name == "apply_patch" or command.lstrip().startswith("*** Begin Patch"):
            return _edits(patched_files(command), scene)
        return judge_command(command, make_parser(), scene)
    for key in ("patch", "input"):
        if isinstance(given.get(key), str) and "*** " in given[key]:
            return _edits(patched_files(given[key]), scene)
    path = next((given[key] for key in ("file_path", "notebook_path", "path") if isinstance(given.get(key), str)), None)
    if path is not None and not call.tool_name.lower().startswith(("read", "view", "ls", "glob", "grep")):
        return judge_edit(path, scene)
    return Verdict()


def directory(call: ToolCall, here: str) -> str:
    """Where the call's relative paths begin: its own directory, or the one that Codex's shell is told to work in."""
    given = call.tool_input if isinstance(call.tool_input, Mapping) else {}
    inner = given.get("workdir")
    return posixpath.join(call.cwd or here, inner if isinstance(inner, str) else "")


def around(call: ToolCall, cwd: str) -> str:
    """The directory whose project the call is about: of the file that is edited, or where a command goes first."""
    given = call.tool_input if isinstance(call.tool_input, Mapping) else {}
    for key in ("file_path", "notebook_path"):
        if isinstance(given.get(key), str):
            return posixpath.dirname(posixpath.join(cwd, given[key])) or cwd
    command = given.get("command")
    match = re.match(r"\s*cd\s+([\w./@+-]+)\s*(&&|;|\n)", command) if isinstance(command, str) else None
    return posixpath.join(cwd, match[1]) if match else cwd


def bare_scene(cwd: str) -> Scene:
    """What can be said without a project's configuration."""
    return Scene(cwd=cwd, project=cwd, runs=posixpath.join(cwd, "runs"), read=_read)


def _edits(paths: list[str], scene: Scene) -> Verdict:
    verdicts = [judge_edit(path, scene) for path in paths]
    return next((v for v in verdicts if v.refused), next((v for v in verdicts if v.doubt), Verdict()))


def look_around(ctx: Context, cwd: str, make_parser: Callable[[], Parse]) -> Scene:
    """The scene for a call made in `cwd`. Looks at nothing before a rule asks for it."""
    runs = posixpath.normpath(str(ctx.ledger.root))
    real = str(Path(runs).resolve())
    trained: list[frozenset[str]] = []

    def programs_of_runs() -> frozenset[str]:
        if not trained:
            trained.append(_started(ctx, make_parser()))
        return trained[0]

    def place(path: str) -> str:
        """`path` below `runs` where it leads there by whatever links; a link itself is not followed."""
        if path == runs or path.startswith(runs + "/"):
            return path
        try:
            parent = str(Path(posixpath.dirname(path)).resolve())
        except (OSError, ValueError, RuntimeError):
            return path
        whole = posixpath.join(parent, posixpath.basename(path))
        if whole == real or whole.startswith(real + "/"):
            return runs + whole[len(real) :]
        return whole if f"{real}/".startswith(whole + "/") else path

    def tag(path: str) -> str | None:
        path = place(path)
        if not path.startswith(runs + "/"):
            return None
        parts = path[len(runs) + 1 :].split("/")
        for end in range(len(parts), 0, -1):
            inside = "/".join(parts[:end])
            if _is_file(f"{runs}/{inside}/job.sh"):
                return inside
        return None

    return Scene(
        cwd=cwd,
        project=str(ctx.project.root),
        runs=runs,
        in_job="SLURM_JOB_ID" in ctx.environment,
        home=ctx.environment.get("HOME", ""),
        place=place,
        glob=_glob,
        use=lambda name: _use(ctx, name),
        tag=tag,
        read=_read,
        trained=programs_of_runs,
    )


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def _glob(pattern: str) -> list[str]:
    """The first files that a pattern stands for; a directory tree that is too wide is not walked to its end."""
    import glob

    try:
        return list(islice(glob.iglob(pattern, recursive=True), _MOST_FILES))  # noqa: PTH207 - Path.glob takes no absolute one
    except (OSError, ValueError, re.error):
        return []


def _use(ctx: Context, tag: str) -> Use:
    found = Use.IDLE
    for record in ctx.ledger.records(tag, sound=True):
        if record.ended is not None:
            continue
        try:
            job = job_of(ctx, record)
        except GpuqError:
            return Use.UNKNOWN
        if record.job_id is None or record.controller != ctx.controller:
            found = Use.UNKNOWN if found is Use.IDLE else found
        elif job is not None and job.phase is Phase.WAITING:
            return Use.WAITING
        elif job is not None and job.phase in {Phase.RUNNING, Phase.ENDING}:
            found = Use.RUNNING
    return found


def _read(path: str) -> str | None:
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_SCRIPT:
            return None
        return Path(path).read_bytes().decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return None


def _started(ctx: Context, parse: Parse) -> frozenset[str]:
    """The programs (paths relative to the project, where jobs start) that the runs' scripts start."""
    found: set[str] = set()
    scripts = {text for tag in ctx.ledger.tags()[:_MOST_RUNS] if (text := _read(str(ctx.ledger.job_script(tag))))}
    for text in scripts:
        for command in parse(text, {}).commands:
            for program in programs(command):
                for word in program.words[:6]:
                    if word.endswith(".py") and UNKNOWN not in word and not posixpath.isabs(word):
                        found.add(posixpath.normpath(word))
    return frozenset(found)
