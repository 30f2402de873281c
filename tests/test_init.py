"""`gpuq init`: what it writes, what it leaves alone, and the skeletons of job.sh, run as a job would run them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuq.adapters.templates import PLACE
from gpuq.core.config import _KEYS, from_table
from gpuq.core.experiment.sections import BEGIN, END, put_lines, put_section
from gpuq.errors import EXIT_CODES
from gpuq.usecases.experiment.init import TEMPLATES
from tests.gpuq_cli import SOURCE, Project

TRAIN = """
import json, os, sys
if "--help" in sys.argv:
    sys.exit()
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
with open(os.path.join(arguments["--out"], "cv.json"), "w") as file:
    json.dump({"lr": float(arguments["--lr"])}, file)
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A repository that has never seen gpuq."""
    made = Project(tmp_path / "project", config=None)
    subprocess.run(["git", "init", "-q", str(made.root)], check=True)
    return made


def files(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }


def test_a_repository_is_made_ready_once_and_a_second_time_changes_nothing(project: Project) -> None:
    inside = project.root / "src"
    inside.mkdir()
    dry = project.gpuq("init", "--template", "python", "--dry-run", cwd=inside).ok()
    assert "would be made      gpuq.toml" in dry.stdout
    assert files(project.root) == {}
    out = project.gpuq("init", "--template", "python", cwd=inside).ok().stdout
    assert out.splitlines()[0] == f"{project.root}:"
    assert out.splitlines()[-1] == "Make job.sh yours, then: gpuq submit baseline --check"
    made = files(project.root)
    assert sorted(made) == [".gitignore", "AGENTS.md", "gpuq.toml", "ops/decisions.md", "runs/baseline/job.sh"]
    assert (project.runs / "baseline" / "job.sh").stat().st_mode & 0o777 == 0o755
    assert "runs/**/slurm/" in made[".gitignore"]
    again = project.gpuq("init", "--template", "uv").ok().stdout
    assert {line.split()[0] for line in again.splitlines()[1:]} == {"unchanged"}
    assert files(project.root) == made


def test_the_users_own_text_stays_and_links_stay_links(project: Project) -> None:
    agents, claude = project.root / "AGENTS.md", project.root / "CLAUDE.md"
    agents.write_bytes(b"# Mine\r\n\r\ncaf\xe9 ends without a newline")
    agents.chmod(0o600)
    claude.write_text("My rules.\n")
    (project.root / ".gitignore").write_text("*.pt")
    (project.root / "gpuq.toml").write_text('[project]\nruns = "experiments"\n')
    (project.root / "ops").mkdir()
    (project.root / "ops" / "decisions.md").write_text("decided\n")
    project.gpuq("init").ok()
    raw = agents.read_bytes()
    assert raw.startswith(b"# Mine\r\n\r\ncaf\xe9 ends without a newline\r\n\r\n" + BEGIN.encode() + b"\r\n")
    assert b"\n" not in raw.replace(b"\r\n", b"")
    assert b"`experiments/`" in raw
    assert agents.stat().st_mode & 0o777 == 0o600
    assert (
        claude.read_text()
        == f"My rules.\n\n{BEGIN}\nThe rules for agents in this repository are in @AGENTS.md.\n{END}\n"
    )
    assert (project.root / ".gitignore").read_text().startswith("*.pt\n# gpuq: ")
    assert (project.root / "gpuq.toml").read_text() == '[project]\nruns = "experiments"\n'
    assert (project.root / "ops" / "decisions.md").read_text() == "decided\n"
    assert (project.root / "experiments").is_dir()

    # an old section is renewed where it stands; a link to the other file needs no section of its own
    text = raw.decode("utf-8", "surrogateescape")
    old = text.replace("Only gpuq submits", "Old words") + "after\r\n"
    agents.write_bytes(old.encode("utf-8", "surrogateescape"))
    claude.unlink()
    claude.symlink_to("AGENTS.md")
    assert "renewed   AGENTS.md" in project.gpuq("init").ok().stdout
    assert agents.read_bytes() == raw + b"after\r\n"
    assert claude.is_symlink()
    project.gpuq("init", "--guard").ok()  # which is for Claude Code, too
    assert agents.read_bytes() == raw + b"after\r\n"

    agents.write_text(f"{BEGIN}\nwithout an end\n")
    assert "its markers are broken" in project.gpuq("init").exits(3).stderr
    assert agents.read_text() == f"{BEGIN}\nwithout an end\n"


def test_a_directory_that_cannot_be_made_is_said(project: Project) -> None:
    (project.root / "runs").write_text("")
    assert "is not a directory" in project.gpuq("init").exits(3).stderr
    assert files(project.root) == {"runs": ""}
    (project.root / "runs").rename(project.root / "ops")
    assert "ops is not a directory" in project.gpuq("init").exits(3).stderr
    assert files(project.root) == {"ops": ""}
    assert not (project.root / "runs").exists()


def test_a_section_and_lines_are_put_where_they_belong() -> None:
    once = put_section("", "a")
    assert once == f"{BEGIN}\na\n{END}\n"
    assert put_section(once, "a") == once
    assert put_section(f"x\n{once}y\n", "b") == f"x\n{BEGIN}\nb\n{END}\ny\n"
    for broken in (f"{END}\n{BEGIN}\n", f"{once}{once}", END):
        with pytest.raises(ValueError, match="markers are broken"):
            put_section(broken, "a")
    assert put_lines("a", "# c", ["b"]) == "a\n# c\nb\n"
    assert put_lines("a\n# c\nb\n", "# c", ["b", "d"]) == "a\n# c\nb\nd\n"


def test_the_commented_configuration_is_right_when_its_comments_are_taken_away() -> None:
    import re
    import tomllib

    text = (PLACE / "gpuq.toml").read_text()
    assert from_table(tomllib.loads(text), "gpuq.toml").check_always is None
    assert set(tomllib.loads(text)) == set(_KEYS), "every table that there is"
    live = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    found = from_table(tomllib.loads(live), "gpuq.toml")
    assert found.preflight_wait == 600
    assert (found.runs, found.cpus, found.score, found.check_always) == ("runs", 8, "cv.json:mean", True)


def test_the_rules_of_this_repository_are_those_that_init_writes() -> None:
    text = (SOURCE / "AGENTS.md").read_text()
    assert put_section(text, (PLACE / "agents.md").read_text().replace("{runs}", "runs")) == text
    assert "## Working on gpuq itself" in text


def test_the_rules_tell_what_each_exit_code_asks_for() -> None:
    rows = [line.split("|")[1] for line in (PLACE / "agents.md").read_text().splitlines() if line.startswith("| ")]
    named = [int(word) for row in rows for word in row.replace(",", " ").split() if word.isdecimal() and "+" not in row]
    assert sorted(named) == sorted(EXIT_CODES)
    assert any("128 + N" in row for row in rows)


# -- skeletons -------------------------------------------------------------------------------------------------

STUBS = {
    # What cannot be had without a network, or is too big, stands in for itself: it checks how it is called, and runs what
    # it is to run. Nix, where it is installed, is also tried itself, below.
    "nix": '[[ "$1 $2" == "develop -c" ]]; shift 2; exec "$@"',
    "conda": '[[ $1 == run ]]; shift; [[ $1 != --no-capture-output ]] || shift; [[ "$1 $2" == "-n train" ]]; shift 2; '
    'exec "$@"',
    "apptainer": '[[ "$1 $2 $3" == "exec --nv --bind" && $4 == "$PWD" && $6 == "$GPUQ_RUN_DIR" && "$7 $8 $9" == "--pwd $PWD '
    'train.sif" ]]; shift 9; exec "$@"',
    "torchrun": '[[ "$1 $2" == "--standalone --nproc-per-node=1" ]]; shift 2; exec python "$@"',
}


def test_every_skeleton_passes_shellcheck() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("not installed: shellcheck")
    paths = [PLACE / "job" / f"{name}.sh" for name in TEMPLATES]
    assert sorted(paths) == sorted((PLACE / "job").iterdir())
    subprocess.run(["shellcheck", *paths], check=True)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_skeleton_checks_and_then_runs(name: str, project: Project, tmp_path: Path) -> None:
    project.gpuq("init", "--template", name).ok()
    run = project.runs / "baseline"
    (project.root / "train.py").write_text(TRAIN)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    env = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "HOME": os.environ["HOME"],
        "GPUQ_PROJECT": str(project.root),
        "GPUQ_RUN_DIR": str(run),
    }
    gpuq = tools / "gpuq"
    gpuq.write_text(f'#!/bin/bash\nexec {sys.executable} -m gpuq "$@"\n')
    gpuq.chmod(0o755)
    env["PYTHONPATH"] = str(SOURCE)
    if name in STUBS:
        (tools / name).write_text(f"#!/bin/bash\nset -e\n{STUBS[name]}\n")
        (tools / name).chmod(0o755)
    elif name == "uv":
        if shutil.which("uv", path=f"{Path(sys.executable).parent}:{env['PATH']}") is None:
            pytest.skip("not installed: uv")
        env["PATH"] += f":{Path(sys.executable).parent}"
        env |= {
            "UV_OFFLINE": "1",
            "UV_PYTHON": sys.executable,
            "UV_CACHE_DIR": str(tmp_path / "uv"),
            "UV_PYTHON_DOWNLOADS": "never",
        }
        (project.root / "pyproject.toml").write_text(
            '[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3.11"\n'
        )
        subprocess.run(["uv", "lock", "--quiet"], cwd=project.root, env=env, check=True)
    script = str(run / "job.sh")
    subprocess.run(["bash", script], cwd="/", env=env | {"GPUQ_CHECK": "1"}, check=True)
    assert not (run / "cv.json").exists()
    subprocess.run(["bash", script], cwd="/", env=env, check=True)
    assert json.loads((run / "cv.json").read_text()) == {"lr": 1e-3}
    for broken in ("def broken(:\n", "import no_such_module\n"):
        (project.root / "train.py").write_text(broken)
        assert subprocess.run(
            ["bash", script], cwd="/", env=env | {"GPUQ_CHECK": "1"}, check=False, capture_output=True
        ).returncode


FLAKE = """{
  outputs = { self }: {
    devShells.x86_64-linux.default = derivation {
      name = "shell"; system = "x86_64-linux"; outputs = [ "out" ]; stdenv = ./stdenv;
      builder = "/bin/bash"; args = [ "-c" "export > $out" ]; PATH = "@tools@:/usr/bin:/bin"; INSIDE = "1";
    };
  };
}
"""
"""A shell without nixpkgs, so that nothing is downloaded."""


def test_the_skeleton_for_nix_runs_in_a_shell_of_nix(project: Project, tmp_path: Path) -> None:
    nix = shutil.which("nix")
    if nix is None or os.uname().machine != "x86_64":
        pytest.skip("not installed: nix (on this machine)")
    project.gpuq("init", "--template", "nix").ok()
    (project.root / "train.py").write_text(f"import os\nassert os.environ['INSIDE'] == '1'\n{TRAIN}")
    tools, store = tmp_path / "tools", tmp_path / "nix"
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    (tools / "gpuq").write_text(f'#!/bin/bash\nexec {sys.executable} -m gpuq "$@"\n')
    (tools / "gpuq").chmod(0o755)
    (project.root / "flake.nix").write_text(FLAKE.replace("@tools@", str(tools)))
    (project.root / "stdenv").mkdir()
    (project.root / "stdenv" / "setup").touch()
    subprocess.run(["git", "-C", str(project.root), "add", "-A"], check=True)  # a flake has what git has
    store.mkdir()
    (store / "registry.json").write_text('{"flakes": [], "version": 2}')
    (store / "nix.conf").write_text(
        "experimental-features = nix-command flakes\nsandbox = false\nbuild-users-group =\nsubstituters =\n"
        f"flake-registry = {store}/registry.json\n"
    )
    run = project.runs / "baseline"
    env = {
        "PATH": f"{tools}:{Path(nix).parent}:/usr/bin:/bin",
        "HOME": str(store),
        "PYTHONPATH": str(SOURCE),
        "GPUQ_PROJECT": str(project.root),
        "GPUQ_RUN_DIR": str(run),
        "NIX_CONF_DIR": str(store),
        **{f"NIX_{name}_DIR": str(store / name.lower()) for name in ("STORE", "STATE", "LOG")},
    }
    try:
        for more in ({"GPUQ_CHECK": "1"}, {}):
            done = subprocess.run(
                ["bash", str(run / "job.sh")], cwd="/", env=env | more, check=False, capture_output=True, text=True
            )
            assert done.returncode == 0, done
            assert (run / "cv.json").exists() is not bool(more)
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(store)], check=True)  # nix takes that away


def test_the_guard_is_installed_once(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", config=None)
    first = project.gpuq("init", "--guard").ok().stdout
    assert "made      .claude/settings.json" in first
    assert "made      .codex/hooks.json" in first
    assert "AGENTS.md" in (project.root / "CLAUDE.md").read_text()
    again = project.gpuq("init", "--guard").ok().stdout
    assert "made" not in again
    assert "extended" not in again
    assert "gpuq init --guard --strict" in project.gpuq("init", "--strict").exits(2).stderr
