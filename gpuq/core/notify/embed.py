"""A notice in the shape of a Discord message: an embed within the service's limits, and a long log as a file.

Limits: Discord's documentation, "Embed Limits" (title 256, description 4096, 25 fields of 256 and 1024, footer 2048, 6000 in
all). They are counted here in UTF-16 units, which is the most that any side may count.
"""

from __future__ import annotations

import re

import msgspec

from gpuq.core.notice import Level, Notice
from gpuq.core.notify.delivery import short_key

TITLE, DESCRIPTION, FIELDS, NAME, VALUE, FOOTER, WHOLE = 256, 4096, 25, 256, 1024, 2048, 6000

COLOUR = {Level.GOOD: 0x2ECC71, Level.INFO: 0x3498DB, Level.WARNING: 0xF39C12, Level.BAD: 0xE74C3C}

SHORT_LINES, SHORT_TAIL = 12, 1000
"""A log of no more lines and characters is shown whole; of a longer one the end, and all of it is attached."""

_MARKDOWN = re.compile(r"([\\*_~`|>#\[\]()<@-])")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is posted."""

    title: str
    description: str
    colour: int
    fields: tuple[tuple[str, str], ...]
    footer: str
    timestamp: str
    """ISO 8601, UTC."""
    file_name: str = ""
    file: str = ""
    """The text to attach; empty: nothing."""

    @property
    def length(self) -> int:
        """What Discord counts against WHOLE."""
        texts = [self.title, self.description, self.footer, *(part for field in self.fields for part in field)]
        return sum(map(units, texts))


def message_of(notice: Notice, key: str) -> Message:
    """`key`: the idempotency key; eight digits made of it stand in the footer, so that a double is seen to be one."""
    tail, whole = _tail(notice.log_tail)
    text = cut(escape(notice.text), DESCRIPTION - units(tail) - 1)
    message = Message(
        title=cut(escape(notice.title), TITLE),
        description="\n".join(filter(None, [text, tail])),
        colour=COLOUR[notice.level],
        fields=tuple(
            (cut(escape(name), NAME), cut(escape(value), VALUE))
            for name, value in notice.fields[:FIELDS]
            if name.strip() and value.strip()  # an empty one is refused
        ),
        footer=cut(f"gpuq · {short_key(key)}", FOOTER),
        timestamp=notice.time.isoformat(),
        file_name=(notice.log_name or "log.txt") if whole else "",
        file=whole,
    )
    while message.length > WHOLE and message.fields:  # without any it is 4,400 at most
        message = msgspec.structs.replace(message, fields=message.fields[:-1])
    return message


def _tail(log: str) -> tuple[str, str]:
    """The block that shows the end of the log, and the text to attach (empty: the block shows all)."""
    if not log.strip():
        return "", ""
    lines = log.split("\n")
    shown = [line.replace("```", "`\u200b`\u200b`") for line in lines[-SHORT_LINES:]]
    while len(shown) > 1 and units("\n".join(shown)) > SHORT_TAIL:
        shown.pop(0)
    block = "```\n" + cut("\n".join(shown), SHORT_TAIL) + "\n```"
    whole = len(shown) == len(lines) and units(log) <= SHORT_TAIL
    return block, "" if whole else log + "\n"


def escape(text: str) -> str:
    """`text` as Discord shows it letter by letter: `lr_3e_4` must not become italic."""
    return _MARKDOWN.sub(r"\\\1", text)


def units(text: str) -> int:
    """Length in UTF-16 units."""
    return len(text) + sum(character > "\uffff" for character in text)


def cut(text: str, longest: int) -> str:
    """`text` within `longest` UTF-16 units, with an ellipsis where something was left out."""
    if units(text) <= longest:
        return text
    kept = text[: max(0, longest - 1)]
    while kept and units(kept) > longest - 1:
        kept = kept[:-1]
    kept = re.sub(r"(?<!\\)((?:\\\\)*)\\$", r"\1", kept)  # half of an escaped character
    return f"{kept}…" if longest > 0 else ""
