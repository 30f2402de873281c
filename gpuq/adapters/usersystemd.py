"""systemd's manager of one user, through systemctl and loginctl."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from gpuq.adapters import proc

TIMEOUT = 30.0


def problem(environment: Mapping[str, str]) -> str:
    """Why no user unit can be enabled here, as a sentence without its full stop; empty: it can."""
    try:
        result = proc.run(["systemctl", "--user", "show-environment"], timeout=TIMEOUT, env=environment)
    except proc.ProgramMissing:
        return "systemd is not installed here"
    except proc.ProgramTimeout:
        return "systemd's user manager does not answer"
    if result.ok:
        return ""
    words = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
    return f"systemd's user manager does not run for you here ({words})"


def systemctl(environment: Mapping[str, str], *words: str) -> str:
    """Run `systemctl --user …`; what it said when it failed, else empty."""
    try:
        result = proc.run(["systemctl", "--user", *words], timeout=TIMEOUT, env=environment)
    except (proc.ProgramMissing, proc.ProgramTimeout) as error:
        return str(error)
    return "" if result.ok else result.stderr.strip() or f"exit {result.returncode}"


def lingers(environment: Mapping[str, str], user: str) -> bool | None:
    """Whether the user's services go on without a login; None: not told."""
    with contextlib.suppress(proc.ProgramMissing, proc.ProgramTimeout):
        result = proc.run(["loginctl", "show-user", user, "--property=Linger"], timeout=TIMEOUT, env=environment)
        if result.ok and "=" in result.stdout:
            return result.stdout.strip().endswith("=yes")
    return Path("/var/lib/systemd/linger", user).exists() or None


def unit_path(environment: Mapping[str, str], name: str) -> Path:
    """Where a user's own units are (systemd.unit(5))."""
    base = environment.get("XDG_CONFIG_HOME", "")
    directory = Path(base) if base.startswith("/") else Path(environment.get("HOME", "/")) / ".config"
    return directory / "systemd" / "user" / name
