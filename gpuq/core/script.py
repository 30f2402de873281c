"""What is wrong with a job.sh before Slurm is asked: its text, and the `#SBATCH` lines that fight gpuq.

sbatch reads options from lines that begin with `#SBATCH` up to the first line that is neither a comment nor
blank (sbatch(1)); options on the command line win over them.
"""

from __future__ import annotations

import re
import shlex

import msgspec

from gpuq.core.fill import prologue, without


class Directive(msgspec.Struct, frozen=True):
    """One option of a `#SBATCH` line."""

    line: int
    name: str
    """Long name without dashes (`mem`, `cpus-per-task`), short ones translated where gpuq knows them."""
    value: str | None
    text: str
    """The whole line."""


class ScriptCheck(msgspec.Struct, frozen=True):
    """The result of `check_script`: faults refuse the submission, warnings are told."""

    interpreter: str
    """Program of the `#!` line (`/bin/bash`), for `#!/usr/bin/env X` that X; empty without one."""
    directives: tuple[Directive, ...]
    faults: tuple[str, ...]
    warnings: tuple[str, ...]


_SHORT = {
    "a": "array",
    "c": "cpus-per-task",
    "d": "dependency",
    "D": "chdir",
    "e": "error",
    "G": "gpus",
    "H": "hold",
    "J": "job-name",
    "M": "clusters",
    "o": "output",
    "p": "partition",
    "t": "time",
    "W": "wait",
}

_FLAGS = frozenset("hHIkOQsuvVW")
"""Short options that take no value."""

_GRES = "gpuq asks for exactly one GPU itself; delete it, or submit with --cpu-only for none"
_LOG = "every attempt has its own log, named by gpuq; delete it"
_MEMORY = "it fights --mem, which gpuq sets; use `#SBATCH --mem=…` or `gpuq submit --mem`"

OWNED: dict[str, str] = {
    "gres": _GRES,
    "gpus": _GRES,
    "gpus-per-node": _GRES,
    "gpus-per-task": _GRES,
    "gpus-per-socket": _GRES,
    "tres-per-task": _GRES,
    "array": "an attempt is one job; make a run for each task and submit them with `gpuq chain`",
    "output": _LOG,
    "error": _LOG,
    "open-mode": "logs are opened in append mode so that a requeue keeps the earlier text; delete it",
    "dependency": "give it as `gpuq submit --after` or `--after-ok`",
    "kill-on-invalid-dep": "gpuq sets it with `--after-ok`; delete it",
    "job-name": "the job name is the TAG; delete it",
    "comment": "gpuq finds its jobs by their comment; delete it",
    "chdir": "a job starts in the project root; use `cd` in the script",
    "cpus-per-gpu": "it fights --cpus-per-task, which gpuq sets; use `#SBATCH --cpus-per-task=…` or `gpuq submit --cpus`",
    "mem-per-cpu": _MEMORY,
    "mem-per-gpu": _MEMORY,
    "export": "it could hide GPUQ_TAG and its kin from the job; set variables in the script",
    "export-file": "it could hide GPUQ_TAG and its kin from the job; set variables in the script",
    "clusters": "gpuq talks to the one cluster of its slurm.conf; delete it",
    "wait": "use `gpuq submit --wait`",
    "parsable": "it is for the command line of sbatch; delete it",
    "test-only": "nothing would be submitted; use `gpuq submit --dry-run`",
    "wrap": "the script itself is what runs; delete it",
    "uid": "gpuq submits as you; delete it",
}
"""Options that gpuq owns and why a `#SBATCH` line must not set them."""

READ = {"mem": "memory", "time": "time", "cpus-per-task": "cpus", "partition": "partition", "nice": "nice"}
"""Options that gpuq reads from `#SBATCH` lines: they win over gpuq.toml and run.toml, flags win over them."""

_SHELLS = {"sh", "bash", "dash", "ksh", "zsh"}
_BLANK = " \t\n\v\f\r"
"""What isspace(3) takes for blank; Python's own idea is wider, and a line of a no-break space is a command to a shell."""

_VISIBLE = r"^(?:[^#]*[\s;&|])?CUDA_VISIBLE_DEVICES=([^\s;&|]+)"
"""Wherever it stands in a line: `A=1; export CUDA_VISIBLE_DEVICES=1`, `srun env CUDA_VISIBLE_DEVICES=1 python x.py`."""


def is_shell(interpreter: str) -> bool:
    """True when the interpreter speaks the Bourne shell's language."""
    return interpreter.rsplit("/", 1)[-1] in _SHELLS


