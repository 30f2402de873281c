"""What `gpuq submit`, `gpuq resubmit` and `gpuq chain` do and print, however their command line was read."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gpuq.adapters.slurm.ahead import AskedOffer
from gpuq.cli.context import build
from gpuq.cli.output import echo, emit_json, say, stay
from gpuq.errors import UsageError

if TYPE_CHECKING:
    from gpuq.core.attempt import Record
    from gpuq.usecases.after import After
    from gpuq.usecases.context import Context
    from gpuq.usecases.draft import Draft, Options
    from gpuq.usecases.submit import Submission
    from gpuq.usecases.wait import Waited


def submit(
    tag: str,
    *,
    after: tuple[str, ...] = (),
    after_ok: tuple[str, ...] = (),
    hold: bool = False,
    key: str | None = None,
    wait_: bool = False,
    dry_run: bool = False,
    parsable: bool = False,
    as_json: bool = False,
    **asks: Any,
) -> int:
    """`gpuq submit`; its exit code."""
    _check(key, asks)
    ctx = build(AskedOffer if key is None else None)  # with a key that was used before, nothing is submitted
    from gpuq.usecases import submit as usecase
    from gpuq.usecases.draft import prepare

    options = _options(after, after_ok, hold, key, asks)
    if dry_run:
        planned = usecase.find_by_key(ctx, tag, options, dry_run=True) or prepare(ctx, tag, options)
        return _dry_run(ctx, planned, parsable, as_json)
    made = usecase.submit_run(ctx, tag, options)
    return _finish(ctx, [made], wait_, parsable, as_json)


def resubmit(
    tag: str,
    *,
    hold: bool = False,
    wait_: bool = False,
    dry_run: bool = False,
    parsable: bool = False,
    as_json: bool = False,
    **asks: Any,
) -> int:
    """`gpuq resubmit`; its exit code."""
    _check(None, asks)
    from gpuq.errors import NotFound
    from gpuq.usecases import submit as usecase
    from gpuq.usecases.draft import prepare
    from gpuq.usecases.refs import require_run
    from gpuq.usecases.settle import settle

    ctx = build()
    tag = require_run(ctx, tag)
    settle(ctx, tag=tag)
    last = ctx.ledger.latest(tag)
    if last is None:
        raise NotFound(f"run {tag} has no attempt to repeat", hint=f"gpuq submit {tag}")
    if last.ended is None:
        say(f"note: {last.name} has not ended yet (job {last.job_id}); this is one more")
    options = _options((), (), hold, None, asks)
    draft = prepare(ctx, tag, options, again=last.request)
    if dry_run:
        return _dry_run(ctx, draft, parsable, as_json)
    return _finish(ctx, [usecase.submit(ctx, draft)], wait_, parsable, as_json)


def chain(
    tags: tuple[str, ...],
    *,
    ok: bool = False,
    after: tuple[str, ...] = (),
    after_ok: tuple[str, ...] = (),
    hold: bool = False,
    key: str | None = None,
    wait_: bool = False,
    dry_run: bool = False,
    parsable: bool = False,
    as_json: bool = False,
    **asks: Any,
) -> int:
    """`gpuq chain`; its exit code."""
    _check(key, asks)
    ctx = build()
    options = _options(after, after_ok, hold, key, asks)
    if dry_run:
        from gpuq.usecases.chain import preview_chain
        from gpuq.usecases.submit import Submission

        links = preview_chain(ctx, list(tags), options)
        new = [None if isinstance(link, Submission) else link.tag for link in links]
        before = [new[:index].count(tag) for index, tag in enumerate(new)]
        if as_json:
            planned = [_as_planned(ctx, *each) for each in zip(links, before, strict=True)]
            emit_json("gpuq.chain/1", dry_run=True, attempts=planned)
            return 0
        # the job id that sbatch will be told is not known yet
        follows = f", when the one before has {'succeeded' if ok else 'ended'}"
        for index, (link, more) in enumerate(zip(links, before, strict=True)):
            _dry_run(ctx, link, parsable, as_json, more, follows if index else "")
        return 0
    from gpuq.usecases.after import ANY, OK
    from gpuq.usecases.chain import chain as usecase

    made = usecase(ctx, list(tags), options, kind=OK if ok else ANY)
    return _finish(ctx, made, wait_, parsable, as_json, whole=True)


def _check(key: str | None, asks: dict[str, Any]) -> None:
    """What is wrong with the values of options, before Slurm is asked anything. Raises UsageError."""
    from gpuq.core.units import check_number

    if key is not None and not key.strip():
        raise UsageError("--key is empty; an empty key would repeat whatever was submitted with one before")
    if key is not None and not key.isprintable():
        raise UsageError("--key must be printable text")
    if asks.get("cpu_only") and asks.get("fill"):
        raise UsageError("--cpu-only and --fill: filler makes way for the GPU, and --cpu-only does not have it")
    for field in ("cpus", "nice", "signal_before"):
        if asks.get(field) is not None:
            try:
                check_number(field, asks[field])
            except ValueError as error:
                raise UsageError(f"--{field.replace('_', '-')} {asks[field]}: {error}") from None


def _options(
    after: tuple[str, ...], after_ok: tuple[str, ...], hold: bool, key: str | None, asks: dict[str, Any]
) -> Options:
    from gpuq.core.config import Settings
    from gpuq.usecases.draft import Options

    cpu_only, fill, check, snapshot = (asks.pop(name, False) for name in ("cpu_only", "fill", "check", "snapshot"))
    auto = asks.get("memory") == "auto"
    if auto:
        del asks["memory"]
    wishes: list[After] = []
    if after or after_ok:
        from gpuq.usecases.after import ANY, OK, After

        wishes = [After(ANY, ref) for ref in after] + [After(OK, ref) for ref in after_ok]
    return Options(
        flags=Settings(**asks),
        cpu_only=cpu_only,
        fill=fill,
        hold=hold,
        after=tuple(wishes),
        key=key,
        memory_auto=auto,
        check=check,
        snapshot=snapshot,
    )


def _asked_words(draft: Draft) -> str:
    from gpuq.core.units import duration_words, format_size

    request = draft.request
    limit = "no time limit" if draft.time_limit is None else f"time limit {duration_words(draft.time_limit)}"
    gpu = "1 GPU" if request.gpu else "no GPU"
    words = [gpu, f"{request.cpus} CPU{'s' if request.cpus != 1 else ''}", format_size(request.memory), limit]
    words += ["makes way for others"] if request.fill else []
    words += ["held"] if request.hold else []
    return ", ".join(words)


def _dry_run(
    ctx: Context, draft: Draft | Submission, parsable: bool, as_json: bool, before: int = 0, follows: str = ""
) -> int:
    """draft: or what was submitted with the same key before. before: how many attempts of the same run the chain has
    before this one. follows: what it waits for in the chain, in words."""
    from gpuq.usecases.submit import Submission, preview

    if as_json:
        emit_json("gpuq.submit/1", dry_run=True, **_as_planned(ctx, draft))
        return 0
    if isinstance(draft, Submission):
        for note in draft.notes:
            say(f"note: {note}")
        say(f"would submit nothing: {_known(draft.record)}")
        return 0
    record = preview(ctx, draft, before)
    for note in draft.notes:
        say(f"note: {note}")
    if not parsable:
        say(f"would submit {record.name}: {_asked_words(draft)}{follows}")
    import shlex

    echo(shlex.join(record.argv))
    return 0


def _as_planned(ctx: Context, draft: Draft | Submission, before: int = 0) -> dict[str, Any]:
    from gpuq.usecases.submit import Submission, preview

    if isinstance(draft, Submission):
        return _as_json(draft)
    record = preview(ctx, draft, before)
    return {
        "tag": record.tag,
        "attempt": record.attempt,
        "argv": record.argv,
        "request": record.request,
        "dependencies": record.dependencies,
        "notes": draft.notes,
    }


def _finish(
    ctx: Context, made: list[Submission], wait_: bool, parsable: bool, as_json: bool, *, whole: bool = False
) -> int:
    """Report what was submitted, and wait for it where that is wanted. whole: it is a chain."""
    if not as_json:
        for one in made:
            _tell(one, parsable, prefix=f"{one.record.tag}: " if len(made) > 1 else "")
        sys.stdout.flush()
    results: list[Waited] = []
    if wait_:
        from gpuq.cli.wait import going_on
        from gpuq.usecases.wait import wait_for

        stay()
        with going_on([one.record.tag for one in made]):
            results = wait_for(ctx, [one.record for one in made])
    if as_json:
        objects = [_as_json(one) for one in made]
        for shown, result in zip(objects, results, strict=False):
            shown["outcome"] = result.outcome
            shown["score"] = result.score
            shown["outcome_notes"] = result.notes
        if whole:
            emit_json("gpuq.chain/1", dry_run=False, attempts=objects)
        else:
            emit_json("gpuq.submit/1", dry_run=False, **objects[0])
    elif results:
        from gpuq.cli.wait import report

        report(results)
    if not results:
        return 0
    from gpuq.usecases.wait import combined_exit_code

    return combined_exit_code(results, any_=False)


def _tell(one: Submission, parsable: bool, prefix: str) -> None:
    record = one.record
    for note in (*(one.draft.notes if one.draft else ()), *one.notes):
        say(f"note: {prefix}{note}")
    if parsable:
        echo("" if record.job_id is None else record.job_id)
    elif one.repeated:
        echo(f"{_known(record)}; nothing is submitted")
    else:
        waits = f", {' and '.join(record.dependencies)}" if record.dependencies else ""
        asked = _asked_words(one.draft) if one.draft else ""
        echo(f"Submitted {record.name} as job {record.job_id} ({asked}{waits})")


def _known(record: Record) -> str:
    known = "" if record.job_id is None else f", as job {record.job_id}"
    return f"{record.name} was submitted with this key before{known}"


def _as_json(one: Submission) -> dict[str, Any]:
    record = one.record
    return {
        "tag": record.tag,
        "attempt": record.attempt,
        "job_id": record.job_id,
        "repeated": one.repeated,
        "log": record.log,
        "script": record.script,
        "dependencies": record.dependencies,
        "request": record.request,
        "notes": [*(one.draft.notes if one.draft else ()), *one.notes],
    }
