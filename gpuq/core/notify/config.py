"""The tables [notify] and [watch] of the user's config.toml: what is told, in which words, where, and how it is watched.

::

    [notify.sinks.phone]              # any name
    type = "discord"                  # discord, apprise, command, log
    url_credential = "discord"        # or url_env, url_file, url

    [notify.kinds.job_started]        # a kind of event (gpuq.core.event.Kind)
    tell = true                       # switched
    sinks = ["phone"]                 # routed; default: all
    title = "{name} begins"           # worded; {default} is gpuq's own wording
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from gpuq.core.event import QUIET, Kind
from gpuq.core.notify.secret import Secret
from gpuq.core.notify.wording import check_template
from gpuq.errors import ConfigError

MOST_FAILURES = 20
"""Endings that the watcher remembers for the rule about failures."""
_TIMEOUT = 10.0
_LONGEST_NAME = 60
"""Characters. The token of a Discord webhook has 68, and may have been put where a name belongs."""


class SinkType(StrEnum):
    """What kinds of sinks there are."""

    DISCORD = "discord"
    APPRISE = "apprise"
    COMMAND = "command"
    LOG = "log"


class Source(StrEnum):
    """Where the address of a sink is kept."""

    INLINE = "url"
    """In config.toml itself, which must be 0600 then."""
    ENVIRONMENT = "url_env"
    CREDENTIAL = "url_credential"
    """A file in $CREDENTIALS_DIRECTORY: systemd's LoadCredential=."""
    FILE = "url_file"
    """A file of mode 0600 or stricter."""


class Address(msgspec.Struct, frozen=True):
    """Where to find a sink's URL."""

    source: Source
    name: str = ""
    """Of the variable, the credential or the file."""
    secret: Secret | None = None
    """When it stands in config.toml."""

    @property
    def words(self) -> str:
        """For a person: where it is kept, never what it is."""
        return {
            Source.INLINE: "config.toml",
            Source.ENVIRONMENT: f"environment variable {self.name}",
            Source.CREDENTIAL: f"systemd credential {self.name}",
            Source.FILE: f"file {self.name}",
        }[self.source]


class SinkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One sink. Fields that its type does not have keep their defaults."""

    name: str
    type: SinkType
    timeout: float = _TIMEOUT
    """Seconds for one delivery."""
    address: Address | None = None
    username: str = "gpuq"
    """Discord: the name that the message comes from."""
    argv: tuple[str, ...] = ()
    """command: program and arguments."""
    file: str = ""
    """log: a file that is appended to; empty: stderr."""


class KindConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of event."""

    tell: bool
    sinks: tuple[str, ...] | None = None
    """None: all."""
    title: str | None = None
    text: str | None = None


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """How the watcher watches."""

    poll: float = 30.0
    """Seconds between questions to the controller while something changes."""
    hold_after_failures: bool = False
    """Hold the user's waiting jobs after `fast_failures` fast failures in a row."""
    fast_failures: int = 3
    """So many failures on end are a problem; 0: none is."""
    fast_seconds: float = 60.0
    """A job that fails within so many seconds did not get to its work."""
    digest: str = "09:00"
    """Local time of day at which the day up to it is summed up."""
    disk_free: float = 0.05
    """The part of a file system below which it counts as nearly full."""
    memory_near: float = 0.9
    """The part of a job's memory limit from which on what it holds is a problem."""
    silent_minutes: float = 30.0
    """A job whose log has been silent for so long while the GPU is at 0 % looks dead."""
    sample: float = 0.5
    """Seconds between two looks at the memory of a running job."""
    progress: float = 60.0
    """Seconds between two notices about the progress of one job."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Both tables, checked. Without a word of the user's: everything quiet, to the log."""

    sinks: dict[str, SinkConfig] = {}
    kinds: dict[Kind, KindConfig] = {}
    give_up: float = 24 * 3600.0
    """Seconds after which a notice that cannot be delivered becomes a dead letter."""
    watch: Watch = Watch()

    def kind(self, kind: Kind) -> KindConfig:
        """What is configured for this kind, or the quiet default."""
        return self.kinds.get(kind) or KindConfig(tell=kind in QUIET)

    def routes(self, kind: Kind) -> tuple[str, ...]:
        """The sinks that are told about this kind; empty: nobody is."""
        chosen = self.kind(kind)
        if not chosen.tell:
            return ()
        return tuple(self.sinks) if chosen.sinks is None else chosen.sinks

    @property
    def variables(self) -> frozenset[str]:
        """Names of the environment variables that hold secrets."""
        found = (sink.address for sink in self.sinks.values())
        return frozenset(one.name for one in found if one is not None and one.source is Source.ENVIRONMENT)

    @property
    def has_inline_secret(self) -> bool:
        """Whether config.toml itself must be 0600."""
        found = (sink.address for sink in self.sinks.values())
        return any(one is not None and one.source is Source.INLINE for one in found)


