"""TAGs name a directory below the runs root, whatever anybody types."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuq.core.tag import ATTEMPTS_DIR, JobId, check_tag, is_job_id, read_job_id

_PIECES = st.lists(
    st.sampled_from(
        ["..", ".", "/", "//", "a", "slurm", "-x", "~", "$HOME", "\\", "\n", "\0", " ", "é", "12", "lr=3e-4"]
    )
).map("".join)


@pytest.mark.parametrize("tag", ["baseline", "dino/lr3e-4", "a/b/c", "lr=3e-4", "v1.2+x_y", "12a", "2026-11/29"])
def test_ordinary_paths_are_tags(tag: str) -> None:
    assert check_tag(tag) == tag


def test_the_slash_that_shells_complete_is_dropped() -> None:
    assert check_tag("dino/lr3e-4/") == "dino/lr3e-4"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("/", "empty"),
        ("/etc", "absolute"),
        ("../x", "leaves the runs root"),
        ("a/../b", "leaves the runs root"),
        ("./a", "leaves the runs root"),
        ("a//b", "not made of"),
        ("a b", "not made of"),
        ("a\nb", "not made of"),
        ("é", "not made of"),
        (".hidden", "hidden from every listing"),
        ("a/.gpuq", "hidden from every listing"),
        ("--help", "begins with '-'"),
        ("a/-b", "begins with '-'"),
        (f"a/{ATTEMPTS_DIR}", "keeps attempts"),
        ("last", "keyword"),
        ("12", "a job id"),
        ("12_3", "a job id"),
        ("a" * 201, "longer than 200"),
    ],
)
def test_what_is_no_tag_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_tag(text)


@given(st.one_of(st.text(), _PIECES))
@example("a/..")
@example("a/b/../../../../etc")
@example("a\n")
def test_no_text_becomes_a_tag_that_leaves_the_runs_root(text: str) -> None:
    try:
        tag = check_tag(text)
    except ValueError:
        return
    path = PurePosixPath("/root/runs") / tag
    assert path.parts[:3] == ("/", "root", "runs")
    assert len(path.parts) > 3
    assert not {"..", ".", "", ATTEMPTS_DIR} & set(tag.split("/"))
    assert check_tag(tag) == tag
    assert tag.isascii()
    assert not is_job_id(tag)


@pytest.mark.parametrize(
    ("text", "answer"), [("12", True), ("12_3", True), ("12_", False), ("1.5", False), ("", False)]
)
def test_job_ids_are_told_from_tags(text: str, answer: bool) -> None:
    assert is_job_id(text) is answer


@pytest.mark.parametrize("text", ["12\n", "١٢", "²"])
def test_only_plain_digits_are_a_job_id(text: str) -> None:
    assert not is_job_id(text)


@pytest.mark.parametrize(
    ("text", "number", "part", "cluster"),
    [
        ("12", 12, "", ""),
        ("12_3", 12, "12_3", ""),
        ("12+1", 12, "12+1", ""),
        ("12_[1-3%1]", 12, "", ""),
        ("12_[1,5-9:2%4]", 12, "", ""),
        ("12_[1,3,...]", 12, "", ""),  # squeue shortens a long list
        ("67108864;north", 67108864, "", "north"),
        ("12_3;north-2", 12, "12_3", "north-2"),
    ],
)
def test_a_job_as_slurms_commands_write_it(text: str, number: int, part: str, cluster: str) -> None:
    assert read_job_id(text) == JobId(number, part, cluster)


@pytest.mark.parametrize(
    "text", ["", "12_", "12+", "12;", ";a", "12_[", "12_[]", "a", "12_3+1", "١٢", "12\n", "12;a;b", "-1"]
)
def test_what_is_no_job(text: str) -> None:
    assert read_job_id(text) is None


@given(st.text("0123456789_+[]-,%:.;a\n"))
def test_no_text_becomes_a_part_of_another_job(text: str) -> None:
    found = read_job_id(text)
    if found is not None:
        assert text.startswith(str(found.number)) or text.startswith("0")
        assert found.part == "" or (
            text.startswith(found.part) and int(re.split("[_+]", found.part)[0]) == found.number
        )
    assert (found is not None) or not is_job_id(text)
