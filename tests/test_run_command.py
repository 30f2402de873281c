"""`gpuq run` around real programs, with and without a GPU that a library of ours plays. No Slurm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuq.core.inside.runlines import Line, read
from tests.gpuq_cli import Project, Ran, Started, until
from tests.nvml import CARD, Stage, build

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0"}
"""What Slurm puts into the environment of a job with the GPU."""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project", config="")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pynvml", reason="not installed: nvidia-ml-py (pip install gpuq-slurm[dev])")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def stage(library: Path, tmp_path: Path) -> Stage:
    return Stage(library, tmp_path / "scenario")


def ours(text: str) -> list[Line]:
    return [line for line in map(read, text.splitlines()) if line is not None]


def ends(ran: Ran) -> dict[str, str]:
    """The last line of the output, which is FINISHED or FAILED."""
    line = read(ran.stdout.splitlines()[-1])
    assert line is not None, ran
    assert line.kind == ("FAILED" if ran.code else "FINISHED"), ran
    assert line.fields["exit"] == str(ran.code), ran
    return line.fields


def sh(project: Project, script: str, *options: str, env: dict[str, str] | None = None) -> Ran:
    return project.gpuq("run", *options, "--", "bash", "-c", script, env=env)


def test_a_program_that_ends_well(project: Project) -> None:
    ran = sh(project, "echo hi; echo RESULT score=0.5; printf tail").exits(0)
    start, *rest = ran.stdout.splitlines()
    line = read(start)
    assert line is not None
    assert line.kind == "START"
    assert line.fields["command"] == "bash -c 'echo hi; echo RESULT score=0.5; printf tail'"
    assert rest[:3] == ["hi", "RESULT score=0.5", "tail"]
    assert (ends(ran)["score"], "oom_kill" in ends(ran)) == ("0.5", False)
    assert ran.stderr == ""


@pytest.mark.parametrize(
    ("script", "code", "cause", "more"),
    [
        ("exit 3", 3, "exit_code", ""),
        ("kill -SEGV $$", 139, "signal", "SIGSEGV"),
        ("kill -KILL $$", 137, "signal", "SIGKILL"),
        ("echo 'ValueError: bad' >&2; exit 1", 1, "python_error", "ValueError: bad"),
        ("echo 'RuntimeError: CUDA out of memory. Tried'; exit 1", 1, "gpu_oom", "CUDA out of memory"),
    ],
)
def test_a_program_that_fails(project: Project, script: str, code: int, cause: str, more: str) -> None:
    ran = sh(project, script).exits(code)
    assert ends(ran)["cause"] == cause
    assert more in ran.stdout.splitlines()[-1]
    assert ends(ran)["oom_kill"] == "unknown"  # nobody counts outside of a job


def test_a_program_that_is_not_there(project: Project) -> None:
    assert (
        ends(project.gpuq("run", "--", "no-such-program").exits(127))["error"] == "no-such-program: command not found"
    )
    (project.root / "plain").write_text("no program")
    assert ends(project.gpuq("run", "--", "./plain").exits(126))["cause"] == "command"


@pytest.mark.parametrize("args", [[], ["--"], ["--", ""], ["--frames", "x", "--", "true"], ["--unknown", "--", "true"]])
def test_a_wrong_command_line_starts_nothing(project: Project, args: list[str]) -> None:
    ran = project.gpuq("run", *args).exits(2)
    assert ran.stdout == ""


def test_output_in_any_bytes_and_order(project: Project, tmp_path: Path) -> None:
    program = (
        "import os\n"
        "for i in range(2000): os.write(1 + i % 2, b'%d\\n' % i)\n"
        "os.write(1, bytes(range(256)).replace(b'\\r', b'') * 300)"
    )
    log = tmp_path / "log"
    with log.open("wb") as sink:
        argv = [sys.executable, "-m", "gpuq", "run", "--", sys.executable, "-c", program]
        assert subprocess.run(argv, stdout=sink, stderr=subprocess.STDOUT, timeout=60, check=False).returncode == 0
    lines = log.read_bytes().split(b"\n")
    assert lines[1:2001] == [b"%d" % i for i in range(2000)]  # both streams went to one file, and kept their order
    assert bytes(range(256)).replace(b"\r", b"") * 300 in log.read_bytes()


def test_a_progress_bar_becomes_a_line(project: Project) -> None:
    ran = sh(project, r"for i in $(seq 500); do printf '\r%d/500' $i; done; echo; echo end").exits(0)
    assert ran.stdout.splitlines()[1:3] == ["500/500", "end"]
    whole = sh(project, r"printf '\r1/2'; printf '\r2/2'; echo", "--frames", "0").exits(0)
    assert whole.stdout.splitlines()[1:3] == ["1/2", "2/2"]


def test_a_program_that_wants_a_terminal_gets_one(project: Project) -> None:
    script = "test -t 1 && test -t 2 && echo terminal; stty size <&1; kill -SEGV $$"
    ran = sh(project, script, "--pty").exits(139)
    assert ran.stdout.splitlines()[1:3] == ["terminal", "24 120"]
    assert sh(project, "test -t 1 && echo terminal; true").exits(0).stdout.count("\n") == 2


def test_what_is_left_behind_with_the_pipe_open_does_not_hold_it(project: Project, tmp_path: Path) -> None:
    ran = sh(project, f"sleep 600 & echo $! >{tmp_path}/pid; echo done").exits(0)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert ran.stdout.splitlines()[1] == "done"
    assert ends(ran)["exit"] == "0"


def test_signals_reach_the_program_and_its_exit_code_comes_back(project: Project) -> None:
    script = (
        "trap 'echo got TERM; exit 5' TERM; trap 'echo got USR1' USR1; trap 'echo got HUP' HUP; echo ready\n"
        "while :; do sleep 0.05; done"
    )
    seen: list[str] = []
    with project.start("run", "--", "bash", "-c", script) as process:
        out = process.stdout
        assert out is not None

        def wait_for(word: str) -> None:
            while not seen or seen[-1] != f"{word}\n":
                seen.append(out.readline())
                assert seen[-1], seen

        wait_for("ready")
        for name, word in (("USR1", "got USR1"), ("HUP", "got HUP"), ("TERM", "got TERM")):
            process.send_signal(getattr(signal, f"SIG{name}"))
            wait_for(word)
        last = read(out.read().splitlines()[-1])
        assert process.wait(timeout=60) == 5
    assert last is not None
    assert (last.kind, last.fields["cause"], last.fields["exit"]) == ("FAILED", "signal", "5")
    assert [line.fields["signal"] for line in ours("".join(seen)) if line.kind == "STOPPING"] == ["SIGHUP"]


@pytest.mark.parametrize(
    ("limit", "said", "cause"),
    [
        (
            86400,
            "slurmstepd: error: *** JOB 7 ON a CANCELLED AT 2026-03-02T11:37:36 DUE TO TIME LIMIT ***\n",
            "time_limit",
        ),
        (30, "slurmstepd: error: *** JOB 7 ON a CANCELLED AT 2026-03-02T11:37:36 ***\n", "time_limit"),
        (
            86400,
            "slurmstepd: error: *** JOB 7 ON a CANCELLED AT 2026-03-02T11:37:36 DUE TO JOB REQUEUE ***\n",
            "requeued",
        ),
        (
            86400,
            "slurmstepd: error: *** JOB 7 ON a CANCELLED AT 2026-03-02T11:37:36 DUE TO PREEMPTION ***\n",
            "preempted",
        ),
        (86400, "", "cancelled"),
        (None, "", "cancelled"),
    ],
)
def test_why_slurm_wanted_an_end(project: Project, limit: int | None, said: str, cause: str) -> None:
    slurm = project.run("a") / "slurm"
    slurm.mkdir()
    (slurm / "attempt1.json").write_text(json.dumps({"request": {"time_limit": limit, "signal_before": 10}}))
    log = slurm / "attempt1.out"
    log.write_text("an earlier start\nslurmstepd: error: *** JOB 7 ON a CANCELLED AT … DUE TO TIME LIMIT ***\n")
    env = {**os.environ, "SLURM_JOB_ID": "7", "GPUQ_RUN_DIR": str(slurm.parent), "GPUQ_ATTEMPT": "1"}
    argv = [sys.executable, "-m", "gpuq", "run", "--", "bash", "-c", "echo ready; exec sleep 600"]
    with log.open("ab") as sink, Started(argv, stdout=sink, stderr=sink, env=env) as process:
        until(lambda: "ready\n" in log.read_text(), lambda: log.read_text())
        with log.open("a") as slurmstepd:
            slurmstepd.write(said)
        process.terminate()
        assert process.wait(timeout=60) == 143
    last = read(log.read_text().splitlines()[-1])
    assert last is not None
    assert (last.kind, last.fields["cause"], last.fields["signal"]) == ("FAILED", cause, "SIGTERM")


@pytest.mark.parametrize(("limit", "before", "lines"), [(30, 10, 1), (86400, 10, 2), (30, None, 2), (None, 10, 1)])
def test_a_line_before_the_kill_and_none_at_a_warning(
    project: Project, tmp_path: Path, limit: int | None, before: int | None, lines: int
) -> None:
    """The SIGTERM of --signal-before comes not long before the limit, and nothing is killed after it."""
    slurm = project.run("a") / "slurm"
    slurm.mkdir()
    (slurm / "attempt1.json").write_text(json.dumps({"request": {"time_limit": limit, "signal_before": before}}))
    (tmp_path / "slurm.conf").write_text("KillWait=1\n")
    env = {"SLURM_JOB_ID": "7", "SLURM_CONF": str(tmp_path / "slurm.conf"), "GPUQ_ATTEMPT": "1"}
    script = "trap 'sleep 1.5; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    process = project.start("run", "--", "bash", "-c", script, env={**env, "GPUQ_RUN_DIR": str(slurm.parent)})
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        assert process.poll() is None
    process.terminate()
    ran = project.finish(process).exits(3)
    failed = [line.fields["exit"] for line in ours(ran.stdout) if line.kind == "FAILED"]
    assert failed == ["none", "3"][-lines:]


def test_what_nohup_ignores_stays_ignored(project: Project) -> None:
    process = project.start("run", "--", "bash", "-c", "echo ready; sleep 0.3", prefix=("nohup",))
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)][1] == "ready\n"
    process.send_signal(signal.SIGHUP)
    assert project.finish(process).exits(0).stdout.startswith("FINISHED")


def test_the_kernel_is_to_take_the_program_first_and_pipes_break_as_ever(project: Project) -> None:
    ran = sh(project, "cat /proc/self/oom_score_adj; grep SigIgn /proc/self/status; (yes || echo $?) | head -1")
    lines = ran.exits(0).stdout.splitlines()
    assert int(lines[1]) >= 300
    assert int(lines[2].split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


def test_a_reader_that_goes_away_ends_the_program(project: Project) -> None:
    with project.start("run", "--", "yes") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 128 + signal.SIGPIPE


def test_a_full_disk_does_not_end_the_program(project: Project, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "gpuq", "run", "--", "bash", "-c", f"seq 20000; echo saved >{tmp_path}/saved"]
    with Path("/dev/full").open("w") as full:
        assert subprocess.run(argv, stdout=full, timeout=60, check=False).returncode == 0
    assert (tmp_path / "saved").read_text() == "saved\n"


def test_one_run_inside_another_writes_one_start(project: Project) -> None:
    ran = sh(project, f"{sys.executable} -m gpuq run -- echo hi").exits(0)
    assert [line.kind for line in ours(ran.stdout)] == ["START", "FINISHED"]
    assert sh(project, f"{sys.executable} -m gpuq run -- no-such").exits(127).stderr.count("command not found") == 1


# the GPU ----------------------------------------------------------------------------------------------------------


def test_the_gpu_and_what_is_free_stand_in_the_first_line(project: Project, stage: Stage) -> None:
    ran = sh(project, "echo hi", env={**JOB, **stage.play(CARD)}).exits(0)
    start = ours(ran.stdout)[0].fields
    assert (start["device"], start["free"], start["gpus"]) == ("NVIDIA GeForce RTX 4090", "15.57GiB", "1")
    assert "device=NVIDIA GeForce RTX 4090 free=15.57GiB driver=550.54.14 " in ran.stdout


@pytest.mark.parametrize(
    ("scenario", "more", "says"),
    [
        ("init 18\n", {}, "different versions"),
        ("init 9\n", {}, "kernel module is not loaded"),
        ("", {}, "has no GPU"),
        ("device x\nhandle 15\n", {}, "fallen off the bus"),
        (CARD, {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' hides it"),
        (CARD, {"CUDA_VISIBLE_DEVICES": "-1"}, "hides it"),
        (CARD, {"CUDA_VISIBLE_DEVICES": "2"}, "CUDA_VISIBLE_DEVICES='2' names a GPU that is not here"),
    ],
)
def test_a_promised_gpu_that_is_not_there(
    project: Project, stage: Stage, tmp_path: Path, scenario: str, more: dict[str, str], says: str
) -> None:
    ran = sh(project, f"touch {tmp_path}/begun", env={**JOB, **stage.play(scenario), **more}).exits(15)
    assert (ends(ran)["cause"], says in ends(ran)["error"]) == ("no_gpu", True), ran
    assert ends(ran)["advice"]
    assert not (tmp_path / "begun").exists()


def test_without_a_promise_nothing_is_refused(project: Project, stage: Stage) -> None:
    ran = sh(project, "true", env={"SLURM_JOB_ID": "7", **stage.play("init 9\n")}).exits(0)
    assert ours(ran.stdout)[0].fields["gpus"] == "0"


# preflight --------------------------------------------------------------------------------------------------------


def test_the_start_is_held_until_enough_is_free(project: Project, stage: Stage) -> None:
    (project.root / "gpuq.toml").write_text('[preflight]\nmin_free_vram = "20G"\n')
    env = {**JOB, "GPUQ_PROJECT": str(project.root), **stage.play(CARD + f"compute {os.getpid()} 8589934592 -\n")}
    process = project.start("run", "--", "echo", "begun", env=env)
    assert process.stdout is not None
    process.stdout.readline()
    told = read(process.stdout.readline().rstrip("\n"))
    assert told is not None
    assert (told.kind, told.fields["free"], told.fields["need"]) == ("WAITING", "15.57GiB", "20.00GiB")
    assert f"process {os.getpid()} (" in told.fields["held_by"]
    stage.play(CARD.replace("free 16715939840", "free 24715939840"))
    ran = project.finish(process).exits(0)
    assert ran.stdout.splitlines()[0] == "begun"


def test_it_gives_up_after_a_time(project: Project, stage: Stage) -> None:
    run_dir = project.run("a", config='[preflight]\nmin_free_vram = "20G"\nwait = 1\n')
    env = {**JOB, "GPUQ_PROJECT": str(project.root), "GPUQ_RUN_DIR": str(run_dir), **stage.play(CARD)}
    ran = sh(project, "true", env=env).exits(15)
    assert ends(ran)["cause"] == "preflight"
    assert "20.00GiB of the GPU's memory did not become free within 1.0s: 15.57GiB are" in ends(ran)["error"]


def test_a_wait_ends_with_sigterm(project: Project, stage: Stage) -> None:
    (project.root / "gpuq.toml").write_text('[preflight]\nmin_free_vram = "20G"\n')
    env = {**JOB, "GPUQ_PROJECT": str(project.root), **stage.play(CARD)}
    process = project.start("run", "--", "true", env=env)
    assert process.stdout is not None
    assert "WAITING" in [process.stdout.readline() for _ in range(2)][1]
    process.send_signal(signal.SIGTERM)
    ran = project.finish(process).exits(143)
    assert ends(ran)["cause"] == "cancelled"


def test_less_free_than_the_run_used_before_is_told(project: Project, stage: Stage) -> None:
    slurm = project.run("a") / "slurm"
    slurm.mkdir()
    (slurm / "attempt1.out").write_text("START device=none\nSTEP step=1 vram=18.00GiB\nkilled\n")
    (slurm / "attempt2.json").write_text('{"memory": {"gpu_memory": 19327352832, "held": 1}}')
    (slurm / "attempt3.out").write_text("nothing is told here")
    env = {**JOB, "GPUQ_RUN_DIR": str(slurm.parent), **stage.play(CARD)}
    for attempt, before in (("2", "1"), ("4", "2")):
        ran = sh(project, "true", env={**env, "GPUQ_ATTEMPT": attempt}).exits(0)
        (note,) = [line.fields for line in ours(ran.stdout) if line.kind == "NOTE"]
        assert (note["free"], note["used_before"], note["attempt"]) == ("15.57GiB", "18.00GiB", before)
    assert "NOTE" not in sh(project, "true", env={**env, "GPUQ_ATTEMPT": "1"}).exits(0).stdout


@pytest.mark.parametrize("scenario", ["device NVIDIA GB10\n", CARD])
def test_nothing_is_held_where_nothing_is_told_or_enough_is_free(project: Project, stage: Stage, scenario: str) -> None:
    (project.root / "gpuq.toml").write_text('[preflight]\nmin_free_vram = "15G"\n')
    env = {**JOB, "GPUQ_PROJECT": str(project.root), **stage.play(scenario)}
    ran = sh(project, "true", env=env).exits(0)
    waits = [line.fields for line in ours(ran.stdout) if line.kind == "WAITING"]
    assert [one["for"] for one in waits] == ([] if scenario == CARD else ["nothing"])


@pytest.mark.parametrize("text", ['min_free_vram = "lots"', 'min_free = "20G"', 'wait = "10"', "wait = -1"])
def test_a_wrong_preflight_starts_nothing(project: Project, text: str) -> None:
    (project.root / "gpuq.toml").write_text(f"[preflight]\n{text}\n")
    ran = sh(project, "true", env={"GPUQ_PROJECT": str(project.root)}).exits(3)
    assert (ends(ran)["cause"], "preflight" in ends(ran)["error"]) == ("config", True)


# what it costs ----------------------------------------------------------------------------------------------------


def test_it_stays_small_and_loads_no_command_line_library(project: Project) -> None:
    process = project.start("run", "--", "bash", "-c", "echo ready; sleep 600")
    assert process.stdout is not None
    for line in process.stdout:  # ends when the program does
        if line == "ready\n":
            break
    status = Path(f"/proc/{process.pid}/status").read_text()
    maps = Path(f"/proc/{process.pid}/maps").read_text()
    process.terminate()
    project.finish(process).exits(143)
    assert int(status.split("VmRSS:")[1].split()[0]) < 25 * 1024
    assert "msgspec" not in maps  # not outside of a job, where there is no memory to watch


# the check of logs ------------------------------------------------------------------------------------------------


def test_a_log_is_checked(project: Project) -> None:
    log = project.root / "a.out"
    log.write_text(sh(project, "echo hi").stdout)
    assert project.gpuq("lint-log", "a.out").ok().stdout == "a.out: no fault\n"
    log.write_text(log.read_text() + "word\n")
    ran = project.gpuq("lint-log", "a.out").exits(16)
    assert ran.stdout == "a.out:4: text after the end: line 3 says FINISHED\n"
    found = project.gpuq("lint-log", "a.out", "--json").exits(16).stdout
    assert '"schema": "gpuq.lint-log/1"' in found
    assert '"line": 4' in found
    assert "no.out: No such file" in project.gpuq("lint-log", "no.out").exits(6).stderr


def test_a_huge_log_is_checked_in_little_memory(project: Project) -> None:
    log = project.root / "a.out"
    with log.open("wb") as handle:
        handle.write(b"START device=none\n")
        handle.truncate(1 << 29)  # a line of half a gigabyte of NUL
    ran = project.gpuq("lint-log", "a.out", prefix=("bash", "-c", 'ulimit -v 400000; exec "$@"', "-"))
    assert "bytes in one line" in ran.exits(16).stdout
