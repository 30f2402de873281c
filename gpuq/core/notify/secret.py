"""A text that is never shown: the address of a webhook, with its token in it.

Whoever has the URL of a Discord webhook can post to the channel; there is no other credential. So it is held in a type
that no print, log line, traceback with values or JSON encoder can open by accident, and everything that a sink says about
a failure goes through `scrub`.
"""

from __future__ import annotations

import re
from typing import NoReturn
from urllib.parse import quote, unquote, urlsplit

SHOWN = "***"
_SHORTEST = 4
"""Characters. Hiding a shorter part of a URL (`api`, `v10`) would garble every message."""
_KNOWN = frozenset({"webhooks", "https", "http", "wait", "true", "json", "jsons", "form", "forms", "mailto", "mailtos"})


class Secret:
    """A secret text. Only `reveal` gives it away."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the library that needs it."""
        return self._text

    def scrub(self, text: str) -> str:
        """`text` without the secret and without its parts, in any spelling that a URL library gives them."""
        for part in self._parts():
            text = re.sub(re.escape(part), SHOWN, text, flags=re.IGNORECASE)
        return text

    def _parts(self) -> list[str]:
        """The secret, its path, and each piece of user, password, path and query; the longest first."""
        found = {self._text}
        try:
            split = urlsplit(self._text)
            host = split.hostname or ""
        except ValueError:
            split, host = urlsplit(""), ""
        found |= {split.path, f"{split.path}?{split.query}", split.netloc if "@" in split.netloc else ""}
        found |= set(re.split(r"[/?&=#:@,]", self._text)) - {split.scheme}
        if split.scheme in {"http", "https"}:  # elsewhere (slack://token/...) the host may be the secret
            found -= {host}
        for one in list(found):
            found |= {quote(one, safe="", errors="replace"), quote(one, errors="replace"), unquote(one)}
        kept = {one for one in found if len(one) >= _SHORTEST and one.lower() not in _KNOWN}
        return sorted(kept | {self._text} - {""}, key=len, reverse=True)

    def __repr__(self) -> str:
        return f"Secret({SHOWN})"

    def __str__(self) -> str:
        return SHOWN

    def __format__(self, spec: str) -> str:
        return format(SHOWN, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written down")
