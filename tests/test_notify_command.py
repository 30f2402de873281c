"""`gpuq notify` as a person uses it: what it sends, shows and puts back, and that it never shows an address."""

from __future__ import annotations

import contextlib
import datetime
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuq.adapters.store.db import open_store
from gpuq.adapters.store.events import Count, EventStore
from gpuq.usecases.notify.notify import database
from tests.gpuq_cli import Project, Ran, until
from tests.notices import notice
from tests.webhook import TOKEN, Reply, Webhook, serve

NOW = datetime.datetime.now(datetime.UTC)
PHONE = '[notify.sinks.phone]\ntype = "discord"\ntimeout = 0.5\n'


@pytest.fixture
def server() -> Iterator[Webhook]:
    with serve() as service:
        yield service


class Home(Project):
    """A project, and the user's config.toml."""

    def config(self, text: str, mode: int = 0o600) -> Path:
        path = Path(self.env["XDG_CONFIG_HOME"]) / "gpuq" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    @contextlib.contextmanager
    def store(self) -> Iterator[EventStore]:
        with contextlib.closing(open_store(database(self.env))) as connection:
            yield EventStore(connection)

    def counts(self, sink: str) -> Count:
        with self.store() as store:
            return store.counts()[sink]

    def dead(self, *titles: str, error: str = "HTTP 404") -> None:
        """Dead letters of the sink `phone`."""
        with self.store() as store:
            for number, title in enumerate(titles):
                store.record([], [("phone", notice(number, title=title))], now=NOW)
                (letter,) = store.due("phone", NOW, limit=1)
                store.failed(letter.id, error, NOW, dead=True, now=NOW)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "project", config=None)
    made.env = {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HOME": str(tmp_path),
    }
    return made


def silent(ran: Ran) -> Ran:
    """Fails when the secret was shown."""
    assert TOKEN not in ran.stdout + ran.stderr
    assert "123456789012345678" not in ran.stdout + ran.stderr
    return ran


# -- test ------------------------------------------------------------------------------------------------------


def test_one_notice_is_sent_to_each_sink_and_reported(home: Home, server: Webhook) -> None:
    home.config(f'{PHONE}url = "{server.url}"\n[notify.sinks.file]\ntype = "log"\nfile = "notices.log"\n')
    ran = silent(home.gpuq("notify", "test").ok())
    assert [line.split(" in ")[0] for line in ran.stdout.splitlines()] == ["phone: delivered", "file: delivered"]
    assert server.told == ["gpuq can reach you"]
    log = Path(home.env["XDG_CONFIG_HOME"]) / "gpuq" / "notices.log"
    assert "gpuq can reach you" in log.read_text()
    only = silent(home.gpuq("notify", "test", "phone", "--json").ok()).json
    assert only["schema"] == "gpuq.notify-test/1"
    assert [(one["sink"], one["delivered"], one["error"]) for one in only["sinks"]] == [("phone", True, "")]
    assert len(server.told) == 2
    assert not database(home.env).exists(), "a test leaves nothing behind"


def test_a_dry_run_sends_nothing(home: Home, server: Webhook) -> None:
    home.config(f'{PHONE}url = "{server.url}"\n')
    ran = silent(home.gpuq("notify", "test", "--dry-run").ok())
    assert ran.stdout.startswith("phone (discord): would be sent: gpuq can reach you")
    assert home.gpuq("notify", "test", "--dry-run", "--json").ok().json["dry_run"] is True
    assert server.requests == 0


def test_one_sink_that_fails_is_exit_13_and_the_others_are_tried(home: Home, server: Webhook) -> None:
    server.script = [Reply(status=404, body=b'{"message": "Unknown Webhook", "code": 10015}')]
    home.config(f'{PHONE}url = "{server.url}"\n[notify.sinks.file]\ntype = "log"\nfile = "notices.log"\n')
    ran = silent(home.gpuq("notify", "test").exits(13))
    assert "phone: not delivered: HTTP 404, Unknown Webhook (10015)" in ran.stdout
    assert "file: delivered" in ran.stdout
    assert "not delivered to phone" in ran.stderr


