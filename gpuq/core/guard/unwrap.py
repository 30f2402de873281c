"""From the command that a person wrote to the program that will run: `sudo -u x env A=1 timeout 9 bash -c '…'`.

gpuq.core.guard.wrappers has the programs that run another one. A shell's script comes back as text, to be parsed again.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from gpuq.core.guard.output import found
from gpuq.core.guard.shell import UNKNOWN, Simple
from gpuq.core.guard.wrappers import WRAPPERS, Wrapper

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "rbash", "fish", "csh", "tcsh"})


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program that will run. `words[0]` is its name without directories; or only `text`, for a shell to read."""

    words: tuple[str, ...] = ()
    path: str = ""
    """The first word as it was written."""
    environment: dict[str, str] = {}
    """Variables that are set for it on the way."""
    text: str | None = None
    stdin: str | None = None
    source: str = ""
    cwd: str = ""
    """Where it runs; empty: where the text begins."""
    inner: tuple[str, ...] = ()
    upstream: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    """The names of what runs it, the outermost first."""


def programs(command: Simple) -> Iterator[Program]:
    """What `command` runs, unwrapped: usually one program, or texts for a shell."""
    environment = {name: value for name, value in command.assignments if name}
    yield from _unwrap(list(command.words), environment, command, ())


_HERE = re.compile(r"([\w.-]+@)?(localhost(\.localdomain)?|127(\.\d+){3}|::1)")
"""A host name that means this machine."""
_MOST_LINES = 16
"""Lines of what xargs reads that are looked at one by one."""
_SCRIPTS = frozenset({"uv", "coverage", "kernprof", "scalene", "viztracer", "py-spy", "pdm", "hatch", "pixi"})
"""They start a Python program that is named without `python`."""


def _unwrap(
    words: list[str], environment: dict[str, str], command: Simple, outer: tuple[str, ...]
) -> Iterator[Program]:
    if not words or len(outer) > 20:
        return
    name = basename(words[0])
    made: dict[str, Any] = {
        "environment": environment,
        "stdin": command.stdin,
        "source": command.source,
        "cwd": command.cwd,
        "inner": command.inner,
        "upstream": command.upstream,
        "wrappers": outer,
    }
    if name in SHELLS:
        yield from _shell(words, made)
        return
    if name in {"eval", "trap", "at", "batch", "crontab"}:
        yield from _later(name, words, made)
        return
    if name == "find":
        yield Program(words=(name, *words[1:]), path=words[0], **made)
        end = 0
        for start, word in enumerate(words):
            if start >= end and word in {"-exec", "-execdir", "-ok", "-okdir"}:
                end = next((n for n in range(start, len(words)) if words[n] in {";", "+"}), len(words))
                for file in found(words):
                    inner = [one.replace("{}", file) for one in words[start + 1 : end]]
                    yield from _unwrap(inner, environment, command, (*outer, "find"))
        return
    if name in {"tmux", "screen"}:
        yield from _terminal(name, words, made)
        return
    wrapper = WRAPPERS.get(name)
    yield Program(words=(name, *words[1:]), path=words[0], **made)
    if wrapper is None or (name == "command" and words[1:2] and words[1] in {"-v", "-V"}):
        return
    environment = dict(environment)
    rest, text, where = _rest(words[1:], wrapper, environment)
    if where and UNKNOWN not in where:
        command = msgspec.structs.replace(command, cwd=posixpath.join(command.cwd, where))
    shown = "ssh-here" if name == "ssh" and any(map(_HERE.fullmatch, words[1 : len(words) - len(rest)])) else name
    made |= {"environment": environment, "cwd": command.cwd, "wrappers": (*outer, shown)}
    if text is not None:
        yield Program(text=text, **made)
    elif rest and (wrapper.joined or name == "hatch") and any(" " in word for word in rest[:1]):
        yield Program(text=" ".join(rest), **made)
    elif rest:
        if name in _SCRIPTS and rest[0].endswith(".py"):
            rest = ["python", *rest]
        for line in _fed(words, rest, command.stdin) if name == "xargs" else [rest]:
            yield from _unwrap(line, environment, command, (*outer, shown))


