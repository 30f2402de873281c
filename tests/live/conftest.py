"""A project for each live test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpuq_cli import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose runs ask for little."""
    return Project(tmp_path / "project")
