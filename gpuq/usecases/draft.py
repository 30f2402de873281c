"""Everything that can be checked of a submission before Slurm is given a job: the run, its script, its settings, and
what partition and nodes have. Out comes a draft."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from gpuq.adapters import git, jobscript
from gpuq.adapters.configfiles import run_settings
from gpuq.adapters.files import is_there
from gpuq.core.attempt import Request
from gpuq.core.config import Settings, from_directives, merge
from gpuq.core.experiment.provenance import ORIGIN_FILE
from gpuq.core.fit import choose_partition, fit, for_kind, most_memory
from gpuq.core.script import ScriptCheck, is_shell, with_requeue_separator
from gpuq.errors import ScriptRefused, SubmissionRefused
from gpuq.usecases.context import Context
from gpuq.usecases.refs import require_run, tag_of
from gpuq.usecases.settle import repair

if TYPE_CHECKING:
    from gpuq.usecases.after import After


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says; everything may be left out."""

    flags: Settings = Settings()
    cpu_only: bool = False
    fill: bool = False
    """Make way for others: the partition for filler, and the script is told in time (gpuq.core.fill)."""
    hold: bool = False
    after: tuple[After, ...] = ()
    key: str | None = None
    memory_auto: bool = False
    """Ask for what earlier attempts held (gpuq mem --advise); without enough of them, for what is asked for otherwise."""
    check: bool = False
    """Try the run first, without the GPU (gpuq.usecases.experiment.precheck)."""
    snapshot: bool = False
    """Let it run in a frozen copy of the tree."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that has passed every check and has not been made."""

    tag: str
    request: Request
    partition: str
    time_limit: int | None
    """Seconds that will be in force; None: unlimited."""
    dependencies: tuple[str, ...]
    script: str
    script_sha256: str
    key: str | None
    commit: tuple[str | None, bool | None] = (None, None)
    """The git commit of the project, and whether a tracked file differs from it."""
    untracked: tuple[str, ...] = ()
    """What git does not have and does not ignore, relative to the root of its work tree."""
    snapshot: bool = False
    start_held: bool = False
    """Hold it until a whole chain is accepted. Not part of the request."""
    notes: tuple[str, ...] = ()


def prepare(ctx: Context, text: str, options: Options, *, again: Request | None = None) -> Draft:
    """Check everything that can be checked before Slurm is given the job. Leaves nothing behind.

    again: the request of an earlier attempt (resubmit); flags still win over it.
    Raises UsageError, ConfigError, SubmissionRefused, NotFound, SlurmUnreachable.
    """
    with contextlib.ExitStack() as asked:
        # Slurm, git and the shell answer while everything else is looked at.
        offer = ctx.slurm.ask_offer()
        asked.callback(offer.drop)
        tag = tag_of(ctx, text)
        _check_place(str(ctx.ledger.run_dir(tag)))
        script = _script(ctx, text, tag)
        asked.callback(script.drop)
        head = git.Head(ctx.project.root)
        asked.callback(head.drop)
        repair(ctx)
        fill = options.fill or (again is not None and again.fill)
        whole = with_requeue_separator(script.text, script.check.interpreter, fill=fill)
        sha256 = jobscript.sha256(whole)
        script.accepted()
        settings = _settings(ctx, tag, script.check, options, again)
        partitions, nodes = offer.answer()
        gpu = not options.cpu_only if again is None else again.gpu and not options.cpu_only
        if again is None and options.flags.partition is None:
            settings = for_kind(settings, partitions, cpu_only=options.cpu_only, fill=options.fill)
        partition = choose_partition(settings.partition, partitions)
        if options.memory_auto:
            from gpuq.usecases.memory.report import auto_size

            size = auto_size(ctx, tag, settings.memory, most_memory(partition, nodes, gpu=gpu))
            settings = settings if size is None else msgspec.structs.replace(settings, memory=size)
        fitted = fit(settings, gpu=gpu, hold=options.hold, partition=partition, nodes=nodes, beside=partitions)
        dependencies, waits = _dependencies(ctx, options.after, partition.name)
        notes = [*script.check.warnings, *fitted.notes, *waits]
        if fill and not is_shell(script.check.interpreter):
            notes.append(
                "job.sh is no shell script, so it is not put back into the queue by itself: after SIGTERM it must save and "
                "wait, and not end"
            )
        if ctx.caller.root and ctx.system_wide:
            notes.append("you are root; experiments have no business being root, submit as the user who owns them")
        limit = fitted.request.time_limit
        commit = head.answer()
        notes += _tried(ctx, tag, script.text, options, settings)
        if "gpuq run" in script.text:
            from gpuq.usecases.experiment.origin import unheard

            notes += unheard(script.text)
        if options.snapshot and commit[0] is None:
            raise SubmissionRefused(
                f"--snapshot freezes a git commit, and {ctx.project.root} has none", hint="git init && git commit"
            )
        return Draft(
            tag=tag,
            request=msgspec.structs.replace(fitted.request, fill=fill),
            partition=partition.name,
            time_limit=limit if limit is not None else partition.default_time or partition.max_time,
            dependencies=dependencies,
            script=whole,
            script_sha256=sha256,
            key=options.key,
            commit=commit,
            untracked=head.untracked,
            snapshot=options.snapshot,
            notes=tuple(notes),
        )


