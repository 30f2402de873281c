"""The worlds as a fixture: every test that takes `world` runs in each of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuq.adapters.slurm.choose import why_not_pyslurm
from gpuq.adapters.slurm.client import SlurmCommands
from gpuq.adapters.slurm.locate import Location, Source
from gpuq.adapters.slurm.pyslurm import PySlurm
from tests.contract.standin import StandIn
from tests.contract.worlds import Live, Recorded, World
from tests.embedded import Embedded

Build = Callable[[pytest.FixtureRequest], World]


def _slurm(request: pytest.FixtureRequest) -> Embedded:
    """A test that takes the controller away gets a Slurm of its own."""
    found: Embedded = request.getfixturevalue(
        "slurm" if request.node.get_closest_marker("slurm_options") else "slurm_shared"
    )
    return found


def live_commands(request: pytest.FixtureRequest) -> World:
    slurm = _slurm(request)
    return Live(slurm, SlurmCommands(Location(Source.ENVIRONMENT, slurm.layout.conf), slurm.env))


def live_pyslurm(request: pytest.FixtureRequest) -> World:
    slurm = _slurm(request)
    location = Location(Source.ENVIRONMENT, slurm.layout.conf)
    obstacle = why_not_pyslurm(location, slurm.env)
    if obstacle:
        pytest.skip(obstacle)
    return Live(slurm, PySlurm(location, slurm.env))


def recorded_commands(request: pytest.FixtureRequest) -> World:
    world = Recorded(_directory(request))
    world.client = SlurmCommands(Location(Source.ENVIRONMENT, None), {**os.environ, "PATH": world.replay.path})
    return world


def recorded_pyslurm(request: pytest.FixtureRequest) -> World:
    stand_in = StandIn()
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    monkeypatch.setitem(sys.modules, "pyslurm", stand_in)
    world = Recorded(_directory(request), stand_in)
    world.client = PySlurm(Location(Source.ENVIRONMENT, None), {**os.environ, "PATH": world.replay.path})
    return world


def _directory(request: pytest.FixtureRequest) -> Path:
    place: Path = request.getfixturevalue("tmp_path")
    return place / "replay"


@pytest.fixture(
    params=[
        # the fixtures are asked for by name, so they cannot mark the test themselves
        pytest.param(live_commands, marks=pytest.mark.live, id="live-commands"),
        pytest.param(live_pyslurm, marks=pytest.mark.live, id="live-pyslurm"),
        pytest.param(recorded_commands, id="recorded-commands"),
        pytest.param(recorded_pyslurm, id="recorded-pyslurm"),
    ]
)
def world(request: pytest.FixtureRequest) -> World:
    """A Slurm with jobs, and a backend to ask about them."""
    build: Build = request.param
    return build(request)
