"""A program inside a job, from START to FINISHED or FAILED, whatever becomes of it.

Cheap to import: it begins with every run, and stays beside it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from gpuq.adapters import askgpu, injob
from gpuq.adapters.child import CannotStart, Child, Signals, exit_code, replace, write_all
from gpuq.core.inside import runlines
from gpuq.core.inside.runlines import FAILED, FINISHED, NOT_ENDED, START, STOPPING, clock, gib

MARK = "GPUQ_RUN"
"""Set for the program: somebody writes START and the last line."""
DRIVER_PATIENCE = 0.8
"""Seconds that the driver has to answer."""
_NO_ANSWER = frozenset({"no-binding", "no-library", "no-permission", "lacking", "other"})
"""Troubles that say nothing about whether a program can use the GPU."""
_DUE_TO = (
    ("TIME LIMIT", "time_limit"),
    ("PREEMPTION", "preempted"),
    ("JOB REQUEUE", "requeued"),
    ("NODE FAILURE", "node_fail"),
)
"""What slurmstepd writes into the log before its signal, and the cause."""
_UNSET = "take the line that sets CUDA_VISIBLE_DEVICES out of job.sh: Slurm sets it"
_SOON = 65.0
"""Seconds that Slurm's timers may be early: it looks every 30 s and may send --signal up to 60 s before (sbatch(1))."""


class Refused(Exception):
    """The program is not started. cause and words for the last line; code: the exit code."""

    def __init__(self, cause: str, words: str, advice: str, code: int) -> None:
        super().__init__(words)
        self.cause = cause
        self.words = words
        self.advice = advice
        self.code = code


def run(argv: Sequence[str], environment: Mapping[str, str], *, pty: bool = False, every: float = 30.0) -> int:
    """Run `argv` and return its exit code (128 + N: ended by signal N). `every`: seconds between lines of a progress bar."""
    return _Run(argv, environment, pty=pty, every=every).whole()


