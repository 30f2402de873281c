"""The machine whose rendering is committed in ops/slurm/ws: 10 cores, 20 threads, 61 GB, one RTX 3090.

`python -m tests.core.reference_host` writes it again.
"""

from __future__ import annotations

from pathlib import Path

from gpuq.core.host import plan as hostplan
from gpuq.core.host.plan import SeenGpu, SeenHost, Wishes
from gpuq.core.host.plan_files import files, manifest
from gpuq.core.host.spec import CpuLayout

DIRECTORY = Path(__file__).parent.parent.parent / "ops" / "slurm" / "ws"

REFERENCE = SeenHost(
    hostname="ws",
    distribution="Debian GNU/Linux 13 (trixie)",
    slurm=(24, 11),
    slurm_from="slurmd -V",
    cpus=CpuLayout(cpus=20, cores_per_socket=10, threads_per_core=2),
    memory=61 * 1024,
    gpus=(SeenGpu(minor=0, file="/dev/nvidia0", name="NVIDIA GeForce RTX 3090", memory=24 * 2**30),),
    gpu_on_bus=True,
    driver="550.163.01",
    dbus=True,
)


def rendered() -> dict[str, tuple[str, int]]:
    """Text and mode of every file of the reference, by its path below the directory."""
    spec = hostplan.plan(REFERENCE, Wishes()).spec
    planned = files(spec)
    found = {one.path.lstrip("/"): (one.text, one.mode) for one in planned}
    return {"MANIFEST": (manifest(spec, planned), 0o644), **found}


if __name__ == "__main__":
    for name, (text, mode) in rendered().items():
        path = DIRECTORY / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
