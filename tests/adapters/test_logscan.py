"""A log of any size is read in bounded memory, whatever its bytes; what matters in it is found."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.adapters import logscan
from gpuq.adapters.logscan import scan
from gpuq.core.attempt import Request
from gpuq.core.triage.diagnosis import Answer, diagnose
from gpuq.core.triage.evidence import Evidence, Log
from gpuq.core.triage.rules import ANYWHERE, anchors

FRAME = b"Epoch 3:  12%|#2        | 120/1000 [00:10<01:20, 11.0it/s, loss=0.123]\r"
OOM = (
    b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity; 20.00 GiB already "
    b"allocated; 1.00 GiB free; 21.00 GiB reserved in total by PyTorch)\n"
)
TRAILER = b"""torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
Root Cause (first observed failure):
[0]:
  exitcode  : 1 (pid: 793062)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
TRACEBACK = b"""Traceback (most recent call last):
  File "/p/a.py", line 3, in f
ModuleNotFoundError: No module named 'foo'
"""
MIB = 1024 * 1024


def read(path: Path) -> Log:
    return scan(path, anchors(), ANYWHERE)


def lines(log: Log) -> list[str]:
    return [line for part in log.parts for line in part]


def verdict(log: Log, outcome: str = "FAILED") -> Answer:
    request = Request(cpus=1, memory=1024**3)
    return diagnose(Evidence(tag="a", attempt=1, outcome=outcome, state=outcome, exit_code=1, request=request, log=log))


def big(path: Path, size: int, *inside: tuple[int, bytes], fill: bytes = FRAME, end: bytes = b"") -> Path:
    """A file of `size` bytes of `fill`, with pieces at given places and `end` at its end."""
    block = fill * (MIB // len(fill) + 1)
    with path.open("wb") as handle:
        while handle.tell() < size:
            handle.write(block)
        for at, piece in inside:
            handle.seek(at)
            handle.write(piece)
        handle.seek(0, 2)
        handle.write(end)
    return path


def test_fifty_thousand_frames_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(FRAME * 50_000 + OOM + TRAILER)
    log = read(path)
    assert len(lines(log)) < 50
    answer = verdict(log)
    assert (answer.id, answer.confidence) == ("gpu_oom", "certain")
    assert "when it tried to allocate 2.00 GiB" in answer.headline
    assert "the GPU has 23.69 GiB" in answer.details


def test_half_a_gigabyte_in_one_line(tmp_path: Path) -> None:
    path = big(tmp_path / "log", 500 * MIB, (250 * MIB, b"\n" + TRACEBACK), end=OOM + TRAILER)
    tracemalloc.start()
    log = read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert log.size > 500 * MIB
    assert peak < 64 * MIB
    assert sum(map(len, lines(log))) < 2 * MIB
    assert any("No module named 'foo'" in line for line in lines(log))
    path.unlink()
    assert verdict(log).id == "gpu_oom"


@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"x", b"Traceback (most recent call last):\n"], ids=repr)
def test_a_large_log_of_one_thing(tmp_path: Path, fill: bytes) -> None:
    path = big(tmp_path / "log", 12 * MIB, fill=fill, end=b"\n" + OOM)
    log = read(path)
    assert verdict(log).id == "gpu_oom"
    assert max(map(len, lines(log))) <= logscan.LONGEST


def test_the_middle_of_a_large_log(tmp_path: Path) -> None:
    path = big(
        tmp_path / "log",
        60 * MIB,
        (20 * MIB, b"\nslurmstepd: error: Detected 1 oom_kill event in StepId=7.batch.\n"),
        (30 * MIB - 20, b"\n" + TRACEBACK),
        fill=b"step 1 loss 2.0\n",
    )
    log = read(path)
    found = lines(log)
    assert "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch." in found
    assert "ModuleNotFoundError: No module named 'foo'" in found
    assert len(log.parts) == 4


def test_a_text_across_the_border_of_two_blocks(tmp_path: Path) -> None:
    for shift in range(1, 40, 6):
        at = logscan.NEAR_HEAD + logscan._CHUNK - shift
        path = big(tmp_path / "log", 8 * MIB, (at, b"\n" + TRACEBACK), fill=b"step\n")
        assert "ModuleNotFoundError: No module named 'foo'" in lines(read(path))


def test_the_first_and_the_last_of_many(tmp_path: Path) -> None:
    places = [(n * MIB, f"\nslurmstepd: error: number {n}.\n".encode()) for n in range(5, 45)]
    log = read(big(tmp_path / "log", 60 * MIB, *places, fill=b"step\n"))
    told = [line for line in lines(log) if line.startswith("slurmstepd")]
    assert told[0].endswith("number 5.")
    assert told[-1].endswith("number 44.")
    assert len(told) <= 2 * logscan._EACH


def test_no_byte_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\x00\xff\xfe\x1b[31mred\x1b[0m \xe2\x94\x82\n\x1b]0;title\x07x\r\n\r\r\n" + TRACEBACK)
    assert lines(read(path))[:3] == ["��red │", "x", ""]
    path.write_bytes(b"")
    assert read(path) == Log()


def test_an_endless_line_keeps_what_was_found_in_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"{" + b"a" * 50_000 + b" CUDA out of memory. Tried to allocate 3.00 GiB " + b"b" * 50_000)
    (line,) = lines(read(path))
    assert len(line) <= logscan.LONGEST
    assert "Tried to allocate 3.00 GiB" in line


def test_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")


PIECES = st.sampled_from(
    [FRAME, OOM, TRACEBACK, TRAILER, b"\n", b"\r", b"\0", b"\xff", b"[rank0]: ", b"\nDuring handling of"]
)


@given(st.lists(st.one_of(PIECES, st.binary(max_size=30)), max_size=30).map(b"".join))
def test_any_bytes_are_judged(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.log"
    path.write_bytes(data)
    log = read(path)
    for outcome in ("FAILED", "SUCCEEDED", "TIMEOUT", "LOST"):
        answer = verdict(log, outcome)
        assert answer.id
        assert all(line.isprintable() for line in answer.evidence)
