"""The jobcomp file: how a job ended that slurmctld has forgotten, and never how another one did."""

from __future__ import annotations

import datetime
import gzip
import os
import time
import zoneinfo
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuq.adapters.slurm.jobcomp import last_end
from gpuq.core.job import JobEnd
from tests import DATA

SUBMIT = datetime.datetime(2026, 11, 29, 13, 0, 0, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    """The file holds local times; here local is UTC."""
    yield from _zone("UTC")


def _zone(name: str) -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.fixture
def new_york() -> Iterator[None]:
    """Clocks are set back at 06:00 UTC on the 1st of November 2026."""
    yield from _zone("America/New_York")


@pytest.mark.parametrize("year", ["0001", "9999"])
def test_a_time_at_the_ends_of_the_calendar_is_none(tmp_path: Path, year: str) -> None:
    (tmp_path / "jobcomp").write_text(line().replace("EndTime=2026", f"EndTime={year}"))
    end = last_end(tmp_path / "jobcomp", 12, uid=1000, name="dino/lr3e-4", since=SUBMIT)
    assert end is not None
    assert end.start is not None
    assert end.end is None


@pytest.mark.parametrize("hour", [5, 6])
def test_the_hour_that_comes_twice_is_the_one_in_which_it_was_submitted(
    tmp_path: Path, new_york: None, hour: int
) -> None:
    submit = datetime.datetime(2026, 11, 1, hour, 30, tzinfo=datetime.UTC)
    text = line(submit="2026-11-01T01:30:00")
    text = text.replace("2026-11-29T13:00:05", "2026-11-01T01:30:05").replace(
        "2026-11-29T13:10:05", "2026-11-01T02:10:00"
    )
    (tmp_path / "jobcomp").write_text(text)
    end = last_end(tmp_path / "jobcomp", 12, uid=1000, name="dino/lr3e-4", since=submit)
    assert end is not None
    assert end.start == submit + 5 * SECOND
    assert end.end == datetime.datetime(2026, 11, 1, 7, 10, tzinfo=datetime.UTC)


@pytest.mark.parametrize("name", ["Asia/Tokyo", "America/New_York", "Asia/Kathmandu"])
def test_the_callers_tz_need_not_be_slurmctlds(tmp_path: Path, name: str) -> None:
    try:
        with Path("/etc/localtime").open("rb") as handle:
            system: datetime.tzinfo = zoneinfo.ZoneInfo.from_file(handle)
    except OSError:
        system = datetime.UTC
    text = line(submit=f"{SUBMIT.astimezone(system):%FT%T}")
    text = text.replace("2026-11-29T13:00:05", f"{(SUBMIT + 5 * SECOND).astimezone(system):%FT%T}")
    (tmp_path / "jobcomp").write_text(text)
    for _ in _zone(name):
        end = last_end(tmp_path / "jobcomp", 12, uid=1000, name="dino/lr3e-4", since=SUBMIT)
    assert end is not None
    assert end.start == SUBMIT + 5 * SECOND


def line(
    job: int = 12,
    *,
    uid: int = 1000,
    name: str = "dino/lr3e-4",
    state: str = "COMPLETED",
    submit: str = "2026-11-29T13:00:00",
    code: str = "0:0",
    workdir: str = "/home/ada/p",
    node: str = "n1",
) -> str:
    return (
        f"JobId={job} UserId=ada({uid}) GroupId=ada({uid}) Name={name} JobState={state} Partition=gpu TimeLimit=480 "
        f"StartTime=2026-11-29T13:00:05 EndTime=2026-11-29T13:10:05 NodeList={node} NodeCnt=1 ProcCnt=1 WorkDir={workdir} "
        f"ReservationName= Tres=cpu=1,mem=200M,node=1,billing=1 Account= QOS= WcKey= Cluster=unknown SubmitTime={submit} "
        f"EligibleTime={submit} DerivedExitCode=0:0 ExitCode={code} \n"
    )


def look(path: Path, text: str | bytes, job: int = 12, *, uid: int = 1000, name: str = "dino/lr3e-4") -> JobEnd | None:
    path = path / "jobcomp"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return last_end(path, job, uid=uid, name=name, since=SUBMIT)


def test_the_end_of_a_job_is_found(tmp_path: Path) -> None:
    end = look(tmp_path, line(11) + line() + line(120))
    assert end == JobEnd(
        state="COMPLETED",
        start=SUBMIT + 5 * SECOND,
        end=SUBMIT + 605 * SECOND,
        node="n1",
        source="jobcomp",
    )


@pytest.mark.parametrize(
    ("state", "written", "code", "signal"),
    [
        ("FAILED", "3:0", 3, 0),
        ("FAILED", "0:53", 0, 53),
        ("OUT_OF_MEMORY", "0:125", 0, 125),
        ("CANCELLED", "0:15", 0, 15),
    ],
)
def test_exit_code_and_signal_are_kept(tmp_path: Path, state: str, written: str, code: int, signal: int) -> None:
    end = look(tmp_path, line(state=state, code=written))
    assert end is not None
    assert (end.state, end.exit_code, end.signal) == (state, code, signal)


@pytest.mark.parametrize(
    "other",
    [
        line(13),
        line(1),
        line(123),
        line(uid=1001),
        line(name="dino/lr3e-3"),
        line(name="dino/lr3e-4 x"),
        line(submit="2026-11-29T12:59:58"),
        line(submit="2025-11-29T13:00:00"),
        line(submit="Unknown"),
        line(state="PENDING"),
        line(state="DANCING"),
        "\n",
        "JobId=12 \n",
        "x" + line(),
        line()[:150],
        line()[:-20],
    ],
)
def test_the_line_of_another_job_a_requeue_or_half_a_line_is_never_taken_for_ours(tmp_path: Path, other: str) -> None:
    assert look(tmp_path, other) is None
    ours = look(tmp_path, other + ("" if other.endswith("\n") else "\n") + line(code="3:0", state="FAILED") + other)
    assert ours is not None
    assert ours.exit_code == 3


def test_a_job_that_was_requeued_ended_when_it_ended_last(tmp_path: Path) -> None:
    text = (
        line(state="NODE_FAIL") + line(state="PENDING") + line(submit="2026-11-29T13:11:00", code="3:0", state="FAILED")
    )
    end = look(tmp_path, text)
    assert end is not None
    assert (end.state, end.exit_code) == ("FAILED", 3)


def test_slurm_writes_whole_seconds_so_a_submission_within_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "jobcomp"
    path.write_text(line())
    for ahead, found in ((0.9, True), (1.0, True), (1.1, False)):
        end = last_end(path, 12, uid=1000, name="dino/lr3e-4", since=SUBMIT + ahead * SECOND)
        assert (end is not None) is found


@pytest.mark.parametrize("name", ["a b=c|d", "x JobState=FAILED Partition=p", "q ExitCode=1:1", 'dino/lr=3e-4 "q"'])
def test_names_with_blanks_and_keys_in_them_are_read(tmp_path: Path, name: str) -> None:
    end = look(tmp_path, line(name=name), name=name)
    assert end is not None
    assert (end.state, end.exit_code) == ("COMPLETED", 0)


def test_a_directory_with_blanks_and_keys_in_it_is_read(tmp_path: Path) -> None:
    end = look(tmp_path, line(workdir="/a b/SubmitTime=2020-01-01T00:00:00 ExitCode=9:9 x"))
    assert end is not None
    assert (end.exit_code, end.end) == (0, SUBMIT + 605 * SECOND)


def test_a_name_that_imitates_another_line_does_not_end_our_job(tmp_path: Path) -> None:
    forged = line(13, name="x\n" + line(state="FAILED", code="1:0").rstrip(), uid=1000)
    assert look(tmp_path, forged, 13, name="x") is None


def test_bytes_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    end = look(tmp_path, b"\xff\xfe\0\n" + line(name="caf").encode().replace(b"caf", b"caf\xe9") + line().encode())
    assert end is not None
    assert end.state == "COMPLETED"


@pytest.mark.parametrize("name", ["jobcomp.1", "jobcomp-20261129", "jobcomp.1.gz"])
@pytest.mark.parametrize("rest", ["", line(13), None], ids=["emptied", "gone on", "not made anew"])
def test_a_line_that_was_rotated_away_is_found(tmp_path: Path, name: str, rest: str | None) -> None:
    old = line(11) + line(state="FAILED", code="3:0")
    (tmp_path / name).write_bytes(gzip.compress(old.encode()) if name.endswith(".gz") else old.encode())
    (tmp_path / "jobcomp.2.gz").write_bytes(gzip.compress(line(state="TIMEOUT").encode()[:100])[:-10])  # cut off
    path = tmp_path / "jobcomp"
    if rest is not None:
        path.write_text(rest)
    later = SUBMIT.timestamp() + 3600
    os.utime(tmp_path / name, (later, later))
    end = last_end(path, 12, uid=1000, name="dino/lr3e-4", since=SUBMIT)
    assert end is not None
    assert (end.state, end.exit_code) == ("FAILED", 3)
    # what was last written to before the job was submitted tells of another one of that id, and is not read
    earlier = SUBMIT.timestamp() - 5
    os.utime(tmp_path / name, (earlier, earlier))
    assert last_end(path, 12, uid=1000, name="dino/lr3e-4", since=SUBMIT) is None


def test_no_file_and_no_line_is_none(tmp_path: Path) -> None:
    assert last_end(tmp_path / "no", 12, uid=0, name="a", since=SUBMIT) is None
    assert last_end(tmp_path, 12, uid=0, name="a", since=SUBMIT) is None
    assert look(tmp_path, "") is None


def test_a_job_that_never_started_has_no_node(tmp_path: Path) -> None:
    end = look(tmp_path, line(state="CANCELLED", node="(null)"))
    assert end is not None
    assert end.node == ""


def test_local_times_become_utc(tmp_path: Path) -> None:
    for _ in _zone("Etc/GMT-2"):  # two hours ahead of UTC
        end = look(tmp_path, line(submit="2026-11-29T15:00:00"))
        assert end is not None
        assert end.end == SUBMIT - 2 * 3600 * SECOND + 605 * SECOND
        assert look(tmp_path, line(submit="2026-11-29T10:00:00")) is None


LONG_AGO = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("version", "job", "name", "state", "code", "signal"),
    [
        ("25.11", 1, "ok", "COMPLETED", 0, 0),
        ("25.11", 2, "fail", "FAILED", 3, 0),
        ("25.11", 4, "seg", "FAILED", 0, 11),
        ("25.11", 3, "oom", "OUT_OF_MEMORY", 0, 125),
        ("22.05", 4, "dep", "CANCELLED", 0, 0),
        ("22.05", 20, "a b=c|d", "FAILED", 3, 0),
        ("22.05", 27, "killed", "FAILED", 0, 9),
        ("22.05", 28, "again", "CANCELLED", 0, 0),
    ],
)
def test_recorded_ends(version: str, job: int, name: str, state: str, code: int, signal: int) -> None:
    path = DATA / "slurm" / version / "jobcomp.txt"
    end = last_end(path, job, uid=0, name=name, since=LONG_AGO)
    assert end is not None
    assert (end.state, end.exit_code, end.signal, end.source) == (state, code, signal, "jobcomp")
    assert last_end(path, job, uid=0, name=name, since=LONG_AGO.replace(year=2027)) is None


