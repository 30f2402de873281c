"""Make a repository ready for gpuq. What the user wrote stays as it is, and a second time nothing changes."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from gpuq.adapters import templates
from gpuq.adapters.configfiles import Project
from gpuq.adapters.files import is_there, write_atomic
from gpuq.core.config import PROJECT_FILE
from gpuq.core.experiment.sections import put_lines, put_section
from gpuq.errors import ConfigError

TEMPLATES = ("python", "uv", "nix", "conda", "apptainer", "torchrun")
"""Skeletons of job.sh: gpuq/templates/job/."""

_IGNORED = "# gpuq: a run keeps its job.sh, run.toml and origin.json; what the attempts leave is not committed"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One file or directory, as it will be."""

    name: str
    """Relative to the project's root."""
    what: str
    """`made`, `extended`, `renewed` or `unchanged`."""
    path: Path
    text: str | None
    """None: a directory."""
    mode: int = 0o644


def plan(project: Project, template: str | None, tag: str, *, claude: bool = False) -> list[Step]:
    """What is to be written, and what is there already. Raises ConfigError for a file that cannot be read or understood.

    claude: Claude Code is going to be used here, whatever there is of it yet.
    """
    root, runs = project.root, project.runs.relative_to(project.root).as_posix()
    steps = [
        _new(root, PROJECT_FILE, templates.read("gpuq.toml")),
        _section(root, "AGENTS.md", templates.read("agents.md").replace("{runs}", runs)),
    ]
    if _claude_is_used(root, wanted=claude):
        steps.append(_section(root, "CLAUDE.md", templates.read("claude.md"), enough="AGENTS.md"))
    steps.append(_directory(root, runs))
    steps.append(_new(root, "ops/decisions.md", templates.read("decisions.md")))
    steps.append(_ignore(root, runs))
    if template is not None:
        steps.append(_new(root, f"{runs}/{tag}/job.sh", _job(template, tag), mode=0o755))
    for step in steps:
        way = next((one for one in step.path.parents if is_there(one)), root)
        if not way.is_dir():  # before anything is written
            raise ConfigError(
                f"{way} is not a directory; {step.name} cannot be made", hint=f"give {way.name} another name"
            )
    return steps


def apply(steps: list[Step]) -> None:
    """Write them. Raises ConfigError."""
    for step in steps:
        try:
            if step.what == "unchanged":
                continue
            if step.text is None:
                step.path.mkdir(parents=True, exist_ok=True)
                continue
            step.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(step.path, step.text, mode=step.mode)
        except OSError as error:
            raise ConfigError(f"{error.filename or step.path}: {error.strerror or error}") from None


def _job(template: str, tag: str) -> str:
    return templates.read(f"job/{template}.sh").replace("--from baseline", f"--from {tag}")


def _claude_is_used(root: Path, *, wanted: bool) -> bool:
    claude = root / "CLAUDE.md"
    if is_there(claude):
        return claude.resolve() != (root / "AGENTS.md").resolve()  # often a link to it
    return wanted or is_there(root / ".claude")


def _new(root: Path, name: str, text: str, mode: int = 0o644) -> Step:
    there = is_there(root / name)
    return Step(name=name, what="unchanged" if there else "made", path=root / name, text=text, mode=mode)


def _directory(root: Path, name: str) -> Step:
    if is_there(root / name) and not (root / name).is_dir():
        raise ConfigError(f"{root / name} is not a directory", hint="[project] runs in gpuq.toml names another one")
    there = is_there(root / name)
    return Step(name=f"{name}/", what="unchanged" if there else "made", path=root / name, text=None)


def _section(root: Path, name: str, section: str, *, enough: str | None = None) -> Step:
    """enough: a word that makes the section unnecessary where the user's own text has it."""
    path, before, mode = _existing(root / name)
    try:
        after = put_section(before or "", section)
    except ValueError as error:
        raise ConfigError(
            f"{path}: {error}", hint="mend or delete the markers; gpuq init writes its section anew"
        ) from None
    if before is not None and enough is not None and "<!-- gpuq: begin" not in before and enough in before:
        after = before
    return _step(name, path, before, after, mode)


def _ignore(root: Path, runs: str) -> Step:
    path, before, mode = _existing(root / ".gitignore")
    lines = {line.strip().strip("/") for line in (before or "").splitlines()}
    everything = runs in lines or f"{runs}/**" in lines or f"{runs}/*" in lines
    after = before or "" if everything else put_lines(before or "", _IGNORED, [f"{runs}/**/slurm/"])
    return _step(".gitignore", path, before, after, mode)


def _step(name: str, path: Path, before: str | None, after: str, mode: int) -> Step:
    what = "made" if before is None else "unchanged" if after == before else "extended"
    if what == "extended" and before is not None and "<!-- gpuq: begin" in before:
        what = "renewed"
    return Step(name=name, what=what, path=path, text=after, mode=mode)


def _existing(path: Path) -> tuple[Path, str | None, int]:
    """Where a file really is (a link stays a link), its text, and its mode."""
    path = Path(os.path.realpath(path))
    try:
        return path, path.read_bytes().decode("utf-8", "surrogateescape"), path.stat().st_mode & 0o7777
    except FileNotFoundError:
        return path, None, 0o644
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
