"""What the Slurm commands print, and what they would print if anybody meant harm."""

from __future__ import annotations

import contextlib
import datetime
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.adapters.slurm import parse
from gpuq.adapters.slurm.ahead import UNIT, queue_format
from gpuq.core.attempt import read_comment
from gpuq.core.job import Job, Phase
from gpuq.core.units import GIB, MIB
from gpuq.errors import SlurmAnswerError
from tests import DATA

MARK = "\x1e0f1e2d3c"
RECORDED = sorted(path.parent.name for path in (DATA / "slurm").glob("*/scontrol-show-partition.txt"))
"""By hand; what record_slurm.py recorded is in test_recorded.py."""


def row(comment: str = "(null)", workdir: str = "/home/ada/p", name: str = "a", mark: str = MARK, **fields: str) -> str:
    """A row as squeue fills in the format."""
    values = {
        "%i": "12", "%F": "12", "%T": "PENDING", "%P": "gpu", "%V": "1795958639", "%S": "N/A", "%e": "N/A", "%l": "8:00:00",
        "%M": "0:00", "%m": "28G", "%C": "8", "%y": "0", "%Q": "4294901756", "%N": "", "%U": "1000", "%u": "ada",
        "%b": "gres/gpu:1", "%E": "(null)", "%r": "Resources", "%k": comment, "%Z": workdir, "%j": name,
    }  # fmt: skip
    values |= {f"%{key}": value for key, value in fields.items()}
    pieces = queue_format(mark).split(mark)
    closed = pieces[1].split(UNIT)
    return (
        mark
        + UNIT.join(values[key] for key in closed)
        + mark
        + mark.join(values[key] for key in pieces[2:-1])
        + mark
        + "\n"
    )


def one(text: str) -> Job:
    (job,) = parse.parse_queue(text, MARK)
    return job


def test_an_empty_queue_is_no_job_and_no_error() -> None:
    assert parse.parse_queue("", MARK) == []


def test_a_row_becomes_a_job() -> None:
    job = one(row(comment="gpuq:1:2:0123456789abcdef", name="dino/lr3e-4"))
    assert (job.id, job.number, job.name, job.phase, job.reason) == (
        "12",
        12,
        "dino/lr3e-4",
        Phase.WAITING,
        "Resources",
    )
    assert job.submit == datetime.datetime.fromtimestamp(1795958639, datetime.UTC)
    assert (job.start, job.end, job.time_limit, job.elapsed) == (None, None, 8 * 3600, 0)
    assert (job.memory, job.cpus, job.nice, job.priority, job.uid) == (28 * GIB, 8, 0, 4294901756, 1000)
    assert (job.dependency, job.node, job.has_gpu) == ("", "", True)
    assert read_comment(job.comment) == (2, "0123456789abcdef")


