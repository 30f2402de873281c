"""The files of a memory cgroup, read into a `Reading`. Pure: texts in, values out.

Sources: Documentation/admin-guide/cgroup-v2.rst, "Memory"; cgroup-v1/memory.rst. What v1 calls otherwise:

=====================  ============================================  =====================================================
v2                     v1                                            difference
=====================  ============================================  =====================================================
memory.stat anon       memory.stat total_rss                         v1's has the swap cache in it
memory.stat shmem      total_shmem, since Linux 4.14                 before: total_mapped_file is the nearest, and has mapped
                                                                     files in it (the advice is then too high, never too low)
memory.stat file       total_cache                                   -
file_mapped            total_mapped_file                             -
workingset_refault_    total_workingset_refault_file, before 5.9     v2 before 5.9: workingset_refault
  file                 total_workingset_refault
memory.swap.current    total_swap                                    only where swap is counted (swapaccount)
kernel, since 5.18     memory.kmem.usage_in_bytes                    before: the sum of its parts
memory.current         memory.usage_in_bytes                         -
memory.peak            memory.max_usage_in_bytes                     v2: since Linux 5.19; v1 may be set back by root
memory.max             hierarchical_memory_limit in memory.stat      v1 says in place what v2 has to be looked for upwards
memory.events max      memory.failcnt                                v1 counts every failed charge
events oom, oom_kill   oom_kill in memory.oom_control, since 4.13    v1 counts in the cgroup of the process alone: summed
memory.pressure        -                                             v1 has none of its own
=====================  ============================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuq.core.memory.looks import Reading

NO_LIMIT = 0x7FFFFFFFFFFFF000 // 2
"""v1 writes "no limit" as the largest number of whole pages, which is above this whatever the size of a page."""


def table(text: str) -> dict[str, int]:
    """Lines of a name and a number (memory.stat, memory.events, memory.oom_control)."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.isdecimal() and value.isascii():
            found[name] = int(value)
    return found


def number(text: str | None) -> int | None:
    """A file with one number; None for `max`, and where there is no file."""
    word = (text or "").strip()
    return int(word) if word.isdecimal() and word.isascii() else None


def pressure(text: str | None) -> tuple[float | None, float | None]:
    """Seconds in which (some, all) tasks waited, from memory.pressure; None: not told."""
    found: dict[str, float] = {}
    for line in (text or "").splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if total.isdecimal() and total.isascii():
            found[kind] = int(total) / 1e6
    return found.get("some"), found.get("full")


def from_v2(stats: Sequence[Mapping[str, int]], files: Sequence[Mapping[str, str]], limit: int | None) -> Reading:
    """Of the cgroups of one job: one, or several (its steps) where only they carry numbers, which are added up.

    stats: memory.stat of each. files: the others, by name; what is missing there does not exist. limit: the lowest on
    the way up.
    """
    events = [table(one["memory.events"]) for one in files if "memory.events" in one]
    waits = [pressure(one.get("memory.pressure")) for one in files]
    refaults = _sum([one.get("workingset_refault_file", one.get("workingset_refault")) for one in stats])
    return Reading(
        version=2,
        anon=_sum([one.get("anon") for one in stats]),
        shmem=_sum([one.get("shmem") for one in stats]),
        swap=_sum([number(one.get("memory.swap.current")) for one in files]),
        file=_sum([one.get("file") for one in stats]),
        mapped=_sum([one.get("file_mapped") for one in stats]),
        refaults=refaults,
        kernel=_sum([one.get("kernel", _parts(one)) for one in stats]),
        current=_sum([number(one.get("memory.current")) for one in files]),
        # peaks of several cgroups need not have been at one time
        peak=number(files[0].get("memory.peak")) if len(files) == 1 else None,
        limit=limit,
        limit_hits=_sum([one.get("max") for one in events]),
        oom=_sum([one.get("oom") for one in events]),
        oom_kill=_sum([one.get("oom_kill") for one in events]),
        stalled=waits[0][0] if len(waits) == 1 else None,
        stalled_full=waits[0][1] if len(waits) == 1 else None,
    )


def from_v1(
    stats: Sequence[Mapping[str, int]], files: Sequence[Mapping[str, str]], kills: Sequence[str], limit: int | None
) -> Reading:
    """As `from_v2`. kills: memory.oom_control of every cgroup below. limit: from limit_in_bytes, where memory.stat
    does not tell the lowest one."""
    told = [one["hierarchical_memory_limit"] for one in stats if "hierarchical_memory_limit" in one]
    lowest = min([one for one in (*told, *([] if limit is None else [limit])) if one < NO_LIMIT], default=None)
    return Reading(
        version=1,
        anon=_sum([one.get("total_rss", one.get("rss")) for one in stats]),
        shmem=_sum([_first(one, "total_shmem", "shmem", "total_mapped_file", "mapped_file") for one in stats]),
        swap=_sum([_first(one, "total_swap", "swap") for one in stats]),
        file=_sum([_first(one, "total_cache", "cache") for one in stats]),
        mapped=_sum([_first(one, "total_mapped_file", "mapped_file") for one in stats]),
        refaults=_sum([_first(one, "total_workingset_refault_file", "total_workingset_refault") for one in stats]),
        kernel=_sum([number(one.get("memory.kmem.usage_in_bytes")) for one in files]),
        current=_sum([number(one.get("memory.usage_in_bytes")) for one in files]),
        peak=number(files[0].get("memory.max_usage_in_bytes")) if len(files) == 1 else None,
        limit=lowest,
        limit_hits=_sum([number(one.get("memory.failcnt")) for one in files]),
        oom_kill=_sum([table(one).get("oom_kill") for one in kills]),
    )


def _parts(values: Mapping[str, int]) -> int:
    names = ("kernel_stack", "pagetables", "sec_pagetables", "percpu", "sock", "vmalloc", "slab")
    return sum(values.get(name, 0) for name in names)


def _first(values: Mapping[str, int], *names: str) -> int | None:
    return next((values[name] for name in names if name in values), None)


def _sum(values: Sequence[int | None]) -> int | None:
    """None where any is not told: a sum of the others would be too low."""
    found = [value for value in values if value is not None]
    return sum(found) if found and len(found) == len(values) else None