LOG_ONLY = {"log": SinkConfig(name="log", type=SinkType.LOG)}
"""The sinks of somebody who has configured none."""

_COMMON = ("kind", "time", "default")
_JOB = (
    "name job_id user attempt outcome state cause exit_code signal elapsed score score_name notes project log".split()
)
_QUEUE = "running waiting next next_id drained".split()
FIELDS: dict[Kind, tuple[str, ...]] = {
    Kind.JOB_ENDED: (*_JOB, *_QUEUE, *_COMMON),
    Kind.ARRAY_ENDED: ("name", "job_id", "user", "outcomes", "tasks", "project", *_QUEUE, *_COMMON),
    Kind.ONE_LEFT: (*_QUEUE, *_COMMON),
    Kind.QUEUE_EMPTY: (*_QUEUE, *_COMMON),
    Kind.JOB_STARTED: ("subject", "text", *_QUEUE, *_COMMON),
    Kind.PROGRESS: ("subject", "text", *_COMMON),
    Kind.PROBLEM: ("rule", "subject", "text", "advice", *_QUEUE, *_COMMON),
    Kind.RECOVERED: ("rule", "subject", "text", "advice", *_QUEUE, *_COMMON),
    Kind.DIGEST: ("since", "until", "used", "idle", "outcomes", "best", *_COMMON),
    Kind.TEST: ("subject", "text", *_COMMON),
}
"""The fields of a template, by kind."""

_ADDRESSED = tuple(source.value for source in Source)
_SINK_KEYS: dict[SinkType, tuple[str, ...]] = {
    SinkType.DISCORD: ("type", "timeout", "username", *_ADDRESSED),
    SinkType.APPRISE: ("type", "timeout", *_ADDRESSED),
    SinkType.COMMAND: ("type", "timeout", "argv"),
    SinkType.LOG: ("type", "file"),
}
_KIND_KEYS = ("tell", "sinks", "title", "text")
_NOTIFY_KEYS = ("sinks", "kinds", "give_up")


def from_tables(notify: Any, watch: Any, source: str) -> Config:
    """The configuration in the decoded tables [notify] and [watch] (None: not there). `source` is how messages name it.

    Raises ConfigError for an unknown key (with the nearest known one) or a wrong value. No message repeats a value
    that might be an address.
    """
    table = _table(notify, f"{source}: [notify]")
    _known(table, _NOTIFY_KEYS, f"{source}: [notify]")
    sinks = {
        name: _sink(name, one, f"{source}: [notify.sinks.{_shown(name)}]")
        for name, one in _table(table.get("sinks"), f"{source}: [notify.sinks]").items()
    } or dict(LOG_ONLY)
    kinds = {}
    for name, one in _table(table.get("kinds"), f"{source}: [notify.kinds]").items():
        where = f"{source}: [notify.kinds.{_shown(name)}]"
        if name not in {kind.value for kind in Kind}:
            raise ConfigError(f"{where}: no such kind{_nearest(name, [kind.value for kind in Kind])}")
        kinds[Kind(name)] = _kind(Kind(name), one, sinks, where)
    give_up = _number(table, "give_up", f"{source}: [notify]", Config().give_up, least=60, most=30 * 86400)
    return Config(sinks=sinks, kinds=kinds, give_up=give_up, watch=_watch(watch, f"{source}: [watch]"))


