"""`gpuq init`, `gpuq new`, `gpuq diff`, `gpuq results`: experiments by one variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gpuq.usecases.experiment.compare import Comparison
    from gpuq.usecases.experiment.results import Result

_TEMPLATES = ["python", "uv", "nix", "conda", "apptainer", "torchrun"]
_SORTS = ["score", "tag", "time", "memory", "end"]


@click.command()
@click.option("--template", type=click.Choice(_TEMPLATES), help="Also write a first run with this kind of job.sh.")
@click.option("--tag", default="baseline", metavar="TAG", help="The TAG of that first run.  [default: baseline]")
@click.option("--guard", is_flag=True, help="Also make gpuq guard a hook of Claude Code and Codex in this project.")
@click.option("--strict", is_flag=True, help="With --guard: refuse also what the guard cannot judge.")
@click.option("--dry-run", is_flag=True, help="Show what would be written; write nothing.")
def init(template: str | None, tag: str, guard: bool, strict: bool, dry_run: bool) -> None:
    """Make a repository ready: gpuq.toml, AGENTS.md, runs/, ops/decisions.md, .gitignore.

    What is there already is kept: of AGENTS.md (and of CLAUDE.md, where that is used) only the section between gpuq's
    markers is renewed, and .gitignore gets what it lacks. A second time nothing changes.

    \b
    Example:
      gpuq init --template uv --dry-run
      gpuq init --guard
    """
    import os

    from gpuq.adapters.configfiles import find_project
    from gpuq.cli.context import working_directory
    from gpuq.core.tag import check_tag
    from gpuq.errors import UsageError
    from gpuq.usecases.experiment import init as usecase

    try:
        tag = check_tag(tag)
    except ValueError as error:
        raise UsageError(str(error)) from None
    project = find_project(working_directory(), dict(os.environ))
    if strict and not guard:
        raise UsageError("--strict is about the guard", hint="gpuq init --guard --strict")
    steps = usecase.plan(project, template, tag, claude=guard)
    if guard:
        from gpuq.adapters.bashparse import Parser
        from gpuq.usecases.guard import install as guard_install

        Parser()  # a hook without its parser would judge nothing
        steps += guard_install.plan(project.root, strict=strict, program=_own_name())
    if not dry_run:
        usecase.apply(steps)
    click.echo(f"{project.root}:")
    for step in steps:
        click.echo(f"  {'would be ' if dry_run and step.what != 'unchanged' else ''}{step.what:<9} {step.name}")
    if template is None and not any(project.runs.rglob("job.sh")):
        click.echo("gpuq init --template python writes a first runs/baseline/job.sh")
    elif not dry_run and any(step.what == "made" and step.name.endswith("job.sh") for step in steps):
        click.echo(f"Make job.sh yours, then: gpuq submit {tag} --check")


def _own_name() -> str:
    """How another program calls this gpuq: by its name where that is on PATH, else by its path."""
    import shutil
    import sys
    from pathlib import Path

    beside = Path(sys.executable).parent / "gpuq"  # not resolved: an environment's python is a link
    return "gpuq" if shutil.which("gpuq") or not beside.is_file() else str(beside)


@click.command(context_settings={"ignore_unknown_options": True})  # --lr=3e-4 is a KEY=VALUE
@click.argument("tag")
@click.option("--from", "parent", required=True, metavar="OLD", help="The run to copy: its script that succeeded last.")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("--allow", type=click.IntRange(min=1), default=1, metavar="N", help="Allow N variables instead of one.")
@click.option("--unproven", is_flag=True, help="Copy OLD's job.sh though no attempt of it has succeeded.")
@click.option("--dry-run", is_flag=True, help="Show the change; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.new/1).")
def new(
    tag: str, parent: str, pairs: tuple[str, ...], allow: int, unproven: bool, dry_run: bool, as_json: bool
) -> None:
    """Make a run out of a proven one, with one variable changed.

    KEY is an assignment in job.sh (LR=1e-3, also LR=${LR:-1e-3}), or an option in it (--lr 1e-3, --lr=1e-3; here --lr=3e-4
    or lr=3e-4). It must be written in exactly one place. VALUE is taken as it is, and quoted as the old one was.
    run.toml is copied too; origin.json tells where the run comes from.

    \b
    Example:
      gpuq new digits/narrow --from digits/baseline HIDDEN=32 --dry-run
      gpuq new digits/narrow --from digits/baseline HIDDEN=32
    """
    from gpuq.cli.context import build
    from gpuq.cli.output import emit_json, say
    from gpuq.usecases.experiment import new as usecase

    ctx = build()
    plan = usecase.plan(ctx, tag, parent, list(pairs), allow=allow, unproven=unproven)
    if not dry_run:
        usecase.make(ctx, plan)
    if as_json:
        emit_json(
            "gpuq.new/1",
            dry_run=dry_run,
            tag=plan.tag,
            parent=plan.origin.parent,
            attempt=plan.origin.attempt,
            changes=plan.changes,
            script=str(ctx.ledger.job_script(plan.tag)),
            notes=plan.notes,
        )
        return
    for note in plan.notes:
        say(f"note: {note}")
    proof = f"attempt {plan.origin.attempt}" if plan.origin.attempt else "its job.sh, unproven"
    click.echo(f"{'Would make' if dry_run else 'Made'} {plan.tag} from {plan.origin.parent} ({proof}):")
    for one in plan.changes:
        click.echo(f"  {one.words}  (was {one.old!r}; job.sh:{one.line})")
    if not dry_run:
        click.echo(f"Submit it: gpuq submit {plan.tag}")


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", required=False, metavar="[B]")
@click.option("-a", "--all", "everything", is_flag=True, help="Also what both have in common.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.diff/1).")
def diff(first: str, second: str | None, everything: bool, as_json: bool) -> None:
    """Show two runs side by side: script, code, environment, outcome, score.

    A and B are TAGs (their latest attempts) or job ids; a single one is compared with the run that it was made from, or,
    where it was made by hand, with its last attempt before that succeeded.

    \b
    Example:
      gpuq diff digits/baseline digits/wide
    """
    from gpuq.cli.context import build
    from gpuq.cli.output import emit_json
    from gpuq.usecases.experiment.compare import compare

    found = compare(build(), first, second)
    if as_json:
        emit_json(
            "gpuq.diff/1",
            a=found.a,
            b=found.b,
            script=found.script,
            code=found.code,
            facts=found.facts,
        )
        return
    _show(found, everything)


def _show(found: Comparison, everything: bool) -> None:
    from gpuq.cli.output import colour_wanted, printable, table

    names = [one.tag + (f" attempt {one.attempt}" if one.attempt else "") for one in (found.a, found.b)]
    facts = [fact for fact in found.facts if everything or fact.differs or fact.name in {"outcome", "score"}]
    table(["", *names], [[fact.name, _short(fact.name, fact.a), _short(fact.name, fact.b)] for fact in facts])
    if found.code is None or found.code:
        click.echo(f"\ncode differs: {', '.join(found.code) if found.code else 'in what git no longer knows'}")
    colours = {"+": "green", "-": "red", "@": "cyan"} if colour_wanted() else {}
    click.echo("" if found.script else "\nthe scripts are the same")
    for line in found.script:
        click.echo(click.style(printable(line), fg=colours.get(line[:1])) if colours else printable(line))


def _short(name: str, value: str | None) -> str:
    if value is None:
        return "-"
    looks_like_hash = len(value) in {40, 64} and all(c in "0123456789abcdef" for c in value)
    if looks_like_hash:
        return value[:12]
    return value.rsplit("/", 1)[-1] if name == "uncommitted" else value


@click.command()
@click.argument("below", nargs=-1, metavar="[TAG...]")
@click.option("--sort", type=click.Choice(_SORTS), default="tag", help="Sort by this; the highest score first.")
@click.option("--reverse", is_flag=True, help="The other way round, for a score that should be low.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with a line of headings.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.results/1).")
def results(below: tuple[str, ...], sort: str, reverse: bool, as_csv: bool, as_json: bool) -> None:
    """Show every run: what was changed, score, outcome, time, memory.

    A run shows its latest attempt that succeeded, or, without one, its latest. TAG limits it to that run and those below.

    \b
    Example:
      gpuq results --sort score
      gpuq results digits --csv
    """
    from gpuq.cli.context import build
    from gpuq.cli.output import emit_json, table
    from gpuq.errors import UsageError
    from gpuq.usecases.experiment.results import results as usecase

    if as_csv and as_json:
        raise UsageError("--csv and --json: only one of them")
    ctx = build()
    found = usecase(ctx, below, sort=sort, reverse=reverse)
    if as_json:
        emit_json("gpuq.results/1", sort=sort, runs=found)
    elif as_csv:
        _csv(found)
    elif found:
        headings = ["TAG", "TRY", "CHANGE", "FROM", "SCORE", "OUTCOME", "TIME", "MEM"]
        table(headings, [_cells(one) for one in found], styled=headings.index("OUTCOME"))
    else:
        click.echo(f"There is no run yet below {ctx.ledger.root}; a run is a directory with a job.sh.")


def _cells(one: Result) -> list[str]:
    from gpuq.core.units import format_duration, format_size

    return [
        one.tag,
        "" if one.attempt is None else str(one.attempt) + _later(one),
        (one.change or "") + (" (edited)" if one.edited else ""),
        one.parent or "",
        "" if one.score is None else f"{one.score:g}",
        one.outcome or ("never submitted" if one.attempt is None else "waits or runs"),
        "" if one.elapsed is None else format_duration(one.elapsed),
        "" if one.memory_held is None else format_size(one.memory_held),
    ]


def _later(one: Result) -> str:
    return "" if one.latest is None else f" ({one.latest}: {one.latest_outcome or 'waits or runs'})"


def _csv(found: list[Result]) -> None:
    import csv
    import datetime
    import io

    from gpuq.usecases.experiment.results import Result

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Result.__struct_fields__)
    for one in found:
        values = [getattr(one, field) for field in Result.__struct_fields__]
        writer.writerow([v.isoformat() if isinstance(v, datetime.datetime) else "" if v is None else v for v in values])
    click.echo(text.getvalue(), nl=False)
