"""The Discord sink: a webhook, through the package discord-webhook.

Of the package the message is used. Its `execute` is not: it decodes every answer as JSON (a 204 or a page of HTML raises
when the message has been sent), writes answers to the log, and sleeps through a rate limit by itself. Nor is its POST, which
takes in the whole of an answer, however long that is. The package and requests cost 10 MB; they are imported when something
is delivered.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gpuq.adapters.sinks.quiet import silence
from gpuq.core.notice import Notice
from gpuq.core.notify.delivery import Answer, Delivered, Refused, Retry, asked_wait, error_words, pause_before_next
from gpuq.core.notify.embed import Message, message_of
from gpuq.core.notify.secret import Secret
from gpuq.errors import ConfigError

if TYPE_CHECKING:
    import requests

INSTALL = "pip install 'gpuq-slurm[watch]'"
_MOST = 8192
"""Bytes of an answer that are read; Discord's have a few hundred."""
_OWN_HOST = frozenset({"localhost", "127.0.0.1", "::1"})


class DiscordSink:
    """One webhook. timeout: seconds for the connection, and for each silence of the server after that."""

    def __init__(self, name: str, url: Secret, *, username: str, timeout: float) -> None:
        self._name = name
        self._url = url
        self._username = username
        self._timeout = timeout
        _check(name, url)

    def send(self, notice: Notice, key: str) -> Answer:
        """See gpuq.core.notify.delivery.Sink. Every text in the answer is free of the URL."""
        import requests

        message = message_of(notice, key)
        try:
            with contextlib.closing(self._post(message)) as response:
                return self._judge(response, _beginning(response, self._timeout))
        except requests.exceptions.RequestException as error:
            return Retry(_what_failed(error, self._timeout))
        except Exception as error:  # whatever the library does with an odd answer, nothing says that it was taken
            return Retry(self._url.scrub(f"{type(error).__name__}: {error}")[:200])

    def close(self) -> None:
        """Nothing is held between deliveries."""

    def _post(self, message: Message) -> requests.Response:
        import requests
        from discord_webhook import DiscordEmbed, DiscordWebhook

        silence("urllib3", "requests", "discord_webhook")
        webhook = DiscordWebhook(
            self._url.reveal(),
            username=self._username,
            timeout=self._timeout,
            allowed_mentions={"parse": []},  # nobody is pinged, whatever a job is called
        )
        embed = DiscordEmbed(
            title=message.title,
            description=message.description or None,
            color=message.colour,
            timestamp=message.timestamp,
            footer={"text": message.footer},
        )
        for name, value in message.fields:
            embed.add_embed_field(name=name, value=value, inline=len(value) <= 40)
        webhook.add_embed(embed)
        parts: dict[str, Any] = {"json": webhook.json}
        if message.file:
            log = (message.file_name, message.file.encode())
            parts = {"files": {"file": log, "payload_json": (None, json.dumps(webhook.json))}}
        return requests.post(
            self._url.reveal(),
            params={"wait": True},  # answered when the message is stored, and an error when it is not
            timeout=self._timeout,
            stream=True,
            **parts,
        )

    def _judge(self, response: requests.Response, body: bytes) -> Answer:
        headers = {name.lower(): value for name, value in response.headers.items()}
        status = response.status_code
        if response.request.method != "POST":
            # requests follows a redirection (but 307 and 308) with a GET: whatever came back, nothing was posted
            return Refused("the URL leads to another address; it must be the one that Discord shows")
        if 200 <= status < 300:
            return Delivered(pause=pause_before_next(headers))
        words = self._url.scrub(error_words(body))
        what = f"HTTP {status}" + (f", {words}" if words else "")
        wait = asked_wait(headers, body, datetime.datetime.now(datetime.UTC))
        if status == 429:
            return Retry(f"rate limited ({what})", wait)
        if status in {401, 404, 410}:
            return Refused(f"{what}: the webhook has been deleted, or its URL is wrong")
        if 400 <= status < 500 and status not in {408, 425} and words:
            return Refused(what)  # Discord itself has looked at it
        return Retry(what, wait)  # a fault of the server, or a page of something in front of it


def _beginning(response: requests.Response, seconds: float) -> bytes:
    """What an answer says, as far as it comes within `seconds` and _MOST bytes: one without an end is not waited for."""
    until, body = time.monotonic() + seconds, bytearray()
    for piece in response.iter_content(1):  # more at once would wait for all of it
        body += piece
        if len(body) >= _MOST or time.monotonic() > until:
            break
    return bytes(body)


def _check(name: str, url: Secret) -> None:
    """Raises ConfigError, without the URL, for one that cannot be a webhook's or would be sent in the clear."""
    try:
        split = urlsplit(url.reveal())
        host, _ = split.hostname, split.port
    except ValueError:
        host, split = None, urlsplit("")
    if not host or split.scheme not in {"https", "http"} or len(split.path) < 2:
        raise ConfigError(f"sink {name}: its URL is none of a webhook, like https://discord.com/api/webhooks/...")
    if split.scheme == "http" and host not in _OWN_HOST:
        raise ConfigError(f"sink {name}: its URL begins with http://; with https:// nobody on the way can read it")
    if importlib.util.find_spec("discord_webhook") is None:
        raise ConfigError(f"sink {name}: the package discord-webhook is not installed", hint=INSTALL)


def _what_failed(error: Exception, timeout: float) -> str:
    """A failed request in words that are made here: the library's own hold the URL."""
    import requests

    if isinstance(error, requests.exceptions.ConnectTimeout):
        return f"no connection within {timeout:g} s"
    if isinstance(error, requests.exceptions.Timeout):
        return f"no answer within {timeout:g} s"
    if isinstance(error, requests.exceptions.SSLError):
        return "the server's certificate is not trusted"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy cannot be reached"
    if isinstance(error, requests.exceptions.ConnectionError):
        why = _system_words(error)
        return "the connection failed" + (f": {why}" if why else "")
    return f"the request failed ({type(error).__name__})"


def _system_words(error: BaseException) -> str:
    """What the system says (`Connection refused`, `Name or service not known`), from however deep it is wrapped."""
    seen: set[int] = set()
    todo: list[Any] = [error]
    while todo:
        one = todo.pop()
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, OSError) and one.strerror and one.errno is not None:
            return one.strerror[:100]
        todo += [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]
    return ""
