"""What a process inside a job can see of it: the GPU, the log's end, what was asked for, how long Slurm waits.

For `gpuq run`, at its start: plain reads, nothing that takes long, and no module that does. None: cannot be told.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Mapping

from gpuq.adapters.child import read_file
from gpuq.core.inside.runlines import last_vram

DEFAULT_KILL_WAIT = 30.0
"""slurm.conf(5), KillWait."""
_LOG_END = 1 << 13


def promised_gpus(environment: Mapping[str, str]) -> int:
    """How many GPUs Slurm gave the job on this host; 0 outside of a job."""
    if "SLURM_JOB_ID" not in environment:
        return 0
    for name in ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS"):
        if listed := environment.get(name):
            return len([one for one in listed.split(",") if one])
    count = environment.get("SLURM_GPUS_ON_NODE", "")
    return int(count) if count.isdigit() else 0


def hidden_by_hand(environment: Mapping[str, str]) -> str:
    """The value of CUDA_VISIBLE_DEVICES that hides every GPU from a CUDA program; empty: it does not."""
    value = environment.get("CUDA_VISIBLE_DEVICES")
    return repr(value) if value is not None and value.strip() in {"", "-1", "NoDevFiles"} else ""


def devices(root: str = "/dev") -> list[str]:
    """The device files of GPUs."""
    try:
        return sorted(f"{root}/{name}" for name in os.listdir(root) if re.fullmatch(r"nvidia\d+", name))
    except OSError:
        return []


def why_closed(found: Iterable[str]) -> str:
    """Why none of these device files can be opened; empty: one can, or a driver as WSL's works without them."""
    why = ""
    for path in found:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            means = {
                errno.EPERM: "Slurm did not give it to this job (its cgroup forbids it)",
                errno.EACCES: "this user may not open it",
                errno.ENXIO: "there is no GPU behind it",
                errno.ENODEV: "there is no driver behind it",
                errno.EIO: "the driver cannot reach the GPU",
            }.get(error.errno or 0, "")
            why = f"{path}: {error.strerror}" + (f": {means}" if means else "")
        else:
            return ""
    return why


def simulated(environment: Mapping[str, str]) -> bool:
    """True where the GPU of this Slurm is a file that stands in for one: the embedded Slurm without a GPU.

    A file of its own where it was started by root, /dev/null (which everybody may open) where it was not.
    """
    conf = environment.get("SLURM_CONF", "")
    directory = conf.rpartition("/")[0]
    text = _read(f"{directory}/gres.conf") if directory and _read(f"{directory}/local.json") is not None else None
    files = re.findall(r"\bFile=(\S+)", text or "")
    return any(path == "/dev/null" or not path.startswith("/dev/") for path in files)


def kill_wait(environment: Mapping[str, str]) -> float:
    """Seconds between Slurm's SIGTERM and its SIGKILL."""
    for path in (environment.get("SLURM_CONF", ""), "/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf"):
        text = _read(path) if path else None
        match = re.search(r"^\s*KillWait\s*=\s*(\d+)", text or "", re.MULTILINE | re.IGNORECASE)
        if match:
            return float(match[1])
        if text is not None:
            break
    return DEFAULT_KILL_WAIT


def log_end() -> str:
    """The last words in the file that standard output goes to: Slurm's own, too. Empty where it is no file."""
    try:
        if not stat.S_ISREG(os.fstat(1).st_mode):
            return ""
    except OSError:
        return ""
    return (read_file("/proc/self/fd/1", _LOG_END, end=True) or b"").decode("utf-8", "replace")


def asked(environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    """(time limit, signal_before) of this attempt in seconds, from its record; None: not said there, or no record."""
    directory, number = environment.get("GPUQ_RUN_DIR", ""), environment.get("GPUQ_ATTEMPT", "")
    text = _read(f"{directory}/slurm/attempt{number}.json") if directory and number.isdigit() else None
    if text is None:
        return None, None
    import json

    try:
        request = json.loads(text)["request"]
        limit, before = request.get("time_limit"), request.get("signal_before")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, None
    return (limit if isinstance(limit, int) else None), (before if isinstance(before, int) else None)


LOOKED_AT = 5
"""Earlier attempts whose logs are looked at."""


def vram_before(run_dir: str, attempt: int) -> tuple[int, int] | None:
    """(bytes, attempt): the most GPU memory that an attempt before this one held, of the last that tells.

    From `vram=` in its log (runlog with PyTorch), else from its record: what was in use on the GPU, by whomever.
    """
    for number in range(attempt - 1, max(0, attempt - 1 - LOOKED_AT), -1):
        tail = read_file(f"{run_dir}/slurm/attempt{number}.out", _LOG_END, end=True)
        size = last_vram(tail) if tail else None
        if size is None:
            size = _recorded(f"{run_dir}/slurm/attempt{number}.json")
        if size is not None:
            return size, number
    return None


def _recorded(path: str) -> int | None:
    text = _read(path)
    if text is None or '"gpu_memory"' not in text:
        return None
    import json

    try:
        size = json.loads(text)["memory"]["gpu_memory"]
    except (ValueError, KeyError, TypeError):
        return None
    return size if isinstance(size, int) else None


def _read(path: str) -> str | None:
    data = read_file(path)
    return None if data is None else data.decode("utf-8", "replace")
