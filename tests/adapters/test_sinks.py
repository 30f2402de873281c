"""The sinks that are no Discord: a command, the log, apprise."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuq.adapters.sinks.apprise import AppriseSink
from gpuq.adapters.sinks.command import CommandSink
from gpuq.adapters.sinks.log import LogSink, line_of
from gpuq.adapters.sinks.registry import make_all
from gpuq.core.notify.config import from_tables
from gpuq.core.notify.delivery import Answer, Delivered, Refused, Retry
from gpuq.core.notify.secret import Secret
from tests.gpuq_cli import SOURCE, until
from tests.notices import notice
from tests.webhook import TOKEN, Reply, Webhook, serve

# -- command ---------------------------------------------------------------------------------------------------


def run(tmp_path: Path, script: str, *, timeout: float = 20.0) -> Answer:
    program = tmp_path / "tell"
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o755)
    sink = CommandSink("bell", [str(program), "--loud"], environment={"PATH": os.environ["PATH"]}, timeout=timeout)
    return sink.send(notice(text="Exit code 1.\nNext: b"), "bell/end 1")


def test_a_program_gets_the_notice_as_json_with_its_key(tmp_path: Path) -> None:
    assert run(tmp_path, f'cat > {tmp_path}/got; echo "$@" > {tmp_path}/args') == Delivered()
    got = json.loads((tmp_path / "got").read_text())
    assert got == {
        "schema": "gpuq.notice/1",
        "id": "bell/end 1",
        "sink": "bell",
        "key": "end 1",
        "kind": "job_ended",
        "level": "bad",
        "title": "run1 FAILED",
        "text": "Exit code 1.\nNext: b",
        "fields": {"Job": "1"},
        "log_tail": "",
        "log_name": "",
        "time": "2026-03-01T12:00:00Z",
    }
    assert (tmp_path / "args").read_text() == "--loud\n"


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("exit 75", Retry("{0}: exit status 75")),
        ("echo no network >&2; exit 1", Retry("{0}: exit status 1, no network")),
        ("echo >&2 'no such user'; exit 64", Refused("{0}: exit status 64, no such user (EX_USAGE)")),
        ("exit 78", Refused("{0}: exit status 78 (EX_CONFIG)")),
        ("kill -9 $$", Retry("{0}: ended by signal 9")),
        (r"printf '\033[31mred' >&2; exit 1", Retry("{0}: exit status 1, �[31mred")),
        ("exec 0<&-; exit 0", Delivered()),
    ],
)
def test_its_exit_status_decides(tmp_path: Path, script: str, answer: Answer) -> None:
    if not isinstance(answer, Delivered):
        answer = type(answer)(answer.why.format(tmp_path / "tell"))
    assert run(tmp_path, script) == answer


def test_one_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    answer = run(tmp_path, f"sleep 987 & echo $! > {tmp_path}/child; wait", timeout=2.0)
    assert answer == Retry(f"{tmp_path}/tell: not done within 2 s")
    stat = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")

    def is_over() -> bool:
        try:
            return stat.read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    until(is_over, lambda: stat)


@pytest.mark.parametrize("script", ["yes", "yes >&2", "exec >&- 2>&-; sleep 987"])
def test_one_that_prints_without_an_end_costs_no_memory(tmp_path: Path, script: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = run(tmp_path, script, timeout=0.5)
    assert answer == Retry(f"{tmp_path}/tell: not done within 0.5 s")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB; half a second of it is more


def test_the_last_thing_it_said_is_told_of_much(tmp_path: Path) -> None:
    answer = run(tmp_path, "head -c 300000 /dev/zero | tr '\\0' 'x' >&2; echo >&2; echo no network >&2; exit 1")
    assert answer == Retry(f"{tmp_path}/tell: exit status 1, no network")


@pytest.mark.parametrize("script", ["sleep 987 &", "yes & disown"])
def test_what_it_leaves_running_is_not_waited_for(tmp_path: Path, script: str) -> None:
    """Its exit status has said that the notice is delivered: tried again, it would be told all day."""
    answer = run(tmp_path, f"{script}\necho $! > {tmp_path}/child; exit 0", timeout=60)
    assert answer == Delivered()
    with contextlib.suppress(ProcessLookupError):  # a closed pipe has ended it
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("script", ["test $(wc -c) -gt 3000000", "exit 0", "head -c 100000 > /dev/null"])
def test_a_very_long_notice_is_given_whole_to_whoever_reads_it(tmp_path: Path, script: str) -> None:
    program = tmp_path / "tell"
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o755)
    sink = CommandSink("bell", [str(program)], environment={"PATH": os.environ["PATH"]}, timeout=60)
    assert sink.send(notice(text="x" * 3_000_000), "k") == Delivered()


def test_one_that_is_not_there_is_tried_again() -> None:
    sink = CommandSink("bell", ["/nowhere/tell"], environment={}, timeout=1)
    assert sink.send(notice(), "k") == Retry("/nowhere/tell: command not found")


def test_it_does_not_inherit_other_sinks_secrets(tmp_path: Path) -> None:
    tables = {
        "sinks": {
            "phone": {"type": "discord", "url_env": "HOOK"},
            "bell": {
                "type": "command",
                "argv": ["/usr/bin/env", "bash", "-c", f"env > {tmp_path}/env; cat > /dev/null"],
            },
        }
    }
    environment = {"HOOK": f"https://discord.com/api/webhooks/1/{TOKEN}", "PATH": os.environ["PATH"], "KEPT": "yes"}
    sinks = make_all(from_tables(tables, None, "c"), environment)
    assert sinks["bell"].send(notice(), "k") == Delivered()
    seen = (tmp_path / "env").read_text()
    assert "KEPT=yes" in seen
    assert TOKEN not in seen


# -- log -------------------------------------------------------------------------------------------------------


def test_the_log_gets_one_line_for_each_notice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "notices.log"
    sink = LogSink("file", path)
    one = notice(text="Exit code 1.\nNext: größer")
    assert sink.send(one, "k") == sink.send(one, "k") == Delivered()
    line = "2026-03-01T12:00:00+00:00 bad job_ended run1 FAILED; Exit code 1. Next: größer"
    assert path.read_text() == f"{line}\n{line}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert LogSink("log", None).send(one, "k") == Delivered()
    assert capfd.readouterr().err == f"{line}\n"
    assert line_of(notice(text="")).endswith("run1 FAILED")


def test_a_file_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    assert LogSink("file", tmp_path).send(notice(), "k") == Retry(f"{tmp_path}: Is a directory")
    os.mkfifo(tmp_path / "fifo")  # that nobody reads
    assert LogSink("file", tmp_path / "fifo").send(notice(), "k") == Retry(
        f"{tmp_path}/fifo: No such device or address"
    )
    assert LogSink("file", Path("/dev/full")).send(notice(), "k") == Retry("/dev/full: No space left on device")


# -- apprise ---------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Webhook]:
    with serve() as service:
        yield service


def apprise(url: str, timeout: float = 30.0) -> AppriseSink:
    return AppriseSink("chat", Secret(url), environment={**os.environ, "PYTHONPATH": str(SOURCE)}, timeout=timeout)


def json_url(server: Webhook) -> str:
    return server.url.split("/api/")[0].replace("http", "json") + f"/hook/{TOKEN}"


def test_any_service_of_apprise(server: Webhook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apprise.py").write_text("raise SystemExit(0)")  # it is not what "apprise" means
    monkeypatch.chdir(tmp_path)
    assert apprise(json_url(server)).send(notice(log_tail="a\nb"), "k") == Delivered()
    (post,) = server.posts
    assert post.path == f"/hook/{TOKEN}"
    assert post.payload["title"] == "run1 FAILED"
    assert post.payload["message"] == "Exit code 1.\nJob: 1\n\na\nb"
    assert post.payload["type"] == "failure"


def test_what_it_does_not_take_is_tried_again_and_nothing_is_shown(
    server: Webhook, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUQ_DEBUG", "1")
    server.script = [Reply(status=404, body=TOKEN.encode())]
    answer = apprise(json_url(server)).send(notice(), "k")
    assert answer == Retry("apprise could not deliver it; it does not say why")
    server.script = [Reply(hang=True)]
    assert apprise(json_url(server), 2.0).send(notice(), "k") == Retry("apprise was not done within 2 s")
    out, err = capfd.readouterr()
    assert "apprise_child" in err, "the program is in the debug output, and the address is not"
    assert TOKEN not in out + err


@pytest.mark.parametrize("url", ["nonsense://x/y", "json://localhost/b,json://localhost/d"])
def test_what_is_no_single_address_is_refused(url: str) -> None:
    answer = apprise(url).send(notice(), "k")
    assert isinstance(answer, Refused)
    assert url not in answer.why


def test_no_sink_imports_its_library_before_it_delivers() -> None:
    code = (
        "import sys\nfrom gpuq.adapters.sinks.registry import make_all\nfrom gpuq.core.notify.config import from_tables\n"
        "make_all(from_tables({'sinks': {'a': {'type': 'discord', 'url_env': 'U'}, 'b': {'type': 'apprise', 'url_env': 'U'},"
        " 'c': {'type': 'command', 'argv': ['x']}}}, None, 'c'), {'U': 'https://discord.com/api/webhooks/1/x'})\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'requests', 'urllib3', 'discord_webhook', 'apprise'}))"
    )
    from gpuq.adapters import proc

    assert proc.run([sys.executable, "-c", code], timeout=60).stdout == "[]\n"
