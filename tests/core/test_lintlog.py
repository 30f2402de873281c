"""What `gpuq lint-log` finds in a log, and what it lets pass."""

from __future__ import annotations

import re

import pytest

from gpuq.core.inside.lintlog import lint

GOOD = """\
module loaded
START tag=a device=NVIDIA GeForce RTX 3090 free=21.47GiB command=python train.py
STEP step=1/10 loss=0.5
its own words, FAILED or not
STEP step=2/10 loss=0.4
FINISHED exit=0 elapsed=3.0s
"""


def faults(text: str) -> list[tuple[int, str]]:
    return [(fault.line, fault.text) for fault in lint(re.split(rb"(?<=\n)", text.encode()))]


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD + "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch.\n\n",
        GOOD + "=== gpuq: started again after a requeue\n" + GOOD,
        GOOD.replace("FINISHED exit=0", "FAILED cause=signal exit=143 oom_kill=0")
        + "\n=== gpuq: made way for another job (2026-11-29 18:00:00); back to the queue ===\n",
        "START device=none\nkilled here\n=== gpuq: started again after a requeue\n" + GOOD,
        "START device=none\nFAILED cause=cancelled exit=none oom_kill=0\nstill here\nFAILED cause=signal exit=9 oom_kill=0",
        "START device=none\nFAILED cause=time_limit exit=none oom_kill=0\nstill here\n",
        GOOD + GOOD.split("\n", 1)[1],  # two programs in one job
    ],
)
def test_a_good_log_has_no_fault(text: str) -> None:
    assert faults(text) == []


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", 1, "no START"),
        ("hello\n", 1, "no START"),
        ("START device=none\nx\n", 2, "neither FINISHED nor FAILED"),
        ("START device=none\nSTART device=none\nFINISHED exit=0\n", 2, "line 1 has not ended"),
        ("START tag=a\nFINISHED exit=0\n", 1, "START without device="),
        ("START device=none\nFAILED cause=x\n", 2, "FAILED without exit="),
        ("START device=none\nFAILED cause=x exit=0 oom_kill=0\n", 2, "FAILED exit=0"),
        ("START device=none\nFINISHED exit=none\n", 2, "not a number"),
        ("FINISHED exit=0\n", 1, "FINISHED before START"),
        (GOOD + "one more word\nand another\n", 7, "text after the end: line 6 says FINISHED"),
        (GOOD + "FINISHED exit=0\n", 7, "text after the end"),
        ("START device=none\nSTEP step=3\nSTEP step=2\nFINISHED exit=0\n", 3, "it was at 3 before"),
        ("START device=none\nSTEP step=11/10\nFINISHED exit=0\n", 2, "more than all"),
        ("START device=none\nSTEP step=x\nFINISHED exit=0\n", 2, "not a number"),
        ('START device="none\nFINISHED exit=0\n', 1, "START: column 14: a string that does not end"),
        ("START device=none\n 1%\r 2%\r 3%\nFINISHED exit=0\n", 2, "a progress bar"),
        (f"START device=none\n{'x' * 70000}\nFINISHED exit=0\n", 2, "70001 bytes in one line"),
    ],
)
def test_a_fault_is_told_with_its_line(text: str, line: int, says: str) -> None:
    found = faults(text)
    assert found, "no fault"
    assert found[0][0] == line
    assert says in found[0][1]


def test_a_line_that_comes_in_pieces_is_counted_once() -> None:
    found = lint([b"START device=none\n", b"x" * 50000, b"x" * 50000, b"\n", b"FINISHED exit=0\n", b"word\n"])
    assert [(fault.line, fault.text.split()[0]) for fault in found] == [(2, "100001"), (4, "text")]
