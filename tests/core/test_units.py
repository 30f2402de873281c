"""Sizes and times: what Slurm means by them, and back."""

from __future__ import annotations

import contextlib
import datetime
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.units import (
    GIB,
    KIB,
    MIB,
    TIB,
    duration_words,
    format_duration,
    format_size,
    is_minutes_seconds,
    parse_clock,
    parse_epoch,
    parse_size,
    parse_time_limit,
    slurm_megabytes,
    slurm_time,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("28G", 28 * GIB),
        ("28g", 28 * GIB),
        ("28GB", 28 * GIB),
        ("28GiB", 28 * GIB),
        (" 28.5 G ", 28 * GIB + GIB // 2),
        ("900M", 900 * MIB),
        ("28000", 28000 * MIB),  # sbatch(1): the default unit is megabytes
        ("2048K", 2 * MIB),
        ("1T", TIB),
    ],
)
def test_a_size_is_read_as_slurm_reads_mem(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "G", "-1G", "28X", "28 GG", "1e3", "nan", "infG", "28G\n28G", "1,5G", "١٢G", "9" * 400 + "G"]
)
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 28G"):
        parse_size(text)


def test_a_size_of_zero_is_refused_because_slurm_takes_it_for_the_whole_node() -> None:
    with pytest.raises(ValueError, match="whole node"):
        parse_size("0")
    with pytest.raises(ValueError, match="less than 1M"):
        parse_size("5K")


@given(st.integers(min_value=1, max_value=64 * 1024 * 1024))
def test_whole_megabytes_go_to_slurm_and_back_unchanged(megabytes: int) -> None:
    assert slurm_megabytes(parse_size(f"{megabytes}M")) == megabytes
    assert parse_size(str(megabytes)) == megabytes * MIB


@given(st.integers(min_value=1, max_value=16 * TIB))
def test_megabytes_for_slurm_are_never_less_than_what_was_asked(size: int) -> None:
    assert size <= slurm_megabytes(size) * MIB < size + MIB


@given(st.integers(min_value=MIB, max_value=16 * TIB))
def test_a_size_for_a_person_reads_back_within_its_one_decimal(size: int) -> None:
    shown = format_size(size)
    assert abs(parse_size(shown) - size) <= size * 0.05 + KIB


@pytest.mark.parametrize(
    ("size", "text"),
    [(28 * GIB, "28G"), (GIB + GIB // 2, "1.5G"), (900 * MIB, "900M"), (12 * KIB, "12K"), (5, "5B"), (0, "0")],
)
def test_sizes_for_a_person_have_one_decimal_at_most(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize("size", [GIB - 1, TIB - 1, MIB - 1])
def test_a_size_just_below_a_unit_is_not_shown_as_1024_of_the_smaller(size: int) -> None:
    assert not format_size(size).startswith("1024")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90 * 60),
        ("24:00", 24 * 60),
        ("24:00:00", 24 * 3600),
        ("1-12", 36 * 3600),
        ("1-12:30", 36 * 3600 + 30 * 60),
        ("1-12:30:30", 36 * 3600 + 31 * 60),  # Slurm rounds up to whole minutes
        ("0:30", 60),
        ("UNLIMITED", None),
        ("infinite", None),
    ],
)
def test_a_time_limit_is_read_as_slurm_reads_time(text: str, seconds: int | None) -> None:
    assert parse_time_limit(text) == seconds


@pytest.mark.parametrize("text", ["", "8h", "1:2:3:4", "-5", "1-", "1-2:3:4:5", "8:00:00 x", "tomorrow", "24:00\n"])
def test_what_is_no_time_limit_is_refused(text: str) -> None:
    if text == "24:00\n":
        assert parse_time_limit(text) == 24 * 60  # blanks around it do no harm
        return
    with pytest.raises(ValueError, match="is not a time limit"):
        parse_time_limit(text)


