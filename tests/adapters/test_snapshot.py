"""The frozen copy of a tree, made by a real git: what is in it, what it links to, and that nothing stays of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuq.adapters import git, snapshot
from gpuq.adapters.configfiles import find_project
from gpuq.core.experiment.provenance import differing
from tests.gpuq_cli import until

TOKEN = "0123456789abcdef"


def run(place: Path, *args: str) -> str:
    argv = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always", *args]
    return subprocess.run(argv, cwd=place, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A work tree whose project is a directory in it, with everything that a tree may have."""
    top = tmp_path / "tree"
    project = top / "proj"
    run_dir = project / "runs" / "dino" / "a"
    run_dir.mkdir(parents=True)
    (project / "gpuq.toml").touch()
    (project / "train.py").write_text("one\n")
    (project / "gone.py").write_text("")
    (project / "bin").write_bytes(bytes(range(256)))
    (top / "shared.py").write_text("one\n")
    (run_dir / "job.sh").write_text("#!/bin/bash\n")
    (project / "runs" / "dino" / "common.py").write_text("one\n")
    (top / ".gitignore").write_text("data/\n*.pt\n")
    run(top, "init", "-q")
    library = tmp_path / "library"
    library.mkdir()
    run(library, "init", "-q")
    (library / "lib.py").touch()
    run(library, "add", "-A")
    run(library, "commit", "-qm", "lib")
    run(top, "submodule", "--quiet", "add", str(library), "proj/lib")
    run(top, "add", "-A")
    run(top, "commit", "-qm", "one")
    hook = top / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    # and now what is not committed, not known to git, or ignored
    (project / "train.py").write_text("two\n")
    (project / "gone.py").unlink()
    (project / "bin").write_bytes(bytes(range(255, -1, -1)))
    (project / "train.py").chmod(0o755)
    (project / "new dir").mkdir()
    (project / "new dir" / "b\nc.py").write_text("new")
    (project / ".venv" / "bin").mkdir(parents=True)
    (project / ".venv" / "bin" / "python").touch()
    (project / "lib" / "lib.py").write_text("edited")
    run(project / "lib", "commit", "-qam", "moved on")
    (project / "lib" / "lib.py").write_text("edited again")
    (project / "staged.py").write_text("staged")
    run(top, "add", "proj/staged.py")
    (project / "link.py").symlink_to("train.py")
    run(top, "add", "proj/link.py")
    (project / "weights.bin").write_bytes(b"x" * 2048)
    (project / "data").mkdir()
    (project / "data" / "x").write_text("real")
    (run_dir / "cv.json").write_text("{}")
    (run_dir / "best.pt").write_text("")
    (project / "runs" / "dino" / "other.pt").write_text("other")
    return top


def frozen(top: Path) -> tuple[Path, list[str]]:
    project = top / "proj"
    commit, dirty = git.Head(project).answer()
    assert commit is not None
    assert dirty
    patch = git.Difference(project, commit, "runs").answer()
    assert patch is not None
    notes = snapshot.make(project, project / "runs", "dino/a", TOKEN, commit, patch)
    return snapshot.project_in(project / "runs", TOKEN, project), notes


