"""`gpuq guard` as the agents call it, and its installation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuq.errors import ConfigError
from gpuq.usecases.experiment import init
from gpuq.usecases.guard import install as guard_install


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one run that starts src/fit.py."""
    root = tmp_path / "net"
    run = root / "runs" / "base"
    run.mkdir(parents=True)
    (root / "gpuq.toml").touch()
    (run / "job.sh").write_text("#!/bin/bash\nexec gpuq run -- python -u src/fit.py --lr 1e-3\n")
    return root


def ask(project: Path, call: object, *options: str) -> subprocess.CompletedProcess[str]:
    """Give the hook a tool call."""
    text = call if isinstance(call, str) else json.dumps(call)
    argv = [sys.executable, "-m", "gpuq", "guard", *options]
    return subprocess.run(argv, input=text, capture_output=True, text=True, cwd=project, check=False, timeout=60)


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """Why it was refused; empty: it was not."""
    assert done.returncode == 0, done
    if not done.stdout:
        return ""
    answer: dict[str, Any] = json.loads(done.stdout)["hookSpecificOutput"]
    assert (answer["hookEventName"], answer["permissionDecision"]) == ("PreToolUse", "deny")
    return str(answer["permissionDecisionReason"])


def bash(command: str, **more: object) -> dict[str, object]:
    """A call of the agents' shell."""
    call = {"session_id": "1", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": command}}
    return {**call, **more}


def test_refuses_with_the_command_to_use_instead(project: Path) -> None:
    assert "gpuq submit base" in reason(ask(project, bash("sbatch runs/base/job.sh")))
    assert "gpuq submit base" in reason(ask(project, bash("bash job.sh", cwd=str(project / "runs" / "base"))))
    assert "gpuq new" in reason(ask(project, bash("nohup python src/fit.py &")))  # known from the run's job.sh
    assert "gpuq cancel" in reason(
        ask(project, {"tool_name": "shell", "tool_input": {"command": ["scancel", "-u", "me"]}})
    )


def test_lets_pass_in_silence(project: Path) -> None:
    for call in (bash("ls"), {"tool_name": "Read", "tool_input": {"file_path": "runs/base/slurm/attempt1.json"}}, {}):
        done = ask(project, call)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_edits_by_tool_and_by_patch(project: Path) -> None:
    record = "runs/base/slurm/attempt1.json"
    for call in (
        {"tool_name": "Write", "tool_input": {"file_path": str(project / record), "content": "x"}},
        {"tool_name": "Edit", "tool_input": {"file_path": record, "old_string": "a", "new_string": "b"}},
        {
            "tool_name": "apply_patch",
            "tool_input": {"command": f"*** Begin Patch\n*** Update File: {record}\n*** End Patch"},
        },
    ):
        assert "record" in reason(ask(project, call))


def test_what_it_cannot_judge_passes_unless_strict(project: Path) -> None:
    call = bash('"$CMD" x')
    assert reason(ask(project, call)) == ""
    assert "--strict" in reason(ask(project, call, "--strict"))
    assert reason(ask(project, bash("ls"), "--strict")) == ""


@pytest.mark.parametrize(
    "text", ["", "no json", '{"tool_name": 3}', '{"tool_input": [1]}', "[]", '{"tool_input": {"command": 3}}']
)
def test_a_guard_that_fails_stops_nobody(project: Path, text: str) -> None:
    done = ask(project, text)
    assert reason(done) == ""
    assert "Traceback" not in done.stderr


def test_a_broken_configuration_stops_nobody_unless_strict(project: Path) -> None:
    (project / "gpuq.toml").write_text("[submit\n")
    done = ask(project, bash("ls"))
    assert reason(done) == ""
    assert "gpuq.toml" in done.stderr
    assert "gpuq.toml" in reason(ask(project, bash("ls"), "--strict"))


def test_installs_once_and_keeps_what_is_there(project: Path) -> None:
    settings = project / ".claude" / "settings.json"
    settings.parent.mkdir()
    own = {
        "model": "x",
        "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]}]},
    }
    settings.write_text(json.dumps(own))
    init.apply(guard_install.plan(project, strict=False))
    after = json.loads(settings.read_text())
    assert after["model"] == "x"
    assert after["hooks"]["PreToolUse"][0] == own["hooks"]["PreToolUse"][0]  # type: ignore[index]
    assert after["hooks"]["PreToolUse"][1]["hooks"][0]["command"] == "gpuq guard"
    codex = json.loads((project / ".codex" / "hooks.json").read_text())
    assert codex["hooks"]["PreToolUse"][0]["hooks"][0]["command"] == "gpuq guard"
    assert not any(one.what != "unchanged" for one in guard_install.plan(project, strict=False))
    init.apply(guard_install.plan(project, strict=True))
    assert settings.read_text().count("gpuq guard --strict") == 1
    assert settings.read_text().count("gpuq guard") == 1
    init.apply(guard_install.plan(project, strict=False, program="/opt/my env/bin/gpuq"))
    commands = [
        hook["command"] for one in json.loads(settings.read_text())["hooks"]["PreToolUse"] for hook in one["hooks"]
    ]
    assert commands == ["mine", "'/opt/my env/bin/gpuq' guard"]
    assert {one.what for one in guard_install.plan(project, strict=False, program="/opt/my env/bin/gpuq")} == {
        "unchanged"
    }


def test_a_command_is_answered_in_words(project: Path) -> None:
    def answer(command: str, *options: str) -> str:
        done = ask(project, "", "--command", command, *options)
        assert done.returncode == 0, done
        return done.stdout

    assert answer("ls") == "passes\n"
    assert answer("sbatch runs/base/job.sh").startswith("refused: ")
    assert "gpuq submit base" in answer("sbatch runs/base/job.sh")
    assert answer('"$CMD" x').startswith("passes, but is not understood")
    assert answer('"$CMD" x', "--strict").startswith("refused: ")
    assert "permissionDecision" in answer("sbatch runs/base/job.sh", "--hook")
    assert answer("ls", "--hook") == ""


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": 3}', '{"hooks": {"PreToolUse": {}}}'])
def test_settings_that_are_not_understood_are_left_alone(project: Path, text: str) -> None:
    settings = project / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(text)
    with pytest.raises(ConfigError):
        guard_install.plan(project, strict=False)
    assert settings.read_text() == text


def test_the_project_is_found_from_a_file_or_a_first_cd(project: Path, tmp_path: Path) -> None:
    record = project / "runs" / "base" / "slurm" / "attempt1.json"
    assert "record" in reason(ask(tmp_path, {"tool_name": "Write", "tool_input": {"file_path": str(record)}}))
    assert "memory" in reason(ask(tmp_path, bash(f"cd {project} && rm -rf runs/base")))


def test_a_shell_that_is_told_where_to_work(project: Path) -> None:
    given = {"command": ["bash", "-lc", "sbatch job.sh"], "workdir": "runs/base"}
    assert "gpuq submit base" in reason(ask(project, {"tool_name": "shell", "tool_input": given}))


def test_links_and_another_runs_root(project: Path, tmp_path: Path) -> None:
    (project / "runs").rename(project / "exps")
    (project / "gpuq.toml").write_text('[project]\nruns = "exps"\n')
    (project / "exps" / "deep" / "er").mkdir(parents=True)
    (project / "exps" / "deep" / "er" / "job.sh").write_text("#!/bin/bash\n")
    elsewhere = tmp_path / "data"
    elsewhere.mkdir()
    (elsewhere / "job.sh").write_text("#!/bin/bash\n")
    (project / "exps" / "linked").symlink_to(elsewhere)
    (project / "latest").symlink_to("exps")
    (tmp_path / "alias").symlink_to(project)
    assert "gpuq submit deep/er" in reason(ask(project, bash("sbatch latest/deep/er/job.sh")))
    assert "gpuq submit linked" in reason(ask(project, bash("sbatch exps/linked/job.sh")))
    assert "gpuq submit base" in reason(ask(project, bash(f"bash {tmp_path}/alias/exps/deep/../base/job.sh")))
    assert "memory" in reason(ask(tmp_path / "alias", bash(f"rm -rf {project}/exps/deep")))
    assert "memory" in reason(ask(project, bash("rm -rf exps/linked")))
    for harmless in ("rm latest", "rm -rf runs", "rm -rf exps/none", "touch exps/base/x"):
        assert reason(ask(project, bash(harmless))) == ""


def test_a_broken_configuration_does_not_open_the_door(project: Path) -> None:
    (project / "gpuq.toml").write_text("[submit\n")
    assert "sbatch" in reason(ask(project, bash("sbatch x.sh")))


def test_bytes_that_are_no_text_are_judged(project: Path) -> None:
    foul = b'{"tool_name": "Bash", "tool_input": {"command": "sbatch \xff x.sh"}}'
    half = b'{"tool_name": "Bash", "tool_input": {"command": "sbatch \\ud800 x.sh"}}'
    for raw in (foul, half):
        argv = [sys.executable, "-m", "gpuq", "guard"]
        done = subprocess.run(argv, input=raw, capture_output=True, cwd=project, check=True, timeout=60)
        assert b"deny" in done.stdout
    for odd in ({"cwd": "/a\0b"}, {"cwd": "/not/there"}):
        assert "sbatch" in reason(ask(project, bash("sbatch x.sh", **odd)))
    assert reason(ask(project, {"tool_name": "Write", "tool_input": {"file_path": "a\0b"}})) == ""
