"""A bar becomes a line in a while; everything else passes byte for byte, in whatever pieces it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.inside.thinning import LONGEST, Thinner


def thinned(data: bytes, size: int = 7, *, step: float = 0.0, every: float = 30.0) -> bytes:
    """`data` in pieces of `size`, `step` seconds apart."""
    thin, out, now = Thinner(every), b"", 0.0
    for at in range(0, len(data), size):
        out += thin.feed(data[at : at + size], now)
        now += step
    return out + thin.close()


@given(st.binary().map(lambda data: data.replace(b"\r", b"")), st.integers(1, 9))
def test_what_is_no_bar_passes_as_it_is(data: bytes, size: int) -> None:
    assert thinned(data, size) == data
    lines = data.replace(b"\n", b"\r\n")
    assert thinned(lines, size) == lines


@given(st.text("ab \r\n\0\x1b[A").map(str.encode), st.integers(1, 5))
def test_where_it_is_cut_makes_no_difference(data: bytes, size: int) -> None:
    assert thinned(data, size) == thinned(data, 10**6)


BAR = b"".join(b"\r%3d%%|##| %d/1000" % (i // 10, i) for i in range(1, 1001))


@pytest.mark.parametrize("size", [1, 7, 19, 4096])
def test_a_bar_of_one_instant_leaves_its_last_frame(size: int) -> None:
    assert thinned(b"begin\n" + BAR + b"\nend\n", size) == b"begin\n100%|##| 1000/1000\nend\n"


def test_a_long_bar_leaves_a_line_in_a_while() -> None:
    out = thinned(BAR + b"\n", 19, step=0.1).decode().splitlines()  # some 95 seconds
    assert len(out) == 4
    assert out[-1] == "100%|##| 1000/1000"
    assert all(line.endswith("/1000") for line in out)


def test_a_bar_that_stands_still_is_told_when_it_is_due() -> None:
    thin = Thinner(30)
    assert thin.feed(b"\r 1%\r", 0) == b""
    assert thin.feed(b" 2%", 1) == b""
    assert thin.due() == 30
    assert thin.tick(29.9) == b""
    assert thin.tick(30) == b" 1%\n"
    assert thin.due() is None
    assert thin.close() == b" 2%\n"


def test_two_bars_that_go_up_and_down() -> None:
    data = b"".join(b"\router %d\n\rinner %d\x1b[A" % (i, i) for i in range(300)) + b"\n\n"
    lines = thinned(data, 11, step=0.1).splitlines()
    assert len(lines) < 12
    assert b"inner 299" in lines


def test_a_bar_whose_first_frame_has_passed_goes_on_in_a_new_line() -> None:
    assert thinned(b"Epoch 1: 0%\rEpoch 1: 1%\rEpoch 1: 2%\n") == b"Epoch 1: 0%\nEpoch 1: 2%\n"
    thin = Thinner()
    assert thin.feed(b"Loading... ", 0) == b"Loading... "  # a part of a line is seen at once
    assert thin.feed(b"done\n", 9) == b"done\n"


def test_what_is_killed_in_the_middle_keeps_its_last_frame() -> None:
    assert thinned(b"\r 1%\r 2%\r 3") == b" 3\n"
    assert thinned(b"\r 1%\r 2%\r   \r") == b" 2%\n"
    assert thinned(b"a\r") == b"a\r"


def test_what_is_too_long_for_a_frame_passes() -> None:
    long = b"x" * (LONGEST + 1)
    assert thinned(b"\r" + long + b"\n", 999) == long + b"\n"
    assert thinned(b"\r" + long + b"\rshort\n", 10**6) == long + b"\nshort\n"
