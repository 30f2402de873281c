"""`from gpuq import runlog`: as training code uses it, in processes of its own."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpuq import runlog
from gpuq.core.inside.lintlog import lint
from gpuq.core.inside.runlines import Line, last_result, read

SOURCE = Path(__file__).resolve().parent.parent
LOOP = """
import os, sys, time
from gpuq import runlog
with runlog.start({"lr": 3e-4}, total=1000, every=0.05) as log:
    for step in range(1000):
        time.sleep(0.02)
        log.step(loss=1 / (step + 1))
        if log.stopping:
            open(sys.argv[1], "w").write(str(step))
            break
    log.result(score=0.97)
"""


def python(code: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )


def lines(text: str) -> list[Line]:
    return [line for line in map(read, text.splitlines()) if line is not None]


def test_it_needs_only_the_standard_library() -> None:
    code = "from gpuq import runlog; print({'click', 'msgspec', 'psutil', 'torch'} & set(sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(SOURCE)!r}); {code}"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout == "set()\n"


def test_a_run_from_start_to_end() -> None:
    ran = python(
        "from gpuq import runlog\n"
        "class Tensor:\n"
        "    def __float__(self): return 0.25\n"
        "with runlog.start({'lr': 3e-4, 'name': 'a b'}, total=4, every=0) as log:\n"
        "    for _ in range(4): log.step(loss=Tensor(), phase='warm up')\n"
        "    log.result(score=0.5)\n",
        GPUQ_TAG="a/b",
    )
    start, *steps, last = lines(ran.stdout)
    assert (start.kind, start.fields["tag"], start.fields["lr"], start.fields["name"]) == (
        "START",
        "a/b",
        "0.0003",
        "a b",
    )
    assert [step.fields["step"] for step in steps] == ["1/4", "2/4", "3/4", "4/4"]
    assert (steps[0].fields["loss"], steps[0].fields["phase"]) == ("0.25", "warm up")
    assert {"speed", "eta", "elapsed"} <= set(steps[-1].fields)
    assert "vram" not in steps[-1].fields  # no PyTorch here
    assert (last.kind, last.fields["exit"], last.fields["score"]) == ("FINISHED", "0", "0.5")


def test_between_two_lines_no_value_is_read() -> None:
    """A GPU would be waited for."""

    class Tensor:
        def __float__(self) -> float:
            raise AssertionError("read")

    log = runlog.Log(every=3600)
    for _ in range(100):
        log.step(loss=Tensor())


@pytest.mark.parametrize("wrapped", [False, True])
def test_sigterm_says_stop(tmp_path: Path, wrapped: bool) -> None:
    argv = [sys.executable, "-c", LOOP, str(tmp_path / "resume.pt")]
    if wrapped:
        argv = [sys.executable, "-m", "gpuq", "run", "--", *argv]
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while "STEP" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    rest = process.stdout.read()
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert int((tmp_path / "resume.pt").read_text()) < 999
    last = lines(rest)[-1]
    assert (last.kind, last.fields["stopped"], last.fields["score"]) == ("FINISHED", "true", "0.97")
    kinds = [line.kind for line in lines(rest)]
    assert ("RESULT" in kinds, "STOPPING" in kinds) == (wrapped, wrapped)


@pytest.mark.parametrize(
    ("body", "code", "cause", "error"),
    [
        ("raise ValueError('bad\\nmore')", 1, "python_error", "ValueError: bad"),
        ("raise KeyboardInterrupt", 130, "interrupted", ""),
        ("raise SystemExit(4)", 4, "exit_code", ""),
        ("raise type('OutOfMemoryError', (RuntimeError,), {})('CUDA')", 1, "gpu_oom", "OutOfMemoryError: CUDA"),
    ],
)
def test_an_exception_ends_the_log_with_failed_after_its_traceback(
    body: str, code: int, cause: str, error: str
) -> None:
    ran = python(f"from gpuq import runlog\nwith runlog.start() as log:\n    {body}\n")
    last = read(ran.stdout.splitlines()[-1])
    assert last is not None, ran.stdout
    assert (last.kind, last.fields["cause"], last.fields["exit"]) == ("FAILED", cause, str(code))
    assert last.fields.get("error", "").startswith(error)


def test_a_try_that_failed_and_was_repeated_is_no_failure() -> None:
    ran = python(
        "from gpuq import runlog\n"
        "for size in (64, 32):\n"
        "    try:\n"
        "        with runlog.start({'batch': size}) as log:\n"
        "            if size > 32: raise RuntimeError('too big')\n"
        "    except RuntimeError: pass\n"
    )
    assert [line.kind for line in lines(ran.stdout)] == ["START", "START", "FINISHED"]
    assert ran.returncode == 0


def test_a_forked_worker_is_ended_by_sigterm_as_ever() -> None:
    ran = python(
        "import os, signal, time\n"
        "from gpuq import runlog\n"
        "with runlog.start() as log:\n"
        "    reader, writer = os.pipe()\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        os.write(writer, b'begun')\n"
        "        time.sleep(600)\n"
        "        os._exit(9)\n"
        "    os.read(reader, 5)\n"
        "    os.kill(pid, signal.SIGTERM)\n"
        "    print('worker', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), log.stopping, flush=True)\n"
    )
    assert "worker -15 False" in ran.stdout


def test_another_ranks_log_stays_silent() -> None:
    ran = python("from gpuq import runlog\nwith runlog.start(every=0) as log: log.step(loss=1)", RANK="1")
    assert (ran.stdout, ran.returncode) == ("", 0)


def test_the_handler_before_is_called_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: called.append(number))
    try:
        mine = signal.getsignal(signal.SIGTERM)
        with runlog.start() as log:
            os.kill(os.getpid(), signal.SIGTERM)
            assert log.stopping
        assert called == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_a_thread_it_works_without_signals() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[bool] = []

    def work() -> None:
        with runlog.start() as log:
            log.step(loss=1.0)
            seen.append(log.stopping)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
    assert signal.getsignal(signal.SIGTERM) is before


def test_pytorchs_memory_is_told_once_it_is_in_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Cuda:
        begun = False

        def is_initialized(self) -> bool:
            return self.begun

        def max_memory_reserved(self) -> int:
            assert self.begun, "it would be begun by asking"
            return 3 << 30

        def get_device_name(self) -> str:
            assert self.begun
            return "NVIDIA H200"

    torch = type(sys)("torch")
    cuda = Cuda()
    torch.__dict__["cuda"] = cuda
    monkeypatch.setitem(sys.modules, "torch", torch)
    with runlog.start(every=0) as log:
        log.step(loss=1.0)
        cuda.begun = True
        log.step(loss=1.0)
    start, first, second, last = lines(capsys.readouterr().out)
    assert start.fields["device"] in {"none", "unknown"}
    assert "vram" not in first.fields
    assert (second.fields["vram"], last.fields["vram"]) == ("3.00GiB", "3.00GiB")


def test_a_log_inside_another_begins_and_ends_none() -> None:
    code = (
        "import multiprocessing, sys\n"
        "from gpuq import runlog\n"
        "def work(name):\n"
        "    with runlog.start({'name': name}, every=0) as log: log.step(loss=1)\n"
        "with runlog.start({'name': 'outer'}) as log:\n"
        "    work('inner')\n"
        "    try:\n"
        "        with runlog.start({'name': 'failing'}): raise ValueError\n"
        "    except ValueError: pass\n"
        "    worker = multiprocessing.get_context('fork').Process(target=work, args=('forked',))\n"
        "    worker.start(); worker.join()\n"
        "work('after')\n"
    )
    text = python(code).stdout
    found = [(line.kind, line.get("name")) for line in lines(text) if line.kind != "STEP"]
    assert found == [
        ("START", "outer"),
        ("CONFIG", "inner"),
        ("CONFIG", "failing"),
        ("CONFIG", "forked"),
        ("FINISHED", None),
        ("START", "after"),
        ("FINISHED", None),
    ]
    assert [fault.text for fault in lint(line.encode() + b"\n" for line in text.splitlines())] == []


@pytest.mark.parametrize("total", [0, float("nan"), float("inf"), 2, 5_000_000])
def test_no_total_and_no_count_ends_the_training(total: float, capsys: pytest.CaptureFixture[str]) -> None:
    with runlog.start(total=total, every=0) as log:
        for step in (1, 2, 3, 1_234_567):
            log.step(step=step)
        log.step(float("nan"))
    text = capsys.readouterr().out
    told = [line.fields["step"] for line in lines(text) if line.kind == "STEP"]
    assert told[3].partition("/")[0] == "1234567"  # and not 1.23457e+06
    assert told[1].partition("/")[2] == ("" if total != 5_000_000 and total != 2 else f"{total:.0f}")
    assert [fault.text for fault in lint(line.encode() + b"\n" for line in text.splitlines())] == []


@pytest.mark.parametrize(
    ("ending", "last"),
    [
        ("sys.exit(-1)", "FAILED cause=exit_code exit=255 "),
        ("sys.exit(256)", "FINISHED exit=0 "),
        ("sys.exit('told')", "FAILED cause=exit_code exit=1 "),
        ("raise KeyboardInterrupt", "FAILED cause=interrupted exit=130 oom_kill=unknown error=KeyboardInterrupt "),
        (
            "raise OSError('\\n two lines\\nmore')",
            "FAILED cause=python_error exit=1 oom_kill=unknown error=OSError: two lines ",
        ),
    ],
)
def test_the_exit_code_is_the_one_that_the_system_sees(ending: str, last: str) -> None:
    ran = python(f"import sys\nfrom gpuq import runlog\nwith runlog.start(): {ending}\n")
    assert ran.stdout.splitlines()[-1].startswith(last)
    assert f" exit={ran.returncode} " in ran.stdout or ran.returncode == -signal.SIGINT


def test_settings_of_any_kind(capsys: pytest.CaptureFixture[str]) -> None:
    @dataclasses.dataclass(slots=True)
    class Slots:
        lr: float = 0.5

    for config in (Slots(), "words", 3):
        with runlog.start(config):
            pass
    starts = [line for line in lines(capsys.readouterr().out) if line.kind == "START"]
    assert [line.get("lr") or line.get("config") for line in starts] == ["0.5", "words", "3"]


def test_a_result_does_not_say_how_the_run_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with runlog.start() as log:
        log.result(exit=7, oom_kill=3, score=0.5)
    last = lines(capsys.readouterr().out)[-1]
    assert (last.kind, last.get("exit"), last.get("oom_kill"), last.get("score")) == ("FINISHED", "0", None, "0.5")
    assert (last.get("exit_"), last.get("oom_kill_")) == ("7", "3")
    assert last_result(b"RESULT score=0.5 exit=7 oom_kill=3\n") == {"score": "0.5"}
