"""`gpuq host plan`: what this host is, the Slurm that fits it, and what that would change."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpuq.adapters import planfacts
from gpuq.adapters.files import write_atomic
from gpuq.adapters.hostfiles import Roots
from gpuq.core.host import plan as hostplan
from gpuq.core.host import plan_files as hostplan_files
from gpuq.core.host import slurm_conf as conf
from gpuq.core.host.plan import SeenHost, Wishes
from gpuq.errors import HostError

NEW, CHANGED, SAME, UNREADABLE = "new", "changed", "same", "unreadable"


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the plan against what is installed. state: new, changed, same, or unreadable (by this user)."""

    path: str
    purpose: str
    mode: str
    owner: str
    state: str
    diff: str = ""


class Setting(msgspec.Struct, frozen=True):
    """A line of slurm.conf, and what it is for."""

    line: str
    why: str


class PartitionShare(msgspec.Struct, frozen=True, kw_only=True):
    """What a partition may have of the node, all its jobs together; MiB. None: all."""

    name: str
    cpus: int | None
    memory: int | None
    gpu: bool


class HostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan for one host. Memory in MiB."""

    host: str
    directory: str
    written: bool
    rewritten: tuple[str, ...]
    """Files of the directory that held something else before: edited by hand, or of an older plan."""
    slurm: str
    facts: SeenHost
    memory: int
    reserved: int
    partitions: tuple[PartitionShare, ...]
    notes: tuple[str, ...]
    files: tuple[FileChange, ...]
    settings: tuple[Setting, ...]


def host_plan(
    environment: Mapping[str, str],
    wishes: Wishes,
    *,
    project: Path,
    directory: Path | None,
    dry_run: bool,
    roots: Roots | None = None,
    seen: SeenHost | None = None,
) -> HostPlan:
    """Look at this host, decide, and write the files below `directory` (the project's ops/slurm/<hostname> by default).

    seen: facts in place of those of this host. Raises HostError for a host that cannot be set up, or when the directory
    cannot be written; with dry_run nothing is written.
    """
    seen = seen or planfacts.see(environment, roots)
    decided = hostplan.plan(seen, wishes)
    spec = decided.spec
    directory = directory or planfacts.default_directory(project, spec.hostname)
    planned = hostplan_files.files(spec)
    rendered = {"MANIFEST": (hostplan_files.manifest(spec, planned), 0o644)}
    rendered |= {one.path.lstrip("/"): (one.text, one.mode) for one in planned}
    rewritten = _differing(directory, rendered)
    if not dry_run:
        _write(directory, rendered)
    return HostPlan(
        host=spec.hostname,
        directory=str(directory),
        written=not dry_run,
        rewritten=tuple(rewritten),
        slurm=f"{spec.version[0]}.{spec.version[1]:02d}",
        facts=seen,
        memory=spec.real_memory,
        reserved=seen.memory - spec.real_memory,
        partitions=tuple(
            PartitionShare(
                name=one.name,
                cpus=one.max_cpus_per_node or one.licenses,
                memory=(one.mem_per_cpu or 0) * (one.max_cpus_per_node or one.licenses or 0) or None,
                gpu=one.gpu is not None,
            )
            for one in spec.partitions
        ),
        notes=decided.notes,
        files=tuple(_against(one, directory, roots) for one in planned),
        settings=tuple(Setting(line, block.why) for block in conf.slurm_conf_blocks(spec) for line in block.lines),
    )


def _against(one: hostplan_files.PlannedFile, directory: Path, roots: Roots | None) -> FileChange:
    now, mode, why = planfacts.current(one.path, roots)
    state = UNREADABLE if why else NEW if now is None else SAME
    diff = ""
    if now is not None and (now != one.text or (mode or 0) & 0o111 != one.mode & 0o111):
        state = CHANGED
    if state in (NEW, CHANGED):
        lines = difflib.unified_diff(
            (now or "").splitlines(keepends=True),
            one.text.splitlines(keepends=True),
            fromfile=one.path if now is not None else "/dev/null",
            tofile=str(directory / one.path.lstrip("/")),
        )
        diff = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return FileChange(
        path=one.path, purpose=one.purpose, mode=f"{one.mode:04o}", owner=one.owner, state=state, diff=diff
    )


def _differing(directory: Path, rendered: Mapping[str, tuple[str, int]]) -> list[str]:
    found = []
    for name, (text, _) in rendered.items():
        now, _, _ = planfacts.current(str((directory / name).absolute()))
        if now is not None and now != text:
            found.append(name)
    return found


def _write(directory: Path, rendered: Mapping[str, tuple[str, int]]) -> None:
    """MANIFEST goes last: without it nobody installs a directory that is half written."""
    try:
        for name in [*(name for name in rendered if name != "MANIFEST"), "MANIFEST"]:
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text, mode = rendered[name]
            write_atomic(path, text, mode=mode)
    except OSError as error:
        raise HostError(
            f"{error.filename or directory}: {error.strerror or error}", hint="name another place: --dir DIR"
        ) from None
