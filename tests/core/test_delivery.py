"""When a delivery is tried again: what services say about it, in all the ways in which they say it."""

from __future__ import annotations

import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.notify.delivery import (
    FIRST_WAIT,
    LONGEST_PAUSE,
    LONGEST_WAIT,
    MARGIN,
    TRIES,
    Retry,
    Wait,
    asked_wait,
    error_words,
    is_given_up,
    next_wait,
    pause_before_next,
    short_key,
)

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
HTML = b"<!DOCTYPE html><html><title>Access denied</title>error code: 1015</html>"


def limited(**fields: object) -> bytes:
    return json.dumps({"message": "You are being rate limited.", "global": False, **fields}).encode()


@pytest.mark.parametrize(
    ("headers", "body", "wait"),
    [
        # today's API: seconds with a fraction, the header rounded up
        ({"retry-after": "1", "via": "1.1 google"}, limited(retry_after=0.7), Wait(0.7)),
        ({"retry-after": "65"}, limited(retry_after=64.57), Wait(64.57)),
        ({"retry-after": "5", "x-ratelimit-scope": "global"}, limited(retry_after=5), Wait(5.0)),
        # milliseconds, and nothing that says so
        ({}, limited(retry_after=400), Wait(400.0, unsure=True)),
        ({"retry-after": "400"}, limited(retry_after=400), Wait(400.0, unsure=True)),
        ({"retry-after": "400"}, limited(), Wait(400.0, unsure=True)),
        # ... and something that does
        ({"x-ratelimit-reset-after": "0.4"}, limited(retry_after=400), Wait(0.4)),
        ({"x-ratelimit-reset-after": "399.2"}, limited(retry_after=400), Wait(400.0)),
        ({"x-ratelimit-reset-after": "0.3"}, limited(), Wait(0.3)),
        # Cloudflare: HTML, and seconds in the header however many
        ({"retry-after": "3600", "content-type": "text/html"}, HTML, Wait(3600.0)),
        ({"retry-after": "3"}, b"", Wait(3.0)),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"}, HTML, Wait(30.0)),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, HTML, Wait(0.0)),
        # nothing to go by
        ({}, HTML, None),
        ({}, limited(), None),
        ({"retry-after": "soon"}, HTML, None),
        ({"retry-after": "-5"}, HTML, None),
        ({"retry-after": "inf"}, HTML, None),
        ({}, limited(retry_after="nan"), None),
        ({}, limited(retry_after=True), None),
        ({}, limited(retry_after=None), None),
        ({}, b"[" * 100_000, None),
        ({}, b"[1]", None),
    ],
)
def test_how_long_to_wait_is_read_from_what_services_send(
    headers: dict[str, str], body: bytes, wait: Wait | None
) -> None:
    assert asked_wait(headers, body, NOW) == wait


@given(st.dictionaries(st.sampled_from(["retry-after", "x-ratelimit-reset-after"]), st.text(max_size=20)), st.binary())
def test_no_answer_of_a_server_can_break_it(headers: dict[str, str], body: bytes) -> None:
    wait = asked_wait(headers, body, NOW)
    assert wait is None or wait.seconds >= 0
    assert pause_before_next(headers) >= 0
    assert isinstance(error_words(body), str)


def test_a_wait_of_400_is_first_taken_as_milliseconds_and_then_as_seconds() -> None:
    answer = Retry("rate limited", Wait(400.0, unsure=True))
    assert next_wait(answer, tries=1, limited_before=False, chance=0.5) == pytest.approx(0.4 + MARGIN)
    assert next_wait(answer, tries=2, limited_before=True, chance=0.5) == pytest.approx(400 + MARGIN)


def test_who_asks_for_days_is_asked_again_after_some_hours() -> None:
    assert next_wait(Retry("x", Wait(172_800.0)), tries=1, limited_before=True, chance=0) == LONGEST_PAUSE + MARGIN


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_without_a_word_from_the_service_waits_double_up_to_five_minutes(tries: int, chance: float) -> None:
    wait = next_wait(Retry("x"), tries=tries, limited_before=False, chance=chance)
    longest = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(tries - 1, 60))
    assert longest / 2 <= wait <= longest


def test_a_notice_is_given_up_when_it_is_old_and_was_tried_often_enough() -> None:
    day = 86400.0
    assert not is_given_up(tries=1, age=30 * day, limit=day), "the machine was off for a month"
    assert not is_given_up(tries=1000, age=day - 1, limit=day)
    assert is_given_up(tries=TRIES, age=day, limit=day)


def test_a_budget_that_is_used_up_is_heeded_before_the_service_refuses() -> None:
    assert pause_before_next({"x-ratelimit-remaining": "0", "x-ratelimit-reset-after": "1.5"}) == 1.5
    assert pause_before_next({"x-ratelimit-remaining": "4", "x-ratelimit-reset-after": "1.5"}) == 0
    assert pause_before_next({"x-ratelimit-remaining": "0"}) == 0
    assert pause_before_next({"x-ratelimit-remaining": "0", "x-ratelimit-reset-after": "1e9"}) == 60


def test_the_words_of_an_error_are_those_of_the_service() -> None:
    assert error_words(b'{"message": "Unknown Webhook", "code": 10015}') == "Unknown Webhook (10015)"
    assert error_words(b'{"message": "401: Unauthorized", "code": 0}') == "401: Unauthorized (0)"
    assert error_words(HTML) == ""
    assert len(error_words(json.dumps({"message": "x" * 9000}).encode())) <= 170


def test_the_short_key_is_the_same_for_the_same_delivery_only() -> None:
    assert short_key("phone/end 12") == short_key("phone/end 12") != short_key("phone/end 13")
    assert len(short_key("phone/\udcff")) == 8
