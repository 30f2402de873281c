"""A TAG names a run: the path of its directory below the runs root, and the Slurm job name."""

from __future__ import annotations

import re

import msgspec

_SEGMENT = re.compile(r"[A-Za-z0-9._=+-]+")

ATTEMPTS_DIR = "slurm"
"""The folder of a run that holds its attempts; no TAG may have a segment of this name."""

RESERVED = frozenset({"last"})
"""Words that mean something else where a TAG may stand (`--after last`)."""

_LONGEST = 200
"""Characters. Slurm keeps longer job names, but a file name ends at 255 bytes (NAME_MAX)."""


def check_tag(text: str) -> str:
    """Return `text` as a TAG (one trailing `/`, as shells complete directories, is dropped).

    Raises ValueError with a sentence that says what is wrong.
    """
    tag = text[:-1] if text.endswith("/") else text
    if not tag:
        raise ValueError("a TAG is empty; it is the path of a run below the runs root, like dino/lr3e-4")
    if tag.startswith("/"):
        raise ValueError(f"TAG {text!r} is absolute; a TAG is a path below the runs root, like dino/lr3e-4")
    segments = tag.split("/")
    for segment in segments:
        if segment in {".", ".."}:
            raise ValueError(f"TAG {text!r} leaves the runs root or walks about in it; name the run itself")
        if not _SEGMENT.fullmatch(segment):
            raise ValueError(
                f"TAG {text!r} has a part {segment!r} that is not made of the characters A-Z a-z 0-9 . _ = + -"
            )
        if segment.startswith("."):
            raise ValueError(f"TAG {text!r} has a part that begins with '.' and would be hidden from every listing")
        if segment.startswith("-"):
            raise ValueError(f"TAG {text!r} has a part that begins with '-' and would read as an option")
        if segment == ATTEMPTS_DIR:
            raise ValueError(f"TAG {text!r} has a part {ATTEMPTS_DIR!r}, the folder where a run keeps attempts")
    if len(tag) > _LONGEST:
        raise ValueError(f"TAG {text[:20]!r}… is longer than {_LONGEST} characters")
    if tag in RESERVED or is_job_id(tag):
        raise ValueError(f"TAG {text!r} would be read as {'a job id' if is_job_id(tag) else 'a keyword'}")
    return tag


_JOB_ID = re.compile(r"[0-9]+(?:_[0-9]+)?")


def is_job_id(text: str) -> bool:
    """True where `text` is a Slurm job id (`12`, or `12_3` for one task of an array)."""
    return _JOB_ID.fullmatch(text) is not None


LARGEST_ID = 0xFFFFFFFF
"""Slurm keeps job ids in 32 bits, and its commands cut longer ones to that without a word."""


class JobId(msgspec.Struct, frozen=True):
    """A job as Slurm's commands write it."""

    number: int
    part: str
    """One task (`12_3`) or component (`12+1`) of it; empty: all of it."""
    cluster: str


_ANY_ID = r"([0-9]+)([_+][0-9]+|_\[[-0-9,:%.]+\])?(?:;([^;\s]+))?"


def read_job_id(text: str) -> JobId | None:
    """`text` as squeue and `sbatch --parsable` write a job; None: it is no such id.

    >>> read_job_id("12+1")
    JobId(number=12, part='12+1', cluster='')
    >>> read_job_id("12_[3-9%1]")
    JobId(number=12, part='', cluster='')
    >>> read_job_id("12;north")
    JobId(number=12, part='', cluster='north')
    """
    match = re.fullmatch(_ANY_ID, text)
    if match is None:
        return None
    number, part, cluster = match.groups(default="")
    # int() refuses thousands of digits; whatever has so many is too large for an id anyhow
    return JobId(int(number.lstrip("0")[:20] or "0"), number + part if part and "[" not in part else "", cluster)