class _Run:
    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], *, pty: bool, every: float) -> None:
        self.argv = argv
        self.env = dict(environment)
        self.pty = pty
        self.every = every
        self.began = time.monotonic()
        self.in_job = "SLURM_JOB_ID" in environment
        self.asked_to_end: float | None = None
        self.device: dict[str, object] = {}
        self.answer: askgpu.Answer | None = None
        self.child: Child | None = None
        self.memory = _Memory(environment)
        self.signals: Signals | None = None

    def whole(self) -> int:
        if self.env.get(MARK):  # one run inside another: the outer one does it all
            try:
                replace(self.argv, self.env)
            except CannotStart as error:
                sys.stderr.write(f"gpuq run: {error}\n")
                return error.code
        self.env[MARK] = "1"
        self.signals = Signals(terminal=os.isatty(0))
        try:
            self._look()
            child = self._start()
        except Refused as refused:
            fields: dict[str, object] = {"error": refused.words}
            if refused.advice:
                fields["advice"] = refused.advice
            self._write(self._failed(refused.cause, str(refused.code), fields))
            return refused.code
        child.on_signal = self._on_signal
        self.memory.start()
        try:
            status = child.run()
        except Exception as error:  # a defect of gpuq's own must not leave the log without an end
            child.say(self._failed("gpuq", "1", {"error": f"{type(error).__name__}: {error}"}))
            raise
        self.memory.stop()
        child.say(self._last(child, status))
        return exit_code(status)

    # before the program ---------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Write START. Raises Refused where the GPU that was promised is not there."""
        promised = injob.promised_gpus(self.env)
        # what a job without a GPU could see of one is none of its business
        files = injob.devices() if promised or not self.in_job else []
        stands_in = bool(promised) and not files and injob.simulated(self.env)
        aside = None
        with contextlib.suppress(OSError):  # no process more can be had: then the driver is not asked
            aside = askgpu.begin() if (promised or files) and not stands_in else None
        self.device = {"device": "simulated" if stands_in else "none"}
        why = advice = ""
        if aside is not None:
            self.answer = askgpu.heard(aside.answer(DRIVER_PATIENCE))
        if (promised and not stands_in) or files:
            why, advice = self._device(files)
        self._write(runlines.write(START, self._settings(promised)))
        if promised and why:
            from gpuq.errors import GpuNotUsable

            raise Refused("no_gpu", f"the job was promised a GPU and sees none: {why}", advice, GpuNotUsable.exit_code)

    def _device(self, files: Sequence[str]) -> tuple[str, str]:
        """Fill in `device`. Why no program can use a GPU here, and what to do; empty: one can, as far as can be told."""
        answer = self.answer
        hidden = injob.hidden_by_hand(self.env)
        if answer is not None and answer.gpus:
            mine = self._mine(answer.gpus)
            self.device = {"device": " + ".join(one.name or "no name" for one in mine)}
            free = [one.free for one in mine if one.free is not None]
            if free:
                self.device["free"] = gib(min(free))
            if answer.driver:
                self.device["driver"] = answer.driver
        elif files:
            self.device = {"device": "unknown"}
        if hidden:
            self.device = {"device": "none"}
            return (
                f"CUDA_VISIBLE_DEVICES={hidden} hides it",
                _UNSET,
            )
        if answer is not None and answer.trouble and answer.trouble not in _NO_ANSWER:
            return answer.words, answer.advice
        if answer is not None and answer.gpus:
            named = self.env.get("CUDA_VISIBLE_DEVICES", "")
            if named.isdecimal() and int(named) >= len(answer.gpus):
                return f"CUDA_VISIBLE_DEVICES={named!r} names a GPU that is not here", _UNSET
            return "", ""
        if not files:
            words = f" ({answer.words})" if answer is not None and answer.words else ""
            return f"there is no /dev/nvidia0{words}", "gpuq doctor"
        return injob.why_closed(files), "gpuq doctor"

    def _mine(self, gpus: list[askgpu.Gpu]) -> list[askgpu.Gpu]:
        """Those that Slurm gave, where the driver lists others too (devices not constrained)."""
        numbers = {int(one) for one in self.env.get("SLURM_JOB_GPUS", "").split(",") if one.isdigit()}
        given = [one for one in gpus if one.minor in numbers]
        return given if given and len(given) == len(numbers) else gpus

    def _settings(self, promised: int) -> dict[str, object]:
        env = self.env
        found: dict[str, object] = {}
        memory = env.get("SLURM_MEM_PER_NODE", "")
        for key, value in (
            ("tag", env.get("GPUQ_TAG") or env.get("SLURM_JOB_NAME")),
            ("attempt", env.get("GPUQ_ATTEMPT")),
            ("job", env.get("SLURM_JOB_ID")),
            ("restart", env.get("SLURM_RESTART_COUNT")),
            ("node", env.get("SLURMD_NODENAME")),
            ("cpus", env.get("SLURM_CPUS_PER_TASK") or env.get("SLURM_CPUS_ON_NODE")),
            ("mem", gib(int(memory) << 20) if memory.isdigit() and int(memory) else None),
            ("gpus", str(promised) if self.in_job else None),
        ):
            if value:
                found[key] = value
        return {**found, **self.device, "at": _now(), "command": _shown(self.argv)}

    def _start(self) -> Child:
        """Raises Refused."""
        assert self.signals is not None  # noqa: S101
        from gpuq.usecases.inside import preflight

        try:
            preflight.hold(self.env, self.answer, self.signals, self._write)
        except preflight.GaveUp as error:
            raise Refused(error.cause, error.words, error.advice, error.code) from None
        try:
            self.child = Child(self.argv, self.env, self.signals, pty=self.pty, every=self.every)
        except CannotStart as error:
            raise Refused("command", str(error), "", error.code) from None
        return self.child

    # beside it ------------------------------------------------------------------------------------------------

    def _on_signal(self, number: int) -> None:
        child = self.child
        assert child is not None  # noqa: S101
        if number not in {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}:
            return
        first = self.asked_to_end is None
        now = time.monotonic()
        self.asked_to_end = now
        if first:
            child.say(runlines.write(STOPPING, {"signal": signal.Signals(number).name, "at": _now()}))
        if number == signal.SIGTERM and self.in_job and not self._only_a_warning(first):
            # Nothing can be written any more once Slurm kills the whole job, this process with it.
            child.at.append((now + injob.kill_wait(self.env) * 0.6, self._before_the_kill))

    def _only_a_warning(self, first: bool) -> bool:
        """This SIGTERM is the one of --signal-before, and no SIGKILL follows: the first, and not long before the limit."""
        before = injob.asked(self.env)[1]
        if not first or before is None:
            return False
        left = self._left()
        return left is None or left < before + _SOON

    def _left(self) -> float | None:
        """Seconds until the time limit; None: not known."""
        ends = self.env.get("SLURM_JOB_END_TIME", "")
        if ends.isdigit():
            return float(ends) - time.time()
        limit = injob.asked(self.env)[0]
        return None if limit is None else limit - (time.monotonic() - self.began)

    def _before_the_kill(self) -> None:
        if self.child is not None:
            cause = self._why_asked_to_end()
            self.child.say(
                self._failed(cause, NOT_ENDED, {"error": "the program has not ended, and Slurm kills it now"})
            )

    # the last line --------------------------------------------------------------------------------------------

    def _last(self, child: Child, status: int) -> str:
        code = exit_code(status)
        fields: dict[str, object] = {}
        kills = self.memory.kills()
        if code == 0:
            fields = {"exit": "0", **({"oom_kill": kills} if kills else {})}
            fields |= runlines.last_result(child.tail)
            if self.asked_to_end is not None:
                fields["stopped"] = "true"
            fields |= self._sizes(child)
            return runlines.write(FINISHED, {**fields, "elapsed": clock(time.monotonic() - self.began), "at": _now()})
        error = runlines.last_error(child.tail)
        if os.WIFSIGNALED(status):
            fields["signal"] = (
                signal.Signals(os.WTERMSIG(status)).name if os.WTERMSIG(status) < 32 else os.WTERMSIG(status)
            )
        if error:
            fields["error"] = error
        if kills:
            cause = "host_oom"
        elif self.asked_to_end is not None:
            cause = self._why_asked_to_end()
        elif os.WIFSIGNALED(status):
            cause = "signal"
        elif "CUDA out of memory" in error or "OutOfMemoryError" in error:
            cause = "gpu_oom"
        else:
            cause = "python_error" if error else "exit_code"
        return self._failed(cause, str(code), {**fields, **self._sizes(child)})

    def _why_asked_to_end(self) -> str:
        if not self.in_job:
            return "signal"
        said = injob.log_end().rpartition(f"\n{START} ")[2]  # an earlier start of the job may have ended in another way
        for words, cause in _DUE_TO:
            if f"DUE TO {words}" in said:
                return cause
        left = self._left()
        return "time_limit" if left is not None and left < (injob.asked(self.env)[1] or 0) + _SOON else "cancelled"

    def _failed(self, cause: str, code: str, more: Mapping[str, object]) -> str:
        kills = self.memory.kills()
        return runlines.write(
            FAILED,
            {
                "cause": cause,
                "exit": code,
                "oom_kill": "unknown" if kills is None else kills,
                **more,
                "elapsed": clock(time.monotonic() - self.began),
                "at": _now(),
            },
        )

    def _sizes(self, child: Child) -> dict[str, object]:
        """What the program took, and what of its output is missing."""
        found: dict[str, object] = {}
        if child.largest:
            found["largest_process"] = gib(child.largest)
        if self.memory.held:
            found["memory"] = gib(self.memory.held)
        if child.lost:
            found["lost_output"] = child.lost
        return found

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a full disk, a reader that went away: the program is what counts
            write_all(1, line.encode("utf-8", "surrogateescape") + b"\n")


