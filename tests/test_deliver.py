"""The courier: everything is told, in order, once, whatever the services and the disk do."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuq.adapters.clock import SystemClock
from gpuq.adapters.sinks.discord import DiscordSink
from gpuq.adapters.store.db import open_store
from gpuq.adapters.store.events import EventStore
from gpuq.core.notice import Notice
from gpuq.core.notify.delivery import TRIES, Answer, Delivered, Refused, Retry, Sink, Wait
from gpuq.core.notify.secret import Secret
from gpuq.usecases.notify.deliver import Courier
from tests.gpuq_cli import SOURCE, until
from tests.notices import ended, notice
from tests.webhook import TOKEN, Reply, Webhook, serve

HTML = b"<!DOCTYPE html><html><title>Access denied</title>error code: 1015</html>"


class Fake:
    """A sink that answers what it is told to, in order, and then takes everything."""

    def __init__(self, *answers: Answer | Exception, gate: threading.Event | None = None) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[str, str]] = []
        self.gate = gate
        self.entered = threading.Event()
        self.closed = False

    @property
    def titles(self) -> list[str]:
        return [title for title, _ in self.seen]

    def send(self, notice: Notice, key: str) -> Answer:
        self.entered.set()
        if self.gate is not None:
            self.gate.wait(60)
        self.seen.append((notice.title, key))
        answer = self.answers.pop(0) if self.answers else Delivered()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


class Post:
    """An outbox in a file, and a courier for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: list[str] = []
        self.connection = open_store(path)
        self.store = EventStore(self.connection)
        self.couriers: list[Courier] = []

    def queue(self, sink: str, *notices: Notice, at: datetime.datetime | None = None) -> None:
        now = at or datetime.datetime.now(datetime.UTC)
        for one in notices:
            self.store.record([], [(sink, one)], now=now)

    def courier(
        self, sinks: dict[str, Sink], connect: Callable[[], sqlite3.Connection] | None = None, **options: Any
    ) -> Courier:
        made = Courier(
            sinks, connect or (lambda: open_store(self.path)), clock=SystemClock(), say=self.said.append, **options
        )
        self.couriers.append(made)
        return made

    def waiting(self, sink: str) -> int:
        found = self.store.counts().get(sink)
        return found.waiting if found else 0

    def delivered(self, sink: str) -> int:
        found = self.store.counts().get(sink)
        return found.delivered if found else 0

    def settle(self, sink: str) -> None:
        """Wait until nothing waits for this sink."""
        until(lambda: self.waiting(sink) == 0, lambda: (self.store.counts(), self.said), timeout=30)


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    made = Post(tmp_path / "watch.db")
    yield made
    for courier in made.couriers:
        assert courier.drain(10) == ()
    made.connection.close()


@pytest.fixture
def server() -> Iterator[Webhook]:
    with serve() as service:
        yield service


def discord(url: str, timeout: float = 10) -> DiscordSink:
    return DiscordSink("phone", Secret(url), username="gpuq", timeout=timeout)


# -- rate limits -----------------------------------------------------------------------------------------------


def test_429_on_five_of_twenty_posts_all_are_told_in_order_none_twice(post: Post, server: Webhook) -> None:
    limited = {
        2: Reply(
            status=429, headers={"Retry-After": "1", "Via": "1.1 google"}, body=b'{"retry_after": 0.7, "global": false}'
        ),
        5: Reply(status=429, body=b'{"message": "You are being rate limited.", "retry_after": 400}'),
        6: Reply(status=429, headers={"Retry-After": "1"}, body=HTML),
        11: Reply(status=429, headers={"X-RateLimit-Reset-After": "0.3"}, body=b'{"retry_after": 300, "global": true}'),
        16: Reply(status=429, headers={"X-RateLimit-Reset-After": "0.2", "Retry-After": "200"}),
    }
    asked = [0.7, 0.4, 1.0, 0.3, 0.2]
    fine = [Reply(status=204), Reply(), Reply(headers={"X-RateLimit-Remaining": "0", "X-RateLimit-Reset-After": "0.1"})]
    for number in range(20):
        server.script += [limited[number]] if number in limited else []
        server.script.append(fine[number % 3])
    post.queue("phone", *(notice(number, title=f"run{number}") for number in range(20)))
    began = time.monotonic()
    post.courier({"phone": discord(server.url)}).start()
    post.settle("phone")
    assert server.told == [f"run{number}" for number in range(20)]
    assert server.requests == 25, "no post more than the five that were refused"
    assert post.delivered("phone") == 20
    assert time.monotonic() - began >= sum(asked), "what the service asked for was heeded"
    assert all(TOKEN not in line for line in post.said)


