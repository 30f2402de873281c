"""The [notify] and [watch] tables, read from the user's config.toml."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from gpuq.adapters.configfiles import TABLES, parse_toml, user_config
from gpuq.adapters.secrets import check_private
from gpuq.core.config import from_table
from gpuq.core.notify.config import Config, from_tables
from gpuq.errors import ConfigError


def load(environment: Mapping[str, str]) -> Config:
    """What is configured; the quiet default where there is no file. Secrets are not read yet.

    Raises ConfigError, also for a file with a `url` in it that others can read.
    """
    path = user_config(environment)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO in its place is not waited for
    except (FileNotFoundError, NotADirectoryError):
        return from_tables(None, None, str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as handle:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise ConfigError(f"{path}: is no file")
        try:
            raw = handle.read()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        table = parse_toml(raw, path)
        from_table(table, str(path), elsewhere=TABLES)  # [notfy] would be silence otherwise
        config = from_tables(table.get("notify"), table.get("watch"), str(path))
        if config.has_inline_secret:
            check_private(descriptor, path, str(path))
    return config
