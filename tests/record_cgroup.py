"""Record the memory cgroups of running jobs as test data (tests/data/cgroup). Needs only Python, so that it also runs on a
host without gpuq:

python3 record_cgroup.py OUT PID [PID...]

OUT becomes a directory with `cgroup/` (in place of /sys/fs/cgroup) and `proc/` (of the processes, and meminfo). What is not
about memory, and not in the way up, down or beside of the processes' jobs, is left out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

V1 = "stat usage_in_bytes max_usage_in_bytes failcnt limit_in_bytes kmem.usage_in_bytes oom_control use_hierarchy"
V2 = "stat current peak max high events pressure swap.current swap.max oom.group"
WANTED = {f"memory.{name}" for name in (V1 + " " + V2).split()} | {"cgroup.procs", "cgroup.controllers"}


def copy(source: Path, target: Path) -> None:
    """One directory's files, without what cannot be read."""
    target.mkdir(parents=True, exist_ok=True)
    for name in sorted(os.listdir(source)):
        path = source / name
        if path.is_file() and name in WANTED:
            try:
                (target / name).write_text(path.read_text())
            except OSError:
                continue


def main() -> None:
    """See the module."""
    out, pids = Path(sys.argv[1]), sys.argv[2:]
    root = Path("/sys/fs/cgroup")
    second = (root / "cgroup.controllers").exists()
    top = root if second else root / "memory"
    into = out / "cgroup" if second else out / "cgroup" / "memory"
    for pid in pids:
        text = Path(f"/proc/{pid}/cgroup").read_text()
        (out / "proc" / pid).mkdir(parents=True, exist_ok=True)
        (out / "proc" / pid / "cgroup").write_text(text)
        line = next(
            one
            for one in text.splitlines()
            if one.startswith("0::" if second else tuple("0123456789"))
            and (second or "memory" in one.split(":")[1].split(","))
        )
        job = line.split(":", 2)[2].partition("/step_")[0].lstrip("/")
        for place in [top / job, *(top / job).parents]:
            if place == top.parent:
                break
            copy(place, into / place.relative_to(top))
        for parent, _, _ in os.walk(top / job):
            copy(Path(parent), into / Path(parent).relative_to(top))
    (out / "proc").mkdir(parents=True, exist_ok=True)
    (out / "proc" / "meminfo").write_text(Path("/proc/meminfo").read_text())


if __name__ == "__main__":
    main()
