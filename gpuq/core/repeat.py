"""A key that was used before: what is asked for now, held against what was submitted then."""

from __future__ import annotations

from gpuq.core.attempt import Request
from gpuq.core.config import Settings
from gpuq.core.units import format_size, parse_time_limit, slurm_time


def unlike(request: Request, flags: Settings, *, cpu_only: bool, fill: bool, hold: bool) -> tuple[str, ...]:
    """The options that say something else than `request`, as in `--mem 2G (it has 1G)`.

    What is not said now is no difference; `--after` and `--snapshot` cannot be compared.
    """
    found = []
    if flags.memory is not None and flags.memory != request.memory:
        found.append(f"--mem {format_size(flags.memory)} (it has {format_size(request.memory)})")
    if flags.cpus is not None and flags.cpus != request.cpus:
        found.append(f"--cpus {flags.cpus} (it has {request.cpus})")
    if flags.time is not None:
        limit = parse_time_limit(flags.time)
        if limit != request.time_limit:
            has = "the partition's" if request.time_limit is None else slurm_time(request.time_limit)
            found.append(f"--time {flags.time.strip()} (it has {has})")
    if flags.partition is not None and flags.partition != request.partition:
        found.append(f"--partition {flags.partition} (it has {request.partition or 'the default one'})")
    if flags.nice is not None and flags.nice != request.nice:
        found.append(f"--nice {flags.nice} (it has {request.nice})")
    if flags.signal_before is not None and flags.signal_before != request.signal_before:
        has = "none" if request.signal_before is None else str(request.signal_before)
        found.append(f"--signal-before {flags.signal_before} (it has {has})")
    if cpu_only and request.gpu:
        found.append("--cpu-only (it has one GPU)")
    if fill and not request.fill:
        found.append("--fill (it is no filler)")
    if hold and not request.hold:
        found.append("--hold (it was not held)")
    return tuple(found)
