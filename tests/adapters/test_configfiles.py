"""Where settings are read from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuq.adapters.configfiles import find_project, run_settings, user_config
from gpuq.core.config import Settings
from gpuq.errors import ConfigError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "runs" / "a").mkdir(parents=True)
    return made


def environment(**more: str) -> dict[str, str]:
    return dict(os.environ) | more


def test_the_next_gpuq_toml_upward_is_the_project(root: Path) -> None:
    (root / "gpuq.toml").touch()
    for place in (root, root / "runs", root / "runs" / "a"):
        project = find_project(place, environment())
        assert (project.root, project.runs) == (root, root / "runs")


def test_a_nearer_gpuq_toml_wins_over_the_git_root(root: Path) -> None:
    (root / ".git").mkdir()
    assert find_project(root / "runs" / "a", environment()).root == root
    (root / "runs" / "gpuq.toml").touch()
    assert find_project(root / "runs" / "a", environment()).root == root / "runs"


def test_a_git_work_tree_has_its_git_as_a_file(root: Path) -> None:
    (root / ".git").write_text("gitdir: /elsewhere\n")
    assert find_project(root / "runs", environment()).root == root


def test_without_either_the_project_is_where_one_stands(root: Path) -> None:
    assert find_project(root / "runs", environment()).root == root / "runs"


def test_settings_come_from_the_user_then_the_project_and_the_environment_is_apart(root: Path) -> None:
    user = user_config(environment())
    user.parent.mkdir(parents=True)
    user.write_text('[submit]\nmem = "1G"\ncpus = 1\nnice = 5\n')
    (root / "gpuq.toml").write_text('[submit]\ncpus = 2\n[project]\nruns = "experiments"\n')
    project = find_project(root, environment(GPUQ_CPUS="3"))
    assert (project.below.memory, project.below.cpus, project.below.nice) == (1 << 30, 2, 5)
    assert project.environment == Settings(cpus=3)
    assert project.runs == root / "experiments"
    assert find_project(root, environment(GPUQ_RUNS="x")).runs == root / "x"


def test_the_users_config_follows_the_xdg_specification(tmp_path: Path) -> None:
    assert user_config({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/gpuq/config.toml")
    assert user_config({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}) == Path("/h/.config/gpuq/config.toml")
    assert user_config({"HOME": "/h"}) == Path("/h/.config/gpuq/config.toml")


def test_a_run_may_have_its_own_settings(root: Path) -> None:
    assert run_settings(root / "runs" / "a") == Settings()
    assert run_settings(root / "runs" / "missing") == Settings()
    (root / "runs" / "a" / "run.toml").write_text("[submit]\ncpus = 2\n")
    assert run_settings(root / "runs" / "a") == Settings(cpus=2)
    (root / "runs" / "a" / "run.toml").write_text('[project]\nruns = "x"\n')
    with pytest.raises(ConfigError, match=r"run.toml: unknown table \[project\]"):
        run_settings(root / "runs" / "a")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[submit\n", "line 1"),
        (b"a = 1\na = 2\n", "line 2"),
        (b"[submit]\ncpus = 1\n[submit]\n", "[submit] is there twice (at line 3"),
        (b"caf\xe9 = 1\n", "gpuq.toml"),
        (b"\0", "gpuq.toml"),
        (b'[submit]\nmen = "2G"\n', "did you mean 'mem'?"),
    ],
)
def test_a_broken_file_is_refused_with_its_name(root: Path, content: bytes, says: str) -> None:
    (root / "gpuq.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"gpuq\.toml") as caught:
        find_project(root, environment())
    assert says in caught.value.message


def test_a_users_file_that_cannot_be_read_is_an_error_and_not_no_settings() -> None:
    user_config(environment()).mkdir(parents=True)
    with pytest.raises(ConfigError, match="Is a directory"):
        find_project(Path("/"), environment())


@pytest.mark.parametrize("runs", ["..", "../elsewhere", "a/../../b", "/tmp/elsewhere"])
def test_a_runs_directory_outside_the_project_is_refused(root: Path, runs: str) -> None:
    (root / "gpuq.toml").write_text(f'[project]\nruns = "{runs}"\n')
    with pytest.raises(ConfigError, match="outside the project"):
        find_project(root, environment())


def test_a_runs_directory_is_named_without_detours(root: Path) -> None:
    (root / "gpuq.toml").write_text('[project]\nruns = "./x/../runs"\n')
    assert find_project(root, environment()).runs == root / "runs"
