"""What is read of a project and its host, from files alone."""

from __future__ import annotations

from pathlib import Path

from gpuq.adapters import codestate
from gpuq.core.experiment.provenance import differing, few, is_code, is_lock


def test_lock_files_are_hashed_and_others_are_not(tmp_path: Path) -> None:
    for name in (
        "uv.lock",
        "requirements-dev.txt",
        "environment.yml",
        "flake.lock",
        "conda-linux-64.lock",
        "notes.txt",
    ):
        (tmp_path / name).write_text("x")
    (tmp_path / "poetry.lock").mkdir()
    found = codestate.lock_files(tmp_path)
    assert [lock.name for lock in found] == ["environment.yml", "flake.lock", "requirements-dev.txt", "uv.lock"]
    assert {lock.sha256 for lock in found} == {codestate.sha256("x")}
    assert codestate.lock_files(tmp_path / "nowhere") == ()


def test_the_python_of_a_project_is_what_its_files_say(tmp_path: Path) -> None:
    assert codestate.python_of(tmp_path, {}) is None
    for name, line in ((".venv", "version = 3.11.2\n"), ("other", "home = /usr\nversion_info = 3.12.1.final.0\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyvenv.cfg").write_text(line)
    assert codestate.python_of(tmp_path, {}) == f"3.11.2 in {tmp_path}/.venv"
    other = str(tmp_path / "other")
    assert codestate.python_of(tmp_path, {"VIRTUAL_ENV": other}) == f"3.12.1.final.0 in {other}"
    conda = tmp_path / "conda"
    (conda / "conda-meta").mkdir(parents=True)
    (conda / "conda-meta" / "python-3.10.4-h1_0.json").touch()
    assert codestate.python_of(tmp_path / "x", {"CONDA_PREFIX": str(conda)}) == f"3.10.4 in {conda}"


def test_driver_and_gpu_come_from_the_drivers_own_files(tmp_path: Path) -> None:
    assert codestate.driver_and_gpu(tmp_path) == (None, None)
    version = tmp_path / "version"
    version.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC version: …\n"
    )
    place = tmp_path / "gpus" / "0000:01:00.0"
    place.mkdir(parents=True)
    (place / "information").write_text("Model: \t\t NVIDIA GeForce RTX 3090\nIRQ:   \t\t 131\n")
    assert codestate.driver_and_gpu(tmp_path) == ("535.183.01", "NVIDIA GeForce RTX 3090")
    version.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build\n")
    assert codestate.driver_and_gpu(tmp_path)[0] == "570.86.10"


def test_code_that_git_does_not_have_is_named_and_data_is_not(tmp_path: Path) -> None:
    project = tmp_path / "proj"
    names = ("proj/a.py", "proj/runs/x/b.py", "proj/sub/", "proj/w.bin", "top.yaml", "proj/runs/")
    found = codestate.code_among(names, tmp_path, project, project / "runs")
    assert found == ("a.py", "sub/", "../top.yaml")
    assert is_code("x/y.PY")
    assert not is_code("x.d/y")
    assert is_lock("conda-lock.yml")
    assert few("abcdefg", 3) == "a, b, c and 4 more"


def test_files_that_a_script_names_and_what_became_of_them(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for name in ("train.py", "src/m.py", "w.bin"):
        (tmp_path / name).touch()
    script = "python ./train.py --config none.yaml src/m.py w.bin ../x.py /etc/x.py"
    assert codestate.named_files(tmp_path, script) == ("train.py", "src/m.py")
    moment = (tmp_path / "train.py").stat().st_mtime
    assert codestate.newer_than(tmp_path, ["train.py", "lost.py", "src/"], moment) == ["lost.py"]
    assert codestate.newer_than(tmp_path, ["train.py"], moment - 1) == ["train.py"]


def test_two_patches_are_compared_file_by_file() -> None:
    one, two = "diff --git a/a b.py b/a b.py\n@@\n+1\n", "diff --git a/c.py b/c.py\n@@\n+2\n"
    assert differing(one + two, one) == ["c.py"]
    assert differing(one, one.replace("+1", "+9") + two) == ["a b.py", "c.py"]
    assert differing("", "") == []
