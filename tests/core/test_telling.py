"""What a person is told about an event: the words, who hears of it, and what never gets into a notice."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuq.core.event import QUIET, Digest, Ending, Event, Kind, Problem, Queue
from gpuq.core.notice import Level, Notice
from gpuq.core.notify.config import Config, from_tables
from gpuq.core.notify.telling import TAIL_LINE, TAIL_LINES, TEXT, TITLE, clean, log_lines, notice_of, notices
from tests.notices import NOW, ended, queue


def config(**notify: Any) -> Config:
    return from_tables(notify or None, None, "config.toml")


def told(event: Event, **notify: Any) -> Notice:
    return notice_of(event, config(**notify))


def event(kind: Kind, **fields: Any) -> Event:
    return Event(key=f"{kind} 1", kind=kind, time=NOW, **fields)


# -- a job ended -----------------------------------------------------------------------------------------------


def test_a_job_that_is_tried_again_says_as_what() -> None:
    one = ended(outcome="OUT_OF_MEMORY", queue=queue())
    assert one.ending is not None
    again = msgspec.structs.replace(one, ending=msgspec.structs.replace(one.ending, retry="as attempt 4 with 960M"))
    assert "Tried again as attempt 4 with 960M." in told(again).text.splitlines()
    assert "ried again" not in told(one).text


def test_a_success_tells_name_attempt_time_score_and_what_is_next() -> None:
    drained = (NOW + datetime.timedelta(hours=2)).astimezone()
    notice = told(ended(score=0.9134567891, score_name="mean", queue=queue(drained=drained)))
    assert notice.title == "dino/lr3e-4 attempt 3 SUCCEEDED after 1h12m: mean 0.913457"
    assert notice.text == f"Next: cnn/wide (job 13), 3 jobs behind it. Empty at about {drained.strftime('%H:%M')}."
    assert notice.level is Level.GOOD
    assert dict(notice.fields) == {"Job": "12 of anna"}
    assert notice.merge == "", "two endings are never one"
    assert notice.log_tail == ""


def test_a_failure_tells_why_and_the_end_of_the_log() -> None:
    notice = told(
        ended(
            outcome="FAILED",
            state="FAILED",
            cause="exit code 1",
            exit_code=1,
            log="/p/runs/dino/slurm/attempt3.out",
            log_tail="Epoch 1:   0%\rEpoch 1:  50%\rEpoch 1: 100%\r\nTraceback\n\x1b[31mValueError\x1b[0m: boom\n\n",
        )
    )
    assert notice.level is Level.BAD
    assert notice.text == "Exit code 1."
    assert notice.log_tail == "Epoch 1: 100%\nTraceback\nValueError: boom"
    assert notice.log_name == "dino-lr3e-4-attempt3.log"
    assert dict(notice.fields)["Exit code"] == "1"
    assert dict(notice.fields)["Log"] == "/p/runs/dino/slurm/attempt3.out"


@pytest.mark.parametrize(
    ("fields", "level", "text"),
    [
        ({"outcome": "OUT_OF_MEMORY", "cause": "OOM: 30.1G of 28G"}, Level.BAD, "OOM: 30.1G of 28G."),
        ({"outcome": "TIMEOUT", "cause": "time limit of 8 hours"}, Level.BAD, "Time limit of 8 hours."),
        ({"outcome": "CANCELLED", "cause": "cancelled by anna"}, Level.WARNING, "Cancelled by anna."),
        ({"outcome": "INCOMPLETE", "cause": "cv.json is missing"}, Level.WARNING, "cv.json is missing."),
        ({"outcome": "LOST", "state": "", "cause": ""}, Level.BAD, ""),
        # COMPLETED 0:0 with oom_kill lines: a success, with a warning that is not overlooked
        ({"notes": ("the log tells of oom_kill",)}, Level.WARNING, "The log tells of oom_kill."),
    ],
)
def test_each_outcome_has_its_level_and_its_cause(fields: dict[str, Any], level: Level, text: str) -> None:
    notice = told(ended(**fields))
    assert notice.level is level
    assert notice.text == text


def test_a_job_that_gpuq_did_not_submit_and_that_never_ran() -> None:
    notice = told(ended(attempt=None, name="bash", outcome="CANCELLED", elapsed=None))
    assert notice.title == "bash CANCELLED"


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (Queue(), "Nothing runs or waits."),
        (Queue(waiting=1), "Nothing can run now; 1 job waits."),
        (Queue(waiting=2), "Nothing can run now; 2 jobs wait."),
        (Queue(waiting=1, next_name="b", next_id="13"), "Next: b (job 13)."),
        (Queue(waiting=3, next_name="b"), "Next: b, 2 jobs behind it."),
        (Queue(running=1, waiting=1, next_name="b"), "Next: b, 1 job behind it."),
    ],
)
def test_what_comes_next_is_told(left: Queue, words: str) -> None:
    assert told(ended(queue=left)).text == words


def test_an_end_of_the_queue_on_another_day_has_its_date() -> None:
    drained = NOW + datetime.timedelta(days=3)
    assert drained.astimezone().strftime("%Y-%m-%d %H:%M") in told(ended(queue=queue(drained=drained))).text


# -- the other kinds -------------------------------------------------------------------------------------------


def test_an_array_is_one_summary_that_names_the_tasks_that_failed() -> None:
    task = Ending(job_id="20_3", name="sweep", outcome="FAILED", cause="exit code 1")
    whole = Ending(job_id="20", name="sweep", outcome="FAILED")
    notice = told(
        event(Kind.ARRAY_ENDED, ending=whole, tasks=(task,), task_outcomes={"SUCCEEDED": 4, "FAILED": 1}, queue=Queue())
    )
    assert notice.title == "sweep (20): the array ended, 4 SUCCEEDED, 1 FAILED"
    assert notice.text == "20_3 FAILED: Exit code 1.\nNothing runs or waits."
    assert notice.level is Level.BAD
    fine = told(event(Kind.ARRAY_ENDED, ending=whole, task_outcomes={"SUCCEEDED": 5}))
    assert fine.level is Level.GOOD
    assert fine.text == ""
    gone = told(event(Kind.ARRAY_ENDED, ending=whole, task_outcomes={"CANCELLED": 5}))
    assert gone.title == "sweep (20): the array ended, 5 CANCELLED"
    assert gone.level is Level.WARNING


def test_an_array_of_a_thousand_failures_names_ten() -> None:
    tasks = tuple(Ending(job_id=f"20_{n}", name="s", outcome="FAILED") for n in range(50))  # the event holds no more
    text = told(event(Kind.ARRAY_ENDED, subject="s", tasks=tasks, task_outcomes={"FAILED": 1000})).text
    assert "20_9 FAILED" in text
    assert "20_10 " not in text
    assert "and 990 more" in text


def test_the_queue_runs_dry() -> None:
    one = told(event(Kind.ONE_LEFT, queue=Queue(running=1, next_name="b", next_id="13")))
    assert one.title == "One job is left: b (job 13)"
    empty = told(event(Kind.QUEUE_EMPTY, queue=Queue()))
    assert (empty.title, empty.text) == ("The queue is empty", "Nothing runs or waits: the GPU is idle.")


def test_a_problem_says_what_helps_and_equal_ones_that_wait_become_one() -> None:
    problem = Problem(rule="dependency-never", subject="12 dino", text="job 12 will never run", advice="gpuq cancel 12")
    notice = told(event(Kind.PROBLEM, problem=problem))
    assert notice.title == "Problem: 12 dino"
    assert notice.text == "Job 12 will never run.\nHelps: gpuq cancel 12"
    assert notice.merge == told(event(Kind.PROBLEM, problem=problem)).merge != ""
    other = msgspec.structs.replace(problem, subject="13 cnn")
    assert told(event(Kind.PROBLEM, problem=other)).merge != notice.merge
    over = told(event(Kind.RECOVERED, problem=problem))
    assert over.level is Level.GOOD
    assert over.merge not in {"", notice.merge}, "back again is told beside the trouble, not in its place"
    assert told(event(Kind.RECOVERED, problem=other)).merge != over.merge


def test_progress_is_coalesced_for_each_job() -> None:
    first = told(event(Kind.PROGRESS, subject="dino", text="epoch 1"))
    second = told(event(Kind.PROGRESS, subject="dino", text="epoch 2"))
    assert first.merge == second.merge != told(event(Kind.PROGRESS, subject="cnn", text="epoch 1")).merge


def test_the_digest_tells_the_day() -> None:
    digest = Digest(
        since=NOW - datetime.timedelta(days=1),
        until=NOW,
        used=18 * 3600.0,
        idle={"node down": 3600.0, "queue empty": 5 * 3600.0, "not seen": 0.0},
        outcomes={"SUCCEEDED": 12, "FAILED": 2},
        best=(("dino attempt 3", 0.93), ("cnn attempt 1", 0.9)),
    )
    notice = told(event(Kind.DIGEST, digest=digest))
    assert notice.text.split("\n") == [
        "GPU used 18h, idle 6h (queue empty 5h, node down 1h)",
        "Jobs ended: 12 SUCCEEDED, 2 FAILED",
        "Best: dino attempt 3 0.93; cnn attempt 1 0.9",
    ]
    assert notice.title.startswith("Digest: 1d until ")


def test_every_kind_has_words_also_when_nothing_is_known_of_it() -> None:
    for kind in Kind:
        notice = told(event(kind))
        assert notice.title
        assert notice.key == f"{kind} 1"


# -- switches, words, routes -----------------------------------------------------------------------------------

TWO = {"phone": {"type": "log"}, "file": {"type": "log", "file": "notices.log"}}


def test_quiet_by_default() -> None:
    for kind in Kind:
        assert bool(notices(event(kind), config())) == (kind in QUIET)
    assert [sink for sink, _ in notices(ended(), config(sinks=TWO))] == ["phone", "file"]


def test_each_kind_is_switched_and_routed() -> None:
    chosen = config(
        sinks=TWO,
        kinds={
            "job_ended": {"sinks": ["file"]},
            "job_started": {"tell": True},
            "one_left": {"tell": False},
            "queue_empty": {"sinks": []},
        },
    )
    assert [sink for sink, _ in notices(ended(), chosen)] == ["file"]
    assert [sink for sink, _ in notices(event(Kind.JOB_STARTED), chosen)] == ["phone", "file"]
    assert notices(event(Kind.ONE_LEFT), chosen) == []
    assert notices(event(Kind.QUEUE_EMPTY), chosen) == []


def test_words_of_the_users_own() -> None:
    kinds = {"job_ended": {"title": "[{user}] {name}#{attempt}: {outcome} {{!}}", "text": "{default} Log: {log}"}}
    notice = told(ended(outcome="FAILED", cause="exit code 1", log="/a.out"), kinds=kinds)
    assert notice.title == "[anna] dino/lr3e-4#3: FAILED {!}"
    assert notice.text == "Exit code 1. Log: /a.out"
    bare = told(ended(attempt=None, name="{0.__class__}"), kinds=kinds)
    assert bare.title == "[anna] {0.__class__}#: SUCCEEDED {!}", "what a job is called is no template"


def test_a_title_that_comes_out_empty_falls_back() -> None:
    kinds = {"job_ended": {"title": "{cause}"}}
    assert told(ended(), kinds=kinds).title == "dino/lr3e-4 attempt 3 SUCCEEDED after 1h12m"


# -- what never gets into a notice -------------------------------------------------------------------------------


HOSTILE = "a\nb\x1b[31m\x1b]0;title\x07\x00\x07\udcff\ud800\u202e" + "x" * 9000


def test_names_and_reasons_of_any_kind_become_printable_and_short() -> None:
    notice = told(ended(name=HOSTILE, outcome="FAILED", cause=HOSTILE, user=HOSTILE, log=HOSTILE, log_tail=HOSTILE))
    assert "\n" not in notice.title
    assert len(notice.title) <= TITLE
    assert len(notice.text) <= TEXT
    assert "\x1b" not in notice.title + notice.text + notice.log_tail
    assert notice.title.startswith("a b")
    assert msgspec.json.decode(msgspec.json.encode(notice), type=Notice) == notice


@given(st.text(st.characters(), max_size=300), st.sampled_from(Kind))
@example("\n", Kind.DIGEST)
def test_any_text_can_be_stored(text: str, kind: Kind) -> None:
    one = Event(
        key="k",
        kind=kind,
        time=NOW,
        subject=text,
        text=text,
        ending=Ending(job_id=text, name=text, outcome="FAILED", cause=text, log_tail=text, notes=(text,)),
        problem=Problem(rule="r", subject=text, text=text, advice=text),
        queue=Queue(running=1, next_name=text),
    )
    notice = told(one)
    assert msgspec.json.decode(msgspec.json.encode(notice), type=Notice) == notice
    assert all(c == "\n" or c.isprintable() for c in notice.title + notice.text + notice.log_tail)
    assert notice.title


def test_a_log_is_its_last_frames_and_no_more_than_a_person_reads() -> None:
    bar = "\r".join(f"{n}%|####| [00:0{n % 10}]" for n in range(101))
    assert log_lines(f"start\n{bar}\n\n\nend\n\n") == "start\n100%|####| [00:00]\n\n\nend"
    many = log_lines("\n".join("y" * 2000 for _ in range(5000)))
    assert len(many.split("\n")) == TAIL_LINES
    assert max(map(len, many.split("\n"))) == TAIL_LINE
    assert "\r" not in log_lines("a\rb\r\nc\r")


def test_clean_keeps_letters_of_all_peoples_and_no_control_character() -> None:
    assert clean("Größe 大きさ 😀\ta\x07\x9b31m") == "Größe 大きさ 😀    a�\ufffd31m"
