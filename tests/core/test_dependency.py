"""Dependencies as squeue shows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.dependency import dependency_words, parse_dependency


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("afterok:12(unfulfilled)", [("afterok", 12, "unfulfilled")]),
        ("afterany:12", [("afterany", 12, "")]),
        ("afterok:5(failed)", [("afterok", 5, "failed")]),
        ("afterany:6(unfulfilled),afterok:7(failed)", [("afterany", 6, "unfulfilled"), ("afterok", 7, "failed")]),
        ("afterany:6?afterok:7", [("afterany", 6, ""), ("afterok", 7, "")]),
        ("afterany:12_3(unfulfilled)", [("afterany", 12, "unfulfilled")]),
        ("afterany:12_*(unfulfilled)", [("afterany", 12, "unfulfilled")]),
        ("after:12+5(unfulfilled)", [("after", 12, "unfulfilled")]),
        ("(null)", []),
        ("singleton(unfulfilled)", []),
        ("", []),
    ],
)
def test_terms_are_read_in_order(text: str, terms: list[tuple[str, int, str]]) -> None:
    assert parse_dependency(text) == terms


TERM = st.tuples(
    st.sampled_from(["after", "afterany", "afterok", "afternotok", "aftercorr"]),
    st.integers(min_value=1, max_value=2**31),
    st.sampled_from(["", "unfulfilled", "failed"]),
)


@given(st.lists(TERM, max_size=5))
def test_any_list_of_terms_is_read_back(terms: list[tuple[str, int, str]]) -> None:
    text = ",".join(f"{kind}:{job}" + (f"({state})" if state else "") for kind, job, state in terms)
    assert parse_dependency(text) == terms
    assert dependency_words(text).count(", ") == max(0, len(terms) - 1)


@given(st.text())
def test_no_text_makes_it_raise(text: str) -> None:
    for _kind, job, _state in parse_dependency(text):
        assert job >= 0
    assert isinstance(dependency_words(text), str)


def test_a_person_reads_words_and_slurms_own_text_where_there_are_none() -> None:
    assert dependency_words("afterok:12(unfulfilled),afterany:13") == "after 12 succeeds, after 13"
    assert dependency_words("afterok:7_3(unfulfilled)?afterany:8(unfulfilled)") == "after 7 succeeds or after 8"
    assert dependency_words("aftercorr:7_*(unfulfilled)") == "after the same task of 7 succeeds"
    mine = "after your other jobs of this name"
    assert dependency_words("singleton(unfulfilled)") == mine
    assert dependency_words("afterok:12(unfulfilled),singleton") == f"after 12 succeeds, {mine}"
    assert dependency_words("afterburstbuffer:3") == "afterburstbuffer 3"
    assert dependency_words("expand:3") == "expand:3"
