"""Which waiting jobs will start from other code than they were submitted with: what was edited since.

Slurm keeps a copy of job.sh; everything else is read when the job starts.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuq.adapters import codestate, git
from gpuq.adapters.files import is_there
from gpuq.core.attempt import Record
from gpuq.core.experiment.provenance import Provenance, code_only, differing
from gpuq.core.script import check_script, with_requeue_separator
from gpuq.core.tag import check_tag
from gpuq.errors import LedgerError
from gpuq.usecases.context import Context
from gpuq.usecases.experiment.provenance import kept_patch, runs_of

MOST = 200
"""So many waiting attempts are looked at, those first that start first."""


def edited_since(ctx: Context, waiting: Iterable[tuple[int, str, int]]) -> dict[int, tuple[str, ...]]:
    """By job id: the files, relative to the project, that are not as they were when it was submitted.

    waiting: job id, name and attempt of jobs, those first that start first; a name need not be a TAG.
    """
    head = git.Head(ctx.project.root)  # works while the records are read
    records = []
    for job_id, name, attempt in list(waiting)[:MOST]:
        try:
            record = ctx.ledger.read(check_tag(name), attempt)
        except ValueError:
            continue
        except LedgerError as error:
            if is_there(ctx.ledger.path(name, attempt, "json")):
                ctx.say(f"warning: {error.message}")
            continue
        if record.job_id == job_id:
            records.append(record)
    now = _Now(ctx, head)
    return {one.job_id or 0: names for one in records if (names := (*now.code(one), *_script(ctx, one)))}


class _Now:
    """The code as it is; git is asked for no more than somebody wants to know."""

    def __init__(self, ctx: Context, head: git.Head) -> None:
        self._root = ctx.project.root
        self._runs = runs_of(ctx)
        self._commit, self._dirty = head.answer()
        self._patches: dict[str, str | None] = {}

    def code(self, record: Record) -> list[str]:
        """The code files that differ."""
        was = record.provenance or Provenance()
        names = code_only(codestate.newer_than(self._root, was.untracked, record.reserved.timestamp()))
        if record.git_commit is None or self._commit is None or record.provenance is None:
            return names
        patch = self._difference(record.git_commit)
        if patch is None:
            names.append(f"commit {self._commit[:10]}")
        elif (codestate.sha256(patch) if patch else None) != was.diff_sha256:
            names += code_only(differing(kept_patch(was) or "", patch))
        return list(dict.fromkeys(names))

    def _difference(self, commit: str) -> str | None:
        """What the tree differs by from the commit of a submission, whatever has been committed since; None: git does
        not have that any more."""
        if commit == self._commit and not self._dirty:
            return ""
        if commit not in self._patches:
            self._patches[commit] = git.Difference(self._root, commit, self._runs).answer()
        return self._patches[commit]


def _script(ctx: Context, record: Record) -> list[str]:
    path = ctx.ledger.job_script(record.tag)
    try:
        if path.stat().st_mtime <= record.reserved.timestamp():
            return []
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ["job.sh"]
    as_submitted = with_requeue_separator(text, check_script(text, "job.sh").interpreter, fill=record.request.fill)
    return [] if codestate.sha256(as_submitted) == record.script_sha256 else ["job.sh"]
