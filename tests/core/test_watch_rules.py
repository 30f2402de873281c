"""Problems: what counts as one, that it is told once when it has lasted, and once when it is over."""

from __future__ import annotations

import msgspec
import pytest

from gpuq.core.event import Kind
from gpuq.core.usage import NodeUsage
from gpuq.core.watch.problems import Open, judge, next_look
from gpuq.core.watch.rules import RULES, Disk, Ended, View
from tests.core.watch_world import job

GIB = 2**30


def node(state: str = "IDLE", *, used: int = 0, reason: str = "") -> NodeUsage:
    return NodeUsage(
        name="n1",
        cpus=8,
        cpus_used=0,
        memory=64 * GIB,
        memory_used=0,
        gpus=1,
        gpus_used=used,
        state=state,
        reason=reason,
    )


def found(view: View) -> dict[str, str]:
    """Rule and text of all that is seen in a view."""
    return {problem.rule: problem.text for rule in RULES for problem in rule.find(view) or ()}


def rows(*jobs: object, **fields: object) -> View:
    return View(rows=tuple(jobs), nodes=(node(),), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reason", "state", "rule"),
    [
        ("DependencyNeverSatisfied", "PENDING", "dependency-never"),
        ("PartitionTimeLimit", "PENDING", "never-starts"),
        ("BadConstraints", "PENDING", "never-starts"),
        ("PartitionConfig", "PENDING", "never-starts"),
        ("launch failed requeued held", "PENDING", "launch-failed"),
        ("", "REQUEUE_HOLD", "launch-failed"),
        ("JobHeldAdmin", "PENDING", "held-by-admin"),
        ("Resources", "COMPLETING", "completing"),
    ],
)
def test_what_waiting_does_not_cure(reason: str, state: str, rule: str) -> None:
    view = rows(job("7", state, reason=reason, dependency="afterok:3(failed)" if "Depend" in reason else ""))
    assert list(found(view)) == [rule]
    assert "job 7 (a)" in found(view)[rule]


@pytest.mark.parametrize("reason", ["ReqNodeNotAvail, UnavailableNodes:", "Priority", "Resources", ""])
def test_ordinary_waiting_is_no_problem_while_the_gpu_is_used(reason: str) -> None:
    view = View(rows=(job("1", "RUNNING"), job("2", reason=reason)), nodes=(node("MIXED", used=1),))
    assert found(view) == {}
    # somebody else's job holds it
    assert found(View(rows=(job("2", reason=reason),), nodes=(node("MIXED", used=1),))) == {}


def test_an_idle_gpu_and_a_job_that_could_have_it() -> None:
    assert list(found(rows(job("2", reason="Resources")))) == ["gpu-idle"]
    assert found(rows(job("2", reason="Resources", gres=""))) == {}
    assert found(rows(job("2", reason="Dependency", dependency="afterany:1(unfulfilled)"))) == {}
    assert found(rows(job("2", reason="BeginTime"))) == {}
    assert list(found(rows(job("2", reason="JobHeldUser", priority=0)))) == ["gpu-idle-held"]
    assert found(rows(job("1", "COMPLETING"), job("2", reason="Resources"))).keys() == {"completing"}
    assert (
        "Kill task failed"
        in found(View(rows=(job("2", reason="Resources"),), nodes=(node("IDLE+DRAIN", reason="Kill task failed"),)))[
            "node-unusable"
        ]
    )


def test_a_grandchild_of_a_failed_job_never_runs_either() -> None:
    view = rows(
        job("3", "PENDING", reason="DependencyNeverSatisfied", dependency="afterok:2(failed)"),
        job("4", "PENDING", reason="Dependency", dependency="afterok:3(unfulfilled)"),
    )
    problems = [p.subject for rule in RULES for p in rule.find(view) or () if p.rule == "dependency-never"]
    assert problems == ["job 3 a", "job 4 a"]


def test_three_fast_failures_in_a_row() -> None:
    fast = [Ended(str(n), "a", "FAILED", 3) for n in range(3)]
    assert (
        "; 1 more wait"
        in found(View(ended=tuple(fast), rows=(job("9", "PENDING", reason="JobHeldUser"),)))["fast-failures"]
    )
    assert "held" in found(View(ended=tuple(fast), rows=(job("9"),), holds=True))["fast-failures"]
    assert found(View(ended=tuple(fast), holds=True)) == {}, "what waits is not known: told when it can be held"
    assert found(View(rows=(), ended=tuple(fast[:2]))) == {}
    assert found(View(rows=(), ended=(*fast[:2], Ended("3", "a", "FAILED", 4000)))) == {}
    assert found(View(rows=(), ended=(*fast[:2], Ended("3", "a", "SUCCEEDED", 4)))) == {}


def test_how_many_failures_count_can_be_chosen() -> None:
    slow = tuple(Ended(str(n), "a", "FAILED", 100) for n in range(5))
    assert found(View(rows=(), ended=slow)) == {}
    assert "5 jobs in a row" in found(View(rows=(), ended=slow, fast_failures=5, fast_seconds=200))["fast-failures"]
    assert found(View(rows=(), ended=slow, fast_failures=6, fast_seconds=200)) == {}
    assert found(View(rows=(), ended=slow, fast_failures=0, fast_seconds=200)) == {}


