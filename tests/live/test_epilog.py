"""The epilog on real Slurm: what a job leaves on the GPU is ended, what is not on the GPU is left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.embedded import Embedded
from tests.gpuq_cli import until

# Without cgroups nothing else ends a process that called setsid(); as root the simulated GPU has a file of its own.
pytestmark = [pytest.mark.slurm_options(confine=False), pytest.mark.skipif(os.geteuid() != 0, reason="needs mknod")]

# The device opens with ENXIO, as there is no driver; a file in its place has the same name in /proc/PID/fd.
HOLD = """
setsid bash -c 'exec 9<"{device}"; echo $$ >{place}/on-gpu; exec sleep 600' >/dev/null 2>&1 &
setsid bash -c 'echo $$ >{place}/beside; exec sleep 600' >/dev/null 2>&1 &
setsid env -u SLURM_JOB_ID bash -c 'exec 9<"{device}"; echo $$ >{place}/another; exec sleep 600' >/dev/null 2>&1 &
until [ -s {place}/on-gpu ] && [ -s {place}/beside ] && [ -s {place}/another ]; do sleep 0.05; done
"""


def alive(pid: int) -> bool:
    """It runs, and is not merely waiting to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.one_release
def test_what_a_job_left_on_the_gpu_is_ended(slurm: Embedded, tmp_path: Path) -> None:
    device = slurm.layout.device
    device.unlink()
    device.write_bytes(b"")
    job = slurm.sbatch(HOLD.format(device=device, place=tmp_path), "--gres=gpu:1", "--output=/dev/null")
    slurm.wait_state(job, "COMPLETED")
    on_gpu, beside, another = (int((tmp_path / name).read_text()) for name in ("on-gpu", "beside", "another"))
    try:
        until(lambda: not alive(on_gpu), lambda: "a process of the job still holds the GPU")
        assert alive(beside), "it is not on the GPU"
        assert alive(another), "nothing says that it is this job's"
        told = (slurm.layout.log_dir / "epilog.log").read_text()
        assert f"job {job} of user 0 left processes on the GPU; ended: {on_gpu}\n" in told
        assert "DRAIN" not in slurm.must("scontrol", "show", "node", slurm.node)
        slurm.wait_state(slurm.sbatch("true", "--gres=gpu:1", "--output=/dev/null"), "COMPLETED")
    finally:
        for pid in (beside, another):
            if alive(pid):
                os.kill(pid, 9)