def _sink(name: str, content: Any, where: str) -> SinkConfig:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", name):
        raise ConfigError(f"{where}: the name of a sink is made of a-z, 0-9, - and _, at most 32 of them")
    table = _table(content, where)
    types = [one.value for one in SinkType]
    kind = table.get("type")
    if not isinstance(kind, str) or kind not in types:
        hint = _nearest(kind, types) if isinstance(kind, str) else f"; known are {', '.join(types)}"
        raise ConfigError(f"{where}: type is {'missing' if kind is None else 'wrong'}{hint}")
    known = _SINK_KEYS[SinkType(kind)]
    _known(table, known, where)
    values: dict[str, Any] = {"name": name, "type": SinkType(kind)}
    if "timeout" in known:
        values["timeout"] = _number(table, "timeout", where, _TIMEOUT, least=0.1, most=300)
    if "url" in known:
        values["address"] = _address(table, where)
    if "username" in table:
        values["username"] = _username(table["username"], f"{where} username")
    if "argv" in known:
        values["argv"] = _argv(table.get("argv"), f"{where} argv")
    if "file" in table:
        values["file"] = _path(table["file"], f"{where} file")
    return SinkConfig(**values)


def _address(table: Mapping[str, Any], where: str) -> Address:
    """Exactly one of the keys. What is in them is never repeated: it may be the URL, put in the wrong place."""
    given = [source for source in Source if source.value in table]
    if len(given) != 1:
        names = ", ".join(_ADDRESSED)
        raise ConfigError(f"{where}: {'none' if not given else 'more than one'} of {names} is given; give one")
    source = given[0]
    value = table[source.value]
    where = f"{where} {source.value}"
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{where}: must be a text in quotes")
    if source is Source.INLINE:
        if len(value.split()) != 1 or not value.strip().isprintable():
            raise ConfigError(f"{where}: must be one URL and nothing else")
        return Address(source, secret=Secret(value.strip()))
    if _may_be_secret(value):
        raise ConfigError(
            f"{where}: must say where the URL is kept, and is a URL itself; change the URL if others saw it"
        )
    if source is not Source.FILE and len(value) > _LONGEST_NAME:
        raise ConfigError(f"{where}: must be a name, and is longer than {_LONGEST_NAME} characters")
    if source is Source.ENVIRONMENT and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ConfigError(f"{where}: must be the name of an environment variable")
    if source is Source.CREDENTIAL and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", value):
        raise ConfigError(
            f"{where}: must be the name of a systemd credential, like LoadCredential= has it before the colon"
        )
    return Address(source, _path(value, where) if source is Source.FILE else value)


def _username(value: Any, where: str) -> str:
    """Discord takes 1 to 80 characters, and refuses names with `discord` or `clyde` in them."""
    if not isinstance(value, str) or not 1 <= len(value.strip()) <= 80 or not value.isprintable():
        raise ConfigError(f"{where}: must be a text of 1 to 80 characters")
    if re.search("discord|clyde|```", value, re.IGNORECASE):
        raise ConfigError(f"{where}: Discord refuses names with 'discord' or 'clyde' in them")
    return value.strip()


def _argv(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(one, str) and "\0" not in one for one in value):
        raise ConfigError(f'{where}: must be a list of texts, like ["/usr/local/bin/tell-me", "--short"]')
    if not value[0]:
        raise ConfigError(f"{where}: the first one must name a program")
    return tuple(value)


