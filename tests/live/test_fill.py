"""Filler on real Slurm: it makes way in time, saves first, and goes on by itself."""

from __future__ import annotations

import pytest

from gpuq.adapters.embedded import host
from gpuq.adapters.embedded.control import Controller
from tests.embedded import Embedded
from tests.gpuq_cli import Project

GRACE = 6

pytestmark = pytest.mark.slurm_options(gate=True, grace=GRACE, cpus=4, memory=4000)

TRAIN = """\
cat >train.py <<'E'
import pathlib, signal, sys, time
place = pathlib.Path(sys.argv[1])
def save(*_):
    time.sleep(0.5)
    (place / "resume.pt").write_text("epoch 3")
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
if (place / "resume.pt").exists():
    print("resumed at", (place / "resume.pt").read_text(), flush=True)
    sys.exit(0)
print("training", flush=True)
while True:
    time.sleep(0.1)
E
python3 train.py "$GPUQ_RUN_DIR"
echo "the script went on"
"""

DEAF = r"""
trap '' TERM
while true; do date +%s.%N >"$GPUQ_RUN_DIR/next"; mv "$GPUQ_RUN_DIR/next" "$GPUQ_RUN_DIR/last"; sleep 0.1; done
"""


def real_job(slurm: Embedded) -> int:
    return slurm.sbatch("date +%s.%N", "--gres=gpu:1", "--mem=100M", "-c1", "--output=real.%j")


def times(slurm: Embedded, job: int) -> float:
    """When the job ran, in seconds since 1970."""
    slurm.wait_state(job, "COMPLETED")
    return float((slurm.dir / f"real.{job}").read_text())


def test_filler_saves_makes_way_and_goes_on(slurm: Embedded, project: Project) -> None:
    run = project.run("filler", TRAIN)
    said = project.gpuq("submit", "filler", "--fill", "--hold", "--dry-run").ok().stderr
    assert said.splitlines()[-1].endswith(", makes way for others, held")
    shown = project.gpuq("submit", "filler", "--fill", "--dry-run", "--json").ok().json
    assert "--partition=bg" in shown["argv"]
    assert "--requeue" in shown["argv"]
    filler = project.submit("filler", "--fill")
    slurm.wait(lambda: str("training" in project.log("filler")), ("True",))
    asked = slurm.sbatch("true", "--gres=gpu:1", "--mem=100M", "-c1", "--output=/dev/null")
    slurm.wait_state(asked, "COMPLETED", timeout=GRACE + 10)
    assert (run / "resume.pt").read_text() == "epoch 3"
    slurm.wait_state(filler, "PENDING")
    assert project.record("filler").ended is None
    row = next(row for row in project.gpuq("queue", "--json").ok().json["jobs"] if row["id"] == str(filler))
    assert row["state"] == "PENDING"
    # Slurm lets a requeued job wait for two minutes; `gpuq local` shortens that the same way after a restart.
    controller = Controller(slurm.layout, host.find_programs(), slurm.node)
    controller.start_first([one for one in controller.jobs("PENDING") if one.id == filler])
    assert project.ended("filler").outcome == "SUCCEEDED"
    log = project.log("filler")
    assert log.index("saved") < log.index("made way for another job") < log.index("started again after a requeue")
    assert log.index("started again") < log.index("resumed at epoch 3")
    assert log.count("the script went on") == 1
    assert "edited" not in project.gpuq("queue").ok().stdout


def test_filler_that_does_not_listen_is_off_the_gpu_when_the_grace_is_over(slurm: Embedded, project: Project) -> None:
    run = project.run("deaf", DEAF)
    filler = project.submit("deaf", "--fill")
    slurm.wait(lambda: str((run / "last").exists()), ("True",))
    job = real_job(slurm)
    began = times(slurm, job)
    assert float((run / "last").read_text()) < began
    slurm.wait_state(filler, "PENDING")


@pytest.mark.one_release
def test_filler_that_is_cancelled_does_not_come_back(slurm: Embedded, project: Project) -> None:
    project.run("gone", TRAIN)
    filler = project.submit("gone", "--fill")
    slurm.wait(lambda: str("training" in project.log("gone")), ("True",))
    project.gpuq("cancel", "gone").ok()
    assert slurm.wait_state(filler, "CANCELLED", "PENDING", "COMPLETED") == "CANCELLED"
    assert project.ended("gone").outcome == "CANCELLED"
    assert "the script went on" not in project.log("gone")


@pytest.mark.one_release
def test_filler_is_not_work_without_a_gpu(slurm: Embedded, project: Project) -> None:
    project.run("x")
    assert "--cpu-only" in project.gpuq("submit", "x", "--fill", "--cpu-only").exits(2).stderr
    assert slurm.queued() == ""
