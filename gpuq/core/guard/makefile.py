"""What `make TARGET` would run: the recipes of a Makefile, near enough to be judged (GNU make's manual, "Writing Rules")."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_ASSIGNMENT = re.compile(r"(?:export\s+|override\s+)?([\w.-]+)\s*(?:::?|\?|\+)?=\s*(.*)")
_RULE = re.compile(r"([^\s:#=][^:#=]*?)\s*::?(?!=)\s*([^#;]*)(?:;(.*))?")
_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\)|\{([^{}]*)\}|([@<^*?+%]))")
_NOT_KNOWN = "${_}"
"""For the shell's reader: a variable that nothing has set."""
_MOST = 64
"""Targets that are followed."""
FILES = ("GNUmakefile", "makefile", "Makefile")
"""In the order in which make looks for them."""


def arguments_of(words: Sequence[str]) -> tuple[str, str, dict[str, str], list[str]] | None:
    """Directory, file, variables and targets of a command line; None: it runs nothing."""
    directory, file, variables, goals = "", "", {}, []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in {"--dry-run", "--just-print", "--recon", "--question", "--help", "--version"} or re.fullmatch(
            r"-[a-zA-Z]*[nqhv]", word
        ):
            return None
        if word in {"-C", "--directory", "-f", "--file", "--makefile", "-I", "-o", "-W"}:
            value = rest.pop(0) if rest else ""
            directory = value if word in {"-C", "--directory"} else directory
            file = value if word in {"-f", "--file", "--makefile"} else file
        elif word.startswith("--"):
            key, _, value = word.partition("=")
            directory = value if key == "--directory" else directory
            file = value if key in {"--file", "--makefile"} else file
        elif word.startswith("-"):
            directory = word[2:] if word.startswith("-C") else directory
            file = word[2:] if word.startswith("-f") else file
        elif match := re.fullmatch(r"(\w+):?=(.*)", word, re.DOTALL):
            variables[match[1]] = match[2]
        else:
            goals.append(word)
    return directory, file, variables, goals


def recipes(text: str, goals: Sequence[str], given: Mapping[str, str]) -> list[str]:
    """The lines of shell that make runs for `goals` (the first target, when there are none) and what they need."""
    variables: dict[str, str] = {}
    needs: dict[str, list[str]] = {}
    lines: dict[str, list[str]] = {}
    targets: list[str] = []
    first = ""
    for line in text.replace("\\\n", " ").split("\n"):
        if line.startswith("\t"):
            for target in targets:
                lines[target].append(line.strip())
        elif match := _ASSIGNMENT.fullmatch(line.strip()):
            variables[match[1]] = match[2].strip()
        elif match := _RULE.match(line):
            known = {**variables, **given}
            targets = _expanded(match[1], known).split()
            for target in targets:
                needs.setdefault(target, []).extend(_expanded(match[2], known).split())
                lines.setdefault(target, []).extend([match[3].strip()] if match[3] else [])
                first = first or ("" if target.startswith(".") or "%" in target else target)
    known = {**variables, **given}
    wanted, found = list(goals) or [first], list[str]()
    done: set[str] = set()
    while wanted and len(done) < _MOST:
        target = wanted.pop(0)
        if target in done or target not in lines:
            continue
        done.add(target)
        wanted += needs[target]
        own = {**known, "@": target, "<": "".join(needs[target][:1]), "^": " ".join(needs[target])}
        found += [_expanded(line, own).lstrip("@-+ ") for line in lines[target]]
    return found


def _expanded(text: str, variables: Mapping[str, str], depth: int = 0) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2] or match[3]
        if not name:
            return "$"
        known = variables.get(name)
        return _NOT_KNOWN if known is None or depth > 8 else _expanded(known, variables, depth + 1)

    return _REFERENCE.sub(value, text)
