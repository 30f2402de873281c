"""From facts to endings: whatever is seen, in whatever order, every job that ended is told once."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from gpuq.core.job import Job, JobEnd
from gpuq.core.watch.facts import Answers, Completions, Fact, Snapshot, State
from gpuq.core.watch.step import Found, step, unsure
from tests.core.watch_world import EPOCH, World, job, line

OPS = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, 1)),
    st.tuples(st.sampled_from(["start", "end", "fail", "requeue", "node_fail", "cancel"]), st.integers(0, 7)),
    st.tuples(st.sampled_from(["look", "look_all", "keep", "late", "again"]), st.integers(0, 7)),
    st.tuples(st.sampled_from(["read", "reread", "mixed"]), st.integers(0, 7)),
    st.tuples(st.sampled_from(["time", "lose"]), st.integers(1, 9)),
)


def play(world: World, ops: list[tuple[str, int]]) -> None:
    last: Snapshot | None = None
    for name, n in ops:
        world.now += 1
        if name == "submit":
            world.submit(bool(n))
        elif name == "start":
            world.start(n)
        elif name in {"end", "fail", "cancel"}:
            world.end(n, {"end": "COMPLETED", "fail": "FAILED", "cancel": "CANCELLED"}[name])
        elif name in {"requeue", "node_fail"}:
            world.requeue(n, "PENDING" if name == "requeue" else "NODE_FAIL")
        elif name == "keep":
            world.kept.append(world.look(ended=bool(n % 2)))
        elif name == "late" and world.kept:
            world.snapshot(world.kept.pop(n % len(world.kept)))
        elif name in {"look", "look_all"}:
            last = world.look(ended=name == "look_all")
            world.snapshot(last)
        elif name == "again" and last is not None:
            world.snapshot(last)
        elif name == "read":
            upto = min(len(world.lines), world.read + n)
            world.lines_in(world.lines[world.read : upto])
            world.read = upto
        elif name == "reread":
            world.lines_in(world.lines[max(0, world.read - n) : world.read])
        elif name == "mixed":
            world.lines_in(reversed(world.lines[: world.read]))
        elif name == "time":
            world.now += n * 10
        elif name == "lose" and n == 1:
            world.lose()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(OPS, max_size=60), st.sampled_from([3, 40, 100000]), st.booleans(), st.booleans())
def test_every_ending_is_told_once_whatever_was_seen(
    ops: list[tuple[str, int]], min_job_age: int, jobcomp: bool, faithful: bool
) -> None:
    world = World(min_job_age, jobcomp, faithful)
    world.snapshot(world.look(ended=True))  # the watcher's first look: an empty queue
    play(world, ops)
    world.finish()
    told = [
        [i for i, one in enumerate(world.jobs) if one.number == over.number and set(one.submits) & set(over.submits)]
        for over in world.over
    ]
    assert all(len(jobs) == 1 for jobs in told), "something was told that is no job, or two in one"
    assert sorted(jobs[0] for jobs in told) == sorted(world.seen)
    assert len({over.key for over in world.over}) == len(world.over)
    assert not world.state.jobs
    for over, (index,) in zip(world.over, told, strict=True):
        one = world.jobs[index]
        if over.end is None:
            assert one.lost or not (jobcomp and faithful), "called lost, and its end was in the file"
        elif not one.lost:
            assert over.end.state == one.state or over.end.state == "NODE_FAIL"


def run(*facts: Fact, state: State | None = None) -> tuple[State, list[Found]]:
    state = state or State()
    found = []
    for fact in facts:
        state, one = step(state, fact)
        found.append(one)
    return state, found


def shot(serial: int, *rows: Job, ended: bool = False, restarted: tuple[int, ...] = ()) -> Snapshot:
    return Snapshot(serial=serial, at=float(serial), jobs=rows, ended=ended, restarted=frozenset(restarted))


def over_of(found: list[Found]) -> list[tuple[str, str | None]]:
    return [(one.id, one.end.state if one.end else None) for each in found for one in each.over]


def test_what_ended_before_the_first_look_is_no_news() -> None:
    state, found = run(shot(1, job("1", "COMPLETED"), job("2", "RUNNING"), ended=True))
    assert over_of(found) == []
    assert set(state.jobs) == {"2"}
    _, found = run(shot(2, job("1", "COMPLETED"), job("2", "RUNNING"), ended=True), state=state)
    assert over_of(found) == []


def test_a_job_that_is_completing_is_told_by_its_line_and_not_again_by_its_row() -> None:
    _, found = run(
        shot(1, job("1", "RUNNING")),
        Completions(at=1, lines=(line("1"),)),
        shot(2, job("1", "COMPLETING")),
        shot(3, job("1", "COMPLETED"), ended=True),
        Completions(at=4, lines=(line("1"),)),
    )
    assert over_of(found) == [("1", "COMPLETED")]


def test_node_fail_is_the_end_of_a_try_until_the_queue_says_otherwise() -> None:
    state, found = run(
        shot(1, job("1", "RUNNING")),
        Completions(at=1, lines=(line("1", "NODE_FAIL"),)),
        shot(2, job("1", "PENDING", submit=EPOCH + 9), restarted=(1,)),
    )
    assert over_of(found) == []
    assert state.jobs["1"].submit == EPOCH + 9
    _, found = run(
        shot(1, job("1", "RUNNING")),
        Completions(at=1, lines=(line("1", "NODE_FAIL"),)),
        shot(2, job("1", "COMPLETING")),
    )
    assert over_of(found) == []
    _, found = run(shot(1, job("1", "RUNNING")), Completions(at=1, lines=(line("1", "NODE_FAIL"),)), shot(2))
    assert over_of(found) == [("1", "NODE_FAIL")]


def test_a_missing_job_is_asked_for_and_lost_only_when_nobody_knows_it_twice() -> None:
    state, found = run(shot(1, job("1", "RUNNING")), shot(2))
    assert list(found[1].ask) == ["1"]
    state, found = run(Answers(at=2, ends={"1": None}), state=state)
    assert over_of(found) == []
    state, found = run(shot(3), Answers(at=3, ends={"1": None}), state=state)
    assert over_of(found) == [("1", None)]
    _, found = run(Completions(at=4, lines=(line("1"),)), shot(4), state=state)
    assert over_of(found) == []


def test_a_missing_job_that_is_back_was_never_gone() -> None:
    state, _ = run(shot(1, job("1", "RUNNING")), shot(2), Answers(at=2, ends={}), shot(3, job("1", "RUNNING")))
    assert state.jobs["1"].missing == 0


def test_a_recycled_id_is_another_job_and_the_old_one_is_asked_for() -> None:
    state, found = run(
        shot(1, job("1", "RUNNING", name="a")), shot(2, job("1", "PENDING", submit=EPOCH + 50, name="b"))
    )
    assert set(state.jobs) == {"1", f"1@{EPOCH}"}
    assert unsure(state, (job("1", "RUNNING", submit=EPOCH + 99, name="b"),)) == {1}
    key = f"1@{EPOCH}"
    _, found = run(
        Answers(at=3, ends={key: None}), shot(3, job("1", "PENDING", submit=EPOCH + 50, name="b")), state=state
    )
    assert list(found[1].ask) == [key]


def test_every_reading_of_a_local_time_is_the_same_submission() -> None:
    _, found = run(
        shot(1),
        Completions(at=1, lines=(line("1", submit=(EPOCH, EPOCH + 3600)),)),
        shot(2, job("1", "COMPLETED", submit=EPOCH + 3600), ended=True),
        Completions(at=1, lines=(line("1", submit=(EPOCH + 3600,)),)),
    )
    assert over_of(found) == [("1", "COMPLETED")]


def test_an_array_is_one_summary() -> None:
    state, found = run(
        shot(1, job("5_[1-3%1]")),
        shot(2, job("5_1", "RUNNING"), job("5_[2-3%1]")),
        Completions(at=2, lines=(line("5_1"),)),
        shot(3, job("5_1", "COMPLETING"), job("5_2", "RUNNING"), job("5_3")),
        Completions(at=3, lines=(line("5_2", "FAILED"), line("5_2", "FAILED"))),
        Completions(at=3, lines=(line("5_3"),)),
        shot(4),
        shot(5),
        Completions(at=5, lines=(line("5_3"),)),
    )
    (over,) = [one for each in found for one in each.over]
    assert over.tasks is not None
    assert {name: end.state for name, end in over.tasks.items()} == {
        "5_1": "COMPLETED", "5_2": "FAILED", "5_3": "COMPLETED"
    }  # fmt: skip
    assert not state.arrays
    assert over.lost_tasks == ()


def test_an_array_cancelled_before_it_starts_is_one_summary() -> None:
    _, found = run(shot(1, job("5_[1-5]")), Completions(at=1, lines=(line("5", "CANCELLED"),)), shot(2), shot(3))
    (over,) = [one for each in found for one in each.over]
    assert over.tasks is not None
    assert list(over.tasks) == ["5_[1-5]"]
    # without a completion file: its row
    _, found = run(shot(1, job("5_[1-5]")), shot(2, job("5_[1-5]", "CANCELLED"), ended=True), shot(3))
    (over,) = [one for each in found for one in each.over]
    assert list(over.tasks or ()) == ["5_[1-5]"]


def test_tasks_whose_end_nobody_saw_are_asked_for() -> None:
    state, found = run(shot(1, job("5_1", "RUNNING")), shot(2))
    assert list(found[1].ask) == ["5_1"]
    _, found = run(Answers(at=2, ends={"5_1": JobEnd(state="FAILED")}), shot(3), state=state)
    (over,) = [one for each in found for one in each.over]
    assert over.tasks == {"5_1": JobEnd(state="FAILED")}
    _, found = run(Answers(at=2, ends={"5_1": None}), shot(3), state=state)
    assert [one.lost_tasks for each in found for one in each.over] == [("5_1",)]


def test_the_parts_of_a_heterogeneous_job_have_the_ids_of_the_file() -> None:
    _, found = run(
        shot(1, job("12+0", "RUNNING"), job("12+1", "RUNNING")),
        Completions(at=1, lines=(line("12"), line("13"))),
        shot(2, job("12+0", "COMPLETING"), job("12+1", "COMPLETING")),
        shot(3),
    )
    assert over_of(found) == [("12", "COMPLETED"), ("13", "COMPLETED")]


@pytest.mark.parametrize(("before", "after", "told"), [(3, 1, 1), (2, 0, 0), (1, 0, 0), (3, 2, None), (0, 1, None)])
def test_one_left_and_none_left_are_told_when_the_queue_falls_to_it(before: int, after: int, told: int | None) -> None:
    rows = [job(str(n), "PENDING") for n in range(1, 4)]
    gone = tuple(line(str(n)) for n in range(after + 1, before + 1))
    _, found = run(
        shot(1, *rows[:before]), Completions(at=1, lines=gone), shot(2, *rows[:after]), shot(3, *rows[:after])
    )
    assert [one.left for one in found if one.left is not None] == ([] if told is None else [told])


def test_jobs_that_no_look_has_shown_leave_the_queue_short_too() -> None:
    """They came and ended between two looks: short jobs, or the watcher was away."""
    a, b = Completions(at=1, lines=(line("2"),)), Completions(at=2, lines=(line("3"), line("2")))

    def left(*facts: Fact) -> list[int]:
        return [one.left for one in run(*facts)[1] if one.left is not None]

    assert left(shot(1), a, shot(2), shot(3)) == [0]
    assert left(shot(1), a, b, shot(2), b, shot(3)) == [0], "however many"
    assert left(shot(1), a, shot(2), Completions(at=3, lines=(line("3"),)), shot(3)) == [0, 0], "each time"
    running = job("1", "RUNNING")
    assert left(shot(1, running), a, shot(2, running), shot(3, running)) == [1]
    others = [job("8"), job("9")]
    assert left(shot(1), a, shot(2, *others), shot(3, *others)) == [], "others have come meanwhile"
    assert left(shot(1), a, shot(2, running), shot(3, running)) == [], "it has been replaced: nothing got less"
    ended = job("2", "COMPLETED")
    assert left(shot(1), shot(2, ended), shot(3, ended)) == [0], "where there is no completion file"
    assert left(shot(1, ended), shot(2, ended)) == [], "before the first look"
    task = Completions(at=1, lines=(msgspec.structs.replace(line("7_1"), number=7),))
    assert left(shot(1), task, shot(2), shot(3)) == [0]
    assert left(shot(1), shot(2, job("7_1", "COMPLETED")), shot(3)) == [0]


def test_nothing_is_said_of_an_empty_queue_while_a_job_is_merely_missing() -> None:
    _, found = run(shot(1, job("1", "RUNNING")), shot(2))
    assert found[1].left is None


def test_the_memory_of_what_was_told_stays_small() -> None:
    state, _ = run(shot(1), *(Completions(at=1, lines=(line(str(n)),)) for n in range(1, 1500)), shot(2))
    assert len(state.told) == 512
