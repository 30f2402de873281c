"""Every other chat service, through the package apprise: an address like `ntfys://...`, `tgram://...`, `mailtos://...`.

apprise runs in a process of its own for each notice (`apprise_child`, 0.25 s). Inside the watcher it would cost 24 MB for
good, a plugin that never returns could not be stopped, and what a plugin prints or logs would go where the watcher logs. The
address goes through a pipe, never through arguments or the environment.

It says whether a message was taken and nothing else: no Retry-After, no reason to tell "later" from "never". So every
failure is tried again until the notice is too old.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping

import msgspec

from gpuq.adapters import proc
from gpuq.core.notice import Level, Notice
from gpuq.core.notify.delivery import Answer, Delivered, Refused, Retry
from gpuq.core.notify.secret import Secret
from gpuq.errors import ConfigError

INSTALL = "pip install 'gpuq-slurm[apprise]'"
TAIL_LINES = 12
BAD_ADDRESS, NOT_TAKEN = 65, 75
"""Exit status of the child: EX_DATAERR, EX_TEMPFAIL of sysexits.h."""
_TYPES = {Level.GOOD: "success", Level.INFO: "info", Level.WARNING: "warning", Level.BAD: "failure"}


class AppriseSink:
    """One address. timeout: seconds for one delivery, its start included. environment: of the process (for proxies),
    without the variables that hold secrets."""

    def __init__(self, name: str, url: Secret, *, environment: Mapping[str, str], timeout: float) -> None:
        self._name = name
        self._url = url
        self._environment = dict(environment)
        self._timeout = timeout
        if importlib.util.find_spec("apprise") is None:
            raise ConfigError(f"sink {name}: the package apprise is not installed", hint=INSTALL)

    def send(self, notice: Notice, key: str) -> Answer:  # noqa: ARG002 - apprise has no place for it
        """See gpuq.core.notify.delivery.Sink."""
        order = {
            "url": self._url.reveal(),
            "title": notice.title,
            "body": body_of(notice),
            "type": _TYPES[notice.level],
        }
        # -P: a directory `apprise` where the watcher was started is not imported in place of the package
        argv = [sys.executable, "-P", "-W", "ignore", "-m", "gpuq.adapters.sinks.apprise_child"]
        try:
            result = proc.run(
                argv,
                timeout=self._timeout,
                env=self._environment,
                input_bytes=msgspec.json.encode(order),
                own_session=True,
            )
        except proc.ProgramTimeout:
            return Retry(f"apprise was not done within {self._timeout:g} s")
        except (proc.ProgramMissing, OSError) as error:
            return Retry(f"apprise could not be started: {getattr(error, 'strerror', None) or 'no python'}")
        if result.ok:
            return Delivered()
        if result.returncode == BAD_ADDRESS:
            return Refused("apprise does not know this kind of address, or it is not one address")
        if result.returncode == NOT_TAKEN:
            return Retry("apprise could not deliver it; it does not say why")
        return Retry(f"apprise failed (exit status {result.returncode})")  # what it wrote may hold the address

    def close(self) -> None:
        """Nothing is held between deliveries."""


def body_of(notice: Notice) -> str:
    """The text, the small table and the end of the log, as plain text."""
    lines = [notice.text] if notice.text else []
    lines += [f"{name}: {value}" for name, value in notice.fields]
    if notice.log_tail:
        lines += ["", *notice.log_tail.split("\n")[-TAIL_LINES:]]
    return "\n".join(lines) or notice.title