def check_script(text: str, name: str) -> ScriptCheck:
    """Check the text of a job script. `name` is how messages call the file; each fault names `name:line`.

    Never raises on any text. Syntax itself is the interpreter's to check (`bash -n`).
    """
    faults: list[str] = []
    warnings: list[str] = []
    interpreter = _interpreter(text)
    if not text.startswith("#!"):
        faults.append(f"{name}:1: the first line must say what runs the script, like #!/bin/bash")
    elif not interpreter:
        faults.append(f"{name}:1: the first line names no program; write one that runs the script, like #!/bin/bash")
    if "\r\n" in text:
        number = text[: text.index("\r\n")].count("\n") + 1
        faults.append(
            f"{name}:{number}: lines end in CR LF (Windows); convert it with: sed -i 's/\\r$//' {shlex.quote(name)}"
        )
    lines = text.split("\n")
    if "\0" in text:
        number = text[: text.index("\0")].count("\n") + 1
        faults.append(f"{name}:{number}: there is a NUL byte; this is not a text file")
    first = first_command(lines)
    if text.startswith("#!") and first is None:
        faults.append(f"{name}: nothing in it runs; every line is blank or a comment")
    directives: list[Directive] = []
    for index, line in enumerate(lines):
        if not line.startswith("#SBATCH"):
            continue
        if first is not None and index > first:
            warnings.append(f"{name}:{index + 1}: Slurm ignores this #SBATCH line, it stands after the first command")
            continue
        try:
            found = _directives(line, index + 1)
        except ValueError as error:
            faults.append(f"{name}:{index + 1}: {error}")
            continue
        for directive in found:
            why = OWNED.get(directive.name)
            if directive.name == "hetjob":
                why = "an attempt is one job; delete it"
            if why:
                faults.append(f"{name}:{directive.line}: `{directive.text}` sets --{directive.name}: {why}")
        directives.extend(found)
    for index, line in enumerate(lines if "CUDA_VISIBLE_DEVICES" in text else ()):
        match = re.match(_VISIBLE, line)
        if match and match[1].strip("\"'") not in {"", "0", "${CUDA_VISIBLE_DEVICES}", "$CUDA_VISIBLE_DEVICES"}:
            warnings.append(
                f"{name}:{index + 1}: CUDA_VISIBLE_DEVICES is set by hand; Slurm sets it, and another value "
                "hides the GPU on a one-GPU host"
            )
    return ScriptCheck(interpreter, tuple(directives), tuple(faults), tuple(warnings))


def _interpreter(text: str) -> str:
    if not text.startswith("#!"):
        return ""
    words = text[2:].split("\n", 1)[0].replace("\r", "").split()
    if not words:
        return ""
    if words[0].rsplit("/", 1)[-1] == "env":
        rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return rest[0] if rest else ""
    return words[0]


def first_command(lines: list[str]) -> int | None:
    """Index of the first line that is neither blank nor a comment; None when there is none."""
    for index, line in enumerate(lines):
        stripped = line.strip(_BLANK)
        if stripped and not stripped.startswith("#"):
            return index
    return None


def _directives(line: str, number: int) -> list[Directive]:
    rest = line[len("#SBATCH") :].strip("\r")
    if rest.strip().startswith("hetjob") or rest.strip().startswith("packjob"):
        return [Directive(number, "hetjob", None, line.strip())]
    try:
        words = shlex.split(rest, comments=True)
    except ValueError as error:
        raise ValueError(f"`{line.strip()}` cannot be read: {error}") from None
    found: list[Directive] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = _full_name(name)
            given: str | None = value if equals else None
        elif word.startswith("-") and len(word) > 1:
            letters = word[1:]
            while letters[0] in _FLAGS and len(letters) > 1:  # -Hc4 is -H -c4 (getopt(3))
                found.append(Directive(number, _SHORT.get(letters[0], letters[0]), None, line.strip()))
                letters = letters[1:]
            name = _SHORT.get(letters[0], letters[0])
            given = letters[1:] or None
        else:
            continue  # the value of the option before it, or what Slurm itself will refuse
        if given is None and position < len(words) and not words[position].startswith("-"):
            given = words[position]
        found.append(Directive(number, name, given, line.strip()))
    return found


_EXACT = {
    "mem",
    "time",
    "nice",
    "partition",
    "cpus-per-task",
    "hold",
    "mem-bind",
    "time-min",
    "wait-all-nodes",
    "gpu-bind",
}


def _full_name(name: str) -> str:
    """getopt_long(3) takes any unambiguous beginning of a long option; so `--outp` is --output here too."""
    if name in OWNED or name in _EXACT or len(name) < 2:
        return name
    owned = [full for full in OWNED if full.startswith(name)]
    if owned and not any(full.startswith(name) for full in _EXACT):
        return owned[0]
    return name


def with_requeue_separator(text: str, interpreter: str, *, fill: bool = False) -> str:
    """The script with a separator printed when Slurm starts it again, in the same log, after a requeue.

    It is put in front of the first command, on the same line, so that the line numbers in the script's own error
    messages stay right. Only shells can be given one; other scripts are returned as they are.
    SLURM_RESTART_COUNT: sbatch(1), "Output environment variables". fill: it is a filler, which makes way (gpuq.core.fill).
    """
    if not is_shell(interpreter):
        return text
    lines = text.split("\n")
    first = first_command(lines)
    if first is None:
        return text
    lines[first] = (prologue(interpreter) if fill else "") + _SEPARATOR + lines[first]
    return "\n".join(lines)


_SEPARATOR = (
    """[ -z "${SLURM_RESTART_COUNT:-}" ] || printf '\\n=== gpuq: started again after a requeue """
    """(restart %s, %s) ===\\n' "$SLURM_RESTART_COUNT" "$(date '+%F %T')"; """
)


def without_requeue_separator(text: str) -> str:
    """The script that `with_requeue_separator` was given, from what it returned."""
    lines = text.split("\n")
    first = first_command(lines)
    if first is not None:
        lines[first] = without(lines[first]).removeprefix(_SEPARATOR)
    return "\n".join(lines)
