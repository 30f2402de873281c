"""How results and notes are printed: results to stdout, everything else to stderr; colour only on a terminal."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

STYLE = {
    "SUCCEEDED": "green",
    "RUNNING": "green",
    "COMPLETING": "green",
    "PENDING": "yellow",
    "FAILED": "red",
    "OUT_OF_MEMORY": "red",
    "TIMEOUT": "red",
    "NODE_FAIL": "red",
    "LOST": "red",
    "INCOMPLETE": "magenta",
    "CANCELLED": "magenta",
}
"""Colour of a state or outcome."""


def say(text: str) -> None:
    """A note for a person, on stderr. Where stderr is full or gone, work goes on without it."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def stay() -> None:
    """To be called by a command that may go on for hours: collect garbage after all (see gpuq.__main__)."""
    gc.enable()


def emit_json(schema: str, **fields: Any) -> None:
    """One JSON object on stdout: `{"schema": "gpuq.queue/1", ...}`. Bytes that are no text become U+FFFD."""
    import msgspec

    value = {"schema": schema, **fields}
    try:
        raw = msgspec.json.encode(value)
    except UnicodeEncodeError:
        raw = msgspec.json.encode(_no_surrogates(msgspec.to_builtins(value)))
    click.echo(msgspec.json.format(raw, indent=2))


def _no_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, list | tuple):
        return [_no_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {key: _no_surrogates(item) for key, item in value.items()}
    return value


def printable(text: str) -> str:
    """`text` in one line: a job name may hold newlines, escape sequences and bytes that are no text."""
    if text.isprintable():
        return text
    clean = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "�" for c in clean)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, styled: int | None = None) -> None:
    """A table on stdout, columns two blanks apart. styled: the column that is coloured by its word (see STYLE).

    No library: see docs/adr/0006-no-table-library.md.
    """
    columns = [_column(list(column)) for column in zip(headings, *rows, strict=True)]
    if colour_wanted():
        for number, column in enumerate(columns):
            words = column[1:]
            if number == styled:
                words = [click.style(cell, fg=STYLE.get(cell.split(" ", 1)[0])) for cell in words]
            columns[number] = [click.style(column[0], bold=True), *words]
    click.echo("\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True)))


def _column(cells: list[str]) -> list[str]:
    """`cells`, printable and padded to one width."""
    if not all(map(str.isprintable, cells)):
        cells = [printable(cell) for cell in cells]
    if "".join(cells).isascii():
        width = max(map(len, cells))
        return [cell.ljust(width) for cell in cells]
    widths = [_width(cell) for cell in cells]
    most = max(widths)
    return [cell + " " * (most - width) for cell, width in zip(cells, widths, strict=True)]


def rewrite(frame: str) -> None:
    """Put `frame` on the line of the terminal where the cursor is, in place of what stands there; no line break.

    Cut to the terminal, for a line that wraps cannot be rewritten.
    """
    import shutil

    most = shutil.get_terminal_size().columns - 1
    text = printable(frame)
    while (over := _width(text) - most) > 0:
        text = text[: -max(1, over // 2)]  # a character takes two columns at most
    sys.stdout.write(f"\r\x1b[K{text}")
    sys.stdout.flush()


def _width(text: str) -> int:
    """Columns of a terminal that `text` takes: wide East Asian characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def colour_wanted() -> bool:
    """False where NO_COLOR is set (no-color.org) or stdout is no terminal."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def state(word: str) -> str:
    """A state or outcome, coloured where that is wanted."""
    return click.style(word, fg=STYLE.get(word)) if colour_wanted() and word in STYLE else word
