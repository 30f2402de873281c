"""The run directories: numbers that are taken once, records that always load, and nothing left behind."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuq.adapters import proc
from gpuq.adapters.codestate import newer_than
from gpuq.adapters.ledger import Claim, Entry, Ledger
from gpuq.core.attempt import RECORD_VERSION, Ended, Outcome, Record, Request
from gpuq.core.experiment.provenance import Provenance
from gpuq.core.memory.values import MemorySummary
from gpuq.errors import LedgerError
from tests import DATA

NOW = datetime.datetime(2026, 11, 29, 13, 0, tzinfo=datetime.UTC)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    root = tmp_path / "runs"
    for tag in ("a", "dino/lr3e-4"):
        (root / tag).mkdir(parents=True)
    return Ledger(root)


def record(ledger: Ledger, number: int, *, tag: str = "a", token: str = "ab", key: str | None = None) -> Record:
    return Record(
        tag=tag,
        attempt=number,
        token=token,
        request=Request(cpus=1, memory=1 << 30),
        argv=("sbatch",),
        script=str(ledger.path(tag, number, "sh")),
        script_sha256="",
        log=str(ledger.path(tag, number, "out")),
        project="/p",
        user="ada",
        uid=1000,
        host="box",
        reserved=NOW,
        key=key,
    )


def reserve(
    ledger: Ledger, token: str = "ab", *, tag: str = "a", key: str | None = None
) -> tuple[Record, Claim | None]:
    def by_key() -> Record | None:
        return next((old for old in ledger.records(tag) if key is not None and old.key == key), None)

    return ledger.reserve(
        tag, token, lambda number: (record(ledger, number, tag=tag, token=token, key=key), "#!/bin/sh\n"), find=by_key
    )


def taken(ledger: Ledger, token: str = "ab", *, tag: str = "a") -> tuple[Record, Claim]:
    made, claim = reserve(ledger, token, tag=tag)
    assert claim is not None
    return made, claim


def everything(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() or path.is_symlink())


@pytest.mark.parametrize("raw", ["", "{", "[]", "null", '{"a":' * 100000, "[" * 100000, '{"version": "x"}', "\0" * 99])
def test_a_record_that_makes_no_sense_is_told_and_no_defect(ledger: Ledger, raw: str) -> None:
    _, claim = taken(ledger)
    claim.close()
    ledger.path("a", 1, "json").write_text(raw)
    with pytest.raises(LedgerError, match=r"attempt1\.json is not a record that gpuq understands"):
        ledger.read("a", 1)


def test_a_record_of_files_whose_names_are_no_text_is_written(ledger: Ledger) -> None:
    made = msgspec.structs.replace(record(ledger, 1), provenance=Provenance(untracked=("caf\udce9.py", "é.py")))
    ledger.path("a", 1, "json").parent.mkdir(parents=True, exist_ok=True)
    ledger.save(made)
    assert ledger.read("a", 1).provenance == Provenance(untracked=("caf\ufffd.py", "é.py"))
    assert newer_than(ledger.root, ("caf\ufffd.py", "gone.py"), 0.0) == ["gone.py"]


@pytest.mark.parametrize("time", ["2026-11-29T13:00:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00"])
@pytest.mark.parametrize("field", ["reserved", "submitted", "end", "recorded", "held_at", "until"])
def test_a_record_with_a_time_that_cannot_be_one_makes_no_sense(ledger: Ledger, field: str, time: str) -> None:
    taken(ledger)[1].close()
    path = ledger.path("a", 1, "json")
    known = msgspec.structs.replace(
        ledger.read("a", 1),
        submitted=NOW,
        ended=Ended(outcome=Outcome.SUCCEEDED, state="COMPLETED", start=NOW, end=NOW, recorded=NOW),
        memory=MemorySummary(held=1, held_at=NOW, since=NOW, until=NOW),
    )
    raw = msgspec.json.encode(known).decode()
    assert msgspec.json.decode(raw, type=Record).is_sane
    path.write_text(re.sub(rf'("{field}":)"[^"]*"', rf'\1"{time}"', raw))
    with pytest.raises(LedgerError, match=r"attempt1\.json is not a record that gpuq understands"):
        ledger.read("a", 1)


def test_a_reservation_is_a_record_a_script_and_an_entry(ledger: Ledger) -> None:
    made, claim = taken(ledger)
    assert made.attempt == 1
    assert ledger.read("a", 1) == made
    assert ledger.path("a", 1, "sh").read_text() == "#!/bin/sh\n"
    assert os.access(ledger.path("a", 1, "sh"), os.X_OK)
    assert ledger.open_entries() == [Entry("ab", "a", 1)]
    assert ledger.attempts("a") == [1]
    claim.close()


def test_a_submission_that_was_noted_need_not_be_looked_at(ledger: Ledger) -> None:
    _, claim = taken(ledger)
    assert not ledger.open_entries()[0].submitted
    claim.note_submitted()
    claim.close()
    assert ledger.open_entries() == [Entry("ab", "a", 1, submitted=True)]
    other = ledger.claim("cd", "b", 2, wait=True)
    assert other is not None
    now = datetime.datetime(2026, 11, 29, tzinfo=datetime.UTC)
    assert other.missed_since(now) == now  # what that notes stands before it
    other.note_submitted()
    assert other.missed_since(now + datetime.timedelta(hours=1)) == now
    other.close()
    assert ledger.open_entries()[1] == Entry("cd", "b", 2, submitted=True)


def test_dropping_an_attempt_leaves_nothing(ledger: Ledger) -> None:
    before = everything(ledger.root)
    made, claim = taken(ledger)
    ledger.drop(made, claim)
    claim.close()
    assert not ledger.attempts_dir("a").exists()
    assert [path for path in everything(ledger.root) if not path.startswith(".gpuq/.gitignore")] == before
    assert ledger.open_entries() == []
    assert ledger.latest("a") is None


def test_dropping_one_attempt_keeps_the_others(ledger: Ledger) -> None:
    taken(ledger, "01")[1].close()
    made, claim = taken(ledger, "02")
    ledger.drop(made, claim)
    claim.close()
    assert ledger.attempts("a") == [1]
    assert ledger.open_entries() == [Entry("01", "a", 1)]


def test_a_number_is_never_used_again_while_a_log_of_it_exists(ledger: Ledger) -> None:
    made, claim = taken(ledger)
    ledger.path("a", 1, "out").write_text("what Slurm wrote\n")
    ledger.drop(made, claim)
    claim.close()
    assert ledger.path("a", 1, "out").read_text() == "what Slurm wrote\n"
    assert taken(ledger, "cd")[0].attempt == 2


@pytest.mark.parametrize("left", ["attempt7.json", "attempt7.sh", "attempt7.out"])
def test_the_next_number_is_above_every_file_of_an_attempt(ledger: Ledger, left: str) -> None:
    ledger.attempts_dir("a").mkdir()
    (ledger.attempts_dir("a") / left).touch()
    for other in ("attempt99.txt", "attempt9x.out", "notes", ".attempt50.json.1.2.tmp", "attempt-1.out"):
        (ledger.attempts_dir("a") / other).touch()
    assert ledger.next_number("a") == 8


def test_the_tenth_attempt_comes_after_the_ninth(ledger: Ledger) -> None:
    for number in range(1, 12):
        made, claim = taken(ledger, f"{number:02x}")
        claim.close()
        assert made.attempt == number
    latest = ledger.latest("a")
    assert latest is not None
    assert latest.attempt == 11
    assert [r.attempt for r in ledger.records("a")] == list(range(1, 12))


def test_a_reservation_that_fails_half_way_leaves_nothing(ledger: Ledger) -> None:
    def fail(number: int) -> tuple[Record, str]:
        return record(ledger, number), "\ud800"  # a script that cannot be written

    with pytest.raises(UnicodeEncodeError):
        ledger.reserve("a", "ab", fail, find=lambda: None)
    assert not ledger.attempts_dir("a").exists()
    assert ledger.open_entries() == []
    assert taken(ledger)[0].attempt == 1


def test_a_key_that_was_used_gives_the_earlier_record_and_no_claim(ledger: Ledger) -> None:
    first, claim = reserve(ledger, "01", key="k")
    assert claim is not None
    claim.close()
    assert reserve(ledger, "02", key="k") == (first, None)
    assert ledger.attempts("a") == [1]
    assert reserve(ledger, "03", key="other")[0].attempt == 2


def test_a_place_that_cannot_be_written_is_an_error_with_the_path(ledger: Ledger) -> None:
    ledger.attempts_dir("a").write_text("a file where a directory must be")
    with pytest.raises(LedgerError, match="runs/a/slurm") as caught:
        taken(ledger)
    assert "df -h" in caught.value.hint
    with pytest.raises(LedgerError, match="no-such-run"):
        taken(ledger, tag="no-such-run")
    assert ledger.open_entries() == []


# -- across processes ------------------------------------------------------------------------------------------

_SPAWN = multiprocessing.get_context("spawn")


def _reserve_many(root: str, worker: int, count: int, go: Any, answers: Any) -> None:
    ledger = Ledger(Path(root))
    go.wait()
    numbers = []
    for index in range(count):
        made, claim = taken(ledger, f"{worker:04x}{index:04x}")
        if index % 3 == 2:
            ledger.drop(made, claim)
        else:
            numbers.append((made.attempt, made.token))
        claim.close()
    answers.put(numbers)


def test_processes_that_reserve_at_once_get_different_numbers(ledger: Ledger) -> None:
    workers, each = 6, 12
    go, answers = _SPAWN.Event(), _SPAWN.Queue()
    processes = [
        _SPAWN.Process(target=_reserve_many, args=(str(ledger.root), worker, each, go, answers))
        for worker in range(workers)
    ]
    for process in processes:
        process.start()
    go.set()
    kept = [pair for _ in processes for pair in answers.get(timeout=120)]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert len(kept) == workers * each * 2 // 3
    assert len({number for number, _ in kept}) == len(kept)
    for number, token in kept:
        assert ledger.read("a", number).token == token
    assert ledger.attempts("a") == sorted(number for number, _ in kept)
    assert {(e.attempt, e.token) for e in ledger.open_entries()} == set(kept)


def _submit_with_key(root: str, worker: int, go: Any, answers: Any) -> None:
    ledger = Ledger(Path(root))
    go.wait()
    made, claim = reserve(ledger, f"{worker:02x}", key="k")
    answers.put((made.token, claim is not None))


def test_of_processes_with_one_key_exactly_one_reserves(ledger: Ledger) -> None:
    go, answers = _SPAWN.Event(), _SPAWN.Queue()
    processes = [
        _SPAWN.Process(target=_submit_with_key, args=(str(ledger.root), worker, go, answers)) for worker in range(6)
    ]
    for process in processes:
        process.start()
    go.set()
    got = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    assert [owner for _, owner in got].count(True) == 1
    assert len({token for token, _ in got}) == 1
    assert ledger.attempts("a") == [1]


# -- locks -----------------------------------------------------------------------------------------------------


def test_a_claimed_attempt_is_nobody_elses_until_it_is_closed(ledger: Ledger) -> None:
    made, claim = taken(ledger)
    assert ledger.claim(made.token, "a", 1, wait=False) is None
    claim.close()
    again = ledger.claim(made.token, "a", 1, wait=False)
    assert again is not None
    again.close()
    again.close()  # twice does no harm


def test_a_child_that_inherited_the_claim_holds_it_when_the_parent_is_gone(ledger: Ledger) -> None:
    made, claim = taken(ledger)
    go = ledger.root / "go"
    os.mkfifo(go)
    runner = threading.Thread(
        target=proc.run, args=(["sh", "-c", f"read x < {go}"],), kwargs={"timeout": 60, "pass_fds": [claim.descriptor]}
    )
    runner.start()
    with go.open("w") as handle:  # opens once the child does: it has inherited the lock by now
        claim.close()
        assert ledger.claim(made.token, "a", 1, wait=False) is None
        handle.write("x\n")
    runner.join()
    after = ledger.claim(made.token, "a", 1, wait=False)
    assert after is not None
    after.close()


def test_who_waits_for_a_claim_that_is_forgotten_meanwhile_gets_one_of_a_file_that_exists(ledger: Ledger) -> None:
    made, claim = taken(ledger)
    got: list[Claim | None] = []
    waiter = threading.Thread(target=lambda: got.append(ledger.claim(made.token, "a", 1, wait=True)))
    waiter.start()
    claim.forget()
    claim.close()
    waiter.join()
    assert got[0] is not None
    assert ledger.claim(made.token, "a", 1, wait=False) is None
    got[0].forget()
    got[0].close()
    assert ledger.open_entries() == []


def test_changing_a_record_yields_it_as_it_is_now_and_forgets_an_ended_one(ledger: Ledger) -> None:
    made, claim = taken(ledger)
    ledger.save(msgspec.structs.replace(made, job_id=12))
    claim.close()
    with ledger.changing(made) as current:
        assert current.job_id == 12
        ledger.save(msgspec.structs.replace(current, cancelled_by="ada"))
    assert ledger.open_entries() == [Entry("ab", "a", 1)]
    with ledger.changing(made) as current:
        assert current.cancelled_by == "ada"
        ledger.save(msgspec.structs.replace(current, ended=Ended(outcome=Outcome.CANCELLED, state="CANCELLED")))
    assert ledger.open_entries() == []


# -- finding ---------------------------------------------------------------------------------------------------


def test_runs_are_directories_with_a_script_or_attempts(ledger: Ledger) -> None:
    ledger.job_script("dino/lr3e-4").touch()
    taken(ledger)[1].close()
    for other in ("notes/x", ".hidden/run", "a/slurm/sub"):
        (ledger.root / other).mkdir(parents=True)
    (ledger.root / ".hidden/run/job.sh").touch()
    (ledger.root / "a/slurm/sub/job.sh").touch()
    (ledger.root / "job.sh").touch()
    assert ledger.tags() == ["a", "dino/lr3e-4"]
    assert Ledger(ledger.root / "missing").tags() == []


def test_the_index_is_passed_over_where_it_is_broken_and_git_ignores_it(ledger: Ledger) -> None:
    taken(ledger)[1].close()
    index = ledger.root / ".gpuq" / "open"
    (index / "ff").touch()
    (index / "ee").write_text("a\nx\n")
    (index / "dd").mkdir()
    assert ledger.open_entries() == [Entry("ab", "a", 1)]
    assert (index.parent / ".gitignore").read_text() == "*\n"


def test_a_job_id_that_came_back_means_the_newest_record(ledger: Ledger) -> None:
    for number, reserved in ((1, NOW), (2, NOW + datetime.timedelta(days=1))):
        made, claim = taken(ledger, f"0{number}")
        ledger.save(msgspec.structs.replace(made, job_id=5, reserved=reserved))
        claim.close()
    found = ledger.by_job(5)
    assert found is not None
    assert found.attempt == 2
    assert ledger.by_job(6) is None


# -- the format ------------------------------------------------------------------------------------------------

FROZEN = (DATA / "attempts" / "v1.json").read_bytes()
LATER = (DATA / "attempts" / "v1b.json").read_bytes()
"""The same version, with the fields that were added later."""


def place(ledger: Ledger, content: bytes) -> Path:
    path = ledger.path("dino/lr3e-4", 2, "json")
    path.parent.mkdir()
    path.write_bytes(content)
    return path


def test_a_record_of_version_1_loads_for_ever(ledger: Ledger) -> None:
    place(ledger, FROZEN)
    old = ledger.read("dino/lr3e-4", 2)
    assert (old.name, old.comment) == ("dino/lr3e-4 attempt 2", "gpuq:1:2:0123456789abcdef")
    assert old.request == Request(
        cpus=8,
        memory=28 << 30,
        time_limit=28800,
        partition="gpu",
        nice=5,
        signal_before=60,
        results=("cv.json",),
        score="cv.json:mean",
    )
    assert (old.job_id, old.cluster, old.key, old.git_dirty, old.dependencies) == (
        12,
        "box",
        "sweep-7",
        True,
        ("afterok:11",),
    )
    assert old.reserved == NOW.replace(microsecond=250000)
    assert old.ended is not None
    assert (old.ended.outcome, old.ended.restarts, old.ended.source) == (Outcome.INCOMPLETE, 1, "jobcomp")
    assert old.ended.end == NOW + datetime.timedelta(minutes=10, seconds=5)


def test_the_frozen_file_has_every_field_of_its_version() -> None:
    frozen = msgspec.json.decode(LATER)
    assert frozen["version"] == RECORD_VERSION == 1
    assert set(Record.__struct_fields__) <= set(frozen)
    assert set(Request.__struct_fields__) <= set(frozen["request"])
    assert set(Ended.__struct_fields__) <= set(frozen["ended"])


def test_a_record_that_is_saved_again_says_the_same(ledger: Ledger) -> None:
    path = place(ledger, LATER)
    ledger.save(ledger.read("dino/lr3e-4", 2))
    assert path.read_bytes() == LATER


def test_fields_of_the_future_are_tolerated(ledger: Ledger) -> None:
    more = msgspec.json.decode(FROZEN)
    more["colour"] = {"deep": [1]}
    more["request"]["gpus"] = 2
    more["ended"]["peak"] = 1.5
    place(ledger, msgspec.json.encode(more))
    assert ledger.read("dino/lr3e-4", 2).job_id == 12


def test_a_record_of_a_newer_gpuq_is_refused_with_the_cure(ledger: Ledger) -> None:
    newer = msgspec.json.decode(FROZEN)
    newer["version"] = RECORD_VERSION + 1
    place(ledger, msgspec.json.encode(newer))
    with pytest.raises(LedgerError, match=r"newer gpuq \(format 2, this one knows 1\)") as caught:
        ledger.read("dino/lr3e-4", 2)
    assert caught.value.hint == "upgrade gpuq"


def test_a_newer_format_is_said_to_be_one_also_when_its_fields_changed(ledger: Ledger) -> None:
    place(ledger, b'{"version": 2, "tag": ["dino", "lr3e-4"]}')
    with pytest.raises(LedgerError, match="newer gpuq"):
        ledger.read("dino/lr3e-4", 2)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", FROZEN[:200], FROZEN.replace(b'"job_id": 12', b'"job_id": "12"'), b"\xff"]
)
def test_a_record_that_is_damaged_is_an_error_with_its_path(ledger: Ledger, content: bytes) -> None:
    path = place(ledger, content)
    for read in (
        lambda: ledger.read("dino/lr3e-4", 2),
        lambda: ledger.latest("dino/lr3e-4"),
        lambda: ledger.records("dino/lr3e-4"),
    ):
        with pytest.raises(LedgerError, match=r"attempt2\.json") as caught:
            read()
        assert str(path) in caught.value.message


@pytest.fixture(autouse=True)
def descriptors_closed() -> Iterator[None]:
    """Claims that a test left open are closed: nobody collects descriptors."""
    before = set(os.listdir("/proc/self/fd"))
    yield
    for number in set(os.listdir("/proc/self/fd")) - before:
        target = os.path.realpath(f"/proc/self/fd/{number}")
        if "/.gpuq/open/" in target:
            os.close(int(number))
