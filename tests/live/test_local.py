"""`gpuq local` against the installed Slurm: nothing is lost, nothing is left, and jobs are confined."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gpuq.adapters import proc
from gpuq.adapters.embedded import daemons, state
from gpuq.adapters.embedded.state import Options
from gpuq.errors import HostError
from gpuq.usecases import local
from tests.embedded import Embedded
from tests.gpuq_cli import Project
from tests.stranger import public_copy

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="cgroups and mknod need root")
SAVED = 8.0
"""Seconds after which slurmctld has written a change of its queue to disk (every 5 s at most)."""


def _pause(seconds: float) -> None:
    time.sleep(seconds)


# up, down, status, env ----------------------------------------------------------------------------


def test_up_twice_is_a_no_op(slurm: Embedded) -> None:
    before = slurm.status()
    assert before.state == "up"
    assert before.problems == ()
    assert slurm.up().daemons == before.daemons
    assert before.node == slurm.node
    assert before.jobs == local.JobCounts(0, 0)


@pytest.mark.one_release
def test_down_twice_is_a_no_op_and_leaves_nothing(slurm: Embedded) -> None:
    job = slurm.sbatch("setsid sleep 300 & sleep 300", "--gres=gpu:1")
    slurm.wait_state(job, "RUNNING")
    assert slurm.down(cancel=True).state == "down"
    assert slurm.leftovers() == []
    assert not slurm.layout.conf.exists()
    assert slurm.down().state == "down"


def test_two_ups_at_once_start_one(slurm: Embedded) -> None:
    slurm.down()
    answers: list[local.LocalStatus] = []
    threads = [threading.Thread(target=lambda: answers.append(slurm.up())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.state for answer in answers] == ["up", "up"]
    assert answers[0].daemons == answers[1].daemons


@pytest.mark.one_release
def test_two_side_by_side_do_not_touch_each_other(slurm: Embedded) -> None:
    other = Embedded(Path(tempfile.mkdtemp(prefix="gq", dir="/tmp")), Options())
    try:
        other.up()
        assert other.status().node != slurm.status().node
        job = slurm.sbatch("sleep 300", "--gres=gpu:1")
        theirs = other.sbatch("sleep 300", "--gres=gpu:1")
        slurm.wait_state(job, "RUNNING")
        other.wait_state(theirs, "RUNNING")
        other.down(cancel=True)
        assert other.leftovers() == []
        assert slurm.status().state == "up"
        assert slurm.job_state(job) == "RUNNING"
    finally:
        other.down(cancel=True)
        shutil.rmtree(other.dir)


def test_taken_ports_are_chosen_again(slurm: Embedded) -> None:
    slurm.down()
    saved = state.load(slurm.layout)
    assert saved is not None
    with socket.socket() as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taker.bind(("0.0.0.0", saved.slurmctld_port))
        taker.listen()
        now = slurm.up()
    assert now.state == "up"
    assert now.ports.slurmctld != saved.slurmctld_port


@pytest.mark.slurm_options(max_time="10", cpus=7, memory=5000, extra=("Licenses=gpuqtest:2",))
def test_options_reach_slurm_and_are_remembered(slurm: Embedded) -> None:
    assert "MaxTime=00:10:00" in slurm.must("scontrol", "show", "partition", "gpu")
    assert "CPUTot=7" in slurm.must("scontrol", "show", "node")
    assert "RealMemory=5000" in slurm.must("scontrol", "show", "node")
    assert "gpuqtest" in slurm.must("scontrol", "show", "licenses")
    slurm.down()
    local.up(slurm.dir)
    assert "MaxTime=00:10:00" in slurm.must("scontrol", "show", "partition", "gpu")


def test_all_cpus_can_be_used(slurm: Embedded) -> None:
    cpus = slurm.must("sinfo", "-h", "-o", "%c").strip()
    job = slurm.sbatch("nproc > cpus.txt", "-c", cpus)
    slurm.wait_state(job, "COMPLETED")
    assert (slurm.dir / "cpus.txt").read_text().strip() == cpus


def test_the_commands(slurm: Embedded, tmp_path: Path) -> None:
    run = Project(tmp_path / "project").gpuq  # processes of their own: some releases of click mix the streams
    where = ("--dir", str(slurm.dir))
    document = run("local", "status", "--json", *where).ok().json
    assert document["schema"] == "gpuq.local/1"
    assert document["state"] == "up"
    assert set(document["daemons"]) == {"munged", "slurmctld", "slurmd"}
    shown = run("local", "status", *where).ok().stdout
    assert "simulated" in shown or "real: /dev/nvidia0" in shown
    run("local", "up", *where).ok()
    assert run("local", "env", *where).ok().stdout == f"export SLURM_CONF={slurm.layout.conf}\n"
    assert run("local", "down", "--cancel", *where).ok().stdout == ""
    refused = run("local", "env", *where).exits(HostError.exit_code)
    assert "no embedded Slurm is up" in refused.stderr


def test_nice_and_top_move_a_job_on_every_release(slurm: Embedded) -> None:
    first, nicer, last = (slurm.sbatch("true", "--hold", nice) for nice in ("--nice=0", "--nice=100", "--nice=0"))
    slurm.must("scontrol", "update", "PartitionName=gpu", "State=DOWN")
    slurm.must("scontrol", "release", f"{first},{nicer},{last}")

    def order() -> list[int]:
        lines = slurm.must("squeue", "-h", "-o", "%Q %A").splitlines()
        return [int(line.split()[1]) for line in sorted(lines, key=lambda line: -int(line.split()[0]))]

    assert order() == [first, last, nicer]
    slurm.must("scontrol", "top", str(last))
    assert order() == [last, first, nicer]


# nothing is lost ----------------------------------------------------------------------------------


def test_down_requeues_what_runs_and_keeps_what_waits(slurm: Embedded) -> None:
    first = slurm.sbatch("sleep 300", "--gres=gpu:1", "-J", "first")
    second = slurm.sbatch("sleep 300", "--gres=gpu:1", "-J", "second")
    slurm.wait_state(first, "RUNNING")
    slurm.down()
    assert slurm.leftovers() == []
    assert any("back to the queue" in text and f"{first} (first)" in text for text in slurm.said)
    assert any("1 waiting job kept" in text for text in slurm.said)
    slurm.up()
    # The interrupted one goes first: it does not sit out Slurm's two minutes while the other overtakes.
    slurm.wait_state(first, "RUNNING")
    assert slurm.job_state(second) == "PENDING"
    assert slurm.field(first, "Restarts") == "1"


def test_down_cancels_what_may_not_run_again(slurm: Embedded) -> None:
    job = slurm.sbatch("sleep 300", "--no-requeue")
    slurm.wait_state(job, "RUNNING")
    slurm.down()
    assert any("may not be requeued" in text and str(job) in text for text in slurm.said)
    slurm.up()
    assert slurm.job_state(job) == "CANCELLED"


def test_after_a_power_cut_the_running_job_runs_again_first(slurm: Embedded) -> None:
    first = slurm.sbatch("sleep 300", "--gres=gpu:1")
    final = slurm.sbatch("sleep 300", "--no-requeue")
    second = slurm.sbatch("sleep 300", "--gres=gpu:1")
    slurm.wait_state(first, "RUNNING")
    slurm.wait_state(final, "RUNNING")
    _pause(SAVED)
    slurm.kill_everything()
    assert slurm.status().state == "broken"
    slurm.up()
    assert any("requeued" in text and str(first) in text for text in slurm.said)
    assert slurm.job_state(final) == "NODE_FAIL"
    slurm.wait_state(first, "RUNNING")
    assert slurm.job_state(second) == "PENDING"
    assert slurm.field(first, "Restarts") == "1"


def test_a_job_whose_script_a_power_cut_emptied_says_so_and_others_go_on(slurm: Embedded) -> None:
    # What was seen after a power cut: the list of jobs was on the disk, both files of this job were there and empty.
    # slurmctld of 26.05 ends itself when it is to start such a job.
    lost = slurm.sbatch("echo ran", "--hold", "--output=lost.out")
    kept = slurm.sbatch("echo ran; test -n $HOME", "--hold", "--output=kept.out")
    slurm.down()
    emptied = list(slurm.layout.state_dir.glob(f"hash.*/job.{lost}/*"))
    assert {path.name for path in emptied} == {"script", "environment"}
    for path in emptied:
        path.write_bytes(b"")
    slurm.up()
    slurm.must("scontrol", "release", f"{lost},{kept}")
    slurm.wait_state(lost, "FAILED")
    slurm.wait_state(kept, "COMPLETED")
    assert (slurm.dir / "lost.out").read_text() == (
        "gpuq: Slurm lost the script of this job when the power went, before it was on the disk. Submit it again.\n"
    )
    assert (slurm.dir / "kept.out").read_text() == "ran\n"


def test_an_orphan_is_ended_before_its_job_runs_again(slurm: Embedded) -> None:
    job = slurm.sbatch("echo run >> runs.txt; exec sleep 300", "--gres=gpu:1")
    slurm.wait_state(job, "RUNNING")
    _pause(SAVED)
    slurm.kill_daemons("slurmctld", "slurmd", "munged", "steps")
    slurm.up()
    slurm.wait_state(job, "RUNNING")
    slurm.wait(lambda: (slurm.dir / "runs.txt").read_text(), ("run\nrun\n",))
    assert len(daemons.job_processes(slurm.layout)) == 1


@pytest.mark.parametrize("victims", [("slurmctld",), ("slurmd",), ("munged",), ("slurmctld", "slurmd", "munged")])
def test_a_job_goes_on_when_only_daemons_die(slurm: Embedded, victims: tuple[str, ...]) -> None:
    job = slurm.sbatch("while [ ! -e stop ]; do sleep 0.1; done", "--gres=gpu:1")
    slurm.wait_state(job, "RUNNING")
    _pause(SAVED)
    slurm.kill_daemons(*victims)
    assert slurm.status().state == "broken"
    assert slurm.up().state == "up"
    assert slurm.job_state(job) == "RUNNING"
    (slurm.dir / "stop").touch()
    slurm.wait_state(job, "COMPLETED")
    assert slurm.field(job, "Restarts") == "0"


def test_down_without_slurmctld_still_cleans_and_loses_nothing(slurm: Embedded) -> None:
    job = slurm.sbatch("setsid sleep 300 & sleep 300", "--gres=gpu:1")
    slurm.wait_state(job, "RUNNING")
    _pause(SAVED)
    slurm.kill_daemons("slurmctld")
    slurm.down()
    assert slurm.leftovers() == []
    slurm.up()
    slurm.wait_state(job, "RUNNING")


def test_up_finishes_what_a_killed_down_began(slurm: Embedded) -> None:
    slurm.must("scontrol", "update", "PartitionName=gpu", "State=DOWN")
    slurm.layout.unfinished.touch()
    assert slurm.status().state == "broken"
    assert slurm.up().state == "up"
    assert "State=UP" in slurm.must("scontrol", "show", "partition", "gpu")


# confinement --------------------------------------------------------------------------------------


@root_only
def test_the_gpu_is_open_to_jobs_that_asked_and_closed_to_others(slurm: Embedded) -> None:
    now = slurm.status()
    if not now.confinement.on or now.gpu.real:
        pytest.skip(f"needs cgroups and a simulated GPU: {now.confinement.missing} {now.gpu.text}")
    probe = f"""