def test_a_copy_is_the_tree_as_it_is_with_data_and_the_run_directory_linked(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "_LARGE", 1024)
    project = top / "proj"
    before = run(top, "status", "--porcelain")
    copy, notes = frozen(top)
    assert copy == project / "runs" / ".gpuq" / "snapshots" / TOKEN / "proj"
    assert notes == ["not frozen, because large: proj/weights.bin", "not frozen, because submodules: proj/lib"]
    (project / "train.py").write_text("three\n")
    (top / "shared.py").write_text("three\n")
    assert (copy / "train.py").read_text() == "two\n"
    assert (copy / "train.py").stat().st_mode & 0o100
    assert (copy.parent / "shared.py").read_text() == "one\n"
    assert not (copy / "gone.py").exists()
    assert (copy / "staged.py").read_text() == "staged"
    assert (copy / "link.py").readlink() == Path("train.py")
    assert (copy / "bin").read_bytes() == bytes(range(255, -1, -1))
    assert (copy / "new dir" / "b\nc.py").read_text() == "new"
    assert not (copy / "new dir").is_symlink()
    for linked in (".venv", "weights.bin", "data", "lib", "runs/dino/a", "runs/dino/other.pt"):
        assert (copy / linked).is_symlink()
        assert (copy / linked).resolve() == project / linked
    assert (copy / "runs" / "dino" / "common.py").read_text() == "one\n"
    assert not (copy.parent / "hooked").exists()
    assert run(copy, "rev-parse", "HEAD") == run(top, "rev-parse", "HEAD")
    # gpuq in the job finds the records, and git in the tree does not see the copy
    assert find_project(copy / "new dir", os.environ).root == project
    (project / "train.py").write_text("two\n")
    (top / "shared.py").write_text("one\n")
    assert run(top, "status", "--porcelain") == before

    snapshot.remove(project, project / "runs", TOKEN)
    assert not (project / "runs" / ".gpuq" / "snapshots").exists()
    assert (project / "data" / "x").read_text() == "real"
    assert (project / "runs" / "dino" / "a" / "best.pt").exists()
    assert run(top, "worktree", "list").count("\n") == 0


def test_what_a_job_writes_into_the_copy_is_moved_out_of_it(top: Path, tmp_path: Path) -> None:
    project = top / "proj"
    copy, _ = frozen(top)
    until(lambda: (copy / "new dir" / "b\nc.py").stat().st_ctime_ns < _now(tmp_path), lambda: "the clock stands still")
    (copy / "checkpoints").mkdir()
    (copy / "checkpoints" / "last.pt").write_text("hours of work")  # git ignores it
    (copy / "checkpoints" / "latest").symlink_to("last.pt")
    (copy / "shared.log").write_text("new")
    (copy / "train.py").write_text("edited by the job\n")
    os.utime(copy / "shared.log", (0, 0))  # as tar(1) leaves it
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "x.pyc").touch()
    (copy / "data" / "y").write_text("where it belongs")
    os.mkfifo(copy / "pipe")
    keep = project / "runs" / "dino" / "a" / "slurm" / "attempt1.left"
    moved = snapshot.remove(project, project / "runs", TOKEN, keep=keep)
    names = ["checkpoints/last.pt", "checkpoints/latest", "shared.log", "train.py"]
    assert moved == [f"proj/{name}" for name in names]
    assert (keep / "proj" / "checkpoints" / "latest").read_text() == "hours of work"
    assert (project / "data" / "y").exists()
    assert not (project / "runs" / ".gpuq" / "snapshots").exists()

    frozen(top)
    assert snapshot.remove(project, project / "runs", TOKEN, keep=keep.with_name("attempt2.left")) == []
    assert not keep.with_name("attempt2.left").exists()


def test_what_a_gpuq_that_was_killed_had_copied_by_then_is_no_jobs(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = top / "proj"
    runs = project / "runs"
    copy = snapshot.project_in(runs, TOKEN, project)

    def killed_after_one_file(*args: object) -> list[str]:
        until(lambda: (copy.parent / ".git").stat().st_ctime_ns < _now(tmp_path), lambda: "the clock stands still")
        (copy / "new.py").write_text("copied")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "_fill", killed_after_one_file)
        patch.setattr(snapshot, "remove", lambda *args: None)
        with pytest.raises(KeyboardInterrupt):
            snapshot.make(project, runs, "dino/a", TOKEN, run(top, "rev-parse", "HEAD"), "")
    assert (copy / "new.py").exists()
    assert snapshot.sweep(project, runs, ()) == []
    assert not (runs / ".gpuq" / "left").exists()
    assert not (runs / ".gpuq" / "snapshots").exists()
    assert len(run(top, "worktree", "list").splitlines()) == 1


def _now(place: Path) -> int:
    """The file system's clock, which is coarse."""
    (place / "now").write_text("")
    return (place / "now").stat().st_ctime_ns