def _path(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value or "\0" in value or "\n" in value or "://" in value:
        raise ConfigError(f"{where}: must be the path of a file")
    return value


def _kind(kind: Kind, content: Any, sinks: Mapping[str, SinkConfig], where: str) -> KindConfig:
    table = _table(content, where)
    _known(table, _KIND_KEYS, where)
    tell = table.get("tell", True)  # who words or routes a kind wants to hear of it
    if not isinstance(tell, bool):
        raise ConfigError(f"{where} tell: must be true or false")
    chosen = table.get("sinks")
    if chosen is not None:
        if not isinstance(chosen, list) or not all(isinstance(one, str) for one in chosen):
            raise ConfigError(f'{where} sinks: must be a list of names, like ["phone"]')
        for one in chosen:
            if one not in sinks:
                raise ConfigError(f"{where} sinks: there is no sink {_shown(one)!r}{_nearest(one, list(sinks))}")
    words = {}
    for key in ("title", "text"):
        template = table.get(key)
        if template is None:
            continue
        try:
            if not isinstance(template, str):
                raise ValueError("must be a text in quotes")
            if key == "title" and not template.strip():
                raise ValueError("must not be empty")
            check_template(template, FIELDS[kind])
        except ValueError as error:
            raise ConfigError(f"{where} {key}: {error}") from None
        words[key] = template
    return KindConfig(tell=tell, sinks=None if chosen is None else tuple(dict.fromkeys(chosen)), **words)


def _watch(content: Any, where: str) -> Watch:
    table = _table(content, where)
    _known(table, list(Watch.__struct_fields__), where)
    default = Watch()
    hold = table.get("hold_after_failures", default.hold_after_failures)
    if not isinstance(hold, bool):
        raise ConfigError(f"{where} hold_after_failures: must be true or false")
    digest = table.get("digest", default.digest)
    if not isinstance(digest, str) or not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", digest):
        raise ConfigError(f'{where} digest: must be a time of day in quotes, like "09:00"')
    return Watch(
        poll=_number(table, "poll", where, default.poll, least=1, most=3600),
        hold_after_failures=hold,
        digest=digest,
        fast_failures=_whole(table, "fast_failures", where, default.fast_failures, most=MOST_FAILURES),
        fast_seconds=_number(table, "fast_seconds", where, default.fast_seconds, least=1, most=86400),
        disk_free=_number(table, "disk_free", where, default.disk_free, least=0, most=0.5),
        memory_near=_number(table, "memory_near", where, default.memory_near, least=0.5, most=1),
        silent_minutes=_number(table, "silent_minutes", where, default.silent_minutes, least=1, most=7 * 24 * 60),
        sample=_number(table, "sample", where, default.sample, least=0.1, most=60),
        progress=_number(table, "progress", where, default.progress, least=1, most=86400),
    )


def _number(table: Mapping[str, Any], key: str, where: str, default: float, *, least: float, most: float) -> float:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigError(f"{where} {key}: must be a number between {least:g} and {most:g}")
    return float(value)


def _whole(table: Mapping[str, Any], key: str, where: str, default: int, *, most: int) -> int:
    value = _number(table, key, where, default, least=0, most=most)
    if not value.is_integer():
        raise ConfigError(f"{where} {key}: must be a whole number between 0 and {most}")
    return int(value)


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a table")
    return value


def _known(table: Mapping[str, Any], known: tuple[str, ...] | list[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {_shown(key)!r}{_nearest(key, known)}")


def _shown(name: str) -> str:
    """A name in a message; an address that was put where a name belongs is not repeated."""
    if _may_be_secret(name) or len(name) > _LONGEST_NAME:
        return "…"
    return "".join(c if c.isprintable() else "�" for c in name)


def _may_be_secret(text: str) -> bool:
    """An address, or one whose https:// was left out."""
    return "://" in text or "/webhooks/" in text


def _nearest(word: str, known: tuple[str, ...] | list[str]) -> str:
    import difflib  # only a person who mistyped something pays for it

    close = difflib.get_close_matches(word[:60], known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
