"""Which backend is chosen, and the reason that is given for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuq.adapters.slurm import choose as module
from gpuq.adapters.slurm.choose import choose, why_not_pyslurm
from gpuq.adapters.slurm.client import SlurmCommands
from gpuq.adapters.slurm.locate import Location, Source
from gpuq.adapters.slurm.pyslurm import PySlurm
from gpuq.errors import ConfigError
from tests.gpuq_cli import Project


class Host:
    """A host with a PySlurm package, a squeue, and a slurm.conf; none of them does more than be there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.package = root / "site" / "pyslurm"
        self.package.mkdir(parents=True)
        self.imported = root / "imported"
        self.conf = root / "etc" / "slurm.conf"
        self.conf.parent.mkdir()
        self.conf.write_text("ClusterName=c\n")
        self.bin = root / "bin"
        self.bin.mkdir()
        self.location = Location(Source.ENVIRONMENT, self.conf)
        self.environment = {
            "PATH": f"{self.bin}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(root / "home"),
            "PYTHONPATH": str(self.package.parent),
        }
        self.pyslurm("25.11.2")
        self.squeue("slurm 25.11.4")

    def pyslurm(self, version: str, code: str = "") -> None:
        (self.package / "version.py").write_text(f'# PySlurm\n__version__ = "{version}"\n')
        (self.package / "__init__.py").write_text(f"open({str(self.imported)!r}, 'a').write('x')\n{code}\n")

    def squeue(self, says: str, code: int = 0) -> None:
        path = self.bin / "squeue"
        path.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
        path.chmod(0o755)

    @property
    def imports(self) -> int:
        return len(self.imported.read_text()) if self.imported.exists() else 0

    def why_not(self) -> str:
        return why_not_pyslurm(self.location, self.environment)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path / "host")
    monkeypatch.syspath_prepend(made.package.parent)
    return made


def test_without_pyslurm_nothing_is_run_and_nothing_is_imported(
    monkeypatch: pytest.MonkeyPatch, host: Host, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    choice = choose(host.location, {"PATH": str(tmp_path)})
    assert (choice.name, choice.reason) == ("commands", "squeue reads the queue: PySlurm is not installed")
    assert type(choice.slurm) is SlurmCommands
    assert "pyslurm" not in sys.modules


def test_pyslurm_that_fits_is_chosen(host: Host) -> None:
    choice = choose(host.location, host.environment)
    assert (choice.name, type(choice.slurm)) == ("pyslurm", PySlurm)
    assert "fits the Slurm here" in choice.reason
    assert "pyslurm" not in sys.modules


def test_the_commands_can_be_forced(host: Host) -> None:
    choice = choose(host.location, host.environment | {"GPUQ_BACKEND": "commands"})
    assert (choice.name, choice.reason) == ("commands", "squeue reads the queue: GPUQ_BACKEND=commands")
    assert host.imports == 0


def test_pyslurm_can_be_forced_where_it_fits(host: Host) -> None:
    assert choose(host.location, host.environment | {"GPUQ_BACKEND": "pyslurm"}).name == "pyslurm"


def test_pyslurm_that_is_forced_but_does_not_fit_is_an_error(host: Host) -> None:
    host.squeue("slurm-wlm 22.05.8")
    with pytest.raises(ConfigError, match=r"GPUQ_BACKEND=pyslurm, but PySlurm 25\.11\.2 is for Slurm 25\.11") as caught:
        choose(host.location, host.environment | {"GPUQ_BACKEND": "pyslurm"})
    assert "install-pyslurm" in caught.value.hint


@pytest.mark.parametrize("value", ["slurm", "PySlurm", "commands "])
def test_any_other_backend_is_an_error(host: Host, value: str) -> None:
    with pytest.raises(ConfigError, match="neither 'commands' nor 'pyslurm'"):
        choose(host.location, {"GPUQ_BACKEND": value})


def test_another_release_is_told_and_not_imported(host: Host) -> None:
    host.squeue("slurm-wlm 26.05.1")
    assert host.why_not() == "PySlurm 25.11.2 is for Slurm 25.11, and this is 26.05.1"
    assert host.imports == 0


@pytest.mark.parametrize(("says", "code"), [("", 0), ("slurm", 0), ("slurm 25.11.2", 1), ("Python 25.11.2", 0)])
def test_commands_that_do_not_say_their_release(host: Host, says: str, code: int) -> None:
    host.squeue(says, code)
    assert host.why_not() == "squeue does not say which Slurm this is"
    assert host.imports == 0


def test_no_commands(host: Host) -> None:
    host.environment["PATH"] = str(host.root)
    assert host.why_not() == "squeue does not say which Slurm this is"


def test_a_pyslurm_that_does_not_say_its_version(host: Host) -> None:
    (host.package / "version.py").unlink()
    assert "does not say its version" in host.why_not()


def test_a_configuration_that_is_missing_would_end_the_process(host: Host) -> None:
    host.conf.unlink()
    assert "slurm.conf cannot be read (No such file or directory)" in host.why_not()
    assert host.imports == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_configuration_that_may_not_be_read(host: Host) -> None:
    host.conf.chmod(0)
    assert "Permission denied" in host.why_not()


@pytest.mark.parametrize("location", [Location(Source.NONE, None), Location(Source.ENVIRONMENT, None)])
def test_no_configuration_to_check(host: Host, location: Location) -> None:
    assert "no slurm.conf here" in why_not_pyslurm(location, host.environment)


def test_the_systems_own_configuration(host: Host) -> None:
    location = Location(Source.SYSTEM, None)
    nowhere = host.root / "nowhere"
    assert why_not_pyslurm(location, host.environment, system=(nowhere, host.conf)) == ""
    assert "no slurm.conf here" in why_not_pyslurm(location, host.environment, system=(nowhere,))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise ImportError('libslurmfull.so: cannot open shared object file')", "libslurmfull.so: cannot open"),
        (
            "import sys; print('fatal: Unable to process configuration file', file=sys.stderr); sys.exit(1)",
            "fatal: Unable",
        ),
        ("import os; os._exit(1)", "exit 1"),
        ("import os; os.kill(os.getpid(), 11)", "exit -11"),
    ],
)
def test_an_import_that_ends_the_process_ends_a_child(host: Host, code: str, words: str) -> None:
    host.pyslurm("25.11.2", code)
    obstacle = host.why_not()
    assert obstacle.startswith("PySlurm cannot be imported: ")
    assert words in obstacle
    assert choose(host.location, host.environment).name == "commands"
    assert host.imports == 2  # a failure is not remembered: it may have been cured