@pytest.mark.parametrize(
    ("fields", "field", "value"),
    [
        ({"r": "None"}, "reason", ""),
        ({"E": "afterok:12(unfulfilled)"}, "dependency", "afterok:12(unfulfilled)"),
        ({"b": "N/A"}, "gres", ""),
        ({"b": "gres:gpu:1"}, "gres", "gres:gpu:1"),
        ({"l": "UNLIMITED"}, "time_limit", None),
        ({"l": "24:00"}, "time_limit", 24 * 60),
        ({"l": "2-00:00:00"}, "time_limit", 172800),
        ({"M": "1-02:03:04"}, "elapsed", 93784),
        ({"M": "INVALID"}, "elapsed", 0),
        ({"m": "1500M"}, "memory", 1500 * MIB),
        ({"m": "0"}, "memory", None),
        ({"m": "1.50G"}, "memory", GIB + GIB // 2),
        ({"i": "12_[1-3%1]"}, "id", "12_[1-3%1]"),
        ({"r": "ReqNodeNotAvail, UnavailableNodes:n1"}, "reason", "ReqNodeNotAvail, UnavailableNodes:n1"),
        ({"y": "-5"}, "nice", -5),
    ],
)
def test_slurms_ways_to_write_a_field(fields: dict[str, str], field: str, value: object) -> None:
    assert getattr(one(row(**fields)), field) == value


ANY = st.text(
    alphabet=st.one_of(
        st.characters(exclude_categories=()),
        st.sampled_from("\n\r\x1e\x1f|% \t\\\x0b\x0c\x1c\x1d\x85\u2028\udce9\udcff"),
    ),
    max_size=40,
).filter(lambda text: MARK not in text and "\0" not in text)


@given(st.lists(st.tuples(ANY, ANY, ANY), max_size=6))
def test_any_comment_directory_and_name_survives_the_format(texts: list[tuple[str, str, str]]) -> None:
    printed = "".join(
        row(comment, workdir, name, i=str(n), F=str(n)) for n, (comment, workdir, name) in enumerate(texts, 1)
    )
    jobs = parse.parse_queue(printed, MARK)
    assert [job.number for job in jobs] == list(range(1, len(texts) + 1))
    for job, (comment, workdir, name) in zip(jobs, texts, strict=True):
        assert (job.workdir, job.name) == (workdir, name)
        assert job.comment == ("" if comment in {"(null)", "N/A", "None"} else comment)


@given(st.lists(ANY, min_size=1, max_size=4), st.data())
def test_a_truncated_answer_is_an_error_and_never_a_shorter_list(names: list[str], data: st.DataObject) -> None:
    rows = [row(name=name, i=str(n), F=str(n)) for n, name in enumerate(names, 1)]
    printed = "".join(rows)
    cut = data.draw(st.integers(min_value=1, max_value=len(printed) - 1))
    ends = {sum(len(r) for r in rows[:count]) for count in range(len(rows))}
    if cut in ends:
        return  # between two rows nothing tells that more was to come
    with pytest.raises(SlurmAnswerError):
        parse.parse_queue(printed[:cut], MARK)


@given(st.lists(st.tuples(ANY, ANY, ANY), max_size=4), st.lists(st.integers(0, 2000), max_size=12))
def test_an_answer_may_come_in_any_pieces(texts: list[tuple[str, str, str]], cuts: list[int]) -> None:
    printed = "".join(row(comment, workdir, name) for comment, workdir, name in texts)
    reader = parse.QueueReader(MARK)
    places = [0, *sorted(min(cut, len(printed)) for cut in cuts), len(printed)]
    for begin, end in itertools.pairwise(places):
        reader.feed(printed[begin:end])
    found = reader.jobs()
    assert found == parse.parse_queue(printed, MARK)
    assert len(found) == len(texts)


def test_a_wrong_piece_is_told_at_the_end_and_nothing_after_it_is_read() -> None:
    reader = parse.QueueReader(MARK)
    reader.feed(row())
    reader.feed("squeue: what is this\n")
    reader.feed(row())
    with pytest.raises(SlurmAnswerError, match="what is this"):
        reader.jobs()


@given(st.text(min_size=1))
def test_garbage_is_an_error_and_never_an_empty_list(text: str) -> None:
    with pytest.raises(SlurmAnswerError):
        parse.parse_queue(text, MARK)


@pytest.mark.parametrize(
    "text",
    [
        "\n",
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n",
        "slurm_load_jobs error: Unable to contact slurm controller\n",
        "<html>busy</html>",
        '{"jobs": []}',
        row() + "banner of a wrapper\n",
        "banner of a wrapper\n" + row(),
        row(mark="\x1effffffff"),
        row() + row()[:-1],
        row() + "\n",
        MARK * 5 + "\n",
    ],
)
def test_foreign_lines_are_an_error(text: str) -> None:
    with pytest.raises(SlurmAnswerError, match="gpuq does not understand"):
        parse.parse_queue(text, MARK)


@pytest.mark.parametrize(
    "fields",
    [
        {"T": "DANCING"},
        {"T": ""},
        {"F": "x"},
        {"F": ""},
        {"V": "2026-11-29T13:00:00"},
        {"l": "soon"},
        {"M": "4"},
        {"C": "many"},
        {"m": "lots"},
        {"U": "ada"},
        {"Q": "high"},
        {"V": "9" * 30},
    ],
)
def test_a_field_that_makes_no_sense_is_an_error(fields: dict[str, str]) -> None:
    with pytest.raises(SlurmAnswerError):
        parse.parse_queue(row() + row(**fields), MARK)


def test_a_hundred_thousand_jobs_are_read_in_one_answer() -> None:
    printed = "".join(row(name=f"run/{n}", i=str(n), F=str(n)) for n in range(1, 100_001))
    jobs = parse.parse_queue(printed, MARK)
    assert len(jobs) == 100_000
    assert jobs[-1].name == "run/100000"


def test_a_recorded_queue_of_every_kind_of_job() -> None:
    text = (DATA / "slurm/22.05/squeue-format.txt").read_bytes().decode("utf-8", "surrogateescape")
    jobs = {job.id: job for job in parse.parse_queue(text, MARK)}
    assert len(jobs) == text.count(MARK) / 5
    assert jobs["1"].name == "a\nb|c"
    assert jobs["20"].name == "a b=c|d"
    assert jobs["21"].name == "two\nlines"
    assert jobs["21"].comment == "x\x1fy"
    assert jobs["22"].name == "caf\udce9"
    assert jobs["19"].name == "dino/lr3e-4"
    assert read_comment(jobs["19"].comment) == (3, "0123456789abcdef")
    assert jobs["24"].dependency == "afterany:20(unfulfilled)"
    assert jobs["25_[1-3%1]"].number == 25
    assert jobs["6_1"].number == 6
    assert jobs["26"].reason == "PartitionTimeLimit"
    assert jobs["26"].time_limit == 172800
    assert jobs["9"].time_limit == 24 * 60
    assert jobs["9"].elapsed == 3
    assert [jobs[number].has_gpu for number in ("19", "23", "24", "21")] == [True, True, True, False]
    assert jobs["24"].memory == 500 * MIB
    assert {job.phase for job in jobs.values()} == {Phase.WAITING, Phase.ENDED}


@pytest.mark.parametrize(
    ("shown", "own", "number", "whole"),
    [
        ("12", "12", 12, True),
        ("12_3", "12", 12, False),
        ("12_[1-3%1]", "12", 12, False),
        ("12+0", "12", 12, False),
        ("12+1", "13", 12, False),  # %F is the component's own id
    ],
)
def test_the_number_of_a_part_is_the_jobs(shown: str, own: str, number: int, whole: bool) -> None:
    job = one(row(i=shown, F=own))
    assert (job.id, job.number, job.whole) == (shown, number, whole)


def test_the_end_of_a_part_is_found_by_its_id() -> None:
    printed = f"{'12_11':>200}{'0:9':>20}{0:>12}\n{'12_1':>200}{'3:0':>20}{2:>12}\n"
    job = one(row(i="12_1", T="FAILED"))
    end = parse.parse_end(job, parse.part_of_end(job, printed))
    assert (end.exit_code, end.signal, end.restarts) == (3, 0, 2)
    with pytest.raises(SlurmAnswerError):
        parse.part_of_end(one(row(i="12_2", T="FAILED")), printed)


@given(st.text())
def test_no_text_is_the_end_of_a_part_by_chance(text: str) -> None:
    job = one(row(i="12_1", T="FAILED"))
    with pytest.raises(SlurmAnswerError):
        parse.parse_end(job, parse.part_of_end(job, text))


@pytest.mark.parametrize(
    ("printed", "code", "signal"),
    [
        ("0 0", 0, 0),
        ("768 0", 3, 0),
        ("9 0", 0, 9),
        ("125 0", 0, 125),
        ("53 0", 0, 53),
        ("139 0", 0, 11),
        ("65280 0", 255, 0),
    ],
)
def test_an_exit_code_is_taken_apart_as_wait_does(printed: str, code: int, signal: int) -> None:
    end = parse.parse_end(one(row(T="FAILED", r="NonZeroExitCode")), f"   {printed}  \n")
    assert (end.exit_code, end.signal, end.state, end.reason, end.source) == (
        code,
        signal,
        "FAILED",
        "NonZeroExitCode",
        "slurmctld",
    )


def test_how_often_a_job_was_started_again_is_kept() -> None:
    assert parse.parse_end(one(row(T="COMPLETED")), "0 2\n").restarts == 2


@pytest.mark.parametrize("text", ["", "0", "0 0 0", "x 0", "0 x", "-1 0", "² 0", "slurm_load_jobs error"])
def test_an_exit_code_that_makes_no_sense_is_an_error(text: str) -> None:
    with pytest.raises(SlurmAnswerError):
        parse.parse_end(one(row(T="COMPLETED")), text)


@pytest.mark.parametrize("version", RECORDED)
def test_recorded_partitions(version: str) -> None:
    (gpu,) = parse.parse_partitions((DATA / f"slurm/{version}/scontrol-show-partition.txt").read_text())
    assert (gpu.name, gpu.default, gpu.max_time, gpu.default_time) == ("gpu", True, 8 * 3600, None)
    assert (gpu.max_cpus_per_node, gpu.max_memory_per_node, gpu.state) == (None, None, "UP")


PARTITION = (DATA / "slurm/25.11/scontrol-show-partition.txt").read_text()


def test_limits_of_a_partition() -> None:
    text = (
        PARTITION.replace("MaxTime=08:00:00", "MaxTime=UNLIMITED")
        .replace("DefaultTime=NONE", "DefaultTime=1-00:00:00")
        .replace("MaxCPUsPerNode=UNLIMITED", "MaxCPUsPerNode=4")
        .replace("MaxMemPerNode=UNLIMITED", "MaxMemPerNode=1024")
        .replace("Default=YES", "Default=NO")
    )
    (gpu,) = parse.parse_partitions(text)
    assert (gpu.max_time, gpu.default_time, gpu.default) == (None, 86400, False)
    assert (gpu.max_cpus_per_node, gpu.max_memory_per_node) == (4, GIB)


def test_a_memory_limit_that_is_given_per_core_is_none_per_node() -> None:
    (gpu,) = parse.parse_partitions(PARTITION.replace("MaxMemPerNode=UNLIMITED", "MaxMemPerCPU=1000"))
    assert gpu.max_memory_per_node is None
    assert gpu.max_memory_per_cpu == 1000 * MIB
    capped = PARTITION.replace("MaxMemPerNode=UNLIMITED", "MaxMemPerCPU=1000")
    (gpu,) = parse.parse_partitions(capped.replace("MaxCPUsPerNode=UNLIMITED", "MaxCPUsPerNode=4"))
    assert gpu.max_memory_per_node == 4000 * MIB


def test_several_partitions_are_all_read() -> None:
    both = PARTITION + PARTITION.replace("PartitionName=gpu", "PartitionName=cpu")
    assert [p.name for p in parse.parse_partitions(both)] == ["gpu", "cpu"]
    assert parse.parse_partitions("No partitions in the system\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "<html>",
        "PartitionName=gpu\n",
        PARTITION[:200],
        PARTITION.replace("MaxTime=08:00:00", "MaxTime=soon"),
        "banner\n" + PARTITION,
    ],
)
def test_a_partition_that_makes_no_sense_is_an_error(text: str) -> None:
    with pytest.raises(SlurmAnswerError):
        parse.parse_partitions(text)


