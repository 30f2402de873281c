"""Text of other people's making, in one line: a job name may hold newlines, escape sequences and bytes that are no text."""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` with U+FFFD for whatever is no visible character."""
    if text.isprintable():
        return text
    clean = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "�" for c in clean)


def encodable(text: str) -> str:
    """`text` with U+FFFD for bytes that are no text (they are lone surrogates in it, which no JSON can hold)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text
