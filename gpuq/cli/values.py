"""Values of options that gpuq reads as Slurm does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gpuq.core.units import parse_size, parse_time_limit

if TYPE_CHECKING:
    _Type = click.ParamType[Any]  # generic for type checkers in some versions of click, at run time in few
else:
    _Type = click.ParamType


class Size(_Type):
    """A size like 28G, in bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See `gpuq.core.units.parse_size`."""
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


AUTO = "auto"
"""`--mem auto`: what earlier attempts held, plus a margin."""


class SizeOrAuto(Size):
    """A size in bytes, or the word `auto`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `Size`."""
        return AUTO if value == AUTO else super().convert(value, param, ctx)


class TimeLimit(_Type):
    """A Slurm time limit, kept as written."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See `gpuq.core.units.parse_time_limit`."""
        try:
            parse_time_limit(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


SIZE = Size()
SIZE_OR_AUTO = SizeOrAuto()
TIME = TimeLimit()
