"""Exit codes are an interface: one meaning each, all of them told."""

from __future__ import annotations

import inspect
import json

import pytest

from gpuq import errors
from gpuq.cli.main import main
from gpuq.core.attempt import Outcome
from gpuq.errors import (
    EXIT_CODES,
    EXIT_OUTCOME,
    EXIT_STILL_RUNNING,
    GpuqError,
    OutcomeError,
    ScriptRefused,
    exit_code_of,
)

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, GpuqError) and cls.__module__ == "gpuq.errors"
]


def test_no_two_kinds_of_error_share_a_code() -> None:
    own = [cls for cls in CLASSES if "exit_code" in vars(cls)]
    codes = [cls.exit_code for cls in own] + list(EXIT_OUTCOME.values()) + [EXIT_STILL_RUNNING, 0]
    assert len(codes) == len(set(codes))


def test_a_class_without_a_code_of_its_own_is_a_refinement_of_one_that_has_it() -> None:
    assert {cls.__name__ for cls in CLASSES if "exit_code" not in vars(cls)} == {"ScriptRefused", "OutcomeError"}


def test_the_table_is_complete_and_holds_nothing_else() -> None:
    raised = {cls.exit_code for cls in CLASSES} | set(EXIT_OUTCOME.values()) | {EXIT_STILL_RUNNING, 0}
    assert set(EXIT_CODES) == raised
    assert all(0 <= code < 128 and meaning for code, meaning in EXIT_CODES.items())
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)
    assert list(EXIT_CODES) == sorted(EXIT_CODES)


def test_the_published_codes_never_change() -> None:
    assert {cls.__name__: cls.exit_code for cls in CLASSES if cls is not OutcomeError} == {
        "GpuqError": 1,
        "UsageError": 2,
        "ConfigError": 3,
        "SlurmUnreachable": 4,
        "SubmissionRefused": 5,
        "ScriptRefused": 5,
        "NotFound": 6,
        "SlurmAnswerError": 7,
        "LedgerError": 8,
        "HostError": 9,
        "DoctorFailure": 10,
        "ChangeRefused": 11,
        "OutputError": 12,
        "NotDelivered": 13,
        "StoreError": 14,
        "GpuNotUsable": 15,
        "LogFault": 16,
    }
    assert EXIT_OUTCOME == {
        "FAILED": 20,
        "OUT_OF_MEMORY": 21,
        "TIMEOUT": 22,
        "CANCELLED": 23,
        "NODE_FAIL": 24,
        "INCOMPLETE": 25,
        "LOST": 26,
    }
    assert EXIT_STILL_RUNNING == 27


def test_every_outcome_but_success_has_a_code() -> None:
    assert set(EXIT_OUTCOME) == {outcome.value for outcome in Outcome} - {"SUCCEEDED"}


def test_the_tree_in_the_docstring_names_every_class_with_its_code() -> None:
    assert errors.__doc__ is not None
    for cls in CLASSES:
        (line,) = [line for line in errors.__doc__.splitlines() if f" {cls.__name__} " in line]
        if "exit_code" in vars(cls):
            assert f"({cls.exit_code})" in line


def test_the_code_of_an_error_and_of_an_outcome() -> None:
    assert exit_code_of(ScriptRefused(["job.sh:1: x"])) == 5
    assert exit_code_of(OutcomeError("a attempt 1 ended as TIMEOUT", 22)) == 22


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_keeps_what_it_says(cls: type[GpuqError]) -> None:
    if cls is ScriptRefused:
        error: GpuqError = ScriptRefused(["job.sh:1: a", "job.sh:2: b"], hint="mend it")
        assert error.message == "job.sh:1: a\njob.sh:2: b"
    elif cls is OutcomeError:
        error = OutcomeError("text", 20)
        assert (error.message, error.hint) == ("text", "")
        return
    else:
        error = cls("text", hint="mend it")
        assert str(error) == error.message == "text"
    assert error.hint == "mend it"


@pytest.mark.parametrize(
    ("fault", "code", "meaning"),
    [(RuntimeError("boom"), 1, "defect"), (KeyboardInterrupt(), 130, "SIGINT")],
)
def test_with_json_even_a_defect_and_an_interruption_leave_one_object(
    fault: BaseException,
    code: int,
    meaning: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    def fail(_argv: list[str]) -> int:
        raise fault

    monkeypatch.setattr("gpuq.cli.main._call", fail)
    monkeypatch.setattr("gpuq.cli.output.written", False)
    with pytest.raises(SystemExit) as ended:
        main(["queue", "--json"])
    assert ended.value.code == code
    shown = capfdbinary.readouterr()
    told = json.loads(shown.out)
    assert (told["schema"], told["code"]) == ("gpuq.error/1", code)
    assert meaning in told["meaning"]
    assert (b"Traceback" in shown.err) == (code == 1)
