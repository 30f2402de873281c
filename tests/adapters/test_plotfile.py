"""A series as a picture."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from gpuq.adapters import plotfile
from gpuq.core.memory.looks import Sample

START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
GIB = 1024**3


def test_a_single_point_can_be_seen(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image", reason="not installed: matplotlib (pip install gpuq-slurm[dev])")
    picture = tmp_path / "one.png"
    plotfile.write(picture, [Sample(at=START, held=3 * GIB, anon=3 * GIB, shmem=0, cache=0, limit=4 * GIB)], "a")
    red = (image.imread(picture)[..., :3] * 255).round().astype(int) - (0xC4, 0x4E, 0x52)
    part = (abs(red).max(axis=-1) <= 2).mean()
    assert part > 0.2, "anon fills three quarters of it, and not only its place in the legend"
