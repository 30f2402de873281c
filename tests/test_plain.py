"""The command lines that are read without click mean what click says they mean."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.cli import plain
from gpuq.cli.group import cli
from gpuq.cli.plain import PLAIN

NAMES = sorted(PLAIN)


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def function(name: str) -> Callable[..., int]:
    module, _, attribute = PLAIN[name].place.partition(":")
    found: Callable[..., int] = getattr(importlib.import_module(module), attribute)
    return found


def by_click(name: str, words: list[str]) -> dict[str, Any] | None:
    """What click makes of them; None: it refuses them, or prints help."""
    try:
        return command(name).make_context(name, list(words)).params
    except (click.ClickException, click.exceptions.Exit):
        return None


def whole(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """`given` with what the function takes for the rest; None for what only `**` would take."""
    named = {
        parameter.name: parameter.default
        for parameter in inspect.signature(function(name)).parameters.values()
        if parameter.default is not parameter.empty
    }
    rest = {parameter.name or "": None for parameter in command(name).params}
    return rest | named | given


def same(name: str, words: list[str]) -> bool:
    """True where the words were read here; fails the test where click reads them otherwise."""
    mine = PLAIN[name].read(words)
    if mine is None:
        return False
    theirs = by_click(name, words)
    assert theirs is not None, f"click refuses {words}"
    # `cpu_only` may be left out (None) where click says False
    assert {key: value or None for key, value in whole(name, mine).items()} == {
        key: value or None for key, value in theirs.items()
    }
    return True


def every_word(name: str) -> list[str]:
    return [
        word for parameter in command(name).params if isinstance(parameter, click.Option) for word in parameter.opts
    ]


WORDS = [
    "",
    "-",
    "--",
    "-h",
    "--help",
    "--mem=2G",
    "--json=1",
    "--no-hold",
    "-pgpu",
    "-aj",
    "a",
    "dino/b",
    "12",
    "auto",
]
WORDS += ["2G", "28", "0", "-1", " 5", "1_0", "9" * 30, "8:00:00", "24:00", "8h", "é", "\udce9", "x y", "last", "gpu"]


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_what_is_read_here_is_what_click_reads(name: str, data: st.DataObject) -> None:
    word = st.one_of(st.sampled_from(WORDS), st.sampled_from([*every_word(name), "--everything"]), st.text(max_size=5))
    same(name, data.draw(st.lists(word, max_size=8)))


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_whatever_follows_a_known_option_is_read_as_click_reads_it(name: str, data: st.DataObject) -> None:
    known = PLAIN[name]
    options = [*known.flags, *known.values, *known.many]
    words = list(data.draw(st.lists(st.sampled_from(["a", "b"]), max_size=len(known.arguments) + 1)))
    for option in data.draw(st.lists(st.sampled_from(options), max_size=4)):
        words.append(option)
        if option not in known.flags:
            words.append(data.draw(st.sampled_from(WORDS)))
    same(name, words)


@pytest.mark.parametrize(
    "line",
    [
        "submit a",
        "submit dino/lr3e-4 --mem 2G --time 8:00:00 --cpus 4",
        "submit a -p gpu --partition cpu --nice 5 --signal-before 60 --cpu-only",
        "submit --after b a --after 12 --after-ok c --hold --key why --wait --parsable",
        "submit a --dry-run --json",
        "queue",
        "queue --all --json",
        "queue -a",
        "status",
        "status a --json",
        "status 12",
    ],
)
def test_these_lines_are_read_without_click(line: str) -> None:
    name, *words = line.split()
    assert same(name, words)
    assert plain.read([name, *words]) is not None


@pytest.mark.parametrize("name", NAMES)
def test_the_options_here_are_options_of_the_command(name: str) -> None:
    known = PLAIN[name]
    theirs = {word: parameter.name for parameter in command(name).params for word in parameter.opts}
    mine = known.flags | known.many | {word: field for word, (field, _) in known.values.items()}
    assert mine.items() <= theirs.items()
    assert known.arguments == tuple(p.name for p in command(name).params if isinstance(p, click.Argument))


@pytest.mark.parametrize(
    "line", ["", "--debug submit a", "submit", "submit a b", "submit a --fast", "wait a", "queue a"]
)
def test_everything_else_is_left_to_click(line: str) -> None:
    assert plain.read(line.split()) is None


def test_a_shell_that_completes_is_left_to_click(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_GPUQ_COMPLETE", "bash_complete")
    assert plain.read(["queue"]) is None