def test_a_repository_in_the_tree_is_linked_and_told(top: Path) -> None:
    other = top / "proj" / "cloned"
    other.mkdir()
    run(other, "init", "-q")
    (other / "module.py").touch()
    run(other, "add", "-A")
    run(other, "commit", "-qm", "one")
    copy, notes = frozen(top)
    assert "not frozen, because repositories of their own: proj/cloned/" in notes
    assert (copy / "cloned" / "module.py").exists()


def test_a_runs_root_that_git_ignores_is_linked_as_a_whole(top: Path) -> None:
    project = top / "proj"
    run(top, "rm", "-rq", "--cached", "proj/runs")
    with (top / ".gitignore").open("a") as ignore:
        ignore.write("proj/runs/\n")
    run(top, "commit", "-aqm", "two")
    (project / "train.py").write_text("three\n")
    copy, _ = frozen(top)
    assert (copy / "runs").resolve() == project / "runs"
    snapshot.remove(project, project / "runs", TOKEN)
    assert (project / "runs" / "dino" / "a" / "job.sh").exists()


def test_the_users_own_ways_of_git_change_nothing(top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "gitconfig"
    config.write_text(
        "[diff]\nnoprefix = true\nmnemonicPrefix = true\nexternal = false\ncontext = 0\nrenames = copies\n"
        "relative = true\nsubmodule = log\n[color]\nui = always\n[apply]\nwhitespace = error-all\n"
        "[status]\nshowUntrackedFiles = no\n[submodule]\nrecurse = true\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    (top / "proj" / "ü b.py").write_text("one  \n")
    run(top, "add", "-N", "proj/ü b.py")
    (top / "shared.py").write_text("two")
    copy, _ = frozen(top)
    assert (copy / "train.py").read_text() == "two\n"
    assert (copy.parent / "shared.py").read_text() == "two"
    assert (copy / "ü b.py").read_text() == "one  \n"
    patch = git.Difference(top / "proj", run(top, "rev-parse", "HEAD"), "runs").answer()
    assert patch is not None
    assert {"shared.py", "proj/ü b.py"} <= set(differing(patch, ""))


def test_a_copy_that_cannot_be_made_leaves_nothing(top: Path) -> None:
    project = top / "proj"
    head = run(top, "rev-parse", "HEAD")
    for commit, patch, says in (("f" * 40, "", "git worktree"), (head, "no patch\n", "git apply")):
        with pytest.raises(snapshot.SnapshotFailed, match=says):
            snapshot.make(project, project / "runs", "dino/a", TOKEN, commit, patch)
        assert not (project / "runs" / ".gpuq" / "snapshots").exists()
        assert run(top, "worktree", "list").count("\n") == 0


def test_data_that_git_does_not_ignore_are_not_copied(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_MOST", 1)
    with pytest.raises(snapshot.SnapshotFailed, match=r"belong into \.gitignore"):
        frozen(top)
    assert not (top / "proj" / "runs" / ".gpuq" / "snapshots").exists()


def test_copies_of_attempts_that_are_over_are_swept(top: Path) -> None:
    project = top / "proj"
    copy, _ = frozen(top)
    snapshot.sweep(project, project / "runs", [TOKEN])
    assert copy.is_dir()
    snapshot.sweep(project, project / "runs", ["another"])
    assert not copy.exists()
    assert run(top, "worktree", "list").count("\n") == 0


def test_what_git_says_of_a_tree_survives_renames_and_odd_names(top: Path) -> None:
    project = top / "proj"
    run(top, "mv", "proj/bin", "proj/ba\tr")
    head = git.Head(project)
    commit, dirty = head.answer()
    assert dirty
    assert set(head.untracked) == {"proj/.venv/", "proj/new dir/", "proj/weights.bin", "proj/runs/dino/a/cv.json"}
    assert commit is not None
    assert set(git.changed_names(project, commit, None, "runs") or ()) == {
        "proj/ba\tr",
        "proj/bin",
        "proj/gone.py",
        "proj/lib",
        "proj/link.py",
        "proj/staged.py",
        "proj/train.py",
    }
    assert git.changed_names(project, "f" * 40, None, "runs") is None
    clean = git.Head(top.parent)  # no work tree
    assert clean.answer() == (None, None)
