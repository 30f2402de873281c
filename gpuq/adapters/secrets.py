"""Where secrets are read from: the environment, systemd's credentials, a file that nobody else can read.

https://systemd.io/CREDENTIALS: the directory $CREDENTIALS_DIRECTORY is private to the service; a variable of the environment
is inherited by every child and readable in /proc by the same user, a file must be guarded by its mode.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from gpuq.core.notify.config import Address, Source
from gpuq.core.notify.secret import Secret
from gpuq.errors import ConfigError

LONGEST = 8192
"""Bytes of a file with a secret."""


def read_secret(address: Address, sink: str, *, environment: Mapping[str, str], beside: Path) -> Secret:
    """The secret of `sink`. beside: the directory that a relative path starts from (that of config.toml).

    Raises ConfigError that names where it was looked for, and never holds what was found there.
    """
    if address.secret is not None:
        return address.secret
    if address.source is Source.ENVIRONMENT:
        return _checked(environment.get(address.name, ""), sink, address)
    if address.source is Source.CREDENTIAL:
        directory = environment.get("CREDENTIALS_DIRECTORY", "")
        if not directory:
            raise ConfigError(
                f"sink {sink}: its URL is to come from {address.words}, and there is no $CREDENTIALS_DIRECTORY",
                hint=f"the service needs LoadCredential={address.name}:/path/of/the/file (systemd.exec(5)); "
                "outside of it give url_file",
            )
        path = Path(directory) / address.name
        guarded = False  # systemd sees to it, with an ACL that shows as a mode of 0440
    else:
        path = beside / expand(address.name, environment)
        guarded = True
    return _checked(read_private(path, f"sink {sink}: {path}", guarded=guarded), sink, address)


def read_private(path: Path, what: str, *, guarded: bool = True) -> str:
    """The text of a file. guarded: others must not be able to read or write it, and it must be the caller's or root's.

    Mode and owner are those of the file that was opened, whatever the path leads to a moment later. Raises ConfigError.
    """
    try:
        # a FIFO in its place must not keep the watcher waiting
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        missing = guarded and isinstance(error, FileNotFoundError)
        raise ConfigError(
            f"{what}: {getattr(error, 'strerror', None) or 'no such file'}",
            hint=f"install -m 600 /dev/null {path}, then paste the URL into it" if missing else "",
        ) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigError(f"{what}: is no file")
        if guarded:
            check_private(descriptor, path, what)
        raw = os.read(descriptor, LONGEST + 1)
    finally:
        os.close(descriptor)
    if len(raw) > LONGEST:
        raise ConfigError(f"{what}: is longer than {LONGEST} bytes, and no URL is")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{what}: is no text") from None


def check_private(descriptor: int, path: Path, what: str) -> None:
    """Raises ConfigError unless only its owner, who is the caller or root, can read or write the open file."""
    status = os.fstat(descriptor)
    if status.st_uid not in {os.geteuid(), 0}:
        raise ConfigError(f"{what}: holds a secret and belongs to somebody else (uid {status.st_uid})")
    if status.st_mode & 0o077:
        raise ConfigError(
            f"{what}: holds a secret and has mode {stat.S_IMODE(status.st_mode):04o}, so others can read or change it",
            hint=f"chmod 600 {path}; if others use this machine, make a new URL as well",
        )


def expand(name: str, environment: Mapping[str, str]) -> str:
    """`name` with a leading `~/` replaced by $HOME."""
    return environment.get("HOME", "/") + name[1:] if name.startswith("~/") else name


def _checked(text: str, sink: str, address: Address) -> Secret:
    text = text.strip()
    if not text:
        where = "is not set or empty" if address.source is Source.ENVIRONMENT else "is empty"
        hint = ""
        if address.source is Source.ENVIRONMENT:
            hint = "a service does not see the variables of your shell; url_file or url_credential is for it"
        raise ConfigError(f"sink {sink}: {address.words} {where}", hint=hint)
    if len(text.split()) != 1 or not text.isprintable():
        raise ConfigError(f"sink {sink}: {address.words} must hold one URL and nothing else")
    return Secret(text)
