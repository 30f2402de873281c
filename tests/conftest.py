"""Shared fixtures: a clean environment for every test, and a real Slurm for those that ask for one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuq.adapters.embedded.state import Options
from tests.embedded import Embedded

_DROPPED = ("GPUQ_", "SLURM_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SCANCEL_", "PMI")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the developer's own reaches a test, and no test writes to the developer's home."""
    for name in list(os.environ):
        if name.startswith(_DROPPED):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    for name, place in (
        ("HOME", home),
        ("XDG_CONFIG_HOME", home / ".config"),
        ("XDG_STATE_HOME", home / ".local/state"),
        ("XDG_CACHE_HOME", home / ".cache"),
        ("XDG_DATA_HOME", home / ".local/share"),
        ("XDG_RUNTIME_DIR", home / "run"),
    ):
        place.mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv(name, str(place))


def pytest_configure(config: pytest.Config) -> None:
    """Markers that belong to the fixtures here."""
    config.addinivalue_line("markers", "slurm_options(**options): options of the `slurm` fixture's Slurm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`-m live` and `-m "not live"` follow from the fixtures that a test uses."""
    for item in items:
        if {"slurm", "slurm_shared", "slurm_factory"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.live)


def _short_dir() -> Path:
    """pytest's tmp_path is too long for unix sockets (107 bytes); 0755, for tests with a second user."""
    made = Path(tempfile.mkdtemp(prefix="gq", dir=tempfile.gettempdir()))
    made.chmod(0o755)
    return made


def _need_slurm() -> None:
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    missing = [name for name in ("slurmctld", "slurmd", "munged") if shutil.which(name, path=path) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (apt-get install slurm-wlm munge)")


def _options(request: pytest.FixtureRequest) -> Options:
    """@pytest.mark.slurm_options(max_time="1:00", cpus=4, ...) on a test, its class or its module."""
    chosen: dict[str, Any] = {"gate": False}  # most tests of other things submit jobs that no host would take
    for marker in reversed(list(request.node.iter_markers("slurm_options"))):
        chosen.update(marker.kwargs)
    return Options(**chosen)


@pytest.fixture
def unprivileged() -> Callable[[], AbstractContextManager[None]]:
    """A block in which root is nobody, who may not look into root's files; for everybody else it changes nothing."""

    @contextmanager
    def block() -> Iterator[None]:
        if os.geteuid() != 0:
            yield
            return
        os.setresuid(65534, 65534, 0)  # the real one too: access(2) asks for that
        try:
            yield
        finally:
            os.setresuid(0, 0, 0)

    return block


@pytest.fixture
def slurm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Embedded]:
    """A Slurm of this test's own, up, with SLURM_CONF set; whatever the test did, nothing of it stays."""
    _need_slurm()
    instance = Embedded(_short_dir(), _options(request))
    try:
        instance.up()
        monkeypatch.setenv("SLURM_CONF", str(instance.layout.conf))
        yield instance
    finally:
        instance.down(cancel=True)
        left = instance.leftovers()
        shutil.rmtree(instance.dir)
    assert not left, f"`gpuq local down` left {left}"


@pytest.fixture(scope="session")
def _session_slurm() -> Iterator[Embedded]:
    _need_slurm()
    instance = Embedded(_short_dir(), Options(gate=False))
    try:
        instance.up()
        yield instance
    finally:
        instance.down(cancel=True)
        left = instance.leftovers()
        shutil.rmtree(instance.dir)
    assert not left, f"`gpuq local down` left {left}"


@pytest.fixture
def slurm_shared(_session_slurm: Embedded, monkeypatch: pytest.MonkeyPatch) -> Iterator[Embedded]:
    """One Slurm per worker for tests that leave it as they found it; between tests all jobs are cancelled."""
    monkeypatch.setenv("SLURM_CONF", str(_session_slurm.layout.conf))
    yield _session_slurm
    _session_slurm.clear()