def part_of(
    group: int, member: str, job: int, *, het: bool = False, state: str = "COMPLETED", code: str = "0:0"
) -> str:
    """A line for a task of an array, or a component of a heterogeneous job."""
    words = ("HetJobId", "HetJobOffset") if het else ("ArrayJobId", "ArrayTaskId")
    whose = f"{words[0]}={group} {words[1]}={member} DerivedExitCode"
    return line(job, state=state, code=code).replace("DerivedExitCode", whose)


@pytest.mark.parametrize("het", [False, True])
def test_the_parts_of_a_job_are_told_apart_and_stand_together(tmp_path: Path, het: bool) -> None:
    text = part_of(12, "1", 13, het=het) + part_of(12, "2", 14, het=het, state="FAILED", code="3:0")
    text += part_of(12, "0", 12, het=het) + part_of(11, "2", 15, het=het, state="TIMEOUT")
    path = tmp_path / "jobcomp"
    path.write_text(text)

    def end(part: str, job: int = 12) -> str | None:
        found = last_end(path, job, uid=1000, name="dino/lr3e-4", since=SUBMIT, part=part)
        return None if found is None else f"{found.state} {found.exit_code}"

    sign = "+" if het else "_"
    assert [end(f"12{sign}{member}") for member in range(4)] == ["COMPLETED 0", "COMPLETED 0", "FAILED 3", None]
    assert end("") == "FAILED 3"
    assert end("", job=14) == "FAILED 3"  # its own id, which nobody was shown, is good too
    assert end("", job=11) == "TIMEOUT 0"


