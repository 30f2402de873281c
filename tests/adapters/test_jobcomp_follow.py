"""The job completion file, read as it grows: no line twice, none left out, whatever is done to the file."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpuq.adapters.slurm import jobcomp_follow
from gpuq.adapters.slurm.jobcomp_follow import Follower, Place, parse

UID = 1000


def text(
    job: int, *, state: str = "COMPLETED", uid: int = UID, name: str = "a", extra: str = "", node: str = "n1"
) -> str:
    return (
        f"JobId={job} UserId=ann({uid}) GroupId=ann({uid}) Name={name} JobState={state} Partition=gpu TimeLimit=480 "
        f"StartTime=2026-11-29T13:00:05 EndTime=2026-11-29T13:10:05 NodeList={node} NodeCnt=1 ProcCnt=1 "
        f"WorkDir=/home/ann/my lab ReservationName= Tres=cpu=1,mem=200M,node=1,billing=1 Account= QOS= WcKey= "
        f"Cluster=unknown SubmitTime=2026-11-29T13:00:00 EligibleTime=2026-11-29T13:00:00 {extra}"
        "DerivedExitCode=0:0 ExitCode=3:0 \n"
    )


class Reader:
    """Reads as the watcher does: a new follower from the stored place each time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = Place()

    def read(self) -> list[str]:
        found, self.place = Follower(self.path, self.place).read(uid=UID)
        return [one.id for one in found]


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path / "jobcomp.log")


def add(reader: Reader, *lines: str) -> None:
    with reader.path.open("a") as handle:
        handle.write("".join(lines))


def test_lines_are_read_once_and_half_a_line_waits_for_its_other_half(reader: Reader) -> None:
    assert reader.read() == []
    add(reader, text(1), text(2)[:150])
    assert reader.read() == ["1"]
    assert reader.read() == []
    add(reader, text(2)[150:])
    assert reader.read() == ["2"]
    assert reader.read() == []


def test_a_file_that_was_rotated_away_is_read_to_its_end_first(reader: Reader) -> None:
    add(reader, text(1))
    assert reader.read() == ["1"]
    add(reader, text(2))
    reader.path.rename(reader.path.with_name("jobcomp.log.1"))
    add(reader, text(3))
    assert reader.read() == ["2", "3"]
    assert reader.read() == []


def test_rotated_twice_meanwhile(reader: Reader) -> None:
    add(reader, text(1))
    assert reader.read() == ["1"]
    add(reader, text(2))
    first, second = (reader.path.with_name(f"jobcomp.log.{n}") for n in (1, 2))
    reader.path.rename(second)
    os.utime(second, (1, 1))
    first.write_text(text(3))
    add(reader, text(4))
    assert reader.read() == ["2", "3", "4"]


def test_copied_and_truncated(reader: Reader) -> None:
    add(reader, text(1), text(2))
    assert reader.read() == ["1", "2"]
    add(reader, text(3))
    shutil.copy(reader.path, reader.path.with_name("jobcomp.log.1"))
    os.truncate(reader.path, 0)
    add(reader, text(4))
    assert reader.read() == ["3", "4"]


def test_a_truncated_file_that_has_grown_beyond_the_place_is_another_file(reader: Reader) -> None:
    add(reader, text(1))
    assert reader.read() == ["1"]
    os.truncate(reader.path, 0)
    add(reader, text(5), text(6), text(7))
    assert reader.read() == ["5", "6", "7"]


def test_a_file_that_is_gone_for_a_while(reader: Reader) -> None:
    add(reader, text(1))
    assert reader.read() == ["1"]
    aside = reader.path.with_name("aside")
    reader.path.rename(aside)
    assert reader.read() == []
    aside.rename(reader.path)
    add(reader, text(2))
    assert reader.read() == ["2"]


def test_skip_goes_behind_the_last_whole_line(reader: Reader) -> None:
    add(reader, text(1), text(2)[:100])
    follower = Follower(reader.path)
    follower.skip()
    reader.place = follower.place
    add(reader, text(2)[100:])
    assert reader.read() == ["2"]