class _Memory:
    """The memory of the job's cgroup, watched from inside. It never fails: it is worth less than the program."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        directory, number = environment.get("GPUQ_RUN_DIR", ""), environment.get("GPUQ_ATTEMPT", "")
        self._file = f"{directory}/slurm/attempt{number}.mem.json" if directory and number.isdigit() else ""
        self._in_job = "SLURM_JOB_ID" in environment
        self._before: int | None = None
        self.held: int | None = None
        self._sampler: object = None

    def start(self) -> None:
        """After the program has been started: what it costs delays nothing."""
        if not self._in_job:
            return
        signals = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for this thread
        try:
            from pathlib import Path

            from gpuq.usecases.memory.own import OwnSampler

            self._before = self._count()
            sampler = OwnSampler(keep=Path(self._file) if self._file else None)
            sampler.start()
            self._sampler = sampler
        except Exception as error:
            _debug(error)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)

    def stop(self) -> None:
        """Write the summary for whoever records the end."""
        if self._sampler is None:
            return
        try:
            from gpuq.usecases.memory.own import OwnSampler, write

            if isinstance(self._sampler, OwnSampler):
                summary = self._sampler.stop()
                self.held = None if summary is None else summary.held
                if self._file:
                    from pathlib import Path

                    write(Path(self._file), summary)
        except Exception as error:
            _debug(error)

    def kills(self) -> int | None:
        """Processes of the job that were killed for memory since the start; None: nobody counts."""
        now = self._count()
        return None if now is None else now - (self._before or 0)

    def _count(self) -> int | None:
        if not self._in_job:
            return None
        try:
            from gpuq.adapters.cgroup import locate, read

            place = locate.of_process("self")
            reading = None if place is None else read.read(place)
            return None if reading is None else reading.oom_kill
        except Exception as error:
            _debug(error)
            return None


def _debug(error: Exception) -> None:
    if os.environ.get("GPUQ_DEBUG"):
        sys.stderr.write(f"gpuq: debug: memory is not watched: {type(error).__name__}: {error}\n")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


_PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,@%+"


def _shown(argv: Sequence[str]) -> str:
    """The command as one would type it."""
    if all(word and not word.strip(_PLAIN) for word in argv):
        return " ".join(argv)
    import shlex

    return shlex.join(argv)
