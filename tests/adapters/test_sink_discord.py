"""The Discord sink against a server that answers as Discord, Cloudflare and broken networks do."""

from __future__ import annotations

import logging
import resource
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gpuq.adapters.sinks.discord import DiscordSink
from gpuq.core.notify.delivery import Answer, Delivered, Refused, Retry, Wait, short_key
from gpuq.core.notify.secret import Secret
from gpuq.errors import ConfigError
from tests.notices import notice
from tests.webhook import TOKEN, Reply, Webhook, serve

HTML = b"<!DOCTYPE html><html><body>error code: 1015 at /api/webhooks/" + TOKEN.encode() + b"</body></html>"


@pytest.fixture
def server() -> Iterator[Webhook]:
    with serve() as service:
        yield service


def sink(url: str, timeout: float = 5.0) -> DiscordSink:
    return DiscordSink("phone", Secret(url), username="gpuq", timeout=timeout)


def send(server: Webhook, *replies: Reply, timeout: float = 5.0, **fields: Any) -> Answer:
    server.script = list(replies)
    return sink(server.url, timeout).send(notice(**fields), "phone/end 1")


def test_what_is_posted_is_an_embed_that_pings_nobody(server: Webhook) -> None:
    answer = send(server, Reply(), title="@everyone lr_3e_4 FAILED", log_tail="Traceback\nboom", log_name="a.log")
    assert answer == Delivered()
    (post,) = server.posts
    assert post.path.endswith(f"/api/webhooks/123456789012345678/{TOKEN}?wait=True")
    assert post.payload["allowed_mentions"] == {"parse": []}
    assert post.payload["username"] == "gpuq"
    assert "content" not in post.payload
    (embed,) = post.payload["embeds"]
    assert embed["title"] == "\\@everyone lr\\_3e\\_4 FAILED"
    assert embed["color"] == 0xE74C3C
    assert embed["description"] == "Exit code 1.\n```\nTraceback\nboom\n```"
    assert embed["fields"] == [{"name": "Job", "value": "1", "inline": True}]
    assert embed["footer"]["text"] == f"gpuq · {short_key('phone/end 1')}"
    assert embed["timestamp"] == "2026-03-01T12:00:00+00:00"
    assert post.files == {}


def test_a_long_log_is_attached_and_its_end_shown(server: Webhook) -> None:
    log = "\n".join(f"line {number} äöü" for number in range(100))
    assert send(server, Reply(), log_tail=log, log_name="dino-attempt3.log") == Delivered()
    (post,) = server.posts
    assert post.files == {"dino-attempt3.log": log + "\n"}
    assert "line 99" in post.payload["embeds"][0]["description"]
    assert "line 50\n" not in post.payload["embeds"][0]["description"]
    assert post.payload["allowed_mentions"] == {"parse": []}


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (Reply(status=200), Delivered()),
        (Reply(status=204), Delivered()),  # the package's own execute() raises here, after the message was sent
        (Reply(status=200, body=b"<html>"), Delivered()),
        (Reply(headers={"X-RateLimit-Remaining": "0", "X-RateLimit-Reset-After": "0.5"}), Delivered(pause=0.5)),
        (
            Reply(status=429, headers=JSON, body=b'{"message": "You are being rate limited.", "retry_after": 0.7}'),
            Retry("rate limited (HTTP 429, You are being rate limited.)", Wait(0.7)),
        ),
        (Reply(status=429, body=b'{"retry_after": 400}'), Retry("rate limited (HTTP 429)", Wait(400, unsure=True))),
        (
            Reply(status=429, headers={"Retry-After": "2"}, body=HTML),
            Retry("rate limited (HTTP 429)", Wait(2)),
        ),
        (Reply(status=500, body=HTML), Retry("HTTP 500")),
        (Reply(status=502, body=b""), Retry("HTTP 502")),
        (Reply(status=503, headers={"Retry-After": "7"}, body=HTML), Retry("HTTP 503", Wait(7))),
        (Reply(status=403, body=HTML), Retry("HTTP 403")),  # a ban by what stands in front of Discord is not for ever
        (
            Reply(status=404, body=b'{"message": "Unknown Webhook", "code": 10015}'),
            Refused("HTTP 404, Unknown Webhook (10015): the webhook has been deleted, or its URL is wrong"),
        ),
        (
            Reply(status=401, body=b'{"message": "Invalid Webhook Token", "code": 50027}'),
            Refused("HTTP 401, Invalid Webhook Token (50027): the webhook has been deleted, or its URL is wrong"),
        ),
        (
            Reply(status=400, body=b'{"message": "Invalid Form Body", "code": 50035}'),
            Refused("HTTP 400, Invalid Form Body (50035)"),
        ),
        (
            Reply(status=400, body=b'{"message": "no ' + TOKEN.encode() + b'"}'),
            Refused("HTTP 400, no ***"),
        ),
    ],
)
def test_every_answer_is_understood(server: Webhook, reply: Reply, answer: Answer) -> None:
    assert send(server, reply) == answer
    assert server.requests == 1, "the sink itself tries once"


