"""The one door to other programs."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuq.adapters import proc


def test_status_and_both_outputs_are_told() -> None:
    result = proc.run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=30)
    assert (result.returncode, result.stdout, result.stderr, result.ok) == (3, "out\n", "err\n", False)
    assert proc.run(["true"], timeout=30).ok


def test_words_on_stderr_are_no_failure() -> None:
    assert proc.run(["sh", "-c", "echo warning >&2"], timeout=30).ok


def test_a_program_that_is_missing_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(proc.ProgramMissing, match="no-such-program: command not found"):
        proc.run(["no-such-program"], timeout=30)
    with pytest.raises(FileNotFoundError):
        proc.run(["true"], timeout=30, cwd=tmp_path / "no")


def test_a_program_that_may_not_be_run_is_told_and_no_defect(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(proc.ProgramMissing, match="program: Permission denied"):
        proc.run([str(program)], timeout=30)


def test_no_shell_takes_the_words_apart() -> None:
    assert proc.run(["printf", "%s|", "a b", "$HOME", ";", "'"], timeout=30).stdout == "a b|$HOME|;|'|"


def test_any_bytes_survive() -> None:
    assert proc.run(["printf", r"caf\351"], timeout=30).stdout == "caf\udce9"


def test_the_environment_is_the_one_given_and_nothing_else() -> None:
    assert proc.run(["/usr/bin/env"], timeout=30, env={"A": "1"}).stdout == "A=1\n"


def test_input_is_given_and_without_any_it_is_empty() -> None:
    assert proc.run(["cat"], timeout=30, input_bytes=b"hello").stdout == "hello"
    assert proc.run(["cat"], timeout=30).stdout == ""


def test_a_program_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(proc.ProgramTimeout, match=r"no answer within 0\.2 s") as caught:
            proc.run(["sh", "-c", "sleep 600 & sleep 600"], timeout=0.2, own_session=True, pass_fds=[handle.fileno()])
    assert caught.value.argv[0] == "sh"
    with lock.open("w") as handle:
        # free only when neither the shell nor its children hold the inherited descriptor any more
        fcntl.flock(handle, fcntl.LOCK_EX)


def test_a_lock_is_inherited_through_pass_fds(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as handle:
        number = handle.fileno()
        result = proc.run(["sh", "-c", f"test -e /proc/self/fd/{number}"], timeout=30, pass_fds=[number])
        assert result.ok
        assert not proc.run(["sh", "-c", f"test -e /proc/self/fd/{number}"], timeout=30).ok


def test_a_program_ended_by_a_signal_has_a_negative_status() -> None:
    assert proc.run(["sh", "-c", "kill -9 $$"], timeout=30).returncode == -9


def test_debug_lines_go_to_stderr_only_when_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.run(["true"], timeout=30)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("GPUQ_DEBUG", "1")
    proc.run(["sh", "-c", "exit 4"], timeout=30)
    out, err = capsys.readouterr()
    assert out == ""
    assert "gpuq: debug: sh -c 'exit 4' -> 4" in err


def test_a_daemon_is_in_a_session_of_its_own_and_its_words_are_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    pid = proc.spawn_daemon(["sh", "-c", "cut -d' ' -f6 /proc/$$/stat; echo done >&2"], log=log)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    proc.reap()
    words = log.read_text().split()
    assert words == [str(pid), "done"]
    with pytest.raises(proc.ProgramMissing):
        proc.spawn_daemon(["no-such-program"], log=log)


def test_no_open_file_of_ours_leaks_into_a_program() -> None:
    code = (
        "import os; from gpuq.adapters import proc; r, w = os.pipe(); os.set_inheritable(w, True);"
        "print(proc.run(['sh', '-c', f'test -e /proc/self/fd/{w}'], timeout=30).returncode)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "1\n"


def test_a_program_whose_answer_is_not_wanted_is_ended() -> None:
    running = proc.start(["sleep", "600"], timeout=600)
    running.drop()
    running.drop()
    assert not Path(f"/proc/{running._process.pid}").exists()
    done = proc.start(["true"], timeout=30)
    assert done.result().ok
    done.drop()


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 1_000_000])
def test_input_of_any_size_arrives_whole(size: int) -> None:
    result = proc.run(["wc", "-c"], timeout=30, input_bytes=b"x" * size)
    assert int(result.stdout) == size
    assert proc.run(["true"], timeout=30, input_bytes=b"x" * size).ok  # it need not be read


def test_output_is_handed_on_as_it_comes_and_whole() -> None:
    pieces: list[str] = []
    script = "printf 'a\\303'; sleep 0.1; printf '\\251b\\377'; seq 100000; echo err >&2; exit 3"
    result = proc.start(["sh", "-c", script], timeout=30).result(pieces.append)
    assert "".join(pieces) == "aéb\udcff" + "".join(f"{n}\n" for n in range(1, 100001))
    assert len(pieces) > 2
    assert (result.returncode, result.stdout, result.stderr) == (3, "", "err\n")


def test_a_slow_answer_is_told_once_and_loses_nothing() -> None:
    slow: list[str] = []
    pieces: list[str] = []
    script = "sleep 0.4; printf a; sleep 0.2; cat"
    given = proc.start(["sh", "-c", script], timeout=30, input_bytes=b"bc")
    assert given.result(slow=(0.1, lambda: slow.append("1"))).stdout == "abc"
    more = proc.start(["sh", "-c", script], timeout=30, input_bytes=b"b" * 200_000)
    assert more.result(slow=(0.1, lambda: slow.append("0"))).stdout == "a" + "b" * 200_000
    proc.start(["sh", "-c", script], timeout=30).result(pieces.append, slow=(0.1, lambda: slow.append("2")))
    assert (slow, "".join(pieces)) == (["1", "2"], "a")
    proc.start(["true"], timeout=30).result(slow=(25, lambda: slow.append("3")))
    assert slow == ["1", "2"]


@pytest.mark.parametrize("script", ["echo a; exec sleep 600", "echo a; exec >&- 2>&-; exec sleep 600"])
def test_a_program_that_hangs_after_some_output_is_killed(script: str) -> None:
    pieces: list[str] = []
    running = proc.start(["sh", "-c", script], timeout=0.5)
    with pytest.raises(proc.ProgramTimeout):
        running.result(pieces.append)
    assert "".join(pieces) == "a\n"
    assert not Path(f"/proc/{running._process.pid}").exists()


def test_whoever_cannot_take_the_output_ends_the_program() -> None:
    def refuse(_: str) -> None:
        raise KeyboardInterrupt

    running = proc.start(["sh", "-c", "echo a; exec sleep 600"], timeout=600)
    with pytest.raises(KeyboardInterrupt):
        running.result(refuse)
    assert not Path(f"/proc/{running._process.pid}").exists()
