"""One variable of a job script, changed: an assignment, a default (`${LR:-1e-3}`) or a command-line option.

What is written is the new value and nothing else, quoted as the old one was. A variable that is written in more than one
place is not changed: whoever asks is told the places.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

import msgspec

from gpuq.core.experiment.origin import Change
from gpuq.core.experiment.shellwords import Script, Word, constant, read_script, reference
from gpuq.errors import UsageError


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the value of a variable stands in the text."""

    key: str
    start: int
    end: int
    line: int
    raw: str
    brace: bool = False
    """It is the word of `${NAME:-word}`."""
    quoted: bool = False
    """Between double quotes already; said of `brace` only."""
    pair: bool = False
    """The whole of `"KEY=value"` is quoted, and `raw`."""
    fault: str = ""
    """Why it cannot be changed here."""


_KEY = re.compile(r"[^\s='\"$`\\;&|<>()#!*?\[\]{}]+")


def split_pair(text: str) -> tuple[str, str]:
    """`LR=3e-4` or `--lr=3e-4` as (`LR`, `3e-4`). Raises UsageError."""
    key, equals, value = text.partition("=")
    if not equals or not _KEY.fullmatch(key) or not key.strip("-"):
        raise UsageError(f"{text!r} is no change; write KEY=VALUE, like LR=3e-4 or --lr=3e-4")
    if "\0" in value:
        raise UsageError(f"the value of {key} has a NUL in it")
    return key, value


def change(text: str, pairs: Iterable[tuple[str, str]], name: str) -> tuple[str, tuple[Change, ...]]:
    """`text` with the value of each variable replaced, and what was changed. name: how messages call the file.

    Raises UsageError: a variable stands nowhere, or in several places, or cannot be changed where it stands.
    """
    script = read_script(text)
    done: list[tuple[Place, Change]] = []
    for key, value in pairs:
        place = _only(find(script, key), key, script, name)
        old = constant(place.raw)
        if old is not None and place.pair:
            old = old.removeprefix(f"{place.key}=")
        if old == value:
            raise UsageError(f"{name}:{place.line}: {key} is {value!r} already; nothing would change")
        # bash and dash differ over what ' means there, and bash looks for the end of a <(…)
        foul = [one for one in ("'", "<(", ">(") if one in value]
        if place.brace and place.quoted and foul:
            raise UsageError(
                f"{name}:{place.line}: a value with {foul[0]} in it cannot be written between those double quotes"
            )
        if any(place.start < other.end and other.start < place.end for other, _ in done):
            raise UsageError(f"{name}:{place.line}: {key} and another change are about the same place")
        done.append((place, Change(key=place.key, old=place.raw if old is None else old, new=value, line=place.line)))
    changed = text
    for place, one in sorted(done, key=lambda pair: -pair[0].start):
        changed = changed[: place.start] + _quote(one.new, place) + changed[place.end :]
    return changed, tuple(one for _, one in done)


def find(script: Script, key: str) -> list[Place]:
    """Every place where the value of `key` is written: as `KEY=value`, as the default of `${KEY:-value}`, or behind the
    option `--key` (with a dash in `key`, only that; `-` and `_` inside an option count as the same)."""
    places = []
    words = script.words
    for number, word in enumerate(words):
        following = words[number + 1] if number + 1 < len(words) else None
        if following is not None and (following.command != word.command or following.start < word.end):
            following = None
        before = words[number - 1] if number and words[number - 1].command == word.command else None
        if word.raw == key and before is not None and before.raw in {"for", "select"}:
            places.append(_never(word, key, "a loop sets it"))
        if word.raw.startswith(f"{key}+="):
            places.append(_never(word, key, "it is added to there"))
        head, equals, _ = word.raw.partition("=")
        quote = head[:1] if head[:1] in {"'", '"'} and word.raw[-1:] == head[:1] and len(word.raw) > 1 else ""
        head = head.removeprefix(quote)
        start = word.start + len(quote) + len(head) + 1
        if equals and (head == key or _same_option(head, key)):
            raw = word.raw[start - word.start :]
            if quote:  # the whole word is quoted: `"lr=3e-4"`
                fault = "it stands in a command line of its own" if _is_command_line(words, number) else ""
                place = Place(
                    key=head, start=word.start, end=word.end, line=word.line, raw=word.raw, pair=True, fault=fault
                )
                places.append(place)
            elif not _is_own_default(raw, key):
                fault = "it is an array" if raw.startswith("(") else _taken_from(raw)
                places.append(Place(key=head, start=start, end=word.end, line=word.line, raw=raw, fault=fault))
        elif not equals and _same_option(constant(word.raw) or "", key):
            if following is None or re.match(r"--?[A-Za-z]", following.raw):
                places.append(_never(word, head, "it has no value"))
            elif re.match(r"[A-Za-z_][\w.]*=", following.raw):  # `--amp lr=3`, or `--define lr=3`
                places.append(_never(word, head, f"it has no value, unless {following.raw} is meant as one"))
            else:
                fault = _taken_from(following.raw)
                place = Place(
                    key=head,
                    start=following.start,
                    end=following.end,
                    line=following.line,
                    raw=following.raw,
                    fault=fault,
                )
                places.append(place)
    for default in script.defaults:
        if default.name == key:
            places.append(
                Place(
                    key=key,
                    start=default.start,
                    end=default.end,
                    line=default.line,
                    raw=default.raw,
                    brace=True,
                    quoted=default.quoted,
                )
            )
    return sorted(places, key=lambda place: place.start)


