"""How results and notes are printed: results to stdout, everything else to stderr; colour only on a terminal."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from gpuq.core.printable import json_bytes
from gpuq.core.printable import printable as printable

_COLOURS = {"red": 31, "green": 32, "yellow": 33, "magenta": 35}
"""By number (ECMA-48, "SGR"). Not click's: what prints a queue need not import what reads a command line."""

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


written = False
"""A JSON object has been written to stdout."""


def say(text: str) -> None:
    """A note for a person, on stderr. Where stderr is full or gone, work goes on without it."""
    clean = text if text.isprintable() else "\n".join(map(printable, text.split("\n")))
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{clean}\n")
        sys.stderr.flush()


def echo(text: object = "") -> None:
    """A line on stdout."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def style(text: str, *, colour: str | None = None, bold: bool = False) -> str:
    """`text` as a terminal shows it in a colour of STYLE, or bold."""
    codes = ([str(_COLOURS[colour])] if colour else []) + (["1"] if bold else [])
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m"


def stay() -> None:
    """To be called by a command that may go on for hours: collect garbage after all (see gpuq.__main__)."""
    gc.enable()


def emit_json(schema: str, **fields: Any) -> None:
    """One JSON object on stdout: `{"schema": "gpuq.queue/1", ...}`. Bytes that are no text become U+FFFD."""
    import msgspec

    global written
    written = True
    raw = json_bytes({"schema": schema, **fields})
    sys.stdout.flush()
    sys.stdout.buffer.write(msgspec.json.format(raw, indent=2) + b"\n")  # UTF-8, whatever the locale
    sys.stdout.buffer.flush()


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, styled: int | None = None) -> None:
    """A table on stdout, columns two blanks apart. styled: the column that is coloured by its word (see STYLE).

    No library: see docs/adr/0006-no-table-library.md.
    """
    columns = [_printable(column) for column in zip(headings, *rows, strict=True)]
    if not colour_wanted() and all(map(str.isascii, map("".join, columns))):
        line = "  ".join(f"%-{max(map(len, column))}s" for column in columns)
        echo("\n".join([(line % cells).rstrip() for cells in zip(*columns, strict=True)]))
        return
    columns = [_padded(column) for column in columns]
    if colour_wanted():
        for number, column in enumerate(columns):
            words = column[1:]
            if number == styled:
                words = tuple(style(cell, colour=STYLE.get(cell.split(" ", 1)[0])) for cell in words)
            columns[number] = (style(column[0], bold=True), *words)
    echo("\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True)))


def _printable(cells: tuple[str, ...]) -> tuple[str, ...]:
    return cells if "".join(cells).isprintable() else tuple(map(printable, cells))


def _padded(cells: tuple[str, ...]) -> tuple[str, ...]:
    """`cells` in one width."""
    widths = [_width(cell) for cell in cells]
    most = max(widths)
    return tuple(cell + " " * (most - width) for cell, width in zip(cells, widths, strict=True))


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
    return style(word, colour=STYLE[word]) if colour_wanted() and word in STYLE else word
