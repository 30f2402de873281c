"""A row of the table of causes (gpuq.core.triage.rules), and the words that rows share.

Texts are templates: `{name}` is a group of the row's pattern or a fact of the attempt (`gpuq.core.triage.words.facts`), and
what stands in square brackets is left out when a value in it is missing.
"""

from __future__ import annotations

import msgspec


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One cause: what it looks like, and what to say."""

    id: str
    headline: str
    advice: tuple[str, ...] = ()
    confidence: str = "likely"

    outcomes: tuple[str, ...] = ()
    """It is the verdict on attempts that ended so, whatever the log says."""
    said: str = ""
    """With `outcomes`: a regular expression that has to match Slurm's state and reason and the record's notes."""

    anchors: tuple[str, ...] = ()
    """One of these stands in every line that matches: found fast in a log of any size."""
    pattern: str = ""
    """A regular expression for one line of the log; empty: the anchor is enough. Its groups are values for the texts; a
    number at the end of a group's name does not count, so that several ways to say a thing can give one value."""
    frames: str = ""
    """The line must be the exception of a traceback with such a file in it."""
    script: str = ""
    """The attempt's script must have a line like this; its groups are values for the texts."""
    gpu: bool | None = None
    """Only for jobs with (or without) a GPU."""
    exits: tuple[int, ...] = ()
    """It is the verdict on these exit codes (128 + N for signal N) when the log says nothing."""

    symptom: bool = False
    """What others bring about: taken for the cause only when there is no other."""
    explains: tuple[str, ...] = ()
    """It is the cause of these, when both are in the log."""
    details: tuple[tuple[str, str], ...] = ()
    """More to say: a regular expression for the line that matched, and a text with its groups."""
    checkpoint: bool = False
    """Tell whether a checkpoint was written."""


LOOK = "gpuq log {tag} --attempt {attempt} --tail 50"
MORE_MEMORY = "gpuq resubmit {tag} --mem {more_memory}"
AGAIN = "gpuq resubmit {tag}"
ENDS = ("python_error", "dataloader_died", "nccl", "child_failed", "interrupted", "killed", "terminated", "abort")
"""What is seen of a job that something else is ending."""


def died_of(number: int, name: str) -> str:
    """What is said, by whoever started it, of a process that this signal ended: torchrun, DeepSpeed, Python's subprocess and
    multiprocessing, Accelerate.

    >>> died_of(9, "SIGKILL")[:30]
    'exit ?code\\s*:\\s*-9\\b|return c'
    """
    return (
        rf"exit ?code\s*:\s*-{number}\b|return code = -{number}\b|<Signals\.{name}: {number}>|with signal {name}\b"
        rf"|Signal {number} \({name}\)"
    )


DIED = ("exitcode", "exit code", "return code = -", "<Signals.", "with signal SIG", "Signal ")
"""One of these stands in every line that a pattern of `died_of` matches."""
