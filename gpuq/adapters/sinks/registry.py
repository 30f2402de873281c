"""Sinks made from their configuration. A sink of another kind is a module here and a line in `make`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpuq.adapters.configfiles import user_config
from gpuq.adapters.secrets import expand, read_secret
from gpuq.core.notify.config import Config, SinkConfig, SinkType
from gpuq.core.notify.delivery import Sink
from gpuq.core.notify.secret import Secret


def make_all(config: Config, environment: Mapping[str, str]) -> dict[str, Sink]:
    """Every configured sink, by name. Reads their secrets. Raises ConfigError for the first that cannot be made."""
    return {name: make(one, config, environment) for name, one in config.sinks.items()}


def make(sink: SinkConfig, config: Config, environment: Mapping[str, str]) -> Sink:
    """One sink. Raises ConfigError: its secret is not there, or its package is not installed."""
    if sink.type is SinkType.DISCORD:
        from gpuq.adapters.sinks.discord import DiscordSink

        return DiscordSink(sink.name, _secret(sink, environment), username=sink.username, timeout=sink.timeout)
    if sink.type is SinkType.APPRISE:
        from gpuq.adapters.sinks.apprise import AppriseSink

        kept = _without_secrets(config, environment)
        return AppriseSink(sink.name, _secret(sink, environment), environment=kept, timeout=sink.timeout)
    if sink.type is SinkType.COMMAND:
        from gpuq.adapters.sinks.command import CommandSink

        argv = [expand(sink.argv[0], environment), *sink.argv[1:]]
        kept = _without_secrets(config, environment)
        return CommandSink(sink.name, argv, environment=kept, timeout=sink.timeout)
    from gpuq.adapters.sinks.log import LogSink

    return LogSink(sink.name, _beside(environment) / expand(sink.file, environment) if sink.file else None)


def _secret(sink: SinkConfig, environment: Mapping[str, str]) -> Secret:
    assert sink.address is not None  # noqa: S101 - gpuq.core.notify.config asks for it
    return read_secret(sink.address, sink.name, environment=environment, beside=_beside(environment))


def _without_secrets(config: Config, environment: Mapping[str, str]) -> dict[str, str]:
    """What a child process may inherit."""
    return {name: value for name, value in environment.items() if name not in config.variables}


def _beside(environment: Mapping[str, str]) -> Path:
    """Relative paths in config.toml start from its directory."""
    return user_config(environment).parent
