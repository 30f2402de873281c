"""Why a job waits: scenes, and the answer that each must get."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from gpuq.core.job import Job, Node, Partition
from gpuq.core.usage import Allocation, Estimate, NodeUsage
from gpuq.core.waits.scene import Holder, Scene, clock, clock_time
from gpuq.core.waits.waiting import explain, wants_estimate

GIB = 2**30
NOW = datetime.datetime(2026, 11, 29, 12, 0, tzinfo=datetime.UTC)
HOUR = 3600


def after(seconds: int) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def job(number: int, **given: Any) -> Job:
    values: dict[str, Any] = {
        "id": str(number),
        "number": number,
        "name": f"run{number}",
        "state": "PENDING",
        "reason": "Resources",
        "partition": "gpu",
        "user": "me",
        "uid": 1000,
        "submit": NOW,
        "start": None,
        "end": None,
        "time_limit": HOUR,
        "elapsed": 0,
        "dependency": "",
        "gres": "gres/gpu:1",
        "memory": 8 * GIB,
        "cpus": 4,
        "nice": 0,
        "priority": 1000 - number,
        "node": "",
        "comment": f"gpuq:1:1:{number:016x}",
        "workdir": "/",
    }
    return Job(**{**values, **given})


def running(number: int, **given: Any) -> Job:
    return job(number, **{"state": "RUNNING", "reason": "", "start": NOW, "end": after(HOUR), "node": "n1", **given})


def holds(row: Job, memory: int | None = 8 * GIB, *, cpus: int = 4, gpus: int = 1, **given: Any) -> Holder:
    return Holder(job=row, has=Allocation(cpus=cpus, memory=memory, gpus=gpus), **given)


def scene(mine: Job, *holders: Holder, others: tuple[Job, ...] = (), **given: Any) -> Scene:
    asks = given.pop("asks", Allocation(cpus=mine.cpus, memory=mine.memory, gpus=1 if mine.has_gpu else 0))
    usage = NodeUsage(
        name="n1",
        cpus=16,
        cpus_used=sum(h.has.cpus for h in holders),
        memory=54 * GIB,
        memory_used=sum(h.has.memory or 0 for h in holders),
        gpus=1,
        gpus_used=sum(h.has.gpus for h in holders),
        state="MIXED",
        reason="",
    )
    values: dict[str, Any] = {
        "job": mine,
        "name": mine.name,
        "asks": asks,
        "rows": (mine, *(h.job for h in holders), *others),
        "holders": holders,
        "partitions": (partition(),),
        "nodes": (Node(name="n1", partition="gpu", cpus=16, memory=54 * GIB, gres="gpu:1", state="mixed", reason=""),),
        "usage": (usage,),
        "now": NOW,
    }
    return Scene(**{**values, **given})


def partition(**given: Any) -> Partition:
    values: dict[str, Any] = {
        "name": "gpu",
        "default": True,
        "max_time": 7 * 24 * HOUR,
        "default_time": None,
        "max_cpus_per_node": None,
        "max_memory_per_node": None,
        "state": "UP",
    }
    return Partition(**{**values, **given})


def node(**given: Any) -> NodeUsage:
    values: dict[str, Any] = {
        "name": "n1",
        "cpus": 16,
        "cpus_used": 0,
        "memory": 54 * GIB,
        "memory_used": 0,
        "gpus": 1,
        "gpus_used": 0,
        "state": "IDLE",
        "reason": "",
    }
    return NodeUsage(**{**values, **given})


def limited(seconds: int, reason: str, **given: Any) -> Scene:
    return scene(job(14, time_limit=seconds, reason=reason), partitions=(partition(max_time=1800),), **given)


def beside(mine: Job, *holders: Holder, **given: Any) -> Scene:
    """A node whose partition `cpu` gives its jobs 4 CPUs together, with 2G each."""
    share: dict[str, Any] = {"max_cpus_per_node": 4, "max_memory_per_node": 8 * GIB, "max_memory_per_cpu": 2 * GIB}
    nodes = [
        Node(name="n1", partition=name, cpus=16, memory=54 * GIB, gres="gpu:1", state="mixed", reason="")
        for name in ("gpu", "cpu")
    ]
    cpu = partition(name="cpu", **{**share, **given.pop("limits", {})})
    return scene(mine, *holders, partitions=(partition(), cpu), nodes=tuple(nodes), **given)


def small(number: int, cpus: int = 1, memory: int = GIB, **given: Any) -> Job:
    return job(number, **{"partition": "cpu", "gres": "", "cpus": cpus, "memory": memory, **given})


def runs_beside(number: int, cpus: int, **given: Any) -> Holder:
    row = running(number, **{"partition": "cpu", "gres": "", "cpus": cpus, "memory": GIB, **given})
    return holds(row, GIB, cpus=cpus, gpus=0)


LICENSED = {"max_cpus_per_node": None, "max_memory_per_node": None}

FAILED = job(10, state="FAILED", reason="NonZeroExitCode")

CASES: list[tuple[str, Scene, str, tuple[str, ...]]] = [
    (
        "the GPU is held, with limit and history",
        scene(job(13), holds(running(12), typical=1800)),
        "gpu-busy",
        ("held by job 12 (run12)", f"until {clock(after(HOUR), NOW)} at the latest", "probably until", "gpuq wait 12"),
    ),
    (
        "it runs longer than usual",
        scene(job(13), holds(running(12, start=after(-7200)), typical=1800)),
        "gpu-busy",
        ("longer than its usual 30m",),
    ),
    (
        "no time limit at all",
        scene(job(13), holds(running(12, time_limit=None, end=None))),
        "gpu-busy",
        ("without a time limit",),
    ),
    (
        "somebody else's job",
        scene(job(13), holds(running(12, user="eve"), own=False)),
        "gpu-busy",
        ("job 12 (run12, eve)",),
    ),
    (
        "the GPU is held, and others are before it",
        scene(job(15, reason="Priority"), holds(running(12)), others=(job(13), job(14))),
        "gpu-busy",
        ("2 jobs before it", "gpuq top run15"),
    ),
    (
        "memory is the cause",
        scene(job(13, memory=28 * GIB), holds(running(12), 40 * GIB, gpus=0)),
        "memory-busy",
        ("the GPU is free; job 12 (run12) holds 40G of 54G", "asks for 28G", "--mem 14336M"),
    ),
    (
        "the holder asked for no memory and got all",
        scene(
            job(13),
            holds(running(12, memory=None, gres="", comment=""), 54 * GIB, gpus=0),
            default_memory=False,
        ),
        "memory-busy",
        ("holds 54G (it asked for no --mem) of 54G", "DefMemPerCPU=3456"),
    ),
    (
        "a release that shows what it gave instead of what was asked for",
        scene(
            job(13),
            holds(running(12, memory=54 * GIB, comment=""), 54 * GIB, gpus=0),
            default_memory=False,
        ),
        "memory-busy",
        ("it asked for no --mem",),
    ),
    (
        "this one names no memory",
        scene(job(13, memory=None), holds(running(12), 1 * GIB, gpus=0), default_memory=False),
        "memory-busy",
        ("this one names no --mem and gets all", "MinMemoryNode"),
    ),
    (
        "cores are the cause",
        scene(job(13, cpus=8), holds(running(12), 1 * GIB, cpus=12, gpus=0)),
        "cores-busy",
        ("holds 12 of 16 cores, this one asks for 8",),
    ),
    (
        "the GPU and memory both",
        scene(job(13, memory=28 * GIB), holds(running(12), 40 * GIB)),
        "gpu-busy",
        ("also short: job 12 (run12) holds 40G of 54G",),
    ),
    (
        "all is free and others are first",
        scene(job(15, reason="Priority"), others=(job(13), job(14))),
        "behind",
        ("behind 2 jobs; the next to run is job 13",),
    ),
    (
        "a CPU job behind a GPU job that waits",
        scene(job(15, gres="", reason="Priority"), others=(job(13),)),
        "behind",
        ("keeps the node's room for the GPU job",),
    ),
    ("all is free", scene(job(13, reason="")), "about-to-start", ("has all that it needs",)),
    (
        "its partition's share of the node is taken, and the node has room",
        beside(small(13), runs_beside(11, 1), runs_beside(12, 3)),
        "share-busy",
        (
            "all jobs of partition cpu together may have 4 CPUs of n1",
            "job 12 (run12) holds 3, job 11 (run11) holds 1, this one takes 1",
            "at the latest",
            "gpuq wait 12",
        ),
    ),
    (
        "the share, and the node is full too",
        beside(small(13, memory=2 * GIB), holds(running(10, cpus=8), 52 * GIB), runs_beside(12, 4)),
        "share-busy",
        ("waits for its share", "gpuq wait 12", "also short: job 10 (run10) holds 52G, job 12 (run12) holds 1G of 54G"),
    ),
    (
        "memory that costs more CPUs than are left of the share",
        beside(small(13, memory=6 * GIB), runs_beside(12, 2)),
        "share-busy",
        ("this one takes 3 (6G of memory, 2G each)", "gpuq set run13 --mem 4096M (free now)", "gpuq wait 12"),
    ),
    (
        "a share that Slurm counts as licenses",
        beside(small(13, cpus=4, reason="Licenses"), runs_beside(12, 6), limits=LICENSED),
        "share-busy",
        ("may have 8 CPUs of n1, job 12 (run12) holds 6, this one takes 4",),
    ),
    (
        "a license of something else",
        beside(small(13, reason="Licenses"), runs_beside(12, 1), limits=LICENSED),
        "other-reason",
        ("waits for a license",),
    ),
    (
        "a job of the other partition takes nothing of the share",
        beside(small(13), holds(running(12, cpus=16), cpus=16)),
        "cores-busy",
        ("job 12 (run12) holds 16 of 16 cores",),
    ),
    (
        "a job that may run in either, and one has room",
        beside(small(13, partition="gpu,cpu"), runs_beside(12, 4)),
        "about-to-start",
        (),
    ),
    (
        "more than the share is at all",
        beside(small(13, memory=10 * GIB), runs_beside(12, 1)),
        "never-fits",
        ("asks for 10G of memory, partition cpu gives at most 8G",),
    ),
    (
        "an empty list of unavailable nodes is ordinary waiting",
        scene(job(13, reason="ReqNodeNotAvail, UnavailableNodes:"), holds(running(12))),
        "gpu-busy",
        ("held by job 12",),
    ),
    (
        "an empty list, and nothing in the way",
        scene(job(13, reason="ReqNodeNotAvail, UnavailableNodes:")),
        "about-to-start",
        (),
    ),
    (
        "a node that is not available",
        scene(
            job(13, reason="ReqNodeNotAvail, UnavailableNodes:n1"),
            usage=(node(state="DOWN*", reason="Node unexpectedly rebooted"),),
        ),
        "node-down",
        ("node n1 is DOWN*: Node unexpectedly rebooted", "NodeName=n1 State=RESUME", "gpuq doctor"),
    ),
    (
        "a drained node, though Slurm says Resources",
        scene(job(13), usage=(node(state="IDLE+DRAIN", reason="new fan"),)),
        "node-down",
        ("IDLE+DRAIN: new fan",),
    ),
    (
        "slurmd does not answer",
        scene(job(13), usage=(node(state="DOWN*"),)),
        "node-down",
        ("its slurmd does not answer", "systemctl restart slurmd"),
    ),
    (
        "more time than the partition allows",
        limited(7200, "PartitionTimeLimit"),
        "time-limit-too-long",
        ("asks 2:00:00, partition allows 30:00", "gpuq set run14 --time 00:30:00"),
    ),
    (
        "the same while it still reads Priority",
        limited(24 * HOUR, "Priority", others=(job(9),)),
        "time-limit-too-long",
        ("asks 1-00:00:00, partition allows 30:00",),
    ),
    (
        "unlimited where the partition has a limit",
        scene(job(14, time_limit=None, reason="PartitionTimeLimit"), partitions=(partition(max_time=1800),)),
        "time-limit-too-long",
        ("asks no time limit",),
    ),
    ("too many cores", scene(job(13, cpus=64, reason="PartitionConfig")), "never-fits", ("asks for 64 CPUs", "has 16")),
    (
        "too much memory",
        scene(job(13, memory=100 * GIB, reason="BadConstraints")),
        "never-fits",
        ("asks for 100G", "has 54G", "--mem 55296M"),
    ),
    (
        "too many GPUs",
        scene(job(13, reason="BadConstraints"), asks=Allocation(cpus=1, memory=GIB, gpus=2)),
        "never-fits",
        ("asks for 2 GPUs",),
    ),
    ("no node has it", scene(job(13, reason="BadConstraints")), "never-fits", ("no node of the partition",)),
    ("held", scene(job(13, reason="JobHeldUser", priority=0)), "held", ("gpuq release run13",)),
    ("held by root", scene(job(13, reason="JobHeldAdmin", priority=0)), "held-by-admin", ("scontrol release 13",)),
    (
        "held after a launch that failed",
        scene(
            job(13, reason="launch failed requeued held", priority=0),
            slurmd_log="/var/log/slurmd.log",
        ),
        "launch-failed-held",
        ("could not start", "/var/log/slurmd.log", "gpuq release run13"),
    ),
    (
        "the partition is down",
        scene(job(13, reason="PartitionDown"), partitions=(partition(state="DOWN"),)),
        "partition-down",
        ("PartitionName=gpu State=UP",),
    ),
    (
        "put back, and waits two minutes",
        scene(
            job(13, reason="BeginTime", start=after(120)),
            asks=Allocation(cpus=4, memory=GIB, gpus=1, restarts=1),
        ),
        "begin-time",
        ("a requeued job wait two minutes", "gpuq release run13"),
    ),
    (
        "begins later",
        scene(job(13, reason="BeginTime", start=after(48 * HOUR))),
        "begin-time",
        (clock(after(48 * HOUR), NOW), "that is its begin time"),
    ),
    (
        "waits for a job that runs",
        scene(job(13, reason="Dependency", dependency="afterok:12(unfulfilled)"), holds(running(12))),
        "dependency",
        ("waits for job 12 (run12) to succeed", "at the latest", "gpuq wait 12"),
    ),
    (
        "a dependency that Slurm reads as Resources",
        scene(job(13, dependency="afterany:12(unfulfilled)"), holds(running(12))),
        "dependency",
        ("to end",),
    ),
    (
        "a chain to its root",
        scene(
            job(14, reason="Dependency", dependency="afterok:13(unfulfilled)"),
            holds(running(12)),
            others=(job(13, reason="Dependency", dependency="afterany:12(unfulfilled)"),),
        ),
        "dependency",
        (
            "at the root of the chain, job 12 (run12) runs",
            "  until job 13 (run13) has succeeded: waits (Dependency)",
            "    until job 12 (run12) has ended: RUNNING",
        ),
    ),
    (
        "never satisfied",
        scene(
            job(13, reason="DependencyNeverSatisfied", dependency="afterok:10(failed)"),
            others=(FAILED,),
        ),
        "dependency-never",
        ("will never run: job 10 (run10) is FAILED", "gpuq cancel run13", "JobId=13 Dependency="),
    ),
    (
        "never satisfied, and the parent is forgotten",
        scene(job(13, reason="DependencyNeverSatisfied", dependency="afterok:10(failed)")),
        "dependency-never",
        ("job 10 did not succeed",),
    ),
    (
        "the grandchild of a failure still reads unfulfilled",
        scene(
            job(14, reason="Dependency", dependency="afterok:13(unfulfilled)"),
            others=(job(13, reason="DependencyNeverSatisfied", dependency="afterok:10(failed)"), FAILED),
        ),
        "dependency-never",
        ("it waits for job 13, which can never run either, because job 10 (run10) is FAILED",),
    ),
    (
        "Slurm cleans it up itself",
        scene(
            job(13, reason="Dependency", dependency="afterok:10(failed)"),
            others=(FAILED,),
            cancels_orphans=True,
        ),
        "dependency-never",
        ("Slurm cancels it by itself",),
    ),
    (
        "afterany of a dead one waits for it to be cancelled",
        scene(
            job(14, reason="Dependency", dependency="afterany:13(unfulfilled)"),
            others=(job(13, reason="DependencyNeverSatisfied", dependency="afterok:10(failed)"), FAILED),
        ),
        "dependency",
        ("waits itself: will never run",),
    ),
    (
        "one of several would do",
        scene(
            job(13, reason="Dependency", dependency="afterok:10(failed)?afterok:12(unfulfilled)"),
            holds(running(12)),
            others=(FAILED,),
        ),
        "dependency",
        (),
    ),
    (
        "what gpuq has no rule for keeps Slurm's word",
        scene(job(13, reason="AssocGrpGRES")),
        "other-reason",
        ("AssocGrpGRES", "scontrol show job 13"),
    ),
    (
        "two things at once: both are told",
        scene(job(13, reason="JobHeldUser", priority=0, time_limit=7200), partitions=(partition(max_time=1800),)),
        "time-limit-too-long",
        ("also: run13 is held",),
    ),
]


@pytest.mark.parametrize(("given", "id", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_answer(given: Scene, id: str, words: tuple[str, ...]) -> None:
    answer = explain(given)
    text = "\n".join((answer.headline, *answer.evidence, *answer.advice, *answer.details))
    assert answer.id == id, text
    for word in words:
        assert word in text
    assert answer.advice, "every answer names a command"
    assert answer.confidence in {"certain", "likely", "possible"}
    assert "\n" not in answer.headline


def test_slurms_own_estimate_is_evidence() -> None:
    given = scene(
        job(13),
        others=(job(9),),
        with_gpu=Estimate(possible=True, start=after(HOUR)),
        without_gpu=Estimate(possible=True, start=NOW),
    )
    text = " ".join(explain(given).evidence)
    assert f"expects it to start at {clock(after(HOUR), NOW)}" in text
    assert "the GPU is what it waits for" in text


def test_slurm_is_asked_only_where_it_adds_something() -> None:
    assert not wants_estimate(scene(job(13), holds(running(12))))
    assert wants_estimate(scene(job(13)))
    assert wants_estimate(scene(job(15, reason="Priority"), holds(running(12)), others=(job(13),)))
    assert not wants_estimate(scene(job(13, reason="JobHeldUser", priority=0)))
    assert not wants_estimate(scene(job(13, dependency="afterok:12(unfulfilled)")))
    assert not wants_estimate(limited(7200, "Priority"))
    assert not wants_estimate(beside(small(13), runs_beside(12, 4)))


def test_a_circle_of_dependencies_ends() -> None:
    first = job(13, reason="Dependency", dependency="afterok:14(unfulfilled)")
    second = job(14, reason="Dependency", dependency="afterok:13(unfulfilled)")
    assert explain(scene(first, others=(second,))).id == "dependency"


def test_a_time_limit_as_squeue_prints_it() -> None:
    assert [clock_time(s) for s in (1800, 7200, 90061)] == ["30:00", "2:00:00", "1-01:01:01"]


@pytest.mark.parametrize("shown", ["127_[7,9]", "127_7", "127+1", "127"])
def test_what_is_advised_for_a_part_of_a_job_is_a_command_that_takes_it(shown: str) -> None:
    mine = job(127, id=shown, name="arr", reason="BeginTime", start=after(48 * HOUR))
    answer = explain(scene(mine, name=shown))
    assert shown in answer.headline
    assert answer.advice == ("to let it start at once: gpuq release 127",)
