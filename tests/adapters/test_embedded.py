"""The parts of the embedded Slurm that need no Slurm: where it lives, what it remembers, what it says without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuq.adapters.embedded import host, state
from gpuq.adapters.embedded.control import Job, nice_to_lead
from gpuq.adapters.embedded.layout import SOCKET_LIMIT, Layout, conf_path, default_dir
from gpuq.errors import HostError
from gpuq.usecases import local


def test_too_long_a_directory_is_said_before_anything_is_made(tmp_path: Path) -> None:
    place = tmp_path / ("x" * SOCKET_LIMIT)
    with pytest.raises(HostError, match="bytes") as caught:
        local.up(place)
    assert "--dir" in caught.value.hint
    assert not place.exists()


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(host, "SYSTEM_DIRS", str(tmp_path))
    with pytest.raises(HostError, match="slurmctld") as caught:
        host.find_programs()
    assert caught.value.hint == "apt-get install slurm-wlm munge"


def test_the_environment_of_one_that_is_down(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="no embedded Slurm is up") as caught:
        local.environment(tmp_path)
    assert "gpuq local up" in caught.value.hint
    assert local.status(tmp_path / "none").state == "down"
    assert local.down(tmp_path / "none").state == "down"


def test_where_it_lives_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert default_dir() == Path.home() / ".local/state/gpuq/local"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_dir() == tmp_path / "gpuq/local"
    monkeypatch.setenv("GPUQ_LOCAL_DIR", "/srv/gpuq")
    assert default_dir() == Path("/srv/gpuq")
    assert conf_path(default_dir()) == Path("/srv/gpuq/slurm.conf")


def test_a_state_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.state_file.write_text("{")
    with pytest.raises(HostError, match="cannot be read"):
        state.load(layout)
    layout.state_file.write_text('{"version": 99, "node": "n"}')
    with pytest.raises(HostError, match="format 99"):
        state.load(layout)


def test_the_first_state_format_still_loads(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    frozen = Path(__file__).parents[1] / "data" / "local-1.json"
    layout.state_file.write_bytes(frozen.read_bytes())
    loaded = state.load(layout)
    assert loaded is not None
    assert loaded.node == "gpuqabcdef"
    assert loaded.options.max_time == "2-00:00:00"


def test_kept_and_taken_ports() -> None:
    first, second = host.choose_ports((0, 0))
    assert first != second
    assert {first, second} <= set(host.PORTS)
    assert host.choose_ports((first, second)) == (first, second)
    assert first not in host.choose_ports((first, second), avoid=[first])


def test_requeued_jobs_lead_in_their_own_order() -> None:
    def job(number: int, priority: int, nice: int = 0) -> Job:
        return Job(number, priority, nice, "PENDING", f"j{number}")

    others = [job(7, 900), job(8, 950, nice=-50), job(9, 0)]
    first = [job(1, 100), job(2, 200, nice=30), job(3, 0), job(4, 100)]
    nice = nice_to_lead(first, others)
    then = {one.id: one.priority + one.nice - nice[one.id] for one in first if one.id in nice}
    assert then == {2: 953, 1: 952, 4: 951}  # 3 is held and stays so
    assert nice_to_lead([job(1, 951)], others) == {}
    assert nice_to_lead([job(1, 950)], others) == {1: -1}
    assert nice_to_lead([job(3, 0)], others) == {}
    assert nice_to_lead([job(1, 1)], []) == {}
