"""Progress bars in a log: only the last frame of each line, however the bytes arrive."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuq.core.frames import LONGEST, Frames, last_frame

BYTES = st.lists(
    st.sampled_from([b"\r", b"\n", b" ", b"a", b"50%", b"\0", b"\xff", "é".encode(), "\u00a0".encode(), b"\xc3", b"\t"])
).map(b"".join)


def whole(data: bytes, longest: int) -> tuple[list[str], str]:
    """What the lines are, said in the simplest way."""
    *lines, rest = data.split(b"\n")

    def shown(line: bytes) -> str:
        texts = [frame[-longest:].decode("utf-8", "replace").replace("\0", "") for frame in line.split(b"\r")]
        return next((text for text in reversed(texts) if text.strip()), "")

    return [shown(line) for line in lines], shown(rest)


@given(BYTES | st.binary(), st.lists(st.integers(min_value=0, max_value=400)), st.integers(min_value=1, max_value=8))
@example(b"abc\r" + b" \r" * 12 + b"\n", [], 8)
@example(b"abc\r" + b" " * 40, [], 4)
def test_fed_in_any_pieces_it_gives_what_it_gives_fed_whole(data: bytes, cuts: list[int], longest: int) -> None:
    expected = whole(data, longest)
    at_once = Frames(longest)
    assert (at_once.feed(data), at_once.pending()) == expected
    pieces = Frames(longest)
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    lines: list[str] = []
    for start, end in itertools.pairwise(places):
        lines += pieces.feed(data[start:end])
    assert (lines, pieces.pending()) == expected
    bytewise = Frames(longest)
    lines = []
    for position in range(len(data)):
        lines += bytewise.feed(data[position : position + 1])
    assert (lines, bytewise.pending()) == expected


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"plain", "plain"),
        (b"10%\r50%\r100%", "100%"),
        (b"10%\r100%\r", "100%"),
        (b"100%\r     \r", "100%"),
        (b"100%\r" + b"  \r" * 20, "100%"),
        (b"windows\r", "windows"),
        (b"a\0b\0", "ab"),
        (b"caf\xe9", "caf\ufffd"),
        ("café ☕".encode(), "café ☕"),
        (b"  indented", "  indented"),
        (b"", ""),
        (b"\r\r\r", ""),
    ],
)
def test_the_last_frame_that_is_not_blank_is_shown(line: bytes, shown: str) -> None:
    assert last_frame(line) == shown


def test_of_an_endless_frame_only_the_end_is_kept() -> None:
    frames = Frames()
    for _ in range(100):
        assert frames.feed(b"x" * LONGEST) == []
    assert frames.pending() == "x" * LONGEST
    assert frames.feed(b"end\n") == ["x" * (LONGEST - 3) + "end"]
    assert frames.pending() == ""


def test_an_endless_bar_keeps_its_last_frame_and_little_else() -> None:
    frames = Frames()
    for percent in range(0, 20000):
        frames.feed(b"epoch %6d of 20000 [##########]\r" % percent)
        assert len(frames._line) <= 4 * LONGEST + 64
    assert frames.pending() == "epoch  19999 of 20000 [##########]"