def test_a_wait_in_an_unknown_unit_that_was_too_short_is_seconds_then(post: Post) -> None:
    unsure = Retry("rate limited", Wait(300.0, unsure=True))
    sink = Fake(unsure, unsure)
    post.queue("phone", notice())
    courier = post.courier({"phone": sink})
    courier.start()
    until(lambda: len(sink.seen) == 2, lambda: sink.seen)
    until(lambda: (post.store.next_retry("phone") or NEVER) > soon(100), lambda: post.store.next_retry("phone"))
    assert post.waiting("phone") == 1
    assert courier.drain(5) == ()


NEVER = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def soon(seconds: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)


def test_a_service_that_asks_for_a_pause_after_a_success_gets_it(post: Post) -> None:
    sink = Fake(Delivered(pause=600.0))
    post.queue("phone", notice(1), notice(2))
    courier = post.courier({"phone": sink})
    courier.start()
    until(lambda: post.delivered("phone") == 1, lambda: post.said)
    assert courier.drain(10) == ()
    assert len(sink.seen) == 1
    assert post.waiting("phone") == 1


def test_a_pause_from_a_time_when_the_clock_was_wrong_does_not_last_for_years(post: Post) -> None:
    sink = Fake()
    post.queue("phone", notice())
    (letter,) = post.store.due("phone", soon(0))
    post.store.failed(letter.id, "no network", soon(4 * 365 * 86400), now=soon(0))
    post.courier({"phone": sink}).start()
    post.settle("phone")
    assert len(sink.seen) == 1


# -- sinks do not wait for each other ----------------------------------------------------------------------------


def test_a_server_that_never_answers_delays_no_other_sink(post: Post, server: Webhook) -> None:
    with serve() as silent:
        silent.script = [Reply(hang=True)] * 50
        for number in range(10):
            post.queue("dead", notice(number))
            post.queue("phone", notice(number, title=f"run{number}"))
        courier = post.courier({"dead": discord(silent.url, timeout=30), "phone": discord(server.url)})
        courier.start()
        post.settle("phone")
        assert server.told == [f"run{number}" for number in range(10)]
        assert post.waiting("dead") == 10
        assert courier.drain(0.2) == ("dead",), "who asks to stop is not kept waiting either"


