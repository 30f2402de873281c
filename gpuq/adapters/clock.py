"""The real clock."""

from __future__ import annotations

import datetime
import time


class SystemClock:
    """The port `gpuq.core.ports.Clock`."""

    def now(self) -> datetime.datetime:
        """Aware, UTC."""
        return datetime.datetime.now(datetime.UTC)

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
