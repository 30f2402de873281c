"""`gpuq mem`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuq.cli.context import build
from gpuq.cli.output import emit_json, printable, rewrite, say, state, stay, table
from gpuq.core.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuq.core.memory.looks import Sample
    from gpuq.core.memory.sizing import Beside
    from gpuq.core.memory.values import MemorySummary
    from gpuq.usecases.context import Context
    from gpuq.usecases.memory.report import Sized, View

FOLLOW = 1.0
"""Seconds between two lines of -f."""
TERMINAL = "-"
"""The value of --plot without a file."""


@click.command()
@click.argument("ref", metavar="[TAG|JOB]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Look every second until it ends; wait for its start.")
@click.option(
    "--plot", is_flag=False, flag_value=TERMINAL, metavar="[FILE]", help="Draw what was kept; FILE: a .png or .svg."
)
@click.option("--advise", is_flag=True, help="What --mem to ask for, from earlier attempts, and what fits beside it.")
@click.option("--anyway", is_flag=True, help="With --advise: also where there is too little evidence.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object (schema gpuq.mem/1).")
def mem(ref: str | None, follow: bool, plot: str | None, advise: bool, anyway: bool, as_json: bool) -> None:
    """Show what a job's memory holds, and what to ask for.

    What counts is what cannot be given back: anon + shmem (+ swap). Page cache is shown apart. Without an argument: all of
    your jobs that run on this host, or with --advise every run. What the watcher saw is in the attempt's record when it has
    ended.

    \b
    Example:
      gpuq submit digits/baseline --wait
      gpuq mem digits/baseline
      gpuq mem digits/baseline --advise
    """
    from gpuq.errors import UsageError

    if plot is not None and plot != TERMINAL and ref is None and not _is_picture(plot):
        ref, plot = plot, TERMINAL  # `gpuq mem --plot TAG`: click takes the TAG for the file
    if plot is not None and plot != TERMINAL and not _is_picture(plot):
        raise UsageError(f"--plot {plot}: the file's name has to end in .png or .svg")
    if sum((follow, plot is not None, advise)) > 1:
        raise UsageError("-f, --plot and --advise exclude each other")
    if anyway and not advise:
        raise UsageError("--anyway goes with --advise")
    if ref is None and (plot is not None or follow):
        raise UsageError("which? name a TAG or a job", hint="gpuq mem shows what runs")
    ctx = build()
    if advise and ref is None:
        _advise_all(ctx, anyway, as_json)
    elif advise:
        _advise(ctx, str(ref), anyway, as_json)
    elif plot is not None:
        _plot(ctx, str(ref), plot, as_json)
    elif follow:
        _follow(ctx, str(ref), as_json)
    else:
        _show(ctx, ref, as_json)


def _is_picture(name: str) -> bool:
    return name.lower().endswith((".png", ".svg"))


def _show(ctx: Context, ref: str | None, as_json: bool) -> None:
    from gpuq.usecases.memory import report as memory

    found = memory.views(ctx) if ref is None else [memory.view(ctx, ref)]
    if as_json:
        emit_json("gpuq.mem/1", jobs=found)
        return
    if not found:
        click.echo("None of your jobs runs. gpuq mem TAG shows what was seen of one that has ended.")
    for one in found:
        _tell(one)


def _tell(one: View) -> None:
    name = one.tag if one.attempt is None else f"{one.tag} attempt {one.attempt}"
    click.echo(f"{printable(name)}{f' (job {one.job})' if one.job else ''}: {state(one.state)}")
    rows = [*_now_rows(one), *(_summary_rows(one.summary) if one.summary is not None else [])]
    if one.asked is not None:
        rows.append(("asked for", format_size(one.asked)))
    for title, text in rows:
        click.echo(f"  {title:<11} {text}")
    for note in one.notes:
        click.echo(f"  note: {printable(note)}")
    if one.advice:
        click.echo(f"  to do: {one.advice}")


def _now_rows(one: View) -> list[tuple[str, str]]:
    now = one.now
    if now is None:
        return []
    from gpuq.usecases.memory.report import held_words

    limit = "none" if now.limit is None else format_size(now.limit)
    share = f", {now.held / now.limit:.0%} of it held" if now.held is not None and now.limit else ""
    rows = [
        ("holds now", f"{held_words(now)}: cannot be given back"),
        ("page cache", f"{_size(one.cache)}: taken away when room is needed"),
        ("limit", f"{limit}{share}; usage {_size(now.current)} with the cache"),
    ]
    if now.stalled is not None:
        rows.append(("pressure", f"tasks waited {format_duration(now.stalled)} for memory"))
    rows.append(("killed", "not told" if now.oom_kill is None else f"{now.oom_kill} for memory"))
    if one.host_available is not None:
        rows.append(("host", f"{format_size(one.host_available)} available"))
    return rows


def _summary_rows(seen: MemorySummary) -> list[tuple[str, str]]:
    parts = " + ".join(
        f"{format_size(size)} {name}"
        for name, size in (("anon", seen.anon), ("shmem", seen.shmem), ("swap", seen.swap))
        if size
    )
    if seen.untold:
        parts += f" + {format_size(seen.untold)} that the kernel had not told apart"
    when = "" if seen.held_at is None else f" at {seen.held_at.astimezone():%Y-%m-%d %H:%M:%S}"
    far = f", its log at {printable(seen.phase)}" if seen.phase else ""
    rows = [("held most", f"{_size(seen.held)}{f' ({parts})' if parts else ''}{when}{far}")]
    peak = f"{format_size(seen.peak)}" if seen.peak is not None else f"about {_size(seen.usage)}"
    limit = "" if seen.limit is None else f", limit {format_size(seen.limit)}"
    rows.append(("usage peak", f"{peak} with the page cache ({_size(seen.cache)}){limit}"))
    if seen.near_limit:
        rows.append(("near limit", format_duration(seen.near_limit)))
    if seen.stalled is not None:
        rows.append(("waited", f"{format_duration(seen.stalled)} for memory"))
    if seen.gpu_memory is not None:
        use = "" if seen.gpu_utilization is None else f", {seen.gpu_utilization:g} % used on average"
        rows.append(("GPU", f"{format_size(seen.gpu_memory)} at most{use}"))
    who = {"watcher": "the watcher", "job": "gpuq run in the job"}.get(seen.source, "this command")
    rows.append(("seen", f"{seen.looks} look{'s' if seen.looks != 1 else ''} by {who}"))
    return rows


def _size(size: int | None) -> str:
    return "not told" if size is None else format_size(size)


def _follow(ctx: Context, ref: str, as_json: bool) -> None:
    import sys

    from gpuq.usecases.memory.follow import Follower

    stay()
    terminal = sys.stdout.isatty() and not as_json
    following = Follower(ctx, ref)
    told = False
    while True:
        one = following.look()
        if one.waiting:
            if not told:
                say(f"note: {one.tag} is {one.state}; it is looked at when it runs")
            told = True
            ctx.clock.sleep(FOLLOW)
            continue
        if not one.running:
            break
        if as_json:
            emit_json("gpuq.mem/1", jobs=[one])
        elif terminal:
            rewrite(_line(one))
        else:
            click.echo(_line(one))
        sys.stdout.flush()
        ctx.clock.sleep(FOLLOW)
    if terminal:
        click.echo()
    if as_json:
        emit_json("gpuq.mem/1", jobs=[one])
    else:
        _tell(one)


def _line(one: View) -> str:
    if one.now is None:
        return f"{printable(one.tag)}: {one.notes[0] if one.notes else 'nothing can be seen of it'}"
    limit = "" if one.now.limit is None else f" of {format_size(one.now.limit)}"
    killed = f", {one.now.oom_kill} killed" if one.now.oom_kill else ""
    return (
        f"{printable(one.tag)}: holds {_size(one.held)}{limit} (anon {_size(one.now.anon)}, "
        f"shmem {_size(one.now.shmem)}), cache {_size(one.cache)}{killed}"
    )


def _plot(ctx: Context, ref: str, plot: str, as_json: bool) -> None:
    from gpuq.errors import NotFound
    from gpuq.usecases.memory import report as memory

    samples = memory.series(ctx, ref)
    if not samples:
        seen = memory.view(ctx, ref).summary
        hint = memory.WATCH if seen is None else f"gpuq mem {ref} shows its height; only gpuq watch keeps a series"
        raise NotFound(f"no series of {ref} was kept on this host", hint=hint)
    if plot != TERMINAL:
        from gpuq.adapters import plotfile

        plotfile.write(Path(plot), samples, ref)
        if not as_json:
            click.echo(f"{plot}: {len(samples)} points")
    elif not as_json:
        _chart(samples)
    if as_json:
        emit_json("gpuq.mem/1", samples=samples)


def _chart(samples: Sequence[Sample]) -> None:
    import shutil
    import sys

    from gpuq.core.memory.chart import draw

    held = [float(one.held or 0) for one in samples]
    limit = next((one.limit for one in reversed(samples) if one.limit), None)
    top = max(held) or 1.0
    width = max(20, shutil.get_terminal_size().columns - 10)
    ascii_only = "utf" not in (sys.stdout.encoding or "").lower()
    rows = draw(held, width=width, height=10, top=top, ascii_only=ascii_only)
    for number, row in enumerate(rows):
        mark = format_size(int(top * (len(rows) - number) / len(rows))) if number % 3 == 0 else ""
        click.echo(f"{mark:>8} {'|' if ascii_only else '│'}{row.rstrip()}")
    seconds = (samples[-1].at - samples[0].at).total_seconds()
    click.echo(
        f"{'':>9}anon + shmem over {format_duration(seconds)}, highest {format_size(int(top))}"
        + (f", limit {format_size(limit)}" if limit else "")
        + f"; {len(samples)} points"
    )


def _advise(ctx: Context, tag: str, anyway: bool, as_json: bool) -> None:
    from gpuq.core.memory.sizing import too_little
    from gpuq.usecases.memory.report import advise

    sized = advise(ctx, tag)
    given = sized.advice.memory is not None and (sized.advice.enough or anyway)
    if as_json:
        emit_json(
            "gpuq.mem/1",
            advice=sized,
            recommended=sized.advice.memory if given else None,
            too_little="" if sized.advice.enough else too_little(sized.advice),
        )
        return
    _tell_advice(sized, given)


def _advise_all(ctx: Context, anyway: bool, as_json: bool) -> None:
    from gpuq.core.memory.sizing import ENOUGH, option
    from gpuq.usecases.memory.report import WATCH, advise_all

    found = advise_all(ctx)
    if as_json:
        emit_json("gpuq.mem/1", runs=found)
        return
    if not found:
        click.echo(f"Of no run's memory anything is known: {WATCH}")
        return
    rows = []
    for one in found:
        seen = one.advice
        given = seen.memory is not None and (seen.enough or anyway)
        size = option(seen.memory) if given and seen.memory is not None else "too little evidence"
        if not given and seen.least:
            size += f", not below {option(seen.least)}"
        rows.append([one.tag, _size(seen.held), option(one.asked), f"{min(seen.whole, ENOUGH)} of {ENOUGH}", size])
    table(["TAG", "HELD MOST", "ASKED FOR", "SEEN TO ITS END", "--mem"], rows)


def _tell_advice(sized: Sized, given: bool) -> None:
    from gpuq.core.memory.sizing import option, too_little
    from gpuq.usecases.memory.report import WATCH

    advice = sized.advice
    name = printable(sized.tag)
    if given and advice.memory is not None:
        sure = "" if advice.enough else f" [{too_little(advice)}]"
        click.echo(
            f"{name}: --mem {option(advice.memory)}{sure}   (its latest attempt asked for {option(sized.asked)})"
        )
    else:
        click.echo(f"{name}: {too_little(advice)}")
        if advice.least:
            click.echo(f"  less than {option(advice.least)} is known to be too little: {advice.kill}")
        if advice.measured or advice.least:
            click.echo(f"  to do: gpuq mem --advise {sized.tag} --anyway")
        else:
            click.echo(f"  to do: {WATCH}")
    for reason in advice.reasons if given else ():
        click.echo(f"  {reason}")
    if advice.points:
        click.echo("  evidence:")
    for point in advice.points:
        click.echo(f"    {point.words}")
    if given and sized.node:
        _beside(sized)


def _beside(sized: Sized) -> None:
    from gpuq.core.fit import CPU

    left = [format_size(max(0, sized.node_memory - used)) for used in (sized.advice.memory or 0, sized.asked)]
    click.echo(
        f"Beside it on {sized.node} ({format_size(sized.node_memory)}) CPU-only jobs have {left[0]} with this, {left[1]} "
        "with what was asked for last. A second GPU job never runs beside it, whatever its memory."
    )
    if (share := sized.share) is not None:
        each = f", with {format_size(share.memory_per_cpu)} each" if share.memory_per_cpu else ""
        click.echo(
            f"Of that, partition {CPU} gives them {share.cpus} CPU{'s' if share.cpus != 1 else ''} together{each}."
        )
    now = {one.memory: one.count for one in sized.beside_now}
    rows: list[Beside] = [one for one in sized.beside if one.count or now.get(one.memory)]
    if rows:
        table(
            ["CPU-ONLY JOBS OF", "FIT WITH THIS", "FIT NOW"],
            [[format_size(one.memory), str(one.count), str(now.get(one.memory, 0))] for one in rows],
        )


def fields() -> list[tuple[str, Any, Any]]:
    """What may be in the object that is printed with --json, for `gpuq schema`."""
    from gpuq.core.memory.looks import Sample
    from gpuq.usecases.memory.report import Sized, View

    shapes = (
        ("jobs", list[View]),
        ("samples", list[Sample]),
        ("advice", Sized),
        ("recommended", int | None),
        ("runs", list[Sized]),
    )
    return [(name, kind, None) for name, kind in shapes] + [("too_little", str, "")]
