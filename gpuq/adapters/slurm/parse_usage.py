"""From what scontrol and `sbatch --test-only` print to what is in use. Pure, like `parse`."""

from __future__ import annotations

import datetime
import re

from gpuq.core import batch
from gpuq.core.job import gpu_count
from gpuq.core.units import MIB, parse_size
from gpuq.core.usage import Allocation, Estimate, NodeUsage
from gpuq.errors import SlurmAnswerError


def nodes(text: str) -> list[NodeUsage]:
    """What `scontrol -d show node` printed."""
    found = []
    for block in re.split(r"\n(?=NodeName=)", text.strip()):
        if not block.startswith("NodeName="):
            if not block or block.startswith("No nodes"):
                continue
            raise SlurmAnswerError(f"scontrol printed something that gpuq does not understand: {block[:80]!r}")
        reason = re.search(r"^\s*Reason=(.*?)(?: \[[^\]]*\])?$", block, re.MULTILINE)
        facts = block[: reason.start()] if reason else block
        try:
            found.append(
                NodeUsage(
                    name=_word(facts, "NodeName"),
                    cpus=int(_word(facts, "CPUTot")),
                    cpus_used=int(_word(facts, "CPUAlloc")),
                    memory=int(_word(facts, "RealMemory")) * MIB,
                    memory_used=int(_word(facts, "AllocMem")) * MIB,
                    gpus=gpu_count(_word(facts, "Gres")),
                    gpus_used=_gpus_used(facts),
                    state=_word(facts, "State"),
                    reason=reason[1].strip() if reason else "",
                )
            )
        except ValueError as error:
            raise SlurmAnswerError(f"scontrol printed a node that gpuq does not understand: {error}") from None
    return found


def _word(text: str, key: str) -> str:
    match = re.search(rf"(?:^|\s){key}=(\S*)", text)
    if match is None:
        raise ValueError(f"it has no {key}")
    return match[1]


def _gpus_used(text: str) -> int:
    match = re.search(r"\sGresUsed=(\S*)", text)
    return gpu_count(re.sub(r"\([^)]*\)", "", match[1])) if match else 0


def allocation(text: str) -> Allocation:
    """What `scontrol -d show job ID` printed: what a running job has, what a waiting one asks for.

    Raises SlurmAnswerError, also for an answer that is cut off: what is not in it would read as nothing asked for.
    """
    whole = text
    # The name comes first and may hold newlines, and lines that look like Slurm's own.
    text = text.split("\n   UserId=")[-1]
    tres = re.findall(r"^   (?:AllocTRES|ReqTRES|TRES)=(cpu=\S*|\S*mem=\S*)", text, re.MULTILINE)
    values = dict(part.split("=", 1) for part in (tres[-1] if tres else "").split(",") if "=" in part)
    held = re.findall(r"^   JOB_GRES=(\S+)", text, re.MULTILINE)
    asked = re.findall(r"^   TresPer(?:Node|Job|Task|Socket)=(\S+)", text, re.MULTILINE)
    gpus = max((gpu_count(re.sub(r"\([^)]*\)", "", gres)) for gres in [*held, *asked]), default=0)
    cpus = re.findall(r"\sNumCPUs=(\d+)", text)
    restarts = re.findall(r"\sRestarts=(\d+)", text)
    if text == whole or not cpus or not restarts or not whole.endswith("\n\n"):  # an empty line ends it
        raise SlurmAnswerError(f"scontrol printed a job that gpuq does not understand: {whole.strip()[:80]!r}")
    try:
        return Allocation(
            cpus=int(values.get("cpu") or cpus[-1]),
            memory=_size(values.get("mem", "")),
            gpus=gpus,
            restarts=int(restarts[-1]),
        )
    except ValueError as error:
        raise SlurmAnswerError(f"scontrol printed a job that gpuq does not understand: {error}") from None


def _size(text: str) -> int | None:
    if text in {"", "0"}:
        return None
    return int(float(text) * MIB) if re.fullmatch(r"[\d.]+", text) else parse_size(text)


def config(text: str) -> dict[str, str]:
    """What `scontrol show config` printed; `(null)` and empty values are left out.

    Raises SlurmAnswerError for an answer that is none, or is cut off: a key that is missing means that it is not set.
    """
    found = {}
    for line in text.splitlines():
        match = re.match(r"(\S+)\s*=\s?(.*)$", line)
        if match and match[2].strip() not in {"", "(null)", "(null type)"}:
            found[match[1]] = match[2].strip()
    if (
        "SLURM_VERSION" not in found
    ):  # keys come in their order, and those of slurmctld that matter come before this one
        raise SlurmAnswerError(f"scontrol printed a configuration that gpuq does not understand: {text.strip()[:80]!r}")
    return found


_START = re.compile(r"Job \d+ to start at (\S+) ")


def estimate(ok: bool, stderr: str) -> Estimate:
    """What `sbatch --test-only` said, all of it on stderr. 25.11 has a stray ` a` after the time.

    Raises SlurmAnswerError.
    """
    if ok:
        match = _START.search(stderr)
        if match is None:  # success without words that we know is no refusal
            raise SlurmAnswerError(f"sbatch printed a forecast that gpuq does not understand: {stderr.strip()[:120]!r}")
        return Estimate(possible=True, start=_moment(match[1]))
    return Estimate(possible=False, words=batch.slurm_words(stderr) or "no reason given")


def _moment(text: str) -> datetime.datetime | None:
    if text.isdigit():  # SLURM_TIME_FORMAT=%s
        return datetime.datetime.fromtimestamp(int(text), datetime.UTC)
    try:
        return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except ValueError:
        return None


GPUS_FORMAT = "JobArrayID:.200,numtasks:.20,tres-per-job:.200,tres-per-task:.200,tres-per-socket:.200"


def gpus(text: str) -> dict[str, int]:
    """What `squeue -O GPUS_FORMAT` printed: GPUs by the id that `%i` shows, of jobs that ask for any like this.

    Sockets are not known here: so many GPUs are asked for at least. Raises SlurmAnswerError.
    """
    found = {}
    for line in filter(str.strip, text.split("\n")):
        words = line.split()
        if len(words) != 5 or not words[1].isdigit():
            raise SlurmAnswerError(
                f"squeue printed GPUs in a way that gpuq does not understand: {line.strip()[:120]!r}"
            )
        shown, tasks, of_job, of_task, of_socket = words
        if count := gpu_count(of_job) or gpu_count(of_task) * max(1, int(tasks)) or gpu_count(of_socket):
            found[shown] = count
    return found


RESTARTS_FORMAT = "JobArrayID:.200,RestartCnt:.12"


def restarts(text: str) -> dict[str, int]:
    """What `squeue -O RESTARTS_FORMAT` printed, by the id that `%i` shows. Raises SlurmAnswerError."""
    found = {}
    for line in filter(str.strip, text.split("\n")):
        words = line.split()
        if len(words) != 2 or not re.fullmatch("[0-9]+", words[1]):
            raise SlurmAnswerError(
                f"squeue printed restarts in a way that gpuq does not understand: {line.strip()[:120]!r}"
            )
        found[words[0]] = int(words[1])
    return found