def test_memory_near_the_limit_is_told_of_running_jobs_only_and_is_over() -> None:
    running = job("7", "RUNNING")
    near = {"7": (95 * 2**20, 100 * 2**20), "8": (1, 1)}
    text = found(rows(running, near=near))["memory-near"]
    assert "job 7 (a) holds 95M of its 100M of memory (95%)" in text
    assert found(rows(running, near={})) == {}
    opens, events = judge({}, rows(running, near=near), 100.0)
    assert [e.kind for e in events] == [Kind.PROBLEM]
    opens, events = judge(opens, rows(running, near=None), 101.0)
    assert events == [], "nobody has looked: neither a problem nor the end of one"
    opens, events = judge(opens, rows(running, near={}), 102.0)
    assert [e.kind for e in events] == [Kind.RECOVERED]


def test_a_disk_that_is_nearly_full_needs_a_bit_more_to_be_well_again() -> None:
    at = Disk("/lab", 4 * GIB, 100 * GIB)
    assert "4G of 100G" in found(View(disks=(at,)))["disk-full"]
    more = Disk("/lab", int(5.5 * GIB), 100 * GIB)
    assert found(View(disks=(more,))) == {}
    assert "disk-full" in found(View(disks=(more,), full=frozenset({"/lab"})))


def test_the_controller_is_away_after_three_questions() -> None:
    away = View(unanswered=3, unanswered_why="timed out")
    assert "timed out" in found(away)["controller-away"]
    opens, events = judge({}, View(unanswered=2), 0.0)
    assert events == []
    opens, events = judge(opens, away, 60.0)
    assert [e.kind for e in events] == [Kind.PROBLEM]
    opens, events = judge(opens, away, 90.0)
    assert events == []
    opens, events = judge(opens, View(rows=(), nodes=(node(),)), 120.0)
    assert [e.kind for e in events] == [Kind.RECOVERED]
    assert opens == {}


def test_what_does_not_last_is_not_told() -> None:
    idle, busy = rows(job("2", reason="Resources")), rows(job("2", "RUNNING"))
    opens, events = judge({}, idle, 0.0)
    assert events == []
    assert next_look(opens) == 15.0
    opens, events = judge(opens, busy, 5.0)
    assert (events, opens) == ([], {})
    opens, _ = judge(opens, idle, 10.0)
    opens, events = judge(opens, idle, 26.0)
    assert [(e.kind, e.problem.rule if e.problem else "") for e in events] == [(Kind.PROBLEM, "gpu-idle")]
    assert next_look(opens) is None
    # gone for a moment is not over
    opens, events = judge(opens, busy, 30.0)
    assert events == []
    assert next_look(opens) == 45.0
    opens, events = judge(opens, idle, 40.0)
    assert events == []
    opens, _ = judge(opens, busy, 50.0)
    opens, events = judge(opens, busy, 66.0)
    assert [e.kind for e in events] == [Kind.RECOVERED]
    assert opens == {}


def test_what_is_not_known_neither_begins_nor_ends_anything() -> None:
    opens, _ = judge({}, rows(job("2", reason="Resources")), 0.0)
    opens, _ = judge(opens, rows(job("2", reason="Resources")), 20.0)
    before = dict(opens)
    opens, events = judge(opens, View(unanswered=1), 500.0)
    assert (opens, events) == (before, [])


def test_many_at_once_are_one_message() -> None:
    view = rows(*(job(str(n), reason="PartitionTimeLimit") for n in range(1, 40)))
    opens, _ = judge({}, view, 0.0)
    opens, events = judge(opens, view, 11.0)
    (event,) = events
    assert event.problem is not None
    assert event.problem.subject.startswith("39 at once: job 1 a")
    assert judge(opens, view, 60.0)[1] == []
    opens, _ = judge(opens, rows(), 70.0)
    opens, events = judge(opens, rows(), 90.0)
    assert [e.kind for e in events] == [Kind.RECOVERED]


def test_open_problems_survive_the_store() -> None:
    opens, _ = judge({}, View(dead={"7": "looks dead"}), 5.0)
    raw = msgspec.json.encode(opens)
    assert msgspec.json.decode(raw, type=dict[str, Open]) == opens
    assert judge(msgspec.json.decode(raw, type=dict[str, Open]), View(dead={"7": "looks dead"}), 9.0)[1] == []


@pytest.mark.parametrize(("job", "command"), [("7", "gpuq cancel 7"), ("7_3", "scancel 7_3"), ("7+1", "scancel 7+1")])
def test_a_part_that_looks_dead_is_given_up_without_the_others(job: str, command: str) -> None:
    _, events = judge({}, View(dead={job: "looks dead"}), 1.0)
    assert events[0].problem is not None
    assert events[0].problem.advice.endswith(f"to give it up: {command}")


def test_what_cannot_be_told_now_has_neither_begun_nor_is_it_over() -> None:
    """Whether a job is dead is not known for a moment while another Slurm of the host starts one."""
    seen = View(dead={"7": "looks dead"})
    unsure = View(dead={"8": "looks dead"}, unsure=frozenset({"7", "9"}))
    opens, events = judge({}, seen, 5.0)
    assert [e.subject for e in events] == ["job 7"]
    opens, events = judge(opens, unsure, 9.0)
    assert [(e.kind, e.subject) for e in events] == [(Kind.PROBLEM, "job 8")]
    opens, events = judge(opens, View(dead={"7": "looks dead"}), 13.0)
    assert [(e.kind, e.subject) for e in events] == [(Kind.RECOVERED, "job 8")]
    assert judge(opens, View(dead={}), 17.0)[1][0].kind is Kind.RECOVERED
