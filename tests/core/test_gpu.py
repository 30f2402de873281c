"""Whose a process on the GPU is, what the GPU is to the next job, and whether a running job lives."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from gpuq.core.gpu.owner import (
    Kind,
    Knowledge,
    Life,
    Owner,
    Seen,
    Witness,
    life_of,
    owner_of,
    read_cgroup,
    read_environ,
    read_listpids,
    read_node_hosts,
)
from gpuq.core.gpu.readings import (
    GpuProcess,
    GpuState,
    Trouble,
    Verdict,
    judge,
    trouble_advice,
    trouble_words,
)
from gpuq.core.job import Job

NOON = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)
GIB = 1024**3


def job(number: int = 12, state: str = "RUNNING", **changes: Any) -> Job:
    values: dict[str, Any] = dict(
        id=str(number), number=number, name="dino", state=state, reason="", partition="gpu", user="u", uid=1000,
        submit=NOON, start=NOON, end=None, time_limit=None, elapsed=600, dependency="", gres="gres/gpu:1", memory=None,
        cpus=1, nice=0, priority=1, node="n1", comment="", workdir="/",
    )  # fmt: skip
    return Job(**{**values, **changes})


def seen(pid: int = 77, **changes: Any) -> Seen:
    values: dict[str, Any] = dict(
        pid=pid, uid=1000, user="u", name="python", command="python train.py", started=NOON + MINUTE, environ_read=True
    )
    return Seen(**{**values, **changes})


def of_job(number: int = 12, witness: Witness = Witness.CGROUP, node: str = "n1", **changes: Any) -> Seen:
    return seen(job=number, witness=witness, node=node, **changes)


def knows(*jobs: Job, uid: int = 0) -> Knowledge:
    return Knowledge({one.number: one for one in jobs}, {"n1"}, uid)


# -- whose -----------------------------------------------------------------------------------------------------


def test_a_process_of_a_running_job() -> None:
    for witness in Witness:
        owner = owner_of(of_job(witness=witness), knows(job()))
        assert (owner.kind, owner.job) == (Kind.JOB, 12)
        assert owner.words == "job 12 (dino)"
    assert owner_of(of_job(), knows(job(state="COMPLETING"))).words == "job 12 (dino), which is ending"
    assert owner_of(of_job(node=""), knows(job())).kind is Kind.JOB


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (knows(), "does not know it any more"),
        (knows(job(state="CANCELLED")), "it is CANCELLED"),
        (knows(job(state="TIMEOUT")), "it is TIMEOUT"),
        (knows(job(state="PENDING", start=None)), "requeued"),
    ],
)
def test_a_process_that_outlived_its_job(known: Knowledge, says: str) -> None:
    owner = owner_of(of_job(witness=Witness.ENVIRON), known)
    assert (owner.kind, owner.job) == (Kind.ORPHAN, 12)
    assert owner.words.startswith("orphan of job 12: ")
    assert says in owner.words


def test_a_job_number_that_was_given_out_again() -> None:
    earlier = of_job(witness=Witness.ENVIRON, started=NOON - MINUTE)
    assert owner_of(earlier, knows(job())).kind is Kind.ORPHAN
    # a cgroup is made anew for each job; and the clock may have been set by a little
    assert owner_of(of_job(started=NOON - MINUTE), knows(job())).kind is Kind.JOB
    near = of_job(witness=Witness.ENVIRON, started=NOON - datetime.timedelta(seconds=2))
    assert owner_of(near, knows(job())).kind is Kind.JOB


def test_nothing_is_concluded_from_what_slurm_did_not_say() -> None:
    silent = owner_of(of_job(), Knowledge(None, None, 0))
    assert (silent.kind, silent.job) == (Kind.JOB, 12)
    assert "without Slurm's answer" in silent.words
    hidden = owner_of(of_job(), knows(uid=1001))
    assert hidden.kind is Kind.OTHER
    assert "does not show" in hidden.words
    assert owner_of(of_job(), knows(uid=1000)).kind is Kind.ORPHAN  # a job of one's own is always shown
    assert owner_of(of_job(), knows(job(state="FAILED"), uid=1001)).kind is Kind.ORPHAN


def test_a_job_of_another_slurm_on_this_host() -> None:
    owner = owner_of(of_job(node="gpuqabcdef"), knows(job()))
    assert (owner.kind, owner.job) == (Kind.OTHER, None)
    assert "another Slurm" in owner.words


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (seen(name="Xorg", command="/usr/lib/xorg/Xorg :0"), Kind.DESKTOP),
        (seen(name="gnome-shell", command="/usr/bin/gnome-shell"), Kind.DESKTOP),
        (seen(name="code", command="/usr/share/code/code --type=gpu-process"), Kind.DESKTOP),
        (seen(name="GPU Process", command="/usr/lib/firefox/firefox -contentproc"), Kind.BROWSER),
        (seen(name="chrome", command="/opt/google/chrome/chrome --type=gpu-process"), Kind.BROWSER),
        (seen(name="python", command="python xorg.py"), Kind.OTHER),
        (None, Kind.UNSEEN),
        (seen(sluid="s8R5M8KJMM0300"), Kind.OTHER),
        (of_job(name="Xorg"), Kind.JOB),
    ],
)
def test_processes_that_are_in_no_job(one: Seen | None, kind: Kind) -> None:
    assert owner_of(one, knows(job())).kind is kind


# -- the witnesses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/\n",
        "0::/user.slice/user-1000.slice/session-2.scope\n",
        "0::/system.slice/n1_slurmstepd.scope/system\n",
        "0::/system.slice/slurmd.service\n",
        "4:memory:/slurm_n1\n3:cpuset:/slurm_n1/system\n",
        "4:memory:/home/slurm/uid_x/job_12\n",
        "0::/slurmstepd.scope/job_12x\n",
    ],
)
def test_cgroups_of_no_job(text: str) -> None:
    assert read_cgroup(text) is None


def test_an_environment_that_slurmstepd_did_not_make() -> None:
    assert read_environ(b"") is None
    assert read_environ(b"SLURM_JOB_ID=12\0SLURM_CONF=/x\0") is None  # salloc
    assert read_environ(b"SLURM_JOB_ID=x\0SLURM_TASK_PID=1\0") is None
    assert read_environ(b"SLURM_TASK_PID=1\0") is None
    found = read_environ(b"\0\0SLURM_JOB_ID=12\0A=\xff\0SLURM_TASK_PID=1")
    assert found is not None
    assert (found.job, found.node) == (12, "")


def test_listpids_of_a_node_without_jobs() -> None:
    assert read_listpids("PID      JOBID    STEPID   LOCALID GLOBALID\n") == {}
    assert read_listpids("") == {}


def test_the_hosts_of_nodes() -> None:
    text = (
        "NodeName=n1 Arch=x86_64 CoresPerSocket=2 \n   Gres=gpu:1\n   NodeAddr=127.0.0.1 NodeHostName=vm Version=22.05.8\n\n"
        "NodeName=n2 CoresPerSocket=2 \n   NodeAddr=n2 NodeHostName=n2.lab \n   Comment=NodeName=n9\n\nNodeName=n3\n"
    )
    assert read_node_hosts(text) == {"n1": "vm", "n2": "n2.lab"}
    assert read_node_hosts("No nodes in the system\n") == {}


# -- the verdict -----------------------------------------------------------------------------------------------

JOB = Owner(Kind.JOB, 12, "job 12 (dino)")
ORPHAN = Owner(Kind.ORPHAN, 9, "orphan of job 9")
DESKTOP = Owner(Kind.DESKTOP, None, "desktop")
BROWSER = Owner(Kind.BROWSER, None, "browser")
OTHER = Owner(Kind.OTHER, None, "not in a job")
UNSEEN = Owner(Kind.UNSEEN, None, "unseen")


def verdict(
    *owners: Owner, given: tuple[str, ...] = (), memory: int | None = GIB, alone: bool = True
) -> tuple[str, str]:
    pairs = [(GpuProcess(100 + number, memory, False), owner) for number, owner in enumerate(owners)]
    gpu = GpuState(index=0, processes=tuple(process for process, _ in pairs))
    found, words = judge(gpu, pairs, given, alone=alone)
    return found.value, words


def test_who_holds_the_gpu() -> None:
    assert verdict() == ("free", "free")
    assert verdict(JOB) == ("job", "held by job 12 (1G)")
    assert verdict(JOB, JOB) == ("job", "held by job 12 (2G)")
    assert verdict(JOB, memory=None) == ("job", "held by job 12")
    assert verdict(DESKTOP, BROWSER) == ("desktop", "free for a job, beside the desktop (1G) and a browser (1G)")
    assert verdict(JOB, ORPHAN, DESKTOP) == (
        "orphan",
        "held by job 12 (1G), an orphan of job 9 (1G) and the desktop (1G)",
    )
    assert verdict(OTHER, JOB) == ("other", "held by process 100, in no job (1G) and job 12 (1G)")
    assert verdict(UNSEEN)[0] == "other"


def test_a_gpu_that_slurm_gave_to_a_job_without_a_process_on_it() -> None:
    assert verdict(given=("job 12",)) == ("job", "given by Slurm to job 12, without a process on it now")
    assert verdict(DESKTOP, given=("job 12",))[0] == "job"
    assert verdict(ORPHAN, given=("job 12",))[0] == "orphan"
    assert verdict(given=("job 12",), alone=False)[0] == "unknown"


def test_a_gpu_that_does_not_tell() -> None:
    found, words = judge(GpuState(index=0), [], ["job 12"])
    assert found is Verdict.UNKNOWN
    assert "job 12" in words
    found, words = judge(GpuState(index=0, trouble=Trouble.LOST, detail="GPU is lost"), [], [])
    assert found is Verdict.TROUBLE
    assert "GPU is lost" in words


@pytest.mark.parametrize("trouble", list(Trouble))
def test_every_trouble_has_a_sentence_and_something_to_do(trouble: Trouble) -> None:
    assert trouble_words(trouble).endswith(".")
    assert trouble_words(trouble, "Unknown Error").endswith(".")
    assert trouble_advice(trouble)


# -- does it live ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("processes", "life"),
    [
        ([], Life.DEAD),
        ([of_job()], Life.LIVES),
        ([of_job(witness=Witness.ENVIRON)], Life.LIVES),
        ([of_job(node="")], Life.LIVES),
        ([of_job(node="other")], Life.DEAD),
        ([of_job(13)], Life.DEAD),
        # slurmstepd ends its job itself
        ([seen(job=12, step_daemon=True, uid=0)], Life.LIVES),
        ([seen(job=13, step_daemon=True, uid=0)], Life.DEAD),
        ([seen(step_daemon=True, uid=0)], Life.UNKNOWN),
        # may be one of its own
        ([seen(environ_read=False)], Life.UNKNOWN),
        ([seen(environ_read=False, started=NOON - MINUTE)], Life.DEAD),
        ([seen(environ_read=False, uid=5)], Life.DEAD),
        ([seen(sluid="s8R5M8KJMM0300")], Life.UNKNOWN),
        ([seen(environ_read=False), of_job()], Life.LIVES),
    ],
)
def test_whether_a_running_job_lives(processes: list[Seen], life: Life) -> None:
    assert life_of(job(), processes, all_visible=True) is life


def test_where_processes_are_hidden_no_job_is_called_dead() -> None:
    assert life_of(job(), [], all_visible=False) is Life.UNKNOWN
    assert life_of(job(), [of_job()], all_visible=False) is Life.LIVES
