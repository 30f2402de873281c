"""The lines of a log: what is written is read back, and nothing else is taken for one."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuq.core.inside import runlines
from gpuq.core.inside.runlines import (
    clock,
    gib,
    last_error,
    last_result,
    last_vram,
    parse_gib,
    read,
    stopped_early,
    write,
)


def test_a_name_with_blanks_stands_there_as_it_is() -> None:
    line = write("START", {"device": "NVIDIA GeForce RTX 3090", "free": gib(23053000000), "gpus": 1})
    assert line == "START device=NVIDIA GeForce RTX 3090 free=21.47GiB gpus=1"
    found = read(line)
    assert found is not None
    assert found.fields == {"device": "NVIDIA GeForce RTX 3090", "free": "21.47GiB", "gpus": "1"}
    assert parse_gib("21.47GiB") == pytest.approx(23053000000, rel=1e-3)
    assert parse_gib("21.47 GB") is None


@given(
    st.sampled_from(runlines.KINDS), st.dictionaries(st.from_regex(r"[a-z_]\w*", fullmatch=True), st.text(), min_size=1)
)
def test_what_is_written_is_read_back(kind: str, fields: dict[str, str]) -> None:
    fields = {runlines.key_of(key): value for key, value in fields.items()}
    line = write(kind, fields)
    assert "\n" not in line
    assert line.isprintable()
    found = read(line)
    assert found is not None
    assert (found.kind, found.fields) == (kind, fields)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for line in (text, f"START a={text}", f"STEP {text}"):
        with contextlib.suppress(ValueError):
            found = read(line)
            assert found is None or found.fields


@pytest.mark.parametrize(
    "text", ["FAILED to open x=1", "STARTED a=1", "started", "START", "FINISHED", " STEP step=1", "STEP 12 of 30", ""]
)
def test_a_programs_own_words_are_none_of_ours(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('FAILED cause="x', "does not end"),
        ("FAILED cause=", "no value"),
        ("FAILED cause= exit=1", "no value"),
        ("FAILED cause=a cause=b", "twice"),
        ('FAILED cause="a"exit=1', "blank is missing"),
        ('FAILED cause="a" and more', "not a key=value"),
    ],
)
def test_a_line_that_cannot_be_read_says_why(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read(text)


def test_numbers_and_words_as_a_person_reads_them() -> None:
    assert write("STEP", {"loss": 0.30000000001, "lr": 3e-4, "ok": True, "n": 12, "why": "", "1 x=": "a b=c"}) == (
        'STEP loss=0.3 lr=0.0003 ok=true n=12 why="" _1_x_="a b=c"'
    )
    assert [clock(one) for one in (-1, 0.04, 59.94, 59.96, 4320)] == ["0.0s", "0.0s", "59.9s", "1m", "1h12m"]


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        (b"Traceback (most recent call last):\n  File x\nValueError: bad\n", "ValueError: bad"),
        (b"ValueError: first\nDuring handling\nRuntimeError: CUDA out of memory.\n", "RuntimeError: CUDA out of memory."),
        (b"[rank0]: torch.OutOfMemoryError: CUDA out of memory.\nmore\n", "torch.OutOfMemoryError: CUDA out of memory."),
        (b"\r 12%|#\rKeyboardInterrupt", "KeyboardInterrupt"),
        (b"an Error: is not one\nError rate=0.3\n", ""),
        (b"\xff\x00ValueError\n", ""),
        (b"KeyError: '\xff\x00'\n", "KeyError: '�'"),
    ],
)  # fmt: skip
def test_the_exception_at_the_end_of_an_output(tail: bytes, error: str) -> None:
    assert last_error(tail) == error


def test_the_most_gpu_memory_that_a_log_tells_of() -> None:
    assert (
        last_vram(b"STEP step=1 vram=9.00GiB elapsed=3s\nx vram=99.00GiB\nFINISHED exit=0 vram=9.50GiB\n")
        == 9.5 * 2**30
    )
    assert last_vram(b"vram=1.00GiB\nSTEP step=1\nSTEP vram=1.2.3GiB") is None


def test_a_run_that_was_told_to_end_half_way() -> None:
    end = b"STOPPING signal=SIGTERM\nFINISHED exit=0 stopped=true elapsed=3s\n"
    assert stopped_early(b"STEP step=117/400\nSTEP step=118/400 loss=0.1\n" + end) == "118/400"
    assert stopped_early(end) == ""
    assert stopped_early(b"STEP step=400/400\n" + end) is None, "it was through"
    assert stopped_early(end + b"FINISHED exit=0 elapsed=3s\n") is None, "the last one counts"
    assert stopped_early(b"x FINISHED exit=0 stopped=true\n") is None
    assert stopped_early(b"FINISHED exit=0 stopped=true stopped=true") is None
    assert stopped_early(b"") is None


def test_the_result_at_the_end_of_an_output() -> None:
    assert last_result(b"x\nRESULT score=0.1\nRESULT score=0.5 vram=1.00GiB\r\nbye\n") == {
        "score": "0.5",
        "vram": "1.00GiB",
    }
    assert last_result(b"RESULT score=1") == {"score": "1"}
    assert last_result(b"no RESULT score=1") == {}
    assert last_result(b"\nRESULT score=") == {}
