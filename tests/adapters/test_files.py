"""Files that outlive a command are old or new, never half."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from gpuq.adapters.configfiles import find_project
from gpuq.adapters.embedded import layout
from gpuq.adapters.files import is_there, write_atomic
from gpuq.adapters.git import toplevel
from gpuq.adapters.slurm.locate import Source, locate


def test_what_this_user_may_not_look_at_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    (tmp_path / "gpuq.toml").touch()
    assert is_there(tmp_path / "gpuq.toml")
    assert not is_there(tmp_path / "no")
    assert not is_there(Path("a\0b"))
    monkeypatch.setattr(Path, "stat", refuse)
    assert not is_there(tmp_path / "gpuq.toml")
    assert toplevel(tmp_path) is None
    assert find_project(tmp_path, {}).root == tmp_path
    assert locate({}, system_conf=tmp_path / "slurm.conf").source is Source.NONE


def test_without_a_home_there_is_a_place_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    assert layout.default_dir() == Path("/.local/state/gpuq/local")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty directory."""
    made = tmp_path / "place"
    made.mkdir()
    return made


def test_it_writes_and_replaces_and_leaves_nothing_beside_it(place: Path) -> None:
    path = place / "attempt1.json"
    write_atomic(path, "old")
    write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(place) == ["attempt1.json"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_the_mode_is_the_one_given_whatever_the_umask(place: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        write_atomic(place / "x", "x", mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((place / "x").stat().st_mode) == mode


def test_bytes_that_are_no_text_go_through(place: Path) -> None:
    write_atomic(place / "x", b"caf\xe9".decode("utf-8", "surrogateescape"))
    assert (place / "x").read_bytes() == b"caf\xe9"


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(place: Path) -> None:
    path = place / "x"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")  # a lone surrogate that stands for no byte
    assert path.read_text() == "old"
    target = place / "directory"
    target.mkdir()
    (target / "inside").touch()
    with pytest.raises(OSError, match="directory"):
        write_atomic(target, "x")
    assert sorted(os.listdir(place)) == ["directory", "x"]


def test_a_directory_that_is_missing_is_an_error_and_is_not_made(place: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(place / "no" / "x", "x")
    assert os.listdir(place) == []


def test_a_reader_beside_many_writers_sees_whole_contents_only(place: Path) -> None:
    path = place / "x"
    contents = [bytes([65 + number]) * 200_000 for number in range(4)]
    write_atomic(path, contents[0], durable=False)
    done = threading.Event()
    seen: set[bytes] = set()

    def read() -> None:
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()

    def write(content: bytes) -> None:
        for _ in range(20):
            write_atomic(path, content, durable=False)

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    done.set()
    reader.join()
    assert seen <= set(contents)
    assert os.listdir(place) == ["x"]
