"""The plain command lines of the commands that are typed all day, read without click.

Importing click and declaring every option to it takes 10 ms, as long as all that Slurm itself does for a submission. So
a command line that leaves no question is read here: a command of `PLAIN`, options spelled as its help has them, values
that are what they should be. Everything else, above all everything wrong, is left to click, which reads it again from the
start and says what there is to say. `tests/test_plain.py` holds the two readings against each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def _size(text: str) -> int:
    from gpuq.core.units import parse_size

    return parse_size(text)


def _time(text: str) -> str:
    from gpuq.core.units import parse_time_limit

    parse_time_limit(text)
    return text


class Plain:
    """A command: the function that does it, the names of its arguments, and its options."""

    def __init__(
        self,
        place: str,
        *,
        arguments: tuple[str, ...] = (),
        required: int = 0,
        flags: dict[str, str],
        values: dict[str, tuple[str, Callable[[str], Any]]] | None = None,
        many: dict[str, str] | None = None,
    ) -> None:
        self.place = place
        self.arguments = arguments
        self.required = required
        self.flags = flags
        self.values = values or {}
        self.many = many or {}

    def read(self, words: list[str]) -> dict[str, Any] | None:
        """The function's arguments; None: click is to read it."""
        given: dict[str, Any] = {}
        arguments: list[str] = []
        rest = iter(words)
        for word in rest:
            if not word.startswith("-"):
                arguments.append(word)
                continue
            if word in self.flags:
                given[self.flags[word]] = True
                continue
            text = next(rest, "")
            if not text or text.startswith("-"):
                return None
            if word in self.many:
                given[self.many[word]] = (*given.get(self.many[word], ()), text)
            elif word in self.values:
                name, convert = self.values[word]
                try:
                    given[name] = convert(text)
                except ValueError:
                    return None
            else:
                return None
        if not (self.required <= len(arguments) <= len(self.arguments)) or "" in arguments:
            return None
        return given | dict(zip(self.arguments, arguments, strict=False))


PLAIN: dict[str, Plain] = {
    "submit": Plain(
        "gpuq.cli.submission:submit",
        arguments=("tag",),
        required=1,
        flags={
            "--cpu-only": "cpu_only",
            "--fill": "fill",
            "--hold": "hold",
            "--wait": "wait_",
            "--dry-run": "dry_run",
            "--parsable": "parsable",
            "--json": "as_json",
            "--check": "check",
            "--snapshot": "snapshot",
        },
        values={
            "--mem": ("memory", _size),
            "--cpus": ("cpus", int),
            "--time": ("time", _time),
            "--partition": ("partition", str),
            "-p": ("partition", str),
            "--nice": ("nice", int),
            "--signal-before": ("signal_before", int),
            "--key": ("key", str),
        },
        many={"--after": "after", "--after-ok": "after_ok"},
    ),
    "queue": Plain("gpuq.cli.timetable:queue", flags={"--all": "everybody", "-a": "everybody", "--json": "as_json"}),
    "status": Plain("gpuq.cli.timetable:status", arguments=("ref",), flags={"--json": "as_json"}),
}
"""Those commands, with a name that a module has for each option. An option that is missing here is merely slower."""


def read(argv: list[str]) -> Callable[[], int] | None:
    """What the command line asks for, ready to be called; None: click is to read it."""
    if argv[:1] == ["run"]:  # what follows is another program's command line
        from gpuq.cli import inside

        return inside.read(argv[1:])
    if not argv or argv[0] not in PLAIN or "_GPUQ_COMPLETE" in os.environ:  # a shell completes a command line
        return None
    plain = PLAIN[argv[0]]
    given = plain.read(argv[1:])
    if given is None:
        return None
    from importlib import import_module

    module, _, name = plain.place.partition(":")
    command: Callable[..., int] = getattr(import_module(module), name)
    return lambda: command(**given)