_READERS = frozenset({"eval", "ssh", "trap"})
"""They read their arguments as command lines."""
_NOT_PROGRAMS = frozenset({"set", "[[", "[", "test", "shopt"})
"""Commands of the shell: what follows them is no option of an experiment."""


def keys(script: Script) -> list[str]:
    """The variables and long options of a script, in the order of the text, each once."""
    found: dict[str, None] = {}
    first: dict[int, str] = {}
    for word in script.words:
        program = first.setdefault(word.command, word.raw)
        match = re.match(r"(\+{0,2}[A-Za-z_][\w.]*)=|(--[A-Za-z][\w-]*)", word.raw)
        if match and program not in _NOT_PROGRAMS and match[2] != "--help":
            found[match[1] or match[2]] = None
    found.update((default.name, None) for default in script.defaults)
    return list(found)


def _only(places: list[Place], key: str, script: Script, name: str, via: tuple[str, ...] = ()) -> Place:
    """The one place, or the one of the variable that it is taken from (`--lr "$LR"`). via: variables on the way here."""
    if not places and via:
        raise UsageError(
            f"{name} takes {via[0]} from ${key}, which it does not set", hint="write its value into job.sh"
        )
    if not places:
        import difflib

        known = keys(script)
        close = difflib.get_close_matches(key, known, n=1) or [
            one for one in known if one.strip("-+").lower() == key.strip("-+").lower()
        ]
        others = ", ".join([one for one in known if one not in close][:20])
        hint = f"did you mean {close[0]}?" if close else ""
        if others:
            hint = f"{hint} there are also: {others}" if hint else f"there are: {others}"
        raise UsageError(f"{name} has no variable or option {key}", hint=hint)
    if len(places) > 1:
        where = ", ".join(f"{name}:{place.line}" for place in places)
        raise UsageError(
            f"{key} is written in {len(places)} places ({where}); which of them is meant cannot be told",
            hint="let the script take it from one variable, then change that",
        )
    (place,) = places
    if not place.fault:
        return place
    source = reference(place.raw)
    if not source or source in {key, *via}:
        raise UsageError(f"{name}:{place.line}: {key} cannot be changed there: {place.fault}")
    return _only(find(script, source), source, script, name, (*via, key))


def _same_option(word: str, key: str) -> bool:
    if not word.startswith("-"):
        return False
    names = {key} if key.startswith("-") else {f"--{key}", f"-{key}"} if len(key) > 1 else {f"--{key}"}
    return word.replace("_", "-") in {one.replace("_", "-") for one in names}


def _never(word: Word, key: str, fault: str) -> Place:
    """A place that sets the variable too, and cannot be changed."""
    return Place(key=key, start=word.start, end=word.end, line=word.line, raw="", fault=fault)


def _is_command_line(words: Sequence[Word], number: int) -> bool:
    """`bash -c 'LR=1 python …'`, `eval '…'`: what is quoted is not the value of LR alone."""
    command = [word.raw for word in words[:number] if word.command == words[number].command]
    return bool(command) and (re.fullmatch(r"-[a-zA-Z]*c", command[-1]) is not None or bool(_READERS & set(command)))


def _is_own_default(raw: str, key: str) -> bool:
    """`${LR:-1e-3}` in `LR=${LR:-1e-3}` is where the value stands."""
    return re.fullmatch(r'"?\$\{' + re.escape(key) + r":?[-=].*\}\"?", raw, re.DOTALL) is not None


def _taken_from(raw: str) -> str:
    name = reference(raw)
    return f"its value is taken from ${name}" if name else ""


def _quote(value: str, place: Place) -> str:
    """`value` as it has to be written at `place`; in the quotes that were there."""
    if place.brace and place.quoted:
        return re.sub(r'([\\"$`}])', r"\\\1", value)
    raw = place.raw
    whole = f"{place.key}={value}" if place.pair else value
    if len(raw) > 1 and raw[0] == raw[-1] == '"' and raw.count('"') == 2:
        return '"' + re.sub(r'([\\"$`])', r"\\\1", whole) + '"'
    if len(raw) > 1 and raw[0] == raw[-1] == "'":
        return "'" + whole.replace("'", "'\"'\"'") + "'"
    return shlex.quote(whole)
