"""A series as a small chart of text, for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII = " .:-=+*#@"


def draw(
    values: Sequence[float], *, width: int, height: int, top: float | None = None, ascii_only: bool = False
) -> list[str]:
    """Rows of a bar chart, the highest first; each column the highest value of its part of the series.

    top: the value at the upper edge; by default the highest.
    """
    if not values or width < 1 or height < 1:
        return []
    columns = bucket(values, width)
    edge = top or max(columns) or 1.0
    blocks = _ASCII if ascii_only else _BLOCKS
    steps = len(blocks) - 1
    filled = [round(min(1.0, value / edge) * height * steps) for value in columns]
    return [
        "".join(blocks[max(0, min(steps, level - row * steps))] for level in filled)
        for row in range(height - 1, -1, -1)
    ]


def bucket(values: Sequence[float], width: int) -> list[float]:
    """At most `width` values, each the highest of its part: a short peak is not averaged away."""
    count = min(width, len(values))
    return [max(values[len(values) * i // count : len(values) * (i + 1) // count]) for i in range(count)]