def test_an_import_that_hangs(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.pyslurm("25.11.2", "import time; time.sleep(600)")
    monkeypatch.setattr(module, "PROBE_TIMEOUT", 1.0)
    assert "gave no answer within 1 s" in host.why_not()


def test_an_import_that_went_well_is_tried_again_only_when_something_has_changed(host: Host) -> None:
    for _ in range(3):
        assert host.why_not() == ""
    assert host.imports == 1
    host.conf.write_text("ClusterName=another\n")
    assert host.why_not() == ""
    assert host.imports == 2
    (host.conf.parent / "gres.conf").write_text("\n")
    assert host.why_not() == ""
    assert host.imports == 3
    host.squeue("slurm 25.11.50")
    assert host.why_not() == ""
    assert host.imports == 4
    host.pyslurm("25.11.30")
    assert host.why_not() == ""
    assert host.imports == 5
    host.squeue("slurm 26.05.1")
    assert "is for Slurm 25.11" in host.why_not()


def test_a_home_that_cannot_be_written_only_costs_time(host: Host) -> None:
    host.environment["HOME"] = str(host.conf)
    assert host.why_not() == ""
    assert host.why_not() == ""
    assert host.imports == 2


def test_debug_shows_the_choice_and_its_reason(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    ran = project.gpuq("--debug", "queue", env={"GPUQ_BACKEND": "commands", "PATH": str(tmp_path)})
    assert "squeue reads the queue: GPUQ_BACKEND=commands" in ran.stderr
    assert "neither 'commands' nor 'pyslurm'" in project.gpuq("queue", env={"GPUQ_BACKEND": "x"}).exits(3).stderr


def test_choosing_without_pyslurm_imports_nothing_of_it() -> None:
    code = (
        "import sys, gpuq.cli.context\n"
        "from gpuq.adapters.slurm.choose import choose\n"
        "from gpuq.adapters.slurm.locate import Location, Source\n"
        "before = set(sys.modules)\n"
        "choose(Location(Source.NONE, None), {})\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    root = Path(module.__file__).parents[3]
    ran = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=True
    )
    assert set(ran.stdout.split()) <= {"importlib.machinery"}