def test_recorded_nodes() -> None:
    (node,) = parse.parse_nodes((DATA / "slurm/22.05/sinfo-nodes.txt").read_text())
    assert (node.partition, node.name, node.cpus, node.memory, node.gpus) == ("gpu", "d22", 2, 20000 * MIB, 1)
    assert (node.state, node.reason) == ("idle", "")


def node_line(*fields: str) -> str:
    return UNIT.join(fields) + "\n"


@pytest.mark.parametrize(
    ("shown", "state"),
    [("idle", "idle"), ("down*", "down"), ("drained*", "drained"), ("mixed+", "mixed"), ("idle~", "idle")],
)
def test_marks_behind_a_nodes_state_are_dropped(shown: str, state: str) -> None:
    (node,) = parse.parse_nodes(node_line("gpu", "n1", "20", "15867", "gpu:3090:1(S:0)", shown, "none"))
    assert node.state == state
    assert node.gpus == 1


def test_an_administrators_reason_may_hold_newlines_and_separators() -> None:
    text = node_line("gpu", "n1", "20", "15867", "(null)", "drained", "fan\x1fbroken\nask Bob") + node_line(
        "gpu", "n2", "2", "100+", "gpu:1", "idle", "none"
    )
    first, second = parse.parse_nodes(text)
    assert first.reason.startswith("fan\x1fbroken")
    assert first.gpus == 0
    assert (second.name, second.memory) == ("n2", 100 * MIB)


@pytest.mark.parametrize(
    "text",
    [
        "NODELIST   NODES PARTITION STATE\n",
        "error",
        node_line("gpu", "n1", "20"),
        node_line("gpu", "n1", "x", "1", "", "idle", "none"),
        "a\x1fb\n",
    ],
)
def test_a_node_that_makes_no_sense_is_an_error(text: str) -> None:
    with pytest.raises(SlurmAnswerError):
        parse.parse_nodes(text)


@given(st.text())
def test_no_text_makes_a_reader_raise_anything_else(text: str) -> None:
    for read in (parse.parse_partitions, parse.parse_nodes):
        with contextlib.suppress(SlurmAnswerError):
            assert isinstance(read(text), list)


def test_every_release_that_was_recorded_by_hand_is_here() -> None:
    assert RECORDED == ["22.05", "25.11"]
    assert all(Path(DATA / "slurm" / version / "jobcomp.txt").exists() for version in RECORDED)