def _tried(ctx: Context, tag: str, script: str, options: Options, settings: Settings) -> list[str]:
    """Notes on the run before it is submitted. Raises SubmissionRefused where it was to be tried, and failed."""
    wanted = options.check or bool(settings.check_always)
    if not wanted and not is_there(ctx.ledger.run_dir(tag) / ORIGIN_FILE):
        return []
    if wanted:
        from gpuq.usecases.experiment.precheck import check

        return [check(ctx, tag, script, settings)]
    from gpuq.usecases.experiment.origin import vanished

    lost = vanished(ctx, tag, script)
    return [lost] if lost else []


def _script(ctx: Context, text: str, tag: str) -> jobscript.Script:
    try:
        return jobscript.read(ctx.ledger.job_script(tag), _shown(ctx, tag), tag)
    except ScriptRefused:
        require_run(ctx, text)  # raises where there is no such run at all
        raise


def _settings(ctx: Context, tag: str, check: ScriptCheck, options: Options, again: Request | None) -> Settings:
    """All layers, merged."""
    layers = [ctx.project.below, run_settings(ctx.ledger.run_dir(tag))]
    if again is None:
        layers += [from_directives(check.directives, _shown(ctx, tag)), ctx.project.environment, options.flags]
    else:
        layers += [_as_settings(again), options.flags]
    return merge(layers)


def _dependencies(ctx: Context, wishes: tuple[After, ...], partition: str) -> tuple[tuple[str, ...], list[str]]:
    """What sbatch is told, each once, and notes for a person."""
    if not wishes:
        return (), []
    from gpuq.usecases.after import resolve_after

    resolved = [resolve_after(ctx, wish, partition) for wish in wishes]
    found = dict.fromkeys(one.dependency for one in resolved if one.dependency)
    return tuple(found), [one.note for one in resolved if one.note]


def _check_place(directory: str) -> None:
    try:
        directory.encode()
    except UnicodeEncodeError:
        raise SubmissionRefused(
            f"{directory} is not UTF-8; a record, which is JSON, cannot hold it", hint="rename that directory"
        ) from None
    if "\\" in directory:
        raise SubmissionRefused(
            f"{directory} has a backslash in it; Slurm from 26.05 on drops backslashes from the path of a log, "
            "which would then be written elsewhere",
            hint="rename that directory",
        )


def _as_settings(request: Request) -> Settings:
    from gpuq.core.units import slurm_time

    return Settings(
        partition=request.partition,
        memory=request.memory,
        cpus=request.cpus,
        time=None if request.time_limit is None else slurm_time(request.time_limit),
        nice=request.nice or None,
        signal_before=request.signal_before,
    )


def _shown(ctx: Context, tag: str) -> str:
    """How messages name a run's job.sh: relative to the project, as the person would type it."""
    path = ctx.ledger.job_script(tag)
    try:
        return str(path.relative_to(ctx.project.root))
    except ValueError:
        return str(path)
