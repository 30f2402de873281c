"""A section of somebody else's file: what stands between two markers is ours, everything else is theirs."""

from __future__ import annotations

BEGIN = "<!-- gpuq: begin (kept by `gpuq init`; write outside of it) -->"
END = "<!-- gpuq: end -->"
_BEGIN = "<!-- gpuq: begin"


def put_section(text: str, section: str) -> str:
    """`text` with the section renewed where it stands, else added at the end. Line ends are those of the text.

    Raises ValueError, saying what is wrong, where the markers are not one pair in order.
    """
    block = f"{BEGIN}\n{section.strip()}\n{END}"
    newline = "\r\n" if "\r\n" in text else "\n"
    block = block.replace("\n", newline)
    starts, ends = text.count(_BEGIN), text.count(END)
    if starts == ends == 0:
        if not text:
            return block + newline
        gap = "" if text.endswith(newline * 2) else newline if text.endswith("\n") else newline * 2
        return text + gap + block + newline
    start, end = text.find(_BEGIN), text.find(END)
    if starts != 1 or ends != 1 or end < start:
        raise ValueError(f"its markers are broken: {starts} times `{_BEGIN}`, {ends} times `{END}`")
    return text[:start] + block + text[end + len(END) :]


def put_lines(text: str, comment: str, lines: list[str]) -> str:
    """`text` with those of `lines` that it does not have yet at its end, below `comment`."""
    has = {line.strip() for line in text.splitlines()}
    missing = [line for line in lines if line not in has]
    if not missing:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text or text.endswith("\n") else newline
    told = [] if comment in has else [comment]
    return text + gap + "".join(line + newline for line in [*told, *missing])