def test_without_a_sink_the_test_says_how_to_make_one(home: Home) -> None:
    assert '[notify.sinks.phone]\ntype = "discord"' in home.gpuq("notify", "test").ok().stderr
    home.config('[notify.sinks.phone]\ntype = "log"\n')
    assert "no sink is configured" not in home.gpuq("notify", "test").ok().stderr


def test_each_failure_has_its_own_hint(home: Home, server: Webhook) -> None:
    secret = Path(home.env["XDG_CONFIG_HOME"]) / "gpuq" / "discord.url"
    home.config(f'{PHONE}url_file = "discord.url"\n')
    secret.write_text(server.url)
    secret.chmod(0o644)
    assert f"chmod 600 {secret}" in silent(home.gpuq("notify", "test").exits(13)).stderr
    secret.chmod(0o600)
    server.script = [Reply(status=404, body=b"{}")]
    assert "chmod" not in silent(home.gpuq("notify", "test").exits(13)).stderr


def test_what_was_given_up_can_be_thrown_away(home: Home) -> None:
    home.config('[notify.sinks.phone]\ntype = "log"\n')
    assert home.gpuq("notify", "drop", "phone").ok().stdout == "phone: 0 thrown away\n"
    home.dead("a", "b")
    assert "did you mean 'phone'?" in home.gpuq("notify", "drop", "phnoe").exits(2).stderr
    assert home.gpuq("notify", "drop", "phone", "--dry-run").ok().stdout == "phone: 2 would be thrown away\n"
    assert home.counts("phone").dead == 2
    with home.store() as store:
        store.record([], [("phone", notice(7, title="waits"))], now=NOW)
    assert home.gpuq("notify", "drop", "phone").ok().stdout == "phone: 2 thrown away\n"
    assert (home.counts("phone").dead, home.counts("phone").waiting) == (0, 1)
    home.config('[notify.sinks.other]\ntype = "log"\n')
    assert home.gpuq("notify", "drop", "phone").ok().stdout == "phone: 1 thrown away\n"


def test_a_sink_that_is_not_there_is_a_usage_error(home: Home) -> None:
    home.config('[notify.sinks.phone]\ntype = "log"\n')
    assert "did you mean 'phone'?" in home.gpuq("notify", "test", "phnoe").exits(2).stderr
    assert "s3cr3t" not in home.gpuq("notify", "test", "https://x/s3cr3t").exits(2).stderr


def test_a_wrong_config_is_exit_3(home: Home) -> None:
    home.config("[notify.sinks.phone]\ntype = 'discrod'\n")
    for command in ("test", "status", "retry"):
        assert "did you mean 'discord'?" in home.gpuq("notify", command).exits(3).stderr


def test_other_commands_do_not_mind_these_tables(home: Home) -> None:
    home.config('[submit]\nmem = "1G"\n[notify.sinks.phone]\ntype = "log"\n[watch]\npoll = 5\n')
    home.run("a")
    assert home.gpuq("status", env={"PATH": "/usr/bin:/bin"}).code != 3


# -- nothing shows an address ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        (Reply(status=500, body=b"<html>" + TOKEN.encode()), "HTTP 500"),
        (Reply(status=400, body=b'{"message": "' + TOKEN.encode() + b'"}'), "HTTP 400, ***"),
        (Reply(status=301, headers={"Location": f"/elsewhere/{TOKEN}"}), "another address"),
        (Reply(raw=b"HTTP/1.1 200 OK\r\n no header\r\nContent-Length: 2\r\n\r\n{}"), "delivered"),
        (Reply(raw=b""), "connection failed"),
        (Reply(hang=True), "no answer within 0.5 s"),
    ],
)
def test_no_failure_shows_the_secret_in_any_output(home: Home, server: Webhook, reply: Reply, word: str) -> None:
    """Also with --debug, as JSON, and with the address in the environment."""
    home.config(f'{PHONE}url_env = "HOOK"\n')
    for args in (("notify", "test"), ("--debug", "notify", "test", "--json")):
        server.script = [reply]
        ran = silent(home.gpuq(*args, env={"HOOK": server.url, "PYTHONWARNINGS": "default"}))
        assert word in ran.stdout + ran.stderr


