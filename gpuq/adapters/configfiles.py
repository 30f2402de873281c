"""Where configuration is read from: the project's gpuq.toml, the user's config, a run's run.toml."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpuq.adapters import git
from gpuq.core.config import PROJECT_FILE, RUN_FILE, Settings, from_environment, from_table, merge
from gpuq.errors import ConfigError

DEFAULT_RUNS = "runs"

TABLES = ("notify", "watch")
"""Tables of the user's config that gpuq.adapters.notifyfile reads (not imported here: start-up is part of the product)."""


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
    user = _load(user_config(environment), elsewhere=TABLES)
    cwd = outside_snapshot(cwd)
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


def outside_snapshot(place: Path) -> Path:
    """`place`, or, inside the frozen copy of a project's tree, the runs root of that project: gpuq in a job that runs in
    a copy is to find the records, which are not copied."""
    head, mark, _ = str(place).partition("/.gpuq/snapshots/")
    return Path(head) if mark else place


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


def _load(path: Path, *, run: bool = False, elsewhere: Sequence[str] = ()) -> Settings:
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Settings()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    return from_table(parse_toml(raw, path), str(path), run=run, elsewhere=elsewhere)


def parse_toml(raw: bytes, path: Path) -> dict[str, Any]:
    """A file's content. `path` is how messages name it. Raises ConfigError."""
    if not raw.strip():  # `touch gpuq.toml` marks a project
        return {}
    import tomllib  # only where there is something to read

    try:
        return tomllib.loads(raw.decode())
    except ValueError as error:  # TOMLDecodeError, UnicodeDecodeError, a number of more than 4300 digits
        words = str(error)
        twice = re.match(r"Cannot declare \((.*?),?\) twice", words)
        if twice:
            table = ".".join(re.findall(r"'([^']*)'", twice[1]))
            words = words.replace(twice[0], f"[{table}] is there twice")
            raise ConfigError(f"{path}: {words}", hint=f"put the keys of both below the first [{table}]") from None
        raise ConfigError(f"{path}: {words}") from None
    except RecursionError:
        raise ConfigError(f"{path}: its brackets are nested too deep") from None
