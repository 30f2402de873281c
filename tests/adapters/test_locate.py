"""Which Slurm is talked to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuq.adapters.embedded import layout
from gpuq.adapters.slurm.locate import SYSTEM_CONF, Location, Source, environment_for, locate


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A system without a slurm.conf."""
    return tmp_path / "etc" / "slurm.conf"


@pytest.fixture
def embedded() -> Path:
    """slurm.conf of an embedded Slurm that is up, in its default place."""
    conf = layout.conf_path(layout.default_dir())
    conf.parent.mkdir(parents=True)
    conf.touch()
    (conf.parent / layout.STATE_FILE).touch()
    return conf


def test_slurm_conf_wins_over_everything(nowhere: Path, embedded: Path) -> None:
    nowhere.parent.mkdir()
    nowhere.touch()
    found = locate({"SLURM_CONF": "/x/slurm.conf"}, system_conf=nowhere)
    assert (found.source, found.conf, found.embedded) == (Source.ENVIRONMENT, Path("/x/slurm.conf"), False)
    assert environment_for(found) == {"SLURM_CONF": "/x/slurm.conf"}
    assert found.identity == "/x/slurm.conf"


def test_a_configless_client_is_left_to_slurms_own_search(nowhere: Path) -> None:
    found = locate({"SLURM_CONF_SERVER": "head:6817"}, system_conf=nowhere)
    assert (found.source, found.conf) == (Source.ENVIRONMENT, None)
    assert environment_for(found) == {}


def test_the_systems_slurm_wins_over_the_embedded_one(nowhere: Path, embedded: Path) -> None:
    nowhere.parent.mkdir()
    nowhere.touch()
    found = locate({}, system_conf=nowhere)
    assert (found.source, found.conf, found.embedded) == (Source.SYSTEM, None, False)


@pytest.mark.skipif(Path("/run/slurm/conf/slurm.conf").exists(), reason="a configless slurmd runs on this host")
def test_without_a_slurm_of_the_system_it_is_the_embedded_one(nowhere: Path, embedded: Path) -> None:
    found = locate({}, system_conf=nowhere)
    assert (found.source, found.conf, found.embedded) == (Source.EMBEDDED, embedded, True)
    assert environment_for(found) == {"SLURM_CONF": str(embedded)}


def test_an_embedded_slurm_is_known_as_one_when_named_through_slurm_conf(nowhere: Path, embedded: Path) -> None:
    found = locate({"SLURM_CONF": str(embedded)}, system_conf=nowhere)
    assert found.source is Source.ENVIRONMENT
    assert found.embedded


@pytest.mark.skipif(Path("/run/slurm/conf/slurm.conf").exists(), reason="a configless slurmd runs on this host")
def test_without_any_slurm_slurms_own_search_decides(nowhere: Path) -> None:
    found = locate({"SLURM_CONF": ""}, system_conf=nowhere)
    assert (found.source, found.conf, found.embedded) == (Source.NONE, None, False)


def test_two_embedded_slurms_are_two_controllers(nowhere: Path) -> None:
    one, other = (locate({"SLURM_CONF": f"/{name}/slurm.conf"}, system_conf=nowhere) for name in "ab")
    assert one.identity != other.identity


def test_one_slurm_conf_is_one_controller_however_it_is_spelled(tmp_path: Path, nowhere: Path, embedded: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(embedded.parent)
    one = locate({"SLURM_CONF": str(embedded)}, system_conf=nowhere)
    spelled = locate({"SLURM_CONF": str(link / "slurm.conf")}, system_conf=nowhere)
    assert one.identity == spelled.identity
    assert one.identity == locate({"SLURM_CONF": os.path.relpath(embedded)}, system_conf=nowhere).identity


def test_the_systems_slurm_conf_is_one_controller_also_when_named() -> None:
    assert Location(Source.SYSTEM, None).identity == Location(Source.ENVIRONMENT, SYSTEM_CONF).identity
