"""What can be read cheaply of a project and its host: lock files, the Python environment, driver and GPU."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuq.core.experiment.provenance import NOT_CODE, LockFile, is_code, is_lock

_LOCK_LIMIT = 32 << 20
"""Bytes of a lock file that is still read."""
_MOST = 200


def sha256(text: str) -> str:
    """Of a text that may hold bytes which are none."""
    import hashlib  # loads OpenSSL

    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def lock_files(project: Path) -> tuple[LockFile, ...]:
    """The lock files in the project root, by name; those that cannot be read are left out."""
    try:
        names = sorted(name for name in os.listdir(project) if is_lock(name))
    except OSError:
        return ()
    if not names:
        return ()
    import hashlib

    found = []
    for name in names:
        path = project / name
        try:
            if path.is_file() and path.stat().st_size <= _LOCK_LIMIT:
                found.append(LockFile(name, hashlib.sha256(path.read_bytes()).hexdigest()))
        except OSError:
            continue
    return tuple(found)


def python_of(project: Path, environment: Mapping[str, str]) -> str | None:
    """Version and place of the environment that is active, or else of the project's .venv: what their files say."""
    for place in (environment.get("VIRTUAL_ENV", ""), str(project / ".venv"), str(project / "venv")):
        if place:
            try:
                text = Path(place, "pyvenv.cfg").read_text(errors="replace")
            except OSError:
                continue
            match = re.search(r"^version(?:_info)?\s*=\s*(\S+)", text, re.MULTILINE)
            return f"{match[1]} in {place}" if match else None
    if conda := environment.get("CONDA_PREFIX", ""):
        try:
            names = os.listdir(Path(conda, "conda-meta"))
        except OSError:
            return None
        for name in names:
            if match := re.match(r"python-(\d[\d.]*)-", name):
                return f"{match[1]} in {conda}"
    return None


def driver_and_gpu(root: Path = Path("/proc/driver/nvidia")) -> tuple[str | None, str | None]:
    """The version of NVIDIA's driver and the names of the GPUs, as the driver's own files say; no tool is run.

    (The NVIDIA driver's README, "The /proc Interface".)
    """
    try:
        text = (root / "version").read_text(errors="replace")
    except OSError:
        return None, None
    match = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d[\d.]+)", text)
    names = []
    for path in sorted(root.glob("gpus/*/information")):
        try:
            model = re.search(r"^Model:\s*(.+?)\s*$", path.read_text(errors="replace"), re.MULTILINE)
        except OSError:
            continue
        if model:
            names.append(model[1])
    return match[1] if match else None, ", ".join(names) or None


def named_files(project: Path, script: str) -> tuple[str, ...]:
    """The code files of the project that a script names, relative to it."""
    found: dict[str, None] = {}
    for word in re.findall(r"[\w./+=-]+", script):
        if is_code(word) and not word.startswith("/") and ".." not in word.split("/"):
            try:
                if (project / word).is_file():
                    found[os.path.normpath(word)] = None
            except OSError:
                continue
    return tuple(found)[:_MOST]


def code_among(untracked: Iterable[str], top: Path, project: Path, runs: Path) -> tuple[str, ...]:
    """Of what git does not have (relative to `top`), the code outside the runs root, relative to the project."""
    found = []
    for name in untracked:
        path = top / name
        ours = path.is_relative_to(runs) or runs.is_relative_to(path)
        if not ours and path.name not in NOT_CODE and (name.endswith("/") or is_code(name)):
            found.append(os.path.relpath(path, project) + ("/" if name.endswith("/") else ""))
    return tuple(found[:_MOST])


def newer_than(project: Path, names: Iterable[str], moment: float) -> list[str]:
    """Those of the files that were written after `moment` (seconds since 1970), or are gone; no directory is looked into."""
    found = []
    for name in names:
        if name.endswith("/") or "\ufffd" in name:  # its bytes are no text, and not kept (core/printable)
            continue
        try:
            if (project / name).stat().st_mtime > moment:
                found.append(name)
        except OSError:
            found.append(name)
    return found


def editable(project: str) -> list[str]:
    """The files in the .venv of a tree by which an installed package points at sources elsewhere (PEP 660)."""
    place = Path(project) / ".venv"
    return [
        str(path)
        for pattern in ("__editable__*.pth", "_editable_impl_*.pth", "*.egg-link")
        for path in sorted(place.glob(f"lib/python*/site-packages/{pattern}"))
    ][:3]