def test_tasks_that_were_cancelled_before_they_were_tasks_share_one_line(tmp_path: Path) -> None:
    path = tmp_path / "jobcomp"
    path.write_text(part_of(12, "1", 13) + line(12, state="CANCELLED"))
    states = {
        part: last_end(path, 12, uid=1000, name="dino/lr3e-4", since=SUBMIT, part=part) for part in ("", "12_1", "12_7")
    }
    assert {part: end and end.state for part, end in states.items()} == {
        "": "CANCELLED",
        "12_1": "COMPLETED",
        "12_7": "CANCELLED",
    }


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_recorded_arrays_are_read(release: str) -> None:
    path = DATA / "slurm" / release / "answers" / "jobcomp.txt"
    lines = [one for one in path.read_text().splitlines() if "ArrayJobId=" in one]
    assert lines
    for one in lines:
        words = dict(word.split("=", 1) for word in one.split() if "=" in word)
        group, member = words["ArrayJobId"], words["ArrayTaskId"]
        found = last_end(
            path,
            int(group),
            uid=int(words["UserId"].split("(")[1].rstrip(")")),
            name=words["Name"],
            since=SUBMIT,
            part=f"{group}_{member}",
        )
        assert found is not None
        assert (found.state, f"{found.exit_code}:{found.signal}") == (words["JobState"], words["ExitCode"])
