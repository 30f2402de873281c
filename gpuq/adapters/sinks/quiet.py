"""Libraries that write addresses to the log are not let."""

from __future__ import annotations

import logging


def silence(*loggers: str) -> None:
    """Take from these loggers, and from those below them, every record.

    urllib3 writes the path of each request at level DEBUG and the whole URL, as a WARNING that Python prints by default,
    when it cannot read a header; apprise writes answers of services. No handler of anybody's must get any of it.
    """
    for name in loggers:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