def test_a_time_limit_written_with_units_is_refused_with_slurms_spelling() -> None:
    with pytest.raises(ValueError, match="Slurm would want 1-00:00:00"):
        parse_time_limit("24h")
    with pytest.raises(ValueError, match="Slurm would want 01:30:00"):
        parse_time_limit("1h30m")


@pytest.mark.parametrize("text", ["0", "0:00", "00:00:00", "0-0"])
def test_a_time_limit_of_zero_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"no limit at all.*pends for ever"):
        parse_time_limit(text)


def test_24_00_is_recognised_as_minutes_and_said_in_words() -> None:
    assert is_minutes_seconds("24:00")
    assert not is_minutes_seconds("24:00:00")
    assert not is_minutes_seconds("24")
    assert duration_words(24 * 60) == "24 minutes"


@given(st.integers(min_value=1, max_value=10_000_000))
def test_whole_minutes_go_to_slurm_and_back_unchanged(minutes: int) -> None:
    text = slurm_time(minutes * 60)
    assert parse_time_limit(text) == minutes * 60
    assert parse_clock(text) == minutes * 60
    assert not is_minutes_seconds(text)


@given(st.integers(min_value=1, max_value=10**9))
def test_a_limit_is_rounded_up_and_never_down(seconds: int) -> None:
    limit = parse_time_limit(slurm_time(seconds))
    assert limit is not None
    assert seconds <= limit < seconds + 60
    assert limit % 60 == 0


@given(st.integers(min_value=0, max_value=10**9))
def test_words_of_a_duration_name_each_unit_once_and_add_up(seconds: int) -> None:
    sizes = {"day": 86400, "hour": 3600, "minute": 60, "second": 1}
    found = re.findall(r"(\d+) (day|hour|minute|second)s?", duration_words(seconds))
    assert len({unit for _, unit in found}) == len(found)
    assert sum(int(count) * sizes[unit] for count, unit in found) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("4:05", 245), ("1:02:03", 3723), ("7-00:00:00", 604800), ("UNLIMITED", None), ("N/A", None), ("INVALID", None)],
)
def test_a_duration_as_squeue_prints_it(text: str, seconds: int | None) -> None:
    assert parse_clock(text) == seconds


@pytest.mark.parametrize("text", ["4", "x", "1:2:3:4", "4:05 ago"])
def test_what_squeue_never_prints_for_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_clock(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (45, "45s"),
        (24 * 60, "24m"),
        (61, "1m01s"),
        (4320, "1h12m"),
        (3600, "1h"),
        (183600, "2d3h"),
        (-3, "0s"),
    ],
)
def test_a_duration_for_a_person_has_two_units_at_most(seconds: int, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(min_value=1, max_value=4102444800))
def test_an_epoch_becomes_an_aware_time(epoch: int) -> None:
    moment = parse_epoch(str(epoch))
    assert moment is not None
    assert moment.tzinfo is datetime.UTC
    assert int(moment.timestamp()) == epoch


@pytest.mark.parametrize("text", ["N/A", "Unknown", "None", "0", ""])
def test_slurms_ways_to_say_no_time_are_none(text: str) -> None:
    assert parse_epoch(text) is None


@pytest.mark.parametrize("text", ["2026-11-29T13:00:00", "-1", "1.5", "²", "1 2", "9" * 30])
def test_what_is_no_epoch_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a number of seconds since 1970"):
        parse_epoch(text)


@given(st.text(max_size=30))
def test_readers_raise_nothing_but_value_error(text: str) -> None:
    for read in (parse_size, parse_time_limit, parse_clock, parse_epoch):
        with contextlib.suppress(ValueError):
            assert read(text) != -1


@given(st.integers(min_value=1, max_value=1000 * TIB))
def test_no_size_is_shown_as_1024_of_a_smaller_unit(size: int) -> None:
    assert float(format_size(size).rstrip("BKMGT")) < 1024
