"""What a sink answers, and what follows from it: pure rules for retries, rate limits and giving up.

Delivery is at-least-once and in order for each sink. The head of a sink's queue is tried until it is taken, is refused for
good, or is too old; what was queued later waits behind it.
"""

from __future__ import annotations

import datetime
import email.utils
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Protocol

import msgspec

from gpuq.core.notice import Notice

GIVE_UP = 24 * 3600.0
"""Seconds after which a notice is no news any more."""
TRIES = 8
"""At least so often a notice is tried, whatever its age: after a boot the network may need two minutes."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 300.0
"""Seconds between tries: doubled each time."""
LONGEST_PAUSE = 6 * 3600.0
"""Seconds that a service may ask for. Cloudflare bans for an hour; who asks for days is asked again after this."""
MARGIN = 0.05
"""Seconds added to what a service asks for: its clock and ours are not the same."""


class Wait(msgspec.Struct, frozen=True):
    """How long the service wants to be left alone."""

    seconds: float
    unsure: bool = False
    """It may have meant milliseconds."""


class Delivered(msgspec.Struct, frozen=True):
    """The sink has it."""

    pause: float = 0.0
    """Seconds before the next one, as the service asked for beforehand."""


class Retry(msgspec.Struct, frozen=True):
    """Not now."""

    why: str
    wait: Wait | None = None
    """None: the service did not say."""


class Refused(msgspec.Struct, frozen=True):
    """Never: a try again would be refused as well."""

    why: str


Answer = Delivered | Retry | Refused


class Sink(Protocol):
    """Where notices go. Used by one thread at a time."""

    def send(self, notice: Notice, key: str) -> Answer:
        """Deliver one, within the sink's time limit. `key`: the same for every try of this notice."""

    def close(self) -> None:
        """Give back what is held between deliveries."""


def delivery_key(sink: str, notice: Notice) -> str:
    """The idempotency key: the same for every try to deliver this notice to this sink, and for nothing else."""
    return f"{sink}/{notice.key}"


def short_key(key: str) -> str:
    """Eight hexadecimal digits by which a person sees that a message came twice."""
    return hashlib.blake2b(key.encode(errors="replace"), digest_size=4).hexdigest()


def next_wait(answer: Retry, *, tries: int, limited_before: bool, chance: float) -> float:
    """Seconds until the next try. tries: how often it has failed, this time included; chance: in [0, 1).

    Without a word from the service: doubled from FIRST_WAIT to LONGEST_WAIT, less up to half by chance, so that many
    senders do not come back at one instant. A wait in a unit that is not known is first taken as milliseconds: at
    the worst that costs one more refusal, and then it is taken as seconds.
    """
    if answer.wait is not None:
        seconds = answer.wait.seconds
        if answer.wait.unsure and not limited_before:
            seconds /= 1000
        return min(seconds, LONGEST_PAUSE) + MARGIN
    longest = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(tries - 1, 30))
    return longest * (1 - chance / 2)


def is_given_up(*, tries: int, age: float, limit: float) -> bool:
    """Whether a notice that keeps failing becomes a dead letter. age, limit: seconds."""
    return tries >= TRIES and age >= limit


def asked_wait(headers: Mapping[str, str], body: bytes, now: datetime.datetime) -> Wait | None:
    """What an HTTP answer says about when to come back. Names of headers in lower case.

    Discord's `retry_after` (JSON) is seconds with a fraction in today's API; the addresses that it hands out for webhooks
    name no version, and there both it and the Retry-After header have been milliseconds (discord/discord-api-docs
    issues 1463, 2360, 4722). X-RateLimit-Reset-After is always seconds. A ban by Cloudflare is a page of HTML, and its
    Retry-After is seconds as RFC 9110 has it, or a date.
    """
    told = _number(_json(body).get("retry_after"))
    reset = _number(headers.get("x-ratelimit-reset-after"))
    header = headers.get("retry-after", "").strip()
    if told is None:
        if reset is not None:
            return Wait(reset)
        seconds = _number(header)
        if seconds is None:
            return _until(header, now)
        return Wait(seconds, unsure=seconds >= 100 and seconds.is_integer() and _is_json(body))
    if not told.is_integer() or told < 100:
        return Wait(told)
    if reset is not None:
        return Wait(min(told, told / 1000, key=lambda one: abs(one - reset)))
    return Wait(told, unsure=True)


def pause_before_next(headers: Mapping[str, str]) -> float:
    """Seconds to wait after a success when the service says that its budget is used up; else 0."""
    left = _number(headers.get("x-ratelimit-remaining"))
    reset = _number(headers.get("x-ratelimit-reset-after"))
    return min(reset, 60.0) if left == 0 and reset is not None else 0.0


def _until(text: str, now: datetime.datetime) -> Wait | None:
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return Wait(max(0.0, (moment - now).total_seconds()))


def _number(value: object) -> float | None:
    """A finite number that is not negative; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _is_json(body: bytes) -> bool:
    return body.lstrip()[:1] in {b"{", b"["}


def _json(body: bytes) -> dict[str, object]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def error_words(body: bytes) -> str:
    """What an answer in Discord's JSON says went wrong: `Unknown Webhook (10015)`; empty when it is no such answer."""
    value = _json(body)
    message, code = value.get("message"), value.get("code")
    if not isinstance(message, str) or not message:
        return ""
    text = " ".join(message.split())[:160]
    return f"{text} ({code})" if isinstance(code, int) and not isinstance(code, bool) else text
