"""scripts/prove_slurm.sh, which the set-up of a host ends with, against a Slurm that holds jobs to what they asked for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.embedded import CAN_CONFINE, Embedded

SCRIPT = Path(__file__).parents[2] / "scripts" / "prove_slurm.sh"


def prove(slurm: Embedded) -> subprocess.CompletedProcess[str]:
    argv = [str(SCRIPT)]
    # Root's own jobs: those of anybody else would have to reach this Slurm's socket below a private directory.
    return subprocess.run(argv, env=slurm.env | {"SUDO_USER": "root"}, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not CAN_CONFINE, reason="needs root and writable control groups")
def test_proves_what_a_confined_slurm_does_and_leaves_a_busy_one_alone(slurm: Embedded) -> None:
    done = prove(slurm)
    assert done.returncode == 0, done.stdout + done.stderr
    for said in ("with the GPU may open it", "without the GPU may not", "over its memory is OUT_OF_MEMORY", "proved"):
        assert said in done.stdout

    job = slurm.sbatch("sleep 600", "--gres=gpu:1", "--mem=50")
    slurm.wait_state(job, "RUNNING")
    done = prove(slurm)
    assert (done.returncode, f"job {job} runs" in done.stdout) == (75, True), done.stdout + done.stderr


@pytest.mark.one_release
@pytest.mark.slurm_options(confine=False)
def test_a_slurm_that_confines_nothing_is_not_proved(slurm: Embedded) -> None:
    """Without control groups a job without the GPU may open it."""
    done = prove(slurm)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NOT PROVED: a job without the GPU is not kept" in done.stdout
