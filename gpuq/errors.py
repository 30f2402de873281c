"""Every error that a person may see, and the exit code that goes with it.

::

    GpuqError (1)
    ├── UsageError (2)               the command line or a TAG is wrong
    ├── ConfigError (3)              gpuq.toml, run.toml or a GPUQ_* variable is wrong
    ├── SlurmUnreachable (4)         no answer from slurmctld, munge, or no Slurm at all
    ├── SubmissionRefused (5)        gpuq or Slurm will not take the job as it is
    │   └── ScriptRefused            job.sh has a fault; carries the lines
    ├── NotFound (6)                 no such run, attempt or job
    ├── SlurmAnswerError (7)         Slurm answered something that gpuq does not understand
    ├── LedgerError (8)              a record under runs/ cannot be read or written
    ├── HostError (9)                the host (or the embedded Slurm) cannot be set up
    ├── DoctorFailure (10)           gpuq doctor found something that keeps jobs from running
    ├── ChangeRefused (11)           Slurm will not change this job (cancel, hold, set ...)
    ├── OutputError (12)             what gpuq has to say cannot be written to standard output
    ├── NotDelivered (13)            gpuq notify test: a sink did not take the notice
    ├── StoreError (14)              the watcher's database cannot be read or written
    ├── GpuNotUsable (15)            gpuq run: the GPU that was promised is not there, or stays full
    ├── LogFault (16)                gpuq lint-log: the log does not keep the format
    └── OutcomeError (20-27)         how an awaited attempt ended, for `gpuq wait` and `--wait`

Exit codes are an interface: one meaning each, carried by the class. The table in the README is generated
from `EXIT_CODES`; a test finds doubles. Codes above 128 mean 128 + the number of the signal that ended gpuq.
"""

from __future__ import annotations

from typing import ClassVar


class GpuqError(Exception):
    """Base of all errors that gpuq reports. `message` says what happened and what it means; `hint` names the
    command that helps (may be empty)."""

    exit_code: ClassVar[int] = 1
    meaning: ClassVar[str] = "a defect in gpuq itself; please report it with the traceback"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(GpuqError):
    """The command line, a TAG or a value on it is wrong."""

    exit_code = 2
    meaning = "usage: an option, a value or a TAG is wrong"


class ConfigError(GpuqError):
    """gpuq.toml, run.toml, the user's config or a GPUQ_* variable is wrong."""

    exit_code = 3
    meaning = "configuration: gpuq.toml, run.toml or a GPUQ_* variable is wrong"


class SlurmUnreachable(GpuqError):
    """Slurm gave no answer. Never to be read as "the queue is empty"."""

    exit_code = 4
    meaning = "Slurm does not answer (slurmctld, munge or the commands are missing)"


class SubmissionRefused(GpuqError):
    """The job was not submitted; nothing was left behind."""

    exit_code = 5
    meaning = "the submission was refused, by gpuq's checks or by Slurm; nothing was left behind"


class ScriptRefused(SubmissionRefused):
    """job.sh has faults. `faults` are complete sentences that name file and line."""

    def __init__(self, faults: list[str], *, hint: str = "") -> None:
        super().__init__("\n".join(faults), hint=hint)
        self.faults = faults


class NotFound(GpuqError):
    """No such run, attempt or job."""

    exit_code = 6
    meaning = "no such run, attempt or job"


class SlurmAnswerError(GpuqError):
    """Slurm answered, but not in a way that gpuq understands."""

    exit_code = 7
    meaning = "Slurm's answer was not understood"


class LedgerError(GpuqError):
    """A record below runs/ cannot be read or written."""

    exit_code = 8
    meaning = "a record under the runs directory cannot be read or written"


class HostError(GpuqError):
    """The host, or the embedded Slurm, cannot be set up or torn down as asked."""

    exit_code = 9
    meaning = "the host or the embedded Slurm could not be set up or torn down"


class DoctorFailure(GpuqError):
    """`gpuq doctor` found a failure; its report is on stdout."""

    exit_code = 10
    meaning = "`doctor`: something on this host keeps jobs from running, or loses them"


class ChangeRefused(GpuqError):
    """Slurm (or gpuq) will not make this change to this job."""

    exit_code = 11
    meaning = "a change (cancel, hold, release, top, nice, set) was refused"


class OutputError(GpuqError):
    """Standard output is full or broken. What was asked for was done all the same."""

    exit_code = 12
    meaning = "standard output could not be written; what was asked for was done all the same"


class NotDelivered(GpuqError):
    """`gpuq notify test`: a sink did not take the notice."""

    exit_code = 13
    meaning = "`notify test`: a sink did not take the notice"


class StoreError(GpuqError):
    """The watcher's database cannot be read or written."""

    exit_code = 14
    meaning = "the watcher's database (watch.db) cannot be read or written"


class GpuNotUsable(GpuqError):
    """`gpuq run`: the GPU that the job was promised is not there, or too much of its memory stays taken."""

    exit_code = 15
    meaning = "`run`: the GPU is not there, or its memory did not become free in time; the program was not started"


class LogFault(GpuqError):
    """`gpuq lint-log`: the log does not keep the format; the places are on stdout."""

    exit_code = 16
    meaning = "`lint-log`: the log does not keep the format"


EXIT_OUTCOME = {
    "FAILED": 20,
    "OUT_OF_MEMORY": 21,
    "TIMEOUT": 22,
    "CANCELLED": 23,
    "NODE_FAIL": 24,
    "INCOMPLETE": 25,
    "LOST": 26,
}
"""Exit code of `gpuq wait` by outcome (SUCCEEDED is 0)."""

EXIT_STILL_RUNNING = 27
"""Exit code of `gpuq wait` when it returns and something has not ended: the time is over, or it cannot start."""


class OutcomeError(GpuqError):
    """An awaited attempt did not succeed, or has not ended in time."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def exit_code_of(error: GpuqError) -> int:
    """The process exit code for `error`."""
    return error.code if isinstance(error, OutcomeError) else error.exit_code


def _exit_codes() -> dict[int, str]:
    table = {0: "success"}
    for cls in (
        GpuqError,
        UsageError,
        ConfigError,
        SlurmUnreachable,
        SubmissionRefused,
        NotFound,
        SlurmAnswerError,
        LedgerError,
        HostError,
        DoctorFailure,
        ChangeRefused,
        OutputError,
        NotDelivered,
        StoreError,
        GpuNotUsable,
        LogFault,
    ):
        if cls.exit_code in table:
            raise AssertionError(f"exit code {cls.exit_code} has two meanings")
        table[cls.exit_code] = cls.meaning
    words = {
        "FAILED": "the job failed (its own exit code is in the record)",
        "OUT_OF_MEMORY": "the job ran out of host memory",
        "TIMEOUT": "the job hit its time limit",
        "CANCELLED": "the job was cancelled",
        "NODE_FAIL": "the node failed",
        "INCOMPLETE": "the job ended well but a promised result is missing or stale, or it was stopped half-way",
        "LOST": "no record of how the job ended is left anywhere",
    }
    for outcome, code in EXIT_OUTCOME.items():
        table[code] = f"`wait`: {outcome}: {words[outcome]}"
    table[EXIT_STILL_RUNNING] = "`wait`: a job has not ended: the time is over, it can never start, or it stays held"
    return table


EXIT_CODES: dict[int, str] = _exit_codes()
"""All exit codes below 128 and what they mean, in order."""