def test_a_sink_out_of_order_is_not_overtaken_by_what_was_queued_later(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuq.core.notify.delivery.FIRST_WAIT", 0.05)
    sink = Fake(RuntimeError(f"see https://x/{TOKEN}"), Retry("no network"), Retry("no network", Wait(0.0)))
    post.queue("phone", *(notice(number, title=f"run{number}") for number in range(3)))
    post.courier({"phone": sink}).start()
    post.settle("phone")
    assert sink.titles == ["run0"] * 4 + ["run1", "run2"]
    assert len({key for _, key in sink.seen}) == 3, "every try of a notice has the same key"
    assert sink.seen[0][1] == "phone/end 0"
    assert [line for line in post.said if "again" in line] == [
        "sink phone: the sink failed (RuntimeError); again in " + post.said[0].rpartition(" ")[2],
        "sink phone: delivers again",
    ]
    assert TOKEN not in " ".join(post.said)


# -- giving up -------------------------------------------------------------------------------------------------


def test_a_deleted_webhook_is_a_dead_letter_and_can_be_retried(post: Post, server: Webhook) -> None:
    server.script = [Reply(status=404, body=b'{"message": "Unknown Webhook", "code": 10015}')]
    post.queue("phone", notice(1, title="run1"), notice(2, title="run2"))
    courier = post.courier({"phone": discord(server.url)})
    courier.start()
    post.settle("phone")
    assert server.told == ["run2"], "the next one has its own chance"
    (dead,) = post.store.dead_letters()
    assert dead.queued.notice.title == "run1"
    assert dead.error.startswith("HTTP 404, Unknown Webhook (10015)")
    assert "gave up on 'run1'" in post.said[0]
    assert post.store.retry_dead("phone") == 1
    courier.wake()
    post.settle("phone")
    assert server.told == ["run2", "run1"]


def test_old_news_is_given_up_only_after_it_was_tried_often_enough(post: Post) -> None:
    sink = Fake(*[Retry("no network", Wait(0.0))] * TRIES)
    post.queue("phone", notice(1, title="old"), at=soon(-2 * 86400))
    post.queue("phone", notice(2, title="new"))
    post.courier({"phone": sink}).start()
    post.settle("phone")
    assert sink.titles == ["old"] * TRIES + ["new"]
    assert [dead.queued.notice.title for dead in post.store.dead_letters()] == ["old"]


def test_young_news_is_tried_for_as_long_as_it_takes(post: Post) -> None:
    sink = Fake(*[Retry("no network", Wait(0.0))] * (2 * TRIES))
    post.queue("phone", notice())
    post.courier({"phone": sink}).start()
    post.settle("phone")
    assert post.delivered("phone") == 1


def test_the_notifiers_own_failures_become_no_notice(post: Post) -> None:
    sink = Fake(Retry("no network", Wait(0.0)), Refused("no"), RuntimeError("boom"))
    post.queue("phone", notice(1), notice(2))
    post.courier({"phone": sink}).start()
    post.settle("phone")
    rows = post.connection.execute("SELECT key FROM outbox ORDER BY id").fetchall()
    assert rows == [("end 1",), ("end 2",)]
    assert post.connection.execute("SELECT COUNT(*) FROM events").fetchone() == (0,)


# -- the store fails -------------------------------------------------------------------------------------------


class FullDisk(EventStore):
    """Cannot write that something was delivered, as often as it is told to."""

    left = 0

    def delivered(self, notice_id: int, now: datetime.datetime) -> None:
        if type(self).left > 0:
            type(self).left -= 1
            raise sqlite3.OperationalError("database or disk is full")
        super().delivered(notice_id, now)


def test_what_was_told_while_the_disk_was_full_is_not_told_again(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuq.usecases.notify.deliver.EventStore", FullDisk)
    monkeypatch.setattr("gpuq.usecases.notify.deliver.STORE_WAIT", 0.02)
    FullDisk.left = 5
    sink = Fake()
    post.queue("phone", notice(1, title="run1"), notice(2, title="run2"))
    post.courier({"phone": sink}).start()
    post.settle("phone")
    assert FullDisk.left == 0
    assert sink.titles == ["run1", "run2"]
    assert [line for line in post.said if "disk is full" in line] == [post.said[0]], "said once"


def test_a_store_that_cannot_be_opened_is_tried_again(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuq.usecases.notify.deliver.STORE_WAIT", 0.02)
    failures = [sqlite3.OperationalError("locked"), OSError(28, "No space left on device")]

    def connect() -> sqlite3.Connection:
        if failures:
            raise failures.pop()
        return open_store(post.path)

    sink = Fake()
    post.queue("phone", notice())
    post.courier({"phone": sink}, connect).start()
    post.settle("phone")
    assert len(sink.seen) == 1


# -- waking, draining, replacing ---------------------------------------------------------------------------------


def test_it_wakes_at_once_and_drains_what_is_due(post: Post) -> None:
    sink = Fake()
    courier = post.courier({"phone": sink, "idle": Fake()})
    courier.start()
    courier.start()
    post.queue("phone", notice(1))
    courier.wake()
    post.settle("phone")
    post.queue("phone", notice(2), notice(3), notice(4))
    assert courier.drain(10) == ()
    assert post.delivered("phone") == 4
    assert sink.closed
    assert threading.active_count() == 1


def test_draining_waits_for_a_short_retry_and_not_for_a_long_one(post: Post) -> None:
    short, long = Fake(Retry("x", Wait(0.1))), Fake(Retry("x", Wait(600.0)))
    post.queue("short", notice())
    post.queue("long", notice())
    courier = post.courier({"short": short, "long": long})
    courier.start()
    assert courier.drain(20) == ()
    assert (post.waiting("short"), post.waiting("long")) == (0, 1)


def test_never_started_is_drained_at_once(post: Post) -> None:
    post.queue("phone", notice())
    assert post.courier({"phone": Fake()}).drain(10) == ()
    assert post.waiting("phone") == 1


def test_new_sinks_take_over_without_telling_anything_twice(post: Post) -> None:
    gate = threading.Event()
    old, new, gone, other = Fake(gate=gate), Fake(), Fake(), Fake()
    post.queue("phone", notice(1, title="run1"), notice(2, title="run2"))
    courier = post.courier({"phone": old, "gone": gone})
    courier.start()
    assert old.entered.wait(30)
    courier.replace({"phone": new, "other": other})
    post.queue("other", notice(3))
    post.queue("gone", notice(4))
    courier.wake()
    post.settle("other")
    assert new.seen == [], "the old delivery is still under way"
    gate.set()
    post.settle("phone")
    assert (old.titles, new.titles, gone.titles) == (["run1"], ["run2"], [])
    back = Fake()
    courier.replace({"gone": back})
    post.settle("gone")
    assert len(back.seen) == 1


def test_a_sink_that_is_taken_away_and_given_back_while_it_delivers_tells_nothing_twice(post: Post) -> None:
    gate = threading.Event()
    old, new = Fake(gate=gate), Fake()
    post.queue("phone", notice(1, title="run1"), notice(2, title="run2"))
    courier = post.courier({"phone": old})
    courier.start()
    assert old.entered.wait(30)
    courier.replace({"other": Fake()})
    courier.replace({"phone": new, "other": Fake()})
    post.queue("other", notice(3))
    courier.wake()
    post.settle("other")
    assert not new.entered.wait(0.2), "what is under way may yet be delivered"
    gate.set()
    post.settle("phone")
    assert (old.titles, new.titles) == (["run1"], ["run2"])


def test_sinks_may_be_changed_before_it_starts(post: Post) -> None:
    old, new = Fake(), Fake()
    post.queue("phone", notice())
    courier = post.courier({"phone": old})
    courier.replace({})
    courier.replace({"phone": new})
    courier.start()
    post.settle("phone")
    assert (len(old.seen), len(new.seen)) == (0, 1)


def test_merged_while_it_waits_only_the_latest_is_told(post: Post) -> None:
    gate = threading.Event()
    sink = Fake(gate=gate)
    post.queue("phone", notice(1, title="first", merge="problem x"))
    courier = post.courier({"phone": sink})
    courier.start()
    assert sink.entered.wait(30)
    for number in range(2, 6):
        post.queue("phone", notice(number, title=f"again{number}", merge="problem x"))
    courier.wake()
    gate.set()
    post.settle("phone")
    assert sink.titles == ["first", "again5"]


# -- killed ----------------------------------------------------------------------------------------------------

WATCHER = """
import sys, time
from pathlib import Path
from gpuq.adapters.clock import SystemClock
from gpuq.adapters.sinks.command import CommandSink
from gpuq.adapters.store.db import open_store
from gpuq.usecases.notify.deliver import Courier
import os
path, program = Path(sys.argv[1]), sys.argv[2]
sink = CommandSink("bell", [program], environment=dict(os.environ), timeout=30)
courier = Courier({"bell": sink}, lambda: open_store(path), clock=SystemClock(), say=print)
courier.start()
deadline = time.monotonic() + 60
store = open_store(path)
while store.execute("SELECT 1 FROM outbox WHERE state = 'waiting'").fetchone() and time.monotonic() < deadline:
    time.sleep(0.02)
courier.drain(5)
"""


def test_killed_between_the_delivery_and_the_note_of_it_tells_again_with_the_same_id(
    post: Post, tmp_path: Path
) -> None:
    """At-least-once, said honestly: nothing is lost, and who gets it twice can see that it is the same."""
    program, told = tmp_path / "tell", tmp_path / "told"
    program.write_text(f'#!/bin/bash\ncat >> {told}\nif [ "$(wc -l < {told})" = 2 ]; then kill -9 $PPID; fi\nexit 0\n')
    program.chmod(0o755)
    post.queue("bell", *(notice(number) for number in range(4)))

    def watch() -> int:
        return subprocess.run(
            [sys.executable, "-c", WATCHER, str(post.path), str(program)],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            check=False,
            timeout=90,
        ).returncode

    assert watch() == -signal.SIGKILL
    assert watch() == 0
    ids = [json.loads(line)["id"] for line in told.read_text().splitlines()]
    assert ids == ["bell/end 0", "bell/end 1", "bell/end 1", "bell/end 2", "bell/end 3"]
    assert post.delivered("bell") == 4


def test_what_is_stored_holds_no_secret(post: Post, server: Webhook) -> None:
    server.script = [
        Reply(status=500, body=server.url.encode()),
        Reply(status=400, body=json.dumps({"message": f"bad {server.url}"}).encode()),
    ]
    post.store.record([ended()], [("phone", notice())], now=soon(0))
    post.courier({"phone": discord(server.url)}).start()
    post.settle("phone")
    assert len(post.store.dead_letters()) == 1
    post.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for path in post.path.parent.glob("watch.db*"):
        with contextlib.suppress(FileNotFoundError):
            assert TOKEN.encode() not in path.read_bytes()
