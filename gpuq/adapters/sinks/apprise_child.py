"""Run as a program by gpuq.adapters.sinks.apprise: delivers the one notice that it reads, with apprise."""

from __future__ import annotations

import json
import sys

from gpuq.adapters.sinks.apprise import BAD_ADDRESS, NOT_TAKEN
from gpuq.adapters.sinks.quiet import silence


def main() -> int:
    """The exit status. What apprise and its plugins print is thrown away by the one who reads it."""
    order = json.loads(sys.stdin.buffer.read())
    import apprise

    silence("apprise", "urllib3", "requests")
    service = apprise.Apprise(asset=apprise.AppriseAsset(async_mode=False))
    # Of several addresses one may take it and another not: a retry would double it.
    if not service.add(order["url"]) or len(service) != 1:
        return BAD_ADDRESS
    taken = service.notify(body=order["body"], title=order["title"], notify_type=order["type"], body_format="text")
    return 0 if taken else NOT_TAKEN


if __name__ == "__main__":
    sys.exit(main())
