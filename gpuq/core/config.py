"""What can be configured, and how the layers lie on each other.

From the weakest: what the node allows, the user's config, gpuq.toml, the run's run.toml, `#SBATCH` lines of
job.sh, GPUQ_* variables, flags. Every layer is a `Settings` in which None means "not said here".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gpuq.core import script
from gpuq.core.units import check_number, parse_size, parse_time_limit
from gpuq.errors import ConfigError

PROJECT_FILE = "gpuq.toml"
RUN_FILE = "run.toml"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One layer of submission defaults, or all of them merged."""

    partition: str | None = None
    memory: int | None = None
    """Bytes."""
    cpus: int | None = None
    time: str | None = None
    """As written (`8:00:00`), so that `24:00` can be told back."""
    nice: int | None = None
    signal_before: int | None = None
    """Seconds."""
    results: tuple[str, ...] | None = None
    score: str | None = None
    runs: str | None = None
    retry_oom: int | None = None
    """How often an attempt that was killed for memory is followed by another with more, by itself; 0: never."""
    min_free_vram: int | None = None
    """Bytes of the GPU's memory that must be free before `gpuq run` starts the program."""
    preflight_wait: int | None = None
    """Seconds that it waits for that."""
    check_command: str | None = None
    check_always: bool | None = None
    check_seconds: int | None = None
    """What `gpuq submit --check` runs, whether every submission does, and how long it may take."""


def merge(layers: Iterable[Settings]) -> Settings:
    """Lay `layers` over each other, the later one winning wherever it says something."""
    values: dict[str, Any] = {}
    for layer in layers:
        for field in Settings.__struct_fields__:
            value = getattr(layer, field)
            if value is not None:
                values[field] = value
    return Settings(**values)


_KEYS: dict[str, dict[str, str]] = {
    "project": {"runs": "runs"},
    "submit": {
        "partition": "partition",
        "mem": "memory",
        "cpus": "cpus",
        "time": "time",
        "nice": "nice",
        "signal_before": "signal_before",
    },
    "results": {"files": "results", "score": "score"},
    "check": {"command": "check_command", "always": "check_always", "seconds": "check_seconds"},
    "retry": {"oom": "retry_oom"},
    "preflight": {"min_free_vram": "min_free_vram", "wait": "preflight_wait"},
}
"""Tables and keys of gpuq.toml, and the field of Settings that each one fills."""


def from_table(table: Mapping[str, Any], source: str, *, run: bool = False, elsewhere: Iterable[str] = ()) -> Settings:
    """The settings of a decoded TOML file. `source` is how messages name it; `run`: it is a run.toml; `elsewhere`: tables
    that somebody else reads.

    Raises ConfigError for an unknown table or key (with the nearest known one) or a value of the wrong kind.
    """
    values: dict[str, Any] = {}
    sections = {name: keys for name, keys in _KEYS.items() if not (run and name == "project")}
    others = tuple(elsewhere)
    for section, content in table.items():
        if section in others:
            continue
        if section in {"notify", "watch"}:
            raise ConfigError(
                f"{source}: [{section}] is about a person, not about a project or a run",
                hint="it belongs into ~/.config/gpuq/config.toml",
            )
        if section not in sections:
            raise ConfigError(f"{source}: unknown table [{section}]{_nearest(section, [*sections, *others])}")
        if not isinstance(content, Mapping):
            raise ConfigError(f"{source}: {section} must be a table, written [{section}]")
        for key, value in content.items():
            field = sections[section].get(key)
            if field is None:
                raise ConfigError(f"{source}: unknown key {key!r} in [{section}]{_nearest(key, sections[section])}")
            values[field] = _value(field, value, f"{source}: [{section}] {key}")
    return Settings(**values)


_ENVIRONMENT = {
    "GPUQ_PARTITION": "partition",
    "GPUQ_MEM": "memory",
    "GPUQ_CPUS": "cpus",
    "GPUQ_TIME": "time",
    "GPUQ_NICE": "nice",
    "GPUQ_SIGNAL_BEFORE": "signal_before",
    "GPUQ_RUNS": "runs",
}
_OTHER_VARIABLES = {
    "GPUQ_TAG",
    "GPUQ_ATTEMPT",
    "GPUQ_RUN_DIR",
    "GPUQ_PROJECT",
    "GPUQ_DEBUG",
    "GPUQ_LOCAL_DIR",
    "GPUQ_BACKEND",
    "GPUQ_RUN",
    "GPUQ_CHECK",
}


def from_environment(environment: Mapping[str, str]) -> Settings:
    """The settings of the GPUQ_* variables; an empty one counts as not set.

    Raises ConfigError for a wrong value, and for a name that is nearly one of ours (a silent typo).
    """
    values: dict[str, Any] = {}
    for name, text in environment.items():
        if not name.startswith("GPUQ_") or name in _OTHER_VARIABLES or not text:
            continue
        field = _ENVIRONMENT.get(name)
        if field is None:
            nearest = _nearest(name, _ENVIRONMENT, cutoff=0.8)
            if nearest:
                raise ConfigError(f"environment: unknown variable {name}{nearest}")
            continue
        value: Any = text
        if field in {"cpus", "nice", "signal_before"}:
            try:
                value = int(text)
            except ValueError:
                raise ConfigError(f"environment: {name}={text!r} is not a whole number") from None
        values[field] = _value(field, value, f"environment: {name}")
    return Settings(**values)


def from_directives(directives: Iterable[script.Directive], name: str) -> Settings:
    """The settings that `#SBATCH` lines make (--mem, --time, --cpus-per-task, --partition, --nice).

    Raises ConfigError naming the line.
    """
    values: dict[str, Any] = {}
    for directive in directives:
        field = script.READ.get(directive.name)
        if field is None or directive.value is None:
            continue
        value: Any = directive.value
        where = f"{name}:{directive.line}: `{directive.text}`"
        if field in {"cpus", "nice"}:
            try:
                value = int(value)
            except ValueError:
                raise ConfigError(f"{where}: {directive.value!r} is not a whole number") from None
        values[field] = _value(field, value, where)
    return Settings(**values)


def _value(field: str, value: Any, where: str) -> Any:
    try:
        if any("\0" in text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)):
            raise ValueError("must not hold a NUL")
        if field in {"memory", "min_free_vram"}:
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise ValueError('must be a size in quotes, like "28G"')
            return parse_size(str(value))
        if field == "preflight_wait":
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError("must be a whole number of seconds, like 600")
            return value
        if field == "check_always":
            if not isinstance(value, bool):
                raise ValueError("must be true or false")
            return value
        if field == "time":
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise ValueError('must be a time limit in quotes, like "8:00:00"')
            parse_time_limit(str(value))
            return str(value)
        if field in {"cpus", "nice", "signal_before", "retry_oom", "check_seconds"}:
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError("must be a whole number")
            return check_number(field, value)
        if field == "results":
            if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
                raise ValueError('must be a list of file names, like ["cv.json"]')
            for name in value:
                if not name or name.startswith("/") or ".." in name.split("/"):
                    raise ValueError(f"{name!r} must be a file inside the run directory")
            return tuple(value)
        if not isinstance(value, str) or not value:
            raise ValueError("must be a text in quotes")
        if field == "score":
            file, colon, keys = value.partition(":")
            if not (file and colon and keys) or file.startswith("/") or ".." in file.split("/"):
                raise ValueError(f'{value!r} must name a file of the run and a key in it, like "cv.json:mean"')
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    return value


def _nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    import difflib  # only a person who mistyped something pays for it

    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=cutoff)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known are {', '.join(names)}" if cutoff <= 0.6 else ""
