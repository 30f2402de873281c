"""`gpuq host plan`: what it writes, what it shows, and that it changes nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuq.adapters import hostfacts, planfacts
from gpuq.adapters.hostfiles import Roots
from gpuq.cli.host import host
from gpuq.core.checks import checkup
from gpuq.core.host.plan import Wishes
from gpuq.errors import HostError
from gpuq.usecases.hostsetup import HostPlan, host_plan
from tests.core.reference_host import REFERENCE, rendered


def planned(tmp_path: Path, *, dry_run: bool = False) -> HostPlan:
    """The plan of the reference machine, whose file system is `tmp_path`/root."""
    (tmp_path / "root").mkdir(exist_ok=True)
    return host_plan(
        {},
        Wishes(),
        project=tmp_path / "project",
        directory=None,
        dry_run=dry_run,
        roots=Roots(root=tmp_path / "root"),
        seen=REFERENCE,
    )


def install(tmp_path: Path) -> None:
    """What the set-up does with the directory."""
    for name, (text, mode) in rendered().items():
        if name != "MANIFEST":
            path = tmp_path / "root" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(mode)


def test_the_directory_of_the_host_is_written(tmp_path: Path) -> None:
    made = planned(tmp_path)
    directory = tmp_path / "project/ops/slurm/ws"
    assert made.directory == str(directory)
    for name, (text, mode) in rendered().items():
        assert (directory / name).read_text() == text
        assert (directory / name).stat().st_mode & 0o777 == mode
    assert {one.state for one in made.files} == {"new"}
    assert list((tmp_path / "root").iterdir()) == []
    assert (made.memory, made.reserved) == (54000, 62464 - 54000)
    again = planned(tmp_path)
    assert again.rewritten == ()


def test_what_differs_is_shown_and_what_was_edited_is_told(tmp_path: Path) -> None:
    install(tmp_path)
    assert {one.state for one in planned(tmp_path).files} == {"same"}
    conf = tmp_path / "root/etc/slurm/slurm.conf"
    conf.write_text(conf.read_text().replace("KillWait=20", "KillWait=99"))
    (tmp_path / "root/etc/slurm/epilog.sh").chmod(0o644)  # slurmd could not run it, and would drain the node
    made = {one.path: one for one in planned(tmp_path).files}
    assert made["/etc/slurm/slurm.conf"].state == "changed"
    assert "-KillWait=99\n+KillWait=20\n" in made["/etc/slurm/slurm.conf"].diff
    assert made["/etc/slurm/epilog.sh"].state == "changed"
    mine = tmp_path / "project/ops/slurm/ws/etc/slurm/slurm.conf"
    mine.write_text("edited\n")
    looked = planned(tmp_path, dry_run=True)
    assert looked.rewritten == ("etc/slurm/slurm.conf",)
    assert not looked.written
    assert mine.read_text() == "edited\n"


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    planned(tmp_path, dry_run=True)
    assert not (tmp_path / "project").exists()


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "project").write_text("a file")
    with pytest.raises(HostError, match="Not a directory"):
        planned(tmp_path)


def test_the_doctor_compares_with_what_was_planned(tmp_path: Path) -> None:
    planned(tmp_path)
    install(tmp_path)
    directory = tmp_path / "project/ops/slurm/ws"
    conf = tmp_path / "root/etc/slurm/slurm.conf"

    def verdict() -> tuple[str, tuple[str, ...]]:
        facts = hostfacts.from_files(conf, Roots(root=tmp_path / "root"), planned=directory, hostname="ws")
        (check,) = [one for one in checkup.examine(facts) if one.id == "planned-conf"]
        return check.verdict, check.repair

    assert verdict() == ("ok", ())
    conf.write_text(conf.read_text() + "KillWait=5\n")
    assert verdict() == ("warning", (f"diff -u {directory}/etc/slurm/slurm.conf {conf}",))


def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *args: str) -> str:
    monkeypatch.setattr(planfacts, "see", lambda *_: REFERENCE)
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(host, ["plan", *args], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_a_person_reads_what_each_line_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = shown(tmp_path, monkeypatch, "--dir", "here")
    assert "20 CPUs, 62464 MB" in out
    assert "no GPU, at most 12 CPUs and 25320 MB" in out
    assert "/etc/slurm/epilog.sh: ends what a job left on the GPU" in out
    assert "sudo scripts/setup_slurm.sh here" in out
    assert (tmp_path / "here/MANIFEST").exists()
    dry = shown(tmp_path, monkeypatch, "--dir", "there", "--dry-run")
    assert "would write: there" in dry
    assert "24.11 (slurmd -V)" in dry
    asked = shown(tmp_path, monkeypatch, "--dry-run", "--slurm", "26.05")
    assert "26.05 (as asked for; slurmd -V: 24.11)" in asked
    assert not (tmp_path / "there").exists()


def test_a_program_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(shown(tmp_path, monkeypatch, "--dry-run", "--json", "--reserve", "8G", "--slurm", "22.05"))
    assert found["schema"] == "gpuq.host-plan/1"
    assert found["host"] == "ws"
    assert found["slurm"] == "22.05"
    assert found["memory"] == 54000
    settings = {one["line"]: one["why"] for one in found["settings"]}
    assert "half" not in settings["KillWait=20"]
    assert settings["ReturnToService=2"].startswith("The node comes back")
    assert [one["name"] for one in found["partitions"]] == ["gpu", "cpu", "bg"]


@pytest.mark.parametrize("text", ["24", "latest", "24.11.5.x y", "2411"])
def test_a_release_that_is_none_is_a_usage_error(text: str) -> None:
    from gpuq.cli.host import _release
    from gpuq.errors import UsageError

    with pytest.raises(UsageError):
        _release(text)
    assert _release("24.11.5") == (24, 11)
