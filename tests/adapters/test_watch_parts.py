"""The small parts around the watcher: one instance, the service manager, the kernel's word about files."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from gpuq.adapters import instance
from gpuq.adapters.filewatch import FileWatch
from gpuq.adapters.sdnotify import Notifier
from gpuq.errors import HostError
from gpuq.usecases.watch.service import start_background
from tests.gpuq_cli import SOURCE, Project


def test_one_instance_and_who_it_is(tmp_path: Path) -> None:
    assert instance.holder(tmp_path) is None
    lock = instance.acquire(tmp_path)
    assert isinstance(lock, instance.Instance)
    assert instance.holder(tmp_path) == os.getpid()
    assert instance.acquire(tmp_path) == os.getpid()
    lock.release()
    assert instance.holder(tmp_path) is None
    again = instance.acquire(tmp_path)
    assert isinstance(again, instance.Instance)
    again.release()


def test_the_service_manager_is_told(tmp_path: Path) -> None:
    place = str(tmp_path / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(place)
        notifier = Notifier({"NOTIFY_SOCKET": place, "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())})
        assert notifier.there
        assert notifier.watchdog == 3
        notifier.tell("READY=1", "STATUS=well")
        assert manager.recv(100) == b"READY=1\nSTATUS=well"
    notifier.tell("WATCHDOG=1")  # nobody listens any more
    assert not Notifier({}).there
    Notifier({}).tell("READY=1")
    assert Notifier({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}).watchdog == 0


def test_the_service_is_ready_before_a_controller_that_hangs_has_answered(tmp_path: Path) -> None:
    """Else systemd would end it before it had asked three times, again and again, and nobody be told that Slurm is away."""
    project = Project(tmp_path / "project", config=None)
    for program in ("squeue", "scontrol", "sinfo"):
        project.wrap(program, '[ "$1" = --version ] && echo slurm 22.05.8 && exit; exec sleep 30')
    place = str(tmp_path / "n")
    project.env |= {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "NOTIFY_SOCKET": place}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(place)
        manager.settimeout(25)
        process = project.start("watch")
        try:
            assert manager.recv(100) == b"READY=1"
            assert process.poll() is None
        finally:
            process.kill()
            process.communicate()


def test_a_file_is_watched_and_so_is_the_one_that_takes_its_place(tmp_path: Path) -> None:
    changed = threading.Event()
    files = FileWatch(changed.set)
    try:
        path = tmp_path / "jobcomp"
        assert not files.watch(path)
        path.write_text("1\n")
        assert files.watch(path)
        assert files.watch(path)
        with path.open("a") as handle:
            handle.write("2\n")
        assert changed.wait(20)
        path.rename(tmp_path / "old")
        path.write_text("3\n")
        assert files.watch(path)
        changed.clear()
        with path.open("a") as handle:
            handle.write("4\n")
        assert changed.wait(20)
        assert files.works
    finally:
        files.close()


def test_without_watchdog_the_caller_looks_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("watchdog", "watchdog.events", "watchdog.observers"):
        monkeypatch.setitem(sys.modules, name, None)
    files = FileWatch(lambda: None)
    (tmp_path / "f").touch()
    assert not files.works
    assert not files.watch(tmp_path / "f")
    assert "gpuq-slurm[watch]" in files.note
    files.close()


def test_a_watcher_that_does_not_start_says_why(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "XDG_STATE_HOME": str(tmp_path), "GPUQ_BACKEND": "nonsense"}
    for _ in range(2):
        with pytest.raises(HostError, match=r"did not start: gpuq: environment: GPUQ_BACKEND='nonsense'") as caught:
            start_background(env, tmp_path / "watcher", print)
        assert "watch.log" in caught.value.hint
        with (tmp_path / "gpuq" / "watch.log").open("a") as log:
            log.write("what another one said\n")
