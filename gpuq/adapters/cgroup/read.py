"""Read a memory cgroup. Costs a few system calls; `glance` is for often, `read` for now and then."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from gpuq.adapters.cgroup.locate import Place
from gpuq.core.memory.files import from_v1, from_v2, number, table
from gpuq.core.memory.looks import Reading

_V2 = ("memory.current", "memory.peak", "memory.swap.current", "memory.events", "memory.pressure")
_V1 = ("memory.usage_in_bytes", "memory.kmem.usage_in_bytes", "memory.max_usage_in_bytes", "memory.failcnt")


def glance(place: Place) -> int | None:
    """What is held now and what may be (anon + shmem + swap + what the kernel has not told apart yet), from as few files as
    that takes; None: not told, or the cgroup is gone."""
    own = _own(place)
    if own is None:
        look = read(place)
        if look is None:
            return None
    elif place.version == 2:
        look = from_v2([own], [_files(place.path, ("memory.current", "memory.swap.current"))], None)
    else:
        look = from_v1([own], [_files(place.path, ("memory.usage_in_bytes", "memory.kmem.usage_in_bytes"))], [], None)
    return None if look.held is None else look.held + look.untold


def read(place: Place) -> Reading | None:
    """All that the job's cgroup tells. None: it is gone (the job is over), or no memory is accounted there."""
    own = _own(place)
    found = [(place.path, own)] if own is not None else _below(place)
    if not found:
        return None
    stats = [stat for _, stat in found]
    if place.version == 2:
        files = [_files(path, _V2) for path, _ in found]
        return from_v2(stats, files, limit(found[0][0], place.root))
    files = [_files(path, _V1) for path, _ in found]
    kills = [text for path in _all(place.path) if (text := _text(f"{path}/memory.oom_control")) is not None]
    limits = [number(_text(f"{path}/memory.limit_in_bytes")) for path, _ in found[:1]]
    return from_v1(stats, files, kills, limits[0])


def limit(path: str, root: str) -> int | None:
    """The lowest memory.max (v2) from `path` up to `root`; None: none is set. Slurm sets it at the job and may leave
    `max` at a step."""
    lowest: int | None = None
    while len(path) > len(root):
        value = number(_text(f"{path}/memory.max"))
        if value is not None and (lowest is None or value < lowest):
            lowest = value
        path = path.rpartition("/")[0]
    return lowest


def processes(place: Place) -> list[int]:
    """Everything in the job's cgroup, slurmstepd included. The job's own cgroup.procs is empty: they are in the tasks'."""
    found: set[int] = set()
    for path in _all(place.path):
        with contextlib.suppress(OSError), open(f"{path}/cgroup.procs", encoding="ascii") as handle:  # noqa: PTH123 - light
            # to its end: unlike the others, the kernel gives it out in pages
            found.update(int(word) for word in handle.read().split())
    return sorted(found)


def available(proc_root: Path = Path("/proc")) -> int | None:
    """MemAvailable of the host in bytes; None: not told."""
    for line in (_text(f"{proc_root}/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _own(place: Place) -> dict[str, int] | None:
    """memory.stat of the job's directory; None: only directories below carry numbers, or it is gone."""
    text = _text(f"{place.path}/memory.stat")
    if text is None:
        return None
    if place.version == 1 and (_text(f"{place.path}/memory.use_hierarchy") or "1").strip() == "0":
        return None
    return table(text)


def _below(place: Place) -> list[tuple[str, dict[str, int]]]:
    """The topmost directories below the job's that carry numbers; without a hierarchy (v1) every one."""
    found: list[tuple[str, dict[str, int]]] = []
    flat = place.version == 1
    for path in _all(place.path):
        if not flat and any(path.startswith(f"{above}/") for above, _ in found):
            continue
        text = _text(f"{path}/memory.stat")
        if text is not None:
            values = table(text)
            # without a hierarchy the totals are the directory's own
            found.append((path, values))
    return found


def _all(path: str) -> list[str]:
    """`path` and every directory below it, from the top."""
    found, at = [path], 0
    while at < len(found):
        try:
            with os.scandir(found[at]) as entries:
                found.extend(sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False)))
        except OSError:
            pass  # a step that ends at this moment
        at += 1
    return found


def _files(path: str, names: tuple[str, ...]) -> dict[str, str]:
    return {name: text for name in names if (text := _text(f"{path}/{name}")) is not None}


def _text(path: str) -> str | None:
    """None where it is gone, does not exist on this kernel, or may not be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, 65536).decode("ascii", "replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)
