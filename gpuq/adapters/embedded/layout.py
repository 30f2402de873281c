"""Where the embedded Slurm keeps what. Cheap to import: the client looks here for slurm.conf on every call."""

from __future__ import annotations

import os
from pathlib import Path

from gpuq.errors import HostError

STATE_FILE = "local.json"
"""Lies beside slurm.conf exactly when the Slurm is an embedded one."""

SOCKET_LIMIT = 107
"""Bytes of a unix socket's path, without the final NUL (unix(7), sun_path[108])."""

_LONGEST_STEP_SOCKET = len("/spool/") + len("gpuqxxxxxx_") + len("67108863.") + len("4294967291")


def default_dir() -> Path:
    """$GPUQ_LOCAL_DIR, else $XDG_STATE_HOME/gpuq/local, else ~/.local/state/gpuq/local."""
    if chosen := os.environ.get("GPUQ_LOCAL_DIR"):
        return Path(chosen).absolute()
    state = os.environ.get("XDG_STATE_HOME") or ""
    # The XDG base directory specification: a relative path is to be ignored.
    base = Path(state) if state.startswith("/") else _home() / ".local" / "state"
    return base / "gpuq" / "local"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # no HOME, and a user id without a name, as in containers
        return Path("/")


def conf_path(directory: Path) -> Path:
    """slurm.conf of the embedded Slurm in `directory`; it exists from `up` until `down`."""
    return directory / "slurm.conf"


class Layout:
    """The files below one private directory."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory.resolve()  # daemons are recognised by this path, so it must be the one true spelling
        self.conf = conf_path(self.dir)
        self.gres_conf = self.dir / "gres.conf"
        self.cgroup_conf = self.dir / "cgroup.conf"
        self.job_submit = self.dir / "job_submit.lua"
        self.epilog = self.dir / "epilog.sh"
        self.state_file = self.dir / STATE_FILE
        self.lock = self.dir / "lock"
        self.unfinished = self.dir / "unfinished"  # there while `up` or `down` works, and after one was killed
        self.jobcomp = self.dir / "jobcomp.log"
        self.munge_dir = self.dir / "munge"
        self.munge_key = self.munge_dir / "munge.key"
        self.munge_seed = self.munge_dir / "munged.seed"
        self.run_dir = self.dir / "run"
        self.munge_socket = self.run_dir / "munge.socket"
        self.state_dir = self.dir / "state"
        self.spool_dir = self.dir / "spool"
        self.log_dir = self.dir / "log"
        self.device_dir = self.dir / "dev"
        self.device = self.device_dir / "nvidia0"

    def check_length(self) -> None:
        """Raise HostError when slurmd could not make its sockets below this directory."""
        most = SOCKET_LIMIT - _LONGEST_STEP_SOCKET
        length = len(os.fsencode(self.dir))
        if length > most:
            raise HostError(
                f"{self.dir} is {length} bytes long, and Slurm's sockets below it would pass the kernel's limit of "
                f"{SOCKET_LIMIT}; at most {most} bytes work",
                hint="use a shorter directory: gpuq local up --dir /tmp/gpuq",
            )

    def make(self) -> None:
        """Create the directories (existing ones are kept) and the empty job completion log."""
        self.dir.mkdir(parents=True, exist_ok=True)
        for directory, mode in (
            (self.munge_dir, 0o700),
            (self.run_dir, 0o755),
            (self.state_dir, 0o700),  # holds everybody's job scripts
            (self.spool_dir, 0o755),  # jobs of other users read their script here
            (self.log_dir, 0o755),
            (self.device_dir, 0o755),
        ):
            directory.mkdir(exist_ok=True)
            directory.chmod(mode)
        # Made by slurmctld it would be 0600 under some umasks, and nobody else could read the history.
        self.jobcomp.touch()
        self.jobcomp.chmod(0o644)
