"""What a command writes to its standard output, as far as its words tell: `echo sbatch x.sh`, `find runs -name job.sh`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from gpuq.core.guard.shell import ANY_DEPTH, UNKNOWN, Simple

_EXACT = frozenset({"-print", "-print0"})
_VALUED = frozenset({"-name", "-iname", "-type"})
_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


def output_of(command: Simple) -> str | None:
    """What a command writes to its standard output, near enough to be read as a script; None: not known."""
    match command.words:
        case ("cat" | "tee", *rest) if command.words[0] == "tee" or rest in ([], ["-"]):
            return command.stdin
        case ("echo" | "printf", *rest) if command.known:
            while rest and re.fullmatch(r"-[neE]+", rest[0]):
                del rest[0]
            text = " ".join(rest)
            return text.replace("\\n", "\n") if command.words[0] == "printf" or "-e" in command.words else text
        case ("find", *_):
            return "\n".join(found(command.words))
        case ("grep" | "egrep" | "fgrep" | "rg", *_):
            files = with_matches(command.words)
            return None if files is None else "\n".join(files)
    return None


def found(words: Sequence[str]) -> tuple[str, ...]:
    """What `find` (words[0]) finds: for each root a pattern of all the files, or a path with UNKNOWN at its end."""
    rest = [word for word in words[1:] if word not in {"-H", "-L", "-P"}]
    roots = list(takewhile(lambda word: not word.startswith("-") and word not in {"(", "!"}, rest))
    tests = rest[len(roots) :]
    names: list[str] = []
    exact = True
    n = 0
    while n < len(tests):
        if tests[n] in _ACTIONS:
            n = next((k for k in range(n, len(tests)) if tests[k] in {";", "+"}), len(tests))
        elif tests[n] in _VALUED:
            names += tests[n + 1 : n + 2] if tests[n] != "-type" else []
            n += 1
        elif tests[n] not in _EXACT:
            exact = False
        n += 1
    last = names[0] if names else "*"
    end = f"{ANY_DEPTH}/{last}" if exact and len(names) < 2 and UNKNOWN not in last else UNKNOWN
    return tuple(f"{root.rstrip('/') or '/'}/{end}" for root in roots or ["."])


def with_matches(words: Sequence[str]) -> tuple[str, ...] | None:
    """Where the files lie that `grep -l` or `rg -l` names; None: it names none."""
    flags = [word for word in words[1:] if word.startswith("-")]
    if not any(f == "--files-with-matches" or (f[1:2] != "-" and "l" in f) for f in flags):
        return None
    plain = [word for word in words[1:] if not word.startswith("-")]
    return tuple(f"{place.rstrip('/')}/{UNKNOWN}" for place in plain[1:] or ["."])
