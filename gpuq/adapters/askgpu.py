"""The GPU, asked in a copy of this process: what the driver needs of time and memory is not ours, and it may hang.

The answer comes back as lines of text, so that `gpuq run` needs no more to read it.
"""

from __future__ import annotations

from gpuq.adapters.child import Aside


class Gpu:
    """One GPU that answers. Sizes in bytes; None: not told."""

    __slots__ = ("free", "holders", "minor", "name")

    def __init__(self, name: str, minor: int | None, free: int | None, holders: list[tuple[int, int | None]]) -> None:
        self.name = name
        self.minor = minor
        self.free = free
        self.holders = holders
        """(process, memory)"""


class Answer:
    """What the driver said. `trouble`: why it tells nothing, as in gpuq.core.gpu.readings.Trouble; empty: it does."""

    __slots__ = ("advice", "driver", "gpus", "trouble", "words")

    def __init__(self) -> None:
        self.trouble = ""
        self.words = ""
        self.advice = ""
        self.driver = ""
        self.gpus: list[Gpu] = []


def begin() -> Aside:
    """Ask; `heard(aside.answer(seconds))` is what came."""
    return Aside(_ask)


def _ask() -> bytes:
    from gpuq.adapters import gpu

    seen = gpu.glance()
    lines = [["driver", seen.driver or ""]]
    for name, minor, free, holders in seen.gpus:
        lines.append(["gpu", _text(minor), _text(free), name or ""])
        lines += [["holder", str(pid), _text(memory)] for pid, memory in holders]
    if seen.trouble:
        from gpuq.core.gpu.readings import Trouble, trouble_advice, trouble_words

        trouble = Trouble(seen.trouble)
        lines.append(["trouble", trouble.value, trouble_words(trouble, seen.detail), trouble_advice(trouble)])
    return "".join(
        "\t".join(word.replace("\t", " ").replace("\n", " ") for word in line) + "\n" for line in lines
    ).encode()


def heard(data: bytes | None) -> Answer | None:
    """None: nothing came in time."""
    if data is None:
        return None
    found = Answer()
    for line in data.decode().splitlines():
        kind, *words = line.split("\t")
        if kind == "driver":
            found.driver = words[0]
        elif kind == "gpu":
            found.gpus.append(Gpu(words[2], _number(words[0]), _number(words[1]), []))
        elif kind == "holder":
            found.gpus[-1].holders.append((int(words[0]), _number(words[1])))
        elif kind == "trouble":
            found.trouble, found.words, found.advice = words
    return found


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def _number(text: str) -> int | None:
    return int(text) if text else None