def test_a_wrong_url_is_not_shown_either(home: Home) -> None:
    home.config(f'{PHONE}url_env = "HOOK"\n')
    for url in (
        f"http://discord.com/api/webhooks/1/{TOKEN}",
        f"discord.com/{TOKEN}",
        f"https://[{TOKEN}/x",
        f"a {TOKEN}",
    ):
        for command in (("test",), ("status",), ("status", "--json")):
            assert "phone" in silent(home.gpuq("notify", *command, env={"HOOK": url})).stdout


def test_a_config_that_others_can_read_is_refused(home: Home, server: Webhook) -> None:
    path = home.config(f'{PHONE}url = "{server.url}"\n', mode=0o640)
    ran = silent(home.gpuq("notify", "test").exits(3))
    assert "mode 0640" in ran.stderr
    assert f"chmod 600 {path}" in ran.stderr
    assert server.requests == 0


def test_no_process_has_the_secret_in_its_arguments(home: Home, server: Webhook) -> None:
    seen = home.root / "ps"
    home.config(
        f'{PHONE}url = "{server.url}"\n[notify.sinks.bell]\ntype = "command"\n'
        f'argv = ["bash", "-c", "cat > /dev/null; cat /proc/[0-9]*/cmdline > {seen} 2> /dev/null; exit 0"]\n'
    )
    server.script = [Reply(hang=True)]
    running = home.start("notify", "test")
    until(lambda: server.requests == 1, lambda: server.requests)
    mine = Path(f"/proc/{running.pid}/cmdline").read_bytes()
    assert b"notify\0test" in mine
    assert TOKEN.encode() not in mine
    silent(home.finish(running, "notify", "test"))
    assert b"notify\0test" in seen.read_bytes(), "the command's own look at all processes saw gpuq"
    assert TOKEN.encode() not in seen.read_bytes()


def test_a_slow_answer_is_announced(home: Home, server: Webhook) -> None:
    server.script = [Reply(hang=True)]
    home.config(f'{PHONE.replace("timeout = 0.5", "timeout = 2.5")}url = "{server.url}"\n')
    assert "waiting for phone (at most 2.5 s)" in silent(home.gpuq("notify", "test").exits(13)).stderr


# -- status and retry --------------------------------------------------------------------------------------------


def test_status_shows_where_a_url_is_kept_what_waits_and_what_was_given_up(home: Home, server: Webhook) -> None:
    home.config(f'{PHONE}url_env = "HOOK"\n[notify.sinks.file]\ntype = "log"\n')
    home.dead("run1 FAILED", "run2\x1b[31m", error="HTTP 404: the webhook has been deleted")
    with home.store() as store:
        store.record([], [("phone", notice(7)), ("old", notice(8))], now=NOW)
        (letter,) = store.due("phone", NOW, limit=1)
        store.failed(letter.id, "no connection within 10 s", NOW, now=NOW)
    ran = silent(home.gpuq("--debug", "notify", "status", env={"HOOK": server.url}).ok())
    sinks, _, dead = ran.stdout.partition("Given up")
    rows = {line.split()[0]: line for line in sinks.splitlines() if line}
    assert rows["phone"].split()[1:5] == ["discord", "1", "0", "2"]
    assert "environment variable HOOK" in ran.stdout
    assert "no connection within 10 s" in ran.stdout
    assert "it is not configured any more" in rows["old"]
    assert "run1 FAILED  HTTP 404: the webhook has been deleted" in dead
    assert "\x1b" not in ran.stdout
    found = silent(home.gpuq("notify", "status", "--json", env={"HOOK": server.url}).ok()).json
    assert found["schema"] == "gpuq.notify/1"
    phone = next(one for one in found["sinks"] if one["name"] == "phone")
    assert (phone["waiting"], phone["dead"], phone["problem"]) == (1, 2, "")
    assert found["dead"][0]["title"] == "run1 FAILED"


