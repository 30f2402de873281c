"""A secret is not shown by anything that shows values."""

from __future__ import annotations

import json
import pickle
import traceback
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.notify.config import Address, SinkConfig, SinkType, Source
from gpuq.core.notify.secret import Secret

TOKEN = "aB3-xyz_0123456789"
URL = f"https://discord.com/api/webhooks/123456789012345678/{TOKEN}"


@pytest.mark.parametrize(
    "show",
    [
        repr,
        str,
        lambda secret: f"{secret}",
        lambda secret: f"{secret!r:>40}",
        lambda secret: f"{secret:>40}",
        lambda secret: "%s %r" % (secret, secret),  # noqa: UP031
        lambda secret: repr([secret]),
        lambda secret: repr(SinkConfig(name="a", type=SinkType.DISCORD, address=Address(Source.INLINE, secret=secret))),
        lambda secret: repr(vars(type(secret))),
    ],
)
def test_it_is_shown_as_stars(show: object) -> None:
    shown = show(Secret(URL))  # type: ignore[operator]
    assert TOKEN not in shown
    assert "123456789012345678" not in shown


@pytest.mark.parametrize("write", [json.dumps, msgspec.json.encode, msgspec.msgpack.encode, pickle.dumps])
def test_no_encoder_takes_it(write: object) -> None:
    with pytest.raises(TypeError):
        write(Secret(URL))  # type: ignore[operator]


def test_a_traceback_with_its_locals_does_not_hold_it() -> None:
    def fails() -> None:
        secret = Secret(URL)
        raise RuntimeError(f"with {secret}")

    try:
        fails()
    except RuntimeError as error:
        text = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert "Secret(***)" in text
    assert TOKEN not in text.replace(repr(URL), "")


@pytest.mark.parametrize(
    "text",
    [
        f"HTTPSConnectionPool(host='discord.com', port=443): Max retries exceeded with url: "
        f"/api/webhooks/123456789012345678/{TOKEN}?wait=True",
        f"failed to post to {URL}",
        f"failed to post to {URL.upper()}",
        f"the token {TOKEN} is wrong",
        f"see {quote(URL, safe='')}",
        f"webhook 123456789012345678 is gone ({TOKEN[:9]}{TOKEN[9:]})",
    ],
)
def test_what_others_say_about_it_is_scrubbed(text: str) -> None:
    clean = Secret(URL).scrub(text)
    assert TOKEN.lower() not in clean.lower()
    assert "123456789012345678" not in clean
    assert "***" in clean


@pytest.mark.parametrize(
    ("url", "hidden"),
    [
        ("tgram://123456789:ABC-def/987654", ["123456789", "ABC-def", "987654"]),
        ("slack://TokenAAAA/TokenBBBB/TokenCCCC", ["TokenAAAA", "TokenBBBB", "TokenCCCC"]),
        ("mailtos://me:p%40ssw0rd@example.org", ["p%40ssw0rd", "p@ssw0rd"]),
        ("https://user:hunter22@ntfy.example/topic-x", ["hunter22", "topic-x"]),
        ("http://[::1", ["http://[::1"]),
    ],
)
def test_the_parts_of_any_address_are_scrubbed(url: str, hidden: list[str]) -> None:
    clean = Secret(url).scrub(f"could not reach {url}; {' and '.join(hidden)} were refused")
    assert not [one for one in hidden if one in clean]
    assert clean.startswith("could not reach")


def test_the_host_may_be_told() -> None:
    assert Secret(URL).scrub("discord.com: connection refused") == "discord.com: connection refused"


@given(st.text(st.characters(exclude_characters="*<>"), min_size=1, max_size=60))
def test_whatever_the_secret_is_it_is_not_left_in_a_text(secret: str) -> None:
    assert secret not in Secret(secret).scrub(f"<{secret}>")