def _fed(words: list[str], rest: list[str], stdin: str | None) -> list[list[str]]:
    """The command lines that xargs makes of its own words: with what it reads at their end, or in the place of -I's word."""
    options = words[1 : len(words) - len(rest)]
    place = next((n for n, word in enumerate(options) if re.match(r"-I|-i$|--replace", word)), None)
    read = [UNKNOWN] if stdin is None else stdin.split()
    if place is None:
        return [[*rest, *read]]
    named = options[place].removeprefix("-I").removeprefix("--replace").removeprefix("=").removeprefix("-i")
    token = named or (options[place + 1] if options[place] == "-I" and place + 1 < len(options) else "{}")
    lines = [UNKNOWN] if stdin is None else stdin.split("\n")[:_MOST_LINES]
    return [[word.replace(token, line) for word in rest] for line in lines if line]


def _later(name: str, words: list[str], made: dict[str, Any]) -> Iterator[Program]:
    """Builtins and programs that take a shell's text, to be read now or later."""
    if name == "eval":
        # what gpuq prints to be read by a shell (`gpuq local env`) is no doubt
        if words[1:] != [UNKNOWN] or set(made["inner"]) != {"gpuq"}:
            yield Program(text=" ".join(words[1:]), **made)
    elif name == "trap":
        if len(words) > 2 and words[1] != "-":
            yield Program(text=words[1], **made)
    elif "-f" in words[:-1]:
        yield Program(words=("sh-script", words[words.index("-f") + 1]), **made)
    elif name == "crontab":
        lines = (made["stdin"] or "").split("\n")
        text = "\n".join(
            re.sub(r"^\s*(@\w+|(\S+\s+){4}\S+)\s+", "", line) for line in lines if not line.startswith("#")
        )
        if text:
            yield Program(text=text, **made)
    elif made["stdin"] is not None and not {"-l", "-q", "-d", "-r", "-c"} & set(words):
        yield Program(text=made["stdin"], **{**made, "stdin": None})


def _cluster(word: str, wanted: frozenset[str]) -> tuple[str, str] | None:
    """The first option of `-abc` that is in `wanted`, and what stands behind it in the word."""
    if word.startswith("--"):
        key, equals, value = word.partition("=")
        return (key, equals + value) if key in wanted else None
    if word in wanted:
        return word, ""
    for n in range(1, len(word)):
        if not word[n].isalpha():
            break
        if f"-{word[n]}" in wanted:
            return f"-{word[n]}", word[n + 1 :]
    return None