exec > errno.$SLURM_JOB_NAME
python3 -c "
try: open('{now.gpu.file}')
except OSError as error: print(error.errno)"
echo $CUDA_VISIBLE_DEVICES"""
    asked = slurm.sbatch(probe, "--gres=gpu:1", "-J", "asked")
    plain = slurm.sbatch(probe, "-J", "plain")
    slurm.wait_state(asked, "COMPLETED")
    slurm.wait_state(plain, "COMPLETED")
    assert (slurm.dir / "errno.asked").read_text() == "6\n0\n"  # ENXIO: allowed, but no driver behind it
    assert (slurm.dir / "errno.plain").read_text().split() == ["1"]  # EPERM


@root_only
def test_too_much_memory_is_reported_as_such(slurm: Embedded) -> None:
    if not slurm.status().confinement.on:
        pytest.skip("needs cgroups")
    job = slurm.sbatch(f"{sys.executable} -c \"x = b'1' * 300_000_000\"", "--mem=50M")
    assert slurm.wait_state(job, "OUT_OF_MEMORY", "FAILED", "COMPLETED") == "OUT_OF_MEMORY"


@root_only
def test_a_process_in_its_own_session_ends_with_its_job(slurm: Embedded) -> None:
    if not slurm.status().confinement.on:
        pytest.skip("needs cgroups")
    job = slurm.sbatch("env -i setsid sleep 300 & echo $! > pid; sleep 300")
    slurm.wait_state(job, "RUNNING")
    slurm.wait(lambda: str((slurm.dir / "pid").exists()), ("True",))
    slurm.must("scancel", str(job))
    slurm.wait(lambda: slurm.must("squeue", "-h"), ("",))
    pid = (slurm.dir / "pid").read_text().strip()
    # Where PID 1 reaps late it may stay as a zombie.
    assert not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE


# a plain user -------------------------------------------------------------------------------------


@pytest.fixture
def stranger() -> Iterator[str]:
    """A throw-away user."""
    if os.geteuid() != 0:
        pytest.skip("already a plain user: every other test covers it")
    if shutil.which("useradd") is None or shutil.which("runuser") is None or shutil.which("userdel") is None:
        pytest.skip("no useradd or runuser here")
    name = f"gpuqt{os.getpid()}"
    proc.run(["useradd", "--no-create-home", "--shell", "/bin/bash", name], timeout=20)
    try:
        pwd.getpwnam(name)
    except KeyError:
        pytest.skip("useradd does not work here")
    yield name
    proc.run(["userdel", name], timeout=20)


def test_a_plain_user_without_confinement(stranger: str) -> None:
    place = Path(tempfile.mkdtemp(prefix="gq", dir="/tmp"))
    shutil.chown(place, stranger)
    home = place / "home"
    script = place / "as_user.py"
    script.write_text(_AS_USER)
    script.chmod(0o644)
    python, code = public_copy(place, stranger)
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": code, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        result = proc.run(
            [shutil.which("runuser") or "runuser", "-u", stranger, "--", python, str(script), str(place / "s")],
            timeout=120,
            env=env,
            cwd=Path("/"),
        )
        assert result.ok, result.stderr + result.stdout
        answer = json.loads(result.stdout.splitlines()[-1])
        assert answer["state"] == "up"
        assert answer["confined"] is False
        assert "not root" in answer["missing"][0]
        assert answer["code"] == "0\n", "gpuq run takes the GPU that stands in for one"
        assert answer["cuda"] == "0\n"
        assert answer["left"] == []
    finally:
        Embedded(place / "s", Options()).down(cancel=True)
        shutil.rmtree(place)


_AS_USER = """
import json, sys
from pathlib import Path
from gpuq.adapters.embedded.state import Options
from tests.embedded import Embedded
slurm = Embedded(Path(sys.argv[1]), Options())
now = slurm.up()
gpuq = f"{sys.executable} -m gpuq"
job = slurm.sbatch(f"{gpuq} run -- bash -c 'echo $CUDA_VISIBLE_DEVICES > cuda'; echo $? > code; sleep 300", "--gres=gpu:1")
slurm.wait_state(job, "RUNNING")
slurm.wait(lambda: (slurm.dir / "code").read_text() if (slurm.dir / "code").exists() else "", ("0\\n", "15\\n"))
slurm.kill_everything()
slurm.up()
slurm.down(cancel=True)
print(json.dumps({"state": now.state, "confined": now.confinement.on, "missing": now.confinement.missing,
                  "code": (slurm.dir / "code").read_text(), "left": slurm.leftovers(),
                  "cuda": (slurm.dir / "cuda").read_text() if (slurm.dir / "cuda").exists() else ""}))
"""


# plain answers ------------------------------------------------------------------------------------


def test_a_daemon_that_cannot_start_is_quoted_and_nothing_stays(slurm: Embedded) -> None:
    slurm.down()
    bad = Options(extra=("PartitionName=broken Nodes=nosuchnode State=UP",))
    with pytest.raises(HostError, match="fatal:"):
        local.up(slurm.dir, bad)
    assert slurm.leftovers() == []
    assert slurm.status().state == "down"
    local.up(slurm.dir, Options(extra=()))
