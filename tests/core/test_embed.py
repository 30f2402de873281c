"""A notice within Discord's limits."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuq.core.notify.embed import SHORT_LINES, WHOLE, cut, escape, message_of, units
from tests.notices import notice

ANY = st.text(st.one_of(st.characters(), st.sampled_from("*_`\\😀\n")), max_size=7000)


@example("t" * 300, "x" * 5000, [("n" * 300, "v" * 2000)] * 30, "l" * 3000)
@example("_" * 300, "*" * 5000, [("_" * 300, "_" * 2000)] * 30, "`" * 3000)
@given(ANY.filter(str.strip), ANY, st.lists(st.tuples(ANY, ANY), max_size=40), ANY)
def test_no_notice_is_too_big_for_the_service(title: str, text: str, fields: list[tuple[str, str]], log: str) -> None:
    message = message_of(notice(title=title, text=text, fields=tuple(fields), log_tail=log), "k")
    assert 1 <= units(message.title) <= 256
    assert units(message.description) <= 4096
    assert len(message.fields) <= 25
    assert all(1 <= units(name) <= 256 and 1 <= units(value) <= 1024 for name, value in message.fields)
    assert message.length <= WHOLE
    if log.strip():
        assert message.description.count("```") == 2, "the log is one block, and cannot close it"


def test_a_job_cannot_style_or_break_the_message() -> None:
    assert escape("lr_3e_4 *bold* `x` <@123> [a](b)") == "lr\\_3e\\_4 \\*bold\\* \\`x\\` \\<\\@123\\> \\[a\\]\\(b\\)"
    description = message_of(notice(log_tail="a\n```\n@everyone"), "k").description
    assert description.count("```") == 2
    assert description.endswith("@everyone\n```")


@pytest.mark.parametrize(("lines", "attached"), [(3, False), (SHORT_LINES, False), (SHORT_LINES + 1, True)])
def test_a_log_is_attached_when_not_all_of_it_is_shown(lines: int, attached: bool) -> None:
    log = "\n".join(f"line {n}" for n in range(lines))
    message = message_of(notice(log_tail=log, log_name="a.log"), "k")
    assert (message.file == log + "\n") is attached
    assert message.file_name == ("a.log" if attached else "")
    assert f"line {lines - 1}" in message.description


def test_one_endless_line_is_cut_and_attached() -> None:
    message = message_of(notice(log_tail="x" * 5000), "k")
    assert len(message.file) == 5001
    assert message.file_name == "log.txt"


def test_a_cut_splits_neither_a_letter_nor_an_escape() -> None:
    assert cut("😀😀😀", 4) == "😀…"
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 0) == ""
    for length in range(1, 12):
        short = cut(escape("____" * 5), length)
        assert re.fullmatch(r"(\\_)*…", short)
