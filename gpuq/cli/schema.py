"""`gpuq schema`: what a command prints with --json, as a JSON Schema (2020-12) made from the types in the code."""

from __future__ import annotations

from typing import Any, Literal

import click

_SAME = {
    "resubmit": "submit",
    "local status": "local",
    "host plan": "host-plan",
    "notify status": "notify",
    "notify test": "notify-test",
    "watch status": "watch-status",
} | dict.fromkeys(("cancel", "hold", "release", "top", "nice", "set"), "change")
"""Commands that print what another one prints."""


@click.command()
@click.argument("command", nargs=-1, metavar="[COMMAND]")
def schema(command: tuple[str, ...]) -> None:
    """Print the JSON Schema of what a command prints with --json.

    Without an argument the names of all; `error` is what every command prints with --json when it fails. A field may be
    added to a schema under the same number; when one is changed or taken away, the number goes up.

    \b
    Example:
      gpuq schema
      gpuq schema wait
    """
    from gpuq.errors import UsageError

    if not command:
        click.echo("\n".join(shapes()))
        return
    known = shapes()
    name = " ".join(command)
    wanted = _SAME.get(name, name)
    if wanted not in known:
        raise UsageError(f"{name!r} prints no JSON", hint=f"there are: {', '.join([*known, *_SAME])}")
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(document(known[wanted])), indent=2))


def document(shape: type) -> dict[str, Any]:
    """The JSON Schema of one shape."""
    import msgspec

    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(shape)}


def shapes() -> dict[str, type]:
    """The shape of each object, by the command that prints it."""
    return {**_submitting(), **_experiments(), **_looking(), **_host(), **_notices(), **_watch(), **_errors()}


def _object(name: str, *fields: tuple[str, Any] | tuple[str, Any, Any]) -> type:
    """The object that carries `"schema": "gpuq.NAME/1"`. A field with a default may be absent."""
    import msgspec

    marked = ("schema", Literal[f"gpuq.{name}/1"])
    return msgspec.defstruct(name.capitalize(), [marked, *fields], kw_only=True)


def _submitting() -> dict[str, type]:
    import msgspec

    from gpuq.core.attempt import Outcome, Request
    from gpuq.usecases.change import Changed

    attempt: list[Any] = [
        ("tag", str),
        ("attempt", int),
        ("dependencies", list[str]),
        ("request", Request),
        ("notes", list[str]),
        ("argv", list[str], msgspec.field(default_factory=list)),
        ("job_id", int | None, None),
        ("repeated", bool, False),
        ("log", str, ""),
        ("script", str, ""),
        ("outcome", Outcome | None, None),
        ("score", float | None, None),
        ("outcome_notes", list[str], msgspec.field(default_factory=list)),
    ]
    one: Any = msgspec.defstruct("Submitted", attempt, kw_only=True)
    refusal: Any = msgspec.defstruct(
        "Refusal", [("ref", str), ("code", int), ("message", str), ("hint", str)], kw_only=True
    )
    return {
        "submit": _object("submit", ("dry_run", bool), *attempt),
        "chain": _object("chain", ("dry_run", bool), ("attempts", list[one])),
        "change": _object(
            "change",
            ("dry_run", bool),
            ("changed", list[Changed]),
            ("refused", list[refusal]),
        ),
    }


def _experiments() -> dict[str, type]:
    from gpuq.core.experiment.origin import Change
    from gpuq.usecases.experiment.compare import Fact, Side
    from gpuq.usecases.experiment.results import Result

    return {
        "new": _object(
            "new",
            ("dry_run", bool),
            ("tag", str),
            ("parent", str),
            ("attempt", int | None),
            ("changes", list[Change]),
            ("script", str),
            ("notes", list[str]),
        ),
        "diff": _object(
            "diff", ("a", Side), ("b", Side), ("script", list[str]), ("code", list[str] | None), ("facts", list[Fact])
        ),
        "results": _object("results", ("sort", str), ("runs", list[Result])),
    }


def _looking() -> dict[str, type]:
    from gpuq.usecases.board import Row
    from gpuq.usecases.status import RunView
    from gpuq.usecases.wait import Waited
    from gpuq.usecases.why.answer import Why

    return {
        "queue": _object("queue", ("jobs", list[Row])),
        "status": _object("status", ("runs", list[RunView])),
        "log": _object("log", ("tag", str), ("attempt", int), ("path", str), ("lines", list[str])),
        "wait": _object("wait", ("exit_code", int), ("results", list[Waited])),
        "why": _object("why", *_fields(Why)),
    }


def _host() -> dict[str, type]:
    from gpuq.cli.mem import fields as mem_fields
    from gpuq.usecases.doctor import Report as DoctorReport
    from gpuq.usecases.gpu import Report as GpuReport
    from gpuq.usecases.hostsetup import HostPlan
    from gpuq.usecases.inside.lint_log import Checked
    from gpuq.usecases.local import LocalStatus

    return {
        "gpu": _object("gpu", *_fields(GpuReport)),
        "lint-log": _object("lint-log", ("files", list[str]), ("faults", list[Checked])),
        "doctor": _object("doctor", *_fields(DoctorReport)),
        "mem": _object("mem", *mem_fields()),
        "local": LocalStatus,
        "host-plan": _object("host-plan", *_fields(HostPlan)),
    }


def _notices() -> dict[str, type]:
    from gpuq.usecases.notify.notify import Status, Tried

    return {
        "notify": _object("notify", *_fields(Status)),
        "notify-test": _object("notify-test", ("dry_run", bool), ("sinks", list[Tried])),
    }


def _watch() -> dict[str, type]:
    from gpuq.core.event import Event
    from gpuq.usecases.watch.service import Status

    return {
        "watch": _object("watch", ("events", list[Event])),
        "watch-status": _object("watch-status", *_fields(Status)),
    }


def _errors() -> dict[str, type]:
    return {"error": _object("error", ("code", int), ("meaning", str), ("message", str), ("hint", str))}


def _fields(struct: type) -> list[tuple[str, Any]]:
    import msgspec

    return [(field.name, field.type) for field in msgspec.structs.fields(struct)]
