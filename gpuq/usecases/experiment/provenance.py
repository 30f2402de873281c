"""Write down what an attempt runs from, and tell when the code is another one than it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuq import __version__
from gpuq.adapters import codestate, git
from gpuq.adapters.files import write_atomic
from gpuq.core.attempt import Outcome, Record
from gpuq.core.experiment.provenance import Provenance, code_only, differing, few, new_blob, patched
from gpuq.errors import GpuqError, LedgerError
from gpuq.usecases.context import Context

if TYPE_CHECKING:
    from gpuq.usecases.draft import Draft

_DIFF_LIMIT = 4 << 20
"""Bytes of a difference that is kept; of a larger one only the hash is."""
_LOOK_BACK = 20
"""How many attempts back a success is looked for."""


class Look:
    """What the code is at this moment. git works while Slurm is given the job."""

    def __init__(self, ctx: Context, draft: Draft) -> None:
        commit, dirty = draft.commit
        self._draft = draft
        self._difference = git.Difference(ctx.project.root, commit, runs_of(ctx)) if commit and dirty else None
        self._patch: str | None = None
        self._seen: Provenance | None = None
        self._success: Record | None = None

    def patch(self) -> str:
        """What is not committed, outside of the runs root; empty also where git does not answer."""
        if self._difference is not None:
            self._patch, self._difference = self._difference.answer(), None
        return self._patch or ""

    def drop(self) -> None:
        """It is not wanted any more."""
        if self._difference is not None:
            self._difference.drop()

    def work(self, ctx: Context, record: Record) -> None:
        """Read what files tell, now: while Slurm works, it costs nothing."""
        self._seen = self._look(ctx)
        self._success = last_success(ctx, record.tag, before=record.attempt)

    def _look(self, ctx: Context) -> Provenance:
        draft, root = self._draft, ctx.project.root
        if draft.commit[0] is None:
            untracked = codestate.named_files(root, draft.script)
        else:
            untracked = codestate.code_among(draft.untracked, git.toplevel(root) or root, root, ctx.ledger.root)
            unknown = tuple(name for name in untracked if name.endswith("/"))
            if unknown:  # of a directory that git has nothing of, what job.sh names is looked at by itself
                untracked += tuple(one for one in codestate.named_files(root, draft.script) if one.startswith(unknown))
        driver, gpu = codestate.driver_and_gpu()
        return Provenance(
            untracked=untracked,
            locks=codestate.lock_files(root),
            python=codestate.python_of(root, ctx.environment),
            driver=driver,
            gpu=gpu,
            gpuq=__version__,
        )

    def noted(self, ctx: Context, record: Record) -> tuple[Record, str]:
        """The record with its provenance, for the caller to save; and what a person should know, or nothing.

        `attemptN.diff` is written here. Never raises: a job is not lost over its papers.
        """
        patch = self.patch()
        path = ctx.ledger.path(record.tag, record.attempt, "diff")
        kept = 0 < len(patch) <= _DIFF_LIMIT
        if kept:
            try:
                write_atomic(path, patch, durable=False)
            except OSError as error:
                ctx.say(f"warning: {path}: {error.strerror}; what is not committed was not kept")
                kept = False
        provenance = msgspec.structs.replace(
            self._seen or Provenance(gpuq=__version__),
            diff=str(path) if kept else None,
            diff_sha256=codestate.sha256(patch) if patch else None,
            snapshot=record.provenance.snapshot if record.provenance else None,
        )
        record = msgspec.structs.replace(record, provenance=provenance)
        return record, _since_success(ctx, record, self._success)


def with_slurm(ctx: Context, record: Record) -> Record:
    """The record with the version of Slurm, which is asked where nobody waits for it; once in a process."""
    if record.provenance is None or record.provenance.slurm is not None:
        return record
    if ctx.controller not in _slurm:
        try:
            _slurm[ctx.controller] = ctx.slurm.config().get("SLURM_VERSION")
        except GpuqError:
            _slurm[ctx.controller] = None
    provenance = msgspec.structs.replace(record.provenance, slurm=_slurm[ctx.controller])
    return msgspec.structs.replace(record, provenance=provenance)


_slurm: dict[str, str | None] = {}
"""Controller and the version of its Slurm."""


def runs_of(ctx: Context) -> str:
    """The runs root, relative to the project."""
    return ctx.ledger.root.relative_to(ctx.project.root).as_posix()


def last_success(ctx: Context, tag: str, *, before: int | None = None) -> Record | None:
    """The latest attempt of a run that succeeded; None: none of the last twenty did."""
    numbers = [number for number in ctx.ledger.attempts(tag) if before is None or number < before]
    for number in reversed(numbers[-_LOOK_BACK:]):
        try:
            record = ctx.ledger.read(tag, number)
        except LedgerError:
            continue
        if record.ended is not None and record.ended.outcome is Outcome.SUCCEEDED:
            return record
    return None


def changed_code(ctx: Context, old: Record, new: Record) -> list[str] | None:
    """The code files that differ between two attempts; empty: none does; None: something does, git cannot tell what."""
    before, after = old.provenance or Provenance(), new.provenance or Provenance()
    if old.git_commit is None or new.git_commit is None:
        return []  # nothing to compare
    if (old.git_commit, before.diff_sha256) == (new.git_commit, after.diff_sha256):
        return []
    names: list[str] | None = []
    if old.git_commit != new.git_commit:
        names = git.changed_names(ctx.project.root, old.git_commit, new.git_commit, runs_of(ctx))
    if before.diff_sha256 != after.diff_sha256:
        patches = kept_patch(before), kept_patch(after)
        if names is None or None in patches:
            return None
        names += differing(patches[0] or "", patches[1] or "")
    if not names:
        return names
    names = code_only(dict.fromkeys(names))
    if old.git_commit == new.git_commit or before.diff_sha256 == after.diff_sha256:
        return names
    # what was not committed then and is now has not changed by that, nor the other way round
    parts = [patched(patch or "") for patch in patches]
    blobs = git.changed_blobs(ctx.project.root, old.git_commit, new.git_commit, runs_of(ctx))

    def same(name: str) -> bool:
        ran = [new_blob(part[name]) if name in part else blobs[name][side] for side, part in enumerate(parts)]
        return ran[0] is not None and ran[0] == ran[1]

    return [name for name in names if name not in blobs or not same(name)]


def kept_patch(provenance: Provenance) -> str | None:
    """What was not committed, as it was kept; empty: all was; None: it was not kept."""
    if provenance.diff_sha256 is None:
        return ""
    try:
        return (
            None if provenance.diff is None else Path(provenance.diff).read_bytes().decode("utf-8", "surrogateescape")
        )
    except OSError:
        return None


def _since_success(ctx: Context, record: Record, success: Record | None) -> str:
    if success is None:
        return ""
    names = changed_code(ctx, success, record)
    if names == []:
        return ""
    what = f" ({few(names)})" if names else ""
    how = "" if None in {success.job_id, record.job_id} else f"; gpuq diff {success.job_id} {record.job_id} shows how"
    return f"the code has changed since attempt {success.attempt} succeeded{what}{how}"