def test_names_ids_and_others(reader: Reader) -> None:
    add(
        reader,
        text(1, name="a b=c JobState=FAILED (x)"),
        text(2, uid=99),
        text(3, state="PENDING"),
        text(9, extra="ArrayJobId=7 ArrayTaskId=2 "),
        "no line of Slurm's\n",
        text(4)[:80] + text(5),
    )
    found = parse(reader.path.read_bytes(), UID)
    assert [(one.id, one.number, one.name) for one in found] == [
        ("1", 1, "a b=c JobState=FAILED (x)"),
        ("7_2", 7, "a"),
        ("5", 5, "a"),
    ]
    assert found[0].workdir == "/home/ann/my lab"
    assert found[0].end.exit_code == 3
    assert found[0].end.source == "jobcomp"


def test_who_was_cancelled_while_waiting_never_started() -> None:
    (one,) = parse(text(1, state="CANCELLED", node="(null)").encode())
    assert one.end.start is None
    assert one.end.end is not None


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    (one,) = parse(text(1, name="x").encode().replace(b"Name=x", b"Name=\xff"), UID)
    assert one.name == "\ufffd"


def rotate(reader: Reader, name: str = "jobcomp.log.1") -> Path:
    """What logrotate does with `create`: slurmctld still has the old file open."""
    old = reader.path.with_name(name)
    reader.path.rename(old)
    reader.path.touch()
    return old


@pytest.mark.parametrize("created", [True, False])
def test_slurmctld_writes_to_the_old_file_until_it_opens_the_new_one(reader: Reader, created: bool) -> None:
    add(reader, text(1))
    assert reader.read() == ["1"]
    old = rotate(reader)
    if not created:
        reader.path.unlink()
    assert reader.read() == []
    assert Follower(reader.path, reader.place).files() == [reader.path] + [old] * created
    with old.open("a") as handle:
        handle.write(text(2) + text(3)[:80])
    assert reader.read() == ["2"]
    with old.open("a") as handle:
        handle.write(text(3)[80:])
    add(reader, text(4))
    assert reader.read() == ["3", "4"]
    assert reader.read() == []
    assert Follower(reader.path, reader.place).files() == [reader.path]


@pytest.mark.parametrize("name", ["jobcomp.log-20261129", "jobcomp.log.1.gz", "jobcomp.log-20261129.gz"])
def test_whatever_logrotate_calls_it_and_packed(reader: Reader, name: str) -> None:
    add(reader, text(1))
    assert reader.read() == ["1"]
    add(reader, text(2))
    old = rotate(reader, name)
    if name.endswith(".gz"):
        old.write_bytes(gzip.compress(old.read_bytes()))
    reader.path.with_name("jobcomp.log.2.gz").write_bytes(b"\x1f\x8b\x08 cut off")
    os.mkfifo(reader.path.with_name("jobcomp.log.3"))
    add(reader, text(3))
    assert reader.read() == ["2", "3"]


def test_an_empty_file_that_was_filled_and_rotated_away_meanwhile(reader: Reader) -> None:
    reader.path.touch()
    follower = Follower(reader.path)
    follower.skip()
    reader.place = follower.place
    add(reader, text(1))
    rotate(reader)
    add(reader, text(2))
    assert reader.read() == ["1", "2"]
    assert reader.read() == []


def test_slurmctld_opens_the_new_file_right_after_the_old_one_was_read(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(reader, text(1))
    assert reader.read() == ["1"]
    old = rotate(reader)
    real = jobcomp_follow._rest_of_old

    def then_slurmctld_goes_on(*args: Any) -> Any:
        answer = real(*args)
        with old.open("a") as handle:
            handle.write(text(2))
        add(reader, text(3))
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(jobcomp_follow, "_rest_of_old", then_slurmctld_goes_on)
        assert reader.read() == []
    assert reader.read() == ["2", "3"]