def test_status_tells_that_a_secret_is_missing(home: Home) -> None:
    home.config(f'{PHONE}url_credential = "discord"\n')
    ran = home.gpuq("notify", "status").ok()
    assert "there is no $CREDENTIALS_DIRECTORY" in ran.stdout


def test_dead_letters_are_put_back(home: Home) -> None:
    home.config('[notify.sinks.phone]\ntype = "log"\n[notify.sinks.other]\ntype = "log"\n')
    home.dead("run1", "run2")
    assert home.gpuq("notify", "retry", "--dry-run").ok().stdout == "phone: 2 would be put back\n"
    assert home.counts("phone").dead == 2
    assert home.gpuq("notify", "retry", "other").ok().stdout == "nothing was given up\n"
    assert "no sink 'phoen'" in home.gpuq("notify", "retry", "phoen").exits(2).stderr
    for mistaken in (f"https://discord.com/api/webhooks/1/{TOKEN}", f"discord.com/api/webhooks/1/{TOKEN}"):
        silent(home.gpuq("notify", "retry", mistaken).exits(2))
    assert home.gpuq("notify", "retry", "phone").ok().stdout == "phone: 2 put back\n"
    count = home.counts("phone")
    assert (count.dead, count.waiting) == (0, 2)
    assert home.gpuq("notify", "retry").ok().stdout == "nothing was given up\n"


def test_a_broken_database_is_exit_14(home: Home) -> None:
    path = database(home.env)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is no database" * 100)
    for command in (("notify", "status"), ("notify", "retry"), ("watch", "status"), ("watch", "--once"), ("watch",)):
        ran = home.gpuq(*command).exits(14)
        assert f"the watcher's database {path}: file is not a database" in ran.stderr
        assert f"mv {path} {path}.old" in ran.stderr
    path.unlink()
    path.mkdir()  # cannot be opened, and cannot be made
    for command in (("watch", "status"), ("watch", "--once")):
        assert "unable to open database file" in home.gpuq(*command).exits(14).stderr


def test_what_nobody_wrote_there_is_exit_14_too(home: Home) -> None:
    with contextlib.closing(open_store(database(home.env))) as connection:
        EventStore(connection).record([], [], {"report": b"{}"}, now=NOW)
        connection.execute("INSERT INTO events VALUES (1, 'a', 'job_ended', 0, 0, ?)", (b"{",))
        connection.execute(
            "INSERT INTO outbox VALUES (1, 'a', 'phone', '', 'dead', 1, 0.0, 0.0, '', ?)", (b'{"key": 1}',)
        )
    for command in (("notify", "status"), ("watch", "status"), ("watch", "--once")):
        assert "the watcher's database" in home.gpuq(*command).exits(14).stderr


def test_one_look_that_cannot_be_saved_is_exit_14_and_not_nothing_new(home: Home) -> None:
    with contextlib.closing(open_store(database(home.env))) as connection:
        EventStore(connection)
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON cursors BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"
        )
    assert "database or disk is full" in home.gpuq("watch", "--once").exits(14).stderr


def test_a_look_makes_no_database(home: Home) -> None:
    home.gpuq("notify", "status").ok()
    home.gpuq("notify", "retry").ok()
    assert not database(home.env).exists()


def test_its_help_imports_no_library_of_a_sink() -> None:
    code = (
        "import sys\nfrom gpuq.cli.main import _run\n_run(['notify', '--help'])\n"
        "print({m.split('.')[0] for m in sys.modules} & {'msgspec', 'sqlite3', 'requests', 'discord_webhook', 'apprise'})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.endswith("set()\n")
