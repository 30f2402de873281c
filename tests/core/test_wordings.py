"""What tools of many releases write gets the same verdict, whatever a launcher, a logger or a terminal does to its lines.
What merely mentions such words gets none.

`tests/data/wordings/VERDICT.txt` holds logs, each below a line `%%%% NAME {what Slurm says; "says": what the answer says}`.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuq.adapters.logscan import scan_open
from gpuq.core.attempt import Request
from gpuq.core.triage.diagnosis import Answer, diagnose
from gpuq.core.triage.evidence import Evidence
from gpuq.core.triage.rules import ANYWHERE, BY_ID, anchors
from tests import DATA

WORDINGS = DATA / "wordings"
VERDICTS = sorted(path.stem for path in WORDINGS.glob("*.txt") if path.stem != "mentions")
BAR = "Epoch 3:  12%|#2        | 120/1000 [00:10<01:20, 11.0it/s]\r"
KEY_ERROR = """Traceback (most recent call last):
  File "/home/me/project/train.py", line 44, in <module>
    main()
  File "/home/me/project/train.py", line 30, in step
    loss = model(x)
KeyError: 'lr'
"""
SLURMS = re.compile(r"slurmstepd|srun|error: |/var/spool|/x/slurm|Killed|zsh|FAILED |START |FINISHED ")


def logs(verdict: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Name, what is known, and text of each log of a verdict."""
    for entry in re.split(r"(?m)^%%%% ", (WORDINGS / f"{verdict}.txt").read_text())[1:]:
        head, _, text = entry.partition("\n")
        name, _, known = head.partition(" ")
        yield name, json.loads(known or "{}"), text


def judged(text: str, outcome: str = "FAILED", cpu: bool = False, **known: Any) -> Answer:
    log = scan_open(io.BytesIO(text.encode("utf-8", "surrogateescape")), ANCHORS, ANYWHERE)
    return diagnose(
        Evidence(
            tag="a/b",
            attempt=2,
            outcome=outcome,
            state="COMPLETED" if outcome == "SUCCEEDED" else outcome,
            exit_code=known.pop("exit_code", 1 if outcome == "FAILED" else 0),
            request=Request(cpus=4, memory=8 * 1024**3, time_limit=8 * 3600, gpu=not cpu),
            project="/home/me/project",
            run_dir="/home/me/project/runs/a/b",
            log=log,
            **known,
        )
    )


def before(prefix: str | Callable[[int], str]) -> Callable[[str], str]:
    """Each line of a program's own with something before it."""

    def dressed(text: str) -> str:
        lines = text.splitlines(True)
        return "".join(
            line if SLURMS.match(line) else (prefix if isinstance(prefix, str) else prefix(number)) + line
            for number, line in enumerate(lines)
        )

    return dressed


ANCHORS = anchors()
DRESSES: dict[str, Callable[[str], str]] = {
    "plain": str,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "red": lambda text: "".join(f"\x1b[31m{line}\x1b[0m\n" for line in text.split("\n")[:-1]),
    "coloured words": lambda text: re.sub(r"(\w*(?:Error|Killed)\b)", "\x1b[1;35m\\1\x1b[0m", text),
    "time": before(lambda number: f"2026-03-02 11:37:{number % 60:02d} "),
    "iso time": before(lambda number: f"[2026-03-02T11:37:36.{number:06d}Z] "),
    "clock": before(lambda number: f"11:37:{number % 60:02d} "),
    "srun --label": lambda text: "".join(f" 3: {line}" for line in text.splitlines(True)),
    "mpirun": before("[1,0]<stderr>:"),
    "accelerate": before("stderr: "),
    "rank": before("[rank0]: "),
    "torchrun --tee": before("[default0]:"),
    "ray": before("(RayTrainWorker pid=1234, ip=10.0.0.1) "),
    "vLLM": before(lambda number: f"(EngineCore_DP0 pid=22) ERROR 10-25 13:08:{number % 60:02d} [core.py:708] "),
    "compose": before("trainer-1  | "),
    "behind a bar": lambda text: BAR * 50 + text,
    "bytes": lambda text: "\0\udcff\udcfe" + text + "\0",
}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_same_verdict_in_every_dress(verdict: str) -> None:
    wrong = []
    for name, known, text in logs(verdict):
        says = known.pop("says", "")
        for dress, change in DRESSES.items():
            answer = judged(change(text), **known)
            told = "\n".join((answer.headline, *answer.evidence, *answer.details, *answer.advice))
            # A first line that begins with bytes of no text differs from the same line without them.
            if answer.id != verdict or (says not in told and dress != "bytes"):
                wrong.append(f"{name}, {dress}: {answer.id}, {told}")
            assert "{" not in re.sub(r"\{lib[^}]*\}?", "", answer.headline)
    assert not wrong, "\n".join(wrong)


def test_the_files_are_named_after_rows() -> None:
    assert set(VERDICTS) <= set(BY_ID)


def test_a_mention_is_no_cause() -> None:
    wrong = []
    for name, _, text in logs("mentions"):
        overcome = "Traceback" in text and "Exception i" not in text and "Error in" not in text and "---" not in text
        cases = [text + KEY_ERROR, text + "step 1\n" * 300 + KEY_ERROR, *([] if overcome else [KEY_ERROR + text])]
        for number, log in enumerate(cases):
            answer = judged(log)
            if answer.id != "python_error" or "KeyError" not in answer.headline:
                wrong.append(f"{name}, {number}: {answer.id}, {answer.headline}")
        steps = "".join(f"epoch {number}\n" for number in range(6))
        for number, log in enumerate((text + steps, steps + text + "score 0.9\n")):
            answer = judged(log, "SUCCEEDED")
            if answer.id != "no_failure":
                wrong.append(f"{name}, success {number}: {answer.id}, {answer.headline}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks have been OOM Killed.",
         "host_oom"),
        ("error: Detected 2 oom_kill events in StepId=7.batch. Some of the step tasks have been OOM Killed.", "host_oom"),
        ("srun: error: box: tasks 0-1: Out Of Memory", "host_oom"),
        ("slurmstepd: error: *** JOB 5 ON box CANCELLED AT 2026-03-02T11:37:36 DUE TO TIME LIMIT ***", "time_limit"),
        ("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", "python_error"),
    ],
)  # fmt: skip
def test_slurm_writes_into_the_middle_of_a_traceback(line: str, verdict: str) -> None:
    lines = KEY_ERROR.splitlines(True)
    for at in range(len(lines) + 1):
        answer = judged("".join((*lines[:at], line + "\n", *lines[at:])))
        assert answer.id == verdict, (at, answer)
        assert verdict != "python_error" or "KeyError: 'lr'" in answer.headline


@pytest.mark.parametrize("lead", ["", "[rank0]: ", "2026-03-02 11:37:36 "])
def test_a_traceback_that_was_cut_at_its_top(lead: str) -> None:
    rest = KEY_ERROR.replace("KeyError: 'lr'", "mine.Stop: enough").splitlines(True)
    for cut in range(1, 4):
        answer = judged("".join(lead + line for line in rest[cut:]))
        assert answer.headline == "Python ended with mine.Stop: enough"
        assert "in your code: /home/me/project/train.py:30 in step" in answer.evidence