def test_a_redirection_is_no_delivery(server: Webhook) -> None:
    # requests follows it with a GET, which is answered with 200, and nothing has been posted
    answer = send(server, Reply(status=301, headers={"Location": f"/moved/{TOKEN}"}))
    assert isinstance(answer, Refused)
    assert "another address" in answer.why
    assert send(server, Reply(status=308, headers={"Location": f"/moved/{TOKEN}"})) == Delivered()
    assert server.posts[-1].path == f"/moved/{TOKEN}"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply(hang=True), "no answer within 0.3 s"),
        (Reply(raw=b""), "the connection failed"),
        (Reply(raw=b"SSH-2.0-OpenSSH_9.2\r\n"), "the connection failed"),
        (Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nhalf"), "the"),
    ],
)
def test_a_broken_connection_is_tried_again(server: Webhook, reply: Reply, why: str) -> None:
    answer = send(server, reply, timeout=0.3)
    assert isinstance(answer, Retry)
    assert answer.why.startswith(why)
    assert answer.wait is None


def test_an_answer_without_an_end_is_not_waited_for(server: Webhook) -> None:
    endless = Reply(raw=b"HTTP/1.1 500 Oops\r\n\r\n" + b"x" * 50_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = send(server, endless)
    assert isinstance(answer, Retry)
    assert answer.why.startswith("HTTP 500")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # KiB: it was not taken in


def test_nobody_listening_and_no_such_host_are_told_in_the_systems_words() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    refused = sink(f"http://127.0.0.1:{port}/api/webhooks/1/{TOKEN}").send(notice(), "k")
    assert refused == Retry("the connection failed: Connection refused")
    unknown = sink(f"https://discord.invalid/api/webhooks/1/{TOKEN}").send(notice(), "k")
    assert isinstance(unknown, Retry)
    assert unknown.why.startswith(("the connection failed: ", "the connection failed", "the proxy"))
    assert TOKEN not in unknown.why


def test_a_server_without_a_certificate_is_not_trusted(server: Webhook) -> None:
    answer = sink(server.url.replace("http://", "https://"), 2.0).send(notice(), "k")
    assert isinstance(answer, Retry)
    assert TOKEN not in answer.why


MALFORMED = b"HTTP/1.1 200 OK\r\n no header at all\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(),
        Reply(status=404, body=HTML),
        Reply(status=500, body=HTML),
        Reply(status=400, body=b'{"message": "' + TOKEN.encode() + b'"}'),
        Reply(status=301, headers={"Location": f"/x/{TOKEN}"}),
        Reply(raw=b""),
        Reply(raw=MALFORMED),
        Reply(raw=b"HTTP/1.1 banana\r\n\r\n"),
        Reply(hang=True),
    ],
)
def test_no_log_line_of_any_library_at_any_level_holds_the_secret(
    server: Webhook, reply: Reply, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = send(server, reply, timeout=0.3)
    out, err = capfd.readouterr()
    for text in (caplog.text, out, err, repr(answer)):
        assert TOKEN not in text
        assert "123456789012345678" not in text


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("discord.com/api/webhooks/1/x-token", "none of a webhook"),
        ("https://", "none of a webhook"),
        ("https://discord.com", "none of a webhook"),
        ("ftp://discord.com/api/webhooks/1/x-token", "none of a webhook"),
        ("https://[::1/api/x-token", "none of a webhook"),
        ("https://discord.com:port/api/webhooks/1/x-token", "none of a webhook"),
        ("http://discord.com/api/webhooks/1/x-token", "begins with http://"),
    ],
)
def test_a_url_that_cannot_be_right_is_refused_without_being_shown(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        sink(url)
    assert "x-token" not in str(caught.value) + caught.value.hint
