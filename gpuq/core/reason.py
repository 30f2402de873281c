"""Slurm's reasons (squeue(1), "JOB REASON CODES") in words, and which of them waiting does not cure."""

from __future__ import annotations

import functools
import re

_WORDS = {
    "None": "",
    "Priority": "behind other jobs",
    "Resources": "waits for the GPU, memory or cores",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "will never run: what it depends on did not succeed",
    "JobHeldUser": "held",
    "JobArrayTaskLimit": "as many tasks of the array run as it allows itself",
    "JobHeldAdmin": "held by the administrator",
    "BeginTime": "may not start before its begin time (a requeued job waits two minutes)",
    "PartitionTimeLimit": "will never run: asks for more time than the partition allows",
    "PartitionNodeLimit": "will never run: asks for more nodes than the partition allows",
    "PartitionConfig": "will never run: asks for what no node of the partition has",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "NodeDown": "the node is down",
    "ReqNodeNotAvail": "waits for the node",
    "BadConstraints": "will never run: no node can satisfy what it asks for",
    "Licenses": "waits for a license, or in partition cpu for its share of the cores",
    "Reservation": "waits for its reservation",
    "JobLaunchFailure": "could not be started",
    "NonZeroExitCode": "ended with an error",
    "TimeLimit": "hit its time limit",
    "OutOfMemory": "ran out of memory",
    "RaisedSignal": "was killed by a signal",
    "Cleaning": "its last run is still being cleaned up",
    "Prolog": "its prolog runs",
    "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the QOS is not valid",
}

NEVER = frozenset(
    {"DependencyNeverSatisfied", "PartitionTimeLimit", "PartitionNodeLimit", "BadConstraints", "PartitionConfig"}
)
"""Reasons that waiting does not cure."""


@functools.lru_cache(maxsize=512)
def reason_words(reason: str) -> str:
    """A reason for a person; Slurm's own text where gpuq has no better one. Empty when there is none.

    >>> reason_words("Resources")
    'waits for the GPU, memory or cores'
    >>> reason_words("ReqNodeNotAvail, UnavailableNodes:")
    'waits for the node'
    """
    if reason.startswith("launch failed requeued held"):
        return "held: Slurm could not start it and put it back"
    match = re.fullmatch(r"ReqNodeNotAvail,\s*UnavailableNodes:(\S+)", reason)
    if match:
        return f"node {match[1]} is not available"
    head = reason.split(",", 1)[0].split(":", 1)[0].strip()
    return _WORDS.get(head, reason)


@functools.lru_cache(maxsize=512)
def never_cures(reason: str) -> bool:
    """True when the job will not start however long one waits, unless somebody changes something."""
    return reason in NEVER or reason.startswith("launch failed requeued held")
