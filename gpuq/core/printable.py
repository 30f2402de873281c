"""Text of other people's making, in one line: a job name may hold newlines, escape sequences and bytes that are no text."""

from __future__ import annotations

from typing import Any


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


def json_bytes(value: Any) -> bytes:
    """`value` as JSON, each text in it `encodable`: the name of a file may hold any bytes."""
    import msgspec

    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(value)))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in value.items()}
    return value
