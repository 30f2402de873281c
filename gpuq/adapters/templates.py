"""The texts that come with gpuq: what `gpuq init` writes into a project."""

from __future__ import annotations

from pathlib import Path

PLACE = Path(__file__).parent.parent / "templates"


def read(name: str) -> str:
    """One of them: `gpuq.toml`, `job/uv.sh`."""
    return (PLACE / name).read_text(encoding="utf-8")
