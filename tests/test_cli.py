"""The command line without any Slurm: help, exit codes, hints, and what a caller's terminal and pipes see."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import jsonschema
import pytest

from gpuq import __version__
from gpuq.cli.group import LazyGroup, cli
from gpuq.cli.main import COMMANDS
from gpuq.cli.output import printable, rewrite
from tests import DATA
from tests.fake_slurm import FakeSlurm
from tests.gpuq_cli import SOURCE, Project


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name) if isinstance(cli, LazyGroup) else None
    assert found is not None
    return found


def all_commands() -> list[tuple[str, click.Command]]:
    """Every command with its full name, those of groups included."""
    found: list[tuple[str, click.Command]] = []
    for name in COMMANDS:
        one = command(name)
        found.append((name, one))
        if isinstance(one, click.Group):
            found += [(f"{name} {sub}", inner) for sub, inner in one.commands.items()]
    return found


ALL = [name for name, _ in all_commands()]


@pytest.fixture
def empty_path(tmp_path: Path) -> str:
    """A PATH without Slurm."""
    place = tmp_path / "bin"
    place.mkdir()
    for program in ("bash", "sh", "env", "git"):
        for directory in ("/usr/bin", "/bin"):
            if Path(directory, program).exists() and not (place / program).exists():
                (place / program).symlink_to(f"{directory}/{program}")
    return str(place)


@pytest.fixture
def project(tmp_path: Path, empty_path: str) -> Project:
    """A project with one run, on a host without Slurm."""
    made = Project(tmp_path / "project", config=None)
    (made.root / "gpuq.toml").touch()
    made.env = {"PATH": empty_path}
    made.run("a")
    return made


@pytest.fixture
def fake(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path / "fake", (DATA / "slurm/25.11/scontrol-show-partition.txt").read_text())


# -- help ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_help_with_an_example(name: str, project: Project) -> None:
    for option in ("--help", "-h"):
        ran = project.gpuq(*name.split(), option).ok()
        assert f"Usage: gpuq {name} " in ran.stdout
        assert "Example:" in ran.stdout
        assert f"gpuq {name.split()[0]}" in ran.stdout.split("Example:")[1]
        assert ran.stderr == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_overview_is_the_commands_own_first_sentence(name: str) -> None:
    text = (command(name).help or "").split("\n\n")[0]
    assert " ".join(text.split()) == COMMANDS[name][1]


@pytest.mark.parametrize(("name", "one"), all_commands(), ids=ALL)
def test_every_option_says_what_it_does(name: str, one: click.Command) -> None:
    for parameter in one.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts}"
            assert parameter.help.endswith((".", "]", ")", "}")), f"{name} {parameter.opts}: {parameter.help}"


def test_the_overview_lists_every_command_in_the_order_of_a_day(project: Project) -> None:
    out = project.gpuq("--help").ok().stdout
    shown = re.findall(r"^  ([a-z-]+)  +\S", out.split("Commands:")[1], re.MULTILINE)
    assert shown == list(COMMANDS)


def test_the_version_is_told(project: Project) -> None:
    assert __version__ in project.gpuq("--version").ok().stdout
    assert __version__ in project.gpuq("-V").ok().stdout


def imported(*args: str) -> set[str]:
    """Top-level modules that one call of gpuq imports."""
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom gpuq.cli.main import _run\n"
        f"try:\n    _run({list(args)!r})\nexcept SystemExit:\n    pass\n"
        "print('\\n@' + ' '.join(sorted(set(sys.modules) - before)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    return set(run.stdout.rsplit("@", 1)[1].split())


def test_help_imports_no_heavy_module_and_no_command() -> None:
    modules = imported("--help")
    assert "gpuq.cli.main" in modules
    assert not {name.split(".")[0] for name in modules} & {"msgspec", "psutil", "rich", "asyncio", "sqlite3", "tomllib"}
    assert not [name for name in modules if name.startswith(("gpuq.usecases", "gpuq.adapters", "gpuq.core"))]
    assert {name for name in modules if name.startswith("gpuq.cli.")} == {
        "gpuq.cli.main",
        "gpuq.cli.group",
        "gpuq.cli.plain",
    }


@pytest.mark.parametrize("name", ["submit", "queue", "status", "wait", "log", "cancel", "local"])
def test_help_of_a_command_imports_nothing_that_talks_to_slurm_or_reads_processes(name: str) -> None:
    modules = {module.split(".")[0] for module in imported(name, "--help")}
    assert not modules & {"psutil", "rich", "asyncio", "sqlite3"}


# -- what was mistyped -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("sumbit",), "did you mean 'submit'?"),
        (("quee",), "did you mean 'queue'?"),
        (("zzz",), "there are: submit, chain"),
        (("submit", "a", "--memm", "2G"), "--mem"),
        (("submit", "a", "--part", "x"), "--partition"),
        (("queue", "--jsn"), "--json"),
        (("local", "upp"), "up"),
        (("submit",), "TAG"),
        (("submit", "a", "--mem", "28X"), "write it like 28G"),
        (("submit", "a", "--mem", "0"), "whole node"),
        (("submit", "a", "--time", "8h"), "Slurm would want 08:00:00"),
        (("submit", "a", "--time", "0"), "pends for ever"),
        (("submit", "a", "--cpus", "0"), "at least 1"),
        (("submit", "a", "--cpus", "many"), "many"),
        (("submit", "a", "--signal-before", "0"), "between 1 and 65535"),
        (("submit", "a", "--key", " "), "--key is empty"),
        (("submit", "../a"), "leaves the runs root"),
        (("submit", "runs/../runs/a/job.sh"), "leaves the runs root"),
        (("submit", "/etc"), "absolute"),
        (("submit", "last"), "keyword"),
        (("log", "a", "--tail", "-1"), "-1"),
        (("log", "a", "--tail", "9" * 20), "9" * 20),
        (("submit", "a", "--after", "x" * 300), "is longer than"),
        (("submit", "a", "--after", "../../x"), "leaves the runs root"),
        (("wait", "a", "--timeout", "-1"), "-1"),
        (("nice", "a", "high"), "high"),
        (("set", "a"), "nothing to set"),
        (("cancel",), "TAG|JOB"),
    ],
)
def test_a_wrong_command_line_is_exit_2_with_what_was_meant(
    project: Project, fake: FakeSlurm, args: tuple[str, ...], says: str
) -> None:
    ran = project.gpuq(*args, env={"PATH": fake.path}).exits(2)
    assert says in ran.stderr
    assert ran.stdout == ""
    assert fake.calls("sbatch") == []


def test_a_path_that_a_shell_completed_is_told_its_tag(project: Project) -> None:
    assert "the TAG of that path is a" in project.gpuq("submit", str(project.runs / "a" / "job.sh")).exits(2).stderr


def test_a_run_that_does_not_exist_is_exit_6_with_the_nearest(project: Project, fake: FakeSlurm) -> None:
    env = {"PATH": fake.path}
    project.run("dino/lr3e-4")
    assert "did you mean dino/lr3e-4?" in project.gpuq("status", "dino/lr3e4", env=env).exits(6).stderr
    assert "did you mean dino/lr3e-4?" in project.gpuq("submit", "dino/lr3e4", env=env).exits(6).stderr
    ran = project.gpuq("submit", "other", env=env).exits(6)
    assert f"there is no run other: {project.runs / 'other'} is not a directory" in ran.stderr
    assert not (project.runs / "dino" / "lr3e4").exists()


def test_outside_of_any_project_it_is_told_what_is_taken_for_one(tmp_path: Path, fake: FakeSlurm) -> None:
    unmarked = Project(tmp_path / "unmarked", config=None)
    ran = unmarked.gpuq("status", "a", env={"PATH": fake.path}).exits(6)
    assert f"{unmarked.root} is taken for the project, because there is no gpuq.toml or git root above it" in ran.stderr
    assert "touch gpuq.toml" in ran.stderr


# -- no Slurm --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    Path("/etc/slurm/slurm.conf").exists() or Path("/run/slurm/conf").exists(), reason="a Slurm is set up here"
)
@pytest.mark.parametrize(
    "args",
    [
        ("submit", "a"),
        ("submit", "a", "--dry-run"),
        ("submit", "a", "--json"),
        ("chain", "a", "a"),
        ("queue",),
        ("queue", "--json"),
        ("status", "12"),
        ("wait", "12"),
        ("cancel", "12"),
        ("hold", "12"),
        ("release", "12"),
        ("top", "12"),
        ("nice", "12", "5"),
        ("set", "12", "--mem", "2G"),
        ("log", "12"),
    ],
)
def test_without_any_slurm_it_is_exit_4_and_told_how_to_get_one(project: Project, args: tuple[str, ...]) -> None:
    before = project.listing()
    ran = project.gpuq(*args).exits(4)
    assert "there is no Slurm here" in ran.stderr
    assert "gpuq local up" in ran.stderr
    if "--json" in args:
        assert ran.json["code"] == 4
    else:
        assert ran.stdout == ""
    assert project.listing() == before


def test_what_needs_no_slurm_works_without_one(project: Project) -> None:
    assert "never submitted" in project.gpuq("status").ok().stdout
    assert project.gpuq("status", "--json").ok().json == {
        "schema": "gpuq.status/1",
        "runs": [{"tag": "a", "attempts": []}],
    }
    assert "has no attempt yet" in project.gpuq("status", "a").ok().stdout
    assert "has no attempt yet" in project.gpuq("log", "a").exits(6).stderr


# -- configuration ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ('[submit]\nmen = "2G"\n', "unknown key 'men' in [submit]; did you mean 'mem'?"),
        ("[sumbit]\n", "unknown table [sumbit]; did you mean 'submit'?"),
        ("[submit\n", "gpuq.toml: "),
        ("[submit]\nmem = 28.5\n", 'like "28G"'),
        ('[project]\nruns = "../elsewhere"\n', "outside the project"),
        ('[project]\nruns = "a\\u0000b"\n', "[project] runs: must not hold a NUL"),
        ('[results]\nfiles = ["a", "b\\u0000"]\n', "[results] files: must not hold a NUL"),
        (f"[submit]\ncpus = {'1' * 5000}\n", "gpuq.toml: "),
        (f"[submit]\ncpus = {'[' * 5000}\n", "nested too deep"),
    ],
)
def test_a_wrong_gpuq_toml_is_exit_3_with_the_cure(project: Project, config: str, says: str) -> None:
    (project.root / "gpuq.toml").write_text(config)
    for args in (("submit", "a"), ("queue",), ("status",)):
        ran = project.gpuq(*args).exits(3)
        assert says in ran.stderr
        assert ran.stdout == ""


def test_a_wrong_run_toml_is_exit_3_naming_the_file(project: Project, fake: FakeSlurm) -> None:
    project.run("a", config="[submit]\ncpu = 2\n")
    ran = project.gpuq("submit", "a", env={"PATH": fake.path}).exits(3)
    assert "runs/a/run.toml: unknown key 'cpu' in [submit]; did you mean 'cpus'?" in ran.stderr


def test_a_variable_with_a_typo_is_exit_3_with_the_right_name(project: Project) -> None:
    ran = project.gpuq("queue", env={"GPUQ_PARTITON": "gpu"}).exits(3)
    assert "unknown variable GPUQ_PARTITON; did you mean 'GPUQ_PARTITION'?" in ran.stderr
    assert "environment: GPUQ_MEM: 'x' is not a size" in project.gpuq("queue", env={"GPUQ_MEM": "x"}).exits(3).stderr


# -- job.sh ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        (b"#!/bin/bash\r\ntrue\r\n", 0o755, "runs/a/job.sh:1: lines end in CR LF"),
        (b"true\n", 0o755, "runs/a/job.sh:1: the first line must say what runs the script"),
        (b"#!/bin/bash\ntrue\n", 0o644, "chmod +x runs/a/job.sh"),
        (b"#!/bin/bash\nif true\n", 0o755, "runs/a/job.sh:3: syntax error"),
        (b"#!/bin/bash\n#SBATCH --mem-per-cpu=4G\ntrue\n", 0o755, "runs/a/job.sh:2: `#SBATCH --mem-per-cpu=4G`"),
        (b"#!/bin/bash\n#SBATCH --gres=gpu:2\ntrue\n", 0o755, "runs/a/job.sh:2: `#SBATCH --gres=gpu:2`"),
        (b"", 0o755, "runs/a/job.sh:1: "),
    ],
)
def test_a_fault_of_the_script_is_exit_5_with_its_line_and_nothing_is_left(
    project: Project, fake: FakeSlurm, content: bytes, mode: int, says: str
) -> None:
    script = project.runs / "a" / "job.sh"
    script.write_bytes(content)
    script.chmod(mode)
    before = project.listing()
    for args in (("submit", "a", "--mem", "2G"), ("submit", "a", "--dry-run"), ("chain", "a")):
        ran = project.gpuq(*args, env={"PATH": fake.path}).exits(5)
        assert says in ran.stderr
        assert ran.stdout == ""
    assert project.listing() == before
    assert fake.calls("sbatch") == []


def test_a_script_that_is_a_directory_is_exit_5(project: Project, fake: FakeSlurm) -> None:
    (project.runs / "a" / "job.sh").unlink()
    (project.runs / "a" / "job.sh").mkdir()
    assert "is a directory" in project.gpuq("submit", "a", env={"PATH": fake.path}).exits(5).stderr


def test_a_gpu_chosen_by_hand_is_warned_about_when_it_is_submitted(project: Project, fake: FakeSlurm) -> None:
    project.run("a", "export CUDA_VISIBLE_DEVICES=2\ntrue")
    ran = project.gpuq("submit", "a", "--dry-run", env={"PATH": fake.path}).ok()
    assert "runs/a/job.sh:2: CUDA_VISIBLE_DEVICES is set by hand" in ran.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--mem", "16384M"), "n1 has 15867M"),
        (("--cpus", "64"), "n1 has 20"),
        (("--time", "24:00:00"), "allows 08:00:00"),
        (("-p", "nope"), "there is no partition 'nope' (there are: gpu)"),
    ],
)
def test_what_cannot_fit_is_refused_with_the_numbers_and_nothing_is_left(
    project: Project, fake: FakeSlurm, args: tuple[str, ...], says: str
) -> None:
    before = project.listing()
    assert says in project.gpuq("submit", "a", *args, env={"PATH": fake.path}).exits(5).stderr
    assert project.listing() == before


def test_a_chain_names_the_run_that_is_refused(project: Project, fake: FakeSlurm) -> None:
    project.run("long", "#SBATCH --time=30-0\ntrue")
    ran = project.gpuq("chain", "a", "long", env={"PATH": fake.path}).exits(5)
    assert "gpuq: long: 30-00:00:00 is asked for" in ran.stderr


def test_24_00_is_said_to_be_24_minutes(project: Project, fake: FakeSlurm) -> None:
    ran = project.gpuq("submit", "a", "--time", "24:00", env={"PATH": fake.path}).ok()
    assert "24 minutes" in ran.stderr
    assert "time limit 24 minutes" in ran.stdout
    (sbatch,) = fake.calls("sbatch")
    assert "--time=00:24:00" in sbatch.args


# -- what a terminal, a pipe and a program see -----------------------------------------------------------------


def test_a_dry_run_shows_the_command_and_submits_nothing(project: Project, fake: FakeSlurm) -> None:
    before = project.listing()
    ran = project.gpuq("submit", "a", "--dry-run", "--json", env={"PATH": fake.path}).ok()
    assert ran.json["schema"] == "gpuq.submit/1"
    assert ran.json["dry_run"] is True
    assert ran.json["argv"][0] == "sbatch"
    assert "--gres=gpu:1" in ran.json["argv"]
    assert project.listing() == before
    assert fake.calls("sbatch") == []


def test_json_is_all_that_goes_to_stdout(project: Project, fake: FakeSlurm) -> None:
    env = {"PATH": fake.path}
    project.run("a", "export CUDA_VISIBLE_DEVICES=2\ntrue")
    for args, schema in (
        (("submit", "a", "--json"), "gpuq.submit/1"),
        (("queue", "--json"), "gpuq.queue/1"),
        (("status", "--json"), "gpuq.status/1"),
        (("status", "a", "--json"), "gpuq.status/1"),
        (("chain", "a", "a", "--json"), "gpuq.chain/1"),
    ):
        assert json.loads(project.gpuq(*args, env=env).ok().stdout)["schema"] == schema


def test_a_reader_that_goes_away_is_exit_141_without_a_traceback(project: Project, fake: FakeSlurm) -> None:
    for number in range(50):
        project.run(f"run{number}")
    for args in (["status"], ["status", "--json"], ["--help"]):
        reader, writer = os.pipe()
        os.close(reader)
        run = subprocess.run(
            [sys.executable, "-m", "gpuq", *args],
            cwd=project.root,
            env={**os.environ, "PYTHONPATH": str(SOURCE), "PATH": fake.path},
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        os.close(writer)
        assert run.returncode == 141, (args, run.stderr)
        assert run.stderr == "", args


def test_a_standard_output_that_is_full_is_exit_12_and_loses_no_job(project: Project, fake: FakeSlurm) -> None:
    for args in (["submit", "a"], ["status"], ["status", "--json"], ["queue"], ["--help"]):
        with Path("/dev/full").open("wb") as full:
            run = subprocess.run(
                [sys.executable, "-m", "gpuq", *args],
                cwd=project.root,
                env={**os.environ, "PYTHONPATH": str(SOURCE), "PATH": fake.path},
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert run.returncode == 12, (args, run.stderr)
        assert "standard output: No space left on device" in run.stderr
        assert "Traceback" not in run.stderr
    assert project.record("a").job_id == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_streams_that_are_closed_or_full_change_nothing(project: Project, fake: FakeSlurm, closed: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "PATH": fake.path}

    def gpuq(args: str) -> int:
        argv = ["sh", "-c", f"{sys.executable} -m gpuq {args} {closed}"]
        return subprocess.run(argv, cwd=project.root, env=env, check=False).returncode

    assert [gpuq(args) for args in ("submit a", "status", "queue --json", "submit b", "zzz")] == [0, 0, 0, 6, 2]
    assert project.record("a").job_id == 1
    assert (project.runs / "a/slurm/attempt1.sh").read_text().startswith("#!")


def test_nothing_is_coloured_in_a_pipe_and_nothing_where_no_color_is_set(project: Project, fake: FakeSlurm) -> None:
    env = {"PATH": fake.path}
    project.gpuq("submit", "a", env=env).ok()
    assert "\x1b" not in project.gpuq("queue", env=env).ok().stdout
    plain, coloured = (on_a_terminal(project, fake, extra) for extra in ({"NO_COLOR": "1"}, {}))
    assert "PENDING" in plain
    assert "\x1b[" not in plain
    assert "\x1b[" in coloured


def on_a_terminal(project: Project, fake: FakeSlurm, extra: dict[str, str]) -> str:
    """What `gpuq queue` prints on a terminal."""
    ours, theirs = os.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    with subprocess.Popen(
        [sys.executable, "-m", "gpuq", "queue"],
        cwd=project.root,
        env={**environment, "PYTHONPATH": str(SOURCE), "PATH": fake.path, "TERM": "xterm", **extra},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            seen += data
        assert process.wait() == 0
    os.close(ours)
    return seen.decode()


def test_a_hostile_name_cannot_write_to_the_terminal(project: Project, fake: FakeSlurm) -> None:
    env = {"PATH": fake.path}
    project.gpuq("submit", "a", env=env).ok()
    jobs = fake.jobs()
    jobs["1"]["name"] = "x\x1b]0;owned\x07\nRUNNING \udce9"
    fake.has(jobs)
    out = project.gpuq("queue", env=env).ok().stdout
    assert not set(out) & {"\x1b", "\x07", "\udce9"}
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize("text", ["a\nb", "a\x1b[31m", "a\x07", "a\u202eb", "caf\udce9", "\x00"])
def test_what_is_not_printable_is_replaced(text: str) -> None:
    assert printable(text).isprintable()
    assert printable("é 漢 ok") == "é 漢 ok"


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_a_directory_that_cannot_be_had_is_exit_9_and_no_defect(project: Project, command: str) -> None:
    project.env["PATH"] = os.environ["PATH"]
    ran = project.gpuq("local", command, "--dir", "/etc/passwd/x").exits(9)  # below a file
    assert "/etc/passwd/x" in ran.stderr
    assert "name another: --dir DIR" in ran.stderr


@pytest.mark.parametrize("command", [("init",), ("host", "plan"), ("queue",), ("submit", "a", "--json")], ids=" ".join)
def test_a_working_directory_that_is_gone_is_exit_2_and_no_defect(project: Project, command: tuple[str, ...]) -> None:
    gone = project.root / "gone"
    gone.mkdir()
    ran = project.gpuq(
        *command, cwd=gone, prefix=("sh", "-c", f'{shutil.which("rmdir")} {gone}; exec "$@"', "sh")
    ).exits(2)
    assert ran.stderr.startswith("gpuq: the working directory does not exist any more\n")


@pytest.mark.parametrize(
    ("frame", "shown"),
    [("", ""), ("50 %", "50 %"), ("x" * 99, "x" * 19), ("進" * 99, "進" * 9), ("a\x1bb", "a\ufffdb")],
)
def test_a_frame_is_rewritten_in_one_line_of_the_terminal(
    frame: str, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    rewrite(frame)
    assert capsys.readouterr().out == f"\r\x1b[K{shown}"


def test_debug_shows_the_commands_that_are_run(project: Project, fake: FakeSlurm) -> None:
    ran = project.gpuq("--debug", "queue", env={"PATH": fake.path}).ok()
    assert "gpuq: debug: squeue " in ran.stderr
    assert "debug" not in ran.stdout


def test_an_argument_that_is_no_text_is_refused_and_no_defect(project: Project) -> None:
    run = subprocess.run(
        [sys.executable.encode(), b"-m", b"gpuq", b"submit", b"caf\xe9"],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        check=False,
    )
    assert run.returncode == 2
    assert b"Traceback" not in run.stderr


# -- for programs ------------------------------------------------------------------------------------------------

READERS = [(name, one) for name, one in all_commands() if any("--json" in p.opts for p in one.params)]
READS_ONLY = {
    *("mem", "diff", "results", "queue", "status", "log", "wait", "why", "gpu", "schema", "guard", "run", "lint-log"),
    *("notify status", "watch status", "local status", "local env"),
}
"""Commands that change nothing: neither a job nor a file."""
OWN_WAY = {"doctor": "--fix"}
"""Commands that change nothing unless an option says so."""


@pytest.mark.parametrize("name", [name for name, _ in READERS])
def test_what_is_printed_as_json_has_a_schema(name: str, project: Project) -> None:
    shown = json.loads(project.gpuq("schema", *name.split()).ok().stdout)
    jsonschema.validators.validator_for(shown).check_schema(shown)
    assert "schema" in json.dumps(shown["$defs"])


@pytest.mark.parametrize("name", [name for name in ALL if name not in READS_ONLY and name not in OWN_WAY])
def test_what_writes_has_a_dry_run(name: str) -> None:
    one = dict(all_commands())[name]
    assert isinstance(one, click.Group) or any("--dry-run" in p.opts for p in one.params)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("status", "no-such", "--json"), 6),
        (("wait", "--json"), 2),
        (("queue", "--json"), 4),
        (("queue", "--json", "--no-such"), 2),
        (("queue", "--json=1"), 2),
        (("submit", "a", "--json=", "--hold"), 2),
        (("submit", "a", "--json"), 4),
        (("submit", "../x", "--json"), 2),
    ],
)
def test_an_error_is_json_too(args: tuple[str, ...], code: int, project: Project) -> None:
    ran = project.gpuq(*args).exits(code)
    told = ran.json
    assert told["schema"] == "gpuq.error/1"
    assert told["code"] == code
    assert told["message"].splitlines()[0] in ran.stderr
    assert not told["hint"] or told["hint"] in ran.stderr


def test_json_after_two_dashes_is_no_option(project: Project) -> None:
    assert project.gpuq("status", "--", "--json").exits(2).stdout == ""


def test_no_command_is_described_by_half_a_sentence() -> None:
    def cut_off(command: click.Command, name: str) -> list[str]:
        context = click.Context(command, info_name=name, terminal_width=78)
        lines = [line for line in command.get_help(context).splitlines() if line.startswith("  ")]
        found = [f"{name}: {line}" for line in lines if line.endswith("...")]
        if isinstance(command, click.Group):
            for each in command.list_commands(context):
                below = command.get_command(context, each)
                assert below is not None
                found += cut_off(below, f"{name} {each}")
        return found

    assert cut_off(cli, "gpuq") == []
