"""scripts/setup_slurm.sh where no Slurm has to run: what it refuses, and what it does to files (--root).

The rest (packages, services, the proof, jobs that stay) needs a host with systemd: scripts/test-host.sh.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "setup_slurm.sh"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the script is for root alone")

MANIFEST = """gpuq-host 1
# made by hand
host ws
slurm 24.11
gpu /dev/nvidia0
dir 0750 daemon:daemon /var/lib/slurm
log 0644 daemon:daemon /var/lib/slurm/jobcomp.log
file 0644 root:root /etc/slurm/slurm.conf
file 0755 root:root /etc/slurm/epilog.sh
file 0640 root:daemon /etc/systemd/system/slurmd.service.d/gpuq.conf
unit gpuq-slurmd-recheck.service
"""


class Host:
    """A plan, and the root directory of a system that does not run."""

    def __init__(self, base: Path) -> None:
        self.root = base / "root"
        self.plan = base / "plan"
        self.write(self.root / "etc/hostname", "ws.example.org\n")
        self.write(self.plan / "MANIFEST", MANIFEST)
        self.write(self.plan / "etc/slurm/slurm.conf", "ClusterName=ws\n")
        self.write(self.plan / "etc/slurm/epilog.sh", "#!/bin/sh\n")
        self.write(self.plan / "etc/systemd/system/slurmd.service.d/gpuq.conf", "[Service]\n")

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def call(self, *args: str, code: int = 0, first_on_path: str = "") -> str:
        """What the script says on both channels; its exit status must be `code`."""
        # tests that are run under nohup(1) would hand on that a hangup is ignored
        argv = ["/usr/bin/env", "--default-signal=HUP", str(SCRIPT), "--root", str(self.root), *args, str(self.plan)]
        env = {**os.environ, "PATH": f"{first_on_path}:{os.environ['PATH']}" if first_on_path else os.environ["PATH"]}
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=env)
        assert done.returncode == code, done.stdout
        return done.stdout

    def tree(self) -> dict[str, tuple[object, ...]]:
        """Everything below the root: mode, owner, content and time of change."""
        found: dict[str, tuple[object, ...]] = {}
        for path in sorted(self.root.rglob("*")):
            seen = path.lstat()
            text = path.read_bytes() if path.is_file() else b""
            # The time of a folder changes when something in it comes and goes again.
            when = seen.st_mtime_ns if path.is_file() else 0
            found[str(path.relative_to(self.root))] = (oct(seen.st_mode), path.owner(), path.group(), text, when)
        return found

    def conf(self) -> Path:
        return self.root / "etc/slurm/slurm.conf"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def backups(host: Host) -> list[Path]:
    return sorted(host.root.rglob("*.bak"))


def test_installs_what_the_manifest_says_and_is_done_then(host: Host) -> None:
    assert "missing: /etc/slurm/slurm.conf" in host.call("--check", code=1)
    host.call("--dry-run")
    assert list(host.tree()) == ["etc", "etc/hostname"], "neither may change anything"

    assert "installed /etc/slurm/slurm.conf" in host.call()
    tree = host.tree()
    assert tree["etc/slurm/slurm.conf"][:4] == ("0o100644", "root", "root", b"ClusterName=ws\n")
    assert tree["etc/slurm/epilog.sh"][:3] == ("0o100755", "root", "root")
    assert tree["etc/systemd/system/slurmd.service.d/gpuq.conf"][:3] == ("0o100640", "root", "daemon")
    assert tree["var/lib/slurm"][:3] == ("0o40750", "daemon", "daemon")
    assert tree["var/lib/slurm/jobcomp.log"][:3] == ("0o100644", "daemon", "daemon")

    assert "nothing to do" in host.call()
    assert "no difference" in host.call("--check")
    assert host.tree() == tree


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("host other", "made for the host 'other', and this is 'ws'"),
        ("gpuq-host 2", "of the format '2'"),
        ("symlink 0644 root:root /etc/x", "does not know the word 'symlink'"),
        ("file 0644 root:root /etc/../etc/passwd", "not understood"),
        ("file 0644 root:root etc/passwd", "not understood"),
        ("file 4755 root:root /etc/x", "not understood"),
        ("file 0644 root /etc/x", "not understood"),
        ("file 0644 root:root /etc/x y", "not understood"),
        ("file 0644 root:root /etc/not-there", "no plain file is there"),
        ("file 0644 root:root /etc/link", "no plain file is there"),
    ],
)
def test_a_plan_that_is_not_for_this_host_or_not_understood_changes_nothing(host: Host, line: str, said: str) -> None:
    (host.plan / "etc/link").symlink_to("/etc/shadow")
    (host.plan / "MANIFEST").write_text(MANIFEST + line + "\n")
    before = host.tree()
    assert said in host.call(code=2)
    assert host.tree() == before


def test_refused_without_root_without_systemd_without_a_plan(host: Host) -> None:
    argv = ["setpriv", "--reuid=65534", "--clear-groups", str(SCRIPT), "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "Permission denied" not in done.stderr:  # a tree that only root can read
        assert (done.returncode, "only root" in done.stderr) == (2, True), done.stderr
    if not Path("/run/systemd/system").exists():
        done = subprocess.run([str(SCRIPT), "--check"], capture_output=True, text=True, check=False)
        assert (done.returncode, "gpuq local up" in done.stderr) == (2, True), done.stderr
    shutil.rmtree(host.plan)
    assert "gpuq host plan" in host.call(code=2)
    assert "no such option" in host.call("--chekc", code=2)


def test_a_file_that_differs_stays_unless_it_is_to_be_replaced_and_comes_back(host: Host) -> None:
    host.write(host.conf(), "ClusterName=mine\n")
    host.conf().chmod(0o600)
    before = host.tree()
    assert "differs: /etc/slurm/slurm.conf" in host.call(code=2)
    assert "-ClusterName=mine" in host.call("--dry-run")
    assert host.tree() == before

    said = host.call("--replace")
    (kept,) = backups(host)
    assert kept.read_text() == "ClusterName=mine\n"
    assert f"/{kept.relative_to(host.root)}" in said
    assert host.conf().read_text() == "ClusterName=ws\n"

    # A second replacement does not touch what the first found.
    host.write(host.plan / "etc/slurm/slurm.conf", "ClusterName=ws2\n")
    assert "differs" in host.call("--check", code=1)
    host.call("--replace")
    host.call("--uninstall")
    after = {name: seen for name, seen in host.tree().items() if not name.endswith(".bak")}
    logs = [name for name in after if name.startswith("var")]
    assert logs == ["var", "var/lib", "var/lib/slurm", "var/lib/slurm/jobcomp.log"], "logs stay"
    assert {name: after[name] for name in after if name not in logs} == before
    assert "nothing was set up" in host.call("--uninstall")


def test_uninstall_keeps_what_was_changed_since(host: Host) -> None:
    host.call()
    host.write(host.conf(), "ClusterName=edited\n")
    host.call("--uninstall")
    (kept,) = backups(host)
    assert kept.read_text() == "ClusterName=edited\n"
    assert not host.conf().exists()
    assert not (host.root / "etc/systemd").exists(), "folders that it made go, too"


def test_what_a_later_plan_leaves_out_is_put_back(host: Host) -> None:
    host.write(host.root / "etc/slurm/epilog.sh", "#!/bin/sh\n# mine\n")
    host.call("--replace")
    drop_in = "/etc/systemd/system/slurmd.service.d/gpuq.conf"
    kept = [line for line in MANIFEST.splitlines() if "epilog" not in line and drop_in not in line]
    (host.plan / "MANIFEST").write_text("\n".join(kept) + "\n")
    assert f"no longer planned: {drop_in}" in host.call("--check", code=1)
    host.call()
    assert (host.root / "etc/slurm/epilog.sh").read_text() == "#!/bin/sh\n# mine\n"
    assert not Path(f"{host.root}{drop_in}").exists()
    assert "no difference" in host.call("--check")
    host.call("--uninstall")
    assert (host.root / "etc/slurm/epilog.sh").read_text() == "#!/bin/sh\n# mine\n"


def test_a_failure_half_way_puts_everything_back(host: Host) -> None:
    host.write(host.conf(), "ClusterName=mine\n")
    host.write(host.root / "etc/systemd", "in the way of a folder\n")
    before = host.tree()
    assert "putting back what was there" in host.call("--replace", code=1)
    after = {name: seen for name, seen in host.tree().items() if not name.startswith("var")}
    assert after == before


@pytest.mark.parametrize("signal", ["HUP", "TERM"])
def test_a_connection_that_is_lost_half_way_puts_everything_back(host: Host, tmp_path: Path, signal: str) -> None:
    host.write(host.conf(), "ClusterName=mine\n")
    before = host.tree()
    shim = tmp_path / "bin/install"  # it is what writes the new file beside the old one
    host.write(shim, f'#!/bin/sh\ncase $* in *gpuq-new) kill -{signal} "$PPID" ;; esac\nexec /usr/bin/install "$@"\n')
    shim.chmod(0o755)
    assert "putting back what was there" in host.call("--replace", code=1, first_on_path=str(shim.parent))
    after = {name: seen for name, seen in host.tree().items() if not name.startswith("var")}
    assert after == before


def test_two_set_ups_at_once_are_refused(host: Host) -> None:
    held = os.open(host.root, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another set-up" in host.call(code=2)
        host.call("--check", code=1)
    finally:
        os.close(held)
    host.call()


def test_what_a_set_up_had_not_yet_begun_is_no_obstacle(host: Host) -> None:
    """The power went while the place for what was there was made."""
    host.write(host.root / "var/lib/gpuq-setup/unfinished.new/absent", "")
    host.call()
    assert not (host.root / "var/lib/gpuq-setup/unfinished.new").exists()


def test_an_interrupted_set_up_is_put_back_by_the_next(host: Host) -> None:
    host.call()
    record = host.root / "var/lib/gpuq-setup"
    unfinished = record / "unfinished"
    unfinished.mkdir()
    # As a power cut in the middle of an update leaves it: the new file is there, the old one in the archive.
    argv = ["tar", "-cf", str(unfinished / "files.tar"), "-C", str(host.root), "etc/slurm/slurm.conf"]
    subprocess.run(argv, check=True)
    (unfinished / "absent").write_text("/etc/slurm/half\n")
    host.write(host.conf(), "Cluster")
    host.write(host.root / "etc/slurm/half", "x")
    assert "interrupted" in host.call()
    assert host.conf().read_text() == "ClusterName=ws\n"
    assert not (host.root / "etc/slurm/half").exists()
    assert not unfinished.exists()
