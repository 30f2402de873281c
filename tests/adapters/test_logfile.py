"""Logs on disk: big ones, broken ones, growing ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuq.adapters.logfile import Growing, last_lines, whole

BIG = 20 * 1024 * 1024


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "attempt1.out"


def test_a_bar_of_20_mb_in_one_line_is_its_last_frame(log: Path) -> None:
    frame = b"epoch 1 [##########] %08d\r"
    with log.open("wb") as handle:
        handle.write(b"start\n")
        for number in range(BIG // 27):
            handle.write(frame % number)
    last = f"epoch 1 [##########] {BIG // 27 - 1:08d}"
    assert list(whole(log)) == ["start", last]
    assert last_lines(log, 1)[0] == [last]
    assert last_lines(log, 5) == (["start", last], log.stat().st_size)


def test_a_20_mb_line_without_frames_shows_its_end(log: Path) -> None:
    log.write_bytes(b"x" * BIG + b"the end\n")
    (line,) = whole(log)
    assert line.endswith("xthe end")
    assert len(line) < 1024 * 1024
    assert last_lines(log, 3)[0] == [line]


def test_as_many_of_the_last_lines_as_asked_for_also_when_they_are_long(log: Path) -> None:
    with log.open("wb") as handle:
        for number in range(200):
            handle.write(b"%03d " % number + b"x" * 60_000 + b"\n")
    lines, offset = last_lines(log, 150)
    assert [line[:3] for line in lines] == [f"{number:03d}" for number in range(50, 200)]
    assert offset == log.stat().st_size


def test_bytes_that_are_no_text_do_not_stop_it(log: Path) -> None:
    log.write_bytes(b"a\0b\ncaf\xe9\n\xff\xfe\n\0\0\0\nend")
    assert list(whole(log)) == ["ab", "caf\ufffd", "\ufffd\ufffd", "", "end"]
    assert last_lines(log, 2)[0] == ["", "end"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.sampled_from([b"\n", b"\r", b"a", b" ", b"\0", b"\xc3", b"\xa9"]), max_size=60).map(b"".join),
    st.integers(min_value=0, max_value=20),
)
def test_the_last_lines_are_the_end_of_all_lines(log: Path, data: bytes, count: int) -> None:
    log.write_bytes(data)
    lines = list(whole(log))
    assert last_lines(log, count) == (lines[-count:] if count else [], len(data))


def test_an_empty_log_has_no_lines(log: Path) -> None:
    log.touch()
    assert list(whole(log)) == []
    assert last_lines(log, 5) == ([], 0)


def test_a_missing_log_is_said_to_be_missing(log: Path) -> None:
    for read in (lambda: list(whole(log)), lambda: last_lines(log, 5), lambda: list(Growing(log).more())):
        with pytest.raises(FileNotFoundError):
            read()


def test_a_growing_log_gives_each_line_once_and_whole(log: Path) -> None:
    growing = Growing(log)
    with log.open("wb", buffering=0) as handle:
        handle.write(b"one\ntw")
        assert list(growing.more()) == ["one"]
        assert growing.pending() == "tw"
        handle.write(b"o\n")
        assert list(growing.more()) == ["two"]
        assert growing.pending() == ""
        assert list(growing.more()) == []
        handle.write(b"10%\r20%\r")
        assert list(growing.more()) == []
        assert growing.pending() == "20%"


def test_a_log_that_was_cut_is_read_from_its_beginning_without_what_was_there_before(log: Path) -> None:
    log.write_bytes(b"old line\nold unfinished")
    growing = Growing(log)
    assert list(growing.more()) == ["old line"]
    log.write_bytes(b"new\n")
    assert list(growing.more()) == ["new"]


def test_following_starts_behind_what_was_shown(log: Path) -> None:
    log.write_bytes(b"one\ntwo\n")
    lines, offset = last_lines(log, 1)
    growing = Growing(log, offset)
    assert lines == ["two"]
    with log.open("ab") as handle:
        handle.write(b"three\n")
    assert list(growing.more()) == ["three"]
