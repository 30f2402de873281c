"""Tell systemd how the service is: sd_notify(3) is one datagram to the socket that $NOTIFY_SOCKET names.

A few lines instead of a library: the protocol is stable and documented for exactly this use. A no-op without systemd.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping


class Notifier:
    """The service manager, when there is one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self.watchdog = 0.0
        """Seconds within which it wants to hear `WATCHDOG=1` (WatchdogSec=); 0: it does not."""
        # sd_watchdog_enabled(3): meant for us only when the process id fits, or is not given
        if environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            with contextlib.suppress(ValueError):
                self.watchdog = int(environment.get("WATCHDOG_USEC", "0")) / 1e6

    @property
    def there(self) -> bool:
        """Whether a service manager listens."""
        return self._address.startswith(("/", "\0"))

    def tell(self, *lines: str) -> None:
        """Send lines such as `READY=1`, `STATUS=…`. Never raises: work goes on without."""
        if not self.there:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out,
        ):
            out.connect(self._address)
            out.sendall("\n".join(lines).encode())
