"""The frozen copy of the tree that an attempt runs in: made before Slurm is given the job, taken away when it has ended."""

from __future__ import annotations

from pathlib import Path

from gpuq.adapters import codestate, snapshot
from gpuq.core.attempt import Record
from gpuq.core.experiment.provenance import few
from gpuq.errors import SubmissionRefused
from gpuq.usecases.context import Context


def freeze(ctx: Context, record: Record, patch: str) -> list[str]:
    """Make the snapshot that the record names; notes for a person. patch: what is not committed.

    Raises SubmissionRefused.
    """
    assert record.git_commit is not None  # noqa: S101 - a draft without a commit is refused
    root, runs = ctx.project.root, ctx.ledger.root
    for left in snapshot.sweep(root, runs, {entry.token for entry in ctx.ledger.open_entries()}):
        ctx.say(f"note: what an earlier job had written into its snapshot is in {left}")
    try:
        notes = snapshot.make(root, runs, record.tag, record.token, record.git_commit, patch)
    except snapshot.SnapshotFailed as error:
        raise SubmissionRefused(
            f"the snapshot of the tree could not be made: {error}", hint="without --snapshot it runs in the tree itself"
        ) from None
    place = Path(record.place)
    if not place.is_dir():
        snapshot.remove(root, runs, record.token)
        raise SubmissionRefused(f"{root} is not in commit {record.git_commit[:12]}", hint="commit it first")
    script = Path(record.script).read_text(errors="replace")
    if str(root) in script:
        line = next(number for number, text in enumerate(script.split("\n"), 1) if str(root) in text)
        notes.append(f"job.sh:{line} names {root} itself; what it reads there is not frozen (use $GPUQ_PROJECT)")
    for path in codestate.editable(record.place):
        notes.append(f"{path} installs the tree itself in editable mode; modules imported by that are not frozen")
    return notes


def melt(ctx: Context, record: Record) -> None:
    """Take the snapshot of an attempt away, where it had one; what the job has written there goes to `attemptN.left`."""
    if record.provenance is not None and record.provenance.snapshot is not None:
        keep = ctx.ledger.path(record.tag, record.attempt, "left")
        try:
            kept = snapshot.remove(Path(record.project), ctx.ledger.root, record.token, keep=keep)
        except OSError as error:
            ctx.say(
                f"warning: {error.filename or keep}: {error.strerror or error}; the snapshot of {record.name} stays"
            )
            return
        if kept:
            count = f"{len(kept)} files" if len(kept) > 1 else "1 file"
            ctx.say(
                f"note: {record.name} wrote {few(kept)} into its snapshot: {count} moved to {keep} (use $GPUQ_RUN_DIR)"
            )
