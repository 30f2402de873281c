"""scripts/install-pyslurm.sh: what it installs for which Slurm, and the one line that says why it cannot."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "install-pyslurm.sh"

PYTHON = """#!/bin/sh
echo "$*" >>"$CALLS"
case "$*" in
  "-m pip --version") exit "${PIP:-0}" ;;
  *importlib.metadata*) [ "$INSTALLED" ] && echo "$INSTALLED" ;;
  "-m pip index versions pyslurm") [ "$LISTED" ] && printf 'pyslurm (x)\\nAvailable versions: %s\\n' "$LISTED" ;;
  "-m pip install"*) echo "$SLURM_INCLUDE_DIR $SLURM_LIB_DIR" >>"$CALLS"; echo "its last line"; exit "${BUILD:-0}" ;;
  "-c import pyslurm") [ "$PYSLURM_DISABLE_AUTO_INIT" ] || exit 1; echo "cannot import" >&2; exit "${IMPORT:-0}" ;;
  *version_info*) echo 3.11 ;;
  *base_prefix*) echo /opt/python ;;
esac
"""
HEADERS = {"25.11": "0x190b02", "22.05": "0x160508"}


class Host:
    """A host whose Python, Slurm and package database are executables of ours."""

    def __init__(self, root: Path) -> None:
        self.bin, self.include, self.lib, self.calls = root / "bin", root / "include", root / "lib", root / "calls"
        for place in (self.bin, self.include / "slurm", self.lib):
            place.mkdir(parents=True)
        self.calls.touch()
        self.program("python", PYTHON)
        self.program("dpkg-query", "#!/bin/sh\nprintf installed\n")
        self.program("apt-get", "#!/bin/sh\nexit 1\n")
        self.slurm("slurm-wlm 25.11.4")
        self.headers("25.11")
        (self.lib / "libslurmfull.so").touch()

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def slurm(self, says: str) -> None:
        for name in ("slurmd", "slurmctld", "squeue", "scontrol"):
            self.program(name, f"#!/bin/sh\necho '{says}'\n[ '{says}' ]\n")

    def headers(self, release: str) -> None:
        text = f"#define SLURM_VERSION_NUMBER {HEADERS[release]}\n"
        (self.include / "slurm" / "slurm_version.h").write_text(text)

    def install(self, **variables: str) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": f"{self.bin}:{os.environ.get('PATH', os.defpath)}",
            "PYTHON": str(self.bin / "python"),
            "CALLS": str(self.calls),
            "INSTALLED": "",
            "LISTED": "25.11.2, 25.11.1, 24.11.0",
            "SLURM_INCLUDE_DIR": str(self.include),
            "SLURM_LIB_DIR": str(self.lib),
        }
        return subprocess.run(
            ["bash", SCRIPT], env=env | variables, capture_output=True, text=True, timeout=60, check=False
        )

    @property
    def built(self) -> list[str]:
        """What pip was asked to build, and where it was told to find Slurm."""
        lines = self.calls.read_text().splitlines()
        return [f"{line.rsplit(' ', 1)[1]} {after}" for line, after in itertools.pairwise(lines) if "install" in line]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def refused(ran: subprocess.CompletedProcess[str], code: int, why: str) -> None:
    assert ran.returncode == code, ran
    assert ran.stderr.splitlines()[-1].startswith("PySlurm cannot be installed: ")
    assert why in ran.stderr.splitlines()[-1]


def test_the_newest_for_this_slurm_is_built_where_slurms_headers_and_library_are(host: Host) -> None:
    ran = host.install()
    assert ran.returncode == 0, ran
    assert "PySlurm 25.11.2 is installed" in ran.stdout
    assert host.built == [f"pyslurm==25.11.2 {host.include} {host.lib}"]


def test_what_is_there_and_fits_is_left_alone(host: Host) -> None:
    ran = host.install(INSTALLED="25.11.1", LISTED="")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert host.built == []


@pytest.mark.parametrize("says", ["slurm-wlm 22.05.8", "slurm 26.05.1", "slurm 25.1.0"])
def test_a_slurm_that_pypi_has_none_for(host: Host, says: str) -> None:
    host.slurm(says)
    version = says.split()[1]
    refused(host.install(), 4, f"this is Slurm {version}, and PyPI has no PySlurm for it (its newest is 25.11.2)")
    assert host.built == []


def test_without_a_slurm_a_pip_or_an_answer(host: Host) -> None:
    refused(host.install(LISTED=""), 4, "no network?")
    refused(host.install(PIP="1"), 3, "has no pip")
    host.slurm("")
    refused(host.install(), 3, "there is no Slurm here")


def test_headers_of_another_release_or_no_library(host: Host) -> None:
    host.headers("22.05")
    refused(host.install(), 5, "are of Slurm 22.05, and this is 25.11.4")
    host.headers("25.11")
    (host.lib / "libslurmfull.so").unlink()
    refused(host.install(), 5, "there is no libslurmfull.so")
    (host.include / "slurm" / "slurm_version.h").unlink()
    refused(host.install(), 5, "slurm_version.h (apt-get install libslurm-dev")
    assert host.built == []


def test_what_cannot_be_built_or_imported(host: Host) -> None:
    ran = host.install(BUILD="1")
    refused(ran, 6, "pip could not build PySlurm 25.11.2")
    assert "its last line" in ran.stderr
    refused(host.install(IMPORT="1"), 7, "its import fails: cannot import")