def _rest(words: list[str], wrapper: Wrapper, environment: dict[str, str]) -> tuple[list[str], str | None, str]:
    """The command after a wrapper's own options, or the text that one of them holds; and the directory it runs in."""
    where = ""
    if wrapper.verbs:
        place = next((n for n, word in enumerate(words) if word in wrapper.verbs), None)
        if place is None:
            return [], None, ""
        for n in range(place):
            if words[n] in wrapper.moves:
                where = words[n + 1]
        words = words[place + 1 :]
    before = wrapper.before
    n = 0
    while n < len(words):
        word = words[n]
        if word == "--":
            n += 1
            break
        if word.startswith("-") and len(word) > 1:
            if wrapper.modules and word in {"-m", "--module"}:
                return ["python", "-m", *words[n + 1 :]], None, where
            if found := _cluster(word, wrapper.text):
                return [], found[1].removeprefix("=") or " ".join(words[n + 1 : n + 2]), where
            found = _cluster(word, wrapper.valued)
            follows = bool(found and not found[1])
            if found and found[0] in wrapper.moves:
                where = found[1].removeprefix("=") or "".join(words[n + 1 : n + 2])
            if wrapper.words and word.startswith("--") and "=" not in word and word not in wrapper.flags:
                follows = True
            n += 2 if follows else 1
            continue
        match = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", word, re.DOTALL) if wrapper.variables else None
        if match:
            environment[match[1]] = match[2]
            n += 1
            continue
        if not before:
            break
        before -= 1
        n += 1
    words = words[n:]
    n = 0
    while wrapper.variables and n < len(words) and (match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", words[n], re.DOTALL)):
        environment[match[1]] = match[2]
        n += 1
    return words[n:], None, where


def _shell(words: list[str], made: dict[str, Any]) -> Iterator[Program]:
    n = 1
    while n < len(words) and re.match(r"[-+]\w|--\w", words[n]):
        word = words[n]
        if word in {"--version", "--help"} or re.fullmatch(r"-[a-zA-Z]*n[a-zA-Z]*", word):
            return  # it reads, and runs nothing
        valued = re.fullmatch(r"[-+][a-zA-Z]*[oO]|--rcfile|--init-file", word)
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word):
            if n + 1 < len(words):
                yield Program(text=words[n + (2 if valued else 1)] if n + 2 < len(words) or not valued else "", **made)
            return
        if re.fullmatch(r"-[a-zA-Z]*s[a-zA-Z]*", word):
            words = words[: n + 1]  # it reads standard input; what follows are arguments
        n += 2 if valued else 1
    if n < len(words) and words[n] == "--":
        n += 1
    if n < len(words) and not (words[n] == "/dev/stdin" or words[n] == "-"):
        yield Program(words=("sh-script", words[n], *words[n + 1 :]), path=words[n], **made)
    elif isinstance(made["stdin"], str):
        yield Program(text=made["stdin"], **{**made, "stdin": None})
    elif made["source"]:
        yield Program(words=("sh-script", made["source"]), path=made["source"], **made)
    else:
        yield Program(words=("sh-unknown",), **made)


_TMUX_VALUED = frozenset("-s -n -t -c -x -y -F -e -L -S -f".split())
_TMUX_RUN = frozenset(
    (
        "new new-session new-window neww split-window splitw respawn-pane respawnp respawn-window respawnw "
        "run-shell run send-keys send"
    ).split()
)


def _terminal(name: str, words: list[str], made: dict[str, Any]) -> Iterator[Program]:
    """tmux and screen: what runs in the new window, or is typed into it."""
    rest = words[1:]
    if name == "tmux":
        verb = next((n for n, word in enumerate(rest) if word in _TMUX_RUN), None)
        if verb is None:
            return
        typed = rest[verb] in {"send", "send-keys"}
        rest = rest[verb + 1 :]
        valued = _TMUX_VALUED
    else:
        typed, valued = False, frozenset("-S -t -c -e -h -s -T -L -p".split())
        if "-X" in rest:
            place = rest.index("-X")
            rest, typed = rest[place + 2 :], True
    n = 0
    while n < len(rest) and rest[n].startswith("-"):
        n += 2 if rest[n] in valued or (name == "screen" and re.fullmatch(r"-\w*S", rest[n])) else 1
    rest = rest[n:]
    if typed:
        rest = [word for word in rest if word not in {"Enter", "C-m", "KPEnter"}]
        yield Program(text="\n".join(" ".join(rest).split("\\n")), **made)
    elif len(rest) == 1:
        yield Program(text=rest[0], **made)
    elif rest:
        yield Program(text=" ".join(quoted(word) for word in rest), **made)


def quoted(word: str) -> str:
    return word if re.fullmatch(r"[\w./=:,@%+-]+", word) else "'" + word.replace("'", "'\\''") + "'"


def basename(word: str) -> str:
    """The last component of a path, with what is UNKNOWN in front of it dropped."""
    name = word.rsplit("/", 1)[-1]
    return UNKNOWN if UNKNOWN in name else name
