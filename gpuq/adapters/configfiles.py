"""Where configuration is read from: the project's gpuq.toml, the user's config, a run's run.toml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpuq.adapters import git
from gpuq.core.config import PROJECT_FILE, RUN_FILE, Settings, from_environment, from_table, merge
from gpuq.errors import ConfigError

DEFAULT_RUNS = "runs"


class Project(msgspec.Struct, frozen=True):
    """A project: its root (where jobs start), its runs root, and the settings of all layers but the run's."""

    root: Path
    runs: Path
    below: Settings
    """User's config and gpuq.toml."""
    environment: Settings


def find_project(cwd: Path, environment: Mapping[str, str]) -> Project:
    """The project around `cwd`: the next gpuq.toml upward; without one the git root; without both `cwd` itself.

    Raises ConfigError for a file that is wrong, or a runs directory outside the project.
    """
    user = _load(user_config(environment))
    root = next((d for d in (cwd, *cwd.parents) if _is_file(d / PROJECT_FILE)), None)
    own = _load(root / PROJECT_FILE) if root else Settings()
    if root is None:
        root = git.toplevel(cwd) or cwd
    env = from_environment(environment)
    runs = Path(os.path.normpath(root / (merge([user, own, env]).runs or DEFAULT_RUNS)))
    if not runs.is_relative_to(root):
        raise ConfigError(
            f"the runs directory {runs} lies outside the project {root}",
            hint=f"to keep runs elsewhere, link them: ln -s {runs} {root / DEFAULT_RUNS}",
        )
    return Project(root, runs, merge([user, own]), env)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a directory on the way up in which this user may not look
        return False


def user_config(environment: Mapping[str, str]) -> Path:
    """$XDG_CONFIG_HOME/gpuq/config.toml, by default below ~/.config."""
    base = environment.get("XDG_CONFIG_HOME", "")
    directory = Path(base) if base.startswith("/") else Path(environment.get("HOME", "/")) / ".config"
    return directory / "gpuq" / "config.toml"


def run_settings(run_dir: Path) -> Settings:
    """The run's own run.toml; empty without one. Raises ConfigError."""
    return _load(run_dir / RUN_FILE, run=True)


def _load(path: Path, *, run: bool = False) -> Settings:
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Settings()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    import tomllib  # only where there is a file to read

    try:
        table = tomllib.loads(raw.decode())
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError, a number of more than 4300 digits
        raise ConfigError(f"{path}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: its brackets are nested too deep") from None
    return from_table(table, str(path), run=run)
